"""Samples by their numbers, on the device: kept there, or read from disk for each batch. Both give the same.

Shapes: N samples, S x S pixels.
"""

import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from openworld.compute.device import Transfer, stage, staging_buffer
from openworld.data import worker
from openworld.data.pool import CONTEXT, Deferred, Pool, result_of
from openworld.data.worker import Item

CHUNK_SAMPLES, CHUNK_PIXELS = 2048, 2**21
"""Whole sets pass through a network in chunks of at most so many samples and pixels."""


class Samples(Protocol):
    """N samples of one shape."""

    device: torch.device
    """Where `take` puts them."""
    shape: tuple[int, ...]
    """Of one sample: (C, H, W), or (D,) for features."""
    is_streamed: bool
    """Whether taking them takes time, and it helps to say beforehand which."""

    def __len__(self) -> int: ...

    def take(self, index: Tensor) -> Tensor:
        """The samples with these numbers (on the CPU): uint8 images or float features."""

    def prefetch(self, index: Tensor) -> None:
        """These will be taken soon."""

    def chunks(self, size: int | None = None) -> Iterator[Tensor]:
        """All samples in their order, so many at a time."""


class InMemory:
    """Samples in memory: on the device where they fit."""

    is_streamed = False

    def __init__(self, data: Tensor, device: torch.device):
        self.data, self.device, self.shape, self.ferry = data, device, tuple(data.shape[1:]), Transfer()

    def __len__(self) -> int:
        return len(self.data)

    def take(self, index: Tensor) -> Tensor:
        return self.ferry(self.data[stage(index, self.data.device)], self.device)

    def prefetch(self, index: Tensor) -> None:
        pass

    def chunks(self, size: int | None = None) -> Iterator[Tensor]:
        for chunk in self.data.split(size or chunk_size(self.shape)):
            yield self.ferry(chunk, self.device)


class Concatenated:
    """Lots of samples, numbered through."""

    def __init__(self, *lots: Samples):
        self.lots = lots

    def __len__(self) -> int:
        return sum(map(len, self.lots))

    def take(self, index: Tensor) -> Tensor:
        rows, taken = zip(*((rows, lot.take(numbers)) for lot, rows, numbers in self._by_lot(index)), strict=True)
        in_order = torch.cat(rows).argsort()
        return torch.cat(taken)[stage(in_order, taken[0].device)]

    def prefetch(self, index: Tensor) -> None:
        for lot, _, numbers in self._by_lot(index):
            lot.prefetch(numbers)

    def _by_lot(self, index: Tensor) -> Iterator[tuple[Samples, Tensor, Tensor]]:
        """A lot, the rows that it fills, and its own numbers of the samples in them."""
        first = 0
        for lot in self.lots:
            (rows,) = ((index >= first) & (index < first + len(lot))).nonzero(as_tuple=True)
            if len(rows):
                yield lot, rows, index[rows] - first
            first += len(lot)


