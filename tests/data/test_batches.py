"""Batch k of a run is a function of the seed and of k alone."""

from collections.abc import Callable, Sequence
from itertools import combinations

import pytest
import torch
from torch import Tensor
from worlds import tensors_of, training_set

from openworld.core.config import Training
from openworld.core.errors import UserError
from openworld.data.augment import Family
from openworld.data.batches import Batch, Batches, Views
from openworld.ops.rng import generator

NUM_LABELLED, NUM_UNLABELLED = 7, 60


def make_batches(seed: int = 0, batch_labelled: int = 4, batch_unlabelled: int = 12) -> Batches:
    """Return batches. Every labelled image has its own label, which identifies it."""
    source = generator(0, "images")
    pixels = torch.randint(0, 256, (NUM_LABELLED + NUM_UNLABELLED, 1, 8, 8), generator=source, dtype=torch.uint8)
    data = training_set(
        labelled=pixels[:NUM_LABELLED],
        labels=torch.arange(NUM_LABELLED),
        unlabelled=pixels[NUM_LABELLED:],
        prior=torch.full((NUM_LABELLED,), 1 / NUM_LABELLED),
        num_seen=NUM_LABELLED,
        augment="digits",
    )
    training = Training(augment="digits", batch_labelled=batch_labelled, batch_unlabelled=batch_unlabelled)
    return Batches(data, training, seed, Views())


def equal(first: Batch, second: Batch) -> bool:
    pairs = zip(tensors_of(first), tensors_of(second), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_batch_depends_on_nothing_but_seed_and_step():
    forwards = make_batches()
    expected = [forwards.at(step) for step in range(12)]
    shared = make_batches()
    for step in (11, 3, 0, 7, 11, 1):
        torch.manual_seed(step)
        assert equal(shared.at(step), expected[step])
        assert equal(make_batches().at(step), expected[step])


def test_seeds_differ():
    first, second = make_batches(seed=0).at(0), make_batches(seed=1).at(0)
    assert not torch.equal(first.index, second.index)
    assert not torch.equal(first.labels, second.labels)


def test_views_of_the_same_images_differ_between_seeds_and_steps():
    images = torch.full((1, 1, 8, 8), 255, dtype=torch.uint8)
    views = []
    for seed, step in ((0, 0), (0, 1), (1, 0)):
        batches = make_batches(seed)
        _, numbers = batches.draw(step).samples_and_numbers
        views.append(batches.data.family.view(images, numbers[:, :1]))
    assert all_differ(views)


def all_differ(tensors: Sequence[Tensor]) -> bool:
    return not any(torch.equal(first, second) for first, second in combinations(tensors, 2))


def answers(purpose: str = "predict", step: int = 0, seed: int = 0) -> Callable[..., Tensor]:
    """Return the prediction function of a network that returns its input."""
    return make_batches(seed).answers(torch.nn.Identity(), purpose, step)


def test_answers_are_for_views_that_differ_by_seed_purpose_step_and_counters():
    images = make_batches().data.unlabelled.take(torch.arange(3))
    sources = answers(), answers(purpose="measure"), answers(step=1), answers(seed=1)
    given = [random_answer(images, 0, 0) for random_answer in sources]
    given += [sources[0](images, *counters) for counters in ((0, 1), (1, 0))]
    assert all_differ(given)
    torch.manual_seed(1)
    assert torch.equal(answers()(images, 0, 0), given[0])


def test_a_chunk_smaller_than_a_batch_gets_an_answer_for_each_of_its_samples_and_no_more():
    """The network always gets as many rows as in training. Outputs for the extra rows are dropped."""
    batches, network, seen = make_batches(), torch.nn.Identity(), []
    network.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    samples = batches.data.unlabelled.take(torch.arange(batches.rows))
    random_answer = batches.answers(network, "predict", 0)
    whole, part = random_answer(samples), random_answer(samples[:5])
    assert seen == [batches.rows, batches.rows]
    assert torch.equal(part, whole[:5])


@pytest.mark.parametrize("batch_unlabelled", [12, 13, 60])
def test_every_pass_shows_every_unlabelled_image_once(batch_unlabelled):
    batches = make_batches(batch_unlabelled=batch_unlabelled)
    shown = torch.cat([batches.at(step).index for step in range(10)])
    passes = shown[: len(shown) // NUM_UNLABELLED * NUM_UNLABELLED].view(-1, NUM_UNLABELLED)
    assert (passes.sort(dim=1).values == torch.arange(NUM_UNLABELLED)).all()
    assert not torch.equal(passes[0], passes[1])


def test_a_labelled_batch_larger_than_the_labelled_set_shows_its_images_evenly():
    batches = make_batches(batch_labelled=20)
    shown = torch.zeros(NUM_LABELLED, dtype=torch.int64)
    for step in range(10):
        labels = batches.at(step).labels
        assert len(labels) == 20
        shown += labels.bincount(minlength=NUM_LABELLED)
        assert shown.max() - shown.min() <= 1


def test_a_batch_larger_than_its_set_is_refused():
    with pytest.raises(UserError, match="--batch-unlabelled 61 is larger than the 60"):
        make_batches(batch_unlabelled=61)
    with pytest.raises(UserError, match="--batch-labelled 68 is larger than the 67 images of the whole set"):
        make_batches(batch_labelled=68)


def test_the_two_views_of_a_sample_differ():
    first, second = make_batches().at(0).views.chunk(2)
    assert (first != second).flatten(1).any(dim=1).all()


def test_rows_belong_to_their_labels_and_index():
    batches = make_batches()
    unchanged = Family(
        draw=lambda images, source: images, view=lambda images, numbers: images, plain=lambda images: images
    )
    batches.families = [unchanged]
    batch = batches.at(5)
    assert torch.equal(batch.labelled, batches.data.labelled.take(batch.labels))
    assert torch.equal(batch.views, batches.data.unlabelled.take(batch.index.repeat(2)))
    assert torch.equal(batch.images, torch.cat([batch.labelled, batch.views]))
    assert len(batch.images) == batches.rows == batches.rows_at_once
