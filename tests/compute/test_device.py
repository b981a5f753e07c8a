"""How functions run on a device, as far as it can be tested without a GPU."""

import dataclasses
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters
from worlds import CPU, RUNTIME

from openworld.compute import compiling, cuda_graphs, device
from openworld.compute.compiling import compilable, without_compiling
from openworld.compute.cuda_graphs import GraphRunner
from openworld.compute.device import Transfer, set_up, stage
from openworld.compute.runtime import Runtime, make_runtime
from openworld.core.config import Config
from openworld.core.errors import UserError
from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.data import augment
from openworld.data.problem import load_problem
from openworld.methods import METHODS
from openworld.ops.rng import generator
from openworld.runs.folder import RunFolder
from openworld.training.learner import Learner
from openworld.training.loop import train
from openworld.training.meter import Meter

CUDA = torch.device("cuda")
TINY = replace(digits("digits"), {"steps": 5, "batch_labelled": 8, "batch_unlabelled": 16})


def losses(config: Config, runtime: Runtime) -> list[float]:
    """Return the loss of every step of a run."""
    learner = beginning(config, runtime)
    losses = []
    for _ in range(config.training.steps):
        learner.meter = Meter()
        learner.learn()
        losses.append(learner.meter.means()["loss"])
    return losses


def beginning(config: Config, runtime: Runtime) -> Learner:
    return Learner(config, load_problem(config, runtime).training, runtime)


# On a CPU nothing is recorded, and nothing is moved ----------------------------------------------------------


def test_on_a_cpu_a_recorder_simply_calls():
    seen = []

    def function(*inputs):
        seen.append(inputs)
        return {"number": len(seen)}

    recorder, tensors = GraphRunner(), [torch.zeros(2), torch.ones(3)]
    answers = [recorder(function, *tensors) for _ in range(cuda_graphs.CALLS_BEFORE_CAPTURE + 2)]
    assert [answer["number"] for answer in answers] == [1, 2, 3, 4]
    assert all(given is mine for inputs in seen for given, mine in zip(inputs, tensors, strict=True))


def test_on_a_cpu_a_tensor_is_staged_as_it_is():
    tensor = torch.arange(3)
    assert stage(tensor, CPU) is tensor
    ferry = Transfer()
    assert ferry(tensor, CPU) is ferry(tensor, CPU) is tensor


def places(learner: Learner) -> dict[str, int]:
    optimiser = learner.optimiser
    tensors = {
        **{f"network {name}": tensor for name, tensor in learner.network.state_dict().items()},
        **{f"average {name}": tensor for name, tensor in learner.average.network.state_dict().items()},
        **{f"method {name}": tensor for name, tensor in learner.method.state_dict().items()},
        **{f"momentum {name}": tensor for name, tensor in optimiser.state().items()},
        **{f"rate {factor}": tensor for factor, tensor in optimiser.rates.items()},
        **{f"optimiser {name}": getattr(optimiser, name) for name in ("failed", "failed_step")},
    }
    return {name: tensor.data_ptr() for name, tensor in tensors.items()}


@pytest.mark.parametrize("method", METHODS)
def test_what_a_recorded_step_reads_and_changes_stays_where_it_is(method):
    """A CUDA graph reads fixed memory addresses. It would never read a tensor that is created between two steps."""
    from_the_first = replace(TINY, {"uncertainty_views": 2, "uncertainty_from": 0.0})
    learner = beginning(replace(from_the_first, {"method": method}), RUNTIME)
    for _ in range(cuda_graphs.CALLS_BEFORE_CAPTURE):
        learner.learn()
    before = places(learner)
    assert any(name.startswith("momentum") for name in before)
    assert "rate 1.0" in before
    learner.recalibrate_average()
    learner.end_epoch()
    learner.learn()
    assert places(learner) == before


def test_the_averaged_model_answers_in_one_place_with_the_weights_of_the_moment():
    """A graph that is recorded in one epoch is replayed in the next."""
    learner = beginning(TINY, RUNTIME)
    images = learner.batches.at(0).views
    places, answers = [], []
    for _ in range(2):
        learner.learn()
        learner.recalibrate_average()
        answering = learner.inference_average()
        places.append((id(answering), [tensor.data_ptr() for tensor in answering.state_dict().values()]))
        answers.append(answering(images))
        torch.testing.assert_close(answers[-1], learner.average.network.eval()(images), atol=1e-4, rtol=0)
    assert places[0] == places[1]
    assert not torch.allclose(*answers, atol=1e-3)


