"""What training may know: the class prior, but not the true classes of unlabelled samples."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from worlds import RUNTIME

from openworld.core.config import Problem
from openworld.core.errors import UserError
from openworld.core.recipes import digits
from openworld.data import problem as module
from openworld.data.benchmarks import read_benchmark
from openworld.data.prior import class_prior
from openworld.data.problem import TrainingSet, load_problem
from openworld.data.split import make_split

CONFIG = digits("digits")


def prior_of(sizes: list[int], problem: Problem, seen_names: tuple[str, ...] = ()) -> Tensor:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    split = make_split(labels, len(sizes), problem, seed=0)
    return class_prior(split, labels[list(split.labelled)], problem, seen_names)


def test_known_prior_counts_what_is_not_labelled():
    prior = prior_of([20, 10, 8, 12], Problem(labelled=50))
    torch.testing.assert_close(prior, torch.tensor([10, 5, 8, 12]) / 35)


def test_seen_classes_have_half_the_share_where_half_is_labelled():
    prior = prior_of([40] * 10, Problem(labelled=50))
    torch.testing.assert_close(prior, torch.tensor([1.0] * 5 + [2.0] * 5) / 15)


def test_uniform_prior_disregards_the_counts():
    torch.testing.assert_close(prior_of([20, 10, 8, 12], Problem(prior="uniform")), torch.full((4,), 0.25))


def test_classes_of_unknown_number_are_assumed_balanced():
    # 50 images in five classes are ten each. Of the two seen classes, ten and five images are labelled.
    for problem in (Problem(labelled=50, num_classes=5), Problem(labelled=50, num_classes=5, prior="even")):
        prior = prior_of([20, 10, 8, 12], problem)
        torch.testing.assert_close(prior, torch.tensor([1, 5, 10, 10, 10]) / 36)  # no class is forbidden


def test_fewer_classes_than_are_seen_are_refused():
    with pytest.raises(UserError, match="fewer than the 3 seen"):
        prior_of([10] * 6, Problem(num_classes=2))


@pytest.mark.parametrize(
    "text", ["0.1 0.2 0.3 0.4", "0.1,0.2,\n0.3, 0.4\n", "0.1\n0.2\n0.3\n0.4\n", "0.1 0.2 0.3 0.396"]
)
def test_prior_from_a_file(tmp_path, text):
    path = tmp_path / "prior.txt"
    path.write_text(text)
    prior = prior_of([20, 10, 8, 12], Problem(prior=str(path)))
    torch.testing.assert_close(prior, torch.tensor([0.1, 0.2, 0.3, 0.4]), atol=3e-3, rtol=0)
    assert float(prior.sum()) == pytest.approx(1)  # rounded numbers are scaled


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("0.5 0.3 0.2", "3 numbers for 4 classes"),
        ("0.2 0.2 0.2 0.2 0.2", "5 numbers for 4 classes"),
        ("", "0 numbers for 4 classes"),
        ("0.5 0.5 -0.5 0.5", "finite and not negative"),
        ("0 0 0 0", "sum to 0, not to 1"),
        ("1 2 3 4", "sum to 10, not to 1; divide each by the sum"),
        ("0.5 0.2 nan 0.2", "finite"),
        ("0.5 0.2 inf 0.2", "finite"),
        ("0.5 0.2 0.2 x", "x is not a number"),
        ("cat 0.1\ndog 0.2\nfox 0.3\n0.4", "cat is not a number"),
        ("cat 0.1\nfrog 0.2\nfox 0.3\nhen 0.4", "no line for the seen class dog"),
        ("cat 0.1\ndogs 0.2\nfox 0.3\nhen 0.4", "no line for the seen class dog; did you mean dogs?"),
        ("cat 0.1\ndog 0.2\ndog 0.3\nhen 0.4", "class dog has more than one line"),
    ],
)
def test_an_unusable_prior_file_is_refused(tmp_path, text, answer):
    path = tmp_path / "prior.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=r"prior\.txt.*" + answer.replace("?", r"\?")):
        prior_of([20, 10, 8, 12], Problem(prior=str(path)), ("cat", "dog"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("fox 0.3\ndog 0.2\nhen 0.4\ncat 0.1", ("cat", "dog")),
        ("black cat,0.1\nnovel-1,0.3\ndog,0.2\nnovel-2,0.4", ("black cat", "dog")),
        ("Boxer, German, 0.1\ndog 0.2\n\nfox 0.3\nhen 0.4\n", ("Boxer, German", "dog")),
        ("1 0.2\n0 0.1\n2 0.3\n3 0.4", ("0", "1")),  # the names of the digits are numbers
    ],
)
def test_a_prior_file_may_name_the_classes_in_any_order(tmp_path, text, names):
    path = tmp_path / "prior.txt"
    path.write_text(text)
    prior = prior_of([20, 10, 8, 12], Problem(prior=str(path)), names)
    torch.testing.assert_close(prior, torch.tensor([0.1, 0.2, 0.3, 0.4]))


def test_an_estimated_prior_begins_as_the_even_one():
    even, estimated = (prior_of([20, 10, 8, 12], Problem(prior=prior)) for prior in ("even", "estimated"))
    assert torch.equal(even, estimated)


@pytest.mark.parametrize("prior", ["known", "even", "uniform", "estimated"])
def test_in_novel_class_discovery_the_seen_classes_have_no_share(prior):
    found = prior_of([20, 10, 8, 24], Problem(task="ncd", labelled=50, prior=prior))
    novel = [0.25, 0.75] if prior == "known" else [0.5, 0.5]
    torch.testing.assert_close(found, torch.tensor([0, 0, *novel]))


def test_novel_class_discovery_needs_novel_classes(tmp_path):
    with pytest.raises(UserError, match="--task ncd needs novel classes: --num-classes must be more than the 2 seen"):
        prior_of([20, 10, 8, 12], Problem(task="ncd", num_classes=2))
    path = tmp_path / "prior.txt"
    path.write_text("0.1 0.2 0.3 0.4")
    with pytest.raises(UserError, match="write 0 for each seen class"):
        prior_of([20, 10, 8, 12], Problem(task="ncd", prior=str(path)))


def test_a_missing_prior_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.txt: no such file.*known, even, uniform"):
        prior_of([20, 10, 8, 12], Problem(prior=str(tmp_path / "nowhere.txt")))


@pytest.fixture(scope="module")
def world() -> module.OpenWorld:
    return load_problem(CONFIG, RUNTIME)


def test_shapes_of_the_digits(world):
    training, num_images = world.training, len(read_benchmark("digits", Path("nowhere")).train.labels)
    assert len(training.labelled) + len(training.unlabelled) == num_images
    assert training.labelled.shape == training.unlabelled.shape == (1, 8, 8)
    assert training.labelled.data.dtype == training.unlabelled.data.dtype == torch.uint8
    assert len(training.labels) == len(training.labelled)
    assert (training.num_classes, training.num_seen) == (10, 5)
    assert world.class_names == ("0", "1", "2", "3", "4", "novel-1", "novel-2", "novel-3", "novel-4", "novel-5")


def test_the_known_prior_of_the_digits_is_the_truth(world):
    shares = np.bincount(world.truths["unlabelled"].labels) / len(world.truths["unlabelled"].labels)
    np.testing.assert_allclose(world.training.prior, shares, rtol=1e-6)


def contents(training: TrainingSet) -> dict[str, np.ndarray]:
    values = {field.name: getattr(training, field.name) for field in dataclasses.fields(training)}
    return {name: np.asarray(getattr(value, "data", value)) for name, value in values.items()}


def test_training_sees_nothing_of_the_hidden_labels(world):
    dataset = read_benchmark("digits", Path("nowhere"))
    labels, hidden = dataset.train.labels.copy(), np.array(world.split.unlabelled)
    labels[hidden] = np.random.default_rng(0).permutation(labels[hidden])
    scrambled = dataclasses.replace(dataset, train=dataclasses.replace(dataset.train, labels=labels))
    facts = {"fingerprint": load_problem(CONFIG, RUNTIME, dataset=scrambled).fingerprint}

    other = load_problem(CONFIG, RUNTIME, world.split.to_json(**facts), scrambled)

    assert not np.array_equal(other.truths["unlabelled"].labels, world.truths["unlabelled"].labels)
    before, after = contents(world.training), contents(other.training)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_labels_belong_to_their_images(world):
    train, positions = read_benchmark("digits", Path("nowhere")).train, list(world.split.labelled)
    assert world.training.labels.tolist() == train.labels[positions].tolist()
    assert np.array_equal(world.training.labelled.data[:, 0], train.content[positions, :, :, 0])


def test_a_saved_split_is_taken_over(world):
    config = dataclasses.replace(CONFIG, seed=9)
    assert load_problem(config, RUNTIME, world.split.to_json(fingerprint=world.fingerprint)).split == world.split


def test_a_saved_split_of_other_data_is_refused(world):
    with pytest.raises(UserError, match="digits has changed"):
        load_problem(CONFIG, RUNTIME, world.split.to_json(fingerprint="0" * 64))
