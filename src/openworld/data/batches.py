"""Batch k of a run: a function of the seed and of k alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from openworld.config import Training
from openworld.data.problem import TrainingSet
from openworld.data.samples import Joined
from openworld.engine import Recorder, stage
from openworld.errors import UserError
from openworld.rng import generator


class Drawn(NamedTuple):
    """What is drawn for one step, on the device. L labelled rows; U unlabelled samples, seen in V views."""

    samples: Tensor
    """(L + V * U, ...) as they are stored: the labelled ones, the unlabelled ones, the unlabelled ones again, ..."""
    numbers: Tensor
    """That decide the view of each."""
    labels: Tensor
    """(L,) class numbers."""
    index: Tensor
    """(U,) positions in the unlabelled set; in the whole set where no labels are used."""

    def shown(self, view: Callable[[Tensor, Tensor], Tensor]) -> "Batch":
        images, num_labelled = view(self.samples, self.numbers), len(self.labels)
        return Batch(images[:num_labelled], self.labels, images[num_labelled:], self.index)


@dataclass(frozen=True)
class Batch:
    """What a method gets at one step."""

    labelled: Tensor
    """(L, C, H, W) floats in [0, 1], augmented; (L, D) for features."""
    labels: Tensor
    """(L,) class numbers."""
    views: Tensor
    """(V * U, ...): the first view of every sample, then the second of every sample, ..."""
    index: Tensor
    """(U,) positions in the unlabelled set; in the whole set where no labels are used."""

    @property
    def images(self) -> Tensor:
        """(L + V * U, ...) all of them."""
        return torch.cat([self.labelled, self.views])


STEPS_AHEAD = 2
"""Batches that are read ahead of their use where images do not stay on the device."""


class Batches:
    """Draws batches and views from a training set."""

    def __init__(self, data: TrainingSet, training: Training, seed: int, num_views: int, uses_labels: bool = True):
        self.num_labelled = training.batch_labelled if uses_labels else 0
        # without labels all samples are alike
        everything = Joined(data.labelled, data.unlabelled)
        self.unlabelled = data.unlabelled if uses_labels else everything
        refuse_large_batch("labelled", self.num_labelled, len(everything), "images of the whole set")
        kind = "unlabelled images" if uses_labels else "images"
        refuse_large_batch("unlabelled", training.batch_unlabelled, len(self.unlabelled), kind)
        self.data, self.training, self.seed, self.num_views = data, training, seed, num_views
        self._orders: dict[tuple[str, int], Tensor] = {}
        self._recorders: WeakKeyDictionary[nn.Module, Recorder] = WeakKeyDictionary()

    @property
    def rows(self) -> int:
        """Images in a batch."""
        return self.num_labelled + self.num_views * self.training.batch_unlabelled

    def draw(self, step: int) -> Drawn:
        data = self.data
        labelled, index = self._positions_at(step)
        unlabelled = self.unlabelled.take(index)
        samples = torch.cat([data.labelled.take(labelled), *[unlabelled] * self.num_views])
        self._read_ahead(step)
        return Drawn(
            samples=samples,
            numbers=data.family.draw(samples, self._source("augment", step)),
            labels=data.labels[stage(labelled, data.device)],
            index=stage(index, data.device),
        )

    def at(self, step: int) -> Batch:
        return self.draw(step).shown(self.data.family.view)

    def answers(self, network: nn.Module, purpose: str, step: int) -> Callable[..., Tensor]:
        """A function from samples to the network's logits for a random view of each; counters give further draws.

        It always works on as many rows as a training batch has, for which everything is set up already.
        """
        family, recorder = self.data.family, self._recorders.setdefault(network, Recorder())

        def answer(samples: Tensor, numbers: Tensor) -> Tensor:
            return network(family.view(samples, numbers))

        def random_answer(samples: Tensor, *counters: int) -> Tensor:
            count, missing = len(samples), self.rows - len(samples)
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


def refuse_large_batch(part: str, rows: int, most: int, kind: str) -> None:
    if rows > most:
        raise UserError(f"--batch-{part} {rows} is larger than the {most} {kind}")
