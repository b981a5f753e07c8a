"""Samples on the device, by position: kept in memory, or read from disk for each batch. Both give the same samples.

Shapes: N samples, S x S pixels.
"""

import hashlib
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
"""Most samples, and most pixels, in a chunk when a whole set passes through a network."""


class Samples(Protocol):
    """N samples of the same shape."""

    device: torch.device
    """Device of the samples that `take` returns."""
    shape: tuple[int, ...]
    """Shape of one sample: (C, H, W), or (D,) for features."""
    is_streamed: bool
    """Whether samples are read from disk, so that `prefetch` saves time."""

    def __len__(self) -> int: ...

    def keys(self) -> list[bytes]:
        """Return the sha256 of the content of each image."""

    def take(self, index: Tensor) -> Tensor:
        """Return the samples at these positions: uint8 images or float features. `index` is on the CPU."""

    def prefetch(self, index: Tensor) -> None:
        """Start to read the samples at these positions, because they will be taken soon."""

    def chunks(self, size: int | None = None) -> Iterator[Tensor]:
        """Yield all samples in order, `size` at a time."""


class InMemory:
    """Samples in memory, on the device if they fit there."""

    is_streamed = False

    def __init__(self, data: Tensor, device: torch.device):
        self.data, self.device, self.shape, self.transfer = data, device, tuple(data.shape[1:]), Transfer()

    def __len__(self) -> int:
        return len(self.data)

    def keys(self) -> list[bytes]:
        return [hashlib.sha256(repr(self.shape).encode() + each.numpy().tobytes()).digest() for each in self.data.cpu()]

    def take(self, index: Tensor) -> Tensor:
        return self.transfer(self.data[stage(index, self.data.device)], self.device)

    def prefetch(self, index: Tensor) -> None:
        pass

    def chunks(self, size: int | None = None) -> Iterator[Tensor]:
        for chunk in self.data.split(size or chunk_size(self.shape)):
            yield self.transfer(chunk, self.device)


class Concatenated:
    """Several sets of samples as one, with consecutive positions."""

    def __init__(self, *sets: Samples):
        self.sets = sets

    def __len__(self) -> int:
        return sum(map(len, self.sets))

    def take(self, index: Tensor) -> Tensor:
        parts = self._by_set(index)
        rows, taken = zip(*((rows, each.take(positions)) for each, rows, positions in parts), strict=True)
        in_order = torch.cat(rows).argsort()
        return torch.cat(taken)[stage(in_order, taken[0].device)]

    def prefetch(self, index: Tensor) -> None:
        for each, _, positions in self._by_set(index):
            each.prefetch(positions)

    def _by_set(self, index: Tensor) -> Iterator[tuple[Samples, Tensor, Tensor]]:
        """Yield each set with the rows of the result that it fills and the positions of their samples in the set."""
        first = 0
        for each in self.sets:
            (rows,) = ((index >= first) & (index < first + len(each))).nonzero(as_tuple=True)
            if len(rows):
                yield each, rows, index[rows] - first
            first += len(each)


