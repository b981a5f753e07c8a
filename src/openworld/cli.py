"""The command line: `openworld COMMAND`. It imports torch only when a command runs."""

import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from openworld import __version__
from openworld.commands import (
    bench,
    data,
    estimate,
    evaluate,
    export,
    name,
    paper,
    predict,
    report,
    suggest,
    sweep,
    train,
)
from openworld.commands.common import TOO_LITTLE_MEMORY, Parser, fail
from openworld.core.errors import UserError
from openworld.core.signals import Interrupted


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with 0, with 2 for errors that the user can correct, or with 128 + n for signal n."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal's encoding may lack characters of a name
    try:
        parsed = make_parser().parse_args(arguments)
        sys.exit(parsed.command(parsed))
    except UserError as error:
        fail(str(error), 2)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + 13)
    except OSError as error:
        fail(f"{error.filename or 'a file'}: {error.strerror or error}", 2)
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's class, by name: torch may not be imported
            raise
        fail(TOO_LITTLE_MEMORY, 2)
    except Interrupted as stopped:
        fail(f"{stopped}; the same command continues", stopped.exit_code)
    except KeyboardInterrupt:
        fail("interrupted", 130)


def make_parser() -> Parser:
    parser = Parser(
        prog="openworld", description="Classify images of seen classes and discover novel classes.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"openworld {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for command in (train, evaluate, predict, report, name, suggest, export, estimate, sweep, paper, data, bench):
        command.add(commands)
    return parser
