"""--start: a run that starts from the network of another run."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from worlds import RUNTIME, run

from openworld.data.problem import load_problem
from openworld.nets.building import network_of
from openworld.nets.features import clustered_head
from openworld.nets.inference import inference_copy
from openworld.ops.rng import generator
from openworld.runs.checkpoint import load
from openworld.runs.folder import RunFolder

SHORT = (
    "--steps",
    2,
    "--epoch-steps",
    2,
    "--batch-labelled",
    16,
    "--batch-unlabelled",
    16,
    "--device",
    "cpu",
    "--quiet",
)


def weights(path: str, step: int, part: str = "average") -> dict[str, torch.Tensor]:
    return load_file(Path(path) / "checkpoints" / f"step-{step:08d}" / f"{part}.safetensors")


@pytest.mark.slow
def test_the_body_is_taken_over_and_the_head_is_drawn():
    assert run("train", *SHORT, "--out", "first") == 0
    assert run("train", *SHORT, "--start", "first", "--out", "second") == 0
    assert run("train", *SHORT, "--out", "drawn") == 0
    taken, begun, drawn = weights("first", 2), weights("second", 0), weights("drawn", 0)
    for name in taken:
        if name.startswith("body."):
            assert torch.equal(taken[name], begun[name])
            assert torch.equal(taken[name], weights("second", 0, "model")[name])
    assert torch.equal(drawn["head.weight"], begun["head.weight"])
    assert json.loads(Path("second/summary.json").read_text())["start"] == str(Path("first").absolute())


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", [10, 12])
def test_after_simclr_the_head_begins_as_the_means_and_clusters_of_this_run(num_classes):
    """This holds for any number of classes in the run that learnt the features."""
    assert run("train", "--method", "simclr", *SHORT, "--out", "first") == 0
    assert run("train", *SHORT, "--start", "first", "--out", "second", "--num-classes", num_classes) == 0
    begun = RunFolder(Path("second"))
    saved = load(begun.checkpoints / "step-00000000")
    data = load_problem(begun.config(), RUNTIME).training
    shape = data.shown_shape
    network = network_of(begun.config(), shape, data.num_seen, data.num_classes, data.mean, data.std)
    saved.load_into(network, "average")
    assert len(network.head.weight) == num_classes
    expected = clustered_head(inference_copy(network), data, generator(0, "clusters"))
    torch.testing.assert_close(network.head.weight.detach(), expected)
    assert torch.equal(saved.tensors("model")["head.weight"], saved.tensors("average")["head.weight"])


@pytest.mark.slow
def test_it_is_found_from_another_folder_and_not_needed_to_resume():
    assert run("train", "--method", "simclr", *SHORT, "--out", "first") == 0
    assert run("train", *SHORT, "--start", "first", "--out", "second") == 0
    Path("first").rename("gone")
    Path("second/summary.json").unlink()
    assert run("train", "--resume", "--out", "second", "--device", "cpu", "--quiet") == 0


@pytest.mark.slow
def test_the_same_command_goes_on():
    assert run("train", *SHORT, "--out", "first") == 0
    for _ in range(2):
        assert run("train", *SHORT, "--start", "first", "--resume", "--out", "second") == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "answer"),
    [
        (["--start", "nowhere"], "--start nowhere is not a run"),
        (["--start", "simcrl"], "did you mean simclr?"),
        (["--start", "first", "--network", "small-32"], "--start {first}: that run has another network"),
        (["--start", "lost"], "{lost} has no split.json: training has not started"),
        (["--start", "taught", "--seed", 1], "--start {taught}: that run was trained on other labels"),
        (["--start", "after", "--seed", 1], "--start {after}: that run was trained on other labels"),
    ],
)
def test_a_start_that_does_not_fit_is_refused_before_anything_is_written(flags, answer, refused):
    assert run("train", "--method", "simclr", *SHORT, "--out", "first") == 0
    assert run("train", *SHORT, "--out", "taught") == 0
    assert run("train", "--method", "simclr", *SHORT, "--start", "taught", "--out", "after") == 0
    Path("lost").mkdir()
    shutil.copy("taught/config.toml", "lost")
    told = refused("train", *SHORT, *flags, "--out", "second")
    assert answer.format(**{name: Path(name).absolute() for name in ("first", "taught", "after", "lost")}) in told
    assert not Path("second").exists()
