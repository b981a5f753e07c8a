"""The fields of the configuration as options: the source of flags, of keys in files, and of settings by name."""

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from openworld.core.config import FEATURES_RUN, SECTIONS, Config, methods_of, refuse_unknown_method
from openworld.core.errors import UserError, did_you_mean, named
from openworld.methods import METHODS, MethodOptions


@dataclass(frozen=True)
class Option:
    """One field of the configuration, or of a method's options."""

    section: str
    """Name of a section or of a method; empty for a field of the configuration itself."""
    name: str
    type: Any
    default: Any
    help: str

    @property
    def key(self) -> str:
        """Unique name of the setting. For a method's option it contains the method, since methods may share a name."""
        return f"{self.section}.{self.name}" if self.section in METHODS else self.name

    @property
    def kind(self) -> type:
        """Type that converts a value: str, int, float or bool."""
        if self.choices or self.type == str | None:
            return str
        return int if self.type == int | None or self.may_be_auto else self.type

    @property
    def may_be_auto(self) -> bool:
        """Whether the value may be the word auto instead of a number."""
        return self.type == int | Literal["auto"] | None

    @property
    def choices(self) -> tuple[str, ...] | None:
        if self.section == "" and self.name == "method":
            return tuple(METHODS)
        return get_args(self.type) if get_origin(self.type) is Literal else None


def options(*methods: str) -> tuple[Option, ...]:
    """Return every field of the configuration, and of the options of these methods."""
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
    """Return the docstring under each field of a dataclass, also of inherited fields. It is read from the source."""
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
    """Return the settings by their keys.

    An option without a method's name belongs to the first of these methods that has it. If one of these methods
    inherits from another method, it takes over that method's options: `trssl.epsilon` becomes `trssl+.epsilon`. If two
    settings have the same key, the later one counts.
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
            methods_with_it = " or ".join(named("method", owner) for owner in owners)
            raise UserError(f"{named(name)} works only with {methods_with_it}; add that or leave {named(name)} out")
        else:
            raise UserError(f"{name}: no such setting{did_you_mean(name, all_names())}")
    return found


def _inherited(key: str, methods: tuple[str, ...]) -> str:
    """Return the key of the method in use that inherits this option: for trssl.epsilon, trssl+.epsilon."""
    owner, _, name = key.rpartition(".")
    heirs = (method for method in methods if owner in METHODS and issubclass(METHODS[method], METHODS[owner]))
    return key if owner in methods else next((f"{heir}.{name}" for heir in heirs), key)


def all_names() -> list[str]:
    """Return all names that a user may give to a setting: short names and keys."""
    return list(dict.fromkeys([*(o.name for o in options(*METHODS)), *(o.key for o in options(*METHODS))]))


def replace(config: Config, values: Mapping[str, Any]) -> Config:
    """Return a configuration with some settings changed.

    If the method changes, the options that both methods inherit keep their values.
    """
    method, start = values.get("method", config.method), values.get("start", config.training.start)
    refuse_unknown_method(method)
    methods = methods_of(method, start)
    chosen = by_keys(values, *methods)
    known = {option.key: option for option in options(*methods)}
    foreign = next((key for key in chosen if key not in known), None)
    if foreign:
        raise UserError(f"{named(foreign)} works only with {named('method', foreign.partition('.')[0])}; leave it out")
    changes: dict[str, dict[str, Any]] = {}
    for key, value in chosen.items():
        changes.setdefault(known[key].section, {})[known[key].name] = value
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
    """Return the options of the configuration, or options for another method.

    Options that both methods inherit from a common method keep their values.
    """
    kind = METHODS[method]
    if method == config.method:
        return config.options
    ancestors = {*kind.__mro__} & {*type(config.options).__mro__}
    shared = {item.name for each in ancestors if dataclasses.is_dataclass(each) for item in dataclasses.fields(each)}
    return kind(**{name: getattr(config.options, name) for name in shared})


def flatten(config: Config) -> dict[str, Any]:
    """Return the values of all fields by their keys: the inverse of `replace`."""

    def owner(option: Option) -> Any:
        if option.section == "":
            return config
        of_methods = dict(zip(config.methods, (config.options, config.features), strict=False))
        return of_methods.get(option.section) or getattr(config, option.section)

    return {option.key: getattr(owner(option), option.name) for option in options(*config.methods)}


def typed(option: Option, value: Any) -> Any:
    """Return the value, checked against the field's type. An int is accepted for a float; nothing else is converted."""
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


def folder_name(settings: Mapping[str, Any]) -> str:
    """Return a name for settings that can be a folder's.

    >>> folder_name({"prior": "estimated", "mixed_labels": False, "lr": 0.1})
    'prior-estimated-mixed-labels-off-lr-0.1'
    """
    parts = (f"{name.replace('_', '-')}-{value_text(value)}" for name, value in settings.items())
    return "-".join(re.sub(r"[^\w.+]+", "-", part).strip("-") for part in parts)


def value_text(value: Any) -> str:
    """Return a value as a user writes it."""
    return ("off", "on")[value] if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
