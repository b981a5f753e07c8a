"""Functions that are compiled where that was asked for, and what was compiled, kept for the next process."""

import functools
import hashlib
import logging
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from openworld.core.files import write_to_cache
from openworld.core.places import cache_dir

P, R = ParamSpec("P"), TypeVar("R")

MOST_SHAPES = 64
"""Kinds of inputs for which one function may be compiled in one process; torch gives up silently above that."""


class Mode:
    """Of this process."""

    is_on = False
    """Whether functions are compiled."""
    is_saved = False
    """Whether what was compiled has been kept."""


mode = Mode()


def compilable(function: Callable[P, R]) -> Callable[P, R]:
    """Marks a function, pure and worth it, that is compiled in a process that compiles: once for each kind of inputs.

    Weights are inputs, too: a second network of the same architecture is served by the code made for the first.
    """

    @functools.wraps(function)
    def call(*inputs: P.args, **named: P.kwargs) -> R:
        if mode.is_on:
            try:
                return _compiled(function)(*inputs, **named)
            except torch._dynamo.exc.TorchDynamoException as error:  # no compiler here, or a GPU too old for it
                mode.is_on = False
                reason = " ".join(str(error).split("\n\n")[0].split())  # what follows is for developers of torch
                print(f"warning: going on without compiling, which fails here: {reason}", file=sys.stderr)
        return function(*inputs, **named)

    return call


@contextmanager
def without_compiling() -> Iterator[None]:
    """For what is done so seldom that compiling it would take longer."""
    before, mode.is_on = mode.is_on, False
    try:
        yield
    finally:
        mode.is_on = before


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.config.recompile_limit = MOST_SHAPES
    logging.getLogger("torch._inductor.utils").setLevel(logging.ERROR)  # advice that is not meant for our users
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores", category=UserWarning)
    return torch.compile(function, dynamic=False)


# InMemory for the next process ----------------------------------------------------------------------------------


def compiled_path(device: torch.device, *kind: object) -> Path:
    """The file for one kind of work on one kind of device, with one version of torch."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    key = "/".join(map(str, (torch.__version__, name, *kind)))
    return cache_dir() / "compiled" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.bin"


@functools.cache
def load_compiled(path: Path) -> bool:
    """Take over what an earlier process kept, once; whether there was anything."""
    torch_log = logging.getLogger("torch.compiler._cache")
    level = torch_log.level
    torch_log.setLevel(logging.CRITICAL)  # of a damaged file it would print a traceback
    try:
        return torch.compiler.load_cache_artifacts(zlib.decompress(path.read_bytes())) is not None
    except (OSError, zlib.error):
        return False
    finally:
        torch_log.setLevel(level)


def save_compiled(path: Path) -> None:
    """Keep what was compiled, if any of it is new. Nothing depends on it: where there is no room, it is left out.

    Once in a process: torch hands out all that was compiled so far, and what it hands out a second time is a mixture
    that cannot be loaded.
    """
    if mode.is_saved or not _num_new():
        return
    mode.is_saved = True
    artifacts = torch.compiler.save_cache_artifacts()
    if artifacts is not None:
        write_to_cache(path, zlib.compress(artifacts[0]))


def _num_new() -> int:
    """Graphs that were compiled and not found."""
    return torch._dynamo.utils.counters["inductor"]["fxgraph_cache_miss"]
