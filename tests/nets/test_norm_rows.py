"""BatchNorm in groups of rows, as in the authors' code (`--norm-rows`)."""

import pytest
import torch
from worlds import RUNTIME, last_checkpoint, trained

from openworld.core.config import Config
from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.data.problem import load_problem
from openworld.nets.network import in_groups
from openworld.training.learner import Learner

TINY = replace(digits("digits"), {"steps": 3, "epoch_steps": 3, "batch_labelled": 8, "batch_unlabelled": 16})


def learner_of(config: Config) -> Learner:
    return Learner(config, load_problem(config, RUNTIME).training, RUNTIME)


@pytest.mark.parametrize(
    ("rows", "most", "sizes"), [(12, 4, [4, 4, 4]), (10, 4, [4, 3, 3]), (4, 4, [4]), (5, 2, [3, 2]), (1, 4, [1])]
)
def test_rows_are_dealt_out_to_groups_in_turn(rows, most, sizes):
    groups = []

    def negated(group):
        groups.append(group)
        return -group

    given = torch.arange(rows)
    assert torch.equal(in_groups(negated, given, most), -given)
    assert [len(group) for group in groups] == sizes
    assert groups[0].tolist() == list(range(0, rows, len(sizes)))


def test_each_group_is_normalised_by_itself_and_gradients_flow_through_all():
    network = learner_of(replace(TINY, {"norm_rows": 10})).network.train()
    images = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    features = network.features(images)
    apart = [learner_of(TINY).network.train().features(images[group::4]) for group in range(4)]
    for group in range(4):
        torch.testing.assert_close(features[group::4], apart[group])
    whole = learner_of(TINY).network.train().features(images)
    assert not torch.allclose(features, whole, atol=1e-3)
    features.square().sum().backward()
    assert all(weights.grad.abs().sum() > 0 for weights in network.body.parameters())


def test_the_pseudo_labels_of_each_view_come_from_a_group_of_its_own():
    learner = learner_of(replace(TINY, {"norm_rows": 16}))
    batch, network = learner.batches.at(0), learner.network.train()
    with torch.no_grad():
        first, second = learner.method.view_logits(network, batch)
        torch.testing.assert_close(first, network(batch.unlabelled_views[0]))
        torch.testing.assert_close(second, network(batch.unlabelled_views[1]))


@pytest.mark.slow
def test_groups_change_what_is_learnt_and_a_group_of_all_does_not():
    weights = [
        last_checkpoint(trained(f"r{number}", replace(TINY, settings)))["model.safetensors"]
        for number, settings in enumerate(({}, {"norm_rows": 8}))
    ]
    assert weights[0] != weights[1]
    networks = [learner_of(replace(TINY, settings)).network.train() for settings in ({}, {"norm_rows": 40})]
    images = learner_of(TINY).batches.at(0).images
    assert torch.equal(networks[0](images), networks[1](images))


def test_answers_do_not_depend_on_groups():
    learner = learner_of(replace(TINY, {"norm_rows": 4}))
    learner.learn()
    learner.recalibrate_average()
    images, network = learner.batches.at(0).images, learner.average.network.eval()
    torch.testing.assert_close(network(images)[:3], network(images[:3]))
