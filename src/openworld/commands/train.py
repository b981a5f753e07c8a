"""The command `openworld train`: train a run."""

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openworld.commands.common import (
    TOO_LITTLE_MEMORY,
    Parser,
    add_command,
    add_compile_flag,
    add_data_flags,
    add_device_flag,
    add_options,
    fail,
    print_scores,
    print_table,
    runtime_of,
)
from openworld.core.config_files import read_toml
from openworld.core.errors import UserError
from openworld.core.fields import all_names

if TYPE_CHECKING:
    from openworld.compute.runtime import Runtime
    from openworld.planning.request import Request
    from openworld.runs.folder import RunFolder


def add(commands) -> None:
    parser = add_command(commands, "train", run, "Train on data in which some classes have no labels.")
    parser.epilog = (
        "Values in brackets are defaults: the paper's value, and the value for the digits if it differs. Other recipes "
        "and your own data have other defaults; config.toml in the run folder has all values of a run. An option of a "
        "method may be written with the method's name, as in --trssl.epsilon. Without a name it belongs to the method "
        "that trains."
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="run folder [a new folder under runs/]")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out, or start it if there is none")
    add_training_flags(parser)


def add_training_flags(parser: Parser) -> None:
    """Add the flags that `openworld sweep` has too."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings; flags override it")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="X",
        help="about how many minutes to train; openworld times some steps and sets --steps [your own data: 5]",
    )
    add_device_flag(parser)
    add_compile_flag(parser)
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="same weights to the last bit in every run, on a GPU too (slower there)",
    )
    add_data_flags(parser)
    add_options(parser)


def request_of(parsed: argparse.Namespace) -> "Request":
    """Return the request: the settings of the configuration file, overridden by those of the flags."""
    from openworld.planning.request import Request

    return Request(settings=settings_of(parsed), minutes=parsed.minutes, resume=parsed.resume)


def settings_of(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the configuration file, overridden by those of the flags."""
    from openworld.planning.request import LENGTHS, over

    from_file = read_toml(parsed.config) if parsed.config else {}
    from_flags = {name: getattr(parsed, name) for name in all_names() if hasattr(parsed, name)}
    overridden = LENGTHS if parsed.minutes is not None else ()
    overridden += ("start_steps",) if "start" in from_flags else ()
    return over({name: value for name, value in from_file.items() if name not in overridden}, from_flags)


def run(parsed: argparse.Namespace) -> int:
    if parsed.resume and not parsed.out:
        raise UserError("--resume needs --out; name the run folder to continue")
    request = request_of(parsed)

    from openworld.runs.folder import RunFolder

    folder = RunFolder(parsed.out or request.new_path())
    summary = train_in(folder, request, runtime_of(parsed))
    if parsed.json:
        print(json.dumps({**summary, "run": str(folder.path)}))
    else:
        print_summary(folder, summary)
    if not parsed.json and not parsed.quiet:
        print(f"to see the results: openworld report {shlex.quote(str(folder.path))}", file=sys.stderr, flush=True)
    return 0


def train_in(folder: "RunFolder", request: "Request", runtime: "Runtime") -> dict[str, Any]:
    """Train and return the summary of the run. Anything that stops training is reported in one line."""
    import torch

    from openworld.core.signals import Interrupted
    from openworld.planning.request import execute, resume_hint

    is_resumed = request.resume and folder.exists
    try:
        return execute(request, folder, runtime)
    except Interrupted as stopped:
        if folder.summary():
            fail(f"stopped after the run was finished; to see the result: {folder.resume_command}", stopped.exit_code)
        fail(f"{stopped}; {resume_hint(folder)}", stopped.exit_code)
    except KeyboardInterrupt:  # not during training, which raises Interrupted instead
        fail(f"interrupted; {resume_hint(folder)}", 130)
    except torch.OutOfMemoryError:
        advice = "" if is_resumed else ": lower --batch-labelled and --batch-unlabelled, or --image-size"
        raise UserError(f"{TOO_LITTLE_MEMORY}{advice}") from None
    except OSError as error:  # most often a full or read-only disk
        saved = f"; all files saved so far are kept; {resume_hint(folder)}" if folder.exists else ""
        raise UserError(f"{error.filename or folder.path}: {error.strerror or error}{saved}") from None


def print_summary(folder: "RunFolder", summary: dict[str, Any]) -> None:
    """Print the accuracies if true classes are known, otherwise the sizes of the predicted classes."""
    if summary["protocols"]:
        print_scores(f"{folder.config().data}, {summary['part']} part", summary)
        if summary["probes"]:
            probes = "k-nearest neighbours {neighbours:.1f}, linear probe {linear:.1f}".format(**summary["probes"])
            print(f"accuracy of the features, with all training labels (per cent): {probes}")
    else:
        rows = [(name, f"{count:,}") for name, count in summary["class_sizes"].items()]
        print_table("unlabelled samples by predicted class", ("class", "samples"), rows)
    if summary.get("relayed"):
        steps = ", ".join(f"{step:,}" for step in summary["relayed"])
        print(f"relayed at step {steps}: the averaged model and the momentum started again there")
    print(f"run folder: {folder.path}", flush=True)
