"""Write photos of a benchmark into a folder with the layout of your own data: example_photos.py DEST [--data NAME].

    openworld data fetch oxford-pets
    python benchmarks/example_photos.py photos --known beagle Bengal pug Siamese --new keeshond samoyed Sphynx
    openworld train photos

labelled/<class>/ holds a tenth of the training images of the seen classes. unlabelled/ holds the other images of the
seen classes and all images of the novel classes. test/<class>/ holds images of the test part, of all classes. The file
names tell nothing about the classes. Files are copied. Images of CIFAR become JPEG files with different sides, from 28
to 256 pixels.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from openworld.commands.common import fail
from openworld.core.errors import UserError, did_you_mean
from openworld.core.places import default_data_dir
from openworld.data.benchmarks import read_benchmark
from openworld.data.dataset import Dataset, Files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dest", type=Path, help="folder to write")
    parser.add_argument("--data", default="oxford-pets", help="benchmark, as oxford-pets, cifar10 or cifar100")
    parser.add_argument("--known", nargs="+", help="classes with some labelled images [first half]")
    parser.add_argument("--new", nargs="+", help="classes without labelled images [second half]")
    parser.add_argument("--images", type=int, default=4000, help="most training images [4000]")
    parser.add_argument("--test-images", type=int, default=1000, help="most test images [1000]")
    parser.add_argument(
        "--sides", type=int, nargs=2, default=(28, 256), metavar=("FROM", "TO"), help="range of sides of CIFAR images"
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
        numbers = draw.permutation(len(part.labels)) if isinstance(part.content, Files) else np.arange(len(part.labels))
        for name in (*known, *new):
            positions = np.flatnonzero(part.labels == dataset.class_names.index(name))[: count // len((*known, *new))]
            for rank, position in enumerate(positions):
                is_labelled = name in known and rank < len(positions) // 10
                folder = f"test/{name}" if part is dataset.test else f"labelled/{name}" if is_labelled else "unlabelled"
                path = options.dest / folder / f"{numbers[position]:05d}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(part.content, Files):
                    shutil.copyfile(part.content.full_path(position), path)
                else:
                    image = Image.fromarray(part.content[position])
                    size = tuple(draw.integers(*options.sides, 2, endpoint=True).tolist())
                    image.resize(size, Image.BICUBIC).save(path, quality=90)


if __name__ == "__main__":
    main()
