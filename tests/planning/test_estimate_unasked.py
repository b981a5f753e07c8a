"""Where a network gives the features, the number of classes is estimated unasked."""

from pathlib import Path

import numpy as np
from feature_files import blobs, write_blobs
from worlds import run

from openworld.runs.folder import RunFolder

WIDE = ["--steps", "2", "--epoch-steps", "1", "--uncertainty-views", "2", "--device", "cpu", "--workers", "0"]


def write_wide_blobs(**problem) -> Path:
    """Write features of so many columns that they are taken for those of a network."""
    features, labels = blobs(**problem)
    noise = np.random.default_rng(1).normal(0, 0.1, (len(features), 128 - features.shape[1]))
    return write_blobs(np.concatenate([features, noise], axis=1), labels)


def test_features_of_a_network_get_an_estimate_unasked(capsys):
    assert run("train", write_wide_blobs(), "--out", "r", *WIDE) == 0
    told = capsys.readouterr().err
    assert told.startswith("about 8 classes (")
    assert "classes: 8, 4 seen and 4 novel (estimated; --num-classes sets the number)" in told
    summary = RunFolder(Path("r")).summary()
    assert (summary["num_classes"], summary["num_classes_estimated"]) == (8, True)
    assert run("train", write_wide_blobs(), "--out", "r", "--resume", *WIDE) == 0
    assert RunFolder(Path("r")).summary() == summary


def test_a_number_that_cannot_be_estimated_is_assumed_unless_the_user_asked_for_an_estimate(capsys, refused):
    path = write_wide_blobs(each=2)
    assert run("train", path, "--out", "r", *WIDE) == 0
    told = capsys.readouterr().err
    assert "classes: 8, 4 seen and 4 novel (assumed: as many novel classes as seen classes; fewer than 2" in told
    assert not RunFolder(Path("r")).summary()["num_classes_estimated"]
    assert not Path("r/estimate.json").exists()
    assert "fewer than 2 classes have 3" in refused("train", path, "--num-classes", "auto", "--out", "q", *WIDE)


def test_few_labels_do_not_show_that_there_is_no_novel_class(capsys):
    """With two seen classes there is no interval. Neither file has a novel class."""
    few = write_wide_blobs(classes=2, num_seen=2, each=9)
    assert run("train", few, "--out", "few", *WIDE) == 0
    assert "classes: 4, 2 seen and 2 novel (assumed: as many novel classes as seen" in capsys.readouterr().err
    assert not Path("few/estimate.json").exists()
    assert run("train", few, "--num-classes", "auto", "--out", "asked", *WIDE) == 0
    assert "classes: 2, 2 seen and 0 novel (estimated" in capsys.readouterr().err
    enough = write_wide_blobs(classes=2, num_seen=2, each=20)
    assert run("train", enough, "--out", "enough", *WIDE) == 0
    assert "classes: 2, 2 seen and 0 novel (estimated" in capsys.readouterr().err
