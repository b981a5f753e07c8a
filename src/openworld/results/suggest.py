"""Which unlabelled samples to label next, and the manifest in which people do it.

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
from openworld.data.problem import OpenWorld, load_problem
from openworld.nets.features import extract
from openworld.runs.classes import Classes
from openworld.runs.evaluation import load_average
from openworld.runs.folder import RunFolder
from openworld.runs.outputs import TopPrediction, class_probabilities, outputs_of, top_predictions

FILE = "to-label.csv"
USUAL = 50
"""Suggestions, if nobody says how many."""
REACH = 0.2
"""Of a label: about a sample at this cosine distance it says 1/e of what it says about its own."""
MOST = 4096
"""Samples that are weighed against each other; of more, so many that are evenly spaced."""
DOUBTFUL = 0.5
"""Confidence below which the runner-up is named too."""
IN_A_ROW = 12
"""Images of a contact sheet."""


class Suggestion(NamedTuple):
    """An unlabelled sample that is worth a label."""

    position: int
    """Among the unlabelled samples."""
    sample: str | int
    """How a person finds it: its path, or its position in the data."""
    guess: str
    why: str
    confidence: float


@dataclass(frozen=True)
class Suggestions:
    """What was chosen, the most helpful first, and from what."""

    chosen: tuple[Suggestion, ...]
    classes: Classes
    world: OpenWorld


def suggest(
    run: RunFolder, dataset: Dataset, number: int | None, runtime: Runtime, warn: Callable[[str], None]
) -> Suggestions:
    """By what a run's newest checkpoint makes of its data."""
    config, classes = run.config(), Classes.of(run)
    world = load_problem(config, runtime, run.split(), dataset)
    data, most = world.training, min(len(world.training.unlabelled), MOST)
    number = min(USUAL, most) if number is None else number
    if not 1 <= number <= most:
        raise UserError(f"--count is {number}; it must be from 1 to {most:,}, of {len(data.unlabelled):,} unlabelled")
    network, _ = load_average(run, config, runtime.device, warn)
    features = (extract(network, part, data.family) for part in (data.unlabelled, data.labelled))
    positions = choose(*features, number)
    said = outputs_of(run, runtime, lambda _: None, world)["unlabelled"]  # what there is to warn of has been said
    shares = class_probabilities(said.logits[positions], classes, config.answers.temperature)
    chosen, met = [], set()
    for position, answer in zip(positions, top_predictions(shares, classes), strict=True):
        why = reason(answer, answer.prediction in met)
        met.add(answer.prediction)
        chosen.append(Suggestion(position, said.samples[position], answer.prediction, why, answer.confidence))
    return Suggestions(tuple(chosen), classes, world)


def choose(unlabelled_ND: Tensor, labelled_LD: Tensor, number: int) -> list[int]:
    """Positions of unlabelled samples, the most helpful first; features are unit vectors.

    A label speaks for the samples around it. So the next one goes where it adds the most to how well all samples are
    spoken for (greedy facility location). That makes choices typical, since an outlier speaks for nobody; diverse,
    since next to a label there is little left to add; and of new classes first, for which no label speaks yet.
    """
    evenly_spaced = torch.linspace(0, len(unlabelled_ND) - 1, min(len(unlabelled_ND), MOST)).long()
    candidates_ND = unlabelled_ND[evenly_spaced]
    said_NN, spoken_for_N = reach(candidates_ND, candidates_ND), reach(candidates_ND, labelled_LD).amax(dim=1)
    chosen = []
    for _ in range(number):
        gain_N = (said_NN - spoken_for_N[:, None]).clamp(min=0).sum(dim=0)
        gain_N[chosen] = -1  # where samples are the same nothing is left to gain, but each is chosen once
        chosen.append(int(gain_N.argmax()))
        spoken_for_N = torch.maximum(spoken_for_N, said_NN[:, chosen[-1]])
    return evenly_spaced[chosen].tolist()


