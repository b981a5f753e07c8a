"""The fast path of a step on a GPU: it never waits for the device, and its results match the plain path."""

import pytest
import torch
from worlds import RUNTIME

from openworld.compute import cuda_graphs, device
from openworld.compute.compiling import without_compiling
from openworld.compute.runtime import Runtime
from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.data.problem import load_problem
from openworld.methods import METHODS
from openworld.nets.inference import inference_copy
from openworld.ops.uncertainty import measure_uncertainty
from openworld.training.learner import Learner

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode", "ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning"),  # raised by torch.compile
]

# A low learning rate: with the recipe's rate, rounding errors double with every step.
CONFIG = replace(digits("digits"), {"steps": 100, "lr": 0.02, "trssl.uncertainty_from": 0.0})
STEPS = 20
KINDS = [*({"method": method} for method in METHODS), {"method": "simclr", "muon": 0.01}, {"norm_rows": 64}]


def runtime(**settings) -> Runtime:
    return Runtime(torch.device("cuda"), RUNTIME.data_dir, quiet=True, **settings)


def beginning(config=CONFIG, **settings) -> Learner:
    world = load_problem(config, runtime(**settings))
    return Learner(config, world.training, runtime(**settings))


def losses_of(learner: Learner) -> list[float]:
    sums = []
    for _ in range(STEPS):
        learner.learn()
        sums.append(float(learner.meter.sums["loss"]))
    return [after - before for before, after in zip([0.0, *sums], sums, strict=False)]


def weights_of(learner: Learner) -> torch.Tensor:
    return torch.cat([weights.detach().flatten() for weights in learner.network.parameters()])


@pytest.fixture
def unrecorded(monkeypatch):
    """Record no CUDA graphs: every kernel is launched by itself."""
    monkeypatch.setattr(cuda_graphs, "CALLS_BEFORE_CAPTURE", 10**9)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("compile", [False, True])
def test_the_loop_never_waits_for_the_device(compile, kind):
    learner = beginning(replace(CONFIG, kind), compile=compile)
    for _ in range(5):
        learner.learn()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(STEPS):
            learner.learn()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert learner.optimiser.failure() is None


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("compile", [False, True])
def test_losses_of_the_fast_way_are_those_of_the_plain_way(compile, kind, request):
    config = replace(CONFIG, kind)
    fast = losses_of(beginning(config, compile=compile))
    request.getfixturevalue("unrecorded")
    plain = losses_of(beginning(config))
    assert fast == pytest.approx(plain, rel=0.02)  # bfloat16 keeps 3 digits
    assert fast[0] == pytest.approx(plain[0], rel=1e-3)
    assert len(set(fast)) == STEPS  # a recording that got no new inputs would repeat itself


def test_a_recording_makes_the_bits_of_the_kernels_it_recorded(request):
    """Two runs in deterministic mode also give the same bits."""
    weights = []
    for plain in (False, False, True):
        if plain:
            request.getfixturevalue("unrecorded")
        learner = beginning(deterministic=True)
        for _ in range(2):  # with the end of an epoch in between
            losses_of(learner)
            learner.recalibrate_average()
            learner.end_epoch()
        weights.append(weights_of(learner))
    device.set_up(torch.device("cuda"), compile=False, deterministic=False)
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


def test_the_uncertainty_of_the_fast_way_is_that_of_the_plain_way():
    learner = beginning(replace(CONFIG, {"lr": 0.5}), compile=True)  # a high rate: the network must have learnt
    for _ in range(4):
        losses_of(learner)
    learner.recalibrate_average()
    batches = learner.batches
    family = batches.data.family
    network = learner.average.network.eval()

    def plain_answer(samples, *counters):  # uses the same random draws: those of a filled batch
        filled = torch.cat([samples, samples[:1].expand(batches.rows - len(samples), *samples.shape[1:])])
        numbers = family.draw(filled, batches._source("test", 0, *counters))
        return network(family.view(filled, numbers))[: len(samples)]

    chunks = list(batches.data.unlabelled.chunks(batches.rows))
    with without_compiling():
        plain = measure_uncertainty(plain_answer, chunks, num_views=10)
    fast = measure_uncertainty(batches.view_predictor(inference_copy(network), "test", 0), chunks, num_views=10)
    assert torch.corrcoef(torch.stack([plain, fast]))[0, 1] > 0.99
    # Uncertainty is that of the class with the best mean. If two classes tie, rounding may choose either.
    assert float(((fast - plain).abs() < plain.max() / 20).float().mean()) > 0.99
