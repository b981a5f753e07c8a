"""Write real CIFAR images into a folder with the layout of your own data: cifar_folder.py DEST [--images 4000].

    python benchmarks/cifar_folder.py /tmp/photos
    openworld train /tmp/photos

labelled/<class>/ holds a tenth of the images of the seen classes. unlabelled/ holds the other images of the seen
classes and all images of the novel classes. test/<class>/ holds images of the test part, of all classes. Images are
JPEG files with different sides, from 28 to 256 pixels, as in real photo folders. By default the images are from
CIFAR-10, and its first five classes are seen.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from openworld.commands.common import fail
from openworld.core.errors import UserError, did_you_mean
from openworld.core.places import default_data_dir
from openworld.data.benchmarks import read_benchmark
from openworld.data.dataset import Dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dest", type=Path, help="folder to write")
    parser.add_argument("--data", default="cifar10", help="cifar10 or cifar100")
    parser.add_argument("--known", nargs="+", help="classes with some labelled images [first half]")
    parser.add_argument("--new", nargs="+", help="classes without labelled images [second half]")
    parser.add_argument("--images", type=int, default=4000, help="number of training images [4000]")
    parser.add_argument("--test-images", type=int, default=1000, help="number of test images [1000]")
    parser.add_argument(
        "--sides", type=int, nargs=2, default=(28, 256), metavar=("FROM", "TO"), help="range of sides in pixels"
    )
    options = parser.parse_args()
    try:
        dataset = read_benchmark(options.data, default_data_dir())
    except UserError as error:
        fail(str(error), 2)
    half = len(dataset.class_names) // 2
    known, new = options.known or dataset.class_names[:half], options.new or dataset.class_names[half:]
    for name in (*known, *new):
        if name not in dataset.class_names:
            choices, hint = ", ".join(dataset.class_names), did_you_mean(name, dataset.class_names)
            fail(f"{options.data} has no class {name}{hint} (--known and --new take: {choices})", 2)
    write(dataset, known, new, options)


def write(dataset: Dataset, known: list[str], new: list[str], options: argparse.Namespace) -> None:
    draw = np.random.default_rng(0)
    for part, count in ((dataset.train, options.images), (dataset.test, options.test_images)):
        for name in (*known, *new):
            positions = np.flatnonzero(part.labels == dataset.class_names.index(name))[: count // len((*known, *new))]
            for number, position in enumerate(positions):
                is_labelled = name in known and number < len(positions) // 10
                folder = f"test/{name}" if part is dataset.test else f"labelled/{name}" if is_labelled else "unlabelled"
                (options.dest / folder).mkdir(parents=True, exist_ok=True)
                image = Image.fromarray(part.content[position])
                size = tuple(draw.integers(*options.sides, 2, endpoint=True).tolist())
                image.resize(size, Image.BICUBIC).save(options.dest / folder / f"{position:05d}.jpg", quality=90)


if __name__ == "__main__":
    main()
