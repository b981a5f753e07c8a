"""SimCLR, which learns features without labels: its loss, the clusters that become classes, and whole runs."""

import dataclasses
import json
import signal
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load
from torch import Tensor
from worlds import RUNTIME, last_checkpoint, lines_without_clock, stopped, trained

from openworld.core.fields import replace
from openworld.core.recipes import digits, simclr
from openworld.core.signals import Interrupted
from openworld.data.problem import OpenWorld, TrainingSet, load_problem
from openworld.methods.simclr import nt_xent
from openworld.ops.rng import generator
from openworld.runs.evaluation import evaluate_run, probe_features
from openworld.runs.folder import RunFolder
from openworld.training.learner import Learner
from openworld.training.meter import Meter

TINY = replace(
    simclr("digits"), {"steps": 7, "epoch_steps": 3, "batch_unlabelled": 16, "uncertainty_views": 2, "muon": 0.02}
)
SHORT = replace(simclr("digits"), {"steps": 80, "batch_unlabelled": 96})


# The loss ----------------------------------------------------------------------------------------------------


def unit_vectors(count: int, width: int = 5) -> Tensor:
    return F.normalize(torch.randn(count, width, generator=generator(0, "projected")).double())


@pytest.mark.parametrize("temperature", [0.2, 0.5])
def test_the_loss_is_its_formula_written_as_loops(temperature):
    projected = unit_vectors(12)
    total = 0.0
    for i in range(12):
        partner = (i + 6) % 12  # all first views come before all second views
        others = [torch.exp(projected[i] @ projected[k] / temperature) for k in range(12) if k != i]
        total -= float(torch.log(torch.exp(projected[i] @ projected[partner] / temperature) / sum(others)))
    assert nt_xent(projected, temperature).loss.item() == pytest.approx(total / 12)


def test_the_logs_tell_how_many_find_their_partner_and_how_near_it_is():
    views = torch.eye(4)
    logs = nt_xent(torch.cat([views, views]), 0.2).logs
    assert (logs["partner_found"], logs["partner_cosine"]) == (1, 1)
    logs = nt_xent(torch.cat([views, views.roll(1, dims=0)]), 0.2).logs
    assert (logs["partner_found"], logs["partner_cosine"]) == (0, 0)


def test_the_loss_pulls_partners_together():
    projected = unit_vectors(12).requires_grad_()
    nt_xent(F.normalize(projected), 0.2).loss.backward()
    with torch.no_grad():
        nearer = F.normalize(projected - 0.1 * projected.grad)
    assert nt_xent(nearer, 0.2).logs["partner_cosine"] > nt_xent(projected, 0.2).logs["partner_cosine"]


# Clusters that become classes --------------------------------------------------------------------------------


def test_the_head_holds_clusters_in_which_the_labelled_samples_find_their_class():
    world = load_problem(SHORT, RUNTIME)
    learner = Learner(SHORT, world.training, RUNTIME)
    learner.recalibrate_average()
    before = learner.average.network.head.classes.weight.clone()
    average = learner.end_epoch()
    data = world.training
    answers = average(data.family.plain(data.labelled.take(torch.arange(len(data.labelled)))))
    assert (answers.argmax(dim=1) == data.labels).float().mean() > 0.5  # of features that nobody has trained
    assert average.head.classes.weight.norm(dim=1).tolist() == pytest.approx([1] * 10)
    assert torch.equal(learner.average.network.head.classes.weight, average.head.classes.weight)
    assert not torch.allclose(before, average.head.classes.weight, atol=0.1)


# Learning ----------------------------------------------------------------------------------------------------


