"""How functions run on a device: compiled, recorded, fed without waiting. The only device code; methods have none."""

import functools
import hashlib
import logging
import os
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from openworld.places import cache_dir

P, R = ParamSpec("P"), TypeVar("R")

MOST_SHAPES = 64
"""Kinds of inputs for which one function may be compiled in one process; torch gives up silently above that."""
CALLS_BEFORE_RECORDING = 2
"""The first calls set things up (compile, choose algorithms, make the optimiser's state), which cannot be recorded."""


def set_up(device: torch.device, compile: bool, deterministic: bool) -> None:
    """How this process computes from now on."""
    _mode.compiles = compile
    torch.backends.cudnn.benchmark = not deterministic  # batches have one shape: it pays to find the best way for it
    torch.use_deterministic_algorithms(deterministic)
    if deterministic and device.type == "cuda":
        torch.utils.deterministic.fill_uninitialized_memory = False  # every number is written before it is read
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS refuses


def stage(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; the host does not wait until it is there."""
    if tensor.device.type == device.type:
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def staging_area(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Memory for bytes that are to be staged: from here they go to a GPU without another copy."""
    return torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")


def wait_for(device: torch.device) -> None:
    """Until all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Ferry:
    """Stages large tensors one after the other: the host may be one ahead of the device, not many."""

    def __init__(self):
        self.crossed: torch.cuda.Event | None = None

    def __call__(self, tensor: Tensor, device: torch.device) -> Tensor:
        if self.crossed:
            self.crossed.synchronize()
        staged = stage(tensor, device)
        if device.type == "cuda":
            self.crossed = torch.cuda.Event()
            self.crossed.record()
        return staged


# Compiled ---------------------------------------------------------------------------------------------------


class _Mode:
    compiles = False


_mode = _Mode()


def compilable(function: Callable[P, R]) -> Callable[P, R]:
    """Marks a function, pure and worth it, that is compiled where `set_up` said so: once for each kind of its inputs.

    Weights are inputs, too: a second network of the same architecture is served by the code made for the first.
    """

    @functools.wraps(function)
    def call(*inputs: P.args, **named: P.kwargs) -> R:
        return _compiled(function)(*inputs, **named) if _mode.compiles else function(*inputs, **named)

    return call


@contextmanager
def plainly() -> Iterator[None]:
    """For what is done so seldom that compiling it would take longer."""
    before, _mode.compiles = _mode.compiles, False
    try:
        yield
    finally:
        _mode.compiles = before


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.config.recompile_limit = MOST_SHAPES
    logging.getLogger("torch._inductor.utils").setLevel(logging.ERROR)  # advice that is not meant for our users
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores", category=UserWarning)
    return torch.compile(function, dynamic=False)


class CompileCache:
    """What was compiled, carried from one process or machine to the next: a file in the user's cache."""

    def __init__(self, device: torch.device, *kind: object):
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        key = "/".join(map(str, (torch.__version__, name, *kind)))
        self.path = cache_dir() / "compiled" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.bin"
        self.is_saved = False

    def load(self) -> bool:
        """Whether there was something to load."""
        try:
            return torch.compiler.load_cache_artifacts(zlib.decompress(self.path.read_bytes())) is not None
        except (OSError, zlib.error):
            return False

    def save(self) -> None:
        """Once. Nothing depends on it: where there is no room for it, it is left out."""
        artifacts = None if self.is_saved else torch.compiler.save_cache_artifacts()
        self.is_saved = True
        if artifacts is not None:
            _write_aside(self.path, zlib.compress(artifacts[0]))


def _write_aside(path: Path, content: bytes) -> None:
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content)
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink()


# Recorded ---------------------------------------------------------------------------------------------------


class Recorder:
    """Runs one function again and again, on a GPU by replaying its kernels: launching them one by one costs more.

    The function may change tensors in place, which must not be replaced by others between calls; it must not wait for
    the device. Its inputs are tensors, in every call of the same shapes. What it returns holds until the next call.
    """

    def __init__(self):
        self.num_calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stream: torch.cuda.Stream | None = None

    def __call__(self, function: Callable[..., Any], *inputs: Tensor) -> Any:
        if inputs[0].device.type != "cuda":
            return function(*inputs)
        self.num_calls += 1
        if self.num_calls <= CALLS_BEFORE_RECORDING:
            return self._call_aside(function, inputs)
        if self.graph is None:
            self._record(function, inputs)
        for mine, given in zip(self.inputs, inputs, strict=True):
            mine.copy_(given)
        self.graph.replay()
        return self.outputs

    def _call_aside(self, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> Any:
        """On another stream than the default one, with which a recording would clash."""
        self.stream = self.stream or torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            outputs = function(*inputs)
        torch.cuda.current_stream().wait_stream(self.stream)
        return outputs

    def _record(self, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
        self.inputs = [given.clone() for given in inputs]
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = function(*self.inputs)
