"""openworld export: the weights restore the model, and the model cards state recorded facts."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from exported_runs import (  # noqa: F401
    a_copy_fixture,
    digits_fixture,
    features_fixture,
    files_here,
    model_of,
    photos_fixture,
    samples_for,
)
from safetensors import safe_open
from worlds import run, stopped

from openworld.core.errors import UserError
from openworld.nets.building import network_of
from openworld.results.export import load_exported
from openworld.runs.classes import Classes
from openworld.runs.folder import RunFolder
from openworld.runs.outputs import class_sizes, read_outputs

# Weights


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["digits", "photos", "features"])
def test_weights_and_card_give_the_model_back(kind, request):
    path = request.getfixturevalue(kind)
    assert run("export", path, "model.safetensors") == 0
    assert files_here() == ["model.json", "model.safetensors"]
    model, loaded = model_of(path), load_exported("model.safetensors")
    samples = samples_for(model, 5)
    assert torch.equal(loaded.probabilities(samples), model.probabilities(samples))
    assert torch.equal(loaded.features(samples), model.features(samples))
    assert torch.equal(loaded.uncertainty(samples, 3), model.uncertainty(samples, 3))
    assert (loaded.classes, loaded.sample_shape, loaded.step) == (model.classes, model.sample_shape, 4)


def test_the_card_says_what_the_weights_are(digits):
    assert run("export", digits, "model.safetensors") == 0
    card, summary = json.loads(Path("model.json").read_text()), RunFolder(digits).summary()
    content = Path("model.safetensors").read_bytes()
    assert card["weights"] == {"file": "model.safetensors", "sha256": hashlib.sha256(content).hexdigest()}
    assert card["network"] == "small"
    assert card["classes"] == [*"01234", "novel-1", "novel-2", "delivery | van", "novel-4"]
    assert card["given_names"] == {"novel-3": "delivery | van", "novel-5": "novel-1"}
    assert card["results"] == summary
    assert card["config"]["training"]["steps"] == 4
    assert card["sessions"][0]["openworld"] == "0.1.0"
    with safe_open("model.safetensors", "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    statistics = weights["mean"].flatten(), weights["std"].flatten()
    assert set(weights) == set(network_of(RunFolder(digits).config(), (1, 8, 8), 5, 10, *statistics).state_dict())
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32, torch.int64}


def test_weights_that_are_not_the_cards_are_refused(digits):
    assert run("export", digits, "a.safetensors") == 0
    content = bytearray(Path("a.safetensors").read_bytes())
    content[-1] ^= 1
    Path("a.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.safetensors is damaged, or a\.json"):
        load_exported("a.safetensors")
    Path("a.json").write_text("{}")
    with pytest.raises(UserError, match=r"a\.json is damaged or not a card"):
        load_exported("a.safetensors")
    Path("a.json").unlink()
    with pytest.raises(UserError, match=r"a\.json: .*No such file"):
        load_exported("a.safetensors")


# The model card


def test_the_model_card_tells_what_is_recorded(digits):
    assert run("export", digits, "README.md") == 0
    card, folder = Path("README.md").read_text(), RunFolder(digits)
    summary, classes = folder.summary(), Classes.of(folder)
    assert card.startswith("---\ngenerated_by: openworld export 0.1.0\nlibrary_name: openworld\n")
    assert "# digits: 9 classes, 4 of them found without labels" in card
    for protocol, scores in summary["protocols"].items():
        assert f"| {protocol} | {scores['seen']:.1f} | {scores['novel']:.1f} | {scores['all']:.1f} |" in card
    assert f"NMI {summary['nmi']:.3f}, ARI {summary['ari']:.3f}." in card
    sizes = class_sizes(read_outputs(folder)["unlabelled"], classes, 0.1)
    assert sum(sizes.values()) == len(json.loads(folder.split())["unlabelled"])
    assert f"| 0 | seen | {sizes['0']:,} |  |" in card
    assert f"| delivery \\| van | novel | {sizes['delivery | van']:,} | novel-3 |" in card
    assert f"| novel-1 | novel | {sizes['novel-1']:,} | novel-1 + novel-5 |" in card
    assert "novel-3 is delivery \\| van, novel-5 is novel-1" in card
    assert "before users named or merged" in card
    assert "50% of the classes" in card
    assert "10% of the samples" in card
    assert "trained for 10 classes. This number is that of the data set" in card
    assert json.loads(folder.split())["fingerprint"] in card
    assert folder.read("config.toml").strip() in card
    assert card.count("```") % 2 == 0


def test_the_model_card_of_own_data_without_truth(features):
    assert run("export", features, "README.md") == 0
    card = Path("README.md").read_text()
    assert "pipeline_tag: tabular-classification" in card
    assert "The data itself says which samples are labelled" in card
    assert "Accuracy was not measured" in card
    assert "accuracy of the model is unknown" in card
    assert "was set before training" in card
    assert "named or merged" not in card


def test_an_estimated_number_of_classes_is_said_to_be_one(features):
    copied = Path(shutil.copytree(features, "copy"))
    total = RunFolder(copied).config().problem.num_classes
    estimate = {"num_classes": total, "low": 3, "high": None, "estimator": "neighbours", "curve": []}
    (copied / "estimate.json").write_text(json.dumps(estimate))
    assert run("export", copied, "README.md") == 0
    card = Path("README.md").read_text()
    assert f"trained for {total} classes. This number was estimated" in card
    assert "(3 or more, by `neighbours`)" in card


def test_a_run_that_is_not_finished_is_exported_and_says_so(digits, capsys):
    config = RunFolder(digits).config()
    stopped("cut", config, step=3)
    assert run("export", "cut", "model.safetensors", "README.md") == 0
    message = capsys.readouterr().err
    assert "warning: cut is not finished" in message
    assert "step 2 of 4" in message
    card = Path("README.md").read_text()
    assert "step 2 of 4" in card
    assert "No result is recorded for these weights" in card
    assert "| not recorded |" in card
    assert load_exported("model.safetensors").step == 2


def test_results_of_other_weights_are_not_claimed(a_copy, capsys):
    (a_copy / "checkpoints" / "step-00000004" / "average.safetensors").write_bytes(b"")
    (a_copy / "environment.json").write_text("{")
    assert run("export", a_copy, "README.md", "model.safetensors") == 0
    assert "is damaged" in capsys.readouterr().err
    card = Path("README.md").read_text()
    assert "step 2 of 4" in card
    assert "## Results\n\nNo results are recorded" in card
    assert "## Environment\n\nNot recorded." in card
    assert json.loads(Path("model.json").read_text())["results"] is None
