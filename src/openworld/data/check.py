"""Check a data set: decode every sample once, count classes and sizes, and find broken files and duplicates."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openworld.data.dataset import Dataset, Files, Part
from openworld.data.decode import BadImage, decode
from openworld.data.pool import in_pieces

FILES_PER_TASK = 16
"""Number of files that a worker decodes in one task."""


@dataclass(frozen=True)
class Finding:
    """Result of the check of one sample."""

    digest: bytes | None
    """Hash of the pixels or features: samples with the same hash are duplicates. None for a broken file."""
    size: tuple[int, int] | None
    """Width and height of an image. None for features and broken files."""
    problem: str | None
    """Reason why a file is broken, as a predicate: 'is truncated'."""


def check(dataset: Dataset, workers: int, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Return a report that can be written as JSON. `progress(done, total)` is called after each sample."""
    places = [(name, position) for name, part in dataset.parts.items() for position in range(len(part))]
    findings = []
    for part in dataset.parts.values():
        for finding in _examined(part, workers):
            findings.append(finding)
            progress(len(findings), len(places))
    groups = [_group(dataset, name, position) for name, position in places]
    samples = [str(dataset.parts[name].name_of(position)) for name, position in places]
    return {
        "name": dataset.name,
        "samples": len(places),
        "parts": _counts(dataset, groups, places),
        "sizes": _sizes([finding.size for finding in findings if finding.size]),
        "broken": [
            {"path": sample, "part": group, "reason": finding.problem}
            for sample, group, finding in zip(samples, groups, findings, strict=True)
            if finding.problem
        ],
        **_duplicates(samples, groups, findings),
        "left_out": list(dataset.left_out),
    }


def _examined(part: Part, workers: int) -> Iterator[Finding]:
    if not isinstance(part.content, Files):
        for row in part.content:
            size = (row.shape[1], row.shape[0]) if row.ndim == 3 else None
            yield Finding(hashlib.blake2b(np.ascontiguousarray(row), digest_size=16).digest(), size, None)
        return
    paths = [part.content.full_path(position) for position in range(len(part))]
    yield from in_pieces(workers, examine, paths, FILES_PER_TASK)


def examine(paths: list[str]) -> list[Finding]:
    """Check some image files; this is the task of a worker process."""
    return [_examine(Path(path)) for path in paths]


def _examine(path: Path) -> Finding:
    try:
        pixels = decode(path.read_bytes(), None)
    except BadImage as error:
        return Finding(None, None, str(error))
    except OSError as error:
        return Finding(None, None, f"cannot be read ({error.strerror})")
    digest = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(pixels))
    return Finding(digest.digest(), (pixels.shape[1], pixels.shape[0]), None)


def _group(dataset: Dataset, part: str, position: int) -> str:
    """Return labelled, unlabelled or test. For a benchmark, whose split comes later, return train or test."""
    if part == "test" or dataset.is_labelled is None:
        return part
    return "labelled" if dataset.is_labelled[position] else "unlabelled"


def _counts(dataset: Dataset, groups: list[str], places: list[tuple[str, int]]) -> dict[str, Any]:
    """Count the samples of each group, in total and for each known class."""
    classes: dict[str, Counter] = defaultdict(Counter)
    for group, (part, position) in zip(groups, places, strict=True):
        label = dataset.parts[part].labels[position]
        classes[group][dataset.class_names[label] if label >= 0 else None] += 1
    return {
        group: {
            "samples": sum(counter.values()),
            "classes": {name: counter[name] for name in dataset.class_names if counter[name]},
        }
        for group, counter in classes.items()
    }


def _sizes(sizes: list[tuple[int, int]]) -> dict[str, Any] | None:
    """Return the smallest, the median and the largest image size by area, and the number of different sizes."""
    if not sizes:
        return None
    ordered = sorted(sizes, key=lambda size: size[0] * size[1])
    return {
        "smallest": ordered[0],
        "median": ordered[len(ordered) // 2],
        "largest": ordered[-1],
        "different": len(set(sizes)),
    }


def _duplicates(samples: list[str], groups: list[str], findings: list[Finding]) -> dict[str, Any]:
    """Find samples with the same content: list those in different groups (leaks), count those within a group."""
    same = defaultdict(list)
    for sample, group, finding in zip(samples, groups, findings, strict=True):
        if finding.digest:
            same[finding.digest].append({"part": group, "path": sample})
    repeated = [members for members in same.values() if len(members) > 1]
    leaks = [members for members in repeated if len({member["part"] for member in members}) > 1]
    within = sum(len(members) - len({member["part"] for member in members}) for members in repeated)
    return {"leaks": leaks, "duplicates_within_parts": within}
