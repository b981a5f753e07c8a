"""The page of a run: what is on it, that nothing in it acts by itself, and what happens where something is missing."""

import base64
import html
import io
import json
import re
import shutil
from dataclasses import replace as changed
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from worlds import RUNTIME, run, stopped, trained, write_photos

import openworld
from openworld.classes import NAMES
from openworld.config import replace
from openworld.metrics import accuracy
from openworld.outputs import Outputs, read_outputs, write_outputs
from openworld.recipes import digits
from openworld.record import RunFolder
from openworld.report import pictures, write_report
from openworld.report.charts import TOLD_APART, Line, class_colour, line_chart, ticks
from openworld.report.collect import collect
from openworld.report.confusion import Confusion
from openworld.report.galleries import choose_galleries
from openworld.report.markup import tag

TINY = {"steps": 4, "epoch_steps": 2, "batch_labelled": 8, "batch_unlabelled": 16, "uncertainty_views": 2}
DIGITS = replace(digits("digits"), TINY)
HERE = ["--device", "cpu", "--workers", "0", "--quiet"]
FLAGS = [part for name, value in TINY.items() for part in (f"--{name.replace('_', '-')}", str(value))] + HERE
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)<!--'


@pytest.fixture(autouse=True)
def _few_points(monkeypatch):
    """t-SNE of all points would take seconds each time."""
    monkeypatch.setattr(pictures, "MOST_POINTS", 60)


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory) -> RunFolder:
    return trained(str(tmp_path_factory.mktemp("runs") / "digits"), DIGITS)


@pytest.fixture
def copy(digits_run) -> RunFolder:
    """The run, to be changed."""
    return RunFolder(shutil.copytree(digits_run.path, Path("copy").absolute()))


def page_of(folder: RunFolder, warn=None) -> str:
    def unexpected(message: str) -> None:
        raise AssertionError(message)

    return write_report([folder], None, RUNTIME, warn or unexpected).read_text(encoding="utf-8")


