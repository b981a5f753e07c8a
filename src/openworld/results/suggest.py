"""Choose the unlabelled samples to label next, and write the manifest in which users label them.

Shapes: N unlabelled samples, L labelled ones, D features.
"""

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import torch
from torch import Tensor

from openworld.compute.runtime import Runtime
from openworld.core.errors import UserError
from openworld.data.benchmarks import BENCHMARKS
from openworld.data.contact_sheet import Row, contact_sheet
from openworld.data.dataset import Dataset
from openworld.data.problem import OpenWorld
from openworld.nets.features import extract
from openworld.runs.classes import Classes
from openworld.runs.evaluation import load_average
from openworld.runs.folder import RunFolder
from openworld.runs.outputs import TopPrediction, class_probabilities, outputs_of, top_predictions
from openworld.runs.world import open_world

FILE = "to-label.csv"
USUAL = 50
"""Default number of suggestions."""
COVERAGE_DISTANCE = 0.2
"""Cosine distance at which a label covers a sample by 1/e. It covers its own sample by 1."""
MOST = 4096
"""Largest number of samples that `choose` compares. If there are more, it takes this many, evenly spaced."""
DOUBTFUL = 0.5
"""Confidence below which the reason also names the runner-up."""
IN_A_ROW = 12
"""Number of images in a row of the contact sheet."""


class Suggestion(NamedTuple):
    """An unlabelled sample whose label would help."""

    position: int
    """Position among the unlabelled samples."""
    sample: str | int
    """Path of the sample, or its position in the data."""
    guess: str
    """Predicted class."""
    why: str
    """Reason for the choice, in a few words."""
    confidence: float
    """Probability of the predicted class."""


@dataclass(frozen=True)
class Suggestions:
    """The chosen samples, the most helpful first, with the classes and the data of the run."""

    chosen: tuple[Suggestion, ...]
    classes: Classes
    world: OpenWorld


def suggest(
    run: RunFolder, dataset: Dataset, number: int | None, runtime: Runtime, warn: Callable[[str], None]
) -> Suggestions:
    """Choose samples by the features and predictions of the newest checkpoint of a run.

    Args:
        number: how many samples to choose; None for the default.
        warn: called with each warning.
    """
    config, classes = run.config(), Classes.of(run)
    world = open_world(config, runtime, run, dataset)
    data, most = world.training, min(len(world.training.unlabelled), MOST)
    number = min(USUAL, most) if number is None else number
    if not 1 <= number <= most:
        raise UserError(
            f"--count is {number}, but it must be from 1 to {most:,} (the run has {len(data.unlabelled):,} unlabelled "
            "samples)"
        )
    network, _ = load_average(run, config, runtime.device, warn)
    features = (extract(network, part, data.family) for part in (data.unlabelled, data.labelled))
    positions = choose(*features, number)
    outputs = outputs_of(run, runtime, lambda _: None, world)["unlabelled"]  # load_average has given all warnings
    probabilities = class_probabilities(outputs.logits[positions], classes, config.answers.temperature)
    chosen, guesses = [], set()
    for position, answer in zip(positions, top_predictions(probabilities, classes), strict=True):
        why = reason(answer, answer.prediction in guesses)
        guesses.add(answer.prediction)
        chosen.append(Suggestion(position, outputs.samples[position], answer.prediction, why, answer.confidence))
    return Suggestions(tuple(chosen), classes, world)


def choose(unlabelled_ND: Tensor, labelled_LD: Tensor, number: int) -> list[int]:
    """Return the positions of the chosen unlabelled samples, the most helpful first. Features are unit vectors.

    A label covers the samples around it. The coverage of a sample is the largest value over all labels and all samples
    chosen so far. Each step chooses the sample that adds the most to the total coverage (greedy facility location).
    So the choices are typical, because an outlier covers no other sample. They are diverse, because next to a label
    there is little left to cover. And novel classes come first, because no label covers them yet.
    """
    evenly_spaced = torch.linspace(0, len(unlabelled_ND) - 1, min(len(unlabelled_ND), MOST)).long()
    candidates_ND = unlabelled_ND[evenly_spaced]
    covers_NN, covered_N = coverage(candidates_ND, candidates_ND), coverage(candidates_ND, labelled_LD).amax(dim=1)
    chosen = []
    for _ in range(number):
        gain_N = (covers_NN - covered_N[:, None]).clamp(min=0).sum(dim=0)
        gain_N[chosen] = -1  # Duplicates gain nothing, but no sample may be chosen twice.
        chosen.append(int(gain_N.argmax()))
        covered_N = torch.maximum(covered_N, covers_NN[:, chosen[-1]])
    return evenly_spaced[chosen].tolist()


def coverage(samples_ND: Tensor, labelled_LD: Tensor) -> Tensor:
    """Return (N, L) how much each label covers each sample: 1 for its own sample, less with growing distance."""
    return ((samples_ND @ labelled_LD.T - 1) / COVERAGE_DISTANCE).exp()


