"""`openworld data`: what users see of their data before they train on it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from worlds import run, write_photos

from openworld.data import peek
from openworld.data.check import check
from openworld.data.own import from_arrays, read_own
from openworld.data.peek import some_of_each_class


@pytest.fixture
def photos() -> Path:
    return write_photos(Path("photos"), sides=(9, 14))


def report_of(path: Path, workers: int = 0) -> dict:
    calls = []
    report = check(read_own(path), workers, lambda done, total: calls.append((done, total)))
    assert calls[-1] == (report["samples"], report["samples"])
    return report


@pytest.mark.parametrize("workers", [0, 2])
def test_counts_and_sizes(photos, workers):
    report = report_of(photos, workers)
    assert report["samples"] == 54
    assert report["parts"]["labelled"] == {"samples": 12, "classes": {"cat": 6, "dog": 6}}
    assert report["parts"]["unlabelled"] == {"samples": 30, "classes": {}}
    assert report["parts"]["test"] == {"samples": 12, "classes": {"cat": 4, "dog": 4, "fox": 4}}
    assert report["sizes"]["smallest"] == (9, 9)
    assert report["sizes"]["largest"] == (14, 14)
    assert report["broken"] == report["leaks"] == []
    assert report["duplicates_within_parts"] == 0


def test_the_same_picture_in_two_parts_is_a_leak_in_whatever_format(photos):
    with Image.open(photos / "test/fox/001.png") as picture:
        picture.save(photos / "unlabelled/other.bmp")
    shutil.copy(photos / "labelled/cat/000.png", photos / "labelled/cat/again.png")
    report = report_of(photos)
    assert report["leaks"] == [
        [{"part": "unlabelled", "path": "unlabelled/other.bmp"}, {"part": "test", "path": "test/fox/001.png"}]
    ]
    assert report["duplicates_within_parts"] == 1


def test_every_broken_file_is_named_with_its_reason(photos):
    (photos / "unlabelled/a.jpg").write_text("text")
    (photos / "labelled/cat/b.png").write_bytes((photos / "labelled/cat/000.png").read_bytes()[:90])
    broken = {entry["path"]: entry for entry in report_of(photos)["broken"]}
    assert set(broken) == {"unlabelled/a.jpg", "labelled/cat/b.png"}
    assert "not an image" in broken["unlabelled/a.jpg"]["reason"]
    assert broken["labelled/cat/b.png"]["part"] == "labelled"


def test_arrays_are_checked_too():
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
    pixels[5] = pixels[0]
    report = check(from_arrays(pixels, [0, 1, 0, 1, -1, -1]), 0, lambda done, total: None)
    assert report["leaks"] == [[{"part": "labelled", "path": "0"}, {"part": "unlabelled", "path": "5"}]]
    assert report["sizes"]["median"] == (5, 4)


def test_the_command_prints_a_report_and_says_by_its_exit_code_whether_files_are_broken(photos, capsys):
    assert run("data", "check", photos, "--workers", 0) == 0
    output = capsys.readouterr().out
    assert "photos: 54 samples" in output
    assert "broken: 0" in output
    assert "ignored" not in output
    (photos / "unlabelled/a.jpg").write_text("text")
    assert run("data", "check", photos, "--workers", 0) == 2
    assert "unlabelled/a.jpg is not an image" in capsys.readouterr().out
    assert run("data", "check", photos, "--workers", 0, "--json") == 2
    assert json.loads(capsys.readouterr().out)["broken"][0]["path"] == "unlabelled/a.jpg"


def test_what_is_no_image_by_its_name_is_counted_and_breaks_nothing(photos, capsys):
    (photos / "unlabelled/a.cr2").write_text("a photo, but not one that can be read here")
    assert run("data", "check", photos, "--workers", 0) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ignored: ")]
    assert "1 .cr2" in line
    assert run("data", "check", photos, "--workers", 0, "--json") == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == ["unlabelled/a.cr2"]


def test_a_contact_sheet_shows_every_class(photos, capsys):
    for _ in range(2):  # the command may replace its own picture
        assert run("data", "show", photos) == 0
        assert capsys.readouterr().out == "3 rows: photos-samples.png\n"  # cat, dog, and those without a label
    with Image.open("photos-samples.png") as sheet:
        assert sheet.width > 600


@pytest.mark.parametrize("flags", [[], ["--augment", "digits"]])
def test_a_contact_sheet_of_random_views(photos, flags, capsys):
    assert run("data", "show", photos, "--augmented", *flags, "--out", "views.png", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"file": "views.png", "rows": 3}
    with Image.open("views.png") as sheet:
        assert len(np.unique(np.asarray(sheet).reshape(-1, 3), axis=0)) > 100


def test_a_broken_file_is_one_line_whatever_its_name(photos, capsys):
    (photos / "unlabelled/a\rb.png").write_bytes(b"no image")
    assert run("data", "check", photos, "--quiet") == 2
    assert "  unlabelled/a b.png is not an image" in capsys.readouterr().out


def test_a_file_that_vanishes_before_it_is_drawn_is_one_line(photos, monkeypatch, refused):
    def vanish(*arguments):
        shutil.rmtree(photos / "labelled")
        return some_of_each_class(*arguments)

    monkeypatch.setattr(peek, "some_of_each_class", vanish)
    assert ".png cannot be read (No such file or directory)" in refused("data", "show", photos)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["check", "nowhere/x"], "nowhere/x: no such folder"),
        (["check", "oxford-pet"], "did you mean oxford-pets?"),
        (["check"], "the following arguments are required: DATA"),
        (["show", "photos", "--augment", "wild"], "--augment"),
        (["show", "photos", "--augment", "tiny"], "add --augmented"),
        (["show", "photos", "--out", "photos/labelled/cat/000.png"], "000.png exists"),
        (["show", "photos", "--out", "features.npz"], "features.npz exists"),
        (["show", "photos", "--out", "sheet.jpg"], "must end in .png"),
        (["show", "photos", "--augmented", "--augment", "features"], "--augment features is not for images"),
        (["show", "features.npz"], "features.npz contains features"),
        (["show", "photos", "--out", "no/such/folder.png"], "no/such/folder.png"),
        (["fetch", "cifar"], "did you mean cifar1"),
        (["chekc", "photos"], "did you mean check?"),
    ],
)
def test_a_mistake_is_answered_with_one_line(photos, arguments, answer, capsys):
    np.savez("features.npz", features=np.eye(6), labels=[0, 1, 0, 1, -1, -1])
    assert run("data", *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert answer in captured.err