def data_in(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def text_of(page: str) -> str:
    """As it is read."""
    page = re.sub(r"<(style|script|title).*?</\1>", "", page, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def headings(page: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page)


def say(folder: RunFolder, noise: float = 0.3) -> None:
    """Let the network have said the truth, most of the time, with novel outputs in another order."""
    source, outputs = torch.Generator().manual_seed(0), {}
    for part, said in read_outputs(folder).items():
        num_classes = said.logits.shape[1]
        logits = noise * torch.randn(said.logits.shape, generator=source)
        seen = num_classes // 2
        meant = torch.where(said.truth < seen, said.truth, num_classes - 1 - (said.truth - seen))
        logits[torch.arange(len(logits)), meant] += 1
        outputs[part] = changed(said, logits=logits)
    write_outputs(folder, outputs)


# What is on the page -----------------------------------------------------------------------------------------------


def test_a_page_of_digits(copy):
    say(copy)
    page = page_of(copy)
    assert headings(page) == [
        "Result",
        "Discovered classes",
        "Known classes",
        "Confusion",
        "Map",
        "Curves",
        "Class shares",
        "How it was made",
    ]
    summary, text = copy.summary(), text_of(page)
    for name in ("seen", "novel", "all"):
        assert f"{name.capitalize()} {summary[name]:.1f}" in text
    for protocol, scores in summary["protocols"].items():
        assert f"{protocol} {scores['seen']:.1f} {scores['novel']:.1f} {scores['all']:.1f}" in text
    assert "10: 5 known, 5 new (not estimated)" in text
    assert "steps 4 (" in text
    assert "openworld train --config" in text
    assert page.count('<details class="card" open data-name=') == 10
    assert "matches 9" in text  # say() puts the ninth class first
    assert data_in(page)["confusion"]["matches"]["5"] == 9
    assert len(data_in(page)["map"]["points"]) == 60
    for title in ("Accuracy", "Loss", "Marginal error", "Share of pseudo-labels", "temperature", "Learning rate"):
        assert title in text


def test_nothing_is_loaded_from_elsewhere(copy):
    page = page_of(copy)
    assert set(re.findall(r'(?:src|href)="([^"#]{0,5})', page)) == {"data:", ""}
    assert "http" not in re.sub(r"http-equiv", "", page)
    assert "url(" not in Path(openworld.__file__).parent.joinpath("report/style.css").read_text()


def test_the_page_is_the_same_each_time_and_replaced(copy):
    first = page_of(copy)
    assert page_of(copy) == first
    assert not list(copy.path.glob("*.tmp"))


def test_galleries_show_the_surest_and_the_least_sure(copy):
    say(copy)
    facts = collect(copy, RUNTIME, print)
    said = facts.parts["unlabelled"]
    sure = said.confidence - said.uncertainty
    for gallery in choose_galleries(facts):
        members = np.flatnonzero(said.predicted == gallery.number)
        assert gallery.size == len(members)
        assert set(gallery.typical) | set(gallery.doubtful) <= set(members.tolist())
        assert not set(gallery.typical) & set(gallery.doubtful)
        assert len(gallery.typical) == 12
        assert len(gallery.doubtful) == 6
        assert sure[gallery.typical[0]] == sure[members].max()
        assert sure[gallery.doubtful[0]] == sure[members].min()
        assert sure[gallery.typical].min() > sure[gallery.doubtful].max()


def test_wrong_images_are_marked(copy):
    say(copy, noise=0.6)
    page, facts = page_of(copy), collect(copy, RUNTIME, print)
    said, matches = facts.parts["unlabelled"], facts.confusion("test").matches
    shown = [p for gallery in choose_galleries(facts) for p in (*gallery.typical, *gallery.doubtful)]
    wrong = sum(matches.get(said.predicted[position]) != said.truth[position] for position in shown)
    assert 0 < wrong < len(shown)
    assert page.count('class="thumb wrong"') == wrong


def test_names_and_merged_classes_of_people(copy):
    say(copy)
    copy.write_json(NAMES, {"novel-1": "van", "novel-2": "van", "novel-4": "3"})
    page = page_of(copy)
    text = text_of(page)
    assert page.count('<details class="card" open data-name=') == 8
    assert "8: 5 known, 3 new" in text
    assert "2 fewer than were trained" in text
    assert data_in(page)["confusion"]["columns"] == ["0", "1", "2", "3", "4", "van", "novel-3", "novel-5"]
    sizes = np.bincount(collect(copy, RUNTIME, print).parts["unlabelled"].predicted)
    assert f"van {sizes[5]:,} images" in text


def test_points_of_the_map_are_their_own_samples(digits_run):
    facts = collect(digits_run, RUNTIME, print)
    samples = [("test", 5), ("unlabelled", 7), ("test", 0)]
    features = pictures.features_of(facts.world, facts.model, samples)
    for (part, position), row in zip(samples, features, strict=True):
        alone = facts.model.features(facts.world.truths[part].samples.take(torch.tensor([position])))
        np.testing.assert_allclose(row, alone[0].numpy(), atol=1e-5)
    images = pictures.take(facts.world, samples)
    expected = facts.world.truths["unlabelled"].samples.take(torch.tensor([7]))[0, 0].numpy()
    assert np.array_equal(np.asarray(images[1]), expected)


def test_the_atlas_holds_the_points_of_the_map_then_the_examples(copy):
    say(copy, noise=0.6)
    page, world = page_of(copy), collect(copy, RUNTIME, print).world
    data = data_in(page)
    side, columns = data["atlas"]["side"], data["atlas"]["columns"]
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(data["atlas"]["image"].split(",")[1]))))
    for shown in (data["map"]["points"][40], data["confusion"]["examples"][2]):
        part, name = re.match(r"(\w+) image (\d+)", shown["caption"]).groups()
        position = world.truths[part].names.index(int(name))
        y, x = side * (shown["cell"] // columns), side * (shown["cell"] % columns)
        expected = world.truths[part].samples.take(torch.tensor([position]))[0, 0].numpy()
        assert np.array_equal(sheet[y : y + side, x : x + side, 0], expected)


def test_points_are_chosen_evenly():
    chosen = pictures.chosen_evenly({"unlabelled": 300, "test": 10})
    assert len([sample for sample in chosen if sample[0] == "unlabelled"]) == 30
    assert [position for part, position in chosen if part == "test"] == list(range(10))
    assert chosen[0] == ("unlabelled", 0)
    assert ("unlabelled", 299) in chosen


def test_features_that_are_all_the_same_have_no_map():
    assert pictures.flattened(np.ones((20, 4)), 0) is None
    assert pictures.flattened(np.eye(3), 0) is None
    places = pictures.flattened(np.repeat(np.eye(2), 10, axis=0) + np.arange(40).reshape(20, 2) / 1000, 0)
    assert places.min() == 0
    assert places.max() == 1


def test_the_class_count_curve(copy):
    curve = [{"k": k, "accuracy": 50.0 + k, "reassigned": 60.0 - k} for k in range(5, 15)]
    estimate = {"num_classes": 10, "low": 8, "high": 12, "estimator": "neighbours", "curve": curve}
    copy.write_json("estimate.json", estimate)
    text = text_of(page_of(copy))
    assert "The estimator neighbours counts 10 classes in all, known and new; likely 8 to 12." in text
    copy.write_json("estimate.json", {**estimate, "high": None, "curve": []})
    assert "at least 8" in text_of(page_of(copy))
    copy.write_json("summary.json", {**copy.summary(), "num_classes_estimated": True})
    assert "5 new (estimated)" in text_of(page_of(copy))


# Many classes ------------------------------------------------------------------------------------------------------


def test_a_hundred_classes_stay_small_and_closed():
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(100), 12)
    images = draw.integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8)  # nothing is harder to compress
    np.savez("hundred.npz", images=images, labels=labels)
    settings = ["--augment", "cifar", "--network", "small-32", "--steps", "1", "--epoch-steps", "1"]
    assert run("train", "hundred.npz", "--out", "r", "--uncertainty-views", "2", *settings, *HERE) == 0
    folder = RunFolder(Path("r"))
    say(folder, noise=0.4)
    page = page_of(folder)
    assert page.count('<details class="card" data-name=') == 100
    assert page.count('class="find"') == 2
    assert page.count("<img") < 1000
    assert len(page) < 8e6
    assert len(data_in(page)["confusion"]["rows"]) == 100


