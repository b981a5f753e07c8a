"""benchmarks/relay.py: which files a relay carries, what starts again, and which input is refused."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import relay
import torch
from relay import pack, unpack
from worlds import RUNTIME, cosine_head, interrupted, run, trained, write_photos

from openworld.core.config import Config, Problem
from openworld.core.config_files import write_toml
from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.data.split import make_split
from openworld.nets.network import build_network
from openworld.ops.rng import generator
from openworld.paper.recording import result_of
from openworld.results.report import write_report
from openworld.runs import checkpoint
from openworld.runs.folder import RunFolder
from openworld.training.loop import train

pytestmark = pytest.mark.slow  # whole runs

TINY = replace(
    digits("digits"),
    {
        "steps": 9,
        "epoch_steps": 3,
        "batch_labelled": 8,
        "batch_unlabelled": 16,
        "uncertainty_views": 2,
        "method": "trssl+",
        "queue": 8,
        "uncertainty_from": 0.0,
    },
)
STEP = 5
"""In the middle of an epoch, because a signal may come at any time."""


def unexpected(message: str) -> None:
    raise AssertionError(message)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> RunFolder:
    """A stopped run. Tests must not change it."""
    return interrupted(str(tmp_path_factory.mktemp("runs") / "stopped"), TINY, STEP)


@pytest.fixture
def here(stopped) -> RunFolder:
    """A copy of the stopped run that a test may change."""
    return RunFolder(shutil.copytree(stopped.path, Path("here")))


def carried(source: RunFolder, name: str = "there") -> RunFolder:
    """Pack and unpack a run, and return the new run."""
    pack(source, Path(f"relay-{name}"), unexpected)
    unpack(Path(f"relay-{name}"), Path(name))
    return RunFolder(Path(name))


def newest(folder: RunFolder) -> checkpoint.Checkpoint:
    return folder.newest_checkpoint(unexpected)


def equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def many_pieces(monkeypatch):
    """Cut a small run into as many files as a large one."""
    monkeypatch.setattr(relay, "MAX_FILE_BYTES", 100_000)


def script(*arguments: object) -> None:
    relay.main([str(argument) for argument in arguments])


@pytest.fixture(name="refused")
def refused_fixture(capsys):
    """Return a function that runs the script with bad input and returns its error message."""

    def message(*arguments: object) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit, match=r"^relay: .+$") as stopped:
            script(*arguments)
        assert capsys.readouterr().out == ""
        return stopped.value.code

    return message


# What a relay carries --------------------------------------------------------------------------------------------


def test_student_method_and_step_travel_and_the_rest_begins_again(stopped, many_pieces):
    before, after = newest(stopped), newest(carried(stopped))
    assert len(list(Path("relay-there").iterdir())) > 3
    assert equal(after.tensors("model"), before.tensors("model"))
    assert equal(after.tensors("method"), before.tensors("method"))
    assert after.tensors("method")["queue"].any()
    assert after.tensors("method")["temperature_U"].unique().numel() > 1
    assert equal(after.tensors("average"), before.tensors("model"))
    assert not equal(before.tensors("average"), before.tensors("model"))
    assert before.tensors("optimizer") != {}
    assert after.tensors("optimizer") == {}
    assert after.step == before.step == STEP
    assert before.state["meter"]["count"] == 2
    assert after.state == {**before.state, "relayed": [STEP]}


def test_the_small_files_of_the_run_travel_as_they_are(here):
    here.write_json("names.json", {"novel-1": "seven"})
    here.write_json("estimate.json", {"num_classes": 10})
    there = carried(here)
    for name in ("config.toml", "split.json", "metrics.jsonl", "environment.json", "names.json", "estimate.json"):
        assert (there.path / name).read_bytes() == (here.path / name).read_bytes()
    assert there.metrics()[-1]["step"] == 3


def test_nothing_but_momentum_and_the_average_is_lost():
    """A run that uses neither gives the same bits with a relay as without."""
    config = replace(TINY, {"momentum": 0.0, "uncertainty": False})
    whole = newest(trained("whole", config))
    there = carried(interrupted("stopped", config, STEP))
    train(there.config(), there, RUNTIME)
    assert equal(newest(there).tensors("model"), whole.tensors("model"))
    assert equal(newest(there).tensors("method"), whole.tensors("method"))


def test_the_same_run_gives_the_same_bytes_at_any_time(stopped, monkeypatch):
    carried(stopped, "a")
    monkeypatch.setattr("time.time", lambda: 1e9)
    carried(stopped, "b")
    assert contents(Path("relay-a")) == contents(Path("relay-b"))
    assert contents(Path("a")) == contents(Path("b"))


# The run continues and says so ----------------------------------------------------------------------------------


def test_a_carried_run_finishes_and_names_every_relay(stopped, capsys):
    twice = carried(interrupted_again(carried(stopped), step=7), "twice")
    assert run("train", "--resume", "--out", twice.path, "--device", "cpu", "--quiet") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("relayed" in line and "5, 7" in line for line in lines)
    summary = twice.summary()
    assert (summary["relayed"], summary["steps"]) == ([5, 7], 9)
    assert newest(twice).state["relayed"] == [5, 7]
    assert [line["step"] for line in twice.metrics()] == [3, 6, 9]
    assert len(twice.read_json("environment.json")["sessions"]) == 3
    page = write_report([twice], None, RUNTIME, unexpected).read_text(encoding="utf-8")
    assert re.search("<dt>[^<]*relayed[^<]*</dt><dd>5, 7</dd>", page)


def interrupted_again(folder: RunFolder, step: int) -> RunFolder:
    return interrupted(str(folder.path), folder.config(), step)


def test_a_run_that_stayed_says_nothing_of_relays(here, capsys):
    assert run("train", "--resume", "--out", here.path, "--device", "cpu", "--quiet") == 0
    assert "relay" not in capsys.readouterr().out
    assert here.summary()["relayed"] == []


def test_a_checkpoint_from_before_there_were_relays_can_be_carried(here):
    saved = newest(here)
    state = {name: value for name, value in saved.state.items() if name != "relayed"}
    parts = {part: saved.tensors(part) for part in ("model", "average", "optimizer", "method")}
    checkpoint.save(here.checkpoints, STEP, parts, state)
    assert newest(carried(here)).state["relayed"] == [STEP]
    train(here.config(), here, RUNTIME)
    assert here.summary()["relayed"] == []


def test_the_start_of_a_run_is_not_needed_elsewhere():
    first = trained("first", replace(TINY, {"method": "simclr", "steps": 2, "epoch_steps": 2}))
    config = replace(TINY, {"start": str(first.path.absolute())})
    there = carried(interrupted("second", config, STEP))
    known = {**first.summary(), **first.evidence()}
    shutil.rmtree("first")
    shutil.rmtree("second")
    assert run("train", "--resume", "--out", there.path, "--device", "cpu", "--quiet") == 0
    assert there.summary()["start"] == config.training.start
    assert result_of(there)["start_run"] == known


def test_own_data_may_lie_elsewhere():
    photos = write_photos(Path("photos"))
    short = ("--steps", 4, "--epoch-steps", 2, "--batch-labelled", 4, "--batch-unlabelled", 8, "--image-size", 12)
    assert run("train", photos, *short, "--device", "cpu", "--quiet", "--out", "here") == 0
    shutil.rmtree("here/checkpoints/step-00000004")
    there = carried(RunFolder(Path("here")))
    photos.rename("moved")
    assert run("train", "moved", "--resume", "--out", there.path, "--device", "cpu", "--quiet") == 0
    assert there.summary()["relayed"] == [2]


def test_commands_say_what_they_did(stopped, capsys):
    script("pack", stopped.path, "relay")
    assert re.search(r"step 5 of 9\D.*\b2 files\b.*\b0\.3 MB\b.* relay\n", capsys.readouterr().out)
    script("unpack", "relay", "the run")
    line = capsys.readouterr().out
    assert "step 5 of 9" in line
    assert line.endswith("openworld train --resume --out 'the run'\n")


# Size -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> RunFolder:
    """A run as large as CIFAR-100 at full length, with weights that do not compress."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "large")
    config, labels = replace(Config(data="cifar100"), {"method": "trssl+", "queue": 2048}), np.arange(50_000) % 100
    split = make_split(labels, 100, Problem(), seed=0)
    statistics = torch.full((3,), 0.5), torch.ones(3)
    network = build_network("resnet18-cifar", (3, 32, 32), *statistics, cosine_head(100), generator(0, "weights"))
    method = {
        "prior": torch.rand(100),
        "temperature_U": torch.rand(47_500),
        "queue": torch.rand(2, config.options.queue, 100),
    }
    student = network.state_dict()
    parts = {"model": student, "average": student, "optimizer": dict(network.named_parameters()), "method": method}
    checkpoint.save(folder.checkpoints, 102_400, parts, {"meter": {"sums": {}, "count": 0}, "relayed": []})
    folder.write("config.toml", write_toml(config))
    folder.write("split.json", split.to_json())
    for step in range(1024, 102_401, 1024):
        folder.add_metrics({"step": step, **{f"score-{number}": np.sin(step + number) for number in range(30)}})
    return folder


