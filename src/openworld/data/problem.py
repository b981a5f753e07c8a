"""What training may see, and what only evaluation may: two objects, so that the truth cannot leak."""

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openworld.compute.runtime import Runtime
from openworld.core.config import Config, Problem
from openworld.core.errors import UserError, named
from openworld.data.augment import Family, family
from openworld.data.dataset import Dataset
from openworld.data.loader import Loader
from openworld.data.opening import open_dataset, reopen_dataset
from openworld.data.samples import Samples, chunk_size
from openworld.data.split import Split, make_split, own_split

STATISTICS_SAMPLES = 2048
"""Samples from which the mean and deviation of the channels are taken."""


@dataclass(frozen=True)
class TrainingSet:
    """The training side: samples, the labels of the few that have one, and what is known of the classes."""

    labelled: Samples
    labels: Tensor
    """(L,) class numbers below num_seen."""
    unlabelled: Samples
    prior: Tensor
    """(K,) the share of each class among the unlabelled samples."""
    num_seen: int
    mean: Tensor
    """(C,) of the channels, scaled to [0, 1]; (D,) of the features."""
    std: Tensor
    augment: str
    """The family of the random views (`--augment`)."""

    @cached_property
    def family(self) -> Family:
        """How views of the samples are made."""
        return self.family_of()

    def family_of(self, name: str | None = None, size: int | float | None = None) -> Family:
        """Of another name or size, where one is given: in pixels, or as a share of the images' side."""
        if isinstance(size, float):
            size = max(1, round(size * self.unlabelled.shape[-1]))
        return family(name or self.augment, self.mean.to(self.device), self.std.to(self.device), size)

    @cached_property
    def shown_shape(self) -> tuple[int, ...]:
        """Of a sample as it is judged."""
        return shown_shape(self.family, self.unlabelled.shape)

    @property
    def num_classes(self) -> int:
        """Outputs of the classifier: seen and novel."""
        return len(self.prior)

    @property
    def device(self) -> torch.device:
        return self.unlabelled.device


@dataclass(frozen=True)
class Truth:
    """The evaluation side: samples with their true classes."""

    samples: Samples
    labels: np.ndarray
    """(N,) true classes; -1 where nobody knows."""
    names: tuple[str | int, ...]
    """How a person finds each sample again: its path, or its position."""

    @property
    def is_known(self) -> bool:
        return bool((self.labels >= 0).any())


@dataclass(frozen=True)
class OpenWorld:
    """A problem, posed: the two sides, and how they came about."""

    training: TrainingSet
    truths: dict[str, Truth]
    """Of the part `unlabelled`, and of `test` where there is one."""
    split: Split
    fingerprint: str
    dropped: dict[str, str]
    """Files that were left out because they are broken, with the reason."""
    class_names: tuple[str, ...]
    """One for each output of the classifier: the seen classes' own names, then novel-1, novel-2, ..."""
    split_is_given: bool
    """Whether the split came with the data; else it was drawn."""

    @property
    def evaluated_part(self) -> str | None:
        """Where accuracies can be measured: the test part, or else the unlabelled one, if its classes are known."""
        known = [part for part in ("test", "unlabelled") if part in self.truths and self.truths[part].is_known]
        return known[0] if known else None

    def split_json(self) -> str:
        """What `load_problem` needs to load the same problem again, and what a model has to know of its samples."""
        return self.split.to_json(
            fingerprint=self.fingerprint,
            prior=self.training.prior.tolist(),
            dropped=self.dropped,
            class_names=self.class_names,
            sample_shape=self.training.unlabelled.shape,
            split_is_given=self.split_is_given,
        )


