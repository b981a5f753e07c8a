"""All callers turn a request into a run in the same way. Each stage runs once, and a stopped run can resume."""

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from worlds import RUNTIME, run

from openworld import OpenWorldClassifier, train_on
from openworld.core.errors import UserError
from openworld.data.benchmarks import read_benchmark
from openworld.planning import plan, request
from openworld.planning.request import Request, execute
from openworld.runs.folder import RunFolder
from openworld.training.learner import Learner

SIZES = {"batch_labelled": 8, "batch_unlabelled": 16, "uncertainty_views": 2}


def arrays(count: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Return images of three classes. Two of them have some labels."""
    draw = np.random.default_rng(0)
    truth = np.arange(count) % 3
    images = np.clip(draw.normal(40 + 80 * truth[:, None, None, None], 30, (count, 8, 8, 3)), 0, 255).astype(np.uint8)
    return images, np.where((truth < 2) & (np.arange(count) < 60), truth, -1)


class Counted:
    """Count the calls of a function, which still runs."""

    def __init__(self, monkeypatch, owner, name: str):
        self.calls, function = 0, getattr(owner, name)

        def counting(*arguments, **named):
            self.calls += 1
            return function(*arguments, **named)

        monkeypatch.setattr(owner, name, counting)


@pytest.mark.slow
def test_a_run_that_begins_with_features_and_counts_classes_opens_and_poses_its_data_once(monkeypatch):
    opened = Counted(monkeypatch, plan, "open_dataset")
    posed = Counted(monkeypatch, plan, "load_problem")
    learners = Counted(monkeypatch, Learner, "__init__")
    np.savez("data.npz", images=arrays()[0], labels=arrays()[1])
    lengths = {"start": "simclr", "start_steps": 4, "steps": 2, "num_classes": "auto"}
    settings = {"data": "data.npz", **lengths, **SIZES}
    execute(Request(settings=settings), RunFolder(Path("r")), RUNTIME)
    assert (opened.calls, posed.calls, learners.calls) == (1, 1, 2)  # learners: for the features, and for the run


@pytest.fixture
def requested(monkeypatch) -> list[Request]:
    """The requests that are executed, each shortened to one step."""
    seen = []

    def note(given: Request, folder: RunFolder, runtime):
        seen.append(given)
        return execute(replace(given, settings={**given.settings, "steps": 1}), folder, runtime)

    monkeypatch.setattr("openworld.api.execute", note)
    monkeypatch.setattr(request, "execute", note)
    return seen


@pytest.mark.slow
def test_all_who_train_go_one_way(requested):
    assert run("train", "--out", "a", "--quiet", "--device", "cpu") == 0
    train_on(*arrays(), out="b", device="cpu", **SIZES)
    images, labels = arrays()
    OpenWorldClassifier(num_classes=3, device="cpu", settings=SIZES).fit(images, labels)
    assert [each.settings.get("data", "digits") for each in requested] == ["digits", "memory:arrays", "memory:X"]


def test_a_row_of_the_paper_goes_the_same_way(requested, monkeypatch):
    monkeypatch.setattr("openworld.planning.sweep.open_dataset", lambda name, folder: read_benchmark("digits", folder))
    monkeypatch.setattr("openworld.planning.sweep.execute", lambda given, *_: requested.append(given) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("paper", "labels50", "--run", "cifar100", "--recipe", "paper", "--steps", 10)
    (given,) = requested
    labels = {"labelled": 50.0, "temperature": 0.2}
    lengths = {"steps": 10, "epoch_steps": 1}
    assert given.settings == {"data": "cifar100", "recipe": "paper", "seed": 0, **lengths, **labels}
    assert given.resume


# Stopped and resumed -----------------------------------------------------------------------------------------


def stopping(monkeypatch, step: int, method: str) -> None:
    """Send one signal when a learner of this method reaches this step."""
    learn, stops = Learner.learn, [1]

    def learn_and_stop(self):
        learn(self)
        if self.step == step and type(self.method).__name__ == method and stops:
            stops.pop()
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Learner, "learn", learn_and_stop)


@pytest.mark.slow
@pytest.mark.parametrize(("step", "method"), [(3, "Trssl"), (2, "Simclr")])
def test_a_run_on_data_from_memory_goes_on_in_python(monkeypatch, step, method):
    """This holds too for a run that was stopped while it learnt its features."""
    settings = {"num_classes": 3, "start": "simclr", "start_steps": 4, "steps": 5, "epoch_steps": 5, **SIZES}
    whole = train_on(*arrays(), out="whole", device="cpu", **settings)
    stopping(monkeypatch, step, method)
    with pytest.raises(KeyboardInterrupt, match=f"stopped at step {step}"):
        train_on(*arrays(), out="r", device="cpu", **settings)
    with pytest.raises(UserError, match=r"r already contains a run; add resume .* another out"):
        train_on(*arrays(), out="r", device="cpu", **settings)
    resumed = train_on(*arrays(), out="r", resume=True, device="cpu", **settings)
    assert {**resumed, "run": "", "seconds": 0} == {**whole, "run": "", "seconds": 0}
    weights = [Path(f"{name}/checkpoints/step-00000005/model.safetensors").read_bytes() for name in ("whole", "r")]
    assert weights[0] == weights[1]
    again = train_on(*arrays(), out="r", resume=True, device="cpu", **settings)  # returns the finished result
    assert again == resumed


def test_a_run_goes_on_with_its_own_data_and_settings_only():
    images, labels = arrays()
    settings = {"num_classes": 3, "steps": 2, "device": "cpu", **SIZES}
    train_on(images, labels, out="r", **settings)
    Path("r/summary.json").unlink()
    with pytest.raises(UserError, match="has changed"):
        train_on(images[::-1].copy(), labels, out="r", resume=True, **settings)
    with pytest.raises(UserError, match=r"the run was started with steps = 2, not 3"):
        train_on(images, labels, out="r", resume=True, **{**settings, "steps": 3})
    with pytest.raises(UserError, match="resume needs out"):
        train_on(images, labels, resume=True)


def test_what_was_begun_in_memory_cannot_be_found_by_the_command_line(monkeypatch, refused):
    stopping(monkeypatch, 2, "Simclr")
    with pytest.raises(KeyboardInterrupt):
        train_on(*arrays(), out="r", start="simclr", start_steps=4, steps=5, device="cpu", **SIZES)
    message = refused("train", "--resume", "--out", "r", "--quiet")
    assert "memory:arrays: " in message
    assert "resume=True" in message


# Python names, not flags -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": -1.0}, r"^lr is -1.0; it must be above 0$"),
        ({"queue": 5}, r"^queue .* method='trssl\+'.* leave queue out$"),
        ({"steps": 5, "minutes": 1}, r"^minutes and steps both"),
        ({"batch_unlabelled": 500, "steps": 1}, r"^batch_unlabelled=500 is larger than the 80"),
        ({"method": "trsl"}, r"^method is 'trsl'; it must be one of trssl, trssl\+, simclr$"),
        ({"threshhold": 1}, r"^threshhold: no such setting; did you mean threshold\?$"),
        ({"start_steps": 5}, r"^start_steps .* start='simclr'.* leave start_steps out$"),
        ({"device": "tpu"}, r"^device='tpu': .*auto, cpu"),
    ],
)
def test_from_python_parameters_are_named_and_no_flags(settings, message):
    with pytest.raises(UserError, match=message):
        train_on(*arrays(), **{"out": "r", **settings})


def test_so_does_the_estimator():
    images, labels = arrays()
    for settings in ({"lr": -1.0}, {"batch_unlabelled": 500}, {"queue": 5}):
        with pytest.raises(ValueError, match=f"^{next(iter(settings))}") as caught:
            OpenWorldClassifier(steps=1, settings=settings).fit(images, labels)
        assert "--" not in str(caught.value)
