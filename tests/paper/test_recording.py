"""From a run folder to a file under benchmarks/results/tables."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from test_paper_tables import a_result, script

from openworld.runs.folder import RunFolder


def a_run(path: str, **fields) -> Path:
    """Write the files of a finished run that record.py reads, and return the folder."""
    result = a_result(**fields)
    folder = RunFolder(Path(path))
    folder.path.mkdir(parents=True)
    folder.write("config.toml", result.pop("config"))
    sessions = [{"command": ["openworld", "train", "it's"]}, {"command": ["openworld", "train", "--resume"]}]
    folder.write_json("environment.json", {"sessions": sessions})
    folder.add_metrics({"step": result["steps"]})
    result.pop("total_seconds")
    folder.write_json("summary.json", result)
    return folder.path


@pytest.fixture
def record(monkeypatch, tmp_path):
    """Return a function that runs record.py, which writes into records/."""
    monkeypatch.setenv("COMMIT", "abc")
    module = script("record", monkeypatch)

    def main(*runs: Path) -> int | None:
        monkeypatch.setattr(sys, "argv", ["record.py", *map(str, runs), "--results", "records"])
        try:
            return module.main()
        except SystemExit as stopped:
            return stopped.code

    return main


def test_time_and_evidence_of_its_features_belong_to_a_run(record):
    run_path = a_run("r", recipe="paper", start="r/simclr")
    features = a_run("r/simclr", recipe="simclr", seconds=150.5)
    RunFolder(run_path).record_start(RunFolder(features))
    evidence = RunFolder(features).evidence()
    shutil.rmtree(features)  # the run does not need it any more
    assert record(run_path) is None
    result = json.loads(Path("records/cifar100-10-paper-40000-40000-seed0.json").read_text())
    assert (result["seconds"], result["total_seconds"]) == (600.0, 750.5)
    assert result["start_run"]["seconds"] == 150.5
    assert evidence["epochs"] == [{"step": 40000}]
    assert evidence.items() <= result["start_run"].items()
    assert result["command"] == ["openworld train 'it'\"'\"'s'", "openworld train --resume"]


def test_a_start_that_is_not_finished_is_not_recorded(record):
    run_path = a_run("r", start="other")
    (a_run("other") / "summary.json").unlink()
    RunFolder(run_path).record_start(RunFolder(Path("other")))
    assert record(run_path) is None
    assert "start_run" not in json.loads(Path("records/cifar100-10-paper-40000-seed0.json").read_text())


@pytest.mark.parametrize(
    ("spoil", "answer"),
    [
        (lambda path: (path / "summary.json").unlink(), "openworld train --resume"),
        (lambda path: (path / "environment.json").unlink(), "environment.json is missing"),
        (lambda path: (path / "config.toml").unlink(), "it has no config.toml"),
    ],
)
def test_what_cannot_be_recorded_stops_all(record, spoil, answer, capsys):
    sound, spoilt = a_run("sound", seed=1), a_run("spoilt")
    spoil(spoilt)
    assert record(sound, spoilt) == 2
    assert answer in capsys.readouterr().err
    assert not Path("records").exists()


def test_nothing_is_replaced(record, capsys):
    first, second = a_run("first"), a_run("second", all=99.0)
    assert record(first, second) == 2
    assert not Path("records").exists()
    assert record(first) is None
    before = Path("records/cifar100-10-paper-40000-seed0.json").read_bytes()
    assert record(second) == 2
    assert "cifar100-10-paper-40000-seed0.json exists already" in capsys.readouterr().err
    assert Path("records/cifar100-10-paper-40000-seed0.json").read_bytes() == before


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"novel_share": 30.0}, "recorded, in novel-share"),
        ({"labelled": 7.0}, "recorded, but in no item; not in table1: labelled is 7.0, not 10.0"),
        ({"labelled": 50.0}, "recorded, in labels50"),
        ({}, "recorded, in table1, ablation, sensitivity, novel-share, temperature, confusion"),
    ],
)
def test_the_recorder_says_where_a_result_belongs(record, fields, place, capsys):
    assert record(a_run("r", **fields)) is None
    assert capsys.readouterr().out.rstrip().endswith(f".json: {place}")


def test_own_data_is_in_no_table(record, capsys):
    assert record(a_run("r", dataset="/home/me/photos")) == 2
    assert "/home/me/photos is not a benchmark" in capsys.readouterr().err
