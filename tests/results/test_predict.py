"""openworld predict and openworld name, on a run of the digits, of photos and of features."""

import csv
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save
from worlds import CPU, run, stopped, trained, write_photos

from openworld.cli import main
from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.data.benchmarks import read_benchmark
from openworld.data.worker import decode_files
from openworld.ops.rng import generator
from openworld.results.predict import find_images
from openworld.runs.classes import NAMES, Classes
from openworld.runs.folder import RunFolder
from openworld.runs.model import Model
from openworld.runs.outputs import read_outputs

SHORT = {"steps": 12, "epoch_steps": 12, "uncertainty_views": 3}
QUICK = ["--steps", "4", "--epoch-steps", "4", "--uncertainty-views", "2", "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    return trained(str(tmp_path_factory.mktemp("predict") / "digits"), replace(digits("digits"), SHORT)).path


@pytest.fixture
def digits_copy(digits_run):
    return RunFolder(Path(shutil.copytree(digits_run, "copy")))


@pytest.fixture
def pictures():
    """Write test digits as gray and colour PNG files, some of them in a subfolder."""
    Path("pictures/more").mkdir(parents=True)
    test = read_benchmark("digits", Path()).test
    for number in range(6):
        image = Image.fromarray(test.content[number, :, :, 0])
        folder = "pictures/more" if number > 3 else "pictures"
        (image if number % 2 else image.convert("RGB")).save(f"{folder}/{number}.png")
    return Path("pictures")


def no_warning(message: str) -> None:
    raise AssertionError(message)


def answers(capsys, *arguments: object) -> list[dict[str, str]]:
    capsys.readouterr()
    assert run("predict", *arguments, "--device", "cpu", "--quiet") == 0
    return list(csv.DictReader(capsys.readouterr().out.splitlines()))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# predict --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_files_get_the_answers_that_the_run_gave_to_the_same_images(capsys, digits_run, pictures):
    rows = answers(capsys, digits_run, pictures, "--workers", 0)
    assert [row["path"] for row in rows] == [
        f"pictures/{name}.png" for name in ("0", "1", "2", "3", "more/4", "more/5")
    ]
    expected = [row for row in table(digits_run / "predictions.csv") if row["split"] == "test"][:6]
    for row, inside in zip(rows, expected, strict=True):
        assert (row["prediction"], row["runner_up"]) == (inside["prediction"], inside["runner_up"])
        assert float(row["confidence"]) == pytest.approx(float(inside["confidence"]), abs=2e-4)
    assert all(0 <= float(row["uncertainty"]) <= 0.5 for row in rows)


def test_workers_and_batches_change_nothing(capsys, digits_run, pictures, monkeypatch):
    one = answers(capsys, digits_run, pictures, "--workers", 0, "--views", 0)
    monkeypatch.setattr("openworld.results.predict.BATCH", 4)
    monkeypatch.setattr("openworld.results.predict.FILES_PER_TASK", 2)
    two = answers(capsys, digits_run, pictures, "--workers", 2, "--views", 0)
    assert one == two
    assert {row["uncertainty"] for row in one} == {""}


def test_more_views_than_one_give_an_uncertainty_that_is_the_same_every_time(capsys, digits_run, pictures):
    first, again = (answers(capsys, digits_run, pictures / "0.png", "--views", 5) for _ in range(2))
    assert first == again
    assert float(first[0]["uncertainty"]) > 0


@pytest.mark.slow
def test_no_answer_hangs_on_its_company(capsys, digits_run, pictures):
    together = answers(capsys, digits_run, pictures, "--views", 4)
    alone = [answers(capsys, digits_run, row["path"], "--views", 4)[0] for row in together]
    for row, other in zip(together, alone, strict=True):
        assert row["prediction"] == other["prediction"]
        assert float(row["uncertainty"]) == pytest.approx(float(other["uncertainty"]), abs=2e-4)
    assert len({row["uncertainty"] for row in together}) > 1


def test_bad_images_are_told_of_and_the_others_predicted(capsys, digits_run, pictures):
    (pictures / "2.png").write_bytes((pictures / "2.png").read_bytes()[:60])
    Path("list.csv").write_text("path,label\npictures/0.png,\npictures/gone.png,\npictures/2.png,\n")
    capsys.readouterr()
    assert run("predict", digits_run, "list.csv", "--device", "cpu", "--out", "out.jsonl") == 0
    captured = capsys.readouterr()
    assert "warning: pictures/gone.png cannot be read" in captured.err
    assert "1 images predicted, 2 could not be used: out.jsonl" in captured.err
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row["path"] for row in rows] == ["pictures/0.png", "pictures/gone.png", "pictures/2.png"]
    assert [bool(row["prediction"]) for row in rows] == [True, False, False]
    assert rows[0]["error"] is None
    assert "No such file" in rows[1]["error"]