def test_a_full_length_run_fits(large):
    there = carried(large)
    sizes = [path.stat().st_size for path in Path("relay-there").iterdir()]
    assert 40_000_000 < sum(sizes) <= 60_000_000
    assert max(sizes) <= 15_000_000
    assert len(sizes) <= 8
    assert equal(newest(there).tensors("model"), newest(large).tensors("model"))
    assert newest(there).tensors("model")["head.weight"].dtype == torch.float32


def test_what_does_not_fit_is_refused_with_how_much(stopped, monkeypatch, refused):
    pack(stopped, Path("fits"), unexpected)
    size = sum(path.stat().st_size for path in Path("fits").iterdir())
    monkeypatch.setattr(relay, "MAX_TOTAL_BYTES", size)
    pack(stopped, Path("fits just so"), unexpected)
    monkeypatch.setattr(relay, "MAX_TOTAL_BYTES", size - 120_000)
    assert "too large for a relay, 0.12 MB over the limit" in refused("pack", stopped.path, "relay")
    assert not Path("relay").exists()


# What is refused ------------------------------------------------------------------------------------------------


def test_nothing_that_was_there_is_touched(stopped, refused):
    pack(stopped, Path("relay"), unexpected)
    Path("file").write_text("mine")
    Path("folder").mkdir()
    Path("folder/file").write_text("mine")
    for target in ("file", "folder", "relay"):
        assert f"{target} is not an empty folder" in refused("pack", stopped.path, target)
    for target in ("file", "folder", stopped.path):
        assert f"{target} exists already" in refused("unpack", "relay", target)
    assert contents(Path("folder")) == {"file": b"mine"}
    assert Path("file").read_text() == "mine"


