"""Novel class discovery: all unlabelled samples are of novel classes, and training knows it (`--task ncd`)."""

import json
from pathlib import Path

import numpy as np
import pytest
from worlds import RUNTIME, run, write_photos

from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.data.problem import load_problem
from openworld.runs.folder import RunFolder

SHORT = ("--steps", 4, "--epoch-steps", 2, "--batch-labelled", 8, "--batch-unlabelled", 16, "--uncertainty-views", 2)


@pytest.mark.slow
def test_a_benchmark_is_turned_into_the_problem(capsys):
    assert run("train", "digits", "--task", "ncd", *SHORT, "--out", "r") == 0
    printed = capsys.readouterr()
    assert "task-aware" in printed.out
    assert "cannot check" not in printed.err  # here openworld made the split itself
    folder = RunFolder(Path("r"))
    summary, problem = folder.summary(), folder.config().problem
    assert (summary["task"], summary["labelled"], problem.labelled) == ("ncd", 100.0, 100.0)
    world = load_problem(folder.config(), RUNTIME, folder.split())
    assert world.training.prior[:5].tolist() == [0] * 5
    assert world.truths["unlabelled"].labels.min() == 5
    assert len(world.training.labelled) + len(world.training.unlabelled) == sum(world.split.class_sizes)


@pytest.mark.slow
def test_evaluation_has_task_aware_accuracy(capsys):
    assert run("train", "digits", "--task", "ncd", "--labelled", 30, *SHORT, "--out", "r", "--quiet") == 0
    capsys.readouterr()
    assert run("evaluate", "r", "--json") == 0
    protocols = json.loads(capsys.readouterr().out)["protocols"]
    folder = RunFolder(Path("r"))
    assert protocols == folder.summary()["protocols"]
    aware, agnostic = protocols["task-aware"], protocols["trssl"]
    assert aware["novel"] >= agnostic["novel"]
    assert aware["seen"] >= agnostic["seen"]
    assert aware["novel"] == folder.metrics()[-1]["average"]["novel_only"]
    assert run("evaluate", "r", "--part", "unlabelled", "--json") == 0
    assert json.loads(capsys.readouterr().out)["protocols"]["task-aware"]["seen"] is None  # no such sample


@pytest.mark.slow
def test_pseudo_labels_are_made_for_novel_classes_only():
    config = replace(digits("digits"), {"task": "ncd", "labelled": 100.0, "batch_labelled": 8, "batch_unlabelled": 32})
    from openworld.data.batches import Batches, Views
    from openworld.methods.trssl import Trssl
    from openworld.training.learner import Learner

    data = load_problem(config, RUNTIME).training
    method, batch = Trssl(config, data), Batches(data, config.training, 0, Views()).at(0)
    targets, _ = method.pseudo_labels(method.view_logits(Learner(config, data, RUNTIME).network, batch))
    assert targets[:, :5].abs().max() == 0
    np.testing.assert_allclose(targets.detach().sum(dim=1), 1, rtol=1e-5)


@pytest.mark.slow
def test_own_data_is_taken_at_its_word_which_is_said_once(tmp_path, capsys):
    write_photos(tmp_path / "photos")
    flags = ("train", tmp_path / "photos", "--task", "ncd", "--backbone", "none", *SHORT)
    assert run(*flags, "--out", "r") == 0
    told = capsys.readouterr().err
    assert told.count("--task ncd: no unlabelled image is of a seen class; openworld cannot check this") == 1
    assert RunFolder(Path("r")).split_and_facts()[1]["prior"][:2] == [0, 0]
    assert run(*flags, "--num-classes", 2, "--out", "s") == 2
    assert "--task ncd needs novel classes: --num-classes must be more than the 2 seen" in capsys.readouterr().err


def test_no_novel_classes_at_all_are_refused(refused):
    assert "every training image is labelled" in refused("train", "digits", "--task", "ncd", "--novel", 0)
    assert "task" in refused("train", "digits", "--task", "ncdd")
