"""Measure how long it takes to load data: data.py [--photos N]. Writes benchmarks/results/data.json.

- CIFAR: load and check each set (md5 of every file, fingerprint, tensors) in its own process.
- Tiny ImageNet: decode it into an empty cache. All files are read once before, so that the disk is not measured. Then
  load it from the cache, in its own process.
- Photos of 500 x 375 pixels (JPEG, mosaics of real Tiny ImageNet images): decode them in workers, and compare with bare
  Pillow (open, convert, resize to 256 x 256, to array) in as many processes. Also measure how memory grows with the
  number of images.

Reads the benchmarks from $OPENWORLD_DATA. Use an otherwise idle machine.
"""

import argparse
import dataclasses
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, commit
from PIL import Image

from openworld.compute.runtime import Runtime
from openworld.core.places import count_cores, default_data_dir
from openworld.core.recipes import paper
from openworld.data.dataset import Dataset, Files, Part
from openworld.data.loader import Loader
from openworld.data.opening import open_dataset
from openworld.data.problem import load_problem
from openworld.runs.environment import environment

CPU = torch.device("cpu")
BATCH, BATCHES = 512, 12
WIDTH, HEIGHT, STORED = 500, 375, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=6000, help="number of photos for the workers [6000]")
    parser.add_argument("--load", metavar="NAME", help="load the benchmark NAME, print the time, and stop")
    parser.add_argument(
        "--stream", nargs=2, metavar=("FOLDER", "N"), help="stream N files of FOLDER, print the peak memory, and stop"
    )
    options = parser.parse_args()
    if options.load:
        print(json.dumps(load(options.load)))
        return
    if options.stream:
        print(stream_all(Path(options.stream[0]), int(options.stream[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        content = {
            "command": f"python {shlex.join(sys.argv)}",
            "commit": commit(),
            "environment": environment(CPU),
            "cifar10": loaded_thrice("cifar10"),
            "cifar100": loaded_thrice("cifar100"),
            "tiny-imagenet, decoded": decode_tiny_imagenet(),
            "tiny-imagenet, from the cache": loaded_thrice("tiny-imagenet"),
            "workers": measure_workers(Path(folder) / "photos", options.photos),
        }
    (RESULTS / "data.json").write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))


def in_a_fresh_process(*flags: object) -> Any:
    command = [sys.executable, __file__, *map(str, flags)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def loaded_thrice(name: str) -> dict:
    """Return the median of three loads, each in its own process: the machine has slow periods."""
    loads = sorted((in_a_fresh_process("--load", name) for _ in range(3)), key=lambda result: result["seconds"])
    return {**loads[1], "all_seconds": [result["seconds"] for result in loads]}


def load(name: str) -> dict:
    """Load a benchmark as training does: read, check, decode what is not in the cache, and copy it to the device."""
    began = time.monotonic()
    world = load_problem(paper(name), Runtime(CPU, default_data_dir(), count_cores(), quiet=True))
    seconds = time.monotonic() - began
    count = len(world.training.labelled) + sum(len(truth.samples) for truth in world.truths.values())
    return {"images": count, "seconds": round(seconds, 2), "images_per_second": round(count / seconds)}


def decode_tiny_imagenet() -> dict:
    """Time how long it takes to read, hash and decode every file and to put it into the cache."""
    dataset = open_dataset("tiny-imagenet", default_data_dir())
    for part in dataset.parts.values():
        for path in paths_of(part.content):
            Path(path).read_bytes()
    began = time.monotonic()
    Loader(dataset, 64, "refuse", Runtime(CPU, Path(), count_cores(), quiet=True))
    seconds, count = time.monotonic() - began, sum(map(len, dataset.parts.values()))
    return {"images": count, "seconds": round(seconds, 2), "images_per_second": round(count / seconds)}


# Decoding in workers ----------------------------------------------------------------------------------------


def measure_workers(folder: Path, count: int) -> dict:
    files = write_photos(folder, count)
    workers = count_cores()
    ours, theirs = [], []
    for _ in range(5):  # take turns, so that a slow period of the machine affects both
        theirs.append(bare_pillow_rate(files, workers))
        ours.append(streamed_rate(files, workers))
    half, whole = (in_a_fresh_process("--stream", folder, number) for number in (count // 2, count))
    return {
        "workers": workers,
        "photo": f"{WIDTH} x {HEIGHT} JPEG of {sum(map(os.path.getsize, paths_of(files))) // count:,} bytes",
        "pillow_images_per_second": round(statistics.median(theirs)),
        "streamed_images_per_second": round(statistics.median(ours)),
        "ratio": round(statistics.median(ours) / statistics.median(theirs), 3),
        "all": {"pillow": [round(rate) for rate in theirs], "streamed": [round(rate) for rate in ours]},
        "peak_memory_mb": {f"{count // 2} images": half, f"{count} images": whole},
    }


def write_photos(folder: Path, count: int) -> Files:
    """Write mosaics of 8 x 6 images of 64 pixels, cropped to WIDTH x HEIGHT."""
    folder.mkdir()
    tiny = open_dataset("tiny-imagenet", default_data_dir()).test.content
    draw = np.random.default_rng(0)
    tiles = []
    for position in range(1000):
        with Image.open(tiny.full_path(position)) as image:
            tiles.append(np.asarray(image.convert("RGB")))
    tiles = np.stack(tiles)
    for number in range(count):
        mosaic = tiles[draw.integers(0, len(tiles), (6, 8))].transpose(0, 2, 1, 3, 4).reshape(384, 512, 3)
        Image.fromarray(mosaic[:HEIGHT, :WIDTH]).save(folder / f"{number:06d}.jpg", quality=90)
    return Files(folder, tuple(f"{number:06d}.jpg" for number in range(count)))


def paths_of(files: Files) -> list[str]:
    return [files.full_path(position) for position in range(len(files))]


def decode_by_pillow(paths: list[str]) -> int:
    for path in paths:
        with Image.open(path) as image:
            np.asarray(image.convert("RGB").resize((STORED, STORED), Image.BILINEAR))
    return len(paths)


def bare_pillow_rate(files: Files, workers: int) -> float:
    paths = paths_of(files)[: BATCH * BATCHES]
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(decode_by_pillow, [paths[:32]] * workers))  # wait until all workers have started
        began = time.monotonic()
        count = sum(pool.map(decode_by_pillow, [paths[start : start + 32] for start in range(0, len(paths), 32)]))
        return count / (time.monotonic() - began)


def streamed_rate(files: Files, workers: int) -> float:
    """Return images per second for batches in a row, each requested two steps ahead, as in training.

    The first batch only starts the workers. It is not timed.
    """
    samples = streamed(files, workers)
    index = torch.arange(len(files))
    steps = [index[start : start + BATCH] for start in range(0, min(BATCH * BATCHES, len(index)), BATCH)]
    for number, step in enumerate(steps):
        samples.take(step)
        if number == 0:
            began = time.monotonic()
        for ahead in steps[number + 1 : number + 3]:
            samples.prefetch(ahead)
    return sum(map(len, steps[1:])) / (time.monotonic() - began)


def streamed(files: Files, workers: int):
    """Return samples without a cache: workers decode every image when it is requested."""
    labels = np.arange(len(files)) % 2
    dataset = Dataset("photos", ("a", "b"), Part(files, labels), None)
    loader = Loader(dataset, STORED, "refuse", Runtime(CPU, Path(), workers, memory=0, quiet=True))
    samples = loader.samples("train", range(len(files)))
    samples.items = [dataclasses.replace(item, row=None) for item in samples.items]
    return samples


def stream_all(folder: Path, count: int) -> float:
    """Stream `count` files once and return the peak memory of this process in MB."""
    files = Files(folder, tuple(sorted(os.listdir(folder))[:count]))
    samples = streamed(files, workers=1)
    for index in torch.arange(len(files)).split(BATCH):
        samples.take(index)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


if __name__ == "__main__":
    main()
