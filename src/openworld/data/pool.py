"""Processes that work on images beside the training; they know Pillow and numpy, not torch."""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from openworld.core.errors import UserError

# A forked worker is there at once and sees what this process has read; elsewhere forking is not safe.
CONTEXT = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")

PIECES_AHEAD = 4
"""For each worker: enough that none has to wait."""


class Pool:
    """Runs functions in `workers` processes, or here where there are none."""

    def __init__(self, workers: int, prepare: Callable[..., None] | None = None, arguments: tuple = ()):
        self.executor = None
        if workers:
            self.executor = ProcessPoolExecutor(workers, CONTEXT, _begin, (prepare, arguments))
        elif prepare:
            prepare(*arguments)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future | Deferred":
        if self.executor is None:
            return Deferred(function, arguments)
        try:
            return self.executor.submit(function, *arguments)
        except BrokenProcessPool:
            raise LOST from None

    def close(self) -> None:
        if self.executor:
            self.executor.shutdown(wait=True, cancel_futures=True)


class Deferred:
    """What `submit` gives without processes: the work is done when its result is asked for."""

    def __init__(self, function: Callable[..., Any], arguments: tuple):
        self.work = function, arguments

    def result(self) -> Any:
        function, arguments = self.work
        return function(*arguments)

    def cancel(self) -> bool:
        return True


LOST = UserError("a process that decodes images was killed: is there enough memory? fewer workers need less")


def result_of(future: Future | Deferred) -> Any:
    try:
        return future.result()
    except BrokenProcessPool:
        raise LOST from None


def in_pieces(
    workers: int, function: Callable[..., list], items: Sequence, per_piece: int, *arguments: Any
) -> Iterator[Any]:
    """The results of `function(some items, *arguments)`, one for each item, in their order.

    Only a few pieces are begun ahead of the one that is wanted: results may be large, and whoever takes them slow.
    """
    starts = range(0, len(items), per_piece)
    pool = Pool(min(workers, len(starts)))
    begun: deque[Future | Deferred] = deque()
    try:
        for start in starts:
            begun.append(pool.submit(function, items[start : start + per_piece], *arguments))
            if len(begun) > PIECES_AHEAD * max(workers, 1):
                yield from result_of(begun.popleft())
        for future in begun:
            yield from result_of(future)
    finally:
        pool.close()


def _begin(prepare: Callable[..., None] | None, arguments: tuple) -> None:
    """In a new worker: signals are the parent's business, and when the parent is killed, so is the worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != multiprocessing.parent_process().pid:  # killed before that: nobody will tell
            os._exit(1)
    if prepare:
        prepare(*arguments)
