"""How work gets to a device and runs there: fed without waiting, recorded and replayed. Methods know nothing of it."""

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openworld import compiling

CALLS_BEFORE_RECORDING = 2
"""The first calls set things up (compile, choose algorithms, make the optimiser's state), which cannot be recorded."""


class _Ours:
    deterministic = False
    """Whether it was us who asked torch for deterministic algorithms."""


_ours = _Ours()


def set_up(device: torch.device, compile: bool, deterministic: bool) -> None:
    """How this process computes from now on."""
    compiling.mode.is_on = compile
    torch.backends.cudnn.benchmark = not deterministic  # batches have one shape: it pays to find the best way for it
    if deterministic != _ours.deterministic:  # what a program has set for itself stays
        torch.use_deterministic_algorithms(deterministic)
        _ours.deterministic = deterministic
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
        if tensor.device.type == device.type:
            return tensor
        if self.crossed:
            self.crossed.synchronize()
        staged = stage(tensor, device)
        self.crossed = torch.cuda.Event()
        self.crossed.record()
        return staged


def conv_relu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int],
    shortcut: Tensor | None = None,
) -> Tensor:
    """relu(convolution + bias + shortcut), for inference: one kernel where cuDNN can, which saves trips to memory."""
    if _has_fused_convolutions(x) and weight.shape[1] > 1:  # whether it can for gray images was never tried
        places = stride, padding, (1, 1), 1
        if shortcut is None:
            return torch.cudnn_convolution_relu(x, weight, bias, *places)
        return torch.cudnn_convolution_add_relu(x, weight, shortcut, 1.0, bias, *places)
    y = F.conv2d(x, weight, bias, stride, padding)
    return F.relu(y if shortcut is None else y + shortcut)


def _has_fused_convolutions(x: Tensor) -> bool:
    """In bfloat16 from Ampere on; and torch does not ask for deterministic ones."""
    if not x.is_cuda or torch.version.cuda is None or torch.are_deterministic_algorithms_enabled():
        return False
    return torch.cuda.get_device_capability(x.device) >= (8, 0)


# Recorded ---------------------------------------------------------------------------------------------------


class Recorder:
    """Runs one function again and again, on a GPU by replaying its kernels: launching them one by one costs more.

    The function may change tensors in place, which must not be replaced by others between calls; it must not wait for
    the device. Its inputs are tensors, in every call of the same shapes. What it returns holds until the next call.
    """

    def __init__(self):
        self.num_calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

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
        aside = _side_stream(inputs[0].device)
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            outputs = function(*inputs)
        torch.cuda.current_stream().wait_stream(aside)
        return outputs

    def _record(self, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
        self.inputs = [given.clone() for given in inputs]
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=_side_stream(inputs[0].device)):
            self.outputs = function(*self.inputs)


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all recordings: libraries keep memory for every stream that they have seen."""
    return torch.cuda.Stream(device)
