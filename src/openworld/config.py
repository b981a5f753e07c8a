"""What a run is made of: frozen dataclasses, a docstring under each field, TOML in and out.

The defaults are the paper's; recipes.py says what is different for a given data set. Command-line flags,
their help and the keys of a configuration file all come from these fields, so a field is added here once.
This module must stay free of torch: `openworld --help` reads it.
"""

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import json
import math
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from openworld.errors import UserError


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
        _check(0 <= self.novel < 100, "novel", self.novel, "from 0 to less than 100 (per cent)")
        _check(0 < self.labelled <= 100, "labelled", self.labelled, "above 0 and up to 100 (per cent)")
        _check(self.imbalance >= 1, "imbalance", self.imbalance, "1 or more")
        counts = self.num_classes in (None, "auto") or (isinstance(self.num_classes, int) and self.num_classes > 0)
        _check(counts, "num-classes", self.num_classes, "1 or more, or auto")


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
    ] = "resnet18-cifar"
    """The network; the suffix names its stem. On a CPU: small (8 px), small-32, small-64. For features: mlp."""
    start: str | None = None
    """First weights, all but the head: of a run; or simclr: features learnt first, without labels. By default drawn."""
    start_steps: int | None = None
    """Updates for the features of --start simclr; by default as the recipe says, or a share of --minutes."""
    augment: Literal["digits", "cifar", "simclr", "tiny", "photos", "imagenet", "features"] = "cifar"
    """The family of random views."""
    image_size: int | None = None
    """Side of the square to which images are brought; by default those of a benchmark keep theirs."""
    steps: int = 204_800
    """Updates of the weights."""
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
    muon: float = 0.0
    """Highest rate of Muon, which turns weight matrices by this share of their norm, whatever --lr is; 0: by SGD."""

    def __post_init__(self):
        for name in ("steps", "epoch_steps", "batch_labelled", "batch_unlabelled"):
            _check(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        _check(self.start_steps is None or self.start_steps >= 1, "start_steps", self.start_steps, "1 or more")
        size_is_fine = self.image_size is None or 8 <= self.image_size <= 1024
        _check(size_is_fine, "image-size", self.image_size, "from 8 to 1024")
        _check(self.lr > 0, "lr", self.lr, "above 0")
        _check(0 <= self.warmup < 1, "warmup", self.warmup, "from 0 to less than 1")
        _check(0 <= self.momentum < 1, "momentum", self.momentum, "from 0 to less than 1")
        _check(self.weight_decay >= 0, "weight-decay", self.weight_decay, "0 or more")
        _check(0 <= self.muon < 1, "muon", self.muon, "from 0 to less than 1")


@dataclass(frozen=True, kw_only=True)
class TrsslOptions:
    """The paper's method: every part that its ablations turn."""

    temperature: float = 0.1
    """Softmax temperature of labelled samples, and the lowest for unlabelled ones."""
    threshold: float = 0.5
    """A novel class that holds this share of a pseudo-label takes it all."""
    epsilon: float = 0.05
    """Softness of Sinkhorn's assignment (the paper's lambda); above the temperature, novel classes are lost."""
    iterations: int = 3
    """Iterations of Sinkhorn."""
    queue: int = 0
    """Earlier logits of each view that Sinkhorn assigns together with the batch's own; beyond the paper."""
    queue_from: float = 0.2
    """Share of the run before the queue is used, once it is full: logits of a young network spoil the assignment."""
    mixup_alpha: float = 0.75
    """Both parameters of the Beta distribution of mixup's weight."""
    uncertainty_views: int = 10
    """Views over which a sample's uncertainty is measured."""
    uncertainty_from: float = 0.0
    """Share of the run before temperatures follow the uncertainty: too early can cost novel classes (docs/log.md)."""
    uncertainty: bool = True
    """Temperatures of unlabelled samples follow their uncertainty; off: all have the temperature."""
    mixed_labels: bool = True
    """Confident novel pseudo-labels are hardened; off: all stay soft."""
    cross_labels: bool = True
    """Each view is labelled by the other; off: by itself."""
    mixup: bool = True
    """Train on mixed pairs; off: on the images themselves."""
    shared_labels: bool = False
    """Both views get one pseudo-label, from the mean of their logits, which errs less than either; beyond the paper."""
    strong_views: bool = False
    """Train on second views that are changed further once they have their pseudo-label; beyond the paper."""
    balance: bool = False
    """Make up for the labelled rows, by which seen classes are met more often than they are there; beyond the paper."""

    def __post_init__(self):
        if self.shared_labels and not self.cross_labels:
            idle = "--no-cross-labels does nothing where both views share one label"
            raise UserError(f"{idle}: add --no-shared-labels")
        _check(self.temperature > 0, "temperature", self.temperature, "above 0")
        _check(0 < self.threshold <= 1, "threshold", self.threshold, "above 0 and up to 1")
        _check(self.epsilon > 0, "epsilon", self.epsilon, "above 0")
        _check(self.iterations >= 1, "iterations", self.iterations, "1 or more")
        _check(self.queue >= 0, "queue", self.queue, "0 or more")
        _check(0 <= self.queue_from <= 1, "queue-from", self.queue_from, "from 0 to 1")
        _check(self.mixup_alpha > 0, "mixup-alpha", self.mixup_alpha, "above 0")
        _check(self.uncertainty_views >= 2, "uncertainty-views", self.uncertainty_views, "2 or more")
        _check(0 <= self.uncertainty_from <= 1, "uncertainty-from", self.uncertainty_from, "from 0 to 1")


NEEDS = {"threshold": "mixed_labels", "queue_from": "queue", "mixup_alpha": "mixup", "uncertainty_from": "uncertainty"}
"""Options that do nothing while another one is off."""
FOR_EVERY_METHOD = ("temperature", "uncertainty_views")
"""Options in the section of one method by which the answers of all are softened and doubted."""


@dataclass(frozen=True, kw_only=True)
class SimclrOptions:
    """Features without labels."""

    contrast_temperature: float = 0.2
    """Temperature of the contrastive loss."""
    projection: int = 128
    """Width of the projection on which that loss works."""

    def __post_init__(self):
        _check(self.contrast_temperature > 0, "contrast_temperature", self.contrast_temperature, "above 0")
        _check(self.projection >= 2, "projection", self.projection, "2 or more")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that decides the numbers of a run."""

    data: str = "digits"
    """What to train on: digits, another benchmark's name, a folder, a manifest.csv or an .npz."""
    method: Literal["trssl", "simclr"] = "trssl"
    """How to train."""
    recipe: str = "auto"
    """The named configuration to start from: digits, paper, fast, pretrained, simclr or own; auto: by the data."""
    seed: int = 0
    """Decides the split, the first weights and every draw of the run."""
    on_bad_image: Literal["refuse", "drop"] = "refuse"
    """What to do if there are broken image files: name them and stop, or leave them out and record it."""
    problem: Problem = field(default_factory=Problem)
    training: Training = field(default_factory=Training)
    trssl: TrsslOptions = field(default_factory=TrsslOptions)
    simclr: SimclrOptions = field(default_factory=SimclrOptions)

    def __post_init__(self):
        for name, value in flatten(self).items():
            _check(not isinstance(value, float) or math.isfinite(value), name, value, "a finite number")

    def switched_off(self) -> list[str]:
        """The parts of the method that are turned off; what goes beyond the paper is none of them."""
        method_options = getattr(self, self.method)  # a method's section bears its name
        parts = (item for item in dataclasses.fields(method_options) if item.default is True)
        return [item.name for item in parts if not getattr(method_options, item.name)]


ESTIMATORS = ("neighbours", "paper", "paper-plain")
"""Ways to count classes; the last one is the paper's without its reassignment of samples."""
SHARED_SETTINGS = ("data", "seed", "on_bad_image", "novel", "labelled", "imbalance", "image_size", "network")
"""What a run and the estimate of its classes have in common; the others are for the run's own method."""


def _check(holds: bool, name: str, value: object, wanted: str) -> None:
    if not holds:
        raise UserError(f"--{name.replace('_', '-')} is {value}; it must be {wanted}")


@dataclass(frozen=True)
class Option:
    """One field of the configuration, as a flag or a key sees it."""

    path: tuple[str, ...]
    type: Any
    default: Any
    help: str

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def kind(self) -> type:
        """What a value is made by: str, int, float or bool."""
        if self.choices or self.type == str | None:
            return str
        return int if self.type == int | None or self.may_be_auto else self.type

    @property
    def may_be_auto(self) -> bool:
        """Whether the word auto may stand for a number."""
        return self.type == int | Literal["auto"] | None

    @property
    def choices(self) -> tuple[str, ...] | None:
        return get_args(self.type) if get_origin(self.type) is Literal else None


@functools.cache
def options() -> tuple[Option, ...]:
    """Every field of the configuration, sections flattened; names are unique over all sections."""
    return tuple(_options(Config, ()))


def _options(cls: type, path: tuple[str, ...]) -> Iterator[Option]:
    docs = field_docs(cls)
    for item in dataclasses.fields(cls):
        if dataclasses.is_dataclass(item.type):
            yield from _options(item.type, (*path, item.name))
        else:
            yield Option((*path, item.name), item.type, item.default, docs[item.name])


def field_docs(cls: type) -> dict[str, str]:
    """The docstring under each field of a dataclass, read from its source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body
    return {
        node.target.id: after.value.value
        for node, after in itertools.pairwise(body)
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr)
    }


def replace(config: Config, values: dict[str, Any]) -> Config:
    """A configuration with some fields changed, given by their flat names."""
    paths = {option.name: option.path for option in options()}
    tree: dict[str, Any] = {}
    for name, value in values.items():
        _put(tree, paths[name], value)
    sections = {
        key: dataclasses.replace(getattr(config, key), **value) if isinstance(value, dict) else value
        for key, value in tree.items()
    }
    return dataclasses.replace(config, **sections)


def flatten(config: Config) -> dict[str, Any]:
    """The values of all fields by their flat names: the inverse of `replace`."""
    values = {}
    for option in options():
        value: Any = config
        for key in option.path:
            value = getattr(value, key)
        values[option.name] = value
    return values


def read_toml(path: Path) -> dict[str, Any]:
    """The fields that a configuration file sets, by their flat names, checked for spelling and type."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such configuration file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: not a readable TOML file ({error})") from None
    known = {option.path: option for option in options()}
    values = {}
    for key_path, value in _leaves(tree):
        if key_path not in known:
            dotted = [".".join(option_path) for option_path in known]
            raise UserError(f"{path}: unknown key {'.'.join(key_path)}{did_you_mean('.'.join(key_path), dotted)}")
        try:
            values[known[key_path].name] = typed(known[key_path], value)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
    return values


