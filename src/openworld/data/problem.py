"""What training may see, and what only evaluation may: two objects, so that the truth cannot leak."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from openworld.config import Config, Problem
from openworld.data.images import load_dataset
from openworld.data.split import Split, make_split
from openworld.errors import UserError


@dataclass(frozen=True)
class TrainingSet:
    """The training side: images, the labels of the few that have one, and what is known of the classes."""

    labelled: Tensor
    """(L, C, H, W) uint8."""
    labels: Tensor
    """(L,) class numbers below num_seen."""
    unlabelled: Tensor
    """(U, C, H, W) uint8."""
    prior: Tensor
    """(K,) the share of each class among the unlabelled images."""
    num_seen: int

    @property
    def num_classes(self) -> int:
        """Outputs of the classifier: seen and novel."""
        return len(self.prior)

    @property
    def device(self) -> torch.device:
        return self.unlabelled.device


@dataclass(frozen=True)
class Truth:
    """The evaluation side: images with their true classes."""

    images: Tensor
    """(N, C, H, W) uint8."""
    labels: np.ndarray
    """(N,) true classes."""


@dataclass(frozen=True)
class OpenWorld:
    """A problem, posed: the two sides, and how they came about."""

    training: TrainingSet
    truths: dict[str, Truth]
    """Of the parts `unlabelled` and `test`."""
    split: Split
    fingerprint: str
    class_names: tuple[str, ...]
    """One for each output of the classifier: the seen classes' own names, then novel-1, novel-2, ..."""

    def split_json(self) -> str:
        """What `pose` needs to pose the same problem again."""
        return self.split.to_json(fingerprint=self.fingerprint, prior=self.training.prior.tolist())


def pose(config: Config, device: torch.device, saved_split: str | None = None) -> OpenWorld:
    """Load the data and separate what training sees from the truth; a saved split is held to its data."""
    dataset = load_dataset(config.data)
    fingerprint = dataset.fingerprint()
    if saved_split is None:
        split, facts = make_split(dataset.train.labels, len(dataset.class_names), config.problem, config.seed), {}
    else:
        split, facts = Split.from_json(saved_split)
        if fingerprint != facts["fingerprint"]:
            raise UserError(f"{config.data} has changed since the run was made: its images or labels are not the same")
    labelled, unlabelled = np.array(split.labelled), np.array(split.unlabelled)
    train, test = dataset.train, dataset.test
    if "prior" in facts:  # the file that it came from may be gone
        prior = torch.tensor(facts["prior"])
    else:
        prior = class_prior(split, train.labels[labelled], config.problem)
    training = TrainingSet(
        labelled=to_tensor(train.pixels[labelled], device),
        labels=torch.from_numpy(train.labels[labelled]).to(device),
        unlabelled=to_tensor(train.pixels[unlabelled], device),
        prior=prior.to(device),
        num_seen=split.num_seen,
    )
    truths = {
        "unlabelled": Truth(training.unlabelled, train.labels[unlabelled]),
        "test": Truth(to_tensor(test.pixels, device), test.labels),
    }
    novel_names = [f"novel-{number + 1}" for number in range(training.num_classes - split.num_seen)]
    names = (*dataset.class_names[: split.num_seen], *novel_names)
    return OpenWorld(training, truths, split, fingerprint, names)


def to_tensor(pixels_NHWC: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(pixels_NHWC.transpose(0, 3, 1, 2).copy()).to(device)


def class_prior(split: Split, labels: np.ndarray, problem: Problem) -> Tensor:
    """The class shares of the *unlabelled* set, from counts that are known without its labels.

    With `known`, a class has its size less its labelled images; where the number of classes was not taken
    from the set, the sizes are assumed equal. A uniform prior would be wrong: the more of the seen classes
    is labelled, the less of them is in the unlabelled set, and novel samples would fill their place.
    """
    num_classes = problem.num_classes or split.num_classes
    if num_classes < split.num_seen:
        raise UserError(f"--num-classes {num_classes} is fewer than the {split.num_seen} seen classes")
    if problem.prior == "uniform":
        return torch.full((num_classes,), 1 / num_classes)
    if problem.prior != "known":
        return _prior_from_file(Path(problem.prior), num_classes)
    if num_classes == split.num_classes:
        sizes = np.array(split.class_sizes, dtype=np.float64)
    else:
        sizes = np.full(num_classes, sum(split.class_sizes) / num_classes)
    sizes -= np.bincount(labels, minlength=num_classes)
    sizes = sizes.clip(min=0)
    return torch.from_numpy(sizes / sizes.sum()).float()


def _prior_from_file(path: Path, num_classes: int) -> Tensor:
    """One number a class, seen classes first, separated by white space or commas; scaled to sum to one."""
    try:
        shares = [float(word) for word in path.read_text(encoding="utf-8").replace(",", " ").split()]
    except FileNotFoundError:
        raise UserError(f"--prior {path}: not known, uniform, or a file that exists") from None
    except (OSError, ValueError) as error:
        raise UserError(f"--prior {path}: not a file of numbers ({error})") from None
    if len(shares) != num_classes:
        raise UserError(f"--prior {path}: holds {len(shares)} numbers for {num_classes} classes")
    prior = torch.tensor(shares, dtype=torch.float64)
    if not (prior.sum().isfinite() and (prior >= 0).all() and prior.sum() > 0):
        raise UserError(f"--prior {path}: shares must be finite, not negative, and not all zero")
    return (prior / prior.sum()).float()
