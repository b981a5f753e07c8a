"""openworld export: exported files predict as the model does, and export overwrites no other files."""

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
from exported_runs import (  # noqa: F401
    a_copy_fixture,
    digits_fixture,
    features_fixture,
    files_here,
    model_of,
    photos_fixture,
    samples_for,
)
from PIL import Image
from worlds import run

from openworld.data.decode import decode
from openworld.results import export as exporting
from openworld.results.export import Exported, export
from openworld.runs.classes import NAMES
from openworld.runs.folder import RunFolder
from openworld.runs.model import Model

DOCS = (Path(__file__).parents[2] / "docs" / "export.md").read_text()


@pytest.fixture(scope="module")
def onnx_files(digits, photos, features, tmp_path_factory) -> dict[str, Exported]:
    """Exported files by kind of run, made once because the exporter is slow."""
    folder, runs = tmp_path_factory.mktemp("onnx"), {"digits": digits, "photos": photos, "features": features}
    files = {}
    for kind, path in runs.items():
        (files[kind],) = export(RunFolder(path), [folder / f"{kind}.onnx"], warn=pytest.fail)
    return files


# ONNX


@pytest.mark.slow
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
        np.testing.assert_allclose(probabilities, model.probabilities(samples).numpy(), atol=1e-5)
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
        ("probabilities", lambda shares: shares.roll(1, dims=1), "probabilities"),
        ("probabilities", lambda shares: shares * torch.nan, "probabilities"),
        ("features", lambda features: features + (len(features) == 3) * 0.001, "embedding"),
    ],
    ids=["other classes", "not a number", "other embedding in one batch"],
)
def test_a_file_that_answers_otherwise_is_not_written(method, change, output, digits, onnx_files, refused, monkeypatch):
    original = getattr(Model, method)
    monkeypatch.setattr(exporting, "to_onnx", lambda *_: onnx_files["digits"].content)
    monkeypatch.setattr(Model, method, lambda self, samples: change(original(self, samples)))
    told = refused("export", digits, "weights.safetensors", "model.onnx")
    assert f"model.onnx is not written: its {output} " in told
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
    assert refused("export", digits, "model.onnx").endswith(": no such operator")


def test_without_the_packages_it_says_what_to_install(digits, refused, monkeypatch):
    find = exporting.find_spec
    monkeypatch.setattr(exporting, "find_spec", lambda name: None if name == "onnxscript" else find(name))
    assert refused("export", digits, "model.onnx").endswith("pip install onnxscript")
    assert run("export", digits, "README.md") == 0


# Files


@pytest.mark.slow
def test_the_exporters_chatter_is_not_heard(digits, onnx_files):
    """The exporter prints most in a new process. The test also replaces an earlier export."""
    shutil.copy(onnx_files["features"].path, "model.onnx")
    command = [sys.executable, "-m", "openworld", "export", digits, "model.onnx", "README.MD"]
    captured = subprocess.run(command, capture_output=True, text=True, check=True)
    assert captured.stderr == ""
    model, card = captured.stdout.splitlines()
    differences = r"\de-\d\d in its probabilities and \de-\d\d in its embedding \(batches of 1, 3, 16\)"
    assert re.fullmatch(rf"model.onnx: [\d.]+ MB; .* {differences}", model)
    assert re.fullmatch(r"README.MD: [\d.]+ MB", card)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "answer"),
    [
        (["model.pt"], "must end in .onnx, .safetensors or .md"),
        (["README.md", "model"], "must end in .onnx, .safetensors or .md"),
        (["README.md", "nowhere/model.onnx"], "the folder nowhere does not exist"),
        (["README.md", "folder.md"], "folder.md is a folder"),
        (["README.md", "thesis.md"], "thesis.md exists"),
        (["README.md", "mine.safetensors"], "mine.json exists"),
        (["README.md", "mine.onnx"], "mine.onnx exists"),
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
    assert "closed/model.onnx: the folder closed is not writable" in told
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
    assert "outputs.safetensors exists" in refused("export", a_copy, a_copy / "outputs.safetensors")


@pytest.mark.parametrize(
    ("broken", "answer"),
    [
        ("config.toml", "is not a run"),
        ("split.json", "split.json is missing"),
        ("checkpoints", "has no undamaged checkpoint"),
    ],
)
def test_a_damaged_run_is_refused(broken, answer, a_copy, refused):
    path = a_copy / broken
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert answer in refused("export", a_copy, "README.md")
    assert files_here() == []


# The docs


@pytest.mark.slow
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
    for row, (name, prediction, confidence, kind) in zip(
        model.probabilities(torch.from_numpy(images)), told, strict=True
    ):
        best = model.classes.names[int(row.argmax())]
        assert (prediction, kind) == (best, "found" if best.startswith("novel") else "known"), name
        assert float(confidence) == pytest.approx(float(row.max()), abs=1e-4)
    shutil.copy(onnx_files["digits"].path, "model.onnx")
    assert len(answers_of_the_script(["gray.jpg"])) == 1


def answers_of_the_script(names: list[str]) -> list[list[str]]:
    """Return the output of the Python script in docs/export.md, which must run by itself."""
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
