"""The batches of a run. Batch k depends only on the data, the settings, the seed and k."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from openworld.compute.cuda_graphs import GraphRunner
from openworld.compute.device import stage
from openworld.core.config import CLUSTERS, Training
from openworld.core.errors import UserError, named
from openworld.data.problem import TrainingSet
from openworld.data.samples import Concatenated
from openworld.ops.rng import generator

MOST_HELD_OUT, FEWEST_TO_HOLD_OUT = 1000, 100
"""Largest number of samples that are held out, and smallest size of a set of which some are."""


class View(NamedTuple):
    """One augmented view that a method requests of each sample."""

    family: str | None = None
    """Augmentation family (data/augment.py). None uses the family of the run, `--augment`."""
    size: int | float | None = None
    """Side in pixels (int), or as a fraction of the image's side (float, like 0.5). None uses the family's default."""


class Views(NamedTuple):
    """The views that a method requests of each labelled and of each unlabelled sample in a batch."""

    labelled: tuple[View, ...] = (View(),)
    unlabelled: tuple[View, ...] = (View(), View())

    @property
    def kinds(self) -> tuple[View, ...]:
        """The distinct views. Each kind is computed separately."""
        return tuple(dict.fromkeys((*self.labelled, *self.unlabelled)))


class Drawn(NamedTuple):
    """The samples and random numbers of one step, on the device. L labelled and U unlabelled samples."""

    labels: Tensor
    """(L,) class numbers."""
    index: Tensor
    """(U,) positions in the unlabelled set, or in the whole training set if the method uses no labels."""
    samples_and_numbers: tuple[Tensor, ...]
    """For each kind of view two tensors: the stored samples, with one row for each view and the labelled samples first,
    and the random numbers that decide the views."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors in one flat tuple, as `of` takes them."""
        return self.labels, self.index, *self.samples_and_numbers

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> "Drawn":
        """Build a `Drawn` from its flat tuple of tensors."""
        labels, index, *samples_and_numbers = tensors
        return Drawn(labels, index, tuple(samples_and_numbers))


@dataclass(frozen=True)
class Batch:
    """The input of a method at one step: the requested views of each sample, in the order of the request."""

    labelled_views: tuple[Tensor, ...]
    """One tensor for each view: (L, C, H, W) floats in [0, 1], or (L, D) for features."""
    labels: Tensor
    """(L,) class numbers."""
    unlabelled_views: tuple[Tensor, ...]
    """One tensor for each view: (U, C, H, W) or (U, D)."""
    index: Tensor
    """(U,) positions in the unlabelled set, or in the whole training set if the method uses no labels."""
    images: Tensor
    """All rows of the first kind of view: first the views of labelled samples, then the views of unlabelled samples."""

    @property
    def labelled(self) -> Tensor:
        """The first view of every labelled sample: (L, ...)."""
        return self.labelled_views[0]

    @property
    def views(self) -> Tensor:
        """Views of the unlabelled samples, (V * U, ...): the first view of every sample, then the second views, ..."""
        num_rows = sum(map(len, self.unlabelled_views))
        if len(self.images) == num_rows + sum(map(len, self.labelled_views)):  # there is only one kind of view
            return self.images[-num_rows:]
        return torch.cat(self.unlabelled_views)


STEPS_AHEAD = 2
"""Number of batches to read ahead if the images do not stay on the device."""


