import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from worlds import run, stopped, trained, write_photos

from openworld.api import train_on
from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.data.own import from_arrays, read_own
from openworld.results import suggest
from openworld.results.suggest import choose, reason
from openworld.runs.folder import RunFolder
from openworld.runs.outputs import TopPrediction

TINY = {"steps": 4, "epoch_steps": 2, "uncertainty_views": 2}
HERE = ["--device", "cpu", "--workers", "0"]


def around(direction: int, number: int, spread: float = 0.1) -> torch.Tensor:
    """Return unit vectors near an axis. The first one is on it."""
    noise = spread * torch.randn(number, 8, generator=torch.Generator().manual_seed(direction))
    noise[0] = 0
    return F.normalize(torch.eye(8)[direction] + noise)


# The choice


def test_what_no_label_covers_comes_first_the_largest_group_before_others():
    unlabelled = torch.cat([around(0, 40), around(1, 10), around(2, 20), around(3, 30)])
    groups = np.repeat([0, 1, 2, 3], [40, 10, 20, 30])
    chosen = choose(unlabelled, around(0, 5), 3)
    assert groups[chosen].tolist() == [3, 2, 1]


def test_a_choice_is_typical_of_its_surroundings():
    unlabelled = torch.cat([around(1, 30), around(2, 1)])  # a group and an outlier
    (chosen,) = choose(unlabelled, around(0, 5), 1)
    most_central = (unlabelled @ unlabelled[:30].mean(dim=0)).argsort(descending=True)[:3]
    assert chosen in most_central.tolist()


def test_near_a_choice_little_is_left_to_gain():
    """Otherwise the second choice would be a neighbour of the first."""
    unlabelled = torch.cat([around(1, 30, 0.01), around(2, 5)])
    assert choose(unlabelled, around(0, 5), 2)[1] >= 30


def test_fewer_choices_are_the_first_of_more_and_none_is_made_twice():
    unlabelled = torch.cat([around(1, 6), around(1, 6), around(2, 6)])  # some are duplicates
    everything = choose(unlabelled, around(0, 5), 18)
    assert sorted(everything) == list(range(18))
    assert choose(unlabelled, around(0, 5), 7) == everything[:7]


def test_of_many_samples_evenly_spaced_ones_are_weighed(monkeypatch):
    monkeypatch.setattr(suggest, "MOST", 7)
    chosen = choose(around(1, 100), around(0, 5), 7)
    assert sorted(chosen) == [0, 16, 33, 49, 66, 82, 99]


def test_the_reason_names_the_doubt_or_what_is_typical():
    assert reason(TopPrediction("cat", 0.4, "dog"), guessed_before=False) == "between cat and dog"
    assert reason(TopPrediction("cat", 0.6, "dog"), guessed_before=False) == "typical of cat"
    assert reason(TopPrediction("cat", 0.6, "dog"), guessed_before=True) == "another kind of cat"


# Own photos


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """A folder with photos and a run on them."""
    folder = tmp_path_factory.mktemp("suggest")
    train_on(write_photos(folder / "photos"), out=folder / "r", device="cpu", workers=0, **TINY)
    return folder


@pytest.fixture
def photos(kept) -> Path:
    """A copy of the photos and the run in the working directory."""
    shutil.copytree(kept, Path(), dirs_exist_ok=True)
    points_to(Path("photos"))
    return Path("photos")


def points_to(data: Path) -> None:
    config = Path("r/config.toml")
    text, count = re.subn("^data = .*$", f'data = "{data.absolute()}"', config.read_text(), flags=re.MULTILINE)
    assert count == 1
    config.write_text(text)


def rows_of(path: Path | str) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def told(capsys, *arguments: object) -> dict:
    capsys.readouterr()
    assert run("suggest", "r", *arguments, "--json", *HERE) == 0
    return json.loads(capsys.readouterr().out)


def test_the_manifest_holds_all_images_those_to_label_first(photos, capsys):
    answer = told(capsys, "--count", 5)
    assert Path(answer["file"]) == photos.absolute() / "to-label.csv"
    rows = rows_of(answer["file"])
    assert list(rows[0]) == ["path", "label", "split", "guess", "why", "confidence"]
    assert [row["path"] for row in rows[:5]] == [chosen["path"] for chosen in answer["suggestions"]]
    predicted = {row["path"]: row for row in rows_of("r/predictions.csv")}
    for row in rows[:5]:
        assert row["path"].startswith("unlabelled/")
        assert (row["label"], row["split"]) == ("", "train")
        assert row["guess"] == predicted[row["path"]]["prediction"]
        assert row["confidence"] == predicted[row["path"]]["confidence"]
        assert row["why"]
    assert all(row["guess"] == row["why"] == row["confidence"] == "" for row in rows[5:])
    assert {row["split"] for row in rows if not row["label"]} == {"train"}  # whichever gets a label teaches it
    before, after = read_own(photos), read_own(Path(answer["file"]))

    def content(dataset):
        labels = [dataset.class_names[label] if label >= 0 else "" for label in dataset.train.labels]
        test = [dataset.class_names[label] for label in dataset.test.labels]
        train = zip(dataset.train.content.paths, labels, dataset.is_labelled.tolist(), strict=True)
        return set(train), set(zip(dataset.test.content.paths, test, strict=True))

    assert content(after) == content(before)


