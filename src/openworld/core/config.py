"""The settings of a run: frozen dataclasses with a docstring under each field.

The defaults are the paper's. The recipes in recipes.py change them for a given data set. The command-line flags, their
help and the keys of a configuration file all come from these fields. To add a setting, add one field here, or in the
options of a method (methods/) if only that method uses it.
This module must not import torch, because `openworld --help` reads it.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal

from openworld.core.errors import UserError, check, did_you_mean, named
from openworld.methods import METHODS, MethodOptions


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The open-world problem: which labels of a benchmark to hide, the number of classes and their proportions."""

    task: Literal["open-world", "ncd"] = "open-world"
    """What is known of the unlabelled images. open-world: nothing. ncd (novel class discovery): all are of novel
    classes; a benchmark then has only those, and by default labels for all images of the seen classes."""
    novel: float = 50.0
    """Percentage of the classes that are novel: all their labels are hidden."""
    labelled: float = 10.0
    """Percentage of the images of each seen class that keep their label (rounded up)."""
    imbalance: float = 1.0
    """Size of the first class divided by the size of the last. Sizes fall exponentially in between; 1 is balanced."""
    num_classes: int | Literal["auto"] | None = None
    """Number of classes, seen and novel together; auto estimates it. Default: the number of class names in the data. If
    only seen classes have names: an estimate if a pretrained network gives the features, else twice their number."""
    prior: str = "known"
    """Class proportions of the unlabelled images: known (from the class sizes), even (all classes were equally large
    before some images got labels; the default for your own data), uniform, estimated (begins as even; training moves it
    to the proportions that it predicts), or a file with one number per class."""

    def __post_init__(self):
        check(0 <= self.novel < 100, "novel", self.novel, "from 0 to less than 100 (per cent)")
        check(0 < self.labelled <= 100, "labelled", self.labelled, "above 0 and up to 100 (per cent)")
        check(self.imbalance >= 1, "imbalance", self.imbalance, "1 or more")
        is_valid = self.num_classes in (None, "auto") or (isinstance(self.num_classes, int) and self.num_classes > 0)
        check(is_valid, "num_classes", self.num_classes, "1 or more, or auto")