def test_an_empty_folder_will_do_for_a_relay_even_if_it_cannot_be_replaced(stopped):
    Path("given").mkdir()
    given = os.open("given", os.O_RDONLY)
    pack(stopped, Path("given"), unexpected)
    assert "relay.json" in os.listdir(given)
    os.close(given)
    unpack(Path("given"), Path("new/folder/there"))
    assert newest(RunFolder(Path("new/folder/there"))).step == STEP


def test_what_is_no_relay_is_refused(stopped, refused):
    for folder in ("nowhere", stopped.path, newest(stopped).path):
        assert f"{folder} is not a relay" in refused("unpack", folder, "there")
    assert not Path("there").exists()


def test_a_relay_of_another_format_is_refused(stopped, refused, monkeypatch):
    pack(stopped, Path("relay"), unexpected)
    monkeypatch.setattr(relay, "FORMAT", 2)
    assert re.search(r"format 1\.3\D.* 2\.2 and 2\.3\D", refused("unpack", "relay", "there"))
    monkeypatch.setattr(relay, "FORMAT", 1)
    monkeypatch.setattr(relay, "CHECKPOINT_FORMAT", 4)
    assert re.search(r"format 1\.3\D.* 1\.2 and 1\.4\D", refused("unpack", "relay", "there"))