def chunk_size(shape: Sequence[int]) -> int:
    """Return the number of samples of this shape in a chunk."""
    pixels = shape[-1] * shape[-2] if len(shape) == 3 else 1
    return max(1, min(CHUNK_SAMPLES, CHUNK_PIXELS // pixels))


# Read from disk ---------------------------------------------------------------------------------------------

PIECE = 32
"""Number of images that a worker reads in one task."""
RING_BYTES, MOST_PIECES = 2**28, 64
"""Limits of the ring for images that are read ahead: bytes, and pieces."""


class Ahead(NamedTuple):
    """A piece that is being read ahead of its use."""

    slot: int
    """Slot of the ring that receives the piece."""
    future: Future | Deferred
    requested_at: int
    """Value of `Feeder.num_reads` when the piece was last requested."""


class Feeder:
    """Lets workers read images into a ring of shared memory, ahead of their use."""

    def __init__(self, size: int, rows_path: Path, workers: int, num_images: int):
        most = max(min(RING_BYTES // (PIECE * size * size * 3), MOST_PIECES), workers + 1)
        shape = (max(2, min(most, -(-num_images // PIECE))), PIECE, 3, size, size)
        memory = CONTEXT.RawArray("B", int(np.prod(shape)))
        self.size, self.ring = size, np.frombuffer(memory, np.uint8).reshape(shape)
        self.free_slots = list(range(len(self.ring)))
        self.pending: dict[tuple[str, ...], Ahead] = {}  # the most recently requested piece comes last
        self.rows_path, self.num_reads = rows_path, 0
        self.pool = Pool(workers, worker.attach, (id(self), memory, shape))
        weakref.finalize(self, worker.rings.pop, id(self), None)  # without workers, this process holds the entry

    def prefetch(self, items: Sequence[Item]) -> None:
        """Start to read these images, as many as the ring has room for."""
        for piece in _pieces(items):
            name = _name(piece)
            if name in self.pending:
                self.pending[name] = self.pending.pop(name)._replace(requested_at=self.num_reads)
            elif self.free_slots or self._drop_stale():
                self._submit(piece)

    def read(self, items: Sequence[Item], out: np.ndarray) -> None:
        """Write the (N, 3, S, S) pixels of these images to `out`."""
        self.num_reads += 1
        pieces = list(_pieces(items))
        wanted = {_name(piece) for piece in pieces}
        for piece in pieces:  # these pieces go first, so they may take the slots of pieces that were read ahead
            if _name(piece) not in self.pending and (self.free_slots or self._drop_other(wanted)):
                self._submit(piece)
        for number, piece in enumerate(pieces):
            if _name(piece) not in self.pending:
                if not self.free_slots:  # all slots hold later pieces of this read
                    self._drop_other({_name(piece)})
                self._submit(piece)
            slot, future, _ = self.pending.pop(_name(piece))
            try:
                result_of(future)
                # Copy with numpy, because the waiting threads of torch would take the cores from the workers.
                out[number * PIECE : number * PIECE + len(piece)] = self.ring[slot, : len(piece)]
            finally:
                self.free_slots.append(slot)

    def _submit(self, piece: Sequence[Item]) -> None:
        """Start to read a piece into a free slot."""
        slot = self.free_slots.pop()
        future = self.pool.submit(worker.read_piece, id(self), slot, piece, self.rows_path)
        self.pending[_name(piece)] = Ahead(slot, future, self.num_reads)

    def _drop_other(self, wanted: set[tuple[str, ...]]) -> bool:
        """Free the slot of the piece, outside `wanted`, that will be needed last. Return False if there is none."""
        last = next((name for name in reversed(self.pending) if name not in wanted), None)
        if last is None:
            return False
        self._drop(last)
        return True

    def _drop_stale(self) -> bool:
        """Free the slot of the piece with the oldest request. Return False if that request is too recent.

        A piece is stale if more reads than the ring has slots have passed since: its reader has stopped.
        """
        oldest = next(iter(self.pending), None)
        if oldest is None or self.num_reads - self.pending[oldest].requested_at <= len(self.ring):
            return False
        self._drop(oldest)
        return True

    def _drop(self, name: tuple[str, ...]) -> None:
        """Cancel a piece, or wait for it, and free its slot."""
        slot, future, _ = self.pending.pop(name)
        if not future.cancel():
            result_of(future)
        self.free_slots.append(slot)


def _pieces(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Cut items into pieces."""
    return (items[start : start + PIECE] for start in range(0, len(items), PIECE))


def _name(piece: Sequence[Item]) -> tuple[str, ...]:
    """Return the key of a piece in `Feeder.pending`."""
    return tuple(item.path for item in piece)


class Streamed:
    """Image files that are read, and decoded if necessary, each time they are taken."""

    is_streamed = True

    def __init__(self, items: Sequence[Item], feeder: Feeder, device: torch.device):
        self.items, self.feeder, self.device, self.transfer = items, feeder, device, Transfer()
        self.shape = (3, feeder.size, feeder.size)

    def __len__(self) -> int:
        return len(self.items)

    def keys(self) -> list[bytes]:
        return [item.key for item in self.items]

    def take(self, index: Tensor) -> Tensor:
        return self._read(self._chosen(index))

    def prefetch(self, index: Tensor) -> None:
        self.feeder.prefetch(self._chosen(index))

    def chunks(self, size: int | None = None) -> Iterator[Tensor]:
        for rows in self._rows_ahead(size):
            yield self._read(self.items[rows])

    def keep(self) -> InMemory:
        """Read all samples and return them in the memory of the device."""
        data = torch.empty((len(self), *self.shape), dtype=torch.uint8, device=self.device)
        for rows in self._rows_ahead():
            if data.device.type == "cpu":
                self.feeder.read(self.items[rows], data[rows].numpy())
            else:
                data[rows] = self._read(self.items[rows])
        return InMemory(data, self.device)

    def _rows_ahead(self, size: int | None = None) -> Iterator[slice]:
        """Yield the rows of each chunk. First prefetch the next chunks: half the ring, and at least one chunk."""
        step = size or chunk_size(self.shape)
        chunks = [slice(start, start + step) for start in range(0, len(self.items), step)]
        ahead = max(1, len(self.feeder.ring) // 2 // -(-step // PIECE))
        for number, rows in enumerate(chunks):
            # Prefetch chunk by chunk, so that the pieces match those of `read`. Request chunks again for each chunk,
            # because the ring may have had no room for them.
            for soon in chunks[number : number + 1 + ahead]:
                self.feeder.prefetch(self.items[soon])
            yield rows

    def _read(self, items: Sequence[Item]) -> Tensor:
        buffer = staging_buffer((len(items), *self.shape), self.device)
        self.feeder.read(items, buffer.numpy())
        return self.transfer(buffer, self.device)

    def _chosen(self, index: Tensor) -> list[Item]:
        return [self.items[position] for position in index.tolist()]
