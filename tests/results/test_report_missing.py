"""The report page of a run with missing files, and the input that is refused."""

import html
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from report_pages import (  # noqa: F401
    DIGITS,
    FLAGS,
    HERE,
    HOSTILE,
    TINY,
    _few_points,
    copy_fixture,
    data_in,
    digits_run_fixture,
    headings,
    page_of,
    text_of,
)
from worlds import RUNTIME, run, stopped, write_photos

import openworld
from openworld.results.report.collect import collect
from openworld.results.report.galleries import choose_galleries
from openworld.runs.classes import NAMES
from openworld.runs.folder import RunFolder
from openworld.runs.outputs import Outputs, read_outputs, write_outputs


def test_own_photos_with_hostile_names():
    root = write_photos(Path("photos"))
    (root / "labelled" / "cat").rename(root / "labelled" / HOSTILE)
    (root / "test" / "cat").rename(root / "test" / HOSTILE)
    for path in (root / "unlabelled").glob("*/*.png"):
        path.rename(path.with_name(f"{path.stem}{HOSTILE}.png"))
    assert run("train", root, "--out", "r", *FLAGS) == 0
    folder = RunFolder(Path("r"))
    folder.write_json(NAMES, {"novel-1": f"</script>{HOSTILE}"})
    page = page_of(folder)
    assert page.count("<script") == 2
    assert "<!--" not in page
    assert "<img src=x" not in page
    assert not re.search(r"<[^>\"]*(\"[^\"]*\"[^>\"]*)*\sonerror=", page)
    assert data_in(page)["confusion"]["columns"][0] == HOSTILE
    assert html.escape(f"</script>{HOSTILE}") in page
    assert any(HOSTILE in point["caption"] for point in data_in(page)["map"]["points"])


def test_without_truth_the_page_tells_what_was_found():
    root = write_photos(Path("photos"))
    shutil.rmtree(root / "test")
    assert run("train", root, "--out", "r", *FLAGS) == 0
    folder = RunFolder(Path("r"))
    page = page_of(folder)
    text = text_of(page)
    assert "Confusion" not in headings(page)
    assert "Map" in headings(page)
    assert "of 30 unlabelled images" in text
    for name, size in folder.summary()["class_sizes"].items():
        assert re.search(rf"\b{name} (known|discovered) {size} ", text)
    assert "purity" not in text
    assert 'data-colour="truth"' not in page
    assert all(point["truth"] == -1 for point in data_in(page)["map"]["points"])


@pytest.mark.slow
def test_an_unfinished_run_is_shown_and_said_to_be_unfinished():
    stopped("r", DIGITS, 3)
    warnings = []
    page = page_of(RunFolder(Path("r")), warnings.append)
    assert len(warnings) == 1
    assert warnings[0].startswith("r is not finished")
    assert "step 2 of 4" in warnings[0]
    text = text_of(page)
    assert warnings[0] in text
    assert "2 of 4, not finished" in text
    assert {"Discovered classes", "Confusion", "Map"} <= set(headings(page))
    assert re.search(r"trssl \d+\.\d \d+\.\d \d+\.\d", text)


@pytest.mark.slow
def test_a_lost_summary_is_said(copy):
    scores = copy.summary()["protocols"]
    (copy.path / "summary.json").write_text("{")
    (copy.path / "outputs.safetensors").write_bytes(b"broken")
    warnings = []
    text = text_of(page_of(copy, warnings.append))
    assert len(warnings) == 1
    assert "summary.json is missing or damaged" in warnings[0]
    assert f"orca {scores['orca']['seen']:.1f} {scores['orca']['novel']:.1f}" in text