@pytest.mark.parametrize(("classes", "native"), [(10, 64), (100, 224), (1000, 64)])
def test_the_pictures_of_all_galleries_fit_into_the_page(classes, native):
    count = classes * 9
    side = pictures.gallery_side(count)
    assert side in range(pictures.SMALLEST_SIDE, pictures.LARGEST_SIDE + 1)
    assert count * side**2 <= max(pictures.GALLERY_PIXELS, count * pictures.SMALLEST_SIDE**2)
    shrunk = pictures.shrunk(pictures.Image.new("RGB", (native, native)), side)
    assert shrunk.size == (min(native, side),) * 2


# What is missing ---------------------------------------------------------------------------------------------------


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
    assert "of 30 unlabelled images were put into new classes" in text
    for name, size in folder.summary()["class_sizes"].items():
        assert re.search(rf"\b{name} (known|new) {size} ", text)
    assert "purity" not in text
    assert 'data-colour="truth"' not in page
    assert all(point["truth"] == -1 for point in data_in(page)["map"]["points"])


def test_an_unfinished_run_is_shown_and_said_to_be_unfinished():
    stopped("r", DIGITS, 3)
    warnings = []
    page = page_of(RunFolder(Path("r")), warnings.append)
    assert warnings == ["r is not finished: this is step 2 of 4"]
    text = text_of(page)
    assert warnings[0] in text
    assert "2 of 4, not finished" in text
    assert {"Discovered classes", "Confusion", "Map"} <= set(headings(page))
    assert re.search(r"trssl \d+\.\d \d+\.\d \d+\.\d", text)


