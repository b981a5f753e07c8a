"""Collect the facts of a run from its folder and its data, before the page draws any of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from openworld.compute.runtime import Runtime
from openworld.core.config import Config
from openworld.core.errors import UserError
from openworld.data.opening import reopen_dataset
from openworld.data.problem import OpenWorld
from openworld.ops.metrics import confusion_matrix
from openworld.results.report.confusion import Confusion
from openworld.runs.classes import Classes
from openworld.runs.evaluation import scores_of_counts
from openworld.runs.folder import RunFolder
from openworld.runs.model import Model
from openworld.runs.outputs import PARTS, Outputs, class_probabilities, outputs_of
from openworld.runs.world import open_world


@dataclass(frozen=True)
class Predictions:
    """Predictions for the N samples of one part, with the class names and merged classes of today."""

    samples: tuple[str | int, ...]
    """Path or position of each sample."""
    predicted: np.ndarray
    """(N,) predicted classes."""
    confidence: np.ndarray
    """(N,) probability of the predicted class."""
    runner_up: np.ndarray
    """(N,) classes with the second highest probability; -1 if there is only one class."""
    uncertainty: np.ndarray
    """(N,) standard deviation of the probability over random views."""
    truth: np.ndarray
    """(N,) true classes; -1 if unknown."""

    @property
    def typicality(self) -> np.ndarray:
        """(N,) confidence minus uncertainty: high for typical samples of a class, low for doubtful ones."""
        return self.confidence - self.uncertainty


@dataclass(frozen=True)
class Facts:
    """All facts that the report of one run shows."""

    run: RunFolder
    config: Config
    classes: Classes
    true_names: tuple[str, ...]
    """Names of the true classes, seen classes first. Without the data, novel classes are called `true class N`."""
    parts: dict[str, Predictions]
    """Predictions by part; empty if the outputs are not saved and the data to compute them is missing."""
    scores: dict[str, Any]
    """`part`, `protocols`, `nmi` and `ari`, as in summary.json."""
    summary: dict[str, Any]
    """The content of summary.json; empty for a run that is not finished."""
    metrics: list[dict[str, Any]]
    """The lines of metrics.jsonl."""
    seconds: float
    """Training time."""
    priors: dict[int, np.ndarray]
    """(M,) assumed proportion of each class among the unlabelled samples, by step: one at step 0, or one for each epoch
    if training estimated it."""
    num_labelled: int
    estimate: dict[str, Any] | None
    """The content of estimate.json, if the number of classes was estimated."""
    sessions: list[dict[str, Any]]
    """Command and environment of the start of the run, and of each time that it was resumed."""
    world: OpenWorld | None
    """The data, if it is available."""
    model: Model | None
    """The model that predicts. For a finished run it is loaded only if the data is available."""
    notes: tuple[str, ...]
    """Warnings for the reader, for example that the run is not finished, or why there are no images."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the predicted classes."""
        return self.classes.names

    @property
    def num_seen(self) -> int:
        """Number of seen classes."""
        return self.classes.num_seen

    @property
    def step(self) -> int:
        """Step of the weights that the page describes."""
        return self.summary.get("steps") or (self.model.step if self.model else 0)

    @property
    def images(self) -> bool:
        """Whether the samples are images and the data is available."""
        return self.world is not None and len(self.world.sample_shape) == 3

    def confusion(self, part: str | None) -> Confusion | None:
        """Return the confusion matrix of a part, or None if none of its true classes is known."""
        if part not in self.parts or (self.parts[part].truth < 0).all():
            return None
        found = self.parts[part]
        return Confusion.of(found.truth, found.predicted, len(self.true_names), len(self.names), self.num_seen)


