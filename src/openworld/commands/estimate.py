"""The command `openworld estimate`: estimate the number of classes."""

import argparse
import json
import shlex
from pathlib import Path

from openworld.commands.common import (
    add_command,
    add_compile_flag,
    add_data_flags,
    add_device_flag,
    add_option,
    fail,
    runtime_of,
    whole_number,
)
from openworld.core.config import ESTIMATORS, SHARED_SETTINGS
from openworld.core.errors import UserError
from openworld.core.fields import options


def add(commands) -> None:
    summary = (
        "Estimate the number of classes, seen and novel together, from features learnt without labels. DATA may also "
        "be a run folder: then its features are used."
    )
    parser = add_command(commands, "estimate", run, summary)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the results [a new folder under runs/]")
    parser.add_argument(
        "--estimator",
        choices=ESTIMATORS,
        default="neighbours",
        metavar="NAME",
        help="neighbours (by the labels of nearest neighbours), paper (k-means for every k), or paper-plain (the same "
        "without its reassignment of samples) [neighbours]",
    )
    parser.add_argument("--max-classes", type=whole_number, metavar="N", help="largest k of k-means [400]")
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="X",
        help="about how many minutes to learn features [your own data: 1.5; benchmarks: the steps of the recipe]",
    )
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    add_device_flag(parser)
    add_compile_flag(parser)
    add_data_flags(parser)
    for option in options():
        if option.name in SHARED_SETTINGS:
            add_option(parser, option)


def run(parsed: argparse.Namespace) -> int:
    from openworld.core.signals import Interrupted
    from openworld.planning.estimate import estimate_classes
    from openworld.runs.folder import RunFolder, new_path

    requested = {name: getattr(parsed, name) for name in SHARED_SETTINGS if hasattr(parsed, name)}
    out = parsed.out or new_path(requested.get("data", "digits"), "estimate", requested.get("seed", 0))
    if RunFolder(out).exists:
        raise UserError(f"{out} contains a run; choose another --out")
    before = RunFolder(out).read("estimate.json")
    if before is not None and '"estimator": ' not in before:
        raise UserError(f"{out / 'estimate.json'} was not created by openworld estimate; choose another --out")
    try:
        estimate = estimate_classes(
            requested, runtime_of(parsed), out, parsed.estimator, parsed.max_classes, parsed.minutes
        )
    except Interrupted as stopped:
        fail(f"{stopped}; to continue, run the same command with --out {shlex.quote(str(out))}", stopped.exit_code)
    if parsed.json:
        print(json.dumps(estimate.to_json()))
    else:
        print(f"{estimate.text()}; {estimate.how_sure()}")
        print(f"estimator {estimate.estimator}, features: {estimate.details['features']}")
        print(f"curve: {out / 'estimate.png'}; all numbers: {out / 'estimate.json'}")
    return 0
