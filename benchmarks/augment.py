"""Measure how fast random augmented views are made: by openworld in batches, and by Pillow image by image.

    python benchmarks/augment.py [--device cuda]

Both make the views of the CIFAR family from the same images, which are already in memory. openworld makes a batch at a
time on the device. Pillow runs in one process per core, from array to array. Prints one line for each and writes
benchmarks/results/augment-{cpu|cuda}.json.
"""

import argparse
import json
import multiprocessing
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from random import Random

import numpy as np
import torch
from measure import RESULTS, commit
from pillow_views import pillow_view

from openworld.compute.device import set_up
from openworld.data import augment
from openworld.ops.rng import generator
from openworld.runs.environment import environment

BATCH, SIZE = 768, 32
"""Images in a batch (two views of 256 unlabelled images, and 256 labelled ones: a step of the paper on CIFAR); side."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=100, help="number of timed batches")
    options = parser.parse_args()
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH, SIZE, SIZE, 3), dtype=np.uint8)
    theirs = measure_pillow(pixels, max(3, options.repeats // 10))
    ours = measure_ours(pixels, options.device, options.repeats)
    content = {
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        "environment": environment(options.device),
        "batch": BATCH,
        "ours": ours,
        "pillow": theirs,
        "ratio": ours["images_per_second"] / theirs["images_per_second"],
    }
    path = RESULTS / f"augment-{options.device.type}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print("ours  ", json.dumps(ours))
    print("Pillow", json.dumps(theirs))
    print(f"openworld makes {content['ratio']:.1f} times as many images per second as Pillow; written to {path}")


def measure_ours(pixels: np.ndarray, device: torch.device, repeats: int) -> dict[str, float]:
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().to(device)
    channel_statistics = images.float().mean(dim=(0, 2, 3)) / 255, images.float().std(dim=(0, 2, 3)) / 255
    # Training frees large tensors all the time. The C library keeps freed memory of this size only after one such
    # tensor was freed. Without this line, most of the time would go into requesting the memory again.
    torch.ones(31 * 2**18)
    set_up(device, compile=device.type == "cuda", deterministic=False)  # the same settings as in training
    random_view = augment.family("cifar", *channel_statistics).random

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def one_batch(number: int) -> None:
        random_view(images, generator(0, "benchmark", number, device=device))

    def one_batch_and_wait(number: int) -> None:
        one_batch(number)
        wait()

    def all_batches(_: int) -> None:
        for number in range(repeats):
            one_batch(number)
        wait()

    return {
        **speed(seconds_of(one_batch_and_wait, repeats)),
        "ms_in_a_row": 1000 * seconds_of(all_batches, repeats=3) / repeats,
        "threads": torch.get_num_threads(),
    }


def measure_pillow(pixels: np.ndarray, repeats: int) -> dict[str, float]:
    processes = len(os.sched_getaffinity(0))
    # More parts than processes, so that no process waits long for the last part.
    parts = np.array_split(np.arange(len(pixels)), 4 * processes)
    # Each process is a fresh interpreter: a process that is forked beside a GPU or threads may hang.
    with multiprocessing.get_context("spawn").Pool(processes, initializer=keep, initargs=(pixels,)) as pool:

        def one_batch(number: int) -> None:
            pool.map(make_views, [(number, part) for part in parts], chunksize=1)

        return {**speed(seconds_of(one_batch, repeats)), "processes": processes}


def seconds_of(work: Callable[[int], None], repeats: int) -> float:
    """Return the median time of a call, without the first two calls."""
    seconds = []
    for number in range(repeats + 2):
        start = time.perf_counter()
        work(number)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[2:])


def speed(seconds: float) -> dict[str, float]:
    return {"ms": 1000 * seconds, "images_per_second": BATCH / seconds}


def keep(pixels: np.ndarray) -> None:
    """Keep the images in a worker process, so that they are sent to it only once."""
    global kept_pixels
    kept_pixels = pixels


def make_views(job: tuple[int, np.ndarray]) -> None:
    number, part = job
    rng = Random(f"{number}/{part[0]}")
    for position in part:
        pillow_view(kept_pixels[position], rng)


if __name__ == "__main__":
    main()
