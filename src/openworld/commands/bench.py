"""openworld bench"""

import argparse
import json
import sys
from typing import Any

from openworld.commands.common import add_command, add_compile_flag, add_device_flag, print_table, runtime_of


def add(commands) -> None:
    parser = add_command(
        commands,
        "bench",
        run,
        "What a training step costs here, part by part, beside the authors' arrangement of the same work: on a GPU the "
        "paper's CIFAR-100 run (3 minutes), on a CPU a small network (2 minutes). The images are made up.",
    )
    add_device_flag(parser)
    add_compile_flag(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(parsed: argparse.Namespace) -> int:
    from openworld.bench.authors import measure_authors
    from openworld.bench.ours import measure_ours
    from openworld.bench.setting import make_setting
    from openworld.record import environment

    def tell(what: str) -> None:
        if not parsed.quiet:
            print(what, file=sys.stderr, flush=True)

    runtime = runtime_of(parsed)
    setting = make_setting(runtime)
    ours = measure_ours(setting, runtime, tell)
    theirs = measure_authors(setting, runtime, tell)
    training = setting.config.training
    result = {
        **ours,
        "speedup": theirs["epoch_s"] / ours["epoch_s"],
        "authors": theirs,
        "setting": {
            "network": training.network,
            "batch": [training.batch_labelled, training.batch_unlabelled, training.batch_unlabelled],
            "unlabelled_images": len(setting.world.training.unlabelled),
            "test_images": len(setting.world.truths["test"].samples),
            "uncertainty_views": setting.config.answers.uncertainty_views,
            "epoch_steps": training.epoch_steps,
            "compiled": runtime.compile,
        },
        "environment": environment(runtime.device),
    }
    print(json.dumps(result)) if parsed.json else print_result(result)
    return 0


def print_result(result: dict[str, Any]) -> None:
    setting, theirs = result["setting"], result["authors"]
    title = f"{setting['network']}, {' + '.join(map(str, setting['batch']))} images, {result['environment']['device']}"
    parts = [(name, f"{ms:.2f} ms") for name, ms in result["parts_ms"].items()]
    print(title)
    print_table("the parts of a step, each by itself", ("part", "time"), parts)

    def row(name: str, key: str, unit: str, digits: int) -> tuple[str, ...]:
        return (
            name,
            f"{result[key]:.{digits}f} {unit}",
            f"{theirs[key]:.{digits}f} {unit}",
            f"{theirs[key] / result[key]:.1f}x",
        )

    images, views = f"{setting['unlabelled_images']:,}", setting["uncertainty_views"]
    rows = [
        row("a step", "step_ms", "ms", 1),
        row(f"uncertainty, {images} images x {views} views", "uncertainty_s", "s", 2),
        row(f"an evaluation of {setting['test_images']:,} images", "evaluation_s", "s", 2),
        row(f"an epoch of {setting['epoch_steps']:,} steps, with its passes", "epoch_s", "s", 1),
    ]
    print_table("in all, beside the authors' arrangement", ("", "ours", "authors'", "ratio"), rows)
    print(
        f"{result['images_per_s']:,.0f} trained images/s; {result['share_of_peak']:.0%} of the "
        f"{result['matrix_peak_tflops']:,.1f} TFLOP/s of a large matrix product; {result['peak_memory_gib']:.1f} GiB; "
        f"{result['set_up_s']:.0f} s to set up{' and compile' if setting['compiled'] else ''}"
    )
    print(f"authors': {theirs['workers']} loader processes, views by {theirs['views']}; {theirs['scaled']}")
