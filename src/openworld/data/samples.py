"""Samples by their numbers, on the device: kept there, or read from disk for each batch. Both give the same.

Shapes: N samples, S x S pixels.
"""

import hashlib
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from openworld.data.decode import BadImage, decode
from openworld.data.pool import CONTEXT, Pool, result_of
from openworld.data.store import Store, read_rows
from openworld.errors import UserError

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

    def chunks(self) -> Iterator[Tensor]:
        """All samples in their order."""


class Kept:
    """Samples in memory: on the device where they fit."""

    is_streamed = False

    def __init__(self, data: Tensor, device: torch.device):
        self.data, self.device, self.shape = data, device, tuple(data.shape[1:])

    def __len__(self) -> int:
        return len(self.data)

    def take(self, index: Tensor) -> Tensor:
        return self.data[index.to(self.data.device)].to(self.device)

    def prefetch(self, index: Tensor) -> None:
        pass

    def chunks(self) -> Iterator[Tensor]:
        for chunk in self.data.split(chunk_size(self.shape)):
            yield chunk.to(self.device)


def chunk_size(shape: Sequence[int]) -> int:
    pixels = shape[-1] * shape[-2] if len(shape) == 3 else 1
    return max(1, min(CHUNK_SAMPLES, CHUNK_PIXELS // pixels))


# Read from disk ---------------------------------------------------------------------------------------------

PIECE = 32
"""Images that a worker reads in one go."""
RING_BYTES = 2**28


@dataclass(frozen=True)
class Item:
    """Where an image is to be found: in a row of the store, or in its file."""

    path: str
    key: bytes
    row: int | None


class Feeder:
    """Workers that read images into a ring of shared memory, ahead of their use."""

    def __init__(self, size: int, store: Store | None, workers: int):
        shape = (max(RING_BYTES // (PIECE * size * size * 3), 2 * workers, 2), PIECE, size, size, 3)
        memory = CONTEXT.RawArray("B", int(np.prod(shape)))
        self.size, self.ring = size, np.frombuffer(memory, np.uint8).reshape(shape)
        self.free = list(range(len(self.ring)))
        self.pending: dict[tuple[str, ...], tuple[int, object]] = {}
        self.rows_path = store.rows_path if store else None
        self.pool = Pool(workers, _attach, (id(self), memory, shape))
        weakref.finalize(self, _rings.pop, id(self), None)  # where there are no workers, the ring is listed here

    def prefetch(self, items: Sequence[Item]) -> None:
        """Have as many of these read as there is room for."""
        for piece in _pieces(items):
            if not self.free:
                return
            self._submit(piece)

    def read(self, items: Sequence[Item]) -> Tensor:
        """(N, 3, S, S) pixels of these images."""
        out = np.empty((len(items), 3, self.size, self.size), dtype=np.uint8)
        pieces = list(_pieces(items))
        self.prefetch(items)
        for number, piece in enumerate(pieces):
            name = _name(piece)
            if name not in self.pending:
                self._make_room(pieces[number:])
                self._submit(piece)
            slot, future = self.pending.pop(name)
            try:
                result_of(future)
                rows = slice(number * PIECE, number * PIECE + len(piece))
                # by numpy, and not by torch, whose waiting threads would take the cores from the workers
                for channel in range(3):  # faster than a permutation of all at once
                    out[rows, channel] = self.ring[slot, : len(piece), :, :, channel]
            finally:
                self.free.append(slot)
        return torch.from_numpy(out)

    def _submit(self, piece: Sequence[Item]) -> None:
        if _name(piece) not in self.pending:
            slot = self.free.pop()
            self.pending[_name(piece)] = slot, self.pool.submit(_read_piece, id(self), slot, piece, self.rows_path)

    def _make_room(self, wanted: list[Sequence[Item]]) -> None:
        """Where no slot is free, give up what was read ahead: what is not wanted now, oldest first."""
        if not self.free:
            keep = {_name(piece) for piece in wanted}
            stale = next((name for name in self.pending if name not in keep), next(reversed(self.pending)))
            slot, future = self.pending.pop(stale)
            result_of(future)
            self.free.append(slot)


def _pieces(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + PIECE] for start in range(0, len(items), PIECE))


def _name(piece: Sequence[Item]) -> tuple[str, ...]:
    return tuple(item.path for item in piece)


_rings: dict[int, np.ndarray] = {}
"""In the process that reads: the shared memory of the feeder that it works for."""


def _attach(feeder: int, memory, shape: tuple[int, ...]) -> None:
    _rings[feeder] = np.frombuffer(memory, np.uint8).reshape(shape)


def _read_piece(feeder: int, slot: int, items: Sequence[Item], rows_path: Path | None) -> None:
    """Into a slot of the ring: from the store where the image lies there, else from its file."""
    ring = _rings[feeder][slot]
    if rows_path and all(item.row is not None for item in items):
        read_rows(rows_path, [item.row for item in items], ring[0].nbytes, memoryview(ring.reshape(-1)))
        return
    for number, item in enumerate(items):
        try:
            content = Path(item.path).read_bytes()
        except OSError as error:
            raise UserError(f"{item.path}: cannot be read any more ({error.strerror})") from None
        if hashlib.sha256(content).digest() != item.key:
            raise UserError(f"{item.path} has changed since training began")
        try:
            ring[number] = decode(content, ring.shape[1])
        except BadImage as error:
            raise UserError(f"{item.path} {error}") from None


class Streamed:
    """Image files, read and decoded whenever they are wanted."""

    is_streamed = True

    def __init__(self, items: Sequence[Item], feeder: Feeder, device: torch.device):
        self.items, self.feeder, self.device = items, feeder, device
        self.shape = (3, feeder.size, feeder.size)

    def __len__(self) -> int:
        return len(self.items)

    def take(self, index: Tensor) -> Tensor:
        return self.feeder.read(self._chosen(index)).to(self.device)

    def prefetch(self, index: Tensor) -> None:
        self.feeder.prefetch(self._chosen(index))

    def chunks(self) -> Iterator[Tensor]:
        step = chunk_size(self.shape)
        for start in range(0, len(self.items), step):
            chunk = self.feeder.read(self.items[start : start + step]).to(self.device)
            self.feeder.prefetch(self.items[start + step : start + 2 * step])
            yield chunk

    def keep(self) -> Kept:
        """All of them, on the device."""
        data = torch.empty((len(self), *self.shape), dtype=torch.uint8, device=self.device)
        start = 0
        for chunk in self.chunks():
            data[start : start + len(chunk)] = chunk
            start += len(chunk)
        return Kept(data, self.device)

    def _chosen(self, index: Tensor) -> list[Item]:
        return [self.items[position] for position in index.tolist()]