def reach(samples_ND: Tensor, labelled_LD: Tensor) -> Tensor:
    """(N, L) what each label says about each sample: 1 about its own, and less with the distance."""
    return ((samples_ND @ labelled_LD.T - 1) / REACH).exp()


def reason(answer: TopPrediction, met_before: bool) -> str:
    """Why a sample was chosen, in a few words; `met_before`: another one with this guess was chosen already."""
    if answer.confidence < DOUBTFUL:
        return f"between {answer.prediction} and {answer.runner_up}"
    return f"another kind of {answer.prediction}" if met_before else f"typical of {answer.prediction}"


# The file to fill in ----------------------------------------------------------------------------------------------


def makes_manifest(run: RunFolder, dataset: Dataset) -> bool:
    """Whether the data can be trained on again by a manifest: own image files. Of other data only a list is made."""
    return dataset.has_files and run.config().data not in BENCHMARKS


def place_for(run: RunFolder, dataset: Dataset, out: Path | None) -> Path:
    """Of the new file: a manifest lies beside the images or above them, since it names what is under its folder."""
    is_manifest = makes_manifest(run, dataset)
    if out is None:
        return first_free((dataset.train.content.root if is_manifest else run.path) / FILE)
    if out.suffix.lower() != ".csv":
        raise UserError(f"--out {out}: its name must end in .csv")
    if out.exists():
        raise UserError(f"--out {out}: it is there already, and may have been filled in; choose another")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}")
    if is_manifest and not dataset.train.content.root.resolve().is_relative_to(out.parent.resolve()):
        where = f"so it must be in {dataset.train.content.root} or a folder above"
        raise UserError(f"--out {out}: a manifest names files under its own folder, {where}")
    return out


def first_free(path: Path) -> Path:
    """The path, with a number if it is there: what people have filled in is never overwritten."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return next(free for free in chain([path], numbered) if not free.exists())


def sheet_for(run: RunFolder, path: Path) -> Path:
    """Of the picture that belongs to a file: not beside the images, or it would be taken for one of them."""
    return run.path / f"{path.stem}-sheet.png"


def write_manifest(path: Path, found: Suggestions, dataset: Dataset) -> None:
    """The chosen images first, to be labelled; then all others, so that the file can be trained on as it is."""
    root = dataset.train.content.root.resolve().relative_to(path.parent.resolve())
    rows = ((PurePosixPath(root) / image, *cells) for image, *cells in manifest_rows(found, dataset))
    _write_new(path, ("path", "label", "split", "guess", "why", "confidence"), rows)


def manifest_rows(found: Suggestions, dataset: Dataset) -> Iterator[tuple[str, ...]]:
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
                yield image, "", "train", "", "", ""  # so that whoever labels it too teaches it
            elif image not in is_chosen:
                yield image, dataset.class_names[label], part, "", "", ""


def write_list(path: Path, found: Suggestions) -> None:
    """Only the chosen samples, of data that no manifest can name."""
    rows = ((chosen.sample, "", chosen.guess, chosen.why, f"{chosen.confidence:.4f}") for chosen in found.chosen)
    sample = "path" if isinstance(found.chosen[0].sample, str) else "index"
    _write_new(path, (sample, "label", "guess", "why", "confidence"), rows)


def _write_new(path: Path, header: tuple[str, ...], rows: Iterable[tuple]) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def draw_sheet(path: Path, found: Suggestions) -> None:
    """The chosen images by guess, each with its line in the file."""
    rows = []
    for guess in found.classes.names:
        lines = [line for line, chosen in enumerate(found.chosen) if chosen.guess == guess]
        for start in range(0, len(lines), IN_A_ROW):
            some = lines[start : start + IN_A_ROW]
            index = torch.tensor([found.chosen[line].position for line in some])
            numbers = ", ".join(str(line + 2) for line in some)  # as a spreadsheet counts them, after the header
            rows.append(Row(f"{guess} (lines {numbers})", list(found.world.training.unlabelled.take(index))))
    contact_sheet(rows).save(path, "PNG")
