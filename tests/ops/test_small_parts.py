"""Small pure functions: mixup, losses, uncertainty, random numbers."""

import random

import numpy as np
import pytest
import torch

from openworld.ops.losses import soft_cross_entropy
from openworld.ops.mix import draw_partners, draw_weight, mixup
from openworld.ops.rng import derived_seed, generator
from openworld.ops.uncertainty import measure_uncertainty, temperatures, view_uncertainty


def random_tensor(*shape: int, purpose: str = "numbers") -> torch.Tensor:
    return torch.randn(shape, generator=generator(0, purpose))


def weight_of(number: float) -> torch.Tensor:
    """Return a mixup weight as training draws it: a tensor, in float64."""
    return torch.tensor(number, dtype=torch.float64)


def test_mixup_takes_the_same_weight_and_partners_for_all_tensors():
    images, numbers = random_tensor(3, 2, 4, 4), torch.tensor([1.0, 10.0, 100.0])
    mixed_images, mixed_numbers = mixup(images, numbers, weight=weight_of(0.25), partners=torch.tensor([1, 2, 0]))
    assert mixed_images.dtype == mixed_numbers.dtype == torch.float32
    torch.testing.assert_close(mixed_numbers, torch.tensor([7.75, 77.5, 25.75]))
    torch.testing.assert_close(mixed_images[2], 0.25 * images[2] + 0.75 * images[0])


def test_mixup_keeps_target_rows_distributions():
    (mixed,) = mixup(random_tensor(9, 5).softmax(dim=1), weight=weight_of(0.3), partners=draw_partners(9, 0, 0))
    torch.testing.assert_close(mixed.sum(dim=1), torch.ones(9))


def test_mixup_with_weight_one_changes_nothing():
    rows = random_tensor(6, 3)
    assert torch.equal(mixup(rows, weight=weight_of(1.0), partners=torch.arange(6).flip(0))[0], rows)


def test_mixup_weights_follow_the_beta_distribution():
    weights = np.array([float(draw_weight(0.75, seed=0, step=step)) for step in range(4000)])
    assert weights.min() >= 0
    assert weights.max() <= 1
    assert weights.mean() == pytest.approx(0.5, abs=0.02)
    assert weights.var() == pytest.approx(1 / (4 * (2 * 0.75 + 1)), rel=0.05)


def test_mixup_draws_depend_on_seed_and_step_alone():
    def draw(seed: int, step: int) -> tuple[float, list[int]]:
        return float(draw_weight(0.75, seed, step)), draw_partners(50, seed, step).tolist()

    first = draw(0, 3)
    random.seed(1)
    torch.manual_seed(1)
    assert draw(0, 3) == first
    for other in (draw(0, 4), draw(1, 3)):
        assert other[0] != first[0]
        assert other[1] != first[1]


def test_mixup_partners_are_a_permutation():
    assert sorted(draw_partners(50, 0, 0).tolist()) == list(range(50))


def test_soft_cross_entropy_against_torch():
    logits, targets = random_tensor(8, 5) * 10, random_tensor(8, 5, purpose="targets").softmax(dim=1)
    expected = torch.nn.functional.cross_entropy(logits, targets)
    torch.testing.assert_close(soft_cross_entropy(logits, targets), expected)


def test_view_uncertainty_against_a_loop():
    logits = random_tensor(10, 6, 4) * 3
    exponentials = np.exp(logits.double().numpy())
    expected = []
    for sample in range(6):
        shares = [exponentials[view, sample] / exponentials[view, sample].sum() for view in range(10)]
        favourite = np.argmax(np.mean(shares, axis=0))
        expected.append(np.std([share[favourite] for share in shares], ddof=1))
    np.testing.assert_allclose(view_uncertainty(logits), expected, rtol=1e-5)


def test_views_that_agree_are_certain():
    assert view_uncertainty(random_tensor(1, 6, 4).expand(10, -1, -1)).max() < 1e-6


def test_uncertainty_of_a_set_gives_every_chunk_and_view_its_own_draw():
    images, requested = random_tensor(7, 4), []

    def random_answer(part: torch.Tensor, *counters: int) -> torch.Tensor:
        requested.append(counters)
        return part + torch.randn(part.shape, generator=generator(0, "view", *counters))

    measured = measure_uncertainty(random_answer, images.split(3), num_views=3, temperature=0.5)
    assert len(set(requested)) == len(requested) == 9
    last = torch.stack([random_answer(images[6:], 2, view) for view in range(3)])
    torch.testing.assert_close(measured[6:], view_uncertainty(last / 0.5))
    assert measured.shape == (7,)


def test_temperatures_are_scaled_to_one_and_clipped_to_the_floor():
    scaled = temperatures(torch.tensor([0.0, 0.001, 0.01, 0.02]), floor=0.1)
    torch.testing.assert_close(scaled, torch.tensor([0.1, 0.1, 0.5, 1.0]))


def test_temperatures_without_any_uncertainty_stay_at_the_floor():
    torch.testing.assert_close(temperatures(torch.zeros(4), floor=0.1), torch.full((4,), 0.1))


def test_derived_seed_is_pinned():
    # The number is half of the first 16 hexadecimal digits of: printf '0/mixup/7' | sha256sum
    assert derived_seed(0, "mixup", 7) == 0x35FA8D00757CED05 // 2


def test_draws_differ_by_seed_purpose_and_counters():
    keys = [(0, "a"), (1, "a"), (0, "b"), (0, "a", 0), (0, "a", 1), (0, "a", 0, 1), (0, "a", 1, 0), (0, "a", 10)]
    draws = {float(torch.rand((), dtype=torch.float64, generator=generator(*key))) for key in keys}
    assert len(draws) == len(keys)


def test_draws_neither_read_nor_move_the_global_state():
    first = torch.rand(4, generator=generator(0, "a"))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert torch.equal(torch.rand(4, generator=generator(0, "a")), first)
    assert torch.equal(torch.get_rng_state(), before)
