"""Run a function many times. On a CUDA GPU, capture it once as a CUDA graph and replay the graph."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CALLS_BEFORE_CAPTURE = 2
"""Number of warm-up calls. They compile, select algorithms and create optimiser state, which cannot be captured."""


class GraphRunner:
    """Run one function again and again. On a CUDA GPU, replay its kernels as a graph.

    A replay launches all kernels at once, which costs less than launching them one by one. A function that is captured
    must keep to these rules:

    - Its inputs are tensors, with the same shapes in every call.
    - It may change tensors in place. No code may replace these tensors by others between calls.
    - It must not wait for the device.

    Its outputs are valid until the next call. On a CPU the runner only calls the function.
    """

    def __init__(self):
        self.num_calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, function: Callable[..., Any], *inputs: Tensor) -> Any:
        if inputs[0].device.type != "cuda":
            return function(*inputs)
        self.num_calls += 1
        if self.num_calls <= CALLS_BEFORE_CAPTURE:
            return self._warm_up(function, inputs)
        if self.graph is None:
            self._capture(function, inputs)
        for static_input, new_input in zip(self.static_inputs, inputs, strict=True):
            static_input.copy_(new_input)
        self.graph.replay()
        return self.static_outputs

    def _warm_up(self, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> Any:
        """Call the function on the capture stream. Work on the default stream would conflict with a capture."""
        stream = _capture_stream(inputs[0].device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            outputs = function(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        return outputs

    def _capture(self, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
        """Capture the function as a graph that reads `static_inputs` and writes `static_outputs`."""
        self.static_inputs = [tensor.clone() for tensor in inputs]
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=_capture_stream(inputs[0].device)):
            self.static_outputs = function(*self.static_inputs)


@functools.cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of all captures. One is enough, and libraries keep memory for every stream that they see."""
    return torch.cuda.Stream(device)
