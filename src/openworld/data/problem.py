"""An open-world problem. What training may see and the ground truth are two objects, so that no true class leaks."""

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
"""Number of samples, at most, for the mean and standard deviation of the channels."""


@dataclass(frozen=True)
class TrainingSet:
    """What training may see: all samples, the labels of the labelled ones, and the class prior."""

    labelled: Samples
    labels: Tensor
    """(L,) classes of the labelled samples, each below `num_seen`."""
    unlabelled: Samples
    prior: Tensor
    """(K,) proportion of each class among the unlabelled samples."""
    num_seen: int
    mean: Tensor
    """(C,) mean of each channel, scaled to [0, 1], or (D,) mean of each feature."""
    std: Tensor
    """(C,) or (D,) standard deviation, on the same scale."""
    augment: str
    """Augmentation family of the random views (`--augment`)."""

    @cached_property
    def family(self) -> Family:
        """The augmentation family of the run."""
        return self.family_of()

    def family_of(self, name: str | None = None, size: int | float | None = None) -> Family:
        """Return an augmentation family, by default that of the run.

        Args:
            name: Name of the family. None uses the family of the run.
            size: Side of the views in pixels (int), or as a fraction of the images' side (float). None: the default.
        """
        if isinstance(size, float):
            size = max(1, round(size * self.unlabelled.shape[-1]))
        return family(name or self.augment, self.mean.to(self.device), self.std.to(self.device), size)

    @cached_property
    def shown_shape(self) -> tuple[int, ...]:
        """Shape of a sample in evaluation."""
        return shown_shape(self.family, self.unlabelled.shape)

    @property
    def num_classes(self) -> int:
        """Number of outputs of the classifier: seen and novel classes."""
        return len(self.prior)

    @property
    def device(self) -> torch.device:
        return self.unlabelled.device


@dataclass(frozen=True)
class Truth:
    """What evaluation may see: samples with their true classes."""

    samples: Samples
    labels: np.ndarray
    """(N,) true classes, -1 if unknown."""
    names: tuple[str | int, ...]
    """Path of each sample, or its position if it has no path."""

    @property
    def is_known(self) -> bool:
        """Whether the true class of any sample is known."""
        return bool((self.labels >= 0).any())


@dataclass(frozen=True)
class OpenWorld:
    """An open-world problem: the data for training, the ground truth, and the split between them."""

    training: TrainingSet
    truths: dict[str, Truth]
    """Ground truth of the part `unlabelled`, and of `test` if the data set has a test part."""
    split: Split
    fingerprint: str
    """Hash of the data (`loader.fingerprint`)."""
    dropped: dict[str, str]
    """Broken files that were left out, with the reason."""
    class_names: tuple[str, ...]
    """Name of each output of the classifier: the names of the seen classes, then novel-1, novel-2, ..."""
    split_is_given: bool
    """Whether the data says which samples are labelled. If not, the split was sampled."""

    @property
    def evaluated_part(self) -> str | None:
        """The part on which to measure accuracy: `test`, or else `unlabelled`. None if no true classes are known."""
        known = [part for part in ("test", "unlabelled") if part in self.truths and self.truths[part].is_known]
        return known[0] if known else None

    def split_json(self) -> str:
        """Return JSON with what `load_problem` needs to load the same problem, and with facts that a model needs."""
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
    """Load the data and separate what training may see from the ground truth.

    Args:
        config: Settings of the run.
        runtime: Device, memory and workers.
        saved_split: Content of split.json of an earlier run. The data must be the same as in that run.
        dataset: Data set that is open already. None opens `config.data`.
    """
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
    # A saved split holds the prior, because the file that the prior came from may be gone.
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
    """Return the same samples and split with the class count, prior and augmentation of another configuration."""
    training = world.training
    prior = prior_of(world.split, training.labels.cpu().numpy(), config).to(training.device)
    training = replace(training, prior=prior, augment=config.training.augment)
    class_names = names_of_outputs(world.class_names[: training.num_seen], len(prior))
    return replace(world, training=training, class_names=class_names)


def names_of_outputs(seen: tuple[str, ...], num_classes: int) -> tuple[str, ...]:
    """Return the names of the seen classes, then novel-1, novel-2, ..., without names that a seen class has already."""
    unused = (name for number in itertools.count(1) if (name := f"novel-{number}") not in seen)
    return (*seen, *itertools.islice(unused, num_classes - len(seen)))


