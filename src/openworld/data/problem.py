"""An open-world problem. What training may see and the ground truth are two objects, so that no true class leaks."""

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openworld.compute.runtime import Runtime
from openworld.core.config import NO_BACKBONE, Config
from openworld.core.errors import UserError, named
from openworld.data.augment import VIEWS, Family, family
from openworld.data.dataset import Dataset
from openworld.data.loader import Loader
from openworld.data.opening import open_dataset, reopen_dataset
from openworld.data.prior import ESTIMATED, prior_of, trust_in
from openworld.data.samples import Samples, chunk_size
from openworld.data.split import Split, make_split, own_split

FOR_FEATURES = ("mlp", "adapter")
"""Networks that take features. `identity` takes images too."""
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
    trust: float = 1.0
    """How far clusters follow the prior (`ops.sinkhorn`): 1 if it is known, less if it is only assumed."""
    estimates_prior: bool = False
    """Whether training should estimate the prior, and `prior` is only where it begins."""

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

    @property
    def has_images(self) -> bool:
        """Whether the samples are images, not features."""
        return len(self.unlabelled.shape) == 3


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
    images: dict[str, Samples]
    """What to show of the samples `labelled`, `unlabelled` and `test`: the images, also if training gets features."""
    sample_shape: tuple[int, ...]
    """Shape of a sample as the data holds it: (C, H, W) for an image, also if training gets features."""

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
            sample_shape=self.sample_shape,
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
    are_read_once = config.training.backbone != NO_BACKBONE and not config.training.finetune
    images = {
        "labelled": loader.samples("train", split.labelled, are_read_once),
        "unlabelled": loader.samples("train", split.unlabelled, are_read_once),
    }
    if dataset.test is not None:
        images["test"] = loader.samples("test", range(len(dataset.test)), are_read_once)
    mean, std = (torch.zeros(1), torch.ones(1)) if are_read_once else statistics(images["unlabelled"])
    seen_names = dataset.class_names[: split.num_seen]
    if "prior" in facts:  # a saved split holds the prior, because the file that the prior came from may be gone
        prior = torch.tensor(facts["prior"])
    else:
        prior = prior_of(split, train.labels[labelled], config, seen_names)
    training = TrainingSet(
        labelled=images["labelled"],
        labels=torch.from_numpy(train.labels[labelled]).to(runtime.device),
        unlabelled=images["unlabelled"],
        prior=prior.to(runtime.device),
        num_seen=split.num_seen,
        mean=mean,
        std=std,
        augment=config.training.augment,
        trust=trust_in(config.problem),
        estimates_prior=config.problem.prior == ESTIMATED,
    )
    names = tuple(map(train.name_of, split.unlabelled))
    truths = {"unlabelled": Truth(images["unlabelled"], train.labels[unlabelled], names)}
    if dataset.test is not None:
        names = tuple(map(dataset.test.name_of, range(len(dataset.test))))
        truths["test"] = Truth(images["test"], dataset.test.labels, names)
    class_names = names_of_outputs(seen_names, training.num_classes)
    split_is_given = dataset.is_labelled is not None
    return OpenWorld(
        training=training,
        truths=truths,
        split=split,
        fingerprint=loader.fingerprint,
        dropped=loader.dropped,
        class_names=class_names,
        split_is_given=split_is_given,
        images=images,
        sample_shape=images["unlabelled"].shape,
    )


def adapted_problem(world: OpenWorld, config: Config) -> OpenWorld:
    """Return the same samples and split with the class count, prior and augmentation of another configuration."""
    training = world.training
    seen_names = world.class_names[: training.num_seen]
    prior = prior_of(world.split, training.labels.cpu().numpy(), config, seen_names).to(training.device)
    augment = VIEWS if training.augment == VIEWS else config.training.augment
    problem = config.problem
    estimates_prior = problem.prior == ESTIMATED
    training = replace(training, prior=prior, augment=augment, trust=trust_in(problem), estimates_prior=estimates_prior)
    return replace(world, training=training, class_names=names_of_outputs(seen_names, len(prior)))


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
    has_backbone = training.backbone != NO_BACKBONE
    if has_backbone and dataset.has_features:
        advice = f"leave {named('backbone')} out"
        raise UserError(f"{named('backbone')} is for images, but {dataset.name} contains features already; {advice}")
    for setting, value, is_for_features, gets_features in (
        ("network", training.network, training.network in FOR_FEATURES, dataset.has_features or has_backbone),
        ("augment", training.augment, training.augment == "features", dataset.has_features),
    ):
        if is_for_features != gets_features and value != "identity":
            kind = "features" if gets_features else "images"
            source = "the backbone gives features" if has_backbone else f"{dataset.name} contains {kind}"
            advice = f"choose another {named(setting)}"
            raise UserError(f"{named(setting, value)} is not for {kind}, and {source}; {advice}")


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
