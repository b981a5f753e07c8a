"""`openworld bench` and benchmarks/authors.py measure every part. Speed itself is recorded, not tested."""

import json

import authors
import pytest
from PIL import Image
from worlds import RUNTIME, run

from openworld.training import step_cost, timing

TINY = {"network": "small", "batch_labelled": 4, "batch_unlabelled": 8, "epoch_steps": 2, "uncertainty_views": 2}
TIMES = ("step_ms", "uncertainty_s", "evaluation_s", "epoch_s")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(step_cost, "CPU_SIZES", (1200, 100, 1))
    monkeypatch.setattr(step_cost, "ON_A_CPU", TINY)
    monkeypatch.setattr(timing, "ROUNDS", 1)
    monkeypatch.setattr(authors, "PASS_BATCH", 4)


@pytest.mark.slow
def test_everything_is_measured(capsys):
    assert run("bench", "--json", "--device", "cpu") == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    names = (*TIMES, "set_up_s", "peak_memory_gib", "matrix_peak_tflops", "images_per_s")
    assert all(result[name] > 0 for name in names)
    # It may exceed 1: on some CPUs convolutions are faster than a large matrix product (162 and 117 GFLOP/s on one).
    reached = result["tflop_per_step"] / (result["step_ms"] / 1000)
    assert result["share_of_peak"] == pytest.approx(reached / result["matrix_peak_tflops"])
    assert reached > 0
    assert list(result["parts_ms"]) == [
        "augment",
        "pseudo-label forward",
        "Sinkhorn",
        "mixup",
        "forward and backward",
        "optimiser",
        "averaging",
    ]
    assert all(ms > 0 for ms in result["parts_ms"].values())
    assert result["images_per_s"] == pytest.approx(20 / result["step_ms"] * 1000)
    assert result["setting"]["batch"] == [4, 8, 8]
    assert "a step: " in captured.err


@pytest.mark.slow
def test_a_person_gets_tables(capsys):
    assert run("bench", "--device", "cpu", "--quiet") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for text in ("forward and backward", "a whole step", "an epoch", "images/s", "GiB"):
        assert text in captured.out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns when a process with threads forks
def test_the_authors_arrangement_is_measured():
    lines = []
    theirs = authors.measure_authors(step_cost.make_workload(RUNTIME), RUNTIME, lines.append)
    assert all(theirs[name] > 0 for name in TIMES)
    assert theirs["workers"] == 2 * authors.WORKERS
    assert len(lines) == 2


def test_views_by_hand_are_normalised_images_of_their_size():
    view = authors.by_hand(Image.new("RGB", (32, 32), (255, 255, 255)))
    assert view.shape == (3, 32, 32)
    assert view.min() >= -2
    assert view.max() <= 2
