"""Settings of torch for this process, copies to the device, and waiting for it. Methods do not use this module."""

import os

import torch
from torch import Tensor

from openworld.compute import compiling


class _State:
    deterministic = False
    """Whether `set_up` has turned on torch's deterministic algorithms."""


_state = _State()


def set_up(device: torch.device, compile: bool, deterministic: bool) -> None:
    """Set whether this process compiles functions and whether it uses deterministic algorithms, from now on."""
    compiling.mode.is_on = compile
    torch.backends.cudnn.benchmark = not deterministic  # all batches have one shape, so a search for algorithms pays
    if deterministic != _state.deterministic:  # a setting that the user's program made itself must stay
        torch.use_deterministic_algorithms(deterministic)
        _state.deterministic = deterministic
    if deterministic and device.type == "cuda":
        torch.utils.deterministic.fill_uninitialized_memory = False  # our code writes every number before it reads it
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS raises an error without it


def stage(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on the device. The host does not wait for the copy."""
    if tensor.device.type == device.type:
        return tensor
    if device.type == "mps":  # Apple's GPU has no float64, and uses the memory of the host
        return (tensor.float() if tensor.dtype == torch.float64 else tensor).to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def staging_buffer(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return host memory for bytes that will be staged. It is pinned, so a copy to a GPU needs no other copy."""
    return torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


class Transfer:
    """Stage large tensors one after the other. The host may be one tensor ahead of the device, but no more."""

    def __init__(self):
        self.last_copy: torch.cuda.Event | None = None

    def __call__(self, tensor: Tensor, device: torch.device) -> Tensor:
        if device.type != "cuda" or tensor.is_cuda:
            return stage(tensor, device)
        if self.last_copy:
            self.last_copy.synchronize()
        staged = stage(tensor, device)
        self.last_copy = torch.cuda.Event()
        self.last_copy.record()
        return staged


def describe(device: torch.device) -> str:
    """Return the name of the CUDA GPU, or `mps` or `cpu`, as run folders record it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
