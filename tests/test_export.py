"""openworld export: other programs answer as the model does, and the cards say what is recorded."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from worlds import CPU, run, stopped, write_photos

from openworld import export as exporting
from openworld.classes import NAMES, Classes
from openworld.data.decode import decode
from openworld.errors import UserError
from openworld.export import Exported, export, load_exported
from openworld.model import Model
from openworld.nets import network_like
from openworld.outputs import class_sizes, read_outputs
from openworld.record import RunFolder

DOCS = (Path(__file__).parent.parent / "docs" / "export.md").read_text()
TINY = ["--steps", 4, "--epoch-steps", 2, "--uncertainty-views", 2, "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    """A run on gray images, of which people named a found class and put two together."""
    path = tmp_path_factory.mktemp("runs") / "digits"
    assert run("train", *TINY, "--batch-labelled", 16, "--batch-unlabelled", 32, "--out", path) == 0
    classes = Classes.of(RunFolder(path)).renamed("novel-3", "delivery | van").merged(["novel-1", "novel-5"])
    RunFolder(path).write_json(NAMES, classes.given)
    return path


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """A run on photos, of which the network sees the middle."""
    folder = tmp_path_factory.mktemp("photos")
    data = write_photos(folder / "data", sides=(20,))
    settings = ["--image-size", 16, "--augment", "photos", "--workers", 0]
    assert run("train", data, *TINY, *settings, "--out", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def features(tmp_path_factory) -> Path:
    """A run on features of very different scales."""
    folder = tmp_path_factory.mktemp("features")
    draw = np.random.default_rng(0)
    labels = np.arange(80) % 4
    rows = (draw.normal(0, 3, (4, 6))[labels] + draw.normal(0, 1, (80, 6))) * 10.0 ** np.arange(-2, 4)
    np.savez(folder / "data.npz", features=rows, labels=np.where((labels < 2) & (np.arange(80) < 40), labels, -1))
    assert run("train", folder / "data.npz", *TINY, "--out", folder / "run") == 0
    return folder / "run"


@pytest.fixture
def a_copy(digits) -> Path:
    return Path(shutil.copytree(digits, "copy"))


@pytest.fixture(scope="module")
def onnx_files(digits, photos, features, tmp_path_factory) -> dict[str, Exported]:
    """By kind of run; the exporter takes its time."""
    folder, runs = tmp_path_factory.mktemp("onnx"), {"digits": digits, "photos": photos, "features": features}
    files = {}
    for kind, path in runs.items():
        (files[kind],) = export(RunFolder(path), [folder / f"{kind}.onnx"], warn=pytest.fail)
    return files


def model_of(path: Path) -> Model:
    return Model.load(RunFolder(path), CPU, warn=pytest.fail)


def samples_for(model: Model, count: int) -> torch.Tensor:
    """Other ones than those of the export's own check."""
    draw = np.random.default_rng(1)
    if model.takes_images:
        return torch.from_numpy(draw.integers(0, 256, (count, *model.sample_shape), dtype=np.uint8))
    noise = torch.from_numpy(draw.normal(0, 2, (count, *model.sample_shape))).float()
    return model.network.mean + model.network.std * noise


def files_here() -> list[str]:
    return sorted(path.name for path in Path().iterdir() if path.is_file())


# ONNX


@pytest.mark.parametrize("kind", ["digits", "photos", "features"])
def test_onnx_answers_as_the_model_does_at_any_batch_size(kind, onnx_files, request):
    file, model = onnx_files[kind], model_of(request.getfixturevalue(kind))
    assert set(file.differences) == {"probabilities", "embedding"}
    assert all(0 <= value < 1e-5 for value in file.differences.values())
    assert file.path.read_bytes() == file.content

    session = onnxruntime.InferenceSession(file.content)
    (taken,) = session.get_inputs()
    images, features = ("images", "tensor(uint8)"), ("features", "tensor(float)")
    assert (taken.name, taken.type) == (images if model.takes_images else features)
    assert taken.shape == ["batch", *model.sample_shape]
    for count in (1, 2, 7):
        samples = samples_for(model, count)
        probabilities, embedding = session.run(["probabilities", "embedding"], {taken.name: samples.numpy()})
        assert probabilities.shape == (count, len(model.classes.names))
        np.testing.assert_allclose(probabilities, model.shares(samples).numpy(), atol=1e-5)
        np.testing.assert_allclose(embedding, model.features(samples).numpy(), atol=1e-5)


def about(file: Exported) -> dict[str, str]:
    return onnxruntime.InferenceSession(file.content).get_modelmeta().custom_metadata_map