@pytest.mark.slow
def test_links_and_odd_names_in_a_folder_are_no_reason_to_stop(capsys, digits_run, pictures):
    (pictures / "dangling.png").symlink_to("gone.png")
    (pictures / "linked.png").symlink_to(Path("pictures/0.png").absolute())
    Path(b"pictures/\xff.png".decode("utf-8", "surrogateescape")).write_bytes((pictures / "0.png").read_bytes())
    (pictures / ".hidden.png").write_text("no image")
    (pictures / ".thumbnails").mkdir()
    shutil.copy(pictures / "0.png", pictures / ".thumbnails")
    arguments = ["predict", str(digits_run), str(pictures), "--views", "0", "--device", "cpu"]
    assert run(*arguments, "--out", "a.csv") == 0
    lines = Path("a.csv").read_bytes().splitlines()
    command = [sys.executable, "-m", "openworld", *arguments]
    strictly = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}  # as on most machines
    printed = subprocess.run(command, capture_output=True, check=True, env=strictly).stdout
    assert printed.splitlines() == lines
    assert len(lines) == 1 + 9
    assert sum(b"No such file" in line for line in lines) == 1
    assert b"pictures/\xff.png" in b"".join(lines)


def test_what_is_not_ours_is_not_replaced(refused, capsys, digits_run, pictures):
    Path("mine.csv").write_text("path,label\npictures/0.png,zero\n")
    message = refused("predict", digits_run, "mine.csv", "--out", "mine.csv")
    assert "mine.csv exists" in message
    for name in ("a.csv", "a.jsonl"):
        for _ in range(2):
            assert run("predict", digits_run, pictures, "--out", name, "--views", 0, "--device", "cpu") == 0
    assert Path("mine.csv").read_text().endswith("zero\n")


def test_places_are_taken_in_order_and_each_image_once(pictures):
    found = find_images([pictures / "more", pictures / "0.png", pictures])
    assert found == [f"pictures/{name}.png" for name in ("more/4", "more/5", "0", "1", "2", "3")]


def test_an_image_of_any_size_and_mode_is_brought_to_that_of_training(capsys, digits_run):
    for mode, side in (("RGBA", 31), ("P", 8), ("I;16", 100), ("CMYK", 9)):
        name = f"{mode.replace(';', '')}.{'tif' if mode == 'CMYK' else 'png'}"
        Image.new(mode, (side, side + 3)).save(name)
        assert answers(capsys, digits_run, name, "--views", 0)[0]["prediction"]


def test_gray_is_as_bright_as_the_colours_are_to_the_eye():
    Image.new("RGB", (8, 8), (255, 0, 0)).save("red.png")
    (pixels,) = decode_files(["red.png"], 8, channels=1)
    assert pixels.shape == (1, 8, 8)
    assert (pixels == 76).all()


