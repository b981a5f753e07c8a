"""Compile functions with torch.compile if the user requests it, and cache the compiled code for the next process."""

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
"""Kinds of inputs for which one function may be compiled in one process. Above this number torch gives up silently."""


class Mode:
    """Compilation state of this process."""

    is_on = False
    """Whether functions marked as `compilable` are compiled."""
    is_saved = False
    """Whether this process has written its compiled code to the cache."""


mode = Mode()


def compilable(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a pure function that is worth compiling.

    If compilation is on, torch compiles the function once for each kind of inputs. If compilation fails, a warning is
    printed and the process continues without it. Weights are inputs too: a second network of the same architecture
    reuses the compiled code of the first.
    """

    @functools.wraps(function)
    def call(*inputs: P.args, **named: P.kwargs) -> R:
        if mode.is_on:
            try:
                return _compiled(function)(*inputs, **named)
            except torch._dynamo.exc.TorchDynamoException as error:  # no compiler is installed, or the GPU is too old
                mode.is_on = False
                reason = " ".join(str(error).split("\n\n")[0].split())  # the rest is for developers of torch
                print(f"warning: compilation failed; openworld continues without it: {reason}", file=sys.stderr)
        return function(*inputs, **named)

    return call


@contextmanager
def without_compiling() -> Iterator[None]:
    """Turn compilation off within this context, for work that is too rare to repay the time to compile it."""
    before, mode.is_on = mode.is_on, False
    try:
        yield
    finally:
        mode.is_on = before


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.config.recompile_limit = MOST_SHAPES
    logging.getLogger("torch._inductor.utils").setLevel(logging.ERROR)  # its advice is not meant for our users
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores", category=UserWarning)
    return torch.compile(function, dynamic=False)


# The cache of compiled code -------------------------------------------------------------------------------------


def compiled_path(device: torch.device, *kind: object) -> Path:
    """Return the cache file for one kind of work, on one kind of device, with one version of torch."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    key = "/".join(map(str, (torch.__version__, name, *kind)))
    return cache_dir() / "compiled" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.bin"


@functools.cache
def load_compiled(path: Path) -> bool:
    """Load the compiled code that an earlier process cached. Return whether the file held any.

    The file is read once per process. A missing or damaged file is ignored.
    """
    torch_log = logging.getLogger("torch.compiler._cache")
    level = torch_log.level
    torch_log.setLevel(logging.CRITICAL)  # torch would print a traceback for a damaged file
    try:
        return torch.compiler.load_cache_artifacts(zlib.decompress(path.read_bytes())) is not None
    except (OSError, zlib.error):
        return False
    finally:
        torch_log.setLevel(level)


def save_compiled(path: Path) -> None:
    """Write the compiled code to the cache if any of it is new. An error while writing is ignored.

    This happens once per process. torch returns everything that it has compiled so far, and a second return value is a
    mixture that cannot be loaded.
    """
    if mode.is_saved or not _num_new():
        return
    mode.is_saved = True
    artifacts = torch.compiler.save_cache_artifacts()
    if artifacts is not None:
        write_to_cache(path, zlib.compress(artifacts[0]))


def _num_new() -> int:
    """Return the number of graphs that torch compiled because the cache did not hold them."""
    return torch._dynamo.utils.counters["inductor"]["fxgraph_cache_miss"]