class Batches:
    """Samples the batches and their random views from a training set."""

    def __init__(self, data: TrainingSet, training: Training, seed: int, views: Views, uses_labels: bool = True):
        self.num_labelled = training.batch_labelled if uses_labels else 0
        # A method without labels treats labelled and unlabelled samples alike.
        self.unlabelled = data.unlabelled if uses_labels else Concatenated(data.labelled, data.unlabelled)
        refuse_large_batches(data, training, uses_labels)
        self.data, self.training, self.seed, self.views = data, training, seed, views
        self.held_out = (
            held_out(len(data.unlabelled)) if training.start == CLUSTERS else torch.empty(0, dtype=torch.int64)
        )
        """Positions in the unlabelled set that no batch contains."""
        is_drawn = torch.ones(len(self.unlabelled), dtype=torch.bool).index_fill_(0, self.held_out, False)
        self.drawn = is_drawn.nonzero()[:, 0]
        """Positions of the samples that batches contain."""
        self.families = [data.family_of(*kind) for kind in views.kinds]
        self._orders: dict[tuple[str, int], Tensor] = {}
        self._recorders: WeakKeyDictionary[nn.Module, GraphRunner] = WeakKeyDictionary()

    @property
    def rows(self) -> int:
        """Number of views in a batch."""
        return sum(self._rows_of(kind) for kind in self.views.kinds)

    @property
    def rows_at_once(self) -> int:
        """Number of views of the first kind in a batch.

        Passes over a whole set use chunks of this size too, because the code for it is compiled already.
        """
        return self._rows_of(self.views.kinds[0])

    def _rows_of(self, kind: View) -> int:
        counts = self.views.labelled.count(kind), self.views.unlabelled.count(kind)
        return counts[0] * self.num_labelled + counts[1] * self.training.batch_unlabelled

    def draw(self, step: int) -> Drawn:
        """Choose the samples of a step, read them, and draw the random numbers of their views."""
        data, views = self.data, self.views
        positions, index = self._positions_at(step)
        labelled, unlabelled = data.labelled.take(positions), self.unlabelled.take(index)
        samples_and_numbers = []
        for kind, family in zip(views.kinds, self.families, strict=True):
            copies = [labelled] * views.labelled.count(kind) + [unlabelled] * views.unlabelled.count(kind)
            samples = torch.cat(copies)
            purpose = "augment" if kind == View() else f"augment-{kind.family}-{kind.size}"
            samples_and_numbers += [samples, family.draw(samples, self._source(purpose, step))]
        self._read_ahead(step)
        labels = data.labels[stage(positions, data.device)]
        return Drawn(labels, stage(index, data.device), tuple(samples_and_numbers))

    def shown(self, drawn: Drawn) -> Batch:
        """Compute the views from the samples and random numbers of a step."""
        labelled, unlabelled, images = [], [], []
        for number, family in enumerate(self.families):
            images.append(family.view(*drawn.samples_and_numbers[2 * number : 2 * number + 2]))
        views = {kind: iter(self._by_view(kind, rows)) for kind, rows in zip(self.views.kinds, images, strict=True)}
        labelled = tuple(next(views[kind]) for kind in self.views.labelled)
        unlabelled = tuple(next(views[kind]) for kind in self.views.unlabelled)
        return Batch(labelled, drawn.labels, unlabelled, drawn.index, images[0])

    def _by_view(self, kind: View, rows: Tensor) -> Sequence[Tensor]:
        """Split the rows of one kind of view into one tensor for each view of the samples."""
        counts = self.views.labelled.count(kind), self.views.unlabelled.count(kind)
        return rows.split([self.num_labelled] * counts[0] + [self.training.batch_unlabelled] * counts[1])

    def at(self, step: int) -> Batch:
        """Return the batch of a step."""
        return self.shown(self.draw(step))

    def view_predictor(self, network: nn.Module, purpose: str, step: int) -> Callable[..., Tensor]:
        """Return a function that gives the network's logits for a random view of each sample.

        Call it as `predict(samples, *counters)`, with at most `rows_at_once` samples. Other counters give other views.
        The network always gets `rows_at_once` rows: the function pads the samples and cuts off the surplus logits.

        Args:
            network: Network to apply to the views.
            purpose: Name of the random-number stream.
            step: Step of the run. Other steps give other views.
        """
        family, recorder = self.data.family, self._recorders.setdefault(network, GraphRunner())

        def logits_of(samples: Tensor, numbers: Tensor) -> Tensor:
            return network(family.view(samples, numbers))

        def predict(samples: Tensor, *counters: int) -> Tensor:
            count, missing = len(samples), self.rows_at_once - len(samples)
            if missing:
                samples = torch.cat([samples, samples[:1].expand(missing, *samples.shape[1:])])
            numbers = family.draw(samples, self._source(purpose, step, *counters))
            return recorder(logits_of, samples, numbers)[:count].clone()

        return predict

    def _source(self, purpose: str, *counters: int) -> torch.Generator:
        """Return the random generator for this purpose, on the device."""
        return generator(self.seed, purpose, *counters, device=self.data.device)

    def _read_ahead(self, step: int) -> None:
        """Start to read the samples of the next steps, if samples are read from disk."""
        if self.data.unlabelled.is_streamed:
            for ahead in range(step + 1, step + 1 + STEPS_AHEAD):
                labelled, index = self._positions_at(ahead)
                self.data.labelled.prefetch(labelled)
                self.unlabelled.prefetch(index)

    def _positions_at(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the positions of the labelled and of the unlabelled samples of a step."""
        return (
            self._positions("labelled", len(self.data.labelled), self.num_labelled, step),
            self.drawn[self._positions("unlabelled", len(self.drawn), self.training.batch_unlabelled, step)],
        )

    def _positions(self, purpose: str, size: int, count: int, step: int) -> Tensor:
        """Return rows [step * count, (step + 1) * count) of an endless sequence of shuffled passes over the set."""
        if not count:
            return torch.empty(0, dtype=torch.int64)
        first, last = step * count, (step + 1) * count
        epochs = range(first // size, (last - 1) // size + 1)
        rows = torch.cat([self._order(purpose, size, epoch) for epoch in epochs])
        return rows[first - epochs[0] * size : last - epochs[0] * size]

    def _order(self, purpose: str, size: int, epoch: int) -> Tensor:
        """Return the shuffled order of one pass. The last few orders stay in memory: a pass spans many steps."""
        key = (purpose, epoch)
        if key not in self._orders:
            stale = [old for old in self._orders if old[0] == purpose and old[1] < epoch - 1]
            for old in stale:
                del self._orders[old]
            self._orders[key] = torch.randperm(size, generator=generator(self.seed, purpose, epoch))
        return self._orders[key]


def held_out(size: int) -> Tensor:
    """Return the positions of the samples that are held out of a set: a tenth, but at most `MOST_HELD_OUT`."""
    return torch.arange(0, size, max(10, size // MOST_HELD_OUT)) if size >= FEWEST_TO_HOLD_OUT else torch.arange(0)


def refuse_large_batches(data: TrainingSet, training: Training, uses_labels: bool) -> None:
    """Raise a UserError if a batch is too large.

    A batch holds each unlabelled sample at most once. It may repeat labelled samples, because there may be few of them.
    """
    everything = len(data.labelled) + len(data.unlabelled)
    most, kind = (len(data.unlabelled), "unlabelled images") if uses_labels else (everything, "images")
    if training.batch_unlabelled > most:
        setting = named("batch_unlabelled", training.batch_unlabelled)
        raise UserError(f"{setting} is larger than the {most} {kind}; use {most} or fewer")
    if uses_labels and training.batch_labelled > everything:
        setting = named("batch_labelled", training.batch_labelled)
        raise UserError(f"{setting} is larger than the {everything} training images; use {everything} or fewer")
