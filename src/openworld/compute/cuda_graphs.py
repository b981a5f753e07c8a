"""Run a function many times. On a CUDA GPU, capture it once as a CUDA graph and replay the graph."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CALLS_BEFORE_CAPTURE = 2
"""The first calls set things up (compile, choose algorithms, make the optimiser's state), which cannot be recorded."""


class GraphRunner:
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
        if self.num_calls <= CALLS_BEFORE_CAPTURE:
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
