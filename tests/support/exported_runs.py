"""Fixtures: runs on gray images, photos and features, for the tests of `openworld export`."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from worlds import CPU, run, write_photos

from openworld.runs.classes import NAMES, Classes
from openworld.runs.folder import RunFolder
from openworld.runs.model import Model

TINY = ["--steps", 4, "--epoch-steps", 2, "--uncertainty-views", 2, "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module", name="digits")
def digits_fixture(tmp_path_factory) -> Path:
    """A run on gray images in which a user renamed a novel class and merged two others."""
    path = tmp_path_factory.mktemp("runs") / "digits"
    assert run("train", *TINY, "--batch-labelled", 16, "--batch-unlabelled", 32, "--out", path) == 0
    classes = Classes.of(RunFolder(path)).renamed("novel-3", "delivery | van").merged(["novel-1", "novel-5"])
    RunFolder(path).write_json(NAMES, classes.given)
    return path


@pytest.fixture(scope="module", name="photos")
def photos_fixture(tmp_path_factory) -> Path:
    """A run on photos. The network sees a centre crop of each."""
    folder = tmp_path_factory.mktemp("photos")
    data = write_photos(folder / "data", sides=(20,))
    settings = ["--image-size", 16, "--augment", "photos", "--workers", 0]
    assert run("train", data, *TINY, *settings, "--out", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module", name="features")
def features_fixture(tmp_path_factory) -> Path:
    """A run on features of very different scales."""
    folder = tmp_path_factory.mktemp("features")
    draw = np.random.default_rng(0)
    labels = np.arange(80) % 4
    rows = (draw.normal(0, 3, (4, 6))[labels] + draw.normal(0, 1, (80, 6))) * 10.0 ** np.arange(-2, 4)
    np.savez(folder / "data.npz", features=rows, labels=np.where((labels < 2) & (np.arange(80) < 40), labels, -1))
    assert run("train", folder / "data.npz", *TINY, "--out", folder / "run") == 0
    return folder / "run"


@pytest.fixture(name="a_copy")
def a_copy_fixture(digits) -> Path:
    return Path(shutil.copytree(digits, "copy"))


def model_of(path: Path) -> Model:
    return Model.load(RunFolder(path), CPU, warn=pytest.fail)


def samples_for(model: Model, count: int) -> torch.Tensor:
    """Return random samples that differ from those that export uses for its own check."""
    draw = np.random.default_rng(1)
    if model.takes_images:
        return torch.from_numpy(draw.integers(0, 256, (count, *model.sample_shape), dtype=np.uint8))
    noise = torch.from_numpy(draw.normal(0, 2, (count, *model.sample_shape))).float()
    return model.network.mean + model.network.std * noise


def files_here() -> list[str]:
    return sorted(path.name for path in Path().iterdir() if path.is_file())
