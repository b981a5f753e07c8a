"""The class prior: the proportion of each class among the unlabelled samples, from counts and assumptions."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from openworld.core.config import NCD, Config, Problem
from openworld.core.errors import UserError, did_you_mean, named
from openworld.data.split import Split

TRUST_IN_ASSUMED = 0.7
"""Costs nothing where classes are equally large, and helps where they are not (docs/findings.md#finding-uneven)."""
ESTIMATED = "estimated"
"""The prior that begins as `even`, and that training moves to the predicted proportions."""
LEAST_LEFT = 0.1
"""Part of a class that stays unlabelled at least, if its size is only assumed: proportion 0 would forbid the class."""
ROUNDING = 0.01
"""How far the sum of the proportions in a file may be from 1, because they are rounded."""


def prior_of(split: Split, labels: np.ndarray, config: Config, seen_names: tuple[str, ...]) -> Tensor:
    """Return the class prior of a configuration. With `num_classes` auto it is uniform over the named classes."""
    problem = config.problem
    if problem.num_classes == "auto":
        problem = replace(problem, num_classes=None, prior="uniform", task="open-world")
    return class_prior(split, labels, problem, seen_names)


def class_prior(split: Split, labels: np.ndarray, problem: Problem, seen_names: tuple[str, ...] = ()) -> Tensor:
    """Return the class proportions of the unlabelled set, computed from counts and not from its labels.

    With prior `known`, the count of a class is its size minus its labelled images. If the user requested another number
    of classes than the data set has, all sizes are assumed equal. With prior `even` they are always assumed equal. A
    uniform prior would be wrong there: the more images of the seen classes are labelled, the fewer are in the
    unlabelled set, and novel samples would fill their place. In novel class discovery the seen classes have
    proportion 0.
    """
    num_classes = problem.num_classes or split.num_classes
    if num_classes < split.num_seen:
        fewest = f"{split.num_seen} seen classes; use {split.num_seen} or more"
        raise UserError(f"{named('num_classes', num_classes)} is fewer than the {fewest}")
    num_samples = len(split.labelled) + len(split.unlabelled)
    if num_classes > num_samples:
        most = f"{num_samples} training samples; use {num_samples} or fewer"
        raise UserError(f"{named('num_classes', num_classes)} is more than the {most}")
    if is_prior_file(problem.prior):
        prior_K = _prior_from_file(Path(problem.prior), num_classes, seen_names)
        if problem.task == NCD and prior_K[: split.num_seen].any():
            task, wanted = named("task", NCD), "write 0 for each seen class"
            raise UserError(f"{named('prior', problem.prior)}: with {task} no image is of a seen class; {wanted}")
        return prior_K
    prior_K = _prior_by_name(problem, split, labels, num_classes)
    return prior_K if problem.task != NCD else _without_seen(prior_K, split.num_seen)


def _prior_by_name(problem: Problem, split: Split, labels: np.ndarray, num_classes: int) -> Tensor:
    """Return the prior `known`, `even`, `uniform` or `estimated`, which begins as `even`."""
    if problem.prior == "uniform":
        return torch.full((num_classes,), 1 / num_classes)
    num_samples = len(split.labelled) + len(split.unlabelled)
    even_K = _what_labels_leave(np.full(num_classes, num_samples / num_classes), labels, LEAST_LEFT)
    if problem.prior in ("even", ESTIMATED):
        return even_K
    if not split.class_sizes:
        advice = f"use {named('prior', 'even')}, {named('prior', ESTIMATED)} or a file of class proportions"
        raise UserError(
            f"{named('prior', 'known')} needs the class sizes, which are unknown for your own data; {advice}"
        )
    if num_classes == split.num_classes:
        return _what_labels_leave(np.array(split.class_sizes, dtype=np.float64), labels)
    return even_K


def _what_labels_leave(sizes_K: np.ndarray, labels: np.ndarray, least: float = 0.0) -> Tensor:
    """Return the class proportions of what remains unlabelled of classes of these sizes, at least a part of each."""
    left_K = (sizes_K - np.bincount(labels, minlength=len(sizes_K))).clip(min=least * sizes_K)
    return torch.from_numpy(left_K / left_K.sum()).float()


def _without_seen(prior_K: Tensor, num_seen: int) -> Tensor:
    """Return the prior of novel class discovery: no unlabelled sample is of a seen class."""
    novel_K = torch.cat([torch.zeros(num_seen), prior_K[num_seen:]])
    if not novel_K.any():
        more = f"{named('num_classes')} must be more than the {num_seen} seen classes"
        raise UserError(f"{named('task', NCD)} needs novel classes: {more}")
    return novel_K / novel_K.sum()


def trust_in(problem: Problem) -> float:
    """Return how far clusters should follow the prior: strictly, unless equal class sizes are only assumed."""
    return TRUST_IN_ASSUMED if problem.prior in ("even", "uniform", ESTIMATED) else 1.0


def is_prior_file(prior: str | None) -> bool:
    """Return whether the setting `prior` is the path of a file of class proportions."""
    return prior not in (None, "known", "even", "uniform", ESTIMATED)


def _prior_from_file(path: Path, num_classes: int, seen_names: tuple[str, ...]) -> Tensor:
    """Read one proportion for each class, seen classes first, separated by white space or commas.

    A line may also hold the name of a class and its proportion, `cat 0.2`. Then all lines must do so; the names that
    are not of seen classes belong to novel classes.
    """
    where = named("prior", str(path))
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        choices = f"known, even, uniform, {ESTIMATED}"
        raise UserError(f"{where}: no such file; use {choices}, or a file of class proportions") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{where}: cannot be read as a file of numbers ({error})") from None
    pairs = [*map(_name_and_number, lines)]
    has_names = _has_names(pairs, seen_names)
    words = _in_order(pairs, seen_names, where) if has_names else " ".join(lines).replace(",", " ").split()
    wrong = next((word for word in words if not _is_number(word)), None)
    if wrong is not None:
        raise UserError(f"{where}: {wrong} is not a number; write one proportion for each class")
    if len(words) != num_classes:
        raise UserError(
            f"{where}: the file has {len(words)} numbers for {num_classes} classes; write one number for each class"
        )
    prior = torch.tensor([float(word) for word in words], dtype=torch.float64)
    if not (prior.isfinite().all() and (prior >= 0).all()):
        raise UserError(f"{where}: class proportions must be finite and not negative")
    if abs(float(prior.sum()) - 1) > ROUNDING:
        raise UserError(f"{where}: the class proportions sum to {prior.sum():g}, not to 1; divide each by the sum")
    return (prior / prior.sum()).float()


def _name_and_number(line: str) -> tuple[str, str]:
    """Return what is before the last white space or comma of a line, and what follows.

    >>> _name_and_number("Boxer, German, 0.2")
    ('Boxer, German', '0.2')
    """
    name, number = re.fullmatch(r"(?:(.*)[\s,])?([^\s,]*)", line).groups()
    return (name or "").rstrip(", \t"), number


def _has_names(pairs: list[tuple[str, str]], seen_names: tuple[str, ...]) -> bool:
    """Return whether each line begins with the name of a class. The names of some classes are numbers."""
    names = {name for name, _ in pairs}
    is_complete = bool(seen_names) and names >= {*seen_names}
    return "" not in names and (is_complete or not all(_is_number(re.split(r"[\s,]", name)[0]) for name in names))


def _in_order(pairs: list[tuple[str, str]], seen_names: tuple[str, ...], where: str) -> list[str]:
    """Return the proportions of lines with names, seen classes first."""
    proportions: dict[str, str] = {}
    for name, proportion in pairs:
        if name in proportions:
            raise UserError(f"{where}: class {name} has more than one line; write one line for each class")
        proportions[name] = proportion
    missing = next((name for name in seen_names if name not in proportions), None)
    if missing is not None:
        others = [name for name in proportions if name not in seen_names]
        raise UserError(f"{where}: no line for the seen class {missing}{did_you_mean(missing, others)}")
    return [*map(proportions.pop, seen_names), *proportions.values()]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
