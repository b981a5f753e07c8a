"""How work gets to a device and runs there: fed without waiting, recorded and replayed. Methods know nothing of it."""

import os

import torch
from torch import Tensor

from openworld.compute import compiling


class _Ours:
    deterministic = False
    """Whether it was us who requested torch for deterministic algorithms."""


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


def staging_buffer(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Memory for bytes that are to be staged: from here they go to a GPU without another copy."""
    return torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")


def synchronize(device: torch.device) -> None:
    """Until all that was requested of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Transfer:
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


# Recorded ---------------------------------------------------------------------------------------------------


def describe(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
