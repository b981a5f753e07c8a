"""User data from the command line to predictions, and the errors for bad input."""

import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from worlds import CPU, RUNTIME, run, write_photos

from openworld.data.problem import load_problem
from openworld.runs.evaluation import load_average
from openworld.runs.folder import RunFolder
from openworld.training.learner import Learner

HERE = ["--device", "cpu", "--workers", "0", "--quiet"]
TINY = ["--steps", "4", "--epoch-steps", "2", "--uncertainty-views", "2", *HERE]


@pytest.fixture
def photos() -> Path:
    return write_photos(Path("photos"), sides=(9, 14))


@pytest.fixture
def refused(refused):
    """The fixture `refused`, which also checks that no run folder is left."""

    def answer(*arguments: object) -> str:
        told = refused(*arguments)
        assert not Path("r").exists()
        return told

    return answer


def predictions(name: str = "r") -> list[dict[str, str]]:
    with open(f"{name}/predictions.csv", newline="") as file:
        return list(csv.DictReader(file))


def write_manifest(photos: Path) -> Path:
    """Write a manifest of the photos. Only evaluation knows the true classes of the unlabelled ones."""
    lines = ["path,label,split"]
    for path in sorted(photos.glob("*/*/*.png")):
        part, label, _ = path.relative_to(photos).parts
        lines.append(f"{path.relative_to(photos)},{label},{part}")
    manifest = photos / "manifest.csv"
    manifest.write_text("\n".join(lines))
    return manifest


def write_features(labels: np.ndarray) -> Path:
    draw = np.random.default_rng(0)
    centres = draw.normal(0, 3, (4, 16))
    features = centres[np.arange(len(labels)) % 4] + draw.normal(0, 1, (len(labels), 16))
    np.savez("features.npz", features=features, labels=labels)
    return Path("features.npz")


def test_a_folder_is_trained_on_and_the_plan_is_printed_first(photos, capsys):
    arguments = ["train", photos, *TINY, "--out", "r"]
    assert run(*[argument for argument in arguments if argument != "--quiet"]) == 0
    captured = capsys.readouterr()
    plan = captured.err.splitlines()[:4]
    assert plan[0] == "photos: 12 labelled images of 2 classes, 30 unlabelled, 12 for testing"
    assert plan[1].startswith("classes: 3, 2 seen and 1 novel (")
    assert plan[2].startswith("images at ")
    assert plan[3].startswith("4 steps of")
    assert "trssl" in captured.out
    rows = predictions()
    assert {row["path"] for row in rows if row["split"] == "unlabelled"} == {
        str(path.relative_to(photos)) for path in photos.glob("unlabelled/*/*")
    }
    assert {row["prediction"] for row in rows} <= {"cat", "dog", "novel-1"}
    assert RunFolder(Path("r")).config().data == str(photos.absolute())


def test_the_plan_tells_of_files_that_are_not_taken_for_images(photos, capsys):
    (photos / "unlabelled/a.cr2").touch()
    assert run("train", photos, *(argument for argument in TINY if argument != "--quiet")) == 0
    line = capsys.readouterr().err.splitlines()[1]
    assert line.startswith("left out: 1 file of other kinds: 1 .cr2 (images end in .bmp, .gif, ")


def test_without_any_truth_the_sizes_of_the_classes_are_the_result(photos, capsys):
    for path in sorted(photos.glob("test/*/*")):
        path.unlink()
        path.parent.rmdir() if not any(path.parent.iterdir()) else None
    (photos / "test").rmdir()
    assert run("train", photos, *TINY, "--out", "r") == 0
    output = capsys.readouterr().out
    assert "novel-2" in output  # two known classes, and as many new ones assumed
    summary = RunFolder(Path("r")).summary()
    assert summary["seen"] is summary["novel"] is summary["all"] is summary["nmi"] is None
    assert sum(summary["class_sizes"].values()) == 30
    assert all(line["average"] is None for line in RunFolder(Path("r")).metrics())
    assert run("evaluate", "r") == 2
    assert "accuracy cannot be measured" in capsys.readouterr().err
    assert run("evaluate", "r", "--part", "test") == 2
    assert "photos has no test part; leave --part out" in capsys.readouterr().err


@pytest.mark.slow
def test_a_manifest_gives_what_its_folder_gives(photos, capsys):
    assert run("train", photos, *TINY, "--out", "folder") == 0
    assert run("train", write_manifest(photos), *TINY, "--out", "r") == 0
    model = "checkpoints/step-00000004/model.safetensors"
    assert Path("r", model).read_bytes() == Path("folder", model).read_bytes()
    assert run("evaluate", "r", "--part", "unlabelled", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["part"] == "unlabelled"


def test_images_in_an_npz(photos):
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (60, 10, 12), dtype=np.uint8)
    np.savez("images.npz", images=images, labels=[0, 1] * 10 + [-1] * 40)
    assert run("train", "images.npz", *TINY, "--out", "r", "--num-classes", 5) == 0
    assert RunFolder(Path("r")).config().training.image_size == 10
    assert {row["index"] for row in predictions()} == {str(number) for number in range(20, 60)}