@dataclass(frozen=True, kw_only=True)
class Training:
    """Network, batches and optimiser: settings that all methods share."""

    network: Literal[
        "resnet18-cifar",
        "resnet18-tiny",
        "resnet18",
        "resnet50-cifar",
        "resnet50-tiny",
        "resnet50",
        "small",
        "small-32",
        "small-64",
        "mlp",
        "adapter",
        "identity",
    ] = "resnet18-cifar"
    """Network architecture; a suffix names the stem of a ResNet. For a CPU: small (8 pixels), small-32, small-64. For
    features: adapter (one linear map, which whitens them at first) or mlp. identity passes pixels or features on
    unchanged."""
    backbone: str = "none"
    """Pretrained network for photos, whose features are classified: efficientnet-lite2 (also 0, 1), the name of a model
    on the Hugging Face hub, a file of weights, or a folder. none learns from scratch. Default for your own photos:
    efficientnet-lite2, if it is installed."""
    backbone_views: int = 1
    """Number of random views of each image that go through the backbone, besides the plain one. More take time and
    bring no accuracy (docs/findings.md#finding-backbone-views)."""
    finetune: int = 0
    """Number of last blocks of the backbone to train. 0 keeps the backbone as it is, so that each view goes through it
    only once."""
    start: str | None = None
    """Initial weights: the folder of a run, simclr, which first learns features without labels, or clusters, which
    begins with the clusters of the features. Default: random weights; clusters for features and with a backbone."""
    start_steps: int | None = None
    """Number of training steps for the features of --start simclr. Default: as in the recipe, or a part of
    --minutes."""
    augment: Literal["digits", "cifar", "simclr", "tiny", "photos", "imagenet", "features"] = "cifar"
    """Family of random augmentations, which make the views of an image."""
    image_size: int | None = None
    """Side in pixels of the square to which images are resized. Default: a benchmark keeps its size; for your own
    images it depends on their sizes and the device."""
    steps: int = 204_800
    """Number of training steps (weight updates); 0 for a method that is fitted once."""
    epoch_steps: int = 1024
    """Number of steps in an epoch. After each epoch come an evaluation, an uncertainty pass and a checkpoint."""
    batch_labelled: int = 256
    """Number of labelled images in a batch. They are repeated as often as necessary."""
    batch_unlabelled: int = 256
    """Number of unlabelled images in a batch, each in two augmented views."""
    lr: float = 0.1
    """Peak learning rate: reached by a linear warm-up, then lowered to zero along a cosine."""
    warmup: float = 0.05
    """Length of the warm-up, as a fraction of the run."""
    momentum: float = 0.9
    """Momentum of SGD."""
    weight_decay: float = 1e-4
    """Weight decay of SGD."""
    norm_rows: int | None = None
    """Number of rows of a batch that BatchNorm normalises together (256 in the authors' code). Default: all rows."""
    muon: float = 0.0
    """Peak learning rate of Muon, the optimiser for weight matrices: a step changes a matrix by this fraction of its
    norm, independent of --lr. 0: SGD trains them."""

    def __post_init__(self):
        check(self.steps >= 0, "steps", self.steps, "1 or more, or 0 for a method that is fitted once")
        for name in ("epoch_steps", "batch_labelled", "batch_unlabelled"):
            check(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        check(0 <= self.backbone_views <= 64, "backbone_views", self.backbone_views, "from 0 to 64")
        check(self.finetune >= 0, "finetune", self.finetune, "0 or more")
        check(self.start_steps is None or self.start_steps >= 1, "start_steps", self.start_steps, "1 or more")
        check(self.norm_rows is None or self.norm_rows >= 2, "norm_rows", self.norm_rows, "2 or more")
        size_is_valid = self.image_size is None or 8 <= self.image_size <= 1024
        check(size_is_valid, "image_size", self.image_size, "from 8 to 1024")
        check(self.lr > 0, "lr", self.lr, "above 0")
        check(0 <= self.warmup < 1, "warmup", self.warmup, "from 0 to less than 1")
        check(0 <= self.momentum < 1, "momentum", self.momentum, "from 0 to less than 1")
        check(self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")
        check(0 <= self.muon < 1, "muon", self.muon, "from 0 to less than 1")


@dataclass(frozen=True, kw_only=True)
class Answers:
    """How the logits of any method become probabilities and uncertainties."""

    temperature: float = 0.1
    """Softmax temperature of predictions. trssl also trains with it, or with a higher one for unlabelled samples."""
    uncertainty_views: int = 10
    """Number of random views of a sample over which its uncertainty is measured."""

    def __post_init__(self):
        check(self.temperature > 0, "temperature", self.temperature, "above 0")
        check(self.uncertainty_views >= 2, "uncertainty_views", self.uncertainty_views, "2 or more")


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings that decide the numbers of a run."""

    data: str = "digits"
    """Data set: digits (the default), the name of another benchmark, a folder, a manifest.csv or an .npz file."""
    method: str = "trssl"
    """Training method; the options of each method are listed below. Default: the method of the recipe."""
    recipe: str = "auto"
    """Named set of values for all settings. The default, auto, chooses it by the data and the method."""
    seed: int = 0
    """Random seed (default 0). It decides the split, the initial weights and all random draws of the run."""
    on_bad_image: Literal["refuse", "drop"] = "refuse"
    """What to do about broken image files: refuse (the default) lists them and stops, drop leaves them out and records
    them."""
    problem: Problem = field(default_factory=Problem)
    training: Training = field(default_factory=Training)
    answers: Answers = field(default_factory=Answers)
    options: MethodOptions | None = None
    """Options of the method. None is replaced by the method's defaults."""
    features: MethodOptions | None = None
    """Options of the method that learns features first (`--start simclr`); None for other runs."""

    def __post_init__(self):
        refuse_unknown_method(self.method)
        starts_with_features = FEATURES_RUN in methods_of(self.method, self.training.start)[1:]
        for name, method in (("options", self.method), ("features", FEATURES_RUN if starts_with_features else None)):
            if getattr(self, name) is None and method:
                object.__setattr__(self, name, METHODS[method]())
            wanted = METHODS[method] if method else type(None)
            if type(getattr(self, name)) is not wanted:
                found = type(getattr(self, name)).__name__
                raise TypeError(f"Config.{name} must be {wanted.__name__} for method {self.method}, not {found}")
        for section in (self.problem, self.training, self.answers, self.options, self.features):
            for name, value in vars(section).items() if section else ():
                check(not isinstance(value, float) or math.isfinite(value), name, value, "a finite number")

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods whose options this configuration holds."""
        return methods_of(self.method, self.training.start)

    def switched_off(self) -> list[str]:
        """Return the names of the method's parts that are on by default and turned off here.

        Parts that go beyond a paper are off by default, so they are never in the list.
        """
        parts = (item for item in dataclasses.fields(self.options) if item.default is True)
        return [item.name for item in parts if not getattr(self.options, item.name)]


FEATURES_RUN = "simclr"
"""The method that learns features first; also its name in `--start`, and the folder of its run in the run folder."""
SECTIONS: dict[str, type] = {"problem": Problem, "training": Training, "answers": Answers}
"""Sections of a configuration. One more section has the name of the method and holds its options."""
NCD = "ncd"
"""Value of `--task` for novel class discovery."""
CLUSTERS = "clusters"
"""Value of `--start` for a run that begins with the clusters of its features."""
NO_BACKBONE = "none"
"""Value of `--backbone` for a run that learns from scratch."""
DEVICES = ("auto", "cpu", "cuda", "mps")
"""Values of `--device`; mps is Apple's GPU."""
ESTIMATORS = ("neighbours", "paper", "paper-plain")
"""Estimators of the number of classes; the last one is the paper's without its reassignment of samples."""
SHARED_SETTINGS = (
    "data",
    "seed",
    "on_bad_image",
    "task",
    "novel",
    "labelled",
    "imbalance",
    "image_size",
    "network",
    "backbone",
)
"""Settings that a run shares with the estimate of its number of classes."""


def methods_of(method: str, start: str | None) -> tuple[str, ...]:
    """Return the methods of a run: its own, and the one that learns its features first, if any."""
    return (method, FEATURES_RUN) if start == FEATURES_RUN and method != FEATURES_RUN else (method,)


def refuse_unknown_method(name: str) -> None:
    if name not in METHODS:
        suggestion, choices = did_you_mean(name, METHODS), ", ".join(METHODS)
        raise UserError(f"{named('method', name)}: no such method{suggestion} (choose from {choices})")
