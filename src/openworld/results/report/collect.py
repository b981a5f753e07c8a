"""From a run folder to plain facts, before any of them is drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from openworld.compute.runtime import Runtime
from openworld.core.config import Config
from openworld.core.errors import UserError
from openworld.data.opening import reopen_dataset
from openworld.data.problem import OpenWorld, load_problem
from openworld.ops.metrics import confusion_matrix
from openworld.results.report.confusion import Confusion
from openworld.runs.classes import Classes
from openworld.runs.evaluation import scores_of_counts
from openworld.runs.folder import RunFolder
from openworld.runs.model import Model
from openworld.runs.outputs import PARTS, Outputs, class_probabilities, outputs_of


@dataclass(frozen=True)
class Answers:
    """What is said of the N samples of one part, in the classes as people name them today."""

    samples: tuple[str | int, ...]
    predicted: np.ndarray
    confidence: np.ndarray
    runner_up: np.ndarray
    """The second best class; -1 where there is only one."""
    uncertainty: np.ndarray
    truth: np.ndarray
    """-1 where nobody knows."""

    @property
    def typicality(self) -> np.ndarray:
        """Confidence less its spread over views: high for what is surely of its class, low for what is in doubt."""
        return self.confidence - self.uncertainty


@dataclass(frozen=True)
class Facts:
    """All that a page tells of one run."""

    run: RunFolder
    config: Config
    classes: Classes
    true_names: tuple[str, ...]
    """Of the true classes, as far as truth is known at all; seen ones first."""
    parts: dict[str, Answers]
    """By part; empty where there are neither kept outputs nor the data to make them from."""
    scores: dict[str, Any]
    """`part`, `protocols`, `nmi` and `ari`, as in summary.json."""
    summary: dict[str, Any]
    """Empty for a run that is not finished."""
    metrics: list[dict[str, Any]]
    seconds: float
    """Of training."""
    prior: np.ndarray
    """(M,) the assumed share of each class among the unlabelled samples."""
    num_labelled: int
    estimate: dict[str, Any] | None
    sessions: list[dict[str, Any]]
    """What the run was started with, and each time resumed."""
    world: OpenWorld | None
    """The data, where it can be had."""
    model: Model | None
    """What answers; of a finished run only where there is data to ask it about."""
    notes: tuple[str, ...]
    """What a reader must know: that the run is not finished, or why there are no images."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.classes.names

    @property
    def num_seen(self) -> int:
        return self.classes.num_seen

    @property
    def step(self) -> int:
        return self.summary.get("steps") or (self.model.step if self.model else 0)

    @property
    def images(self) -> bool:
        """Whether there are pictures to show."""
        return self.world is not None and len(self.world.training.unlabelled.shape) == 3

    def confusion(self, part: str | None) -> Confusion | None:
        """Of a part whose truth is known."""
        if part not in self.parts or (self.parts[part].truth < 0).all():
            return None
        said = self.parts[part]
        return Confusion.of(said.truth, said.predicted, len(self.true_names), len(self.names), self.num_seen)


def collect(run: RunFolder, runtime: Runtime, warn: Callable[[str], None]) -> Facts:
    """All facts of a run; what cannot be had is noted, and told to `warn`, each once."""
    notes: list[str] = []

    def note(message: str) -> None:
        if message not in notes:
            notes.append(message)
            warn(message)

    config, (settled, facts) = run.config(), run.split_and_facts()
    classes = Classes.of(run)
    summary = run.summary() or {}
    world, true_names = _data_of(config, run.split(), runtime, note)
    outputs = _outputs_of(run, runtime, note, world)
    model = _model_of(run, runtime, note) if world or not summary else None
    if model and not summary and model.step == config.training.steps:
        note(f"{run.path} has no sound summary.json: the numbers were computed anew from its last checkpoint")
    _refuse_misfit(run, outputs, classes, facts)
    temperature = config.answers.temperature
    most = max((int(said.truth.max()) + 1 for said in outputs.values()), default=0)
    unnamed = [f"true class {number + 1}" for number in range(settled.num_seen, max(most, settled.num_seen))]
    return Facts(
        run=run,
        config=config,
        classes=classes,
        true_names=true_names or (*classes.outputs[: settled.num_seen], *unnamed),
        parts={part: _answers(outputs[part], classes, temperature) for part in PARTS if part in outputs},
        scores=summary if summary.get("protocols") else _scores(outputs, settled.num_seen),
        summary=summary,
        metrics=run.metrics(),
        seconds=summary.get("seconds") or run.seconds(),
        prior=classes.sum_by_class(torch.tensor([facts["prior"]]))[0].numpy(),
        num_labelled=len(settled.labelled),
        estimate=run.read_json("estimate.json"),
        sessions=(run.read_json("environment.json") or {}).get("sessions", []),
        world=world,
        model=model,
        notes=tuple(notes),
    )


def _data_of(
    config: Config, split: str, runtime: Runtime, note: Callable[[str], None]
) -> tuple[OpenWorld | None, tuple[str, ...]]:
    """The data of a run and the names of its true classes; none of both where it is gone."""
    try:
        dataset = reopen_dataset(config.data, runtime.data_dir)
        return load_problem(config, runtime, split, dataset), dataset.class_names
    except (UserError, OSError) as error:
        note(f"there are no images and no map, since the data is not at hand: {error}")
        return None, ()


def _outputs_of(
    run: RunFolder, runtime: Runtime, note: Callable[[str], None], world: OpenWorld | None
) -> dict[str, Outputs]:
    try:
        return outputs_of(run, runtime, note, world)
    except UserError as error:
        if world:  # then it is the run that is damaged
            raise
        note(f"there are no predictions either: {error}")
        return {}


def _model_of(run: RunFolder, runtime: Runtime, note: Callable[[str], None]) -> Model | None:
    try:
        return Model.load(run, runtime.device, note)
    except UserError as error:
        note(f"there is no map: {error}")
        return None


def _refuse_misfit(run: RunFolder, outputs: dict[str, Outputs], classes: Classes, facts: dict[str, Any]) -> None:
    widths = {len(classes.outputs), len(facts.get("prior", [])), *(said.logits.shape[1] for said in outputs.values())}
    if len(widths) > 1:
        raise UserError(f"{run.path} is damaged: its files are not of the same classes")


def _answers(said: Outputs, classes: Classes, temperature: float) -> Answers:
    shares = class_probabilities(said.logits.float(), classes, temperature)
    best = shares.topk(min(2, shares.shape[1]), dim=1)
    second = best.indices[:, 1] if shares.shape[1] > 1 else torch.full((len(shares),), -1)
    return Answers(
        samples=said.samples,
        predicted=best.indices[:, 0].numpy(),
        confidence=best.values[:, 0].numpy(),
        runner_up=second.numpy(),
        uncertainty=said.uncertainty.float().numpy(),
        truth=said.truth.numpy(),
    )


def _scores(outputs: dict[str, Outputs], num_seen: int) -> dict[str, Any]:
    """Of a run without a summary: as it would tell them, of the first part whose truth is known."""
    for part in ("test", "unlabelled"):
        known = outputs[part].truth.numpy() >= 0 if part in outputs else np.zeros(0, dtype=bool)
        if known.any():
            truth, logits = outputs[part].truth.numpy()[known], outputs[part].logits.numpy()[known]
            num_classes = max(int(truth.max()) + 1, num_seen)
            counts = confusion_matrix(truth, logits.argmax(axis=1), num_classes, logits.shape[1])
            return {"part": part, **scores_of_counts(counts, num_seen)}
    return {"part": None, "protocols": {}, "nmi": None, "ari": None}