@pytest.mark.slow
def test_photos_and_features(capsys):
    write_photos(Path("photos"))
    assert run("train", "photos", "--out", "p", "--image-size", 12, "--network", "small", *QUICK) == 0
    rows = answers(capsys, "p", "photos/unlabelled", "photos/test/fox", "--views", 2)
    assert len(rows) == 34
    inside = {row["path"]: row["prediction"] for row in table(Path("p/predictions.csv"))}
    assert all(inside[row["path"].removeprefix("photos/")] == row["prediction"] for row in rows)

    draw = np.random.default_rng(0)
    labels = np.repeat([0, 1, -1], 40)
    features = draw.normal(size=(120, 5)) + 4 * labels[:, None]
    np.savez("f.npz", features=features, labels=labels)
    assert run("train", "f.npz", "--out", "f", *QUICK) == 0
    np.savez("more.npz", features=features[80:])
    rows = answers(capsys, "f", "more.npz", "--views", 2)
    assert [row["path"] for row in rows] == [str(number) for number in range(40)]
    assert [row["prediction"] for row in rows] == [row["prediction"] for row in table(Path("f/predictions.csv"))]


def test_images_of_an_npz_are_resized(capsys, digits_run):
    images = read_benchmark("digits", Path()).test.content[:5]
    np.savez("large.npz", images=images.repeat(2, axis=1).repeat(2, axis=2))
    assert len(answers(capsys, digits_run, "large.npz", "--views", 0)) == 5


@pytest.mark.slow
def test_a_run_that_is_not_finished_answers_and_says_so(capsys, pictures):
    stopped("half", replace(digits("digits"), {**SHORT, "epoch_steps": 4}), step=6)
    capsys.readouterr()
    assert run("predict", "half", pictures, "--device", "cpu", "--json") == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 6
    assert "half is not finished" in captured.err
    assert "step 4 of 12" in captured.err


def test_bad_input(refused, capsys, digits_copy, pictures):
    Path("empty").mkdir()
    Path("no-path.csv").write_text("file\nx.png\n")
    Path("none.csv").write_text("path\n")
    np.savez("f.npz", features=np.zeros((3, 2)))
    np.savez("rgb.npz", images=np.zeros((3, 8, 8, 3), np.uint8))
    Path("broken.png").write_text("no image")
    for arguments, message in (
        (("nowhere", pictures), "nowhere is not a run"),
        (("copy", "gone.png"), "gone.png: no such file or folder"),
        (("copy", "gone.npz"), "gone.npz: no such file"),
        (("copy", "empty"), "empty: this folder has no images"),
        (("copy", "no-path.csv"), "column path is missing (found: file)"),
        (("copy", "none.csv"), "none.csv: the manifest names no images"),
        (("copy", "f.npz"), "array images is missing"),
        (("copy", "rgb.npz"), "(3, 8, 8), but the run was trained on (1, 8, 8)"),
        (("copy", "f.npz", pictures), "f.npz: an .npz file cannot be combined"),
        (("copy", pictures, "--views", 1), "--views 1: "),
        (("copy", pictures, "--out", "x.txt"), "must end in .csv or .jsonl"),
        (("copy", pictures, "--out", "no/x.csv"), "--out no/x.csv: the folder no "),
    ):
        assert message in refused("predict", *arguments), arguments
    Path("x.csv").write_text("path,prediction,confidence,uncertainty,runner_up,error\nof an earlier day")
    assert run("predict", "copy", "broken.png", "--device", "cpu", "--out", "x.csv") == 2
    assert "the image cannot be used" in capsys.readouterr().err
    assert Path("x.csv").read_text().endswith("of an earlier day")
    for path in digits_copy.checkpoints.glob("*/average.safetensors"):
        path.write_bytes(b"x" + path.read_bytes()[1:])
    assert run("predict", "copy", pictures, "--device", "cpu") == 2
    assert "copy has no undamaged checkpoint" in capsys.readouterr().err


def test_a_file_that_was_there_stays_until_the_new_one_is_complete(digits_run, pictures, monkeypatch):
    old = "path,prediction,confidence,uncertainty,runner_up,error\nold"
    Path("out.csv").write_text(old)
    monkeypatch.setattr("openworld.runs.model.Model.probabilities", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["predict", str(digits_run), str(pictures), "--out", "out.csv", "--device", "cpu"])
    assert Path("out.csv").read_text() == old
    assert not Path("out.csv.tmp").exists()


