"""The report page of a run and of several runs: their content, and that no text on them runs as code."""

import base64
import html
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from report_pages import (  # noqa: F401
    DIGITS,
    HERE,
    HOSTILE,
    _few_points,
    copy_fixture,
    data_in,
    digits_run_fixture,
    headings,
    page_of,
    say,
    text_of,
)
from worlds import RUNTIME, run, stopped

import openworld
from openworld.ops.metrics import accuracy
from openworld.results.report import pictures, write_report
from openworld.results.report.charts import DISTINCT_COLOURS, Line, class_colour, line_chart, ticks
from openworld.results.report.collect import collect
from openworld.results.report.confusion import Confusion
from openworld.results.report.galleries import choose_galleries
from openworld.results.report.markup import tag
from openworld.runs.classes import NAMES
from openworld.runs.folder import RunFolder

# What is on the page -----------------------------------------------------------------------------------------------


@pytest.mark.slow
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
        "Class proportions",
        "How it was made",
    ]
    summary, text = copy.summary(), text_of(page)
    for name in ("seen", "novel", "all"):
        assert f"{name.capitalize()} {summary[name]:.1f}" in text
    for protocol, scores in summary["protocols"].items():
        assert f"{protocol} {scores['seen']:.1f} {scores['novel']:.1f} {scores['all']:.1f}" in text
    assert re.search(r"10: 5 known, 5 \w+ \(.*not estimated\)", text)
    assert "steps 4 (" in text
    assert "openworld train --config" in text
    assert page.count('<details class="card" open data-name=') == 10
    assert "matches 9" in text  # say() puts the ninth class first
    assert data_in(page)["confusion"]["matches"]["5"] == 9
    assert len(data_in(page)["map"]["points"]) == 60
    for title in ("Accuracy (%)", "Loss", "Marginal error", "hard pseudo-labels", "Mean temperature", "Learning rate"):
        assert title in text


def test_nothing_is_loaded_from_elsewhere(copy):
    page = page_of(copy)
    assert set(re.findall(r'(?:src|href)="([^"#]{0,5})', page)) == {"data:", ""}
    assert "http" not in re.sub(r"http-equiv", "", page)
    assert "url(" not in Path(openworld.__file__).parent.joinpath("results/report/style.css").read_text()


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
    assert f"openworld name {copy.path} novel-3=NAME" in text
    assert "8: 5 known, 3 " in text
    assert "2 fewer classes" in text
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


@pytest.mark.slow
def test_the_class_count_curve(copy):
    curve = [{"k": k, "accuracy": 50.0 + k, "reassigned": 60.0 - k} for k in range(5, 15)]
    estimate = {"num_classes": 10, "low": 8, "high": 12, "estimator": "neighbours", "curve": curve}
    copy.write_json("estimate.json", estimate)
    text = text_of(page_of(copy))
    for piece in ("estimator neighbours", "10 classes", "8 to 12"):
        assert piece in text
    copy.write_json("estimate.json", {**estimate, "high": None, "curve": []})
    text = text_of(page_of(copy))
    assert "at least 8" in text
    assert "(number not estimated)" in text
    copy.write_json("summary.json", {**copy.summary(), "num_classes_estimated": True})
    assert "(number estimated)" in text_of(page_of(copy))


# Many classes ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hundred_classes_stay_small_and_closed():
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(100), 12)
    images = draw.integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8)  # noise, which is the hardest to compress
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
    assert "different data" in text
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
    assert "All settings are the same" in text_of(page)
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
    """Colours as seen without red or without green cones (Vienot, Brettel and Mollon 1999)."""
    style = Path(openworld.__file__).parent.joinpath("results/report/style.css").read_text()
    pairs = re.findall(r"--k\d: light-dark\((#\w{6}), (#\w{6})\)", style)
    assert len(pairs) == DISTINCT_COLOURS
    rgb = np.array([[int(pair[theme][i : i + 2], 16) for i in (1, 3, 5)] for pair in pairs]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    protan = np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]])
    deutan = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])
    for vision in (np.eye(3), protan, deutan):
        lab = _lab((linear @ vision.T).clip(0, 1))
        distances = np.linalg.norm(lab[:, None] - lab[None], axis=2)[np.triu_indices(DISTINCT_COLOURS, 1)]
        assert distances.min() > 20
    assert len({class_colour(number) for number in range(150)}) == 150


def _lab(linear: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt((linear @ to_xyz.T) / np.array([0.9505, 1, 1.089])).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)