def test_labelled_samples_come_among_the_others_without_their_labels():
    data = load_problem(TINY, RUNTIME).training
    batches = Learner(TINY, data, RUNTIME).batches
    batch = batches.at(0)
    assert (len(batch.labelled_views), len(batch.labels), len(batch.views)) == (0, 0, 32)
    assert batches.rows == 32
    num_samples = len(data.labelled) + len(data.unlabelled)
    met = torch.cat([batches.draw(step).index for step in range(-(-num_samples // 16))])
    assert set(met.tolist()) == set(range(num_samples))


@pytest.mark.slow
def test_the_loss_falls_and_features_get_better():
    world = load_problem(SHORT, RUNTIME)
    learner = Learner(SHORT, world.training, RUNTIME)
    probes, losses = [probes_of(learner, world)], []
    for _ in range(4):
        learner.meter = Meter()
        for _ in range(20):
            learner.learn()
        losses.append(learner.meter.means()["loss"])
    probes.append(probes_of(learner, world))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 1
    assert probes[1]["neighbours"] > probes[0]["neighbours"] + 2
    assert probes[1]["linear"] > probes[0]["linear"] + 8


def probes_of(learner: Learner, world: OpenWorld) -> dict[str, float]:
    learner.average.recalibrate([learner.batches.at(0).views])
    return probe_features(learner.inference_average(), world)


def weights_after_training(data: TrainingSet) -> dict[str, Tensor]:
    learner = Learner(TINY, data, RUNTIME)
    for _ in range(TINY.training.steps):
        learner.learn()
        if learner.step % TINY.training.epoch_steps == 0:
            learner.recalibrate_average()
            learner.end_epoch()
    parts = {"network": learner.network, "average": learner.average.network, "method": learner.method}
    return {f"{part} {name}": value for part, net in parts.items() for name, value in net.state_dict().items()}


@pytest.mark.slow
def test_labels_change_nothing_but_the_order_of_the_clusters():
    data = load_problem(TINY, RUNTIME).training
    permuted = dataclasses.replace(data, labels=(data.labels + 1) % data.num_seen)
    first, second = weights_after_training(data), weights_after_training(permuted)
    differing = {name for name in first if not torch.equal(first[name], second[name])}
    assert differing == {"average head.classes.weight", "network head.classes.weight"}


# Whole runs --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> RunFolder:
    return trained(str(tmp_path_factory.mktemp("run") / "whole"), TINY)


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 3, 5])
def test_a_run_stopped_and_resumed_is_the_run_that_was_never_stopped(uninterrupted, step):
    stopped("r", TINY, step)
    resumed = trained("r", TINY)
    assert last_checkpoint(resumed) == last_checkpoint(uninterrupted)
    assert lines_without_clock(resumed) == lines_without_clock(uninterrupted)


def test_the_projection_is_trained_and_kept_with_its_momentum(uninterrupted):
    fresh = Learner(TINY, load_problem(TINY, RUNTIME).training, RUNTIME).network.head.projection.state_dict(
        prefix="head.projection."
    )
    files = last_checkpoint(uninterrupted)
    kept, average, momentum = (load(files[f"{part}.safetensors"]) for part in ("model", "average", "optimizer"))
    assert set(fresh) == {f"head.projection.{name}" for name in ("0.weight", "0.bias", "2.weight")}
    for name, first in fresh.items():
        assert not torch.equal(kept[name], first), name
        assert not torch.equal(average[name], first), name
        assert momentum[name].abs().max() > 0
    assert kept["head.projection.2.weight"].shape == (TINY.options.projection, 64)
    assert "head.classes.weight" not in momentum  # which is fitted, not trained


def test_the_summary_says_what_the_features_are_worth(uninterrupted):
    summary = uninterrupted.summary()
    assert summary["method"] == "simclr"
    assert set(summary["probes"]) == {"neighbours", "linear"}
    assert all(60 < value <= 100 for value in summary["probes"].values())
    assert summary["num_classes_estimated"] is False
    json.dumps(summary)


@pytest.mark.slow
def test_a_method_that_learns_from_labels_has_no_probes():
    small = {"steps": 2, "batch_labelled": 8, "batch_unlabelled": 16, "uncertainty_views": 2}
    assert trained("r", replace(digits("digits"), small)).summary()["probes"] is None


def test_evaluation_repeats_the_result_of_training(uninterrupted):
    again = evaluate_run(uninterrupted, "test", RUNTIME, print)
    assert again["protocols"] == uninterrupted.summary()["protocols"]


@pytest.mark.slow
def test_a_run_stopped_within_an_epoch_can_be_evaluated(monkeypatch):
    learn = Learner.learn

    def learn_and_interrupt(self):
        learn(self)
        if self.step == 35:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Learner, "learn", learn_and_interrupt)
    with pytest.raises(Interrupted, match="stopped at step 35"):
        trained("r", replace(SHORT, {"epoch_steps": 20, "batch_unlabelled": 64}))
    run = RunFolder(Path("r"))
    again = evaluate_run(run, "test", RUNTIME, [].append)
    assert again["protocols"]["gcd"]["all"] > run.metrics()[-1]["average"]["all"] - 10
