"""The training loop: from a configuration and a run folder to a summary. `train` is the place to start reading."""

import time
from typing import Any

import torch

from openworld.compute.cuda_graphs import CALLS_BEFORE_CAPTURE
from openworld.compute.device import describe
from openworld.compute.runtime import Runtime
from openworld.core.config import CLUSTERS, FEATURES_RUN, Config
from openworld.core.errors import UserError, named
from openworld.core.progress import ProgressDisplay
from openworld.core.signals import StopSignals
from openworld.data.problem import OpenWorld
from openworld.nets.backbones import keep
from openworld.nets.inference import inference_copy
from openworld.nets.network import Network
from openworld.runs.checkpoint import Checkpoint
from openworld.runs.classes import Classes
from openworld.runs.evaluation import evaluate_part, probe_features, progress_scores
from openworld.runs.folder import RunFolder
from openworld.runs.outputs import class_sizes, compute_outputs, write_outputs, write_predictions
from openworld.runs.world import backbone_of, open_world
from openworld.training.first_clusters import agreement, training_spoilt
from openworld.training.learner import Learner
from openworld.training.meter import Meter

LOST = 0.25
"""A seen class with a smaller part of its assumed number of unlabelled samples may be lost."""
STEPS_BETWEEN_CHECKS = 50
"""Number of steps between two checks for finite values on a GPU, where each check waits for the device."""


def train(config: Config, run: RunFolder, runtime: Runtime, world: OpenWorld | None = None) -> dict[str, Any]:
    """Train a run to the last step of its configuration, write its results, and return its summary.

    If the run has an undamaged checkpoint, training resumes from the newest one. An epoch is `epoch_steps` steps. After
    each epoch, training evaluates the network and the averaged model, writes a line of metrics and saves a checkpoint.
    SIGINT and SIGTERM end training after the current step, with a checkpoint, by an `Interrupted` exception.

    Args:
        config: the configuration of the run.
        run: the run folder.
        runtime: the device and how data gets to it.
        world: the problem of the configuration, if the caller has loaded it already.
    """
    # 1. Load the data and build everything that training changes.
    world, backbone = world or open_world(config, runtime, run), backbone_of(config, run)
    training, device = config.training, runtime.device
    learner = Learner(config, world.training, runtime, backbone)
    display = ProgressDisplay(training.steps, learner.batches.rows, runtime.quiet)
    warn_about_setup(config, world, display)

    # 2. Resume from a checkpoint, or start from the weights of another run, from clusters, or from random weights.
    saved = run.newest_checkpoint(display.warn)
    start = run.start(training.start) if training.start not in (None, CLUSTERS) and saved is None else None
    if start:
        load_start(start, learner, world, display)
    elif training.start == CLUSTERS and saved is None:
        display.say("finding the classes in the features")
        learner.begin_with_clusters()

    with run.lock_for_training(config, world.split_json(), device), StopSignals() as stop, display:
        if start:
            run.record_start(start)
        if backbone:
            keep(backbone, run.path)
        clock = start_or_resume(learner, run, saved, display)
        first_timed_step = learner.step + CALLS_BEFORE_CAPTURE + 1  # earlier steps compile and set up: they are slow

        # 3. A method that is fitted once does all its work in one call of `end_epoch`.
        if not learner.method.makes_steps:
            record_epoch(learner, learner.end_epoch(), world, run, clock)
            learner.save(run)

        if training.start == CLUSTERS and learner.step == 0 and not run.metrics():
            record_epoch(learner, learner.inference_average(), world, run, clock)

        # 4. All other methods make steps.
        while learner.step < training.steps:
            learner.learn()
            if learner.step == first_timed_step:
                display.begin(learner.step)
            stop_signal = stop.received
            is_end_of_epoch = learner.step % training.epoch_steps == 0 or learner.step == training.steps
            if device.type == "cpu" or is_end_of_epoch or stop_signal or learner.step % STEPS_BETWEEN_CHECKS == 0:
                stop_if_not_finite(learner, run, display)
            if is_end_of_epoch or stop_signal:
                learner.recalibrate_average()
            if is_end_of_epoch:
                average = learner.end_epoch()
                metrics = record_epoch(learner, average, world, run, clock)
                display.show(learner.step, metrics["loss"], metrics["average"])
                learner.save_compiled()
            elif display.due and learner.step > first_timed_step:
                display.show(learner.step, learner.meter.means()["loss"])
            if is_end_of_epoch or stop_signal:
                learner.save(run)
            if stop_signal:
                run.record_seconds(clock.seconds())
                stop.obey(learner.step)

        # 5. A run that began with clusters must not end worse. All draws are seeded, so it can begin again.
        keeps_first = training.start == CLUSTERS and training_spoilt(run, len(learner.batches.held_out), display)
        if keeps_first:
            learner = Learner(config, world.training, runtime, backbone)
            learner.begin_with_clusters()
            learner.step = training.steps
            learner.save(run)

        # 6. Write the results. `obey` ends training here too if a signal has arrived in the meantime.
        stop.obey(learner.step)
        average = learner.inference_average()
        sizes = write_outputs_and_predictions(average, world, learner, config, run)
        if training.start == CLUSTERS:
            warn_about_lost_classes(sizes, world, display)
        stop.obey(learner.step)
        summary = summarise(learner, average, world, sizes, config, run, clock, keeps_first)
        stop.obey(learner.step)  # this run is finished, but the caller might start another one from it
        return summary


