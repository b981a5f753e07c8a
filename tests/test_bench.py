"""`openworld bench`: that it measures what it says; how fast things are is for the benchmarks to tell."""

import json

import pytest
from PIL import Image
from worlds import run

from openworld.bench import authors, setting, timing

TINY = {"network": "small", "batch_labelled": 4, "batch_unlabelled": 8, "epoch_steps": 2, "uncertainty_views": 2}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(setting, "SIZES", {"cpu": (1200, 100, 1)})
    monkeypatch.setattr(setting, "ON_A_CPU", TINY)
    monkeypatch.setattr(timing, "ROUNDS", 1)
    monkeypatch.setattr(authors, "PASS_BATCH", 4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking beside threads, from Python 3.12 on
def test_everything_is_measured(capsys):
    assert run("bench", "--json", "--device", "cpu") == 0
    captured = capsys.readouterr()
    result, theirs = json.loads(captured.out), json.loads(captured.out)["authors"]
    times = ("step_ms", "uncertainty_s", "evaluation_s", "epoch_s")
    assert all(result[name] > 0 and theirs[name] > 0 for name in times)
    assert all(result[name] > 0 for name in ("set_up_s", "peak_memory_gib", "matrix_peak_tflops", "images_per_s"))
    # no bound by 1: on some CPUs convolutions are faster than a large matrix product (162 and 117 GFLOP/s on one)
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
    assert result["speedup"] == pytest.approx(theirs["epoch_s"] / result["epoch_s"])
    assert result["images_per_s"] == pytest.approx(20 / result["step_ms"] * 1000)
    assert result["setting"]["batch"] == [4, 8, 8]
    assert "a step: " in captured.err


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_person_gets_tables(capsys):
    assert run("bench", "--device", "cpu", "--quiet") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for text in ("forward and backward", "beside the authors' arrangement", "ratio", "trained images/s", "GiB"):
        assert text in captured.out


def test_views_by_hand_are_normalised_images_of_their_size():
    view = authors.by_hand(Image.new("RGB", (32, 32), (255, 255, 255)))
    assert view.shape == (3, 32, 32)
    assert view.min() >= -2
    assert view.max() <= 2