def chunk_size(shape: Sequence[int]) -> int:
    pixels = shape[-1] * shape[-2] if len(shape) == 3 else 1
    return max(1, min(CHUNK_SAMPLES, CHUNK_PIXELS // pixels))


# Read from disk ---------------------------------------------------------------------------------------------

PIECE = 32
"""Images that a worker reads in one go."""
RING_BYTES, MOST_PIECES = 2**28, 64
"""Room for what is read ahead."""


class Ahead(NamedTuple):
    """A piece that is read ahead of its use."""

    slot: int
    """Of the ring, where it goes."""
    future: Future | Deferred
    told: int
    """The number of reads before it was last told of."""


class Feeder:
    """Workers that read images into a ring of shared memory, ahead of their use."""

    def __init__(self, size: int, rows_path: Path, workers: int, num_images: int):
        most = max(min(RING_BYTES // (PIECE * size * size * 3), MOST_PIECES), workers + 1)
        shape = (max(2, min(most, -(-num_images // PIECE))), PIECE, 3, size, size)
        memory = CONTEXT.RawArray("B", int(np.prod(shape)))
        self.size, self.ring = size, np.frombuffer(memory, np.uint8).reshape(shape)
        self.free = list(range(len(self.ring)))
        self.pending: dict[tuple[str, ...], Ahead] = {}  # what was told of last comes last
        self.rows_path, self.num_reads = rows_path, 0
        self.pool = Pool(workers, worker.attach, (id(self), memory, shape))
        weakref.finalize(self, worker.rings.pop, id(self), None)  # without workers, the ring is listed here

    def prefetch(self, items: Sequence[Item]) -> None:
        """Have as many of these read as there is room for."""
        for piece in _pieces(items):
            name = _name(piece)
            if name in self.pending:
                self.pending[name] = self.pending.pop(name)._replace(told=self.num_reads)
            elif self.free or self._give_up_stale():
                self._submit(piece)

    def read(self, items: Sequence[Item], out: np.ndarray) -> None:
        """(N, 3, S, S) pixels of these images, into the given memory."""
        self.num_reads += 1
        pieces = list(_pieces(items))
        wanted = {_name(piece) for piece in pieces}
        for piece in pieces:  # all workers are to work on them, so what was read ahead gives way
            if _name(piece) not in self.pending and (self.free or self._give_up(wanted)):
                self._submit(piece)
        for number, piece in enumerate(pieces):
            if _name(piece) not in self.pending:
                if not self.free:  # all slots hold later pieces of this read
                    self._give_up({_name(piece)})
                self._submit(piece)
            slot, future, _ = self.pending.pop(_name(piece))
            try:
                result_of(future)
                # by numpy, and not by torch, whose waiting threads would take the cores from the workers
                out[number * PIECE : number * PIECE + len(piece)] = self.ring[slot, : len(piece)]
            finally:
                self.free.append(slot)

    def _submit(self, piece: Sequence[Item]) -> None:
        slot = self.free.pop()
        future = self.pool.submit(worker.read_piece, id(self), slot, piece, self.rows_path)
        self.pending[_name(piece)] = Ahead(slot, future, self.num_reads)

    def _give_up(self, wanted: set[tuple[str, ...]]) -> bool:
        """Free a slot whose images are not wanted now: those that will be wanted last."""
        last = next((name for name in reversed(self.pending) if name not in wanted), None)
        if last is None:
            return False
        self._drop(last)
        return True

    def _give_up_stale(self) -> bool:
        """Free the slot told of longest ago, if so many reads ago that whoever wanted its images has stopped."""
        oldest = next(iter(self.pending), None)
        if oldest is None or self.num_reads - self.pending[oldest].told <= len(self.ring):
            return False
        self._drop(oldest)
        return True

    def _drop(self, name: tuple[str, ...]) -> None:
        slot, future, _ = self.pending.pop(name)
        if not future.cancel():
            result_of(future)
        self.free.append(slot)


def _pieces(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + PIECE] for start in range(0, len(items), PIECE))


def _name(piece: Sequence[Item]) -> tuple[str, ...]:
    return tuple(item.path for item in piece)


class Streamed:
    """Image files, read and decoded whenever they are wanted."""

    is_streamed = True

    def __init__(self, items: Sequence[Item], feeder: Feeder, device: torch.device):
        self.items, self.feeder, self.device, self.ferry = items, feeder, device, Transfer()
        self.shape = (3, feeder.size, feeder.size)

    def __len__(self) -> int:
        return len(self.items)

    def take(self, index: Tensor) -> Tensor:
        return self._read(self._chosen(index))

    def prefetch(self, index: Tensor) -> None:
        self.feeder.prefetch(self._chosen(index))

    def chunks(self, size: int | None = None) -> Iterator[Tensor]:
        for rows in self._rows_ahead(size):
            yield self._read(self.items[rows])

    def keep(self) -> InMemory:
        """All of them, on the device."""
        data = torch.empty((len(self), *self.shape), dtype=torch.uint8, device=self.device)
        for rows in self._rows_ahead():
            if data.device.type == "cpu":
                self.feeder.read(self.items[rows], data[rows].numpy())
            else:
                data[rows] = self._read(self.items[rows])
        return InMemory(data, self.device)

    def _rows_ahead(self, size: int | None = None) -> Iterator[slice]:
        """Rows of chunk after chunk; before one is used, the next ones are asked for: half a ring, but one at least."""
        step = size or chunk_size(self.shape)
        chunks = [slice(start, start + step) for start in range(0, len(self.items), step)]
        ahead = max(1, len(self.feeder.ring) // 2 // -(-step // PIECE))
        for number, rows in enumerate(chunks):
            # one by one, to be cut as they are read; and each time, since there may have been no room for all
            for soon in chunks[number : number + 1 + ahead]:
                self.feeder.prefetch(self.items[soon])
            yield rows

    def _read(self, items: Sequence[Item]) -> Tensor:
        area = staging_buffer((len(items), *self.shape), self.device)
        self.feeder.read(items, area.numpy())
        return self.ferry(area, self.device)

    def _chosen(self, index: Tensor) -> list[Item]:
        return [self.items[position] for position in index.tolist()]