def shown_shape(views: Family, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in evaluation of a sample with this stored shape."""
    dtype = torch.uint8 if len(shape) == 3 else torch.float32
    return tuple(views.plain(torch.zeros(1, *shape, dtype=dtype)).shape[1:])


def refuse_other_data(data: str, loader: Loader, facts: dict[str, Any]) -> None:
    """Raise a UserError if the data has changed since the split was made: its positions would mean other samples."""
    if "fingerprint" not in facts:
        raise UserError("split.json is damaged: it has no fingerprint of the data; train the run again")
    if loader.fingerprint != facts["fingerprint"]:
        raise UserError(
            f"{data} has changed since the run was created: images or labels differ; restore the data, or train again"
        )
    if set(loader.dropped) != set(facts.get("dropped", {})):
        raise UserError(
            f"{data}: the images that can be decoded differ from those of the run; check the version of Pillow"
        )


def refuse_misfit(config: Config, dataset: Dataset) -> None:
    """Raise a UserError if the network or augmentation is for images and the data is features, or the reverse."""
    training = config.training
    for setting, value, is_for_features in (
        ("network", training.network, training.network == "mlp"),
        ("augment", training.augment, training.augment == "features"),
    ):
        if is_for_features != dataset.has_features and value != "identity":
            kind = "features" if dataset.has_features else "images"
            advice = f"choose another {named(setting)}"
            raise UserError(f"{named(setting, value)} is not for {kind}, and {dataset.name} contains {kind}; {advice}")


def split_of(dataset: Dataset, config: Config) -> Split:
    """Return the split that comes with user data, or sample one for a benchmark."""
    labels, num_classes = dataset.train.labels, len(dataset.class_names)
    if dataset.is_labelled is None:
        return make_split(labels, num_classes, config.problem, config.seed)
    return own_split(labels, dataset.is_labelled, num_classes, dataset.class_sizes)


def statistics(samples: Samples) -> tuple[Tensor, Tensor]:
    """Compute the mean and standard deviation of each channel, scaled to [0, 1], or of each feature."""
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
    if is_features:  # a constant feature carries no information, so any scale will do
        variance[variance <= 1e-12 * mean.square()] = 1.0
    return mean.float(), variance.clamp(min=0 if is_features else 1e-6).sqrt().float()


def prior_of(split: Split, labels: np.ndarray, config: Config) -> Tensor:
    """Return the class prior of a configuration. With `num_classes` auto it is uniform over the named classes."""
    problem = config.problem
    if problem.num_classes == "auto":
        problem = replace(problem, num_classes=None, prior="uniform")
    return class_prior(split, labels, problem)


def class_prior(split: Split, labels: np.ndarray, problem: Problem) -> Tensor:
    """Return the class proportions of the unlabelled set, computed from counts and not from its labels.

    With prior `known`, the count of a class is its size minus its labelled images. If the user requested another number
    of classes than the data set has, all sizes are assumed equal. A uniform prior would be wrong: the more images of
    the seen classes are labelled, the fewer are in the unlabelled set, and novel samples would fill their place.
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
    if is_prior_file(problem.prior):
        return _prior_from_file(Path(problem.prior), num_classes)
    if not split.class_sizes:
        known, uniform = named("prior", "known"), named("prior", "uniform")
        advice = f"use {uniform} or a file of class proportions"
        raise UserError(f"{known} needs the class sizes, which are unknown for your own data; {advice}")
    if num_classes == split.num_classes:
        sizes = np.array(split.class_sizes, dtype=np.float64)
    else:
        sizes = np.full(num_classes, sum(split.class_sizes) / num_classes)
    sizes -= np.bincount(labels, minlength=num_classes)
    sizes = sizes.clip(min=0)
    return torch.from_numpy(sizes / sizes.sum()).float()


def is_prior_file(prior: str | None) -> bool:
    """Return whether the setting `prior` is the path of a file of class proportions."""
    return prior not in (None, "known", "uniform")


def _prior_from_file(path: Path, num_classes: int) -> Tensor:
    """Read one number for each class, seen classes first, separated by white space or commas. Scale the sum to 1."""
    try:
        proportions = [float(word) for word in path.read_text(encoding="utf-8").replace(",", " ").split()]
    except FileNotFoundError:
        raise UserError(
            f"{named('prior', str(path))}: no such file; use known, uniform, or a file of class proportions"
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
