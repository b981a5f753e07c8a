import dataclasses

import pytest
import torch
from torch import Tensor, nn
from worlds import CPU, cosine_head

from openworld.core.config import Training
from openworld.data.problem import statistics
from openworld.data.samples import InMemory
from openworld.nets.heads import CosineHead
from openworld.nets.network import Network, build_network
from openworld.ops.rng import generator
from openworld.ops.schedule import Pace, averaging_decay, warmup_and_cosine
from openworld.training.average import Average
from openworld.training.muon import Muon, orthogonal
from openworld.training.optimiser import Optimiser

SHORT = Training(network="small", steps=100, warmup=0.1, lr=0.2)
TURNING = dataclasses.replace(SHORT, muon=0.1)
COSINES = cosine_head(4)
IMAGES = torch.randint(0, 256, (32, 1, 8, 8), dtype=torch.uint8, generator=generator(0, "test"))


class HeadWithMore(nn.Module):
    """Predicts by cosines and has another layer, which a method trains."""

    def __init__(self, width: int, source: torch.Generator):
        super().__init__()
        self.classes, self.other = CosineHead.drawn(width, 4, source), nn.Linear(4, 3)
        nn.init.normal_(self.other.weight, generator=generator(1, "test"))
        nn.init.zeros_(self.other.bias)

    def forward(self, features: Tensor) -> Tensor:
        return self.classes(features)


def small_network(build_head=COSINES) -> Network:
    statistics_C = statistics(InMemory(IMAGES, CPU))
    return build_network("small", (1, 8, 8), *statistics_C, build_head, generator(0, "weights"))


def optimiser_of(network: Network, training: Training = SHORT) -> Optimiser:
    """Return an optimiser that trains all parameters."""
    return Optimiser(network, training, lambda name: Pace())


def loss_of(network, scale: float = 1.0):
    return scale * network(IMAGES.float() / 255).square().sum()


def update(optimiser: Optimiser, loss: Tensor, step: int) -> None:
    """Update as the learner does. Step and rate are tensors on the device, so that a CUDA graph can read them."""
    pace = torch.tensor((step, warmup_and_cosine(step, SHORT)), dtype=torch.float64)
    optimiser.update(loss, rate=pace[1], step=pace[0])


def test_learning_rate_warms_up_linearly_then_follows_a_cosine_to_zero():
    rates = [warmup_and_cosine(step, SHORT) for step in range(100)]
    assert rates[:10] == pytest.approx([0.02 * n for n in range(1, 11)])
    assert rates[55] == pytest.approx(0.1)
    assert 0 < rates[-1] < 1e-3
    assert rates[9:] == sorted(rates[9:], reverse=True)


def test_a_run_of_one_step_has_a_learning_rate():
    assert warmup_and_cosine(0, dataclasses.replace(SHORT, steps=1, warmup=0.0)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("lr", "weight_decay", "steps", "horizon"),
    [
        (0.1, 1e-4, 204_800, 500),  # the paper's run: a twentieth of the 10,000 steps of a weight turnover
        (0.1, 5e-4, 8_000, 100),
        (0.4, 5e-4, 8_000, 25),
        (0.1, 5e-4, 700, 35),  # a short run: a twentieth of it
        (0.1, 0.0, 1_000_000, 50_000),
        (0.1, 1e-4, 10, 1),  # too few steps: no averaging
    ],
)
def test_averaging_horizon_follows_from_lr_weight_decay_and_length(lr, weight_decay, steps, horizon):
    training = Training(lr=lr, weight_decay=weight_decay, steps=steps)
    assert 1 / (1 - averaging_decay(training)) == pytest.approx(horizon)


def test_matrices_that_turn_fast_are_averaged_over_fewer_steps():
    training = Training(lr=0.1, weight_decay=0.0, steps=1_000_000, muon=0.01)
    assert 1 / (1 - averaging_decay(training)) == pytest.approx(200)