def test_the_metadata_says_what_a_program_must_know(onnx_files):
    told = about(onnx_files["digits"])
    assert json.loads(told["class_names"]) == [*"01234", "novel-1", "novel-2", "delivery | van", "novel-4"]
    assert json.loads(told["novel_classes"]) == ["novel-1", "novel-2", "delivery | van", "novel-4"]
    assert (told["image_size"], told["channels"], told["step"], told["data"]) == ("8", "1", "4", "digits")
    assert (told["temperature"], told["openworld_version"]) == ("0.1", "0.1.0")
    assert "(batch, 1, 8, 8)" in told["preprocessing"]
    assert about(onnx_files["photos"])["channels"] == "3"
    told = about(onnx_files["features"])
    assert told["features"] == "6"
    assert "image_size" not in told


def test_the_file_is_one_and_tells_nothing_of_this_machine(onnx_files):
    file = onnx_files["digits"]
    assert {path.name for path in file.path.parent.iterdir()} == {"digits.onnx", "photos.onnx", "features.onnx"}
    assert str(Path(exporting.__file__).parent).encode() not in file.content
    assert b"stack_trace" not in file.content
    assert {opset.version for opset in onnx.load_from_string(file.content).opset_import} == {18}


def test_the_crop_is_inside_and_said(photos, onnx_files):
    assert "central 14 x 14" in about(onnx_files["photos"])["preprocessing"]
    session = onnxruntime.InferenceSession(onnx_files["photos"].content)
    images = samples_for(model_of(photos), 2).numpy()
    framed = images.copy()
    framed[:, :, [0, -1], :], framed[:, :, :, [0, -1]] = 0, 0
    for one, other in zip(*(session.run(None, {"images": batch}) for batch in (images, framed)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("method", "change", "output"),
    [
        ("shares", lambda shares: shares.roll(1, dims=1), "probabilities"),
        ("shares", lambda shares: shares * torch.nan, "probabilities"),
        ("features", lambda features: features + (len(features) == 3) * 0.001, "embedding"),
    ],
    ids=["other classes", "not a number", "other embedding in one batch"],
)
def test_a_file_that_answers_otherwise_is_not_written(method, change, output, digits, onnx_files, refused, monkeypatch):
    original = getattr(Model, method)
    monkeypatch.setattr(exporting, "to_onnx", lambda *_: onnx_files["digits"].content)
    monkeypatch.setattr(Model, method, lambda self, samples: change(original(self, samples)))
    told = refused("export", digits, "weights.safetensors", "model.onnx")
    assert f"model.onnx is not written: its {output} differ from the original's by" in told
    assert files_here() == []


def test_parity_is_measured_at_three_batch_sizes_on_different_samples(digits):
    batches = [exporting.trial_samples(model_of(digits), rows) for rows in exporting.BATCH_SIZES]
    assert [len(batch) for batch in batches] == [1, 3, 16]
    assert [int(batches[2][row].float().mean()) for row in (0, 1)] == [0, 255]
    assert not torch.equal(batches[0][0], batches[1][0])
    assert all(50 < float(batch.float().mean()) < 200 for batch in batches)


def test_an_exporter_that_fails_is_told_of_in_one_line(digits, refused, monkeypatch):
    def fail(*_, **__):
        raise torch.onnx.OnnxExporterError("no such operator\nand pages of advice")

    monkeypatch.setattr(torch.onnx, "export", fail)
    assert refused("export", digits, "model.onnx").endswith(
        "cannot export network and views of this run: no such operator"
    )


def test_without_the_packages_it_says_what_to_install(digits, refused, monkeypatch):
    find = exporting.find_spec
    monkeypatch.setattr(exporting, "find_spec", lambda name: None if name == "onnxscript" else find(name))
    told = refused("export", digits, "model.onnx")
    assert told == "openworld: model.onnx: onnxscript is not installed: pip install onnxscript"
    assert run("export", digits, "README.md") == 0


# Weights


@pytest.mark.parametrize("kind", ["digits", "photos", "features"])
def test_weights_and_card_give_the_model_back(kind, request):
    path = request.getfixturevalue(kind)
    assert run("export", path, "model.safetensors") == 0
    assert files_here() == ["model.json", "model.safetensors"]
    model, loaded = model_of(path), load_exported("model.safetensors")
    samples = samples_for(model, 5)
    assert torch.equal(loaded.shares(samples), model.shares(samples))
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
    assert set(weights) == set(network_like("small", weights).state_dict())
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32, torch.int64}


