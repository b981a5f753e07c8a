"""A run that begins with clusters never ends worse than it began, as far as it can tell without the truth."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from openworld import train_on
from openworld.core.progress import ProgressDisplay
from openworld.data.batches import FEWEST_TO_HOLD_OUT, MOST_HELD_OUT, held_out
from openworld.ops.agreement import kappa
from openworld.ops.rng import generator
from openworld.runs.folder import RunFolder
from openworld.training.loop import warn_about_lost_classes


def blobs(distance: float, each: int = 60, width: int = 128):
    """Return features of four kinds, two of them with labels."""
    source = generator(0, "blobs")
    kinds = torch.arange(4).repeat_interleave(each)
    points = distance * torch.randn(4, width, generator=source)
    samples = points[kinds] + torch.randn(len(kinds), width, generator=source)
    labels = torch.where((kinds < 2) & (torch.arange(len(kinds)) % 3 == 0), kinds, -1)
    return samples.numpy(), labels.numpy(), kinds.numpy()


def trained(folder: str, distance: float = 3.0, **settings):
    samples, labels, _ = blobs(distance)
    usual = {"num_classes": 4, "steps": 20, "epoch_steps": 10, "device": "cpu", "uncertainty_views": 2}
    return train_on(samples, labels, out=folder, **{**usual, **settings}), RunFolder(Path(folder))


@pytest.mark.slow
def test_features_are_trained_from_their_clusters():
    summary, run = trained("good")
    config = run.config().training
    assert (config.start, config.network) == ("clusters", "adapter")
    assert not summary["keeps_first_clusters"]
    first, *_, last = run.metrics()
    assert first["step"] == 0
    assert last["agreement"] > 0.9
    saved = run.newest_checkpoint(print).tensors("average")  # features are used as they are, as those of a backbone
    assert saved["mean"].eq(0).all()
    assert saved["std"].eq(1).all()


@pytest.mark.slow
def test_training_that_spoils_the_clusters_is_undone():
    """A rate of 300 makes the network forget. The run answers as its first clusters do, and says so."""
    summary, run = trained("bad", distance=1.0, lr=300.0)
    assert summary["keeps_first_clusters"]
    lines = run.metrics()
    assert lines[-1]["agreement"] < lines[0]["agreement"]
    _, good = trained("first", distance=1.0, steps=1, epoch_steps=1, lr=1e-9)
    weights = [each.newest_checkpoint(print).tensors("average")["head.weight"] for each in (run, good)]
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-3, atol=1e-4)


def test_a_seen_class_that_is_nowhere_found_is_told(capsys):
    data = SimpleNamespace(unlabelled=range(100), prior=torch.tensor([0.3, 0.3, 0.0, 0.4]), num_seen=3)
    sizes = {"cat": 7, "dog": 8, "fox": 0, "novel-1": 85}
    warn_about_lost_classes(sizes, SimpleNamespace(training=data), ProgressDisplay(1, 1, quiet=False))
    told = capsys.readouterr().err
    assert "predicted as cat: a novel class may hold" in told.replace("\n", " ")
    assert "dog" not in told
    assert "fox" not in told


def test_some_samples_are_held_out_of_every_batch():
    assert len(held_out(FEWEST_TO_HOLD_OUT - 1)) == 0
    assert len(held_out(500)) == 50
    assert MOST_HELD_OUT <= len(held_out(10**6)) <= MOST_HELD_OUT + 1


def test_agreement_by_chance_counts_for_nothing():
    everything_one_class = torch.zeros(100, dtype=torch.long)
    nearly = everything_one_class.clone()
    nearly[0] = 1
    assert kappa(everything_one_class, nearly) == pytest.approx(0, abs=1e-6)
    assert kappa(torch.arange(10), torch.arange(10)) == pytest.approx(1)