def test_missing_and_damaged_pieces_are_named(stopped, many_pieces, refused):
    pack(stopped, Path("relay"), unexpected)
    pieces = sorted(Path("relay").glob("relay.zip.*"))
    for piece in pieces:
        content = piece.read_bytes()
        piece.unlink()
        assert re.search(rf"{piece.name}\D.* {len(pieces) + 1} files", refused("unpack", "relay", "there"))
        for changed in (content[:-1], b"", content[:-1] + bytes([content[-1] ^ 1])):
            piece.write_bytes(changed)
            assert f"{piece} is damaged: its sha256" in refused("unpack", "relay", "there")
        piece.write_bytes(content)
    assert not Path("there").exists()
    unpack(Path("relay"), Path("there"))


def test_a_changed_manifest_is_noticed(stopped, many_pieces, refused):
    pack(stopped, Path("relay"), unexpected)
    manifest = Path("relay/relay.json")
    content = manifest.read_text()
    known = json.loads(content)
    for changed in ("", content[:-10], "[]", "null", "{}", json.dumps({**known, "pieces": 3})):
        manifest.write_text(changed)
        assert "relay/relay.json is damaged; copy" in refused("unpack", "relay", "there")
    names = list(known["pieces"])
    for left in ([], names[:-1], names[1:], [names[0], *names[2:]], [names[1], names[0], *names[2:]]):
        manifest.write_text(json.dumps({**known, "pieces": {name: known["pieces"][name] for name in left}}))
        assert "relay/relay.json is damaged: its pieces" in refused("unpack", "relay", "there")
    assert not Path("there").exists()


def test_a_run_without_a_checkpoint_has_nothing_to_carry(here, refused):
    shutil.rmtree(here.checkpoints)
    assert f"{here.path} has no undamaged checkpoint" in refused("pack", here.path, "relay")
    assert "nowhere" in refused("pack", "nowhere", "relay")
    assert not Path("relay").exists()


@pytest.mark.parametrize("name", ["split.json", "config.toml"])
def test_a_damaged_run_is_not_packed(here, name, refused):
    (here.path / name).write_text("{")
    assert name in refused("pack", here.path, "relay")
    assert not Path("relay").exists()


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(here, capsys):
    (newest(here).path / "model.safetensors").write_bytes(b"")
    script("pack", here.path, "relay")
    captured = capsys.readouterr()
    assert captured.out.startswith("step 3 of 9")
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("warning: ")
    assert "step-00000005/model.safetensors" in captured.err


def test_a_finished_run_had_better_be_copied(here, capsys):
    train(here.config(), here, RUNTIME)
    script("pack", here.path, "relay")
    assert "here is finished" in capsys.readouterr().err
    unpack(Path("relay"), Path("there"))
    assert train(TINY, RunFolder(Path("there")), RUNTIME)["relayed"] == [9]


# Failures while writing -----------------------------------------------------------------------------------------


class DiskFull:
    """Raise an error as on a full disk when the file of this name is written."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, path: Path, content: bytes) -> None:
        if path.name == self.name:
            raise OSError(28, "No space left on device", str(path))
        path.write_bytes(content)


def test_a_relay_that_was_cut_short_is_none(stopped, monkeypatch, many_pieces, refused):
    monkeypatch.setattr(relay, "write_whole", DiskFull("relay.zip.2"))
    with pytest.raises(OSError, match=r"No space left on device: '.*relay\.zip\.2'"):
        pack(stopped, Path("relay"), unexpected)
    assert "relay is not a relay" in refused("unpack", "relay", "there")


def test_a_run_that_cannot_be_written_whole_is_not_left_in_parts(stopped, monkeypatch):
    pack(stopped, Path("relay"), unexpected)
    monkeypatch.setattr("openworld.runs.folder.write_whole", DiskFull("config.toml"))
    with pytest.raises(OSError, match=r"No space left on device: '.*config\.toml'"):
        unpack(Path("relay"), Path("there"))
    assert not Path("there").exists()
