"""Shared parts of the commands: a parser with errors of one line, flags that several commands have, tables."""

import argparse
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from openworld.core.config import DEVICES, SECTIONS
from openworld.core.errors import did_you_mean
from openworld.core.fields import Option, flatten, options
from openworld.core.recipes import RECIPES
from openworld.methods import METHODS

if TYPE_CHECKING:
    from openworld.compute.runtime import Runtime


TOO_LITTLE_MEMORY = "the GPU has too little memory"


def fail(message: str, code: int) -> NoReturn:
    """Print the message on standard error, in one line, and exit with the code."""
    print(f"openworld: {one_line(message)}", file=sys.stderr)
    sys.exit(code)


def one_line(text: str) -> str:
    """Return the text in one line: names of files and classes may contain line breaks."""
    return " ".join(text.splitlines())


def print_warning(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


class Parser(argparse.ArgumentParser):
    """A parser with errors of one line. For a misspelt flag, command or choice it suggests the nearest one."""

    def error(self, message: str) -> NoReturn:
        fail(f"{message} (see {self.prog} --help)", 2)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not among the choices of a flag, or a word that is not a command."""
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            message = f"{value} is not one of {', '.join(choices)}{did_you_mean(str(value), choices)}"
            raise argparse.ArgumentError(action, message)

    def parse_args(self, args=None, namespace=None):
        parsed, unknown = self.parse_known_args(args, namespace)
        # argparse takes the words of a `nargs="*"` argument only from before the first flag: add those after it
        for action in parsed.parser._positionals._group_actions if unknown else ():
            if action.nargs == "*":
                words = [word for word in unknown if not word.startswith("-")]
                setattr(parsed, action.dest, [*getattr(parsed, action.dest), *words])
                unknown = [word for word in unknown if word.startswith("-")]
        if unknown:
            flags = [flag for flag in parsed.parser._option_string_actions if flag.startswith("--")]
            parsed.parser.error(f"unknown argument {unknown[0]}{did_you_mean(unknown[0], flags)}")
        return parsed


def add_command(commands, name: str, run: Callable[[argparse.Namespace], int], summary: str) -> Parser:
    """Add a command with the flag `--json`, and return its parser."""
    parser = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    parser.set_defaults(command=run, parser=parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def add_verbs(commands, name: str, summary: str):
    """Add a command that consists of other commands, such as `data` of `data check` and `data show`."""
    parser = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    parser.set_defaults(parser=parser)
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)


def add_data_flags(parser: Parser) -> None:
    """Add the flags for the folder of the benchmarks and for the processes that decode images."""
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="folder of the benchmarks [$OPENWORLD_DATA, or in ~/.cache]"
    )
    parser.add_argument("--workers", type=whole_number, metavar="N", help="processes that decode images [one per core]")


def add_options(parser: Parser) -> None:
    """Add flags for all settings, in a group for each section of the configuration and for each method.

    An option of a method has two flags, `--trssl.epsilon` and `--epsilon`. Methods with an option of the same name
    share the short flag. The help shows the short flag with the first of these methods, and the long flag with the
    others.
    """
    groups: dict[str, Any] = {"": parser}
    for section, cls in (SECTIONS | METHODS).items():
        groups[section] = parser.add_argument_group(section, cls.__doc__)
    shown: dict[str, Option] = {}
    for option in options(*METHODS):
        group, first = groups[option.section], shown.get(option.name)
        if first is None:
            add_option(group, option)
            shown[option.name] = option
        if option.section in METHODS:
            refuse_clash(option, first)
            is_inherited = first is not None and issubclass(METHODS[option.section], METHODS[first.section])
            add_option(group, option, option.key, hidden=first is None or is_inherited)


def refuse_clash(option: Option, first: Option | None) -> None:
    """Raise a TypeError if the option must not share its flag with the first option of that name.

    Two methods may share a flag that takes the same kind of value. A method must not share a flag with a setting that
    all methods have.
    """
    if first and (first.section not in METHODS or first.kind is not option.kind):
        raise TypeError(f"the option {option.key} cannot share its name with {first.key}: rename it")


def add_option(group, option: Option, name: str | None = None, hidden: bool = False) -> None:
    """Add a flag for a field. If the user does not give the flag, the parsed arguments lack the attribute."""
    name = name or option.name
    choices = f" One of {', '.join(option.choices)}." if option.choices else ""
    help = argparse.SUPPRESS if hidden else option.help + choices + defaults_of(option)
    settings = {"default": argparse.SUPPRESS, "help": help}
    flag = f"--{name.replace('_', '-')}"
    if name == "data":
        group.add_argument("data", nargs="?", metavar="DATA", **settings)
    elif option.type is bool:
        group.add_argument(flag, dest=name, action=argparse.BooleanOptionalAction, **settings)
    elif option.choices:
        group.add_argument(flag, dest=name, choices=option.choices, metavar="NAME", **settings)
    else:
        kind = number_or_auto if option.may_be_auto else option.kind
        metavar = {int: "N", float: "X", str: "NAME", number_or_auto: "N|auto"}[kind]
        group.add_argument(flag, dest=name, type=kind, metavar=metavar, **settings)


def defaults_of(option: Option) -> str:
    """Return the default in brackets: the paper's value, and the value for the digits if it differs."""
    if option.name == "recipe":
        return f" One of auto, {', '.join(RECIPES)}."
    if option.default is None or option.section == "":
        return ""
    on_digits = flatten(RECIPES["digits"]("digits")).get(option.key, option.default)
    return f" [{option.default}]" if on_digits == option.default else f" [{option.default}; digits: {on_digits}]"


def add_device_flag(parser: Parser) -> None:
    parser.add_argument(
        "--device",
        choices=DEVICES,
        default="auto",
        help="where to compute: cpu, cuda, or mps (Apple's GPU, untested) [auto: on a GPU if there is one]",
    )


def add_compile_flag(parser: Parser) -> None:
    parser.add_argument(
        "--compile",
        choices=("auto", "on", "off"),
        default="auto",
        help="compile the training step: takes up to a minute, then steps are faster [auto: on a CUDA GPU]",
    )


def runtime_of(parsed: argparse.Namespace, device: str = "cpu", quiet: bool = False) -> "Runtime":
    """Return the runtime that the flags describe. `device` is for commands without the flag `--device`."""
    from openworld.compute.runtime import make_runtime

    flags = ("device", "data_dir", "workers", "compile", "deterministic", "quiet")
    given = {flag: getattr(parsed, flag) for flag in flags if hasattr(parsed, flag)}
    return make_runtime(**{"device": device, **given, "quiet": quiet or given.get("quiet", False)})


def number_or_auto(text: str) -> int | str:
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is neither a whole number nor auto") from None


def whole_number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative; it must be 0 or more")
    return number


def print_scores(title: str, scores: dict[str, Any]) -> None:
    """Print the accuracies under every protocol in per cent, then NMI and ARI."""
    from openworld.ops.metrics import score_text

    rows = [(protocol, *map(score_text, accuracy.values())) for protocol, accuracy in scores["protocols"].items()]
    print_table(f"{title} (per cent)", ("protocol", "Seen", "Novel", "All"), rows)
    print(f"NMI {scores['nmi']:.3f}   ARI {scores['ari']:.3f}")


def screen_width() -> int:
    """Return the number of characters in a line. Tables and notes need at least 80."""
    return max(shutil.get_terminal_size().columns, 80)


def print_folded(text: str, indent: str = "") -> None:
    """Print the text, wrapped to the width of the screen. All lines but the first are indented."""
    print(textwrap.fill(text, screen_width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


def print_table(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]], texts: tuple[str, ...] = ()) -> None:
    """Print a table. The first column and the columns in `texts` are text; the others are numbers and never wrap."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for column in header:
        is_text = column in (header[0], *texts)
        table.add_column(column, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for row in rows:
        table.add_row(*map(one_line, row))
    console = Console(width=screen_width(), markup=False, emoji=False)
    console.print(title, style="italic", highlight=False)
    console.print(table)
