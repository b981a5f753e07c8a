"""What a run is made of: frozen dataclasses, a docstring under each field.

The defaults are the paper's; recipes.py says what is different for a given data set. Command-line flags,
their help and the keys of a configuration file all come from these fields, so a field is added here once, or, where it
belongs to one method, in that method's options (methods/).
This module must stay free of torch: `openworld --help` reads it.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal

from openworld.core.errors import UserError, check, did_you_mean, named
from openworld.methods import METHODS, MethodOptions


@dataclass(frozen=True, kw_only=True)
class Problem:
    """How a fully labelled set becomes an open-world problem."""

    novel: float = 50.0
    """Per cent of the classes whose labels are all hidden."""
    labelled: float = 10.0
    """Per cent of the images of each seen class that keep their label (rounded up)."""
    imbalance: float = 1.0
    """Size of the first class over the size of the last, exponential in between; 1 is balanced."""
    num_classes: int | Literal["auto"] | None = None
    """Classes in all, seen and novel; auto estimates them. By default all that are named, or twice the seen ones."""
    prior: str = "known"
    """Class shares of the unlabelled images: known (from the class sizes), uniform, or a file of numbers."""

    def __post_init__(self):
        check(0 <= self.novel < 100, "novel", self.novel, "from 0 to less than 100 (per cent)")
        check(0 < self.labelled <= 100, "labelled", self.labelled, "above 0 and up to 100 (per cent)")
        check(self.imbalance >= 1, "imbalance", self.imbalance, "1 or more")
        counts = self.num_classes in (None, "auto") or (isinstance(self.num_classes, int) and self.num_classes > 0)
        check(counts, "num_classes", self.num_classes, "1 or more, or auto")


@dataclass(frozen=True, kw_only=True)
class Training:
    """The network, the batches and the optimiser: the same for every method."""

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
        "identity",
    ] = "resnet18-cifar"
    """The network; the suffix names its stem. On a CPU: small (8 px), small-32, small-64. For features: mlp. identity
    hands on pixels or features as they are."""
    start: str | None = None
    """First weights, all but the head: of a run; or simclr: features learnt first, without labels. By default drawn."""
    start_steps: int | None = None
    """Updates for the features of --start simclr; by default as the recipe says, or a share of --minutes."""
    augment: Literal["digits", "cifar", "simclr", "tiny", "photos", "imagenet", "features"] = "cifar"
    """The family of random views."""
    image_size: int | None = None
    """Side of the square to which images are brought; by default those of a benchmark keep theirs."""
    steps: int = 204_800
    """Updates of the weights; 0 for a method that is fitted once."""
    epoch_steps: int = 1024
    """Steps between two evaluations, uncertainty passes and checkpoints."""
    batch_labelled: int = 256
    """Labelled images in a step; they come round as often as it takes."""
    batch_unlabelled: int = 256
    """Unlabelled images in a step, each seen in two views."""
    lr: float = 0.1
    """Highest learning rate: after a linear warm-up, a cosine takes it to zero."""
    warmup: float = 0.05
    """Share of the run that warms up."""
    momentum: float = 0.9
    """Momentum of SGD."""
    weight_decay: float = 1e-4
    """Weight decay of SGD."""
    norm_rows: int | None = None
    """Rows of a batch that BatchNorm normalises together (the authors' code: 256); by default all of them."""
    muon: float = 0.0
    """Highest rate of Muon, which turns weight matrices by this share of their norm, whatever --lr is; 0: by SGD."""

    def __post_init__(self):
        check(self.steps >= 0, "steps", self.steps, "1 or more, or 0 for a method that is fitted once")
        for name in ("epoch_steps", "batch_labelled", "batch_unlabelled"):
            check(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        check(self.start_steps is None or self.start_steps >= 1, "start_steps", self.start_steps, "1 or more")
        check(self.norm_rows is None or self.norm_rows >= 2, "norm_rows", self.norm_rows, "2 or more")
        size_is_fine = self.image_size is None or 8 <= self.image_size <= 1024
        check(size_is_fine, "image_size", self.image_size, "from 8 to 1024")
        check(self.lr > 0, "lr", self.lr, "above 0")
        check(0 <= self.warmup < 1, "warmup", self.warmup, "from 0 to less than 1")
        check(0 <= self.momentum < 1, "momentum", self.momentum, "from 0 to less than 1")
        check(self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")
        check(0 <= self.muon < 1, "muon", self.muon, "from 0 to less than 1")


@dataclass(frozen=True, kw_only=True)
class Answers:
    """How the logits of any method become probabilities and doubts."""

    temperature: float = 0.1
    """Softmax temperature of the answers; trssl trains with it, too, and unlabelled samples have it or a higher one."""
    uncertainty_views: int = 10
    """Random views of a sample over which its uncertainty is measured."""

    def __post_init__(self):
        check(self.temperature > 0, "temperature", self.temperature, "above 0")
        check(self.uncertainty_views >= 2, "uncertainty_views", self.uncertainty_views, "2 or more")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that decides the numbers of a run."""

    data: str = "digits"
    """What to train on: digits, another benchmark's name, a folder, a manifest.csv or an .npz."""
    method: str = "trssl"
    """How to train."""
    recipe: str = "auto"
    """The named configuration to start from; auto: by the data."""
    seed: int = 0
    """Decides the split, the first weights and every draw of the run."""
    on_bad_image: Literal["refuse", "drop"] = "refuse"
    """What to do if there are broken image files: name them and stop, or leave them out and record it."""
    problem: Problem = field(default_factory=Problem)
    training: Training = field(default_factory=Training)
    answers: Answers = field(default_factory=Answers)
    options: MethodOptions | None = None
    """The method's own, with their defaults where none are given."""
    features: MethodOptions | None = None
    """Those of the method that learns features first, where the run begins with such (`--start simclr`)."""

    def __post_init__(self):
        refuse_unknown_method(self.method)
        begins = FEATURES_RUN in methods_of(self.method, self.training.start)[1:]
        for name, method in (("options", self.method), ("features", FEATURES_RUN if begins else None)):
            if getattr(self, name) is None and method:
                object.__setattr__(self, name, METHODS[method]())
            if type(getattr(self, name)) is not (METHODS[method] if method else type(None)):
                raise TypeError(f"{name} are {type(getattr(self, name)).__name__}, which are not those of {method}")
        for section in (self.problem, self.training, self.answers, self.options, self.features):
            for name, value in vars(section).items() if section else ():
                check(not isinstance(value, float) or math.isfinite(value), name, value, "a finite number")

    @property
    def methods(self) -> tuple[str, ...]:
        """Whose options it holds."""
        return methods_of(self.method, self.training.start)

    def switched_off(self) -> list[str]:
        """The parts of the method that are turned off; what goes beyond a paper is off by default, and none of them."""
        parts = (item for item in dataclasses.fields(self.options) if item.default is True)
        return [item.name for item in parts if not getattr(self.options, item.name)]


FEATURES_RUN = "simclr"
"""How `--start` calls features that are learnt first, by the method of this name; and their run, within a folder."""
SECTIONS: dict[str, type] = {"problem": Problem, "training": Training, "answers": Answers}
"""Of a configuration, beside that of its method, which bears the method's name."""
ESTIMATORS = ("neighbours", "paper", "paper-plain")
"""Ways to count classes; the last one is the paper's without its reassignment of samples."""
SHARED_SETTINGS = ("data", "seed", "on_bad_image", "novel", "labelled", "imbalance", "image_size", "network")
"""What a run and the estimate of its classes have in common; the others are for the run's own method."""


def methods_of(method: str, start: str | None) -> tuple[str, ...]:
    """The methods of a run: its own, and that of the features which it begins with."""
    return (method, FEATURES_RUN) if start == FEATURES_RUN and method != FEATURES_RUN else (method,)


def refuse_unknown_method(name: str) -> None:
    if name not in METHODS:
        raise UserError(f"{named('method', name)}: no such method{did_you_mean(name, METHODS)} ({', '.join(METHODS)})")


# Fields as flags and keys see them ----------------------------------------------------------------------------
