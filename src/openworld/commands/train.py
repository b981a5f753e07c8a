"""openworld train"""

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openworld.commands.common import (
    add_command,
    add_compile_flag,
    add_data_flags,
    add_device_flag,
    fail,
    print_scores,
    print_table,
    runtime_of,
)
from openworld.config import Config, Option, flatten, options, read_toml, replace
from openworld.errors import UserError
from openworld.recipes import RECIPES

if TYPE_CHECKING:
    from openworld.record import RunFolder


def add(commands) -> None:
    parser = add_command(commands, "train", run, "Train on a set in which some classes have no label at all.")
    parser.epilog = "In brackets: the paper's value, and that of the digits where the recipe takes another."
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run folder (default: a new one under runs/)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file; flags win over it")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument(
        "--resume", action="store_true", help="continue the run in --out, or start it where there is none"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="X",
        help="about how long to train: sets --steps by a measurement [own data: 5]",
    )
    add_device_flag(parser)
    add_compile_flag(parser)
    parser.add_argument(
        "--deterministic", action="store_true", help="the same weights to the last bit, on a GPU too; slower there"
    )
    add_data_flags(parser)
    groups: dict[tuple[str, ...], Any] = {(): parser}
    for option in options():
        section = option.path[:-1]
        if section not in groups:
            groups[section] = parser.add_argument_group(section[0])
        add_option(groups[section], option)


def add_option(group, option: Option) -> None:
    """A flag for a field; without it the attribute is absent, so that what was asked for is known."""
    flag = f"--{option.name.replace('_', '-')}"
    choices = f" One of {', '.join(option.choices)}." if option.choices else ""
    settings = {"default": argparse.SUPPRESS, "help": option.help + choices + defaults_of(option)}
    if option.name == "data":
        group.add_argument("data", nargs="?", metavar="DATA", **settings)
    elif option.type is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **settings)
    elif option.choices:
        group.add_argument(flag, choices=option.choices, metavar="NAME", **settings)
    else:
        metavar = {int: "N", float: "X", str: "NAME"}[option.kind]
        group.add_argument(flag, type=option.kind, metavar=metavar, **settings)


def defaults_of(option: Option) -> str:
    """The paper's value, and that of the digits where it is another."""
    on_digits = flatten(RECIPES["digits"]("digits"))[option.name]
    if option.default is None or option.path[0] not in ("problem", "training", "trssl"):
        return ""
    return f" [{option.default}]" if on_digits == option.default else f" [{option.default}; digits {on_digits}]"


def asked_for(parsed: argparse.Namespace) -> dict[str, Any]:
    """The fields that the user set: in the file, and over it by flags."""
    from_file = read_toml(parsed.config) if parsed.config else {}
    from_flags = {option.name: getattr(parsed, option.name) for option in options() if hasattr(parsed, option.name)}
    return {**from_file, **from_flags}


def run(parsed: argparse.Namespace) -> int:
    if parsed.resume and not parsed.out:
        raise UserError("--resume needs --out: which run is to be continued?")
    asked = asked_for(parsed)

    from openworld.plan import plan_run
    from openworld.record import RunFolder, new_folder
    from openworld.signals import Interrupted
    from openworld.train import train

    runtime, world = runtime_of(parsed), None
    if parsed.resume and RunFolder(parsed.out).exists:
        folder = RunFolder(parsed.out)
        config = unchanged(folder, asked)
        if parsed.minutes is not None:
            raise UserError("--minutes sets the length of a new run; this one has its steps already")
    else:
        folder = RunFolder.new(parsed.out) if parsed.out else None
        plan = plan_run(asked, runtime, parsed.minutes)
        config, world = plan.config, plan.world
        folder = folder or RunFolder.new(new_folder(config))
        if not parsed.quiet:
            print("".join(f"{line}\n" for line in plan.lines), end="", file=sys.stderr, flush=True)
    go_on = f"continue with: openworld train --resume --out {shlex.quote(str(folder.path))}"
    try:
        summary = folder.summary() or train(config, folder, runtime, world)
    except Interrupted as stopped:
        fail(f"{stopped}; {go_on}", stopped.exit_code)
    except OSError as error:  # a full or read-only disk, above all
        saved = f"; what was saved is still there; {go_on}" if folder.exists else ""
        raise UserError(f"{error.filename or folder.path}: {error.strerror or error}{saved}") from None
    if parsed.json:
        print(json.dumps({**summary, "run": str(folder.path)}))
    else:
        print_summary(config, summary)
        print(f"run folder: {folder.path}")
    return 0


def print_summary(config: Config, summary: dict[str, Any]) -> None:
    """The accuracies where the truth is known; else what was found."""
    if summary["protocols"]:
        print_scores(f"{config.data}, {summary['part']} part", summary)
    else:
        rows = [(name, f"{count:,}") for name, count in summary["class_sizes"].items()]
        print_table("unlabelled samples by predicted class", ("class", "samples"), rows)


def unchanged(folder: "RunFolder", asked: dict[str, Any]) -> Config:
    """A resumed run goes on as it began; only a folder or file may have moved, which the fingerprint guards."""
    from openworld.data.opening import found_again

    config = folder.config()
    before = flatten(config)
    data = found_again(asked.get("data", config.data))
    is_path = Path(data).exists() and Path(config.data).is_absolute()
    for name, value in {**asked, "data": data}.items():
        may_differ = name == "data" and is_path and not folder.summary()
        if value != before[name] and not may_differ and (name, value) != ("recipe", "auto"):
            raise UserError(f"the run was started with {name} = {before[name]}, not {value}: start a new one for that")
    return replace(config, {"data": data})