def load_problem(
    config: Config, runtime: Runtime, saved_split: str | None = None, dataset: Dataset | None = None
) -> OpenWorld:
    """Load the data and separate what training sees from the truth; a saved split is held to its data."""
    open_it = open_dataset if saved_split is None else reopen_dataset
    dataset = dataset or open_it(config.data, runtime.data_dir)
    refuse_misfit(config, dataset)
    loader = Loader(dataset, config.training.image_size, config.on_bad_image, runtime)
    dataset = loader.dataset
    if saved_split is None:
        split, facts = split_of(dataset, config), {}
    else:
        split, facts = Split.from_json(saved_split)
        refuse_other_data(config.data, loader, facts)
    train = dataset.train
    labelled, unlabelled = np.array(split.labelled), np.array(split.unlabelled)
    unlabelled_samples = loader.samples("train", split.unlabelled)
    mean, std = statistics(unlabelled_samples)
    # the file that shares came from may be gone
    prior = torch.tensor(facts["prior"]) if "prior" in facts else prior_of(split, train.labels[labelled], config)
    training = TrainingSet(
        labelled=loader.samples("train", split.labelled),
        labels=torch.from_numpy(train.labels[labelled]).to(runtime.device),
        unlabelled=unlabelled_samples,
        prior=prior.to(runtime.device),
        num_seen=split.num_seen,
        mean=mean,
        std=std,
        augment=config.training.augment,
    )
    names = tuple(map(train.name_of, split.unlabelled))
    truths = {"unlabelled": Truth(unlabelled_samples, train.labels[unlabelled], names)}
    if dataset.test is not None:
        positions = range(len(dataset.test))
        names = tuple(map(dataset.test.name_of, positions))
        truths["test"] = Truth(loader.samples("test", positions), dataset.test.labels, names)
    class_names = names_of_outputs(dataset.class_names[: split.num_seen], training.num_classes)
    split_is_given = dataset.is_labelled is not None
    return OpenWorld(training, truths, split, loader.fingerprint, loader.dropped, class_names, split_is_given)


def adapted_problem(world: OpenWorld, config: Config) -> OpenWorld:
    """The same samples and split, with the class count, the prior and the views of another configuration."""
    training = world.training
    prior = prior_of(world.split, training.labels.cpu().numpy(), config).to(training.device)
    training = replace(training, prior=prior, augment=config.training.augment)
    class_names = names_of_outputs(world.class_names[: training.num_seen], len(prior))
    return replace(world, training=training, class_names=class_names)


def names_of_outputs(seen: tuple[str, ...], num_classes: int) -> tuple[str, ...]:
    """The seen classes' own names, then novel-1, novel-2, ...; numbers are left out that a seen class has taken."""
    free = (name for number in itertools.count(1) if (name := f"novel-{number}") not in seen)
    return (*seen, *itertools.islice(free, num_classes - len(seen)))


