"""Checkpoints survive crashes, and damaged ones are detected."""

import os
import shutil
from pathlib import Path

import pytest
import torch

from openworld.core.errors import UserError
from openworld.core.formats import CHECKPOINT_FORMAT
from openworld.runs import checkpoint
from openworld.runs.checkpoint import DamagedCheckpoint
from openworld.runs.folder import RunFolder
from openworld.runs.model import PackedModel


def save(folder: Path, step: int) -> Path:
    parts = {
        "model": {"weight": torch.arange(6.0).view(2, 3).T + step, "count": torch.tensor(step)},
        "method": {"prior": torch.full((3,), 1 / 3)},
    }
    return checkpoint.save(folder, step, parts, {"meter": {"count": step}})


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_round_trip(tmp_path):
    loaded = checkpoint.load(save(tmp_path, 7))
    assert loaded.step == 7
    assert loaded.state["meter"] == {"count": 7}
    model = loaded.tensors("model")
    assert torch.equal(model["weight"], torch.tensor([[7.0, 10.0], [8.0, 11.0], [9.0, 12.0]]))
    assert torch.equal(model["count"], torch.tensor(7))
    assert torch.equal(loaded.tensors("method")["prior"], torch.full((3,), 1 / 3))


def test_the_same_content_gives_the_same_bytes(tmp_path):
    assert files(save(tmp_path / "a", 7)) == files(save(tmp_path / "b", 7))


def test_a_step_can_be_saved_again(tmp_path):
    damaged = save(tmp_path, 7)
    (damaged / "model.safetensors").unlink()
    assert checkpoint.load(save(tmp_path, 7)).step == 7


def test_only_the_two_newest_stay(tmp_path):
    for step in (1, 20, 300, 4000):
        save(tmp_path, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000300", "step-00004000"]


def test_a_new_checkpoint_stays_when_later_ones_are_damaged(tmp_path):
    for step in (300, 400):
        (save(tmp_path, step) / "model.safetensors").unlink()
    assert checkpoint.load(save(tmp_path, 100)).step == 100


def test_everything_is_on_the_disk_before_the_folder_gets_its_name(tmp_path, monkeypatch):
    events = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda descriptor: (events.append("flush"), fsync(descriptor)))
    monkeypatch.setattr(Path, "rename", lambda path, target: (events.append("rename"), rename(path, target)))
    target = save(tmp_path, 1)
    assert events.index("rename") == len(list(target.iterdir())) + 1  # every file, and the folder's own entries


@pytest.mark.parametrize("version", [1, CHECKPOINT_FORMAT + 1])
def test_a_checkpoint_of_another_format_is_refused(tmp_path, monkeypatch, version):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "CHECKPOINT_FORMAT", version)
        path = save(tmp_path, 1)
    with pytest.raises(UserError, match=f"checkpoint format {version}, .* formats 2 to {CHECKPOINT_FORMAT}"):
        checkpoint.load(path)


class Crash(Exception):
    pass


def crash_at(monkeypatch, call: tuple[object, str], number: int, cleans_up: bool) -> None:
    """Let one call of a function fail. Unlike an exception, a power cut leaves no time to clean up."""
    owner, name = call
    original, remaining = getattr(owner, name), [number]

    def crashing(*arguments, **options):
        remaining[0] -= 1
        if remaining[0] == 0:
            if not cleans_up:
                monkeypatch.setattr(shutil, "rmtree", lambda *arguments, **options: None)
            raise Crash
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, crashing)


@pytest.mark.parametrize("cleans_up", [True, False], ids=["exception", "power cut"])
@pytest.mark.parametrize(
    "call",
    [(os, "fsync"), (Path, "rename"), (Path, "write_bytes"), (Path, "write_text"), (Path, "mkdir")],
    ids=lambda call: call[1],
)
def test_a_crash_while_saving_leaves_the_newest_complete_checkpoint(tmp_path, monkeypatch, call, cleans_up):
    run, warnings = RunFolder(tmp_path), []
    before = files(save(run.checkpoints, 1))
    for number in range(1, 20):
        with monkeypatch.context() as patch:
            crash_at(patch, call, number, cleans_up)
            try:
                save(run.checkpoints, 2)
                break
            except Crash:
                pass
        newest = run.newest_checkpoint(warnings.append)
        assert newest.step in (1, 2)
        assert files(run.checkpoints / "step-00000001") == before
        assert not (cleans_up and list(run.checkpoints.glob("*.tmp")))
    assert number > 1
    assert run.newest_checkpoint(warnings.append).step == 2
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["step-00000001", "step-00000002"]
    assert warnings == []


NAMES = ["MANIFEST.json", "state.json", "model.safetensors", "method.safetensors"]


@pytest.mark.parametrize("name", NAMES)
def test_any_flipped_byte_is_noticed(tmp_path, name):
    path = save(tmp_path, 7)
    content = (path / name).read_bytes()
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1
        (path / name).write_bytes(flipped)
        with pytest.raises(DamagedCheckpoint):
            checkpoint.load(path)
    (path / name).write_bytes(content)
    assert checkpoint.load(path).step == 7


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_an_empty_and_a_missing_file_are_noticed(tmp_path, name):
    path = save(tmp_path, 7)
    content = (path / name).read_bytes()
    for part in (content[:-1], content[: len(content) // 2], b""):
        (path / name).write_bytes(part)
        with pytest.raises(DamagedCheckpoint):
            checkpoint.load(path)
    (path / name).unlink()
    with pytest.raises(DamagedCheckpoint):
        checkpoint.load(path)


def test_a_damaged_checkpoint_is_passed_over_with_a_warning_and_left_alone(tmp_path):
    run, warnings = RunFolder(tmp_path), []
    save(run.checkpoints, 1)
    damaged = save(run.checkpoints, 2)
    (damaged / "model.safetensors").write_bytes(b"")
    assert run.newest_checkpoint(warnings.append).step == 1
    assert len(warnings) == 1
    assert "step-00000002" in warnings[0]
    assert damaged.exists()


def test_without_an_undamaged_checkpoint_there_is_none(tmp_path):
    run, warnings = RunFolder(tmp_path), []
    assert run.newest_checkpoint(warnings.append) is None
    (save(run.checkpoints, 1) / "state.json").unlink()
    assert run.newest_checkpoint(warnings.append) is None
    assert len(warnings) == 1


def test_a_model_without_an_undamaged_checkpoint_cannot_be_packed(tmp_path):
    with pytest.raises(UserError, match="has no undamaged checkpoint; continue with: openworld train --resume"):
        PackedModel.of(RunFolder(tmp_path))