def write_toml(config: Config) -> str:
    """The resolved configuration as a file that `read_toml` reads back; fields that are None stay out."""
    lines, section = [], ()
    for option, value in zip(options(), flatten(config).values(), strict=True):
        if option.path[:-1] != section:
            section = option.path[:-1]
            lines.append(f"\n[{'.'.join(section)}]")
        if value is not None:
            lines.append(f"{option.name} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """'; did you mean X?' for the candidate nearest to a misspelt word, compared by the last part too.

    >>> did_you_mean("CIFAR10", ["cifar10", "cifar100"]), did_you_mean("step", ["training.steps"])
    ('; did you mean cifar10?', '; did you mean training.steps?')
    """
    word, whole = word.casefold(), {candidate.casefold(): candidate for candidate in candidates}
    by_last_part = {spelt.rsplit(".", 1)[-1]: candidate for spelt, candidate in whole.items()}
    for known, spelt in ((whole, word), (by_last_part, word.rsplit(".", 1)[-1])):
        for near in difflib.get_close_matches(spelt, known, n=1):
            return f"; did you mean {known[near]}?"
    return ""


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def _leaves(tree: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def typed(option: Option, value: Any) -> Any:
    """The value as the field's type; 1 is good for a float, and nothing else is bent."""
    if option.choices:
        if value not in option.choices:
            raise UserError(f"{option.name} is {value!r}; it must be one of {', '.join(option.choices)}")
        return value
    if option.may_be_auto and value == "auto":
        return value
    if option.kind is float and type(value) is int:
        value = float(value)
    if type(value) is not option.kind:
        or_auto = ", or auto" if option.may_be_auto else ""
        raise UserError(f"{option.name} is {value!r}; it must be of type {option.kind.__name__}{or_auto}")
    return value