class Clock:
    """Measure the seconds of training, including the seconds before a resumption."""

    def __init__(self, before: float):
        self.started = time.monotonic() - before

    def seconds(self) -> float:
        """Return the seconds of training so far."""
        return round(time.monotonic() - self.started, 2)


def warn_about_setup(config: Config, world: OpenWorld, display: ProgressDisplay) -> None:
    """Warn about a large network on a CPU, and about classes with a single labelled image."""
    network = config.training.network
    if world.training.device.type == "cpu" and network.startswith("resnet"):
        display.warn(f"{network} trains slowly on a CPU: shorten the run with {named('steps')}, or use a GPU")
    counts = torch.bincount(world.training.labels, minlength=world.training.num_seen).tolist()
    single = [name for name, count in zip(world.class_names, counts, strict=False) if count == 1]
    if single:
        display.warn(f"only one labelled image for class {', '.join(single)}: expect low accuracy")


def warn_about_lost_classes(sizes: dict[str, int], world: OpenWorld, display: ProgressDisplay) -> None:
    """Warn about seen classes that a surplus novel class has taken (docs/findings.md#finding-surplus-clusters)."""
    data = world.training
    assumed = (len(data.unlabelled) * data.prior[: data.num_seen]).tolist()
    lost = [name for name, number in zip(sizes, assumed, strict=False) if sizes[name] < LOST * number]
    if lost:
        display.warn(
            f"few unlabelled samples are predicted as {', '.join(lost)}: a novel class may hold the others; look at "
            f"the report, and try fewer classes ({named('num_classes')})"
        )


def load_start(other: RunFolder, learner: Learner, world: OpenWorld, display: ProgressDisplay) -> None:
    """Load initial weights from another run (`--start`): its body, and a head from clusters if it used no labels.

    Raise a UserError if the network of the other run does not fit, or if the other run may have used labels that this
    run does not have.
    """
    if not other.exists:
        raise UserError(f"{other.path} is missing: this run takes its initial weights from there. Start a new run")
    uses_labels = other.config().options.method().uses_labels
    # The other run may itself have started from a run that used the labels of its split
    has_start = other.config().training.start not in (None, FEATURES_RUN)
    may_know_labels = uses_labels or has_start
    if may_know_labels and other.split_and_facts()[0] != world.split:
        raise UserError(
            f"{named('start', str(other.path))}: that run was trained on other labels than this run has; "
            "use a run with the same split"
        )
    saved = other.newest_checkpoint(display.warn)
    if saved is None:
        raise UserError(f"{named('start', str(other.path))}: that run has no undamaged checkpoint; use another run")
    try:
        learner.load_body(saved)
    except RuntimeError:
        raise UserError(
            f"{named('start', str(other.path))}: that run has another network, or images of another kind; "
            "use a run with the same network and the same kind of images"
        ) from None
    if not uses_labels:  # the other run learnt only features, so the classes must still be found in them
        learner.begin_with_clusters()


