"""What a run is made of: frozen dataclasses, a docstring under each field.

The defaults are the paper's; recipes.py says what is different for a given data set. Command-line flags,
their help and the keys of a configuration file all come from these fields, so a field is added here once, or, where it
belongs to one method, in that method's options (methods/).
This module must stay free of torch: `openworld --help` reads it.
"""

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from openworld.errors import UserError, check, named
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
        for name, value in flatten(self).items():
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


@dataclass(frozen=True)
class Option:
    """One field of the configuration, or of a method's options."""

    section: str
    """Empty for a field of the configuration itself; else one of its sections, or a method."""
    name: str
    type: Any
    default: Any
    help: str

    @property
    def key(self) -> str:
        """By which settings are handed about. That of a method's option says whose it is: several may share a name."""
        return f"{self.section}.{self.name}" if self.section in METHODS else self.name

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
        if self.section == "" and self.name == "method":
            return tuple(METHODS)
        return get_args(self.type) if get_origin(self.type) is Literal else None


def options(*methods: str) -> tuple[Option, ...]:
    """Every field of the configuration, and of the options of these methods."""
    return (*_common_options(), *itertools.chain.from_iterable(_options(METHODS[name], name) for name in methods))


@functools.cache
def _common_options() -> tuple[Option, ...]:
    in_sections = (_options(cls, section) for section, cls in SECTIONS.items())
    return (*_options(Config, ""), *itertools.chain.from_iterable(in_sections))


@functools.cache
def _options(cls: type, section: str) -> tuple[Option, ...]:
    docs = field_docs(cls)
    fields = (item for item in dataclasses.fields(cls) if item.name not in {*SECTIONS, "options", "features"})
    return tuple(Option(section, item.name, item.type, item.default, docs[item.name]) for item in fields)


def field_docs(cls: type) -> dict[str, str]:
    """The docstring under each field of a dataclass, inherited ones included, read from the source."""
    docs = {}
    for parent in reversed([each for each in cls.__mro__ if dataclasses.is_dataclass(each)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(parent))).body[0].body
        docs |= {
            node.target.id: " ".join(after.value.value.split())
            for node, after in itertools.pairwise(body)
            if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr)
        }
    return docs


def by_keys(settings: Mapping[str, Any], *methods: str) -> dict[str, Any]:
    """Settings by their keys: an option without a method's name is that of the first of these methods that has it.

    An option of a method that one of these builds upon is that one's. Of two that mean the same, the later one counts.
    """
    keys = {option.key for option in options(*METHODS)}
    found = {}
    for name, value in settings.items():
        owners = [method for method in METHODS if f"{method}.{name}" in keys]
        mine = [method for method in methods if method in owners]
        if name in keys:
            found[_inherited(name, methods)] = value
        elif mine:
            found[f"{mine[0]}.{name}"] = value
        elif owners:
            which = " or ".join(named("method", owner) for owner in owners)
            raise UserError(f"{named(name)} is for {which}: add that, or leave {named(name)} out")
        else:
            raise UserError(f"{name}: there is no such setting{did_you_mean(name, all_names())}")
    return found


def _inherited(key: str, methods: tuple[str, ...]) -> str:
    """Of trssl.epsilon, trssl+.epsilon where that method trains."""
    owner, _, name = key.rpartition(".")
    heirs = (method for method in methods if owner in METHODS and issubclass(METHODS[method], METHODS[owner]))
    return key if owner in methods else next((f"{heir}.{name}" for heir in heirs), key)


def all_names() -> list[str]:
    """What a person may call a setting."""
    return list(dict.fromkeys([*(o.name for o in options(*METHODS)), *(o.key for o in options(*METHODS))]))


def replace(config: Config, values: Mapping[str, Any]) -> Config:
    """A configuration with some settings changed; of another method, with what the options of both have in common."""
    method, start = values.get("method", config.method), values.get("start", config.training.start)
    refuse_unknown_method(method)
    methods = methods_of(method, start)
    chosen = by_keys(values, *methods)
    places = {option.key: option for option in options(*methods)}
    foreign = next((key for key in chosen if key not in places), None)
    if foreign:
        raise UserError(f"{named(foreign)} is for {named('method', foreign.partition('.')[0])}: leave it out")
    changes: dict[str, dict[str, Any]] = {}
    for key, value in chosen.items():
        changes.setdefault(places[key].section, {})[places[key].name] = value
    of_methods = {name: changes.pop(name, {}) for name in methods}
    sections = {
        section: dataclasses.replace(getattr(config, section), **changes.pop(section))
        for section in SECTIONS
        if section in changes
    }
    new_options = dataclasses.replace(options_for(method, config), **of_methods[method])
    features = None
    if len(methods) > 1:
        features = dataclasses.replace(config.features or METHODS[FEATURES_RUN](), **of_methods[FEATURES_RUN])
    return dataclasses.replace(config, **changes.get("", {}), **sections, options=new_options, features=features)


def options_for(method: str, config: Config) -> MethodOptions:
    """Those of the configuration; of another method its own, with what both inherit from one method as it is there."""
    kind = METHODS[method]
    if method == config.method:
        return config.options
    ancestors = {*kind.__mro__} & {*type(config.options).__mro__}
    shared = {item.name for each in ancestors if dataclasses.is_dataclass(each) for item in dataclasses.fields(each)}
    return kind(**{name: getattr(config.options, name) for name in shared})


def flatten(config: Config) -> dict[str, Any]:
    """The values of all fields by their keys: the inverse of `replace`."""

    def place(option: Option) -> Any:
        if option.section == "":
            return config
        of_methods = dict(zip(config.methods, (config.options, config.features), strict=False))
        return of_methods.get(option.section) or getattr(config, option.section)

    return {option.key: getattr(place(option), option.name) for option in options(*config.methods)}


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
