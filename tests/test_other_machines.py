"""What holds on machines that CI does not have: nothing at import needs Unix, and Apple's GPU is chosen where it is."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from worlds import CPU

import openworld
from openworld.compute.device import describe, stage
from openworld.compute.runtime import free_memory, make_runtime, pick_device
from openworld.core.errors import UserError
from openworld.training.optimiser import Optimiser

SOURCE = Path(openworld.__file__).parent
UNIX_ONLY = {"fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "posix", "syslog"}
MPS = torch.device("mps")


def test_no_module_imports_what_only_unix_has():
    """At the top of a file. Within a function it may be tried."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert not UNIX_ONLY & {name.split(".")[0] for name in names if name}, path.name


@pytest.mark.slow
def test_a_run_works_without_what_only_unix_has(tmp_path):
    """In a process in which our modules find neither these modules nor these functions of os."""
    code = """
import os, sys
import torch, sklearn.datasets, matplotlib.figure, PIL.Image, rich.progress, safetensors.torch, multiprocessing.pool
for name in ("preadv", "pwritev", "pread", "pwrite", "sysconf", "sched_getaffinity"):
    delattr(os, name)
sys.modules["resource"] = None
from openworld.cli import main
main(["train", "--steps", "2", "--epoch-steps", "2", "--uncertainty-views", "2", "--device", "cpu", "--out", "r"])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r" / "summary.json").is_file()


@pytest.fixture
def _apple(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    monkeypatch.setattr("torch.mps.recommended_max_memory", lambda: 10 * 2**30)
    monkeypatch.setattr("torch.mps.driver_allocated_memory", lambda: 2**30)


@pytest.mark.usefixtures("_apple")
def test_auto_takes_apples_gpu_where_there_is_one_and_does_not_compile():
    runtime = make_runtime("auto")
    assert runtime.device == MPS
    assert not runtime.compile
    assert runtime.memory == 9 * 2**30 // 2
    assert describe(runtime.device) == "mps"
    with pytest.raises(UserError, match="--compile on"):
        make_runtime("mps", compile="on")


def test_a_cuda_gpu_comes_first_and_the_cpu_last(monkeypatch):
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert pick_device("auto") == CPU
    with pytest.raises(UserError, match="--device cpu"):
        pick_device("mps")
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert pick_device("auto") == torch.device("cuda")


def test_numbers_reach_apples_gpu_as_float32(monkeypatch):
    moved = []
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device: moved.append((tensor.dtype, device)))
    stage(torch.zeros(2, dtype=torch.float64), MPS)
    stage(torch.zeros(2, dtype=torch.int64), MPS)
    assert moved == [(torch.float32, MPS), (torch.int64, MPS)]


def test_memory_is_guessed_where_the_system_does_not_tell_it(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError()))
    monkeypatch.delattr("os.sysconf")
    assert free_memory(CPU) == 2 * 2**30


def test_without_the_fused_kernel_updates_are_the_same_and_a_bad_one_is_skipped(small_optimisers):
    """Apple's fused SGD has no flag that skips an update, so the host looks at the flag."""
    fused, plain = small_optimisers
    for optimiser in small_optimisers:
        for gradient in (1.0, 0.5, torch.nan):
            for parameter in optimiser.parameters:
                parameter.grad = torch.full_like(parameter, gradient)
            optimiser.descend(torch.tensor(0.0), torch.tensor(0.1), torch.tensor(3))
        assert optimiser.failure() == 3
    for one, other in zip(fused.parameters, plain.parameters, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other)


@pytest.fixture
def small_optimisers() -> list[Optimiser]:
    """One with the fused kernel, and one as Apple's GPU has it."""
    from worlds import cosine_head

    from openworld.core.config import Training
    from openworld.nets.network import build_network
    from openworld.ops.rng import generator
    from openworld.ops.schedule import Pace

    optimisers = []
    for is_fused in (True, False):
        statistics = torch.zeros(4), torch.ones(4)
        network = build_network("mlp", (4,), *statistics, cosine_head(3), generator(0, "test"))
        optimiser = Optimiser(network, Training(), lambda name: Pace())
        optimiser.is_fused = is_fused
        if not is_fused:
            groups = [
                {key: group[key] for key in ("params", "lr", "weight_decay")} for group in optimiser.sgd.param_groups
            ]
            optimiser.sgd = torch.optim.SGD(groups, momentum=Training().momentum, foreach=False)
        optimisers.append(optimiser)
    return optimisers