def test_what_was_filled_in_is_trained_on_and_a_new_class_becomes_known(photos, capsys):
    answer = told(capsys, "--count", 8)
    rows = rows_of(answer["file"])
    for row in rows[:8]:
        row["label"] = Path(row["path"]).parts[1]
    assert "fox" in {row["label"] for row in rows[:8]}
    with open(answer["file"], "w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    assert answer["train"] == f"openworld train {answer['file']} --num-classes 3"
    short = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", value)]
    assert run(*answer["train"].split()[1:], *short, *HERE, "--quiet", "--out", "again") == 0
    summary = RunFolder(Path("again")).summary()
    assert (summary["num_seen"], summary["num_classes"]) == (3, 3)
    assert sum(summary["class_sizes"].values()) == 30 - 8


def test_names_that_people_gave_are_used(photos, capsys):
    before = told(capsys, "--count", 30)["suggestions"]
    assert "novel-1" in {chosen["guess"] for chosen in before}
    Path("r/names.json").write_text('{"novel-1": "dog"}')  # a novel class turned out to be a seen one
    answer = told(capsys, "--count", 30)
    assert [chosen["path"] for chosen in answer["suggestions"]] == [chosen["path"] for chosen in before]
    assert {chosen["guess"] for chosen in answer["suggestions"]} <= {"cat", "dog"}
    assert "novel-1" not in Path(answer["file"]).read_text()
    assert answer["train"].endswith("--num-classes 2")


def test_a_person_sees_the_first_ones_the_files_and_how_to_go_on(photos, capsys):
    assert run("suggest", "r", "--count", 12, *HERE) == 0
    out = capsys.readouterr().out
    assert out.count("unlabelled/") == 10
    assert "10 of 12" in out
    assert str(photos.absolute() / "to-label.csv") in out
    assert "r/to-label-sheet.png" in out
    assert f"openworld train {photos.absolute() / 'to-label.csv'} --num-classes 3" in out


def test_the_contact_sheet_shows_each_chosen_image_by_its_guess(photos, capsys, monkeypatch):
    sheets = []
    monkeypatch.setattr(suggest, "contact_sheet", lambda rows: sheets.append(rows) or Image.new("RGB", (4, 4)))
    answer = told(capsys, "--count", 30)
    assert answer["contact_sheet"] == "r/to-label-sheet.png"  # not among the photos
    assert Path(answer["contact_sheet"]).read_bytes().startswith(b"\x89PNG")
    lines = rows_of(answer["file"])
    shown = {}
    for row in sheets[0]:
        guess, _, numbers = row.heading.removesuffix(")").partition(" (lines ")
        assert len(row.images) <= 12
        for number, image in zip(numbers.split(", "), row.images, strict=True):
            line = lines[int(number) - 2]
            assert line["guess"] == guess
            with Image.open(photos / line["path"]) as picture:
                assert np.array_equal(image.permute(1, 2, 0).numpy(), np.asarray(picture))
            shown[line["path"]] = guess
    assert len(shown) == 30


def test_a_file_that_people_may_have_filled_in_is_never_overwritten(photos, capsys, refused):
    first = Path(told(capsys, "--count", 3)["file"])
    first.write_text("mine")
    assert Path(told(capsys, "--count", 3)["file"]).name == "to-label-2.csv"
    assert Path(told(capsys, "--count", 3)["contact_sheet"]).name == "to-label-3-sheet.png"
    message = refused("suggest", "r", "--count", 3, "--out", first, *HERE)
    assert f"{first}: the file exists" in message
    assert first.read_text() == "mine"


def test_another_place_must_be_above_the_images(photos, capsys, refused):
    answer = told(capsys, "--count", 3, "--out", "mine.csv")
    assert rows_of("mine.csv")[0]["path"].startswith("photos/unlabelled/")
    assert len(read_own(Path("mine.csv")).train) == 12 + 30
    assert answer["contact_sheet"] == "r/mine-sheet.png"
    Path("elsewhere").mkdir()
    assert "a folder above" in refused("suggest", "r", "--out", "elsewhere/mine.csv", *HERE)
    assert "the folder nowhere does not exist" in refused("suggest", "r", "--out", "nowhere/mine.csv", *HERE)
    assert "must end in .csv" in refused("suggest", "r", "--out", "mine.txt", *HERE)


def test_a_manifest_whose_unlabelled_classes_are_known_keeps_them_for_evaluation(photos, capsys):
    lines = ["path,label,split"]
    for path in sorted(photos.glob("*/*/*.png")):
        part, label, _ = path.relative_to(photos).parts
        lines.append(f"{path.relative_to(photos)},{label},{part}")
    (photos / "all.csv").write_text("\n".join(lines))
    shutil.rmtree("r")
    train_on(photos / "all.csv", out="r", device="cpu", workers=0, **TINY)
    answer = told(capsys, "--count", 4)
    assert Path(answer["file"]) == photos.absolute() / "to-label.csv"
    after = read_own(Path(answer["file"]))
    assert (after.train.labels[:4] == -1).all()
    assert (after.train.labels[4:] >= 0).all()
    assert int(after.is_labelled.sum()) == 12


def test_broken_images_that_were_left_out_stay_out(photos, capsys):
    broken = [photos / "labelled/cat/000.png", photos / "unlabelled/fox/003.png", photos / "test/dog/001.png"]
    for path in broken:
        path.write_bytes(b"not an image")
    shutil.rmtree("r")
    train_on(photos, out="r", device="cpu", workers=0, on_bad_image="drop", **TINY)
    rows = rows_of(told(capsys, "--count", 4)["file"])
    assert len(rows) == 12 + 30 + 12 - 3
    assert not {row["path"] for row in rows} & {str(path.relative_to(photos)) for path in broken}
    for row in rows:
        assert row["label"] == ("" if row["path"].startswith("unlabelled") else Path(row["path"]).parts[1])


# Other data


@pytest.mark.slow
def test_of_a_benchmark_the_chosen_ones_are_listed_in_the_run(capsys):
    trained("r", replace(digits("digits"), TINY))
    answer = told(capsys, "--count", 6)
    assert (answer["file"], answer["train"]) == ("r/to-label.csv", None)
    rows = rows_of("r/to-label.csv")
    assert list(rows[0]) == ["index", "label", "guess", "why", "confidence"]
    assert [int(row["index"]) for row in rows] == [chosen["index"] for chosen in answer["suggestions"]]
    unlabelled = {row["index"] for row in rows_of("r/predictions.csv") if row["split"] == "unlabelled"}
    assert len({row["index"] for row in rows} & unlabelled) == 6
    assert Path("r/to-label-sheet.png").is_file()


def test_of_features_there_is_no_picture(capsys):
    features = np.random.default_rng(0).normal(size=(40, 5))
    np.savez("features.npz", features=features, labels=np.repeat([0, 1, -1], [5, 5, 30]))
    train_on("features.npz", out="r", device="cpu", **TINY)
    answer = told(capsys, "--count", 30, "--out", "mine.csv")
    assert answer["contact_sheet"] is None
    assert not Path("r/mine-sheet.png").exists()
    assert sorted(int(row["index"]) for row in rows_of("mine.csv")) == list(range(10, 40))


# Bad input


def test_a_count_that_cannot_be_is_refused(photos, refused):
    for count in (0, -3, 31):
        told = refused("suggest", "r", "--count", count, *HERE)
        assert f"--count is {count}" in told
        assert "from 1 to 30" in told
    assert not list(photos.glob("to-label*"))


def test_data_that_is_gone_or_has_changed_is_named(photos, refused):
    (photos / "unlabelled/fox/000.png").unlink()
    assert "has changed" in refused("suggest", "r", *HERE)
    shutil.rmtree(photos)
    assert "photos: no such" in refused("suggest", "r", *HERE)
    assert "not a run" in refused("suggest", "nowhere", *HERE)


def test_data_from_memory_cannot_be_found_again(refused):
    features = np.random.default_rng(0).normal(size=(40, 5))
    train_on(from_arrays(features, np.repeat([0, 1, -1], [5, 5, 30])), out="r", device="cpu", **TINY)
    assert "data in memory" in refused("suggest", "r", *HERE)


@pytest.mark.slow
def test_a_run_that_is_not_finished_answers_and_says_so(capsys):
    stopped("r", replace(digits("digits"), TINY), 3)
    assert run("suggest", "r", "--count", 2, *HERE) == 0
    captured = capsys.readouterr()
    assert captured.err.count("is not finished") == 1
    assert "step 2 of 4" in captured.err
    assert "add their labels to your data" in captured.out
    assert len(rows_of("r/to-label.csv")) == 2


def test_without_a_count_all_are_suggested_where_there_are_few(photos, capsys):
    assert len(told(capsys)["suggestions"]) == 30
