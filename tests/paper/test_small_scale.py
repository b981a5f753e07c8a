"""Every item can be run again, on the digits at small scale."""

import json
from pathlib import Path

import pytest
from worlds import run

from openworld.core.fields import replace
from openworld.core.recipes import RECIPES
from openworld.paper import ESTIMATION, ITEMS
from openworld.paper.items import at_small_scale
from openworld.planning import estimate

ACCURACIES = [name for name, item in ITEMS.items() if item]


@pytest.fixture
def fast_runs(monkeypatch):
    """Make batches and features small, and let k-means try few numbers of classes."""
    small = {"batch_labelled": 8, "batch_unlabelled": 16, "uncertainty_views": 2}
    whole = dict(RECIPES)
    monkeypatch.setitem(RECIPES, "digits", lambda data: replace(whole["digits"](data), small))
    features = {"steps": 4, "epoch_steps": 2, "batch_unlabelled": 16}
    monkeypatch.setitem(RECIPES, "simclr", lambda data: replace(whole["simclr"](data), features))
    monkeypatch.setattr(estimate, "MOST_CLASSES", 15)


@pytest.mark.slow
@pytest.mark.parametrize("item", ITEMS)
def test_an_item_is_run_shown_and_drawn(item, fast_runs, capsys):
    assert run("paper", item, "--run", "--scale", "small", "--steps", 2, "--json") == 0
    table = json.loads(capsys.readouterr().out)
    ours = [row for row in table["rows"] if row[0].endswith(": this run")]
    small = at_small_scale(ITEMS[item]) if ITEMS[item] else None
    assert len(ours) == (len(small.rows) if small else 1)
    if small:
        assert {row[0].partition(",")[0] for row in ours} == {row.name for row in small.rows}
        assert all(isinstance(row[-4 - len(small.columns)]["mean"], float) for row in ours)
    assert run("paper", item, "--run", "--scale", "small", "--steps", 2) == 0  # finished runs are not trained again
    printed = capsys.readouterr()
    assert "digits" in printed.out
    draws = small is None or small.x is not None or small.shows_matrix
    assert (Path("runs/paper") / f"{item}-small.png").exists() == draws


@pytest.mark.parametrize("item", ACCURACIES)
def test_the_small_scale_has_each_problem_once(item):
    full, small = ITEMS[item], at_small_scale(ITEMS[item])
    assert {row.data for row in small.rows} == {"digits"}
    assert len({row.name for row in small.rows}) == len(small.rows)
    assert len({str(sorted(row.settings.items())) for row in small.rows}) == len(small.rows)
    assert {name for row in small.rows for name in row.settings} == set(full.varied)
    assert not any(row.printed for row in small.rows)


def test_wrong_class_counts_are_wrong_by_as_much():
    counts = [row.num_classes for row in at_small_scale(ITEMS["sensitivity"]).rows]
    assert counts == [8, 9, 10, 11, 12]


def test_shares_of_novel_classes_leave_two_seen_classes():
    shares = [row.settings["novel"] for row in at_small_scale(ITEMS["novel-share"]).rows]
    assert shares == [10, 20, 30, 40, 50, 60, 70, 80]


def test_a_short_run_of_an_item_is_no_longer_than_its_recipe():
    from openworld.paper.running import trials_of

    small = at_small_scale(ITEMS["table1"])
    (trial,) = trials_of("table1", small, small.rows, "auto", [3])
    assert trial.name == "table1-digits-small-seed3"
    assert trial.settings["steps"] < RECIPES["digits"]("digits").training.steps


def test_estimates_on_the_digits_are_shown_at_small_scale(capsys):
    assert run("paper", ESTIMATION, "--scale", "small") == 0
    printed = capsys.readouterr().out
    assert "digits" in printed
    assert "cifar10 " not in printed
