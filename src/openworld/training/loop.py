"""The training loop: from a configuration and a run folder to a summary."""

import time
from typing import Any

import torch

from openworld.compute.cuda_graphs import CALLS_BEFORE_CAPTURE
from openworld.compute.device import describe
from openworld.compute.runtime import Runtime
from openworld.core.config import FEATURES_RUN, Config
from openworld.core.errors import UserError, named
from openworld.core.progress import ProgressDisplay
from openworld.core.signals import StopSignals
from openworld.data.problem import OpenWorld, load_problem
from openworld.nets.inference import inference_copy
from openworld.nets.network import Network
from openworld.runs.checkpoint import Checkpoint
from openworld.runs.classes import Classes
from openworld.runs.evaluation import evaluate_part, probe_features, progress_scores
from openworld.runs.folder import RunFolder
from openworld.runs.outputs import class_sizes, compute_outputs, write_outputs, write_predictions
from openworld.training.learner import Learner
from openworld.training.meter import Meter

STEPS_BETWEEN_CHECKS = 50
"""On a GPU, asking whether all is finite waits for the device, so it is requested now and then."""


def train(config: Config, run: RunFolder, runtime: Runtime, world: OpenWorld | None = None) -> dict[str, Any]:
    """Train until the configuration's last step, from the newest sound checkpoint if there is one.

    `world` is the problem that the configuration poses, where it is at hand already.
    """
    world = world or load_problem(config, runtime, run.split())
    training, device = config.training, runtime.device
    learner = Learner(config, world.training, runtime)
    display = ProgressDisplay(training.steps, learner.batches.rows, runtime.quiet)
    warn_of_weak_spots(config, world, display)
    saved = run.newest_checkpoint(display.warn)
    start = run.start(training.start) if training.start and saved is None else None
    if start:
        start_from(start, learner, world, display)
    with run.lock_for_training(config, world.split_json(), device), StopSignals() as stop, display:
        if start:
            run.record_start(start)
        clock = start_or_resume(learner, run, saved, display)
        first_in_stride = learner.step + CALLS_BEFORE_CAPTURE + 1
        if not learner.method.makes_steps:
            record_epoch(learner, learner.end_epoch(), world, run, clock)
            learner.save(run)
        while learner.step < training.steps:
            learner.learn()
            if learner.step == first_in_stride:  # what the first steps set up says nothing about the others
                display.begin(learner.step)
            stop_signal = stop.received
            at_end_of_epoch = learner.step % training.epoch_steps == 0 or learner.step == training.steps
            if device.type == "cpu" or at_end_of_epoch or stop_signal or learner.step % STEPS_BETWEEN_CHECKS == 0:
                refuse_failure(learner, run, display)
            if at_end_of_epoch or stop_signal:
                learner.recalibrate_average()
            if at_end_of_epoch:
                average = learner.end_epoch()
                line = record_epoch(learner, average, world, run, clock)
                display.show(learner.step, line["loss"], line["average"])
                learner.save_compiled()
            elif display.due and learner.step > first_in_stride:
                display.show(learner.step, learner.meter.means()["loss"])
            if at_end_of_epoch or stop_signal:
                learner.save(run)
            if stop_signal:
                run.record_seconds(clock.seconds())
                stop.obey(learner.step)
        stop.obey(learner.step)
        average = learner.inference_average()
        sizes = write_answers(average, world, learner, config, run)
        stop.obey(learner.step)
        summary = summarise(learner, average, world, sizes, config, run, clock)
        stop.obey(learner.step)  # the run is finished, but another may be about to begin with it
        return summary


class Clock:
    """Seconds of training, those before a resumption included."""

    def __init__(self, before: float):
        self.started = time.monotonic() - before

    def seconds(self) -> float:
        return round(time.monotonic() - self.started, 2)


def start_or_resume(learner: Learner, run: RunFolder, saved: Checkpoint | None, display: ProgressDisplay) -> Clock:
    before = run.seconds()
    makes_steps = learner.method.makes_steps
    if saved is None and makes_steps:
        learner.save(run)  # shows at once whether there is room and permission
    elif saved:
        learner.restore(saved)
        run.record_seconds(before)  # those too of which a damaged checkpoint lost the steps, and now the metrics
    run.rewind_metrics(learner.step if makes_steps else -1)  # what is fitted once is fitted again
    display.begin(learner.step)
    return Clock(before)


