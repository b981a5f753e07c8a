"""Settings that openworld chooses: classes, image sizes, networks, and the number of steps for a time limit."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from worlds import RUNTIME, run, write_photos

from openworld.core.fields import replace
from openworld.core.recipes import RECIPES, own
from openworld.data.dataset import Dataset
from openworld.data.own import from_arrays, read_own
from openworld.data.problem import load_problem
from openworld.planning import budget
from openworld.planning.budget import Costs, fit_to_memory, fit_to_time
from openworld.planning.plan import open_problem, plan_run
from openworld.planning.settings import batch_sizes, count_classes, network_and_views, own_settings, typical_side

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
OWN = own("x")


def arrays(count: int = 1000, classes: int = 4, side: int = 20, test: int = 0) -> Dataset:
    """Return a data set whose first tenth is labelled."""
    labels = np.where(np.arange(count) < count // 10, np.arange(count) % classes, -1)
    pixels = np.zeros((count, side, side, 3), np.uint8)
    tests = (pixels[:test], np.arange(test) % (classes + 2)) if test else (None, None)
    return from_arrays(pixels, labels, *tests)


def test_classes_that_are_named_count_and_otherwise_as_many_again_are_assumed():
    assert count_classes(arrays(classes=4)) == 8
    assert count_classes(arrays(classes=4, test=60)) == 6


@pytest.mark.parametrize(
    ("size", "device", "network", "views"),
    [
        (8, CPU, "small", "cifar"),
        (28, CPU, "small-32", "cifar"),
        (64, CPU, "small-64", "cifar"),
        (32, CUDA, "resnet18-cifar", "cifar"),
        (64, CUDA, "resnet18-tiny", "tiny"),
        (256, CUDA, "resnet18", "photos"),
    ],
)
def test_the_network_follows_from_size_and_device(size, device, network, views):
    assert network_and_views(size, device) == {"network": network, "augment": views}


def test_the_size_is_the_typical_shorter_side_up_to_a_limit():
    root = write_photos(Path("photos"), sides=(12,))
    for path in sorted(root.glob("unlabelled/*/*")):
        Image.new("RGB", (300, 48)).save(path)
    dataset = read_own(root)
    assert typical_side(dataset) == 48
    for path in sorted(root.glob("unlabelled/*/*")):
        Image.new("RGB", (500, 400)).save(path)
    assert own_settings(dataset, CPU, OWN)["image_size"] == 64
    assert own_settings(dataset, CUDA, OWN)["image_size"] == 256
    assert own_settings(arrays(side=20), CPU, OWN)["image_size"] == 20
    wide = from_arrays(np.zeros((40, 20, 40, 3), np.uint8), np.where(np.arange(40) < 10, np.arange(40) % 2, -1))
    assert typical_side(wide) == 20


def test_files_that_cannot_be_read_do_not_hinder_the_plan():
    root = write_photos(Path("photos"), sides=(12,))
    for path in root.glob("*/*/*"):
        path.write_text("text")
    assert own_settings(read_own(root), CPU, OWN)["image_size"] == 64


@pytest.mark.parametrize(
    ("side", "device", "views"),
    [(20, CPU, "simclr"), (20, CUDA, "simclr"), (80, CUDA, "simclr"), (200, CUDA, "photos")],
)
def test_features_without_labels_are_learnt_from_views_that_differ_more(side, device, views):
    plain, without_labels = (
        own_settings(arrays(side=side), device, replace(OWN, {"method": method})) for method in ("trssl", "simclr")
    )
    assert without_labels == {**plain, "augment": views}


COSTS = Costs(step=0.1, sample=0.001)


def fitted(dataset: Dataset, seconds: float, **requested):
    config = replace(OWN, own_settings(dataset, CPU, OWN))
    world = load_problem(config, RUNTIME, dataset=dataset)
    config = replace(config, {**batch_sizes(world), **requested})
    return fit_to_time(config, world, COSTS, seconds, set(requested))


def test_steps_fill_the_time_that_passes_over_the_set_leave():
    config, seconds = fitted(arrays(1000), 190)
    # Five uncertainty passes over 900 samples in 10 views, and predictions with 11.
    passes = 0.001 * (5 * 900 * 10 + 11 * 900)
    assert config.training.steps == int((190 - passes) / 0.1)
    assert config.training.epoch_steps == -(-config.training.steps // 10)
    assert seconds == pytest.approx(190, abs=0.2)


def test_a_large_set_gets_fewer_passes_and_views():
    config, seconds = fitted(arrays(20_000, side=8), 300)
    assert config.answers.uncertainty_views < 10
    assert seconds == pytest.approx(300, abs=0.2)


def test_a_small_set_is_not_trained_on_for_ever():
    config, seconds = fitted(arrays(100), 3600)
    assert config.training.steps == max(500, 200 * 90 // config.training.batch_unlabelled)
    assert seconds < 3600


def test_too_little_time_still_gives_some_steps_and_says_what_they_take():
    config, seconds = fitted(arrays(1000), 0.5)
    assert config.training.steps == 20
    assert seconds > 2


@pytest.mark.parametrize(
    ("most", "requested", "tried"),
    [
        (60, set(), [(64, 64), (32, 32), (16, 16)]),
        (150, {"batch_labelled"}, [(64, 64), (64, 32)]),
        (150, {"batch_labelled", "batch_unlabelled"}, [(64, 64), None]),
        (0, {"steps"}, [(64, 64), (32, 32), (16, 16), (8, 8), None]),
    ],
)
def test_batches_that_nobody_asked_for_are_halved_until_the_device_can_hold_them(monkeypatch, most, requested, tried):
    sizes: list[tuple[int, int] | None] = []

    def costs_of_a_small_device(config, data, runtime) -> Costs:
        sizes.append((config.training.batch_labelled, config.training.batch_unlabelled))
        if sizes[-1][0] + 2 * sizes[-1][1] > most:
            raise torch.OutOfMemoryError
        return COSTS

    monkeypatch.setattr(budget, "measure_costs", costs_of_a_small_device)
    config = replace(OWN, {"batch_labelled": 64, "batch_unlabelled": 64})
    try:
        config, costs = fit_to_memory(config, None, RUNTIME, requested)
        assert (config.training.batch_labelled, config.training.batch_unlabelled, costs) == (*sizes[-1], COSTS)
    except torch.OutOfMemoryError:
        sizes.append(None)
    assert sizes == tried


@pytest.mark.parametrize(
    ("requested", "passes_of_an_epoch", "time"),
    [({"method": "simclr"}, 4 * 1000, 180), ({"uncertainty": False}, 0, 100)],
)
def test_only_passes_that_are_made_cost_steps(requested, passes_of_an_epoch, time):
    config, seconds = fitted(arrays(1000), time, **requested)
    assert config.training.steps == int((time - 0.001 * (10 * passes_of_an_epoch + 11 * 900)) / 0.1)
    assert seconds == pytest.approx(time, abs=0.2)


def test_short_epochs_bring_more_passes_and_leave_less_time_for_steps():
    config, seconds = fitted(arrays(1000), 190, epoch_steps=10)
    # Half an uncertainty pass for every ten steps, because it is measured only in the second half of the run.
    assert config.training.steps == int((190 - 0.001 * 11 * 900) / (0.1 + 0.001 * 0.5 * 900 * 10 / 10))
    assert seconds == pytest.approx(190, abs=0.6)


def test_what_was_asked_for_stays():
    config, _ = fitted(arrays(1000), 300, epoch_steps=7, uncertainty_views=3)
    assert (config.training.epoch_steps, config.answers.uncertainty_views) == (7, 3)


def test_the_recipe_of_the_paper_for_each_benchmark():
    def training(name):
        return RECIPES["paper"](name).training

    assert (training("cifar10").network, training("cifar10").augment) == ("resnet18-cifar", "cifar")
    assert (training("tiny-imagenet").network, training("tiny-imagenet").image_size) == ("resnet18-tiny", 64)
    for name in ("oxford-pets", "aircraft", "stanford-cars"):
        assert (training(name).network, training(name).augment, training(name).steps) == ("resnet18", "photos", 102_400)
        assert RECIPES["paper"](name).problem.labelled == 50
    assert (training("imagenet100").network, training("imagenet100").batch_unlabelled) == ("resnet50", 512)
    assert RECIPES["paper"]("imagenet100").problem.labelled == 10


def test_a_fully_labelled_set_of_ones_own_knows_its_class_sizes():
    dataset = from_arrays(np.zeros((40, 9, 9), np.uint8), np.arange(40) % 4)
    requested = {"data": "memory:mine", "steps": 3}
    config = plan_run(requested, open_problem(requested, RUNTIME, dataset), RUNTIME).config
    assert (config.problem.prior, config.problem.num_classes) == ("known", None)


def test_the_batch_fits_whatever_is_left_unlabelled():
    dataset = from_arrays(np.zeros((400, 9, 9), np.uint8), np.arange(400) % 4)
    requested = {"data": "memory:mine", "steps": 3, "novel": 0.0, "labelled": 90.0}
    config = plan_run(requested, open_problem(requested, RUNTIME, dataset), RUNTIME).config
    assert config.training.batch_unlabelled == 20


@pytest.mark.slow
def test_fewer_classes_than_the_data_names_are_warned_of(capsys):
    write_photos(Path("photos"))
    flags = ("--steps", 2, "--epoch-steps", 2, "--uncertainty-views", 2, "--device", "cpu")
    assert run("train", "photos", "--num-classes", 2, *flags, "--out", "r") == 0
    assert "warning: the data names 3 classes, more than 2" in capsys.readouterr().err
