"""Read and write configurations as TOML text. This module does not import torch."""

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
    """Return the settings in a file that a user wrote, by their keys. Spelling and types are checked."""
    try:
        tree = parsed_toml(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such configuration file; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a TOML file ({error})") from None
    version = checked_format(tree, path)
    values, unknown = values_of_first(tree, path) if version == 1 else values_of(tree, path)
    if unknown:
        dotted = [".".join(key_path) for key_path in _options_by_path()]
        raise UserError(f"{path}: unknown key {unknown[0]}{did_you_mean(unknown[0], dotted)}")
    return values


def as_tree(config: Config) -> Tree:
    """Return the configuration as a tree of values and sections of values, without the fields that are None."""
    tree: Tree = {"format": FORMAT}
    for option, value in zip(options(*config.methods), flatten(config).values(), strict=True):
        section = tree.setdefault(option.section, {}) if option.section else tree
        if value is not None:
            section[option.name] = value
    return tree


def write_toml(config: Config) -> str:
    """Return the resolved configuration as text that `read_toml` can read."""
    lines = []
    for name, value in as_tree(config).items():  # as_tree puts sections after values, as TOML requires
        if isinstance(value, dict):
            needs_no_quotes = name.replace("-", "").replace("_", "").isalnum()
            header = name if needs_no_quotes else json.dumps(name)
            lines += [f"\n[{header}]", *(_line(*entry) for entry in value.items())]
        else:
            lines.append(_line(name, value))
    return "\n".join(lines) + "\n"


def _line(name: str, value: Any) -> str:
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


def restored_config(tree: Tree, where: str | Path, is_whole: bool = True) -> tuple[Config, list[str]]:
    """Return a configuration that any version wrote, and the keys in it that no longer exist.

    Settings that an older version did not have get the values that applied then. If `is_whole`, no other setting may be
    missing. Otherwise defaults replace missing settings, for results that were recorded before a setting existed.
    """
    tree = {"format": 1, **tree}
    checked_format(tree, where)
    values, dropped = values_of(upgraded_config(tree), where)
    methods = methods_of(values.get("method", Config.method), values.get("start"))
    wanted = [option for option in options(*methods) if option.default is not None]
    missing = [option.name for option in wanted if option.key not in values]
    if missing and is_whole:
        raise UserError(f"{where} is damaged: it lacks {', '.join(missing)}")
    try:
        return replace(Config(), values), dropped
    except UserError as error:  # an invalid value
        raise UserError(f"{where}: {error}") from None


def parsed_toml(text: str, where: str | Path) -> Tree:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{where}: cannot be read as a TOML file ({error})") from None


def values_of(tree: Tree, where: str | Path) -> tuple[dict[str, Any], list[str]]:
    """Return the settings in a tree of the current format, by their keys and with checked types; and unknown keys."""
    known, values, unknown = _options_by_path(), {}, []
    for key_path, value in _leaves(tree):
        if key_path == ("format",):
            continue
        if value is None:  # the card of an exported model is JSON, which has null
            continue
        if key_path not in known:
            unknown.append(".".join(key_path))
            continue
        values[known[key_path].key] = _typed(known[key_path], value, where)
    return values, unknown


def values_of_first(tree: Tree, where: str | Path) -> tuple[dict[str, Any], list[str]]:
    """Do what `values_of` does for a user's file of the first format, in which setting names were unique."""
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
        raise UserError(f"{where} has format {version}, but this openworld reads up to {FORMAT}; update openworld")
    return version


def _typed(option: Option, value: Any, where: str | Path) -> Any:
    try:
        return typed(option, value)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _options_by_path() -> dict[KeyPath, Option]:
    return {tuple(filter(None, (option.section, option.name))): option for option in options(*METHODS)}


def _leaves(tree: Tree, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value