def test_update_is_plain_sgd_with_momentum_and_decay():
    ours, reference = small_network(), small_network()
    optimiser = optimiser_of(ours)
    plain = torch.optim.SGD(reference.parameters(), lr=0.0, momentum=0.9, weight_decay=1e-4)
    for step in range(3):
        update(optimiser, loss_of(ours), step)
        plain.zero_grad()
        loss_of(reference).backward()
        plain.param_groups[0]["lr"] = warmup_and_cosine(step, SHORT)
        plain.step()
        reference.head.normalise()
    for a, b in zip(ours.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_muon_turns_all_matrices_but_the_heads_by_its_rate_and_leaves_their_norms():
    network = small_network(HeadWithMore)
    optimiser = optimiser_of(network, TURNING)
    named = dict(network.named_parameters())
    before = {name: p.detach().clone() for name, p in named.items()}
    update(optimiser, network.head.other(network(IMAGES.float() / 255)).square().sum(), 9)  # the rate is highest here
    matrices = {name for name, p in named.items() if p.dim() > 1} - {"head.classes.weight"}
    assert matrices > {"head.other.weight", "body.stem.0.conv.weight"}
    assert optimiser.muon.momenta.keys() == matrices
    for name in matrices:
        old, new = before[name], named[name].detach()
        assert new.norm() == pytest.approx(old.norm().item(), rel=1e-5)
        across = (old * (new - old)).sum() / old.norm() ** 2  # the norm is restored, so this part is small
        assert abs(across) < TURNING.muon**2
        assert 0.5 < (new - old).norm() / old.norm() / TURNING.muon < 1.01, name


def test_muon_is_the_published_update_up_to_the_norms():
    """torch has Muon for plain matrices, in bfloat16. Its directions and ours must agree, momentum included."""
    ours, theirs = (nn.Parameter(torch.randn(6, 10, generator=generator(0, "test"))) for _ in range(2))
    muon = Muon({"w": ours})
    norm = ours.detach().norm()
    reference = torch.optim.Muon([theirs], lr=1.0, weight_decay=0.0, momentum=0.95, nesterov=True)
    for step in range(3):
        ours.grad, theirs.grad = (torch.randn(6, 10, generator=generator(step, "gradient")) for _ in range(2))
        before, expected = theirs.detach().clone(), ours.detach().clone()
        reference.step()
        direction = before - theirs.detach()
        expected -= 0.1 * expected.norm() / direction.norm() * direction
        muon.step(torch.tensor(0.1), refused=torch.tensor(False))
        torch.testing.assert_close(ours.detach().norm(), norm)
        torch.testing.assert_close(ours.detach(), expected * (norm / expected.norm()), rtol=0, atol=0.01)


@pytest.mark.parametrize("shape", [(3, 16, 40), (1, 8, 8)])
def test_orthogonal_matrices_have_singular_values_about_one_and_the_same_vectors(shape):
    stack = torch.randn(*shape, generator=generator(0, "test"))
    values = torch.linalg.svdvals(orthogonal(stack))
    assert values.min() > 0.6
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(stack, full_matrices=False)
    assert torch.linalg.matrix_norm(orthogonal(stack) - left @ right).max() < 0.3 * min(shape[1:]) ** 0.5


def test_matrices_of_one_stack_do_not_touch_each_other():
    """Wide, square and tall matrices, and convolutions in both memory layouts: each alone and all together."""
    shapes = [(4, 9), (4, 4), (7, 4), (4, 2, 3, 3), (4, 2, 3, 3), (4, 3, 1, 1)]
    source = generator(0, "test")
    first, gradients = ([torch.randn(shape, generator=source) for shape in shapes] for _ in range(2))

    def after(chosen: list[int]) -> list[Tensor]:
        weights = {str(n): nn.Parameter(first[n].clone()) for n in chosen}
        if "4" in weights:
            weights["4"] = nn.Parameter(first[4].clone(memory_format=torch.channels_last))
        muon = Muon(weights)
        for _ in range(2):
            for n in chosen:
                weights[str(n)].grad = gradients[n].clone()
            muon.step(torch.tensor(0.1), refused=torch.tensor(False))
        return [each.detach() for each in weights.values()]

    together = after(list(range(len(shapes))))
    for n in range(len(shapes)):
        torch.testing.assert_close(together[n], after([n])[0])
        assert not torch.allclose(together[n], first[n], atol=0.05)


def test_half_precision_as_on_a_gpu_turns_by_nearly_the_same():
    turned = []
    for dtype in (torch.float32, torch.bfloat16):
        network = small_network()
        optimiser = optimiser_of(network, TURNING)
        for stack in optimiser.muon.stacks:
            stack.filled = stack.filled.to(dtype)
        update(optimiser, loss_of(network), 9)
        turned.append(dict(network.named_parameters()))
    for name, exact in turned[0].items():
        assert (turned[1][name] - exact).norm() < 0.02 * exact.norm(), name


def test_a_gradient_of_zeros_turns_nothing():
    first = torch.randn(4, 5, generator=generator(0, "test"))
    weights = nn.Parameter(first.clone())
    weights.grad = torch.zeros(4, 5)
    Muon({"w": weights}).step(torch.tensor(0.1), refused=torch.tensor(False))
    torch.testing.assert_close(weights.detach(), first)


@pytest.mark.parametrize("training", [SHORT, TURNING], ids=["sgd", "muon"])
@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_changes_no_weight_and_is_named(scale, training):
    network = small_network()
    optimiser = optimiser_of(network, training)
    update(optimiser, loss_of(network), 0)
    assert optimiser.failure() is None
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    update(optimiser, loss_of(network, scale), 1)
    update(optimiser, loss_of(network), 2)  # updates after a failure have no effect
    assert optimiser.failure() == 1
    for name, parameter in network.named_parameters():
        rounding = 1e-6 if name == "head.weight" else 0  # the head is normalised again
        torch.testing.assert_close(parameter, before[name], rtol=0, atol=rounding, msg=name)


@pytest.mark.parametrize("training", [SHORT, TURNING], ids=["sgd", "muon"])
def test_momentum_survives_a_round_trip(training):
    network = small_network()
    optimiser = optimiser_of(network, training)
    update(optimiser, loss_of(network), 0)
    other = optimiser_of(network, training)
    other.load(optimiser.state())
    assert other.state().keys() == dict(network.named_parameters()).keys()
    assert optimiser.state().keys() == other.state().keys()
    assert all(torch.equal(value, other.state()[name]) for name, value in optimiser.state().items())


def test_other_layers_of_a_head_are_trained_and_guarded_like_the_rest_of_the_network():
    network = small_network(HeadWithMore)
    optimiser, other = optimiser_of(network), network.head.other
    images, weights = IMAGES.float() / 255, [other.weight.detach().clone()]
    for step, scale in enumerate((1.0, float("nan"))):
        update(optimiser, scale * other(network(images)).square().sum(), step)
        weights.append(other.weight.detach().clone())
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(weights[1], weights[2])
    assert {"head.other.weight", "head.other.bias", "head.classes.weight"} <= set(optimiser.state())
    torch.testing.assert_close(network.head.classes.weight.norm(dim=1), torch.ones(4))


def test_average_of_constant_weights_is_those_weights():
    network = small_network()
    average = Average(network, SHORT)
    for step in range(5):
        average.update(network, torch.tensor(average.share(step), dtype=torch.float64))
    for a, b in zip(average.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_the_average_moves_by_its_share_towards_new_weights():
    network, moved = small_network(), small_network()
    average = Average(network, SHORT)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter += 1
    average.update(moved, torch.tensor(0.25, dtype=torch.float64))
    for a, b in zip(average.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(a, b + 0.25)


def test_the_share_of_new_weights_falls_from_nearly_all_to_one_over_the_horizon():
    average = Average(small_network(), SHORT)
    shares = [average.share(step) for step in range(SHORT.steps)]
    assert shares[0] == pytest.approx(0.9)
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(1 - averaging_decay(SHORT))


def test_recalibration_measures_the_statistics_of_the_images_it_is_given():
    average = Average(small_network(), SHORT)
    images = IMAGES.float() / 255
    average.recalibrate([images[:16], images[16:]])
    stem = average.network.body.stem[0]
    network = average.network
    activations = stem.conv((images - network.mean) / network.std)
    torch.testing.assert_close(stem.norm.running_mean, activations.mean(dim=(0, 2, 3)))
    assert not average.network.training
