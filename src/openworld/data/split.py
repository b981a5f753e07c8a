"""The split of a data set into an open-world problem: which classes are seen, and which images keep their label."""

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from openworld.core.config import NCD, Problem
from openworld.core.errors import UserError, named
from openworld.ops.rng import derived_seed


@dataclass(frozen=True)
class Split:
    """Positions of labelled and unlabelled samples in the training part.

    The seen classes are 0 .. num_seen - 1, the first in label order.
    """

    num_seen: int
    num_classes: int
    """Number of classes that the data set names. The user may request another number (`--num-classes`)."""
    labelled: tuple[int, ...]
    unlabelled: tuple[int, ...]
    class_sizes: tuple[int, ...]
    """Number of training images of each class, labelled and unlabelled together, for `--prior known`. Empty for user
    data whose class sizes are unknown."""

    def to_json(self, **facts: Any) -> str:
        """Return the split and further facts as JSON text."""
        return json.dumps({**facts, **asdict(self)})

    @staticmethod
    def from_json(text: str, where: str = "split.json") -> tuple["Split", dict[str, Any]]:
        """Return the split and the further facts. An error message names `where` the text comes from."""
        try:
            facts = json.loads(text)
            values = {field.name: facts.pop(field.name) for field in fields(Split)}
        except (ValueError, KeyError, AttributeError) as error:
            raise UserError(
                f"{where} is damaged ({error}), and a run cannot be used without it; train the run again"
            ) from None
        return Split(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        ), facts


def make_split(labels: np.ndarray, num_classes: int, problem: Problem, seed: int) -> Split:
    """Make the split of the paper: the first classes in label order are seen, and some of their images keep the label.

    In novel class discovery, the images of seen classes that do not keep their label are left out. The split depends
    only on the arguments. It is the same on any machine and in any release, because images are ranked
    by a hash of seed and position.

    Args:
        labels: (N,) class of each training image.
        num_classes: Number of classes.
        problem: Task, percentages of novel classes and labelled images, and the class imbalance.
        seed: Seed of the random choice.
    """
    num_seen = num_classes - math.floor(num_classes * problem.novel / 100 + 1e-9)
    if num_seen < 2:
        raise UserError(
            f"{named('novel')} {problem.novel:g} leaves {num_seen} of {num_classes} classes seen; at least 2 are needed"
        )
    kept = [
        _ranked(np.flatnonzero(labels == label), seed)[:size]
        for label, size in enumerate(_kept_sizes(labels, num_classes, problem.imbalance))
    ]
    labelled: list[int] = []
    for label, positions in enumerate(kept[:num_seen]):
        if not len(positions):
            raise UserError(f"class {label} must be a seen class, but the training part has no image of it")
        labelled.extend(positions[: _at_least_one(len(positions) * problem.labelled / 100)])
    chosen = set(labelled)
    if problem.task == NCD:
        kept = [[position for position in positions if position in chosen] for positions in kept[:num_seen]] + kept[
            num_seen:
        ]
    unlabelled = [position for positions in kept for position in positions if position not in chosen]
    if not unlabelled:
        raise UserError(f"every training image is labelled; decrease {named('labelled')} or increase {named('novel')}")
    return Split(
        num_seen=num_seen,
        num_classes=num_classes,
        labelled=tuple(sorted(labelled)),
        unlabelled=tuple(sorted(unlabelled)),
        class_sizes=tuple(map(len, kept)),
    )


def own_split(
    labels: np.ndarray, is_labelled: np.ndarray, num_classes: int, class_sizes: tuple[int, ...] = ()
) -> Split:
    """Return the split of user data, which says itself which samples are labelled."""
    labelled = np.flatnonzero(is_labelled)
    seen = np.unique(labels[labelled])
    if not np.array_equal(seen, np.arange(len(seen))):
        raise ValueError("the classes with labelled samples must be the first ones")
    return Split(
        num_seen=len(seen),
        num_classes=num_classes,
        labelled=tuple(labelled.tolist()),
        unlabelled=tuple(np.flatnonzero(~is_labelled).tolist()),
        class_sizes=class_sizes,
    )


def _kept_sizes(labels: np.ndarray, num_classes: int, imbalance: float) -> list[int]:
    """Return how many images each class keeps: n * imbalance^(-i / (K - 1)) of the n in class i."""
    sizes = np.bincount(labels, minlength=num_classes)
    last = max(num_classes - 1, 1)
    kept = [math.floor(n * imbalance ** (-label / last) + 1e-9) for label, n in enumerate(sizes)]
    emptied = next((label for label, n in enumerate(sizes) if n and not kept[label]), None)
    if emptied is not None:
        lost = f"leaves no image of class {emptied}, which has {sizes[emptied]}"
        raise UserError(f"{named('imbalance')} {imbalance:g} {lost}; use a smaller factor")
    return kept


def _at_least_one(count: float) -> int:
    """Round up, to at least 1. The tolerance makes 10% of 500 equal to 50 despite rounding errors."""
    return max(1, math.ceil(count - 1e-9))


def _ranked(positions: np.ndarray, seed: int) -> list[int]:
    """Return the positions in a random order that depends on the seed."""
    return sorted(map(int, positions), key=lambda position: derived_seed(seed, "split", position))