# The model and the outputs behind it ------------------------------------------------------------------------------


def test_a_model_needs_no_data_and_its_features_are_what_the_classes_are_told_apart_by(digits_run):
    model = Model.load(RunFolder(digits_run), CPU, no_warning)
    images = torch.from_numpy(read_benchmark("digits", Path()).test.content[:9].transpose(0, 3, 1, 2).copy())
    features, shares = model.features(images), model.probabilities(images)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(9))
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(9))
    torch.testing.assert_close(shares, (model.network.head(features) / model.temperature).softmax(dim=1))


def test_the_uncertainty_of_merged_classes_is_that_of_their_sum(digits_run):
    model = Model.load(RunFolder(digits_run), CPU, no_warning)
    names = model.classes.names
    one = dataclasses.replace(model, classes=model.classes.merged(names[5:]))
    images = torch.from_numpy(read_benchmark("digits", Path()).test.content[:9].transpose(0, 3, 1, 2).copy())
    numbers = [model.family.draw(images[:1], generator(0, "predict", view)).expand(-1, 9) for view in range(4)]
    shares = torch.stack([model._probabilities(model.family.view(images, drawn)) for drawn in numbers])
    merged = torch.cat([shares[..., :5], shares[..., 5:].sum(dim=2, keepdim=True)], dim=2)
    best = merged.mean(dim=0).argmax(dim=1)
    expected = torch.stack([merged[:, row, best[row]] for row in range(9)]).std(dim=1)
    torch.testing.assert_close(one.uncertainty(images, 4), expected, rtol=1e-4, atol=1e-5)


def test_a_split_that_does_not_fit_its_checkpoint(digits_copy, refused, pictures):
    split = json.loads(digits_copy.split())
    digits_copy.write("split.json", json.dumps({**split, "class_names": split["class_names"][:-1]}))
    assert "copy is damaged" in refused("predict", "copy", pictures)


@pytest.mark.parametrize("missing", ["class_names", "sample_shape"])
def test_a_split_that_does_not_describe_the_samples(digits_copy, refused, pictures, missing):
    split = json.loads(digits_copy.split())
    del split[missing]
    digits_copy.write("split.json", json.dumps(split))
    message = refused("predict", "copy", pictures)
    assert "copy: split.json lacks" in message
    assert "train the run again" in message


def test_a_run_that_has_not_begun(refused, digits_copy, pictures):
    shutil.rmtree(digits_copy.checkpoints)
    (digits_copy.path / "split.json").unlink()
    for command in (("predict", "copy", pictures), ("name", "copy"), ("report", "copy"), ("export", "copy", "m.md")):
        assert "copy has no split.json: training has not started" in refused(*command)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["split.json", "names.json", "summary.json", "environment.json", "metrics.jsonl"])
def test_files_that_are_no_text_are_damaged_files(digits_copy, name, capsys):
    digits_copy.write(name, bytes(range(128, 256)))
    codes = {run(*command) for command in (("name", "copy"), ("export", "copy", "m.md"), ("report", "copy"))}
    assert codes == ({2} if name in ("split.json", "names.json") else {0})


def test_advice_for_a_run_without_checkpoints_leads_somewhere(digits_copy, refused, pictures):
    shutil.rmtree(digits_copy.checkpoints)
    assert refused("predict", "copy", pictures).endswith("copy has no undamaged checkpoint; train the run again")
    (digits_copy.path / "summary.json").unlink()
    assert "openworld train --resume --out copy" in refused("predict", "copy", pictures)


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_ends_it_in_silence(digits_run, pictures):
    for number in range(3000):
        Path(f"pictures/more/x{number}.png").hardlink_to("pictures/0.png")
    command = f"'{sys.executable}' -m openworld predict {digits_run} pictures --views 0 --device cpu --quiet | head -1"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert ended.stderr == ""
    assert ended.stdout.startswith("path,")


