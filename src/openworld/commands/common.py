"""What the commands share: a parser whose errors are one line, flags that mean the same everywhere, tables."""

import argparse
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from openworld.core.config import SECTIONS
from openworld.core.errors import did_you_mean
from openworld.core.fields import Option, flatten, options
from openworld.core.recipes import RECIPES
from openworld.methods import METHODS

if TYPE_CHECKING:
    from openworld.compute.runtime import Runtime


TOO_LITTLE_MEMORY = "the GPU has too little memory"


def fail(message: str, code: int) -> NoReturn:
    print(f"openworld: {one_line(message)}", file=sys.stderr)
    sys.exit(code)


def one_line(text: str) -> str:
    """Names of files and classes may hold line breaks."""
    return " ".join(text.splitlines())


def print_warning(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


class Parser(argparse.ArgumentParser):
    """Errors are one line, and a misspelt flag is answered with the nearest one."""

    def error(self, message: str) -> NoReturn:
        fail(f"{message} (see {self.prog} --help)", 2)

    def parse_args(self, args=None, namespace=None):
        parsed, unknown = self.parse_known_args(args, namespace)
        # argparse takes "as many words as there are" only from before the first flag: those after it belong there, too
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
    parser = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    parser.set_defaults(command=run, parser=parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def add_verbs(commands, name: str, summary: str):
    """A command that only stands for others, such as `data` for `data check` and `data show`."""
    parser = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    parser.set_defaults(parser=parser)
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)


def add_data_flags(parser: Parser) -> None:
    """Where data is found, and who decodes it."""
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="the folder of the benchmarks [$OPENWORLD_DATA, or in ~/.cache]"
    )
    parser.add_argument("--workers", type=whole_number, metavar="N", help="processes that decode images [one a core]")


def add_options(parser: Parser) -> None:
    """Flags for all settings, in a group for each section of the configuration and for each method.

    An option of a method has two flags, `--trssl.epsilon` and `--epsilon`. The short one, of which there is one for all
    methods with such an option, is shown with the first of them, the long one with the others.
    """
    groups: dict[str, Any] = {"": parser}
    for section, cls in (SECTIONS | METHODS).items():
        groups[section] = parser.add_argument_group(section, cls.__doc__)
    shown: dict[str, Option] = {}
    for option in options(*METHODS):
        group, twin = groups[option.section], shown.get(option.name)
        if twin is None:
            add_option(group, option)
            shown[option.name] = option
        if option.section in METHODS:
            refuse_clash(option, twin)
            is_inherited = twin is not None and issubclass(METHODS[option.section], METHODS[twin.section])
            add_option(group, option, option.key, hidden=twin is None or is_inherited)


def refuse_clash(option: Option, twin: Option | None) -> None:
    """Methods may share a flag, if it takes the same kind of value; and none with a setting of all methods."""
    if twin and (twin.section not in METHODS or twin.kind is not option.kind):
        raise TypeError(f"the option {option.key} cannot share its name with {twin.key}: rename it")


def add_option(group, option: Option, name: str | None = None, hidden: bool = False) -> None:
    """A flag for a field; without it the attribute is absent, so that what was asked for is known."""
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
    """The paper's value, and that of the digits where it is another."""
    if option.name == "recipe":
        return f" There are {', '.join(RECIPES)}."
    if option.default is None or option.section == "":
        return ""
    on_digits = flatten(RECIPES["digits"]("digits")).get(option.key, option.default)
    return f" [{option.default}]" if on_digits == option.default else f" [{option.default}; digits {on_digits}]"


def add_device_flag(parser: Parser) -> None:
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")


def add_compile_flag(parser: Parser) -> None:
    parser.add_argument(
        "--compile",
        choices=("auto", "on", "off"),
        default="auto",
        help="compile the training step: faster, after up to a minute [auto: on a GPU]",
    )


def runtime_of(parsed: argparse.Namespace, device: str = "cpu") -> "Runtime":
    """`device` is for a command without such a flag."""
    from openworld.compute.runtime import make_runtime

    flags = ("device", "data_dir", "workers", "compile", "deterministic", "quiet")
    given = {flag: getattr(parsed, flag) for flag in flags if hasattr(parsed, flag)}
    return make_runtime(**{"device": device, **given})


def number_or_auto(text: str) -> int | str:
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a number, nor auto") from None


def whole_number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError("it must be 0 or more")
    return number


def print_scores(title: str, scores: dict[str, Any]) -> None:
    """The accuracies under every protocol, in per cent."""
    from openworld.ops.metrics import score_text

    rows = [(protocol, *map(score_text, accuracy.values())) for protocol, accuracy in scores["protocols"].items()]
    print_table(f"{title} (per cent)", ("protocol", "Seen", "Novel", "All"), rows)
    print(f"NMI {scores['nmi']:.3f}   ARI {scores['ari']:.3f}")


def screen_width() -> int:
    """Characters in a line: tables and notes are made for 80 at least."""
    return max(shutil.get_terminal_size().columns, 80)


def print_folded(text: str, indent: str = "") -> None:
    """Within the lines of the screen, all but the first indented."""
    print(textwrap.fill(text, screen_width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


def print_table(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]], texts: tuple[str, ...] = ()) -> None:
    """The first column is text, and those that `texts` names; the others are numbers, which are never broken up."""
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
