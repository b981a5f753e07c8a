"""A folder as a person would have it, from real CIFAR-10 images: cifar_folder.py DEST [--images 4000].

    python benchmarks/cifar_folder.py /tmp/photos
    openworld train /tmp/photos

labelled/<class>/ holds a tenth of the images of five classes, unlabelled/ the rest of them and all those of the other
five, test/<class>/ 1,000 images of the test part, of all ten. JPEG files with sides from 28 to 256 pixels.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from openworld.data.benchmarks import read_benchmark
from openworld.data.dataset import Dataset
from openworld.places import default_data_dir

NUM_SEEN = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dest", type=Path)
    parser.add_argument("--images", type=int, default=4000, help="training images")
    parser.add_argument("--test-images", type=int, default=1000)
    options = parser.parse_args()
    dataset = read_benchmark("cifar10", default_data_dir())
    write(dataset, options)


def write(dataset: Dataset, options: argparse.Namespace) -> None:
    draw = np.random.default_rng(0)
    for part, count in ((dataset.train, options.images), (dataset.test, options.test_images)):
        for label, name in enumerate(dataset.class_names):
            positions = np.flatnonzero(part.labels == label)[: count // 10]
            for number, position in enumerate(positions):
                folder = options.dest / folder_of(part is dataset.test, label, number, len(positions), name)
                folder.mkdir(parents=True, exist_ok=True)
                image = Image.fromarray(part.content[position])
                size = tuple(draw.integers(28, 257, 2).tolist())
                image.resize(size, Image.BICUBIC).save(folder / f"{position:05d}.jpg", quality=90)


def folder_of(is_test: bool, label: int, number: int, count: int, name: str) -> str:
    if is_test:
        return f"test/{name}"
    return f"labelled/{name}" if label < NUM_SEEN and number < count // 10 else "unlabelled"


if __name__ == "__main__":
    main()
