"""What a training step costs on this machine, part by part. `openworld bench` prints it.

The workload is the paper's CIFAR-100 run on random images; on a CPU a smaller one.
"""

import functools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from openworld.compute.cuda_graphs import CALLS_BEFORE_CAPTURE, GraphRunner
from openworld.compute.device import stage, synchronize
from openworld.compute.runtime import Runtime
from openworld.core.config import Config
from openworld.core.fields import replace
from openworld.core.recipes import RECIPES
from openworld.data.own import from_arrays
from openworld.data.problem import OpenWorld, TrainingSet, load_problem
from openworld.nets.inference import inference_copy
from openworld.ops.losses import soft_cross_entropy
from openworld.ops.mix import mixup
from openworld.runs.evaluation import progress_scores
from openworld.training.learner import Learner
from openworld.training.timing import seconds_of

SIDE, NUM_CLASSES = 32, 100
GPU_SIZES, CPU_SIZES = (50_000, 10_000, 50), (2_000, 400, 5)
"""Training images, test images, and how often a step is repeated for one timing."""
ON_A_CPU = {"network": "small-32", "batch_labelled": 64, "batch_unlabelled": 128, "epoch_steps": 16}


@dataclass(frozen=True)
class Workload:
    """A problem, and how often its work is repeated for one timing."""

    config: Config
    world: OpenWorld
    pixels: np.ndarray
    """(N, H, W, C) the training images."""
    repeats: int


def make_workload(runtime: Runtime) -> Workload:
    """Create the problem from random images."""
    is_cpu = runtime.device.type == "cpu"
    num_train, num_test, repeats = CPU_SIZES if is_cpu else GPU_SIZES
    config = RECIPES["paper"]("cifar100")
    if is_cpu:
        config = replace(config, ON_A_CPU)
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (num_train + num_test, SIDE, SIDE, 3), dtype=np.uint8)
    labels = np.arange(len(pixels)) % NUM_CLASSES
    dataset = from_arrays(pixels[:num_train], labels[:num_train], pixels[num_train:], labels[num_train:])
    return Workload(config, load_problem(config, runtime, dataset=dataset), pixels[:num_train], repeats)


def measure_step(workload: Workload, runtime: Runtime, report: Callable[[str], None]) -> dict[str, Any]:
    """Measure a step, its parts, the passes over the set and an epoch. `report` receives one line for each stage."""
    config, data, device = workload.config, workload.world.training, runtime.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    report("setting up a step ...")
    began = time.perf_counter()
    learner = Learner(config, data, runtime)
    for _ in range(CALLS_BEFORE_CAPTURE + 1):
        learner.learn()
    synchronize(device)
    set_up_s = time.perf_counter() - began
    report(f"set up in {set_up_s:.0f} s")
    step_s = seconds_of(learner.learn, device, workload.repeats)
    report(f"a step: {1000 * step_s:.1f} ms")
    passes = measure_passes(learner, workload, device)
    memory = peak_memory(device)
    report(f"the uncertainty of all images: {passes['uncertainty_s']:.2f} s; now a whole epoch ...")
    epoch_s = seconds_of(lambda: one_epoch(learner, workload), device, rounds=1)
    report(f"an epoch: {epoch_s:.1f} s")
    parts = {name: 1000 * seconds for name, seconds in measure_parts(learner, workload.repeats)}
    flops, peak = flops_of_a_step(config, data, runtime), matrix_peak(device)
    return {
        "step_ms": 1000 * step_s,
        **passes,
        "epoch_s": epoch_s,
        "set_up_s": set_up_s,
        "images_per_s": learner.batches.rows / step_s,
        "tflop_per_step": flops,
        "matrix_peak_tflops": peak,
        "share_of_peak": flops / step_s / peak,
        "peak_memory_gib": memory,
        "parts_ms": parts,
    }


def measure_passes(learner: Learner, workload: Workload, device: torch.device) -> dict[str, float]:
    """Return the seconds of each pass over the set, after a first pass that sets things up."""
    data, truth = learner.batches.data, workload.world.truths["test"]
    work = {
        "settling_s": learner.recalibrate_average,
        "uncertainty_s": learner.end_epoch,
        "evaluation_s": lambda: progress_scores(learner.inference_average(), truth, data),
    }
    seconds = {}
    for name, one_pass in work.items():
        one_pass()
        seconds[name] = seconds_of(one_pass, device)
    return seconds


def one_epoch(learner: Learner, workload: Workload) -> None:
    """Run one epoch as training does, without writing files."""
    for _ in range(workload.config.training.epoch_steps):
        learner.learn()
    learner.recalibrate_average()
    average = learner.end_epoch()
    for network in (average, inference_copy(learner.network)):
        progress_scores(network, workload.world.truths["test"], learner.batches.data)


def measure_parts(learner: Learner, repeats: int) -> Iterator[tuple[str, float]]:
    """Yield the name and the seconds of each part of a step, timed alone."""
    method, network, batches = learner.method, learner.network, learner.batches
    data, device = batches.data, batches.data.device
    drawn = batches.draw(0)
    batch = batches.shown(drawn)
    weight, partners = (stage(each, device) for each in method.draw(batches.rows, 0))
    with torch.no_grad():
        logits = method.view_logits(network, batch)
        pseudo_labels, _ = method.pseudo_labels(logits)
        images, targets, temperature = method.rows(batch, batch.views, pseudo_labels)

    def label_forward(views: Tensor) -> Tensor:
        with torch.no_grad():
            return network(views)

    def assign(logits: Tensor) -> Tensor:
        return method.pseudo_labels(logits)[0]

    def mix(images: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, ...]:
        return mixup(images, targets, temperature, weight=weight, partners=partners)

    def forward_and_backward(images: Tensor, targets: Tensor, temperature: Tensor) -> None:
        network.zero_grad(set_to_none=True)
        soft_cross_entropy(network(images) / temperature[:, None], targets).backward()

    number = torch.zeros((), device=device)
    parts = {
        "augment": (data.family.view, *drawn.samples_and_numbers),
        "pseudo-label forward": (label_forward, batch.views),
        "Sinkhorn": (assign, logits),
        "mixup": (mix, images, targets, temperature),
        "forward and backward": (forward_and_backward, images, targets, temperature),
        "optimiser": (learner.optimiser.descend, number, number, number),
        "averaging": (lambda share: learner.average.update(network, share), number),
    }
    for name, (part, *inputs) in parts.items():
        again = functools.partial(GraphRunner(), part, *inputs)
        for _ in range(CALLS_BEFORE_CAPTURE + 1):
            again()
        yield name, seconds_of(again, device, repeats)


def flops_of_a_step(config: Config, data: TrainingSet, runtime: Runtime) -> float:
    """Count the TFLOP of matrix products and convolutions in one step that is not compiled."""
    plain = Runtime(runtime.device, runtime.data_dir, quiet=True)
    learner = Learner(config, data, plain)
    with FlopCounterMode(display=False) as counter:
        learner.learn()
    return counter.get_total_flops() / 1e12


def matrix_peak(device: torch.device) -> float:
    """Measure the TFLOP/s of a large matrix product in the number format that the network uses on the device."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds_of(lambda: a @ b, device, times=10) / 1e12


def peak_memory(device: torch.device) -> float | None:
    """Return the peak memory in GiB: reserved by torch on a GPU, else used by this process. None if it is unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / 2**30
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 2**30 if sys.platform == "darwin" else 2**20  # macOS counts bytes, Linux counts kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
