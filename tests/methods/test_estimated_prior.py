"""The class prior that training estimates (`--prior estimated`)."""

import numpy as np
import pytest
import torch
import worlds
from worlds import RUNTIME, interrupted, last_checkpoint, lines_without_clock, trained

from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.data.batches import Batches, Views
from openworld.data.problem import load_problem
from openworld.methods import trssl
from openworld.methods.trssl import ESTIMATE_FROM, Trssl
from openworld.nets.inference import inference_copy
from openworld.ops.sinkhorn import FLOOR, moved_prior
from openworld.training import loop as training_module
from openworld.training.learner import Learner

TINY = replace(
    digits("digits"),
    {
        **{"steps": 12, "epoch_steps": 2, "batch_labelled": 8, "batch_unlabelled": 16, "uncertainty_views": 2},
        **{"prior": "estimated", "imbalance": 5.0},
    },
)
FIRST_STEP = 6
"""The first epoch that ends after `ESTIMATE_FROM` of the run."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return trained(str(tmp_path_factory.mktemp("runs") / "r"), TINY)


def test_the_prior_of_every_epoch_is_in_the_metrics(finished):
    assert ESTIMATE_FROM * 12 > FIRST_STEP - 2
    priors = {line["step"]: np.array(line["prior"]) for line in finished.metrics()}
    assert list(priors) == [2, 4, 6, 8, 10, 12]
    _, facts = finished.split_and_facts()
    for step, prior in priors.items():
        assert prior.sum() == pytest.approx(1, abs=1e-5)
        assert np.array_equal(prior, np.float32(facts["prior"])) == (step < FIRST_STEP)
    assert finished.summary()["prior"] == "estimated"


def test_a_prior_that_is_not_estimated_is_not_in_the_metrics(tmp_path):
    run = trained(str(tmp_path / "r"), replace(TINY, {"prior": "even", "steps": 2}))
    assert "prior" not in run.metrics()[0]


@pytest.mark.slow
def test_it_does_not_know_the_truth(finished, tmp_path, monkeypatch):
    """Noise in place of the hidden labels changes neither the prior nor a weight."""
    monkeypatch.setattr(training_module, "open_world", worlds.world_of_noise)
    blind = trained(str(tmp_path / "blind"), TINY)
    assert blind.summary()["seen"] != finished.summary()["seen"]  # the noise was there
    assert [line["prior"] for line in blind.metrics()] == [line["prior"] for line in finished.metrics()]
    for part in ("model", "average", "method"):
        name = f"{part}.safetensors"
        assert last_checkpoint(blind)[name] == last_checkpoint(finished)[name], part


@pytest.mark.slow
@pytest.mark.parametrize("step", [5, 9])
def test_a_run_that_was_stopped_ends_with_the_same_prior_and_weights(finished, tmp_path, step):
    path = str(tmp_path / "r")
    interrupted(path, TINY, step)
    resumed = trained(path, TINY)
    assert lines_without_clock(resumed) == lines_without_clock(finished)
    assert last_checkpoint(resumed) == last_checkpoint(finished)


def test_a_class_that_is_never_predicted_keeps_a_small_share():
    prior, predicted = torch.full((5,), 0.2), torch.tensor([0.7, 0.3, 0, 0, 0])
    for _ in range(30):
        prior = moved_prior(prior, predicted, num_seen=2)
    assert prior.sum() == pytest.approx(1)
    assert prior[2:].tolist() == pytest.approx([FLOOR / 5] * 3, rel=0.02)
    torch.testing.assert_close(prior[:2], predicted[:2], atol=0.01, rtol=0)
    for _ in range(30):  # and it can come back
        prior = moved_prior(prior, torch.full((5,), 0.2), num_seen=2)
    torch.testing.assert_close(prior, torch.full((5,), 0.2))


def test_a_share_that_is_known_to_be_zero_stays_there():
    config = replace(TINY, {"task": "ncd", "imbalance": 1.0})
    data = load_problem(config, RUNTIME).training
    method, batches = Trssl(config, data), Batches(data, config.training, config.seed, Views())
    assert method.prior[:5].tolist() == [0] * 5
    network = inference_copy(Learner(config, data, RUNTIME).network)
    method.end_epoch(network, batches, step=6)
    assert method.prior[:5].tolist() == [0] * 5
    assert float(method.prior.sum()) == pytest.approx(1)
    assert method.prior[5:].unique().numel() > 1


def test_the_novel_part_is_matched_by_order():
    """An output that has taken the place of another one takes its proportion too."""
    prior = torch.tensor([0.5, 0.1, 0.4])
    torch.testing.assert_close(moved_prior(prior, torch.tensor([0.5, 0.4, 0.1]), 1), torch.tensor([0.5, 0.4, 0.1]))


def test_an_empty_cluster_is_not_forbidden():
    method, _ = method_and_data()
    sizes = torch.full((10,), 0.125)
    sizes[8:] = 0
    method.assume(sizes)
    assert method.prior[8:].tolist() == pytest.approx([FLOOR / 10] * 2, rel=0.01)
    known = Trssl(replace(TINY, {"prior": "even"}), load_problem(replace(TINY, {"prior": "even"}), RUNTIME).training)
    known.assume(sizes)
    assert torch.equal(known.prior, sizes)


def method_and_data() -> tuple[Trssl, Batches]:
    data = load_problem(TINY, RUNTIME).training
    return Trssl(TINY, data), Batches(data, TINY.training, TINY.seed, Views())


def test_it_moves_towards_the_mean_of_the_predictions():
    method, batches = method_and_data()
    network = inference_copy(Learner(TINY, batches.data, RUNTIME).network)
    images = torch.cat(list(batches.data.unlabelled.chunks()))
    with torch.no_grad():
        probabilities = (network(batches.data.family.plain(images)) / method.temperature).softmax(dim=1)
    before = method.prior.clone()
    method.end_epoch(network, batches, step=4)
    assert torch.equal(method.prior, before)  # too early
    method.end_epoch(network, batches, step=6)
    torch.testing.assert_close(method.prior, moved_prior(before, probabilities.mean(dim=0), 5))


def test_pseudo_labels_follow_it_loosely_from_then_on():
    """All samples look like the first class. The fewer of them the prior moves elsewhere, the looser it is."""
    method, _ = method_and_data()
    logits = torch.zeros(64, 10)
    logits[:, 0] = 1.0
    method.prior.copy_(torch.full((10,), 0.1))
    strict = method.assign(logits)[0].mean(dim=0)
    method.trust.fill_(trssl.TRUST_OF_LABELS)
    loose = method.assign(logits)[0].mean(dim=0)
    torch.testing.assert_close(strict, torch.full((10,), 0.1))
    assert loose[0] > 0.9


def test_the_pass_for_the_prior_is_planned():
    known = replace(TINY, {"prior": "known"})
    assert Trssl.passes(TINY) == pytest.approx(Trssl.passes(known) + 1 - ESTIMATE_FROM)
