"""Small data sets, runs and other helpers that many tests share."""

import math
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from openworld.cli import main, make_parser
from openworld.compute.runtime import Runtime
from openworld.core.config import Config
from openworld.core.signals import Interrupted
from openworld.data import problem
from openworld.data.batches import Batch
from openworld.data.benchmarks import read_benchmark
from openworld.data.problem import TrainingSet, statistics
from openworld.data.samples import InMemory
from openworld.nets.heads import CosineHead
from openworld.ops.rng import generator
from openworld.runs.folder import RunFolder
from openworld.training.learner import Learner
from openworld.training.loop import train

CPU = torch.device("cpu")
RUNTIME = Runtime(device=CPU, data_dir=Path("nowhere"), quiet=True)


def run(*arguments: object) -> int:
    """Run the command line and return its exit code."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code


def training_set(labelled: Tensor, labels: Tensor, unlabelled: Tensor, prior: Tensor, num_seen: int, augment: str):
    """Return the training set that training would get for these samples."""
    samples = InMemory(unlabelled, CPU)
    mean, std = statistics(samples)
    return TrainingSet(
        labelled=InMemory(labelled, CPU),
        labels=labels,
        unlabelled=samples,
        prior=prior,
        num_seen=num_seen,
        mean=mean,
        std=std,
        augment=augment,
    )


def tensors_of(batch: Batch) -> tuple[Tensor, ...]:
    return *batch.labelled_views, batch.labels, *batch.unlabelled_views, batch.index, batch.images


def cosine_head(num_classes: int) -> Callable[[int, torch.Generator], CosineHead]:
    """Return a function that builds the default head."""
    return lambda width, source: CosineHead.drawn(width, num_classes, source)


def trained(path: str, config: Config) -> RunFolder:
    run = RunFolder(Path(path))
    train(config, run, RUNTIME)
    return run


class Stop(Exception):
    pass


def stopped(path: str, config: Config, step: int) -> None:
    """Train a run that ends after `step` steps with an exception, as if its process had died."""
    learn = Learner.learn

    def learn_or_die(self):
        if self.step == step:
            raise Stop
        learn(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "learn", learn_or_die)
        with pytest.raises(Stop):
            trained(path, config)


def interrupted(path: str, config: Config, step: int) -> RunFolder:
    """Train a run that a signal stops after `step` steps, and return it."""
    learn = Learner.learn

    def learn_and_interrupt(self):
        learn(self)
        if self.step == step:
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "learn", learn_and_interrupt)
        with pytest.raises(Interrupted, match=f"stopped at step {step}"):
            trained(path, config)
    return RunFolder(Path(path))


def last_checkpoint(run: RunFolder) -> dict[str, bytes]:
    """Return the files of the last checkpoint of a finished run."""
    folder = run.checkpoints / f"step-{run.config().training.steps:08d}"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def lines_without_clock(run: RunFolder) -> list[dict]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in run.metrics()]


def flags_of_commands() -> dict[str, list[str]]:
    """Return the flags of every command. The commands of `data` are listed as `data check` and so on."""
    commands = dict(make_parser()._subparsers._group_actions[0].choices)
    verbs = commands.pop("data")._subparsers._group_actions[0].choices
    commands |= {f"data {verb}": parser for verb, parser in verbs.items()}
    return {name: list(parser._option_string_actions) for name, parser in commands.items()}


def write_photos(root: Path, sides: tuple[int, ...] = (12,), labelled: int = 6, unlabelled: int = 30, test: int = 4):
    """Write a data folder with two seen classes and one that only the test part names.

    Each image is noise in the colour of its class.
    """
    draw = np.random.default_rng(0)
    colours = {"cat": (200, 60, 60), "dog": (60, 200, 60), "fox": (60, 60, 200)}
    counts = {f"labelled/{name}": (name, labelled) for name in ("cat", "dog")}
    counts |= {f"unlabelled/{name}": (name, unlabelled // 3) for name in colours}
    counts |= {f"test/{name}": (name, test) for name in colours}
    for folder, (name, count) in counts.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            width, height = draw.choice(sides, 2)
            pixels = np.clip(draw.normal(colours[name], 40, (height, width, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / folder / f"{number:03d}.png")
    return root


def noise_images(count: int, channels: int, size: int) -> Tensor:
    shape = (count, channels, size, size)
    return torch.randint(0, 256, shape, generator=generator(0, "noise"), dtype=torch.uint8)


def assert_about(observed: float, probability: float, count: int) -> None:
    """Assert that a proportion is within four standard deviations of a binomial draw."""
    assert abs(observed - probability) < 4 * math.sqrt(probability * (1 - probability) / count)


def world_of_noise(config: Config, runtime: Runtime, run: RunFolder | None = None) -> problem.OpenWorld:
    """Return the digits with the same split, but with noise in place of all labels that training must not see."""
    dataset = read_benchmark("digits", Path("nowhere"))
    split = problem.make_split(dataset.train.labels, 10, config.problem, config.seed)
    labels, hidden = dataset.train.labels.copy(), np.array(split.unlabelled)
    labels[hidden] = np.random.default_rng(0).integers(0, 10, len(hidden))
    test = replace(dataset.test, labels=np.zeros_like(dataset.test.labels))
    noisy = replace(dataset, train=replace(dataset.train, labels=labels), test=test)
    fingerprint = problem.load_problem(config, runtime, dataset=noisy).fingerprint
    return problem.load_problem(config, runtime, split.to_json(fingerprint=fingerprint), noisy)
