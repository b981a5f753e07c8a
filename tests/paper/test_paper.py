"""The tables and figures of the paper, compared with recorded results."""

import json
from pathlib import Path

import pytest
from PIL import Image
from worlds import run

from openworld import paper
from openworld.paper import records as recorded

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.parametrize("item", paper.ITEMS)
def test_an_item_is_printed_and_drawn(item, tmp_path, capsys):
    assert run("paper", item, "--out", tmp_path) == 0
    output = capsys.readouterr().out
    table = paper.table_of(item)
    assert table.title.split(",")[0][:20] in output
    drawn = sorted(path.name for path in tmp_path.glob(f"{item}.*"))
    assert drawn == ([f"{item}.png", f"{item}.svg"] if table.figure else [])
    if table.figure:
        with Image.open(tmp_path / f"{item}.png") as picture:
            assert min(picture.size) > 200
        assert (tmp_path / f"{item}.svg").read_text().count("</svg>") == 1


def test_every_cell_has_its_column():
    for item in paper.ITEMS:
        table = paper.table_of(item)
        assert {len(row) for row in table.rows} == {len(table.header)}


def test_the_estimates_are_those_recorded():
    estimates = json.loads((RESULTS / "estimation-cifar100.json").read_text())["estimates"]
    row = next(row for row in paper.table_of("estimation").texts() if row[0] == "cifar100")
    assert row[1:4] == ("100", "117", "87")
    ours = [estimates[way] for way in ("neighbours", "paper", "paper-plain")]
    assert list(row[4:]) == ["{num_classes} ({low}-{high})".format(**estimate) for estimate in ours]


def test_json_has_the_interval_of_an_estimate(capsys):
    told = json.loads((RESULTS / "estimation-cifar100.json").read_text())["estimates"]["neighbours"]
    assert run("paper", "estimation", "--json") == 0
    row = next(row for row in json.loads(capsys.readouterr().out)["rows"] if row[0] == "cifar100")
    assert row[1:5] == [100, 117, 87, {key: told[key] for key in ("num_classes", "low", "high")}]


def test_the_default_estimator_is_within_5_per_cent_on_cifar100():
    result = json.loads((RESULTS / "estimation-cifar100.json").read_text())
    assert abs(result["estimates"]["neighbours"]["num_classes"] / result["true_classes"] - 1) <= 0.05


def test_wrong_numbers_of_classes_span_a_quarter_each_way():
    lines = paper.table_of("sensitivity").figure.lines
    errors = [error for error, _ in lines["All, trial, 4,000 steps"]]
    assert (min(errors), max(errors)) == (-25, 25)
    assert errors == sorted(errors)
    assert [(error, score.mean) for error, score in lines["All, as printed"]] == [(0, 60.3), (pytest.approx(17), 54.8)]


def test_what_was_not_recorded_is_a_dash(monkeypatch, tmp_path):
    monkeypatch.setattr(recorded, "results_dir", lambda: tmp_path)
    assert {row[4] for row in paper.table_of("estimation").texts()} == {"-"}
    for item in paper.ITEMS:
        assert paper.table_of(item).figure is None
    assert run("paper", "estimation", "--out", tmp_path / "out") == 0
    assert not (tmp_path / "out").exists()  # there is nothing to draw


def test_without_an_item_all_are_listed(capsys):
    assert run("paper") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(paper.ITEMS)
    assert max(map(len, lines)) <= 80
    assert run("paper", "--json") == 0
    assert json.loads(capsys.readouterr().out) == list(paper.ITEMS)


def test_an_unknown_item_is_answered_in_one_line(refused):
    told = refused("paper", "table9")
    assert "table9: " in told
    assert "did you mean table2?" in told
    assert ", ".join(paper.ITEMS) in told