def test_a_lost_summary_is_said(copy):
    scores = copy.summary()["protocols"]
    (copy.path / "summary.json").write_text("{")
    (copy.path / "outputs.safetensors").write_bytes(b"broken")
    warnings = []
    text = text_of(page_of(copy, warnings.append))
    assert len(warnings) == 1
    assert "has no sound summary.json" in warnings[0]
    assert f"orca {scores['orca']['seen']:.1f} {scores['orca']['novel']:.1f}" in text


def test_data_from_memory_has_everything_but_images_and_map():
    images = np.random.default_rng(0).integers(0, 256, (40, 9, 9, 3), dtype=np.uint8)
    openworld.train_on(
        images, np.array([0, 1] * 10 + [-1] * 20), num_classes=4, out="r", device="cpu", workers=0, **TINY
    )
    warnings = []
    page = page_of(RunFolder(Path("r")), warnings.append)
    assert len(warnings) == 1
    assert "data in memory, which cannot be found again" in warnings[0]
    text = text_of(page)
    assert warnings[0] in text
    assert "Map" not in headings(page)
    assert "<img src" not in page
    shown = choose_galleries(collect(RunFolder(Path("r")), RUNTIME, print))
    places = sum(len(gallery.typical) + len(gallery.doubtful) for gallery in shown)
    assert page.count('class="name"') == places > 0  # where images would be, their positions
    assert "only the program that made it can train this run again" in text


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
    assert "there are no predictions either" in warnings[1]


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
    assert "there is no map" in warnings[0]
    assert "<img src" in page


def test_refusals(copy, refused):
    assert "nowhere is not a run" in refused("report", "nowhere")
    Path("notes.html").write_text("<html>mine</html>")
    assert "is not a page of openworld" in refused("report", copy.path, "--out", "notes.html")
    assert Path("notes.html").read_text() == "<html>mine</html>"
    assert "is a folder" in refused("report", copy.path, "--out", ".")
    assert "there is no folder" in refused("report", copy.path, "--out", "no/page.html")
    assert "named twice" in refused("report", copy.path, f"{copy.path}/../copy")
    outputs = read_outputs(copy)
    narrow = {part: Outputs(o.samples, o.logits[:, :7], o.uncertainty, o.truth) for part, o in outputs.items()}
    write_outputs(copy, narrow)
    assert "not of the same classes" in refused("report", copy.path)
    (copy.path / "split.json").write_text("{")
    assert "split.json is damaged" in refused("report", copy.path)
    shutil.rmtree(copy.checkpoints)
    (copy.path / "split.json").unlink()
    assert "has not begun" in refused("report", copy.path)
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
    assert capsys.readouterr().out.startswith("page.html: 0.")


# Several runs ------------------------------------------------------------------------------------------------------


def test_a_comparison(copy, digits_run, capsys):
    other = RunFolder(shutil.copytree(copy.path, Path("a b") / "copy"))
    values = (other.path / "config.toml").read_text()
    (other.path / "config.toml").write_text(values.replace("lr = 0.5", "lr = 0.25").replace('"digits"', '"cifar10"', 1))
    stopped("young", DIGITS, 3)
    (other.path / "report.html").write_text("")
    assert run("report", copy.path, other.path, "young", *HERE) == 0
    page = Path("comparison.html").read_text()
    text = text_of(page)
    assert 'href="a%20b/copy/report.html"' in page
    assert page.count(">open</a>") == 1
    Path("deep").mkdir()
    assert run("report", copy.path, other.path, *HERE, "--out", "deep/c.html") == 0
    assert 'href="../a%20b/copy/report.html"' in Path("deep/c.html").read_text()
    assert "These runs are of different data" in text
    assert "Some runs are not finished" in text
    assert re.search(r"run data lr .*/copy digits 0.5 a b/copy cifar10 0.25 .*young digits 0.5", text)
    summary = copy.summary()
    numbers = (
        f"{summary['seen']:.1f} {summary['novel']:.1f} {summary['all']:.1f} {summary['nmi']:.3f} {summary['ari']:.3f}"
    )
    assert text.count(numbers) == 2
    assert "2 so far" in text
    assert page.count('<path d="M') >= 3 * 4