def test_data_from_memory_has_everything_but_images_and_map():
    images = np.random.default_rng(0).integers(0, 256, (40, 9, 9, 3), dtype=np.uint8)
    openworld.train_on(
        images, np.array([0, 1] * 10 + [-1] * 20), num_classes=4, out="r", device="cpu", workers=0, **TINY
    )
    warnings = []
    page = page_of(RunFolder(Path("r")), warnings.append)
    assert len(warnings) == 1
    assert "data in memory" in warnings[0]
    text = text_of(page)
    assert warnings[0] in text
    assert "Map" not in headings(page)
    assert "<img src" not in page
    shown = choose_galleries(collect(RunFolder(Path("r")), RUNTIME, print))
    places = sum(len(gallery.typical) + len(gallery.doubtful) for gallery in shown)
    assert page.count('class="name"') == places > 0  # where images would be, their positions
    assert "only the program that created it can train this run again" in text


def test_data_that_has_changed_or_gone(capsys):
    root = write_photos(Path("photos"))
    assert run("train", root, "--out", "r", *FLAGS) == 0
    root.rename("elsewhere")
    warnings = []
    page = page_of(RunFolder(Path("r")), warnings.append)
    assert ["no such folder" in warning for warning in warnings] == [True]
    assert "true class 3" in data_in(page)["confusion"]["rows"]
    assert data_in(page)["confusion"]["examples"] == [] or data_in(page)["confusion"]["examples"][0]["cell"] is None
    (Path("r") / "outputs.safetensors").unlink()
    warnings.clear()
    assert headings(page_of(RunFolder(Path("r")), warnings.append)) == ["Result", "Curves", "How it was made"]
    assert "no predictions" in warnings[1]


def test_features_have_a_map_without_images():
    draw = np.random.default_rng(0)
    labels = np.arange(80) % 4
    np.savez("features.npz", features=draw.normal(labels[:, None], 0.3, (80, 6)), labels=labels)
    assert run("train", "features.npz", "--out", "r", *FLAGS) == 0
    page = page_of(RunFolder(Path("r")))
    assert {point["cell"] for point in data_in(page)["map"]["points"]} == {None}
    assert "atlas" not in data_in(page)


def test_checkpoints_that_are_gone_cost_only_the_map(copy):
    shutil.rmtree(copy.checkpoints)
    warnings = []
    page = page_of(copy, warnings.append)
    assert "Map" not in headings(page)
    assert "no map" in warnings[0]
    assert "<img src" in page


def test_refusals(copy, refused):
    assert "nowhere is not a run" in refused("report", "nowhere")
    Path("notes.html").write_text("<html>mine</html>")
    assert "notes.html exists" in refused("report", copy.path, "--out", "notes.html")
    assert Path("notes.html").read_text() == "<html>mine</html>"
    assert "is a folder" in refused("report", copy.path, "--out", ".")
    assert "the folder no does not exist" in refused("report", copy.path, "--out", "no/page.html")
    assert "copy is given twice" in refused("report", copy.path, f"{copy.path}/../copy")
    outputs = read_outputs(copy)
    narrow = {part: Outputs(o.samples, o.logits[:, :7], o.uncertainty, o.truth) for part, o in outputs.items()}
    write_outputs(copy, narrow)
    assert "7 and 10 classes" in refused("report", copy.path)
    (copy.path / "split.json").write_text("{")
    assert "split.json is damaged" in refused("report", copy.path)
    shutil.rmtree(copy.checkpoints)
    (copy.path / "split.json").unlink()
    assert "has no split.json" in refused("report", copy.path)
    (copy.path / "config.toml").write_text("seed = ")
    assert "config.toml" in refused("report", copy.path)


def test_the_command(copy, capsys):
    assert run("report", copy.path, *HERE, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "file": f"{copy.path}/report.html",
        "runs": [str(copy.path)],
        "bytes": Path(told["file"]).stat().st_size,
    }
    assert run("report", copy.path, *HERE, "--out", "page.html") == 0
    size = Path("page.html").stat().st_size / 1e3
    assert capsys.readouterr().out == f"page.html: {size:.0f} kB, open it in a browser\n"
