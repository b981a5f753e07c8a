"""The command line. Flags come from the fields of config.py; nothing here imports torch until a command runs."""

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from openworld import __version__
from openworld.config import Config, Option, did_you_mean, flatten, options, read_toml, replace
from openworld.errors import UserError
from openworld.recipes import RECIPES, recipe_for

# Read by OpenMP when torch is imported: how long a thread spins before it sleeps. By default so long that a step takes
# 30 times as long as soon as another process wants a core; this long costs nothing on an idle machine (docs/log.md).
os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit: 0, 2 for what the user can put right, 128 + n for signal n."""
    try:
        parsed = make_parser().parse_args(arguments)
        sys.exit(parsed.command(parsed))
    except UserError as error:
        fail(str(error), 2)
    except KeyboardInterrupt:
        fail("interrupted", 130)


def fail(message: str, code: int) -> NoReturn:
    print(f"openworld: {message}", file=sys.stderr)
    sys.exit(code)


class Parser(argparse.ArgumentParser):
    """Errors are one line, and a misspelt flag is answered with the nearest one."""

    def error(self, message: str) -> NoReturn:
        fail(f"{message} (see {self.prog} --help)", 2)

    def parse_args(self, args=None, namespace=None):
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flags = [flag for flag in parsed.parser._option_string_actions if flag.startswith("--")]
            parsed.parser.error(f"unknown argument {unknown[0]}{did_you_mean(unknown[0], flags)}")
        return parsed


def make_parser() -> Parser:
    parser = Parser(
        prog="openworld", description="Classify the known classes, discover the new ones.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"openworld {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    add_train(commands)
    add_evaluate(commands)
    return parser


def add_command(commands, name: str, run: Callable[[argparse.Namespace], int], summary: str) -> Parser:
    parser = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    parser.set_defaults(command=run, parser=parser)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


# openworld train ------------------------------------------------------------------------------------------


def add_train(commands) -> None:
    parser = add_command(commands, "train", run_train, "Train on a set in which some classes have no label at all.")
    parser.epilog = "In brackets: the paper's value, and that of the digits where the recipe takes another."
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run folder (default: a new one under runs/)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file; flags win over it")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument(
        "--resume", action="store_true", help="continue the run in --out, or start it where there is none"
    )
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
    on_digits = flatten(RECIPES["digits"]())[option.name]
    if option.default is None or option.path[0] not in ("problem", "training", "trssl"):
        return ""
    return f" [{option.default}]" if on_digits == option.default else f" [{option.default}; digits {on_digits}]"


def asked_for(parsed: argparse.Namespace) -> dict[str, Any]:
    """The fields that the user set: in the file, and over it by flags."""
    from_file = read_toml(parsed.config) if parsed.config else {}
    from_flags = {option.name: getattr(parsed, option.name) for option in options() if hasattr(parsed, option.name)}
    return {**from_file, **from_flags}


def resolve(asked: dict[str, Any]) -> Config:
    """Defaults < recipe < what was asked for."""
    name = recipe_for(asked.get("recipe", "auto"), asked.get("data", "digits"))
    return replace(RECIPES[name](), {**asked, "recipe": name})


def run_train(parsed: argparse.Namespace) -> int:
    if parsed.resume and not parsed.out:
        raise UserError("--resume needs --out: which run is to be continued?")
    asked = asked_for(parsed)

    from openworld.devices import pick_device
    from openworld.record import RunFolder
    from openworld.signals import Interrupted
    from openworld.train import train

    if parsed.resume and RunFolder(parsed.out).exists:
        run = RunFolder(parsed.out)
        config = run.config()
        refuse_changes(config, asked)
    else:
        config = resolve(asked)
        run = RunFolder.new(parsed.out or new_folder(config))
    go_on = f"continue with: openworld train --resume --out {shlex.quote(str(run.path))}"
    try:
        summary = run.summary() or train(config, run, pick_device(parsed.device), parsed.quiet)
    except Interrupted as stopped:
        fail(f"{stopped}; {go_on}", stopped.exit_code)
    except OSError as error:  # a full or read-only disk, above all
        saved = f"; what was saved is still there; {go_on}" if run.exists else ""
        raise UserError(f"{error.filename or run.path}: {error.strerror or error}{saved}") from None
    if parsed.json:
        print(json.dumps({**summary, "run": str(run.path)}))
    else:
        print_scores(f"{config.data}, test part", summary)
        print(f"run folder: {run.path}")
    return 0


def refuse_changes(config: Config, asked: dict[str, Any]) -> None:
    """A resumed run goes on as it began."""
    before = flatten(config)
    for name, value in asked.items():
        if value != before[name] and (name, value) != ("recipe", "auto"):
            raise UserError(f"the run was started with {name} = {before[name]}, not {value}: start a new one for that")


def new_folder(config: Config) -> Path:
    stem = f"{config.data}-{config.method}-seed{config.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = Path("runs") / stem, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{stem}-{number}"
    return path


# openworld evaluate ---------------------------------------------------------------------------------------


def add_evaluate(commands) -> None:
    summary = "Seen / novel / all accuracy, NMI and ARI of a run's last checkpoint, under named protocols."
    parser = add_command(commands, "evaluate", run_evaluate, summary)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--part", choices=("test", "unlabelled"), default="test", help="the images to evaluate on")


def run_evaluate(parsed: argparse.Namespace) -> int:
    from openworld.devices import pick_device
    from openworld.evaluate import evaluate_run
    from openworld.record import RunFolder

    run = RunFolder.open(parsed.run)
    scores = evaluate_run(run, parsed.part, pick_device(parsed.device), print_warning)
    if parsed.json:
        print(json.dumps(scores))
    else:
        print_scores(f"{run.config().data}, {parsed.part} part, step {scores['step']}", scores)
    return 0


def print_warning(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def print_scores(title: str, scores: dict[str, Any]) -> None:
    """The accuracies under every protocol, in per cent."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{title} (per cent)", title_justify="left")
    for column in ("protocol", "Seen", "Novel", "All"):
        table.add_column(column, justify="left" if column == "protocol" else "right")
    for protocol, accuracy in scores["protocols"].items():
        table.add_row(protocol, *("-" if value is None else f"{value:.1f}" for value in accuracy.values()))
    Console(width=max(shutil.get_terminal_size().columns, 60)).print(table)
    print(f"NMI {scores['nmi']:.3f}   ARI {scores['ari']:.3f}")