def test_a_comparison_of_equal_runs_is_calm(copy, digits_run):
    page = write_report([copy, digits_run], Path("c.html"), RUNTIME, print).read_text()
    assert "All settings are the same." in text_of(page)
    assert 'class="warning"' not in page


# Small parts -------------------------------------------------------------------------------------------------------


def test_the_matching_is_that_of_the_strict_protocol():
    draw = np.random.default_rng(0)
    truth, predicted = draw.integers(0, 6, 400), draw.integers(0, 7, 400)
    confusion = Confusion.of(truth, predicted, 6, 7, num_seen=2)
    assert sorted(confusion.columns) == list(range(7))
    assert [confusion.matches[column] for column in confusion.columns[:6]] == list(range(6))
    right = sum(confusion.counts[row, column] for column, row in confusion.matches.items() if row >= 2)
    assert 100 * right / (truth >= 2).sum() == pytest.approx(accuracy(confusion.counts, 2, "trssl").novel)


def test_purity_and_fewer_outputs_than_classes():
    confusion = Confusion.of(np.array([0, 1, 2, 2, 3, -1]), np.array([0, 1, 2, 2, 2, 0]), 4, 4, num_seen=2)
    assert confusion.purity(2) == (pytest.approx(2 / 3), 2)
    assert confusion.purity(3) is None
    assert confusion.counts.sum() == 5
    narrow = Confusion.of(np.array([0, 1, 2, 3]), np.array([0, 1, 2, 2]), 4, 3, num_seen=2)
    assert narrow.columns == [0, 1, 2]


def test_markup_is_escaped_unless_it_is_markup():
    assert tag("p", HOSTILE, tag("b", 1), title=HOSTILE) == (
        f'<p title="{html.escape(HOSTILE)}">{html.escape(HOSTILE)}<b>1</b></p>'
    )
    assert tag("p", "\udcff") == "<p>?</p>"
    assert tag("input", hidden=True, id=None, open=False) == "<input hidden>"


def test_charts_leave_out_what_is_not_a_number():
    points = [(1, 2.0), (2, float("nan")), (3, None), (4, float("inf")), (5, 3.0)]
    chart = line_chart("Loss", [Line("loss", points, "red"), Line("none", [(1, None)], "blue")], "step")
    assert chart.count("<circle") == 2
    assert "nan" not in chart
    assert "blue" not in chart
    assert line_chart("Loss", [Line("loss", [], "red")], "step") is None
    assert line_chart("Loss", [Line("loss", [(7, 1.5)], "red")], "step").count("<circle") == 1


@pytest.mark.parametrize(("low", "high"), [(0, 98), (-3, 7), (1e-5, 2e-5), (5, 5), (0, 0), (1e6, 3e6)])
def test_ticks_cover_the_range_with_few_round_numbers(low, high):
    found = ticks(low, high)
    assert found[0] <= low <= high <= found[-1]
    assert 2 <= len(found) <= 8
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("theme", [0, 1])
def test_the_first_colours_are_told_apart_by_the_colour_blind(theme):
    """As a person without red or without green cones sees them (Vienot, Brettel and Mollon 1999)."""
    style = Path(openworld.__file__).parent.joinpath("report/style.css").read_text()
    pairs = re.findall(r"--k\d: light-dark\((#\w{6}), (#\w{6})\)", style)
    assert len(pairs) == TOLD_APART
    rgb = np.array([[int(pair[theme][i : i + 2], 16) for i in (1, 3, 5)] for pair in pairs]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    protan = np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]])
    deutan = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])
    for vision in (np.eye(3), protan, deutan):
        lab = _lab((linear @ vision.T).clip(0, 1))
        distances = np.linalg.norm(lab[:, None] - lab[None], axis=2)[np.triu_indices(TOLD_APART, 1)]
        assert distances.min() > 20
    assert len({class_colour(number) for number in range(150)}) == 150


def _lab(linear: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt((linear @ to_xyz.T) / np.array([0.9505, 1, 1.089])).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)
