"""Training from Python: arrays, frames and paths."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from worlds import RUNTIME, write_photos

import openworld
from openworld.core.errors import UserError
from openworld.runs.evaluation import evaluate_run
from openworld.runs.folder import RunFolder
from openworld.training.learner import Learner

TINY = {"steps": 2, "epoch_steps": 2, "uncertainty_views": 2, "device": "cpu", "workers": 0}


def test_arrays():
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (40, 9, 9, 3), dtype=np.uint8)
    summary = openworld.train_on(images, np.array([0, 1] * 10 + [-1] * 20), num_classes=5, out="r", **TINY)
    assert summary["num_classes"] == 5
    assert sum(summary["class_sizes"].values()) == 20
    assert RunFolder(Path(summary["run"])).summary()["steps"] == 2


def test_a_frame():
    pandas = pytest.importorskip("pandas")
    root = write_photos(Path("photos"))
    paths = sorted(str(path.relative_to(root)) for path in root.glob("*/*/*"))
    labels = [path.split("/")[1] if path.startswith("labelled") else None for path in paths]
    frame = pandas.DataFrame({"path": paths, "label": labels})
    summary = openworld.train_on(frame, root=root, num_classes=3, **TINY)
    assert summary["num_seen"] == 2
    assert Path(summary["run"]).is_relative_to("runs")


@pytest.mark.slow
def test_a_path_and_a_benchmark():
    root = write_photos(Path("photos"))
    assert openworld.train_on(root, out="a", **TINY)["num_classes"] == 3
    settings = {"seed": np.int64(3), "lr": np.float32(0.5), "num_classes": None}
    summary = openworld.train_on("digits", out=Path("b"), **settings, **TINY)
    assert (summary["seed"], RunFolder(Path("b")).config().training.lr) == (3, 0.5)


def test_labels_as_pandas_keeps_them_and_a_thread_that_hears_no_signals():
    images = np.zeros((12, 9, 9), np.uint8)
    labels = np.array(["a", "b"] * 3 + [""] * 6, dtype=object)
    with ThreadPoolExecutor(1) as pool:
        summary = pool.submit(openworld.train_on, images, labels, out="r", **TINY).result()
    assert summary["num_seen"] == 2
    with pytest.raises(UserError, match=r"memory:arrays: .*resume=True"):
        evaluate_run(RunFolder(Path("r")), None, RUNTIME, print)


def test_ctrl_c_stops_the_whole_program(monkeypatch):
    learn = Learner.learn

    def learn_and_interrupt(self):
        learn(self)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Learner, "learn", learn_and_interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"stopped at step 1; .*out='r', resume=True"):
        openworld.train_on("digits", out="r", **TINY)


def test_mistakes():
    with pytest.raises(UserError, match="temprature: no such setting; did you mean temperature"):
        openworld.train_on("digits", temprature=0.2)
    for setting, answer in (
        ({"steps": 1e3}, "steps is 1000.0; it must be of type int"),
        ({"lr": "0.1"}, "lr is '0.1'; it must be of type float"),
        ({"network": "vgg"}, "network is 'vgg'; it must be one of"),
    ):
        with pytest.raises(UserError, match=answer):
            openworld.train_on("digits", **setting)
    with pytest.raises(UserError, match="labels works only with an array"):
        openworld.train_on("digits", [1, 2, 3])
    with pytest.raises(UserError, match="an array needs labels"):
        openworld.train_on(np.zeros((4, 3)))
    with pytest.raises(AttributeError, match="no attribute 'fit_on'"):
        openworld.fit_on  # noqa: B018