def test_weights_that_are_not_the_cards_are_refused(digits):
    assert run("export", digits, "a.safetensors") == 0
    content = bytearray(Path("a.safetensors").read_bytes())
    content[-1] ^= 1
    Path("a.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"a.safetensors is damaged, or a.json is the card of other weights"):
        load_exported("a.safetensors")
    Path("a.json").write_text("{}")
    with pytest.raises(UserError, match=r"a.json is not the card of exported weights"):
        load_exported("a.safetensors")
    Path("a.json").unlink()
    with pytest.raises(UserError, match=r"a.json: cannot be read \(No such file"):
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
    assert f"| 0 | labelled | {sizes['0']:,} |  |" in card
    assert f"| delivery \\| van | found | {sizes['delivery | van']:,} | novel-3 |" in card
    assert f"| novel-1 | found | {sizes['novel-1']:,} | novel-1 + novel-5 |" in card
    assert "novel-3 is delivery \\| van, novel-5 is novel-1" in card
    assert "before people named or merged any" in card
    assert "50% of its classes are new, 10% of the samples of the others keep their labels" in card
    assert "The number of classes that was trained for, 10, is that of the data set" in card
    assert json.loads(folder.split())["fingerprint"] in card
    assert folder.read("config.toml").strip() in card
    assert card.count("```") % 2 == 0


def test_the_model_card_of_own_data_without_truth(features):
    assert run("export", features, "README.md") == 0
    card = Path("README.md").read_text()
    assert "pipeline_tag: tabular-classification" in card
    assert "Which of them are labelled came with the data." in card
    assert "Accuracy was not measured" in card
    assert "Its accuracy is not known." in card
    assert "was set beforehand; it was not estimated" in card
    assert "What people named" not in card


def test_an_estimated_number_of_classes_is_said_to_be_one(features):
    copied = Path(shutil.copytree(features, "copy"))
    total = RunFolder(copied).config().problem.num_classes
    estimate = {"num_classes": total, "low": 3, "high": None, "estimator": "neighbours", "curve": []}
    (copied / "estimate.json").write_text(json.dumps(estimate))
    assert run("export", copied, "README.md") == 0
    assert f"{total}, was estimated from the data (3 or more, by `neighbours`)" in Path("README.md").read_text()


def test_a_run_that_is_not_finished_is_exported_and_says_so(digits, capsys):
    config = RunFolder(digits).config()
    stopped("cut", config, step=3)
    assert run("export", "cut", "model.safetensors", "README.md") == 0
    assert "warning: cut is not finished: this is step 2 of 4" in capsys.readouterr().err
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
    assert "None are recorded for these weights." in card
    assert "## Environment\n\nNot recorded." in card
    assert json.loads(Path("model.json").read_text())["results"] is None


# Files


def test_the_exporters_chatter_is_not_heard(digits, onnx_files):
    """It chatters most in a new process. And what was exported before is replaced."""
    shutil.copy(onnx_files["features"].path, "model.onnx")
    command = [sys.executable, "-m", "openworld", "export", digits, "model.onnx", "README.MD"]
    captured = subprocess.run(command, capture_output=True, text=True, check=True)
    assert captured.stderr == ""
    told, card = captured.stdout.splitlines()
    differs = r"from the original it differs by at most \de-\d\d in its probabilities and \de-\d\d in its embedding"
    assert re.fullmatch(rf"model.onnx: [\d.]+ kB; {differs} \(batches of 1, 3, 16\)", told)
    assert re.fullmatch(r"README.MD: [\d.]+ kB", card)
    assert Path("model.onnx").read_bytes() == onnx_files["digits"].content
    assert files_here() == ["README.MD", "model.onnx"]


def test_what_was_written_is_told_to_machines(digits, onnx_files, capsys, monkeypatch):
    monkeypatch.setattr(exporting, "to_onnx", lambda *_: onnx_files["digits"].content)
    assert run("export", digits, "model.onnx", "model.safetensors", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["run"] == str(digits)
    assert [file["path"] for file in told["files"]] == ["model.onnx", "model.safetensors", "model.json"]
    for file in told["files"]:
        content = Path(file["path"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert told["files"][0]["differences"] == onnx_files["digits"].differences
    assert told["files"][0]["tolerance"] == 1e-4


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        (["model.pt"], "model.pt: its name must end in .onnx, .safetensors or .md"),
        (["README.md", "model"], "model: its name must end in .onnx, .safetensors or .md"),
        (["README.md", "nowhere/model.onnx"], "nowhere/model.onnx: there is no folder nowhere"),
        (["README.md", "folder.md"], "folder.md is a folder: choose another name"),
        (["README.md", "thesis.md"], "thesis.md exists and was not made by openworld export"),
        (["README.md", "mine.safetensors"], "mine.json exists and was not made by openworld export"),
        (["README.md", "mine.onnx"], "mine.onnx exists and was not made by openworld export"),
    ],
)
def test_bad_places_are_refused_before_anything_is_written(files, answer, digits, refused):
    Path("folder.md").mkdir()
    mine = {"thesis.md": "years of work on openworld export", "mine.json": "{}", "mine.onnx": ""}
    for name, text in mine.items():
        Path(name).write_text(text)
    assert answer in refused("export", digits, *files)
    assert {name: Path(name).read_text() for name in files_here()} == mine


def test_a_folder_that_may_not_be_written_into_is_refused_before_the_work(digits, refused, monkeypatch):
    Path("closed").mkdir()
    monkeypatch.setattr("os.access", lambda path, mode: str(path) != "closed")
    told = refused("export", digits, "README.md", "closed/model.onnx")
    assert "closed/model.onnx: nothing may be written into closed" in told
    assert files_here() == []


def test_what_was_exported_before_is_replaced_whole(digits, a_copy, refused, monkeypatch):
    names = ["model.safetensors", "README.md"]
    assert run("export", digits, *names) == 0
    before = {name: Path(name).read_bytes() for name in files_here()}
    (a_copy / NAMES).unlink()

    def no_room(self, target):
        raise OSError(28, "No space left on device", str(target))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", no_room)
        assert "No space left on device" in refused("export", a_copy, *names)
    assert {name: Path(name).read_bytes() for name in files_here()} == before
    assert run("export", a_copy, *names) == 0
    after = {name: Path(name).read_bytes() for name in files_here()}
    assert set(after) == set(before)
    assert [name for name in after if after[name] == before[name]] == ["model.safetensors"]


def test_files_of_the_run_itself_are_left_alone(a_copy, refused):
    assert "was not made by openworld export" in refused("export", a_copy, a_copy / "outputs.safetensors")


@pytest.mark.parametrize(
    ("broken", "answer"),
    [
        ("config.toml", "is not a run"),
        ("split.json", "its split.json is gone"),
        ("checkpoints", "has no sound checkpoint"),
    ],
)
def test_a_damaged_run_is_refused(broken, answer, a_copy, refused):
    path = a_copy / broken
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert answer in refused("export", a_copy, "README.md")
    assert files_here() == []


# The docs


def test_the_script_of_the_docs_sees_the_same_pixels_and_says_the_same(photos, onnx_files):
    draw = np.random.default_rng(2)
    large = Image.fromarray(draw.integers(0, 256, (150, 210, 3), dtype=np.uint8)).resize((420, 300))
    exif = Image.Exif()
    exif[0x0112] = 6
    large.save("turned.jpg", exif=exif)
    large.convert("L").save("gray.jpg")
    large.convert("P").save("palette.png")
    names = ["turned.jpg", "gray.jpg", "palette.png"]
    shutil.copy(onnx_files["photos"].path, "model.onnx")
    model, told = model_of(photos), answers_of_the_script(names)
    images = np.stack([decode(Path(name).read_bytes(), 16) for name in names]).transpose(0, 3, 1, 2)
    for row, (name, prediction, confidence, kind) in zip(model.shares(torch.from_numpy(images)), told, strict=True):
        best = model.classes.names[int(row.argmax())]
        assert (prediction, kind) == (best, "found" if best.startswith("novel") else "known"), name
        assert float(confidence) == pytest.approx(float(row.max()), abs=1e-4)
    shutil.copy(onnx_files["digits"].path, "model.onnx")
    assert len(answers_of_the_script(["gray.jpg"])) == 1


def answers_of_the_script(names: list[str]) -> list[list[str]]:
    """Of the Python code in docs/export.md that begins with imports; it must need nothing else."""
    (script,) = (block for block in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL) if "onnxruntime" in block)
    Path("script.py").write_text(script)
    command = [sys.executable, "-W", "error", "script.py", *names]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return [line.split("\t") for line in result.stdout.splitlines()]


def test_the_docs_give_the_tolerance_and_the_sizes_of_the_check():
    assert f"{exporting.TOLERANCE:.0e}".replace("e-0", "e-") in DOCS
    assert "batches of 1, 3 and 16" in DOCS
    assert exporting.BATCH_SIZES == (1, 3, 16)
    assert f"opset {exporting.OPSET}" in DOCS