def shown_shape(views: Family, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of a sample of this shape, as it is judged."""
    dtype = torch.uint8 if len(shape) == 3 else torch.float32
    return tuple(views.plain(torch.zeros(1, *shape, dtype=dtype)).shape[1:])


def refuse_other_data(data: str, loader: Loader, facts: dict[str, Any]) -> None:
    """A split is made of positions: they must mean the same samples as when it was made."""
    if "fingerprint" not in facts:
        raise UserError("split.json is damaged: it does not say which data it belongs to")
    if loader.fingerprint != facts["fingerprint"]:
        raise UserError(f"{data} has changed since the run was made: its images or labels are not the same")
    if set(loader.dropped) != set(facts.get("dropped", {})):
        raise UserError(f"{data}: other images than before can be decoded here; another version of Pillow, perhaps?")


def refuse_misfit(config: Config, dataset: Dataset) -> None:
    """Networks and views for images do nothing for features, and the other way round."""
    training = config.training
    for setting, value, is_for_features in (
        ("network", training.network, training.network == "mlp"),
        ("augment", training.augment, training.augment == "features"),
    ):
        if is_for_features != dataset.has_features and value != "identity":
            kind = "features" if dataset.has_features else "images"
            raise UserError(f"{named(setting, value)} is not for {kind}, which {dataset.name} holds")


def split_of(dataset: Dataset, config: Config) -> Split:
    labels, num_classes = dataset.train.labels, len(dataset.class_names)
    if dataset.is_labelled is None:
        return make_split(labels, num_classes, config.problem, config.seed)
    return own_split(labels, dataset.is_labelled, num_classes, dataset.class_sizes)


def statistics(samples: Samples) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel over all pixels, scaled to [0, 1], or of each feature."""
    stride = -(-len(samples) // STATISTICS_SAMPLES)
    is_features = len(samples.shape) == 1
    scale = 1 if is_features else 255
    sums = squares = torch.zeros(samples.shape[0], dtype=torch.float64)
    count = 0
    for index in torch.arange(0, len(samples), stride).split(chunk_size(samples.shape)):
        values_CN = samples.take(index).cpu().double().transpose(0, 1).flatten(1) / scale
        sums, squares = sums + values_CN.sum(dim=1), squares + values_CN.square().sum(dim=1)
        count += values_CN.shape[1]
    mean = sums / count
    variance = squares / count - mean.square()
    if is_features:  # of any scale; one that never changes says nothing, however it is scaled
        variance[variance <= 1e-12 * mean.square()] = 1.0
    return mean.float(), variance.clamp(min=0 if is_features else 1e-6).sqrt().float()


def prior_of(split: Split, labels: np.ndarray, config: Config) -> Tensor:
    """By what a configuration says of the classes; as long as they are to be counted, equal shares of those named."""
    problem = config.problem
    if problem.num_classes == "auto":
        problem = replace(problem, num_classes=None, prior="uniform")
    return class_prior(split, labels, problem)


def class_prior(split: Split, labels: np.ndarray, problem: Problem) -> Tensor:
    """The class shares of the *unlabelled* set, from counts that are known without its labels.

    With `known`, a class has its size less its labelled images; where the number of classes was not taken
    from the set, the sizes are assumed equal. A uniform prior would be wrong: the more of the seen classes
    is labelled, the less of them is in the unlabelled set, and novel samples would fill their place.
    """
    num_classes = problem.num_classes or split.num_classes
    if num_classes < split.num_seen:
        raise UserError(f"{named('num_classes', num_classes)} is fewer than the {split.num_seen} seen classes")
    if num_classes > len(split.labelled) + len(split.unlabelled):
        raise UserError(f"{named('num_classes', num_classes)} is more than there are samples")
    if problem.prior == "uniform":
        return torch.full((num_classes,), 1 / num_classes)
    if is_file_of_shares(problem.prior):
        return _prior_from_file(Path(problem.prior), num_classes)
    if not split.class_sizes:
        counted = "nobody counted the classes of your own data; uniform, or a file of shares"
        raise UserError(f"{named('prior', 'known')}: {counted}")
    if num_classes == split.num_classes:
        sizes = np.array(split.class_sizes, dtype=np.float64)
    else:
        sizes = np.full(num_classes, sum(split.class_sizes) / num_classes)
    sizes -= np.bincount(labels, minlength=num_classes)
    sizes = sizes.clip(min=0)
    return torch.from_numpy(sizes / sizes.sum()).float()


def is_file_of_shares(prior: str | None) -> bool:
    return prior not in (None, "known", "uniform")


def _prior_from_file(path: Path, num_classes: int) -> Tensor:
    """One number a class, seen classes first, separated by white space or commas; scaled to sum to one."""
    try:
        shares = [float(word) for word in path.read_text(encoding="utf-8").replace(",", " ").split()]
    except FileNotFoundError:
        raise UserError(f"{named('prior', str(path))}: not known, uniform, or a file that exists") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{named('prior', str(path))}: not a file of numbers ({error})") from None
    if len(shares) != num_classes:
        raise UserError(f"{named('prior', str(path))}: holds {len(shares)} numbers for {num_classes} classes")
    prior = torch.tensor(shares, dtype=torch.float64)
    if not (prior.sum().isfinite() and (prior >= 0).all() and prior.sum() > 0):
        raise UserError(f"{named('prior', str(path))}: shares must be finite, not negative, and not all zero")
    return (prior / prior.sum()).float()
