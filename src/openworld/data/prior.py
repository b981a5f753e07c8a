"""The class prior: the proportion of each class among the unlabelled samples, from counts and assumptions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from openworld.core.config import Config, Problem
from openworld.core.errors import UserError, named
from openworld.data.split import Split

TRUST_IN_ASSUMED = 0.7
"""Costs nothing where classes are equally large, and helps where they are not (docs/findings.md#finding-uneven)."""
LEAST_LEFT = 0.1
"""Part of a class that stays unlabelled at least, if its size is only assumed: proportion 0 would forbid the class."""


def prior_of(split: Split, labels: np.ndarray, config: Config) -> Tensor:
    """Return the class prior of a configuration. With `num_classes` auto it is uniform over the named classes."""
    problem = config.problem
    if problem.num_classes == "auto":
        problem = replace(problem, num_classes=None, prior="uniform")
    return class_prior(split, labels, problem)


def class_prior(split: Split, labels: np.ndarray, problem: Problem) -> Tensor:
    """Return the class proportions of the unlabelled set, computed from counts and not from its labels.

    With prior `known`, the count of a class is its size minus its labelled images. If the user requested another number
    of classes than the data set has, all sizes are assumed equal. With prior `even` they are always assumed equal. A
    uniform prior would be wrong there: the more images of the seen classes are labelled, the fewer are in the
    unlabelled set, and novel samples would fill their place.
    """
    num_classes = problem.num_classes or split.num_classes
    if num_classes < split.num_seen:
        fewest = f"{split.num_seen} seen classes; use {split.num_seen} or more"
        raise UserError(f"{named('num_classes', num_classes)} is fewer than the {fewest}")
    num_samples = len(split.labelled) + len(split.unlabelled)
    if num_classes > num_samples:
        most = f"{num_samples} training samples; use {num_samples} or fewer"
        raise UserError(f"{named('num_classes', num_classes)} is more than the {most}")
    if problem.prior == "uniform":
        return torch.full((num_classes,), 1 / num_classes)
    even = _what_labels_leave(np.full(num_classes, num_samples / num_classes), labels, LEAST_LEFT)
    if problem.prior == "even":
        return even
    if is_prior_file(problem.prior):
        return _prior_from_file(Path(problem.prior), num_classes)
    if not split.class_sizes:
        advice = f"use {named('prior', 'even')}, {named('prior', 'uniform')} or a file of class proportions"
        raise UserError(
            f"{named('prior', 'known')} needs the class sizes, which are unknown for your own data; {advice}"
        )
    if num_classes == split.num_classes:
        return _what_labels_leave(np.array(split.class_sizes, dtype=np.float64), labels)
    return even


def _what_labels_leave(sizes_K: np.ndarray, labels: np.ndarray, least: float = 0.0) -> Tensor:
    """Return the class proportions of what remains unlabelled of classes of these sizes, at least a part of each."""
    left_K = (sizes_K - np.bincount(labels, minlength=len(sizes_K))).clip(min=least * sizes_K)
    return torch.from_numpy(left_K / left_K.sum()).float()


def trust_in(problem: Problem) -> float:
    """Return how far clusters should follow the prior: strictly, unless equal class sizes are only assumed."""
    return TRUST_IN_ASSUMED if problem.prior in ("even", "uniform") else 1.0


def is_prior_file(prior: str | None) -> bool:
    """Return whether the setting `prior` is the path of a file of class proportions."""
    return prior not in (None, "known", "even", "uniform")


def _prior_from_file(path: Path, num_classes: int) -> Tensor:
    """Read one number for each class, seen classes first, separated by white space or commas. Scale the sum to 1."""
    try:
        proportions = [float(word) for word in path.read_text(encoding="utf-8").replace(",", " ").split()]
    except FileNotFoundError:
        raise UserError(
            f"{named('prior', str(path))}: no such file; use known, even, uniform, or a file of class proportions"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{named('prior', str(path))}: cannot be read as a file of numbers ({error})") from None
    if len(proportions) != num_classes:
        raise UserError(
            f"{named('prior', str(path))}: the file has {len(proportions)} numbers for {num_classes} classes; "
            "write one number for each class"
        )
    prior = torch.tensor(proportions, dtype=torch.float64)
    if not (prior.sum().isfinite() and (prior >= 0).all() and prior.sum() > 0):
        raise UserError(f"{named('prior', str(path))}: class proportions must be finite, not negative, and not all 0")
    return (prior / prior.sum()).float()
