"""What our engine makes of a step, of its parts, and of the passes over the set."""

import functools
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from openworld.bench.setting import Setting, matrix_peak
from openworld.bench.timing import seconds_of
from openworld.engine import CALLS_BEFORE_RECORDING, Recorder, stage, wait_for
from openworld.evaluate import progress_scores
from openworld.learner import Learner
from openworld.losses import soft_cross_entropy
from openworld.mix import mixup
from openworld.nets import frozen
from openworld.runtime import Runtime


def measure_ours(setting: Setting, runtime: Runtime, tell: Callable[[str], None]) -> dict[str, Any]:
    config, data, device = setting.config, setting.world.training, runtime.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    tell("setting up a step ...")
    began = time.perf_counter()
    learner = Learner(config, data, runtime)
    for _ in range(CALLS_BEFORE_RECORDING + 1):
        learner.learn()
    wait_for(device)
    set_up_s = time.perf_counter() - began
    tell(f"set up in {set_up_s:.0f} s")
    step_s = seconds_of(learner.learn, device, setting.repeats)
    tell(f"a step: {1000 * step_s:.1f} ms")
    passes = measure_passes(learner, setting, device)
    memory = peak_memory(device)
    tell(f"the uncertainty of all images: {passes['uncertainty_s']:.2f} s; now a whole epoch ...")
    epoch_s = seconds_of(lambda: one_epoch(learner, setting), device, rounds=1)
    tell(f"an epoch: {epoch_s:.1f} s")
    parts = {name: 1000 * seconds for name, seconds in measure_parts(learner, setting.repeats)}
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


def measure_passes(learner: Learner, setting: Setting, device: torch.device) -> dict[str, float]:
    """Seconds, after a first time that sets things up."""
    data, truth = learner.batches.data, setting.world.truths["test"]
    work = {
        "settling_s": learner.settle_average,
        "uncertainty_s": learner.end_epoch,
        "evaluation_s": lambda: progress_scores(learner.answering_average(), truth, data),
    }
    seconds = {}
    for name, one_pass in work.items():
        one_pass()
        seconds[name] = seconds_of(one_pass, device)
    return seconds


def one_epoch(learner: Learner, setting: Setting) -> None:
    """As training does it, without the files."""
    for _ in range(setting.config.training.epoch_steps):
        learner.learn()
    learner.settle_average()
    average = learner.end_epoch()
    for network in (average, frozen(learner.network)):
        progress_scores(network, setting.world.truths["test"], learner.batches.data)


def measure_parts(learner: Learner, repeats: int) -> Iterator[tuple[str, float]]:
    """Seconds of each part by itself."""
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
        again = functools.partial(Recorder(), part, *inputs)
        for _ in range(CALLS_BEFORE_RECORDING + 1):
            again()
        yield name, seconds_of(again, device, repeats)


def flops_of_a_step(config, data, runtime: Runtime) -> float:
    """TFLOP of the matrix products and convolutions, counted in one plain step."""
    plain = Runtime(runtime.device, runtime.data_dir, quiet=True)
    learner = Learner(config, data, plain)
    with FlopCounterMode(display=False) as counter:
        learner.learn()
    return counter.get_total_flops() / 1e12


def peak_memory(device: torch.device) -> float:
    """GiB: of the GPU all that was reserved since the start, the compiler's and the images' own included."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