def collect(run: RunFolder, runtime: Runtime, warn: Callable[[str], None]) -> Facts:
    """Collect the facts of a run. Missing parts become notes, and `warn` is called once with each note."""
    notes: list[str] = []

    def note(message: str) -> None:
        if message not in notes:
            notes.append(message)
            warn(message)

    config, (split, facts) = run.config(), run.split_and_facts()
    classes = Classes.of(run)
    summary = run.summary() or {}
    world, true_names = _data_of(run, config, runtime, note)
    outputs = _outputs_of(run, runtime, note, world)
    model = _model_of(run, runtime, note) if world or not summary else None
    if model and not summary and model.step == config.training.steps:
        note(
            f"{run.path}: summary.json is missing or damaged, so the numbers were computed again from the last "
            "checkpoint"
        )
    _refuse_misfit(run, outputs, classes, facts)
    temperature = config.answers.temperature
    num_true = max((int(output.truth.max()) + 1 for output in outputs.values()), default=0)
    unnamed = [f"true class {number + 1}" for number in range(split.num_seen, max(num_true, split.num_seen))]
    return Facts(
        run=run,
        config=config,
        classes=classes,
        true_names=true_names or (*classes.outputs[: split.num_seen], *unnamed),
        parts={part: _predictions(outputs[part], classes, temperature) for part in PARTS if part in outputs},
        scores=summary if summary.get("protocols") else _scores(outputs, split.num_seen),
        summary=summary,
        metrics=run.metrics(),
        seconds=summary.get("seconds") or run.seconds(),
        priors=_priors(run.metrics(), facts["prior"], classes),
        num_labelled=len(split.labelled),
        estimate=run.read_json("estimate.json"),
        sessions=(run.read_json("environment.json") or {}).get("sessions", []),
        world=world,
        model=model,
        notes=tuple(notes),
    )


def _priors(metrics: list[dict[str, Any]], first: list[float], classes: Classes) -> dict[int, np.ndarray]:
    """Return the assumed class proportions by step: those before training, and those that training estimated."""
    by_step = {0: first} | {line["step"]: line["prior"] for line in metrics if "prior" in line}
    return dict(zip(by_step, classes.sum_by_class(torch.tensor([*by_step.values()])).numpy(), strict=True))


def _data_of(
    run: RunFolder, config: Config, runtime: Runtime, note: Callable[[str], None]
) -> tuple[OpenWorld | None, tuple[str, ...]]:
    """Return the data of a run and the names of its true classes, or None and no names if the data is missing."""
    try:
        dataset = reopen_dataset(config.data, runtime.data_dir)
        return open_world(config, runtime, run, dataset), dataset.class_names
    except (UserError, OSError) as error:
        note(f"the report has no images and no map, because the data is not available: {error}")
        return None, ()


def _outputs_of(
    run: RunFolder, runtime: Runtime, note: Callable[[str], None], world: OpenWorld | None
) -> dict[str, Outputs]:
    try:
        return outputs_of(run, runtime, note, world)
    except UserError as error:
        if world:  # The data is available, so the run is damaged.
            raise
        note(f"the report has no predictions either: {error}")
        return {}


def _model_of(run: RunFolder, runtime: Runtime, note: Callable[[str], None]) -> Model | None:
    try:
        return Model.load(run, runtime.device, note)
    except UserError as error:
        note(f"the report has no map: {error}")
        return None


def _refuse_misfit(run: RunFolder, outputs: dict[str, Outputs], classes: Classes, facts: dict[str, Any]) -> None:
    """Raise a UserError if the files of a run have different numbers of classes."""
    counts = {len(classes.outputs), len(facts.get("prior", [])), *(part.logits.shape[1] for part in outputs.values())}
    if len(counts) > 1:
        listed = " and ".join(map(str, sorted(counts)))
        raise UserError(f"{run.path} is damaged: its files have {listed} classes. Train the run again")


def _predictions(outputs: Outputs, classes: Classes, temperature: float) -> Predictions:
    probabilities = class_probabilities(outputs.logits.float(), classes, temperature)
    best = probabilities.topk(min(2, probabilities.shape[1]), dim=1)
    second = best.indices[:, 1] if probabilities.shape[1] > 1 else torch.full((len(probabilities),), -1)
    return Predictions(
        samples=outputs.samples,
        predicted=best.indices[:, 0].numpy(),
        confidence=best.values[:, 0].numpy(),
        runner_up=second.numpy(),
        uncertainty=outputs.uncertainty.float().numpy(),
        truth=outputs.truth.numpy(),
    )


def _scores(outputs: dict[str, Outputs], num_seen: int) -> dict[str, Any]:
    """Return the scores of a run without a summary, in the same form, for the first part with known true classes."""
    for part in ("test", "unlabelled"):
        known = outputs[part].truth.numpy() >= 0 if part in outputs else np.zeros(0, dtype=bool)
        if known.any():
            truth, logits = outputs[part].truth.numpy()[known], outputs[part].logits.numpy()[known]
            num_classes = max(int(truth.max()) + 1, num_seen)
            counts = confusion_matrix(truth, logits.argmax(axis=1), num_classes, logits.shape[1])
            return {"part": part, **scores_of_counts(counts, num_seen)}
    return {"part": None, "protocols": {}, "nmi": None, "ari": None}
