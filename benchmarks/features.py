"""Measure how many photos a second go through a backbone: features.py NAME [BACKBONE] [--images N].

    python benchmarks/features.py features-cpu efficientnet-lite2
    python benchmarks/features.py features-cuda           # without BACKBONE: a ViT-B/16 with random weights

The photos are random pixels in memory, so decoding is left out; copying them to the device, making the views and the
cache of features are included, writing the cache is not. Writes benchmarks/results/NAME.json with the median of three
passes for the plain view and for a random one.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from measure import RESULTS, commit

from openworld.compute.device import synchronize
from openworld.compute.runtime import pick_device
from openworld.nets.backbones import Backbone, find_backbone
from openworld.nets.feature_views import IMAGES_AT_ONCE, ViewSource
from openworld.ops.rng import generator
from openworld.runs.environment import environment

PASSES = 3


def random_vit() -> Backbone:
    """Return a ViT-B/16 with random weights, read from a folder as a model of the hub is."""
    import transformers

    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        transformers.ViTModel(transformers.ViTConfig(), add_pooling_layer=False).save_pretrained(folder)
        return find_backbone(folder)


def photos_a_second(source: ViewSource, images: torch.Tensor, view: int) -> float:
    """Return the median speed over several passes, after one pass that sets things up."""
    taken = []
    for _ in range(1 + PASSES):
        began = time.perf_counter()
        for chunk in images.split(IMAGES_AT_ONCE):
            source.compute(chunk.to(source.device), [bytes(32)] * len(chunk), view)
        synchronize(source.device)
        taken.append(time.perf_counter() - began)
    return len(images) / statistics.median(taken[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="NAME of the result file")
    parser.add_argument("backbone", nargs="?", help="name of a backbone")
    parser.add_argument("--images", type=int, default=8192, help="number of photos in a pass")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of NAME.json")
    options = parser.parse_args()
    device = pick_device("auto")
    backbone = (find_backbone(options.backbone) if options.backbone else random_vit()).to(device)
    side = backbone.description.stored_side
    images = torch.randint(256, (options.images, 3, side, side), dtype=torch.uint8, generator=generator(0, "photos"))
    source = ViewSource(backbone, "photos", side)
    with source.computing():
        speeds = {name: photos_a_second(source, images, view) for name, view in (("plain", 0), ("random", 1))}
    result = {
        "backbone": options.backbone or "ViT-B/16, random weights",
        "photos_a_second": {name: round(speed, 1) for name, speed in speeds.items()},
        "side": backbone.description.side,
        "images": options.images,
        "command": f"python benchmarks/features.py {' '.join(sys.argv[1:])}",
        "commit": commit(),
        "environment": environment(device),
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / f"{options.name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["photos_a_second"]))


if __name__ == "__main__":
    main()
