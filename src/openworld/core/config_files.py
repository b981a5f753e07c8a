"""Configurations as text: TOML in and out. Free of torch."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openworld.core.config import Config, methods_of
from openworld.core.errors import UserError, did_you_mean
from openworld.core.fields import Option, flatten, options, replace, typed
from openworld.core.formats import FORMAT, Tree, format_of, settings_from_1, upgraded_config
from openworld.methods import METHODS

KeyPath = tuple[str, ...]


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a file that a person wrote, by their keys, checked for spelling and type."""
    try:
        tree = parsed_toml(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such configuration file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a readable TOML file ({error})") from None
    version = checked_format(tree, path)
    values, unknown = values_of_first(tree, path) if version == 1 else values_of(tree, path)
    if unknown:
        dotted = [".".join(key_path) for key_path in _places()]
        raise UserError(f"{path}: unknown key {unknown[0]}{did_you_mean(unknown[0], dotted)}")
    return values


def as_tree(config: Config) -> Tree:
    """Values, and sections of values; fields that are None stay out."""
    tree: Tree = {"format": FORMAT}
    for option, value in zip(options(*config.methods), flatten(config).values(), strict=True):
        place = tree.setdefault(option.section, {}) if option.section else tree
        if value is not None:
            place[option.name] = value
    return tree


def write_toml(config: Config) -> str:
    """The resolved configuration as a file that `read_toml` reads back."""
    lines = []
    for name, value in as_tree(config).items():  # sections come after values
        if isinstance(value, dict):
            bare = name.replace("-", "").replace("_", "").isalnum()
            lines += [f"\n[{name if bare else json.dumps(name)}]", *(_line(*entry) for entry in value.items())]
        else:
            lines.append(_line(name, value))
    return "\n".join(lines) + "\n"


def _line(name: str, value: Any) -> str:
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


def restored_config(tree: Tree, where: str | Path, is_whole: bool = True) -> tuple[Config, list[str]]:
    """The configuration that some version wrote, and the keys in it that are no more.

    What an older version had not is filled with what held then. If the file is whole, nothing else may be missing; else
    a default stands in for it, as in results that were recorded before a setting came.
    """
    tree = {"format": 1, **tree}
    checked_format(tree, where)
    values, dropped = values_of(upgraded_config(tree), where)
    methods = methods_of(values.get("method", Config.method), values.get("start"))
    wanted = [option for option in options(*methods) if option.default is not None]
    missing = [option.name for option in wanted if option.key not in values]
    if missing and is_whole:
        raise UserError(f"{where} lacks {', '.join(missing)}: it is damaged")
    try:
        return replace(Config(), values), dropped
    except UserError as error:  # a value that cannot be
        raise UserError(f"{where}: {error}") from None


def parsed_toml(text: str, where: str | Path) -> Tree:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{where}: not a readable TOML file ({error})") from None


def values_of(tree: Tree, where: str | Path) -> tuple[dict[str, Any], list[str]]:
    """The settings in a tree of today's format by their keys, of the right types; and what is none of them."""
    places, values, unknown = _places(), {}, []
    for key_path, value in _leaves(tree):
        if key_path == ("format",):
            continue
        if value is None:  # of an exported card, which is JSON
            continue
        if key_path not in places:
            unknown.append(".".join(key_path))
            continue
        values[places[key_path].key] = _typed(places[key_path], value, where)
    return values, unknown


def values_of_first(tree: Tree, where: str | Path) -> tuple[dict[str, Any], list[str]]:
    """Likewise of a file that a person wrote in the first format, in which no two settings shared a name."""
    known = {option.name: option for option in reversed(options(*METHODS))}
    named, unknown = {}, []
    for key_path, value in _leaves(tree):
        if key_path[-1] in known:
            named[key_path[-1]] = _typed(known[key_path[-1]], value, where)
        else:
            unknown.append(".".join(key_path))
    return settings_from_1(named), unknown


def checked_format(tree: Tree, where: str | Path) -> int:
    version = format_of(tree)
    if type(version) is not int or version < 1:
        raise UserError(f"{where} is damaged: its format is {version!r}")
    if version > FORMAT:
        raise UserError(f"{where} has format {version}; this openworld reads up to {FORMAT}: update it")
    return version


def _typed(option: Option, value: Any, where: str | Path) -> Any:
    try:
        return typed(option, value)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _places() -> dict[KeyPath, Option]:
    return {tuple(filter(None, (option.section, option.name))): option for option in options(*METHODS)}


def _leaves(tree: Tree, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value
