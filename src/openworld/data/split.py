"""From labels to an open-world problem: which classes are seen, and which of their images keep their label."""

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from openworld.core.config import Problem
from openworld.core.errors import UserError, named
from openworld.ops.rng import derived_seed


@dataclass(frozen=True)
class Split:
    """Positions in the training part. Seen classes are 0 .. num_seen - 1, the first in label order."""

    num_seen: int
    num_classes: int
    """Classes that the set really has: what is known of it, not what a user asked for."""
    labelled: tuple[int, ...]
    unlabelled: tuple[int, ...]
    class_sizes: tuple[int, ...]
    """Training images of each class, labelled and unlabelled together: the counts that a prior may know. Own data,
    where nobody counted, has none."""

    def to_json(self, **facts: Any) -> str:
        """The split, and facts that belong to it, as text."""
        return json.dumps({**facts, **asdict(self)})

    @staticmethod
    def from_json(text: str, where: str = "split.json") -> tuple["Split", dict[str, Any]]:
        """The split and the facts; `where` it comes from, to be told to people."""
        try:
            facts = json.loads(text)
            mine = {field.name: facts.pop(field.name) for field in fields(Split)}
        except (ValueError, KeyError, AttributeError) as error:
            raise UserError(f"{where} is damaged ({error}): without it a run is lost, train again") from None
        return Split(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in mine.items()}
        ), facts


def make_split(labels: np.ndarray, num_classes: int, problem: Problem, seed: int) -> Split:
    """The paper's split: the first classes in label order are seen, and of each a share keeps its labels.

    Pure, and the same on any machine and in any release: images are ranked by a hash of seed and position.
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
            raise UserError(f"class {label} is to be seen, but has no image in the training part")
        labelled.extend(positions[: _at_least_one(len(positions) * problem.labelled / 100)])
    chosen = set(labelled)
    unlabelled = [position for positions in kept for position in positions if position not in chosen]
    if not unlabelled:
        raise UserError("every training image is labelled: there is nothing to discover")
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
    """The split that comes with a person's own data: what is labelled is labelled."""
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
    """Class i of K keeps n * imbalance^(-i / (K - 1)) of its n images, at least one."""
    sizes = np.bincount(labels, minlength=num_classes)
    last = max(num_classes - 1, 1)
    return [min(int(n), max(1, math.floor(n * imbalance ** (-label / last) + 1e-9))) for label, n in enumerate(sizes)]


def _at_least_one(share: float) -> int:
    """Rounded up, where 10% of 500 is 50 even if floating point has a last bit to add."""
    return max(1, math.ceil(share - 1e-9))


def _ranked(positions: np.ndarray, seed: int) -> list[int]:
    """The positions in an order that is random in the seed."""
    return sorted(map(int, positions), key=lambda position: derived_seed(seed, "split", position))
