"""Figures about several runs, as PNG and SVG files."""

import numpy as np
import pytest
from PIL import Image

from openworld.results.plots import Bars, Lines, Matrix, draw
from openworld.results.scores import Group, Score, grouped, over_seeds

FIGURES = {
    "lines": Lines({"a": [(1.0, Score(50.0, 2.0)), (2.0, Score(60.0, None))], "b": [(1.0, 3.0)]}, "x", "y"),
    "bars": Bars(
        {"first": {"Seen": Score(50.0, 1.0)}, "second": {"Seen": Score(60.0, None), "Novel": Score(1, 2)}}, "y"
    ),
    "matrix": Matrix(np.array([[3, 1], [0, 0]]), num_seen=1),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_twice_the_same(name, tmp_path):
    """A row of bars may lack a score."""
    paths = draw(FIGURES[name], "title", tmp_path / "new" / "figure.of")
    assert [path.name for path in paths] == ["figure.of.png", "figure.of.svg"]
    with Image.open(paths[0]) as picture:
        assert min(picture.size) > 200
    before = paths[1].read_bytes()
    draw(FIGURES[name], "title", tmp_path / "new" / "figure.of")
    assert paths[1].read_bytes() == before


def test_runs_are_grouped_by_everything_but_the_seed():
    runs = [({"lr": lr, "seed": seed}, {"seed": seed, "all": 10 * lr + seed}) for lr in (1, 2) for seed in (1, 0)]
    first, second = grouped(runs)
    assert (first.settings, first.seeds, second.seeds) == ({"lr": 1}, (0, 1), (0, 1))
    assert first.score("all") == Score(10.5, pytest.approx(0.5**0.5))


def test_a_score_that_is_unknown_has_no_mean():
    assert over_seeds([]) is None
    assert over_seeds([1.0, None]) is None
    assert Group({}, [{"all": None}]).score("all") is None
    assert str(over_seeds([61.25])) == "61.2"