@pytest.mark.slow
def test_few_features_are_learnt_by_an_mlp():
    labels = np.arange(400) % 4
    hidden = (labels > 1) | (np.arange(400) >= 100)
    path = write_features(np.where(hidden, -1, labels))
    assert run("train", path, "--steps", 60, "--epoch-steps", 30, *HERE, "--num-classes", 4, "--out", "r") == 0
    assert RunFolder(Path("r")).config().training.network == "mlp"
    found = [row["prediction"] for row in predictions()]
    usual = [Counter(np.array(found)[labels[hidden] == label]).most_common(1)[0][0] for label in range(4)]
    assert usual[:2] == ["0", "1"]
    assert set(usual[2:]) == {"novel-1", "novel-2"}


def test_a_fully_labelled_npz_is_made_a_problem_and_judged_on_its_unlabelled_part():
    path = write_features(np.arange(200) % 4)
    assert run("train", path, *TINY, "--novel", 50, "--labelled", 20, "--out", "r") == 0
    summary = RunFolder(Path("r")).summary()
    assert (summary["part"], summary["num_seen"], summary["num_classes"]) == ("unlabelled", 2, 4)
    assert summary["all"] is not None


@pytest.mark.slow
def test_minutes_set_the_steps_and_the_run_says_how_many(photos, capsys):
    assert run("train", photos, "--minutes", 0.02, "--device", "cpu", "--workers", 0, "--out", "r") == 0
    assert "(--minutes sets this)" in capsys.readouterr().err
    config = RunFolder(Path("r")).config()
    assert config.training.steps >= 20
    assert RunFolder(Path("r")).summary()["steps"] == config.training.steps


@pytest.mark.slow
def test_a_run_on_a_folder_is_resumed_from_anywhere(photos, monkeypatch, tmp_path):
    assert run("train", photos, *TINY, "--out", "r") == 0
    Path("r/summary.json").unlink()
    monkeypatch.chdir("/")
    assert run("train", "--resume", "--out", tmp_path / "r", "--quiet") == 0
    assert run("evaluate", tmp_path / "r") == 0


@pytest.mark.slow
def test_data_that_only_moved_is_found_by_its_new_name(photos):
    assert run("train", photos, *TINY, "--out", "r") == 0
    Path("r/summary.json").unlink()
    photos.rename("moved")
    assert run("train", "moved", "--resume", "--out", "r", "--quiet") == 0
    assert run("evaluate", "r") == 0


@pytest.mark.slow
def test_a_folder_does_not_hide_a_benchmark_of_its_name(photos):
    photos.rename("digits")
    assert run("train", "digits", *TINY, "--out", "r") == 0
    assert RunFolder(Path("r")).config().data == "digits"
    assert run("train", "./digits", *TINY, "--out", "own") == 0
    assert RunFolder(Path("own")).summary()["num_classes"] == 3


def test_data_that_changed_under_a_run_is_refused(photos, capsys):
    assert run("train", photos, *TINY, "--out", "r") == 0
    (photos / "unlabelled/cat/000.png").unlink()
    Path("r/summary.json").unlink()
    for command in (["train", "--resume", "--out", "r"], ["evaluate", "r"]):
        assert run(*command) == 2
        assert "photos has changed" in capsys.readouterr().err


# Bad images -------------------------------------------------------------------------------------------------