def reason(answer: TopPrediction, guessed_before: bool) -> str:
    """Return the reason for a choice in a few words.

    `guessed_before` says whether a sample with the same predicted class was chosen before.
    """
    if answer.confidence < DOUBTFUL:
        return f"between {answer.prediction} and {answer.runner_up}"
    return f"another kind of {answer.prediction}" if guessed_before else f"typical of {answer.prediction}"


# The file to fill in ----------------------------------------------------------------------------------------------


def makes_manifest(run: RunFolder, dataset: Dataset) -> bool:
    """Return whether `suggest` can write a manifest to train on: only for the user's own image files.

    For other data it writes a list of the chosen samples.
    """
    return dataset.has_files and run.config().data not in BENCHMARKS


def place_for(run: RunFolder, dataset: Dataset, out: Path | None) -> Path:
    """Return the path of the new file.

    A manifest names files under its own folder, so it must be in the folder of the images or in a folder above.
    """
    is_manifest = makes_manifest(run, dataset)
    if out is None:
        return unused_path((dataset.train.content.root if is_manifest else run.path) / FILE)
    if out.suffix.lower() != ".csv":
        raise UserError(f"--out {out}: the file name must end in .csv")
    if out.exists():
        raise UserError(f"--out {out}: the file exists and may contain your labels; choose another --out")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} does not exist; create it or choose another --out")
    if is_manifest and not dataset.train.content.root.resolve().is_relative_to(out.parent.resolve()):
        where = f"so this one must be in {dataset.train.content.root} or in a folder above"
        raise UserError(f"--out {out}: a manifest names files under its own folder, {where}")
    return out


def unused_path(path: Path) -> Path:
    """Return the path, with a number added if the file exists. A file that users filled in is never overwritten."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return next(candidate for candidate in chain([path], numbered) if not candidate.exists())


def sheet_for(run: RunFolder, path: Path) -> Path:
    """Return the path of the picture that belongs to a file.

    It is in the run folder: in the folder of the images, it would be taken for one of them.
    """
    return run.path / f"{path.stem}-sheet.png"


def write_manifest(path: Path, found: Suggestions, dataset: Dataset) -> None:
    """Write the chosen images, to be labelled, and then all other images, so that users can train on the file."""
    root = dataset.train.content.root.resolve().relative_to(path.parent.resolve())
    rows = ((PurePosixPath(root) / image, *cells) for image, *cells in manifest_rows(found, dataset))
    _write_new(path, ("path", "label", "split", "guess", "why", "confidence"), rows)


def manifest_rows(found: Suggestions, dataset: Dataset) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the manifest: the chosen images, the labelled ones, then the rest."""
    world = found.world
    for chosen in found.chosen:
        yield chosen.sample, "", "train", chosen.guess, chosen.why, f"{chosen.confidence:.4f}"
    sound = [image for image in dataset.train.content.paths if image not in world.dropped]
    for position, label in zip(world.split.labelled, world.training.labels.tolist(), strict=True):
        yield sound[position], dataset.class_names[label], "train", "", "", ""
    is_chosen = {chosen.sample for chosen in found.chosen}
    for part, truth in world.truths.items():
        for image, label in zip(truth.names, truth.labels.tolist(), strict=True):
            if label < 0 and image not in is_chosen:
                yield image, "", "train", "", "", ""  # In the part `train`, a label that a user adds is trained on.
            elif image not in is_chosen:
                yield image, dataset.class_names[label], part, "", "", ""


def write_list(path: Path, found: Suggestions) -> None:
    """Write only the chosen samples, for data that a manifest cannot name."""
    rows = ((chosen.sample, "", chosen.guess, chosen.why, f"{chosen.confidence:.4f}") for chosen in found.chosen)
    sample = "path" if isinstance(found.chosen[0].sample, str) else "index"
    _write_new(path, (sample, "label", "guess", "why", "confidence"), rows)


def _write_new(path: Path, header: tuple[str, ...], rows: Iterable[tuple]) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def draw_sheet(path: Path, found: Suggestions) -> None:
    """Draw the chosen images, grouped by predicted class, with their line numbers in the file."""
    rows = []
    for guess in found.classes.names:
        lines = [line for line, chosen in enumerate(found.chosen) if chosen.guess == guess]
        for start in range(0, len(lines), IN_A_ROW):
            in_row = lines[start : start + IN_A_ROW]
            index = torch.tensor([found.chosen[line].position for line in in_row])
            numbers = ", ".join(str(line + 2) for line in in_row)  # A spreadsheet counts from 1, the header included.
            rows.append(Row(f"{guess} (lines {numbers})", list(found.world.images["unlabelled"].take(index))))
    contact_sheet(rows).save(path, "PNG")
