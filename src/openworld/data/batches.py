"""Batch k of a run: a function of the seed and of k alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from openworld.compute.cuda_graphs import GraphRunner
from openworld.compute.device import stage
from openworld.core.config import Training
from openworld.core.errors import UserError, named
from openworld.data.problem import TrainingSet
from openworld.data.samples import Concatenated
from openworld.ops.rng import generator


class View(NamedTuple):
    """A random view of a sample that a method wants in a batch."""

    family: str | None = None
    """Of the views (data/augment.py); None: the one of the run, `--augment`."""
    size: int | float | None = None
    """Side in pixels, or as a share of the image's own (0.5); None: as the family has it."""


class Views(NamedTuple):
    """The views that a method wants of each labelled and of each unlabelled sample of a batch."""

    labelled: tuple[View, ...] = (View(),)
    unlabelled: tuple[View, ...] = (View(), View())

    @property
    def kinds(self) -> tuple[View, ...]:
        """Those that differ, which are made one after the other."""
        return tuple(dict.fromkeys((*self.labelled, *self.unlabelled)))


class Drawn(NamedTuple):
    """What is drawn for one step, on the device. L labelled rows; U unlabelled samples."""

    labels: Tensor
    """(L,) class numbers."""
    index: Tensor
    """(U,) positions in the unlabelled set; in the whole set where no labels are used."""
    samples_and_numbers: tuple[Tensor, ...]
    """For each kind of view: samples as they are stored, a row for each view, those of the labelled ones first; and the
    numbers that decide their views."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.labels, self.index, *self.samples_and_numbers

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> "Drawn":
        labels, index, *samples_and_numbers = tensors
        return Drawn(labels, index, tuple(samples_and_numbers))


@dataclass(frozen=True)
class Batch:
    """What a method gets at one step: as many views of each sample as it wants, in the order in which it names them."""

    labelled_views: tuple[Tensor, ...]
    """Each (L, C, H, W) floats in [0, 1], augmented; (L, D) for features."""
    labels: Tensor
    """(L,) class numbers."""
    unlabelled_views: tuple[Tensor, ...]
    """Each (U, ...)."""
    index: Tensor
    """(U,) positions in the unlabelled set; in the whole set where no labels are used."""
    images: Tensor
    """All rows of the first kind of view: those of the labelled samples, then those of the unlabelled ones."""

    @property
    def labelled(self) -> Tensor:
        """(L, ...) the first view of every labelled sample."""
        return self.labelled_views[0]

    @property
    def views(self) -> Tensor:
        """(V * U, ...): the first view of every unlabelled sample, then the second of every one, ..."""
        num_rows = sum(map(len, self.unlabelled_views))
        if len(self.images) == num_rows + sum(map(len, self.labelled_views)):  # one kind: they lie there already
            return self.images[-num_rows:]
        return torch.cat(self.unlabelled_views)


STEPS_AHEAD = 2
"""Batches that are read ahead of their use where images do not stay on the device."""


class Batches:
    """Draws batches and views from a training set."""

    def __init__(self, data: TrainingSet, training: Training, seed: int, views: Views, uses_labels: bool = True):
        self.num_labelled = training.batch_labelled if uses_labels else 0
        # without labels all samples are alike
        self.unlabelled = data.unlabelled if uses_labels else Concatenated(data.labelled, data.unlabelled)
        refuse_large_batches(data, training, uses_labels)
        self.data, self.training, self.seed, self.views = data, training, seed, views
        self.families = [data.family_of(*kind) for kind in views.kinds]
        self._orders: dict[tuple[str, int], Tensor] = {}
        self._recorders: WeakKeyDictionary[nn.Module, GraphRunner] = WeakKeyDictionary()

    @property
    def rows(self) -> int:
        """Views in a batch."""
        return sum(self._rows_of(kind) for kind in self.views.kinds)

    @property
    def rows_at_once(self) -> int:
        """Of the first kind of view: passes over a set show as many, since all is set up for these already."""
        return self._rows_of(self.views.kinds[0])

    def _rows_of(self, kind: View) -> int:
        counts = self.views.labelled.count(kind), self.views.unlabelled.count(kind)
        return counts[0] * self.num_labelled + counts[1] * self.training.batch_unlabelled

    def draw(self, step: int) -> Drawn:
        data, views = self.data, self.views
        positions, index = self._positions_at(step)
        labelled, unlabelled = data.labelled.take(positions), self.unlabelled.take(index)
        shown = []
        for kind, family in zip(views.kinds, self.families, strict=True):
            copies = [labelled] * views.labelled.count(kind) + [unlabelled] * views.unlabelled.count(kind)
            samples = torch.cat(copies)
            purpose = "augment" if kind == View() else f"augment-{kind.family}-{kind.size}"
            shown += [samples, family.draw(samples, self._source(purpose, step))]
        self._read_ahead(step)
        labels = data.labels[stage(positions, data.device)]
        return Drawn(labels, stage(index, data.device), tuple(shown))

    def shown(self, drawn: Drawn) -> Batch:
        """The views that were drawn."""
        labelled, unlabelled, images = [], [], []
        for number, family in enumerate(self.families):
            images.append(family.view(*drawn.samples_and_numbers[2 * number : 2 * number + 2]))
        rows = {kind: iter(self._by_sample(kind, shown)) for kind, shown in zip(self.views.kinds, images, strict=True)}
        labelled = tuple(next(rows[kind]) for kind in self.views.labelled)
        unlabelled = tuple(next(rows[kind]) for kind in self.views.unlabelled)
        return Batch(labelled, drawn.labels, unlabelled, drawn.index, images[0])

    def _by_sample(self, kind: View, shown: Tensor) -> Sequence[Tensor]:
        """Rows of one kind, apart by which view of the samples they are."""
        counts = self.views.labelled.count(kind), self.views.unlabelled.count(kind)
        return shown.split([self.num_labelled] * counts[0] + [self.training.batch_unlabelled] * counts[1])

    def at(self, step: int) -> Batch:
        return self.shown(self.draw(step))

    def view_predictor(self, network: nn.Module, purpose: str, step: int) -> Callable[..., Tensor]:
        """A function from samples to the network's logits for a random view of each; counters give further draws.

        It always works on `rows_at_once`.
        """
        family, recorder = self.data.family, self._recorders.setdefault(network, GraphRunner())

        def answer(samples: Tensor, numbers: Tensor) -> Tensor:
            return network(family.view(samples, numbers))

        def random_answer(samples: Tensor, *counters: int) -> Tensor:
            count, missing = len(samples), self.rows_at_once - len(samples)
            if missing:
                samples = torch.cat([samples, samples[:1].expand(missing, *samples.shape[1:])])
            numbers = family.draw(samples, self._source(purpose, step, *counters))
            return recorder(answer, samples, numbers)[:count].clone()

        return random_answer

    def _source(self, purpose: str, *counters: int) -> torch.Generator:
        return generator(self.seed, purpose, *counters, device=self.data.device)

    def _read_ahead(self, step: int) -> None:
        if self.data.unlabelled.is_streamed:
            for ahead in range(step + 1, step + 1 + STEPS_AHEAD):
                labelled, index = self._positions_at(ahead)
                self.data.labelled.prefetch(labelled)
                self.unlabelled.prefetch(index)

    def _positions_at(self, step: int) -> tuple[Tensor, Tensor]:
        """The numbers of the labelled and of the unlabelled samples of a step."""
        return (
            self._positions("labelled", len(self.data.labelled), self.num_labelled, step),
            self._positions("unlabelled", len(self.unlabelled), self.training.batch_unlabelled, step),
        )

    def _positions(self, purpose: str, size: int, count: int, step: int) -> Tensor:
        """Rows [step * count, (step + 1) * count) of an endless sequence of shuffled passes over the set."""
        if not count:
            return torch.empty(0, dtype=torch.int64)
        first, last = step * count, (step + 1) * count
        epochs = range(first // size, (last - 1) // size + 1)
        rows = torch.cat([self._order(purpose, size, epoch) for epoch in epochs])
        return rows[first - epochs[0] * size : last - epochs[0] * size]

    def _order(self, purpose: str, size: int, epoch: int) -> Tensor:
        """The order of one pass. The last few are kept, since a pass serves many steps."""
        key = (purpose, epoch)
        if key not in self._orders:
            stale = [old for old in self._orders if old[0] == purpose and old[1] < epoch - 1]
            for old in stale:
                del self._orders[old]
            self._orders[key] = torch.randperm(size, generator=generator(self.seed, purpose, epoch))
        return self._orders[key]


def refuse_large_batches(data: TrainingSet, training: Training, uses_labels: bool) -> None:
    """No sample comes twice in the unlabelled part of a batch; labelled ones, of which there may be few, do."""
    everything = len(data.labelled) + len(data.unlabelled)
    most, kind = (len(data.unlabelled), "unlabelled images") if uses_labels else (everything, "images")
    if training.batch_unlabelled > most:
        told = named("batch_unlabelled", training.batch_unlabelled)
        raise UserError(f"{told} is larger than the {most} {kind}")
    if uses_labels and training.batch_labelled > everything:
        told = named("batch_labelled", training.batch_labelled)
        raise UserError(f"{told} is larger than the {everything} images of the whole set")