def start_from(other: RunFolder, learner: Learner, world: OpenWorld, display: ProgressDisplay) -> None:
    """Begin with the network of another run, which must be of the same kind, and have seen no other labels."""
    if not other.exists:
        raise UserError(f"{other.path}, with which the run was to begin, is gone: start a new run")
    has_start = other.config().training.start not in (None, FEATURES_RUN)  # which may have seen those of its own split
    uses_labels = other.config().options.method().uses_labels
    may_know_labels = uses_labels or has_start
    if may_know_labels and other.split_and_facts()[0] != world.split:
        raise UserError(f"{named('start', str(other.path))}: it was trained on other labels than this run has")
    saved = other.newest_checkpoint(display.warn)
    if saved is None:
        raise UserError(f"{named('start', str(other.path))}: it has no sound checkpoint")
    try:
        learner.take_body(saved)
    except RuntimeError:
        told = "its network is of another kind, or for other images"
        raise UserError(f"{named('start', str(other.path))}: {told}") from None
    if not uses_labels:  # features alone: classes are still to be found in them
        learner.begin_with_clusters()


def warn_of_weak_spots(config: Config, world: OpenWorld, display: ProgressDisplay) -> None:
    network = config.training.network
    if world.training.device.type == "cpu" and network.startswith("resnet"):
        display.warn(f"there is no GPU, and on a CPU a {network} learns slowly: {named('steps')} shortens the run")
    counts = torch.bincount(world.training.labels, minlength=world.training.num_seen).tolist()
    single = [name for name, count in zip(world.class_names, counts, strict=False) if count == 1]
    if single:
        display.warn(f"only one labelled image for class {', '.join(single)}: expect it to be learnt badly")


def refuse_failure(learner: Learner, run: RunFolder, display: ProgressDisplay) -> None:
    step = learner.optimiser.failure()
    if step is not None:
        last_good = run.newest_checkpoint(display.warn)
        raise UserError(
            f"the loss or its gradient is not finite at step {step}: that update was refused; "
            f"the last good checkpoint is {last_good.path if last_good else 'none'}; "
            f"a lower {named('lr')} or {named('muon')} may help"
        )


def record_epoch(learner: Learner, average: Network, world: OpenWorld, run: RunFolder, clock: Clock) -> dict[str, Any]:
    """A line of metrics: means over the epoch, and accuracies of student and averaged model side by side."""
    part = world.evaluated_part

    def scores_of(network: Network) -> dict[str, float | None] | None:
        return progress_scores(network, world.truths[part], world.training) if part else None

    line = {
        "step": learner.step,
        "seconds": clock.seconds(),
        **({"lr": learner.learning_rate(learner.step - 1)} if learner.step else {}),
        **learner.meter.means(),
        "average": scores_of(average),
        "student": scores_of(inference_copy(learner.network)),
    }
    run.add_metrics(line)
    learner.meter = Meter()
    return line


def write_answers(
    average: Network, world: OpenWorld, learner: Learner, config: Config, run: RunFolder
) -> dict[str, int]:
    """What the model says of every unlabelled and test sample; gives how many unlabelled ones each class got."""
    outputs, classes = compute_outputs(average, world, learner.batches, config), Classes.of(run)
    write_outputs(run, outputs)
    write_predictions(run, outputs, classes, config.answers.temperature)
    return class_sizes(outputs["unlabelled"], classes, config.answers.temperature)


def summarise(
    learner: Learner,
    average: Network,
    world: OpenWorld,
    sizes: dict[str, int],
    config: Config,
    run: RunFolder,
    clock: Clock,
) -> dict[str, Any]:
    """The result of the run's last step, under the strict protocol; the other protocols beside it."""
    problem = config.problem
    scores = evaluate_part(average, world, world.evaluated_part)
    summary = {
        **scores["protocols"].get("trssl", {"seen": None, "novel": None, "all": None}),
        "part": scores["part"],
        "nmi": scores["nmi"],
        "ari": scores["ari"],
        "protocol": "trssl",
        "protocols": scores["protocols"],
        "num_classes": world.training.num_classes,
        "num_classes_estimated": problem.num_classes is not None and run.estimated_classes() == problem.num_classes,
        "num_seen": world.training.num_seen,
        "steps": learner.step,
        "relayed": learner.relayed,
        "seconds": clock.seconds(),
        "seed": config.seed,
        "dataset": config.data,
        "labelled": problem.labelled,
        "novel_share": problem.novel,
        "imbalance": problem.imbalance,
        "prior": problem.prior,
        "method": config.method,
        "start": config.training.start,
        "recipe": config.recipe,
        "switches": config.switched_off(),
        "device": describe(world.training.device),
        "probes": None if learner.method.uses_labels else probe_features(average, world),
        "class_sizes": sizes,
        "dropped_images": len(world.dropped),
    }
    run.write_json("summary.json", summary)
    return summary