def test_the_averaged_model_answers_with_the_statistics_of_whole_batches():
    """Training batches contain labelled rows. Statistics without them would favour seen classes."""
    learner = beginning(TINY, RUNTIME)
    learner.learn()
    learner.recalibrate_average()
    batch, network = learner.batches.at(0), learner.average.network
    stem = network.body.stem[0]
    images = torch.cat([batch.labelled, batch.views])
    activations = stem.conv((images - network.mean) / network.std)
    torch.testing.assert_close(stem.norm.running_mean, activations.mean(dim=(0, 2, 3)))
    assert len(batch.labelled)


# Settings of the process -------------------------------------------------------------------------------------


@pytest.fixture
def torch_as_it_was(monkeypatch) -> Iterator[None]:
    """Restore every setting that `set_up` changes."""
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    monkeypatch.setattr(device._state, "deterministic", False)
    filled = torch.utils.deterministic
    monkeypatch.setattr(compiling.mode, "is_on", False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    monkeypatch.setattr(filled, "fill_uninitialized_memory", filled.fill_uninitialized_memory)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    yield
    torch.use_deterministic_algorithms(was_deterministic)


@pytest.mark.usefixtures("torch_as_it_was")
def test_deterministic_algorithms_are_switched_on_and_off_again():
    for is_wanted in (True, False, True):
        set_up(CPU, compile=False, deterministic=is_wanted)
        assert torch.are_deterministic_algorithms_enabled() == is_wanted
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.backends.cudnn.benchmark != is_wanted  # it measures, and what it chooses depends on the clock


@pytest.mark.usefixtures("torch_as_it_was")
def test_what_a_program_has_set_for_itself_stays():
    torch.use_deterministic_algorithms(True)
    set_up(CPU, compile=False, deterministic=False)
    assert torch.are_deterministic_algorithms_enabled()


@pytest.mark.usefixtures("torch_as_it_was")
def test_what_only_a_gpu_needs_is_set_for_a_gpu_alone():
    set_up(CPU, compile=False, deterministic=True)
    set_up(CUDA, compile=False, deterministic=False)
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    set_up(CUDA, compile=False, deterministic=True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@pytest.mark.usefixtures("torch_as_it_was")
def test_a_setting_of_the_user_stays(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    set_up(CUDA, compile=False, deterministic=True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


@pytest.mark.usefixtures("torch_as_it_was")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_only_deterministic_steps(method):
    """On a CPU all steps are deterministic, but torch refuses operations without a deterministic implementation."""
    config = replace(TINY, {"method": method})
    assert losses(config, dataclasses.replace(RUNTIME, deterministic=True)) == losses(config, RUNTIME)


@pytest.mark.parametrize(
    ("device", "compile", "deterministic", "expected"),
    [
        ("cpu", "auto", False, False),  # on a CPU compiling costs more than it saves
        ("cpu", "on", False, True),
        ("cuda", "auto", False, True),
        ("cuda", "off", False, False),
        ("cuda", "auto", True, False),
    ],
)
def test_whether_steps_are_compiled(monkeypatch, device, compile, deterministic, expected):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (2**30, 2**30))
    runtime = make_runtime(device, compile=compile, deterministic=deterministic)
    assert (runtime.compile, runtime.deterministic) == (expected, deterministic)


def test_settings_that_exclude_each_other_are_refused():
    with pytest.raises(UserError, match=r"--deterministic and --compile on.*one of them"):
        make_runtime("cpu", compile="on", deterministic=True)
    with pytest.raises(UserError, match=r"--compile maybe: .*auto, on or off"):
        make_runtime("cpu", compile="maybe")


# Compiled ----------------------------------------------------------------------------------------------------


@pytest.fixture
def traced_only(monkeypatch) -> Iterator[None]:
    """Let torch.compile trace as usual but run the traced code uncompiled, which takes seconds and is exact."""

    def forget() -> None:
        compiling._compiled.cache_clear()
        torch._dynamo.reset()
        counters.clear()

    monkeypatch.setattr(compiling.mode, "is_on", False)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    config = torch._dynamo.config
    forget()
    with config.patch(recompile_limit=config.recompile_limit):  # restored at the end
        yield
    forget()


def num_graphs() -> int:
    """Return the number of compiled graphs."""
    return counters["stats"]["unique_graphs"]


@pytest.mark.usefixtures("traced_only")
def test_a_function_is_compiled_where_that_was_asked_for_and_once_for_each_kind_of_its_inputs():
    double = compilable(lambda tensor: tensor * 2)
    assert double(torch.ones(2)).tolist() == [2, 2]
    assert num_graphs() == 0
    set_up(CPU, compile=True, deterministic=False)
    for size, expected in ((2, 1), (2, 1), (3, 2), (2, 2)):
        assert double(torch.ones(size)).tolist() == [2] * size
        assert num_graphs() == expected
    set_up(CPU, compile=False, deterministic=False)
    assert double(torch.ones(4)).tolist() == [2] * 4
    assert num_graphs() == 2


@pytest.mark.usefixtures("traced_only")
def test_what_is_done_plainly_is_not_compiled_and_what_follows_is_again():
    double = compilable(lambda tensor: tensor * 2)
    set_up(CPU, compile=True, deterministic=False)
    with without_compiling():
        assert double(torch.ones(2)).tolist() == [2, 2]
    with pytest.raises(TypeError), without_compiling():
        double("not", "a tensor")
    assert num_graphs() == 0
    double(torch.ones(2))
    assert num_graphs() == 1
    set_up(CPU, compile=False, deterministic=False)
    with without_compiling():
        pass
    double(torch.ones(3))
    assert num_graphs() == 1


@pytest.mark.usefixtures("traced_only")
def test_where_compiling_fails_training_goes_on_without_and_says_so(monkeypatch, capsys):
    def no_compiler(graph, inputs):
        raise RuntimeError("there is no compiler here")

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=no_compiler))
    double = compilable(lambda tensor: tensor * 2)
    set_up(CPU, compile=True, deterministic=False)
    assert double(torch.ones(2)).tolist() == double(torch.ones(2)).tolist() == [2, 2]
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch("warning: compilation failed.*there is no compiler here.*", line)


@pytest.mark.slow
@pytest.mark.usefixtures("traced_only")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_compiled_in_its_first_step_and_then_serves_all_runs(method):
    config, compiling = replace(TINY, {"method": method}), dataclasses.replace(RUNTIME, compile=True)
    losses(replace(config, {"steps": 1}), compiling)
    after_one_step = num_graphs()
    assert after_one_step > 0
    for seed in (0, 1):
        one_of_many = replace(config, {"seed": seed})
        assert losses(one_of_many, compiling) == losses(one_of_many, RUNTIME)
    assert num_graphs() == after_one_step
    assert not counters["graph_break"]


@pytest.mark.slow
@pytest.mark.usefixtures("traced_only")
def test_whatever_a_run_does_is_compiled_once():
    """Passes over the whole set use as many rows as a step, so they need no code of their own."""
    run, config = RunFolder(Path("r")), replace(TINY, {"epoch_steps": 2, "uncertainty_views": 2})
    compiling = dataclasses.replace(RUNTIME, compile=True)
    losses(replace(config, {"steps": 1}), compiling)
    after_one_step = num_graphs()
    train(config, run, compiling)
    assert num_graphs() == after_one_step
    assert not counters["graph_break"]


@pytest.mark.slow
@pytest.mark.usefixtures("traced_only")
@pytest.mark.parametrize("name", augment.IMAGE_FAMILIES)
def test_every_family_can_be_compiled_whole(name):
    images = torch.randint(0, 256, (8, 3, 32, 32), generator=generator(0, "images"), dtype=torch.uint8)
    family = augment.family(name, torch.zeros(3), torch.ones(3))
    set_up(CPU, compile=True, deterministic=False)
    for seed in range(3):  # different random numbers, the same compiled code
        numbers = family.draw(images, generator(seed, "views"))
        views = family.view(images, numbers)
        with without_compiling():
            torch.testing.assert_close(views, family.view(images, numbers), atol=1e-6, rtol=0)
    assert num_graphs() == 1
    assert not counters["graph_break"]
