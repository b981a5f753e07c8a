"""Class-distribution-aware assignment, compared with POT and with its plain form, and on hostile input."""

import numpy as np
import ot
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from openworld.ops.rng import generator
from openworld.ops.sinkhorn import marginal_error, order_prior, sinkhorn

PRIOR = torch.tensor([0.4, 0.3, 0.2, 0.1])


def cosines(rows: int = 12, columns: int = 4) -> Tensor:
    return torch.rand(rows, columns, generator=generator(0, "cosines")) * 2 - 1


@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_agrees_with_pot_at_convergence(epsilon):
    logits = cosines()
    shares = [0.4, 0.3, 0.2, 0.1]
    plan = ot.sinkhorn([1 / 12] * 12, shares, -logits.double().numpy(), epsilon, "sinkhorn_log", numItermax=10_000)
    np.testing.assert_allclose(sinkhorn(logits, PRIOR, epsilon, iterations=1000), plan * 12, atol=1e-4)


def test_agrees_with_the_plain_form_after_three_iterations():
    logits = cosines()
    plain = (logits.double() / 0.05).exp()
    for _ in range(3):
        plain = plain * (PRIOR / plain.sum(dim=0))
        plain = plain / plain.sum(dim=1, keepdim=True) / 12
    torch.testing.assert_close(sinkhorn(logits, PRIOR, 0.05, 3), (plain * 12).float(), atol=1e-4, rtol=0)


@st.composite
def hostile_problems(draw) -> tuple[Tensor, Tensor]:
    """Draw logits of any size, with fewer or more samples than classes, and a prior that may have zeros."""
    rows, columns = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    numbers = st.floats(-1e4, 1e4, width=32)
    logits = draw(st.lists(numbers, min_size=rows * columns, max_size=rows * columns))
    shares = st.one_of(st.just(0.0), st.floats(1e-6, 1))
    prior = torch.tensor(draw(st.lists(shares, min_size=columns, max_size=columns).filter(any)))
    return torch.tensor(logits).view(rows, columns), prior / prior.sum()


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=300)
@given(hostile_problems())
@example((torch.tensor([[1e4, -1e4, 0.0]]), torch.tensor([0.0, 0.5, 0.5])))
@example((torch.tensor([[1e4], [-1e4]]), torch.ones(1)))
def test_rows_are_distributions_and_a_class_without_a_share_gets_nothing(problem):
    logits, prior = problem
    targets = sinkhorn(logits, prior)
    assert targets.isfinite().all()
    assert (targets >= 0).all()
    torch.testing.assert_close(targets.sum(dim=1), torch.ones(len(logits)), atol=1e-5, rtol=0)
    assert (targets[:, prior == 0] == 0).all()


def test_a_shift_of_a_row_changes_nothing():
    logits = cosines()
    shifts = torch.linspace(-2, 2, 12)[:, None]
    before, after = (sinkhorn(scores, PRIOR, 0.5, iterations=100) for scores in (logits, logits + shifts))
    torch.testing.assert_close(before, after, atol=1e-5, rtol=0)


def test_weights_are_the_marginals_of_the_rows():
    logits, weights = cosines(), torch.arange(1.0, 13)
    rows, columns = ((values.double() / values.double().sum()).numpy() for values in (weights, PRIOR))
    plan = ot.sinkhorn(rows, columns, -logits.double().numpy(), 0.5, "sinkhorn_log", numItermax=10_000)
    assigned = sinkhorn(logits, PRIOR, 0.5, 1000, weights)
    np.testing.assert_allclose(assigned, plan / plan.sum(axis=1, keepdims=True), atol=1e-4)
    assert marginal_error(assigned, PRIOR, weights) == pytest.approx(0, abs=1e-4)
    assert marginal_error(assigned, PRIOR) > 0.01


@pytest.mark.parametrize("trust", [0.3, 0.7])
def test_columns_that_are_only_trusted_agree_with_unbalanced_transport(trust):
    logits, relaxation = cosines(), 0.5 * trust / (1 - trust)
    plan = ot.unbalanced.sinkhorn_unbalanced(
        [1 / 12] * 12, PRIOR.double().numpy(), -logits.double().numpy(), 0.5, (np.inf, relaxation), c=np.ones((12, 4))
    )
    assigned = sinkhorn(logits, PRIOR, 0.5, 1000, trust=trust)
    np.testing.assert_allclose(assigned, 12 * plan, atol=1e-4)
    strict, free = (float(marginal_error(sinkhorn(logits, PRIOR, 0.5, 100, trust=t), PRIOR)) for t in (1.0, 1e-6))
    assert strict < float(marginal_error(assigned, PRIOR)) < free


def test_rows_without_weight_do_not_count_but_are_assigned():
    logits, weights = cosines(), torch.tensor([0.0] * 5 + [1.0] * 7)
    assigned = sinkhorn(logits, PRIOR, 0.05, 3, weights)
    torch.testing.assert_close(assigned[5:], sinkhorn(logits[5:], PRIOR, 0.05, 3))
    torch.testing.assert_close(assigned.sum(dim=1), torch.ones(12))


def test_marginal_error_is_zero_for_a_perfect_assignment():
    one_hot = torch.eye(4)[[0, 0, 0, 0, 1, 1, 1, 2, 2, 3]]
    assert marginal_error(one_hot, PRIOR) == pytest.approx(0, abs=1e-7)


def test_marginal_error_by_hand():
    # The proportions (0.5, 0.5, 0, 0) differ from the prior by 0.1, 0.2, 0.2 and 0.1.
    assert marginal_error(torch.eye(4)[[0, 1]], PRIOR) == pytest.approx(0.3)


def test_marginal_error_falls_to_nothing_with_the_iterations():
    errors = [float(marginal_error(sinkhorn(cosines(), PRIOR, 0.1, count), PRIOR)) for count in (1, 3, 10, 30, 300)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.01
    assert errors[-1] < 1e-5


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 6), st.permutations(range(6)), st.permutations(range(6)))
def test_order_prior_gives_larger_shares_to_larger_novel_marginals(num_seen, shares, marginals):
    prior, marginals = torch.tensor(shares) / 15, torch.tensor(marginals) / 15
    ordered = order_prior(prior, marginals, num_seen)
    assert torch.equal(ordered[:num_seen], prior[:num_seen])
    assert sorted(ordered.tolist()) == sorted(prior.tolist())
    assert torch.equal(ordered[num_seen:].argsort(), marginals[num_seen:].argsort())


def test_order_prior_leaves_a_uniform_prior_and_its_arguments_alone():
    uniform, skewed = torch.full((5,), 0.2), torch.tensor([0.5, 0.1, 0.4])
    assert torch.equal(order_prior(uniform, torch.tensor([0.1, 0.5, 0.1, 0.2, 0.1]), 2), uniform)
    order_prior(skewed, torch.tensor([0.2, 0.6, 0.2]), 1)
    assert torch.equal(skewed, torch.tensor([0.5, 0.1, 0.4]))