@pytest.fixture
def broken(photos) -> Path:
    whole = (photos / "unlabelled/cat/000.png").read_bytes()
    (photos / "unlabelled/cat/000.png").write_bytes(whole[: len(whole) // 2])
    (photos / "labelled/dog/001.png").write_text("this is text")
    (photos / "test/fox/002.png").write_bytes(b"")
    return photos


def test_broken_images_are_refused_and_listed(broken, refused):
    message = refused("train", broken, *TINY, "--out", "r")
    assert "photos: 3 of 54 images cannot be used: " in message
    for part in ("labelled/dog/001.png is not an image", "unlabelled/cat/000.png is", "test/fox/002.png is empty"):
        assert part in message
    assert "--on-bad-image drop" in message
    assert refused("train", broken, *TINY, "--out", "r") == message  # also from memory


@pytest.mark.parametrize("length", [["--steps", 4], ["--minutes", 1]])
def test_broken_images_are_refused_before_a_word_of_the_plan(broken, refused, length):
    """Without --quiet, training would print a plan. `refused` accepts only the one line of the error."""
    message = refused("train", broken, *length, "--device", "cpu", "--workers", 0, "--out", "r")
    assert message.startswith("openworld: photos: 3 of 54 images cannot be used: ")


@pytest.mark.slow
def test_broken_images_are_dropped_if_asked_and_the_run_records_it(broken, capsys):
    loud = [flag for flag in TINY if flag != "--quiet"]
    assert run("train", broken, *loud, "--on-bad-image", "drop", "--out", "r") == 0
    assert "left out: broken images, 3 (listed in split.json)\n" in capsys.readouterr().err
    dropped = json.loads(Path("r/split.json").read_text())["dropped"]
    assert set(dropped) == {"labelled/dog/001.png", "unlabelled/cat/000.png", "test/fox/002.png"}
    assert RunFolder(Path("r")).summary()["dropped_images"] == 3
    assert not {row["path"] for row in predictions()} & set(dropped)
    assert len(predictions()) == 29 + 11
    Path("r/summary.json").unlink()
    assert run("train", "--resume", "--out", "r", "--quiet") == 0


def test_a_class_of_which_nothing_is_left_is_named(photos, refused):
    for path in (photos / "labelled/dog").iterdir():
        path.write_text("text")
    message = refused("train", photos, *TINY, "--on-bad-image", "drop", "--out", "r")
    assert "dog" in message


@pytest.mark.parametrize("part", ["test", "unlabelled"])
def test_a_part_of_which_nothing_is_left_is_named(photos, refused, part):
    for path in (photos / part).glob("*/*"):
        path.write_text("text")
    message = refused("train", photos, *TINY, "--on-bad-image", "drop", "--out", "r")
    assert "can be used" in message
    assert part in message


def test_a_finished_run_does_not_take_another_name(photos, capsys):
    assert run("train", photos, *TINY, "--out", "r") == 0
    for data in ("cifar100", write_photos(Path("others"))):
        assert run("train", data, "--resume", "--out", "r") == 2
        assert "the run was started with data = " in capsys.readouterr().err
    assert run("train", "--resume", "--out", "r", "--minutes", 1) == 2
    assert "--minutes sets the length of a new run" in capsys.readouterr().err


def test_a_run_whose_split_is_gone_is_refused(photos, capsys):
    assert run("train", photos, *TINY, "--out", "r") == 0
    Path("r/split.json").unlink()
    assert run("evaluate", "r") == 2
    assert "r is damaged: split.json is missing" in capsys.readouterr().err


def test_odd_names_are_printed_as_they_are(capsys):
    photos = write_photos(Path("my [/photos] :cat:"))
    (photos / "labelled/cat").rename(photos / "labelled/:cat:")
    (photos / "test/cat").rename(photos / "test/:cat:")
    assert run("train", photos, *TINY, "--out", "r") == 0
    assert "[/photos] :cat:" in " ".join(capsys.readouterr().out.split())
    assert run("data", "check", photos, "--workers", 0) == 0
    assert any(line.startswith(":cat:") for line in capsys.readouterr().out.splitlines())


# Other bad input --------------------------------------------------------------------------------------------


def test_bad_folders(refused):
    Path("empty").mkdir()
    assert "empty" in refused("train", "empty", *TINY, "--out", "r")
    assert "nowhere/photos: no such folder" in refused("train", "nowhere/photos", *TINY, "--out", "r")
    write_photos(Path("halves"))
    Path("halves/labelled").rename("halves/known")
    assert "labelled/" in refused("train", "halves", *TINY, "--out", "r")


def test_bad_arrays(refused):
    np.savez("objects.npz", images=np.array([{"a": 1}], dtype=object), labels=[0])
    assert "objects.npz" in refused("train", "objects.npz", *TINY, "--out", "r")
    np.savez("nan.npz", features=np.array([[1.0, np.nan]] * 4), labels=[0, 1, -1, -1])
    assert "nan.npz" in refused("train", "nan.npz", *TINY, "--out", "r")


@pytest.mark.parametrize(
    ("flags", "answer"),
    [
        (["--novel", "30"], "--novel works only with fully labelled data, but photos"),
        (["--network", "mlp"], "--network mlp is not for images"),
        (["--augment", "features"], "--augment features is not for images"),
        (["--prior", "known"], "--prior estimated or a file"),
        (["--num-classes", "1"], "--num-classes 1 is fewer than the 2 seen classes"),
        (["--minutes", "3"], "--minutes and --steps both"),
        (["--workers", "-1"], "argument --workers: -1 "),
        (["--batch-unlabelled", "31"], "--batch-unlabelled 31 is larger than the 30"),
        (["--projection", "64"], "--method simclr; add that or leave --projection out"),
        (["--method", "simclr", "--queue", "100"], "--method trssl+; add that or leave --queue out"),
        (["--image-size", "3"], "--image-size is 3; it must be from 8 to 1024"),
        (["--recipe", "paper"], "with --image-size"),
    ],
)
def test_settings_that_do_not_fit(photos, refused, flags, answer):
    assert answer in refused("train", photos, *TINY, *flags, "--out", "r")


def test_a_size_for_features_is_refused(refused):
    features = write_features(np.array([0, 1] * 10 + [-1] * 20))
    told = "--image-size works only with images, but features.npz"
    assert told in refused("train", features, *TINY, "--image-size", 32, "--out", "r")


def test_new_classes_are_assumed_whatever_the_recipe(photos, capsys):
    for path in sorted(photos.glob("test/*/*")):
        path.unlink()
    for path in sorted(photos.glob("test/*")):
        path.rmdir()
    (photos / "test").rmdir()
    flags = ["--recipe", "digits", "--image-size", 9, "--batch-labelled", 6, "--batch-unlabelled", 6]
    assert run("train", photos, *(flag for flag in TINY if flag != "--quiet"), *flags, "--out", "r") == 0
    message = capsys.readouterr().err
    assert "classes: 4, 2 seen and 2 novel (assumed" in message
    assert "--num-classes auto" in message
    problem = RunFolder(Path("r")).config().problem
    assert (problem.num_classes, problem.prior) == (4, "even")


def test_a_file_of_shares_is_found_from_another_folder(photos, monkeypatch):
    Path("shares.txt").write_text("0.3 0.3 0.4")
    assert run("train", photos, *TINY, "--prior", "shares.txt", "--out", "r") == 0
    settings = Path("r/config.toml").absolute()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert run("train", "--config", settings, *HERE, "--out", "again") == 0


@pytest.mark.slow
def test_a_flag_that_says_how_long_wins_over_the_steps_of_a_file(photos):
    assert run("train", photos, *TINY, "--out", "r") == 0
    assert run("train", "--config", "r/config.toml", "--minutes", 0.01, *HERE, "--out", "again") == 0
    assert RunFolder(Path("again")).summary()["steps"] != 4


def test_without_labels_all_images_make_up_a_batch(photos, capsys):
    flags = [flag for flag in TINY if flag != "--quiet"]
    assert run("train", photos, *flags, "--method", "simclr", "--batch-unlabelled", "31", "--out", "r") == 0
    assert "4 steps of 2 x 31 images\n" in capsys.readouterr().err


def test_a_folder_whose_name_is_no_text_is_refused(photos, refused):
    odd = photos.rename(b"photos-\xff".decode("utf-8", "surrogateescape"))
    assert r"photos-\udcff': the name is not valid UTF-8; rename it" in refused("train", odd, *TINY, "--out", "r")


def test_minutes_must_be_a_time(photos, refused):
    assert "--minutes is 0.0; it must be above 0" in refused("train", photos, "--minutes", "0", "--quiet", "--out", "r")


def test_a_run_can_be_made_again_from_its_own_configuration(photos):
    assert run("train", photos, *TINY, "--no-uncertainty", "--out", "r") == 0
    assert run("train", "--config", "r/config.toml", *HERE, "--out", "again") == 0
    assert Path("again/config.toml").read_text() == Path("r/config.toml").read_text()
    assert Path("again/predictions.csv").read_text() == Path("r/predictions.csv").read_text()


def test_the_uncertainty_of_a_prediction_is_measured_at_the_temperature_of_the_answers():
    """The uncertainty has the temperature of the probabilities. It uses its own views, not those of training."""
    data = write_features(np.where(np.arange(80) < 40, np.arange(80) % 2, -1))
    assert run("train", data, *TINY, "--temperature", 0.3, "--out", "r") == 0
    folder = RunFolder(Path("r"))
    world = load_problem(folder.config(), RUNTIME, folder.split())
    batches = Learner(folder.config(), world.training, RUNTIME).batches
    network, _ = load_average(folder, folder.config(), CPU, pytest.fail)
    answer = batches.view_predictor(network, "predict-unlabelled", 0)
    chunks = enumerate(world.truths["unlabelled"].samples.chunks(batches.rows_at_once))
    logits = torch.cat([torch.stack([answer(samples, n, view) for view in (0, 1)]) for n, samples in chunks], dim=1)
    told = torch.tensor([float(row["uncertainty"]) for row in predictions()])
    assert len(told) == 40
    torch.testing.assert_close(told, spread(logits / 0.3), atol=1e-4, rtol=0)
    assert (told - spread(logits)).abs().max() > 0.01  # or it would not matter


def spread(logits_2BK: torch.Tensor) -> torch.Tensor:
    """Return the standard deviation of the most likely class's probability over two views."""
    first, second = logits_2BK.softmax(dim=2)
    likeliest = (first + second).argmax(dim=1)
    rows = torch.arange(len(likeliest))
    return (first[rows, likeliest] - second[rows, likeliest]).abs() / 2**0.5
