"""openworld train"""

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openworld.commands.common import (
    TOO_LITTLE_MEMORY,
    add_command,
    add_compile_flag,
    add_data_flags,
    add_device_flag,
    add_option,
    fail,
    print_scores,
    print_table,
    runtime_of,
)
from openworld.config import Config, flatten, options, read_toml, replace
from openworld.errors import UserError

if TYPE_CHECKING:
    from openworld.record import RunFolder

LENGTHS = ("steps", "epoch_steps")
"""What --minutes settles."""


def add(commands) -> None:
    parser = add_command(commands, "train", run, "Train on a set in which some classes have no label at all.")
    parser.epilog = (
        "In brackets: the paper's value, and that of the digits where the recipe takes another. Other recipes, and "
        "your own data, take other values: the run's config.toml has them all."
    )
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


def asked_for(parsed: argparse.Namespace) -> dict[str, Any]:
    """The fields that the user set: in the file, and over it by flags."""
    from_file = read_toml(parsed.config) if parsed.config else {}
    from_flags = {option.name: getattr(parsed, option.name) for option in options() if hasattr(parsed, option.name)}
    beaten = LENGTHS if parsed.minutes is not None else ()
    beaten += ("start_steps",) if "start" in from_flags else ()
    return {**{name: value for name, value in from_file.items() if name not in beaten}, **from_flags}


def run(parsed: argparse.Namespace) -> int:
    if parsed.resume and not parsed.out:
        raise UserError("--resume needs --out: which run is to be continued?")
    asked = asked_for(parsed)

    import torch

    from openworld.prepare import prepare_run
    from openworld.record import RunFolder, new_path
    from openworld.signals import Interrupted
    from openworld.train import train

    runtime, world, minutes = runtime_of(parsed), None, parsed.minutes
    path = parsed.out or new_path(*(asked.get(name, getattr(Config, name)) for name in ("data", "method", "seed")))
    is_begun = parsed.resume and RunFolder(path).exists
    request = RunFolder(path).request() if parsed.resume else None
    folder = RunFolder(path) if is_begun or request else RunFolder.new(path)
    try:
        if is_begun:
            config = unchanged(folder, asked)
            if minutes is not None:
                raise UserError("--minutes sets the length of a new run; this one has its steps already")
        else:
            if request:
                asked, minutes = as_requested(asked, minutes, **request)
            plan = prepare_run(asked, runtime, path, minutes)
            config, world = plan.config, plan.world
            if parsed.resume and not request and "data" not in asked:
                tell(parsed, f"{path} held no run: a new one begins, on {config.data}")
            tell(parsed, *plan.lines)
        summary = folder.summary() if is_begun else None
        if summary:
            tell(parsed, f"{path} was finished before; its result:")
        summary = summary or train(config, folder, runtime, world)
    except Interrupted as stopped:
        if folder.summary():
            fail(f"stopped when the run was finished; {folder.resume_command} shows the result", stopped.exit_code)
        fail(f"{stopped}; {how_to_go_on(folder)}", stopped.exit_code)
    except KeyboardInterrupt:  # while nothing trains
        fail(f"interrupted; {how_to_go_on(folder)}", 130)
    except torch.OutOfMemoryError:
        advice = "" if is_begun else ": lower --batch-labelled and --batch-unlabelled, or --image-size"
        raise UserError(f"{TOO_LITTLE_MEMORY}{advice}") from None
    except OSError as error:  # a full or read-only disk, above all
        saved = f"; what was saved is still there; {how_to_go_on(folder)}" if folder.exists else ""
        raise UserError(f"{error.filename or folder.path}: {error.strerror or error}{saved}") from None
    if parsed.json:
        print(json.dumps({**summary, "run": str(folder.path)}))
    else:
        print_summary(config, summary)
        print(f"run folder: {folder.path}", flush=True)
        tell(parsed, f"to look at it: openworld report {shlex.quote(str(folder.path))}")
    return 0


def tell(parsed: argparse.Namespace, *lines: str) -> None:
    """Beside the result, for who wants to know."""
    if not parsed.quiet:
        for line in lines:
            print(line, file=sys.stderr, flush=True)


def how_to_go_on(folder: "RunFolder") -> str:
    if folder.exists or folder.request():
        return f"continue with: {folder.resume_command}"
    return "nothing was begun yet: the same command begins it"


def as_requested(
    now: dict[str, Any], minutes_now: float | None, asked: dict[str, Any], minutes: float | None
) -> tuple[dict[str, Any], float | None]:
    """What was asked for when a run's features were begun, but for what is asked for now."""
    from openworld.data.opening import found_again

    data = asked.get("data", Config.data)
    if found_again(now.get("data", data)) != data:
        raise UserError(f"the run was started with data = {data}, not {now['data']}: start a new one for that")
    if "steps" in now:
        minutes = None
    if minutes_now is not None:
        minutes, asked = minutes_now, {name: value for name, value in asked.items() if name not in LENGTHS}
    return {**asked, **now}, minutes


def print_summary(config: Config, summary: dict[str, Any]) -> None:
    """The accuracies where the truth is known; else what was found."""
    if summary["protocols"]:
        print_scores(f"{config.data}, {summary['part']} part", summary)
        if summary["probes"]:
            probes = "nearest neighbours {neighbours:.1f}, linear {linear:.1f}".format(**summary["probes"])
            print(f"features, probed with all training labels (per cent): {probes}")
    else:
        rows = [(name, f"{count:,}") for name, count in summary["class_sizes"].items()]
        print_table("unlabelled samples by predicted class", ("class", "samples"), rows)
    if summary.get("relayed"):
        steps = ", ".join(f"{step:,}" for step in summary["relayed"])
        print(f"relayed at step {steps}: the averaged model and momentum began again there")


def unchanged(folder: "RunFolder", asked: dict[str, Any]) -> Config:
    """A resumed run goes on as it began; only a folder or file may have moved, which the fingerprint guards."""
    from openworld.plan import with_whole_paths

    config = folder.config()
    before = flatten(config)
    asked = with_whole_paths({"data": config.data, **asked})
    data = asked["data"]
    is_path = Path(data).exists() and Path(config.data).is_absolute()
    for name, value in asked.items():
        may_differ = name == "data" and is_path and not folder.summary()
        is_settled = (name, value) == ("recipe", "auto") or (
            (name, value) == ("num_classes", "auto") and folder.estimated_classes() == config.problem.num_classes
        )
        if value != before[name] and not may_differ and not is_settled:
            raise UserError(f"the run was started with {name} = {before[name]}, not {value}: start a new one for that")
    return replace(config, {"data": data})