def test_outputs_that_are_damaged_are_as_good_as_none(digits_copy):
    whole = (digits_copy.path / "outputs.safetensors").read_bytes()
    for content in (b"", whole[:100], save({"a": torch.zeros(2)}), save({"a": torch.zeros(2)}, {"test": "[1]"})):
        digits_copy.write("outputs.safetensors", content)
        assert read_outputs(digits_copy) is None


def test_outputs_hold_the_truth_for_evaluation_and_are_read_as_they_were_written(digits_run):
    outputs = read_outputs(RunFolder(digits_run))
    assert list(outputs) == ["unlabelled", "test"]  # the order of predictions.csv
    test = read_benchmark("digits", Path()).test
    assert outputs["test"].truth.tolist() == test.labels.tolist()
    assert outputs["test"].samples == tuple(range(len(test)))
    rows = [row for row in table(digits_run / "predictions.csv") if row["split"] == "test"]
    names = Classes.of(RunFolder(digits_run)).names
    assert [names[best] for best in outputs["test"].logits.argmax(dim=1)] == [row["prediction"] for row in rows]
    assert [float(row["uncertainty"]) for row in rows] == pytest.approx(outputs["test"].uncertainty.tolist(), abs=1e-4)


# name -----------------------------------------------------------------------------------------------------------


def test_names_flow_into_predictions(capsys, digits_copy, pictures):
    before = table(digits_copy.path / "predictions.csv")
    assert run("name", "copy", "novel-3=nine or so", "--merge", "novel-1", "novel-2") == 0
    assert "novel-1 + novel-2" in capsys.readouterr().out
    assert json.loads(digits_copy.read(NAMES)) == {"novel-3": "nine or so", "novel-2": "novel-1"}
    after = table(digits_copy.path / "predictions.csv")
    assert len(after) == len(before)
    for old, new in zip(before, after, strict=True):
        if old["prediction"] in ("novel-1", "novel-2"):
            assert new["prediction"] == "novel-1"
            assert float(new["confidence"]) >= float(old["confidence"])
            assert new["runner_up"] != "novel-1"
        elif old["prediction"] == "novel-3" and new["prediction"] != "novel-1":
            assert new["prediction"] == "nine or so"
    predicted = {row["prediction"] for row in answers(capsys, "copy", pictures, "--views", 0)}
    assert "novel-2" not in predicted
    assert run("name", "copy", "nine or so=novel-3", "novel-2=novel-2") == 0
    assert table(digits_copy.path / "predictions.csv") == before


def test_names_may_come_after_a_flag(capsys, digits_copy):
    assert run("name", "copy", "novel-2=two", "--json", "novel-1=one") == 0
    assert list(json.loads(capsys.readouterr().out))[5:7] == ["one", "two"]


def test_names_can_be_taken_back(capsys, digits_copy):
    before = (digits_copy.path / "predictions.csv").read_bytes()
    run("name", "copy", "novel-1=six")
    assert (digits_copy.path / "predictions.csv").read_bytes() != before
    run("name", "copy", "six=novel-1")
    assert (digits_copy.path / "predictions.csv").read_bytes() == before


def test_without_a_change_classes_are_listed_and_nothing_is_written(capsys, digits_copy):
    (digits_copy.path / "predictions.csv").unlink()
    assert run("name", "copy", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == [*"01234", "novel-1", "novel-2", "novel-3", "novel-4", "novel-5"]
    assert {name: entry["unlabelled"] for name, entry in listed.items()} == digits_copy.summary()["class_sizes"]
    assert not (digits_copy.path / "predictions.csv").exists()
    assert digits_copy.read(NAMES) is None


def test_bad_names(refused, digits_copy):
    assert "novel-33 is not a novel class; did you mean novel-3?" in refused("name", "copy", "novel-33=x")
    assert "unknown argument --jsn" in refused("name", "copy", "--jsn", "novel-1=x")
    assert "novel-3: write CLASS=NAME" in refused("name", "copy", "novel-3")
    assert "nowhere is not a run" in refused("name", "nowhere", "novel-1=x")
    assert digits_copy.read(NAMES) is None
