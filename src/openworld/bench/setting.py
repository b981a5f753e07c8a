"""What is measured: the paper's CIFAR-100 run, or on a CPU a smaller one, on made-up images."""

from dataclasses import dataclass

import numpy as np
import torch

from openworld.bench.timing import seconds_of
from openworld.config import Config, replace
from openworld.data.own import from_arrays
from openworld.data.problem import OpenWorld, pose
from openworld.recipes import RECIPES
from openworld.runtime import Runtime

SIDE, NUM_CLASSES = 32, 100
SIZES = {"cuda": (50_000, 10_000, 50), "cpu": (2_000, 400, 5)}
"""Images to train on and to test on, and how often a step is repeated to be timed."""
ON_A_CPU = {"network": "small-32", "batch_labelled": 64, "batch_unlabelled": 128, "epoch_steps": 16}


@dataclass(frozen=True)
class Setting:
    """A problem, and how often things are repeated to be timed."""

    config: Config
    world: OpenWorld
    pixels: np.ndarray
    """(N, H, W, C) of the training images, for those who want them one by one."""
    repeats: int


def make_setting(runtime: Runtime) -> Setting:
    num_train, num_test, repeats = SIZES[runtime.device.type]
    config = RECIPES["paper"]("cifar100")
    if runtime.device.type == "cpu":
        config = replace(config, ON_A_CPU)
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (num_train + num_test, SIDE, SIDE, 3), dtype=np.uint8)
    labels = np.arange(len(pixels)) % NUM_CLASSES
    dataset = from_arrays(pixels[:num_train], labels[:num_train], pixels[num_train:], labels[num_train:])
    return Setting(config, pose(config, runtime, dataset=dataset), pixels[:num_train], repeats)


def matrix_peak(device: torch.device) -> float:
    """TFLOP/s of a large matrix product, in the number format that the network uses on the device."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds_of(lambda: a @ b, device, times=10) / 1e12
