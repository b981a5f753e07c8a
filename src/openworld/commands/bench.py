"""The command `openworld bench`: measure what a training step costs."""

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
        "Measure what a training step costs on this machine, and where the time goes. On a GPU it times the paper's "
        "CIFAR-100 run, on a CPU a small network (about 20 s on two cores). The images are random.",
    )
    add_device_flag(parser)
    add_compile_flag(parser)
    parser.add_argument("--quiet", action="store_true", help="print no progress")


def run(parsed: argparse.Namespace) -> int:
    from openworld.runs.environment import environment
    from openworld.training.step_cost import make_workload, measure_step

    def report(line: str) -> None:
        if not parsed.quiet:
            print(line, file=sys.stderr, flush=True)

    runtime = runtime_of(parsed)
    workload = make_workload(runtime)
    training = workload.config.training
    result = {
        **measure_step(workload, runtime, report),
        "setting": {
            "network": training.network,
            "batch": [training.batch_labelled, training.batch_unlabelled, training.batch_unlabelled],
            "unlabelled_images": len(workload.world.training.unlabelled),
            "test_images": len(workload.world.truths["test"].samples),
            "uncertainty_views": workload.config.answers.uncertainty_views,
            "epoch_steps": training.epoch_steps,
            "compiled": runtime.compile,
        },
        "environment": environment(runtime.device),
    }
    print(json.dumps(result)) if parsed.json else print_result(result)
    return 0


def print_result(result: dict[str, Any]) -> None:
    setting = result["setting"]
    print(f"{setting['network']}, {' + '.join(map(str, setting['batch']))} images, {result['environment']['device']}")
    parts = [(name, f"{ms:.2f} ms") for name, ms in result["parts_ms"].items()]
    print_table("the parts of a step, each timed alone", ("part", "time"), parts)
    images, views = f"{setting['unlabelled_images']:,}", setting["uncertainty_views"]
    rows = [
        ("a whole step", f"{result['step_ms']:.1f} ms"),
        (f"uncertainty of {images} images, {views} views each", f"{result['uncertainty_s']:.2f} s"),
        (f"evaluation on {setting['test_images']:,} images", f"{result['evaluation_s']:.2f} s"),
        (f"an epoch: {setting['epoch_steps']:,} steps and its passes", f"{result['epoch_s']:.1f} s"),
        (f"set-up{' and compilation' if setting['compiled'] else ''}", f"{result['set_up_s']:.0f} s"),
    ]
    print_table("training", ("", "time"), rows)
    facts = [f"{result['images_per_s']:,.0f} training images/s"]
    if (
        result["environment"]["device"] != "cpu"
    ):  # on a CPU a matrix product is not the peak: convolutions may be faster
        peak = f"{result['matrix_peak_tflops']:,.1f} TFLOP/s of a large matrix product"
        facts.append(f"{result['share_of_peak']:.0%} of the {peak}")
    if result["peak_memory_gib"] is not None:
        facts.append(f"{result['peak_memory_gib']:.1f} GiB of memory at most")
    print("; ".join(facts))
