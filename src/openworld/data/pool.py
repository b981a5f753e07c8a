"""Worker processes that read and decode images. They use Pillow and numpy, but not torch."""

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

# A forked worker starts at once and shares the memory of this process. Forking is not safe on other systems.
CONTEXT = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")

PIECES_AHEAD = 4
"""Pieces that are submitted ahead for each worker, so that no worker has to wait."""


class Pool:
    """Runs functions in `workers` processes, or in this process if `workers` is 0.

    Args:
        workers: Number of processes.
        prepare: Function that each process calls once before its first task.
        arguments: Arguments of `prepare`.
    """

    def __init__(self, workers: int, prepare: Callable[..., None] | None = None, arguments: tuple = ()):
        self.executor = None
        if workers:
            self.executor = ProcessPoolExecutor(workers, CONTEXT, _set_up_worker, (prepare, arguments))
        elif prepare:
            prepare(*arguments)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future | Deferred":
        """Start `function(*arguments)` in a worker and return its future."""
        if self.executor is None:
            return Deferred(function, arguments)
        try:
            return self.executor.submit(function, *arguments)
        except BrokenProcessPool:
            raise LOST from None

    def close(self) -> None:
        """Cancel the tasks that have not started and stop the workers."""
        if self.executor:
            self.executor.shutdown(wait=True, cancel_futures=True)


class Deferred:
    """The future that `submit` returns without workers. It runs the function when `result` is called."""

    def __init__(self, function: Callable[..., Any], arguments: tuple):
        self.task = function, arguments

    def result(self) -> Any:
        function, arguments = self.task
        return function(*arguments)

    def cancel(self) -> bool:
        return True


LOST = UserError("a process that decodes images was killed, perhaps because memory ran out; use fewer workers")


def result_of(future: Future | Deferred) -> Any:
    """Wait for a task and return its result. Raise a UserError if its worker was killed."""
    try:
        return future.result()
    except BrokenProcessPool:
        raise LOST from None


def in_pieces(
    workers: int, function: Callable[..., list], items: Sequence, per_piece: int, *arguments: Any
) -> Iterator[Any]:
    """Call `function(some items, *arguments)` for pieces of the items and yield one result for each item, in order.

    Only a few pieces run ahead of the consumer, because results may be large and the consumer may be slow.

    Args:
        workers: Number of worker processes. 0 runs the function in this process.
        function: Function from a list of items to a list of results.
        items: All items.
        per_piece: Number of items in one call.
        arguments: Further arguments of every call.
    """
    starts = range(0, len(items), per_piece)
    pool = Pool(min(workers, len(starts)))
    submitted: deque[Future | Deferred] = deque()
    try:
        for start in starts:
            submitted.append(pool.submit(function, items[start : start + per_piece], *arguments))
            if len(submitted) > PIECES_AHEAD * max(workers, 1):
                yield from result_of(submitted.popleft())
        for future in submitted:
            yield from result_of(future)
    finally:
        pool.close()


def _set_up_worker(prepare: Callable[..., None] | None, arguments: tuple) -> None:
    """Set up a new worker: it leaves signals to its parent, and dies when its parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != multiprocessing.parent_process().pid:  # the parent died before prctl: no signal will come
            os._exit(1)
    if prepare:
        prepare(*arguments)