def start_or_resume(learner: Learner, run: RunFolder, saved: Checkpoint | None, display: ProgressDisplay) -> Clock:
    """Save the first checkpoint, or restore the given one. Return the clock of the run."""
    seconds_before = run.seconds()
    makes_steps = learner.method.makes_steps
    if saved is None and makes_steps:
        learner.save(run)  # a full disk or a missing permission shows at once
    elif saved:
        learner.restore(saved)
        # If a newer checkpoint is damaged, `rewind_metrics` removes lines below. Their time still counts.
        run.record_seconds(seconds_before)
    run.rewind_metrics(learner.step if makes_steps else -1)  # a method that is fitted once is fitted again
    display.begin(learner.step)
    return Clock(seconds_before)


def stop_if_not_finite(learner: Learner, run: RunFolder, display: ProgressDisplay) -> None:
    """Raise a UserError if the loss or a gradient was not finite. The optimiser made no update since then."""
    step = learner.optimiser.failure()
    if step is not None:
        last_good = run.newest_checkpoint(display.warn)
        raise UserError(
            f"the loss or its gradient is not finite at step {step}, so training stopped before that update. "
            f"The last good checkpoint is {last_good.path if last_good else 'none'}. "
            f"A lower {named('lr')} or {named('muon')} may help"
        )


def record_epoch(learner: Learner, average: Network, world: OpenWorld, run: RunFolder, clock: Clock) -> dict[str, Any]:
    """Write and return a line of metrics: means over the epoch, and the accuracies of both networks.

    `average` in the line is the averaged model, `student` is the network that is trained.
    """
    part = world.evaluated_part

    def scores_of(network: Network) -> dict[str, float | None] | None:
        return progress_scores(network, world.truths[part], world.training) if part else None

    metrics = {
        "step": learner.step,
        "seconds": clock.seconds(),
        **({"lr": learner.learning_rate(learner.step - 1)} if learner.step else {}),
        **learner.meter.means(),
        **learner.method.facts(),
        **({"agreement": agreement(average, learner.batches)} if learner.training.start == CLUSTERS else {}),
        "average": scores_of(average),
        "student": scores_of(inference_copy(learner.network)),
    }
    run.add_metrics(metrics)
    learner.meter = Meter()
    return metrics


def write_outputs_and_predictions(
    average: Network, world: OpenWorld, learner: Learner, config: Config, run: RunFolder
) -> dict[str, int]:
    """Write the outputs and predictions for all unlabelled and test samples.

    Return how many unlabelled samples are predicted as each class.
    """
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
    keeps_first: bool = False,
) -> dict[str, Any]:
    """Write and return the summary: the accuracies of the averaged model after the last step, and what was trained.

    `seen`, `novel` and `all` follow the strict protocol (trssl). `protocols` has the accuracies of all protocols.
    """
    problem = config.problem
    scores = evaluate_part(average, world, world.evaluated_part, problem.task)
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
        "task": problem.task,
        "labelled": problem.labelled,
        "novel_share": problem.novel,
        "imbalance": problem.imbalance,
        "prior": problem.prior,
        "method": config.method,
        "start": config.training.start,
        "keeps_first_clusters": keeps_first,
        "backbone": config.training.backbone,
        "recipe": config.recipe,
        "switches": config.switched_off(),
        "device": describe(world.training.device),
        "probes": None if learner.method.uses_labels else probe_features(average, world),
        "class_sizes": sizes,
        "dropped_images": len(world.dropped),
    }
    run.write_json("summary.json", summary)
    return summary
