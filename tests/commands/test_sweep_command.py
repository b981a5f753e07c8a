"""The command `openworld sweep`, and what it shows while it runs."""

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from worlds import run

from openworld.commands.watching import ROWS_SHOWN, Watch
from openworld.core.signals import Interrupted
from openworld.planning.sweep import Outcome, Trial
from openworld.runs.folder import RunFolder
from openworld.training.learner import Learner

SHORT = ("digits", "--steps", 4, "--epoch-steps", 2, "--batch-labelled", 8, "--batch-unlabelled", 16)


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.slow
def test_a_sweep_is_trained_shown_and_written(capsys):
    flags = ("sweep", *SHORT, "--vary", "epsilon=0.05,0.1", "--seeds", 2)
    assert run(*flags) == 0
    captured = capsys.readouterr()
    folder = Path("runs/sweep-digits-epsilon-seed")
    assert [line[:3] for line in captured.err.splitlines()] == ["1/4", "2/4", "3/4", "4/4"]
    runs, table = rows_of(folder / "runs.csv"), rows_of(folder / "table.csv")
    assert [(row["epsilon"], row["seed"]) for row in runs] == [("0.05", "0"), ("0.05", "1"), ("0.1", "0"), ("0.1", "1")]
    for row in runs:
        summary = RunFolder(folder / f"epsilon-{row['epsilon']}-seed-{row['seed']}").summary()
        assert float(row["all"]) == summary["all"]
    first, second = (float(row["all"]) for row in runs[:2])
    assert float(table[0]["all"]) == pytest.approx((first + second) / 2)
    assert float(table[0]["all_std"]) == pytest.approx(abs(first - second) / 2**0.5)
    assert f"{float(table[0]['all']):.1f}±{float(table[0]['all_std']):.1f}" in captured.out
    assert {"plot.png", "plot.svg"} <= {path.name for path in folder.iterdir()}
    assert run(*flags, "--json") == 0  # the same command again trains nothing
    groups = json.loads(capsys.readouterr().out)
    assert [group["epsilon"] for group in groups] == [0.05, 0.1]
    assert groups[0]["all"]["mean"] == pytest.approx((first + second) / 2)
    assert groups[0]["seeds"] == [0, 1]


@pytest.mark.slow
def test_a_run_that_fails_is_named_after_the_others_are_shown(capsys):
    Path("prior.txt").write_text("0.5 0.5")
    assert run("sweep", *SHORT, "--vary", "prior=prior.txt,even", "--out", "s") == 2
    captured = capsys.readouterr()
    assert "even" in captured.out
    assert captured.err.splitlines()[-1].startswith("openworld: 1 of 2 runs failed; the first is prior-prior.txt: ")
    assert "2 numbers for 10 classes" in captured.err


@pytest.mark.slow
def test_a_stop_says_how_to_go_on(monkeypatch, capsys):
    def stop(learner: Learner) -> None:
        raise Interrupted(2, "stopped at step 0")

    monkeypatch.setattr(Learner, "learn", stop)
    assert run("sweep", *SHORT, "--seeds", 2, "--out", "s") == 130
    assert capsys.readouterr().err.splitlines()[-1] == (
        "openworld: stopped at step 0; the same command continues, and skips the runs that are finished"
    )


@pytest.mark.parametrize(
    ("flags", "answer"),
    [
        ([], "there is nothing to vary; add --vary NAME=VALUE,VALUE or --seeds N"),
        (["--seeds", 1], "there is nothing to vary"),
        (["--seeds", 0], "--seeds is 0; it must be 1 or more"),
        (["--seeds", 2, "--seed", 1], "--seeds and another setting both choose the seeds"),
        (["--seeds", 2, "--vary", "seed=1,2"], "--seeds and another setting both choose the seeds"),
        (["--vary", "epsilonn=0.1,0.2"], "epsilonn: no such setting; did you mean epsilon?"),
        (["--vary", "lr=0.1,0.2", "--lr", 0.3], "--lr and --vary lr both set lr; leave one out"),
        (["--vary", "lr=0.1,0.2", "--vary", "lr=0.3"], "--vary names the same setting twice"),
        (["--vary", "lr=0.1,-1"], "lr is -1.0; it must be above 0"),
        (["--vary", "imbalance=1,0.5"], "imbalance is 0.5; it must be 1 or more"),
        (["--vary", "method=trssl,orcaa"], "it must be one of trssl, trssl+, simclr"),
    ],
)
def test_bad_input_is_answered_in_one_line(flags, answer, refused):
    assert answer in refused("sweep", "digits", *flags)
    assert not Path("runs").exists()


def test_missing_data_is_told_before_anything_is_trained(refused):
    assert "no such folder" in refused("sweep", "nowhere/at-all", "--seeds", 2)


def test_the_live_table_reads_the_folders(tmp_path):
    trials = [Trial(f"run-{number}", {}) for number in range(40)]
    watch = Watch(trials, quiet=False)
    for trial in trials[:20]:
        scores = {"seen": 50.0, "novel": 40.0, "all": 45.0, "seconds": 90.0}
        watch.begin(trial, RunFolder(tmp_path / trial.name))
        watch.end(Outcome(trial, RunFolder(tmp_path / trial.name), scores))
    watch.end(Outcome(trials[20], RunFolder(tmp_path), None, "the loss is not finite"))
    current = RunFolder(tmp_path / "current")
    watch.begin(trials[21], current)
    assert watch.cells(trials[21])[1] == "preparing"
    current.path.mkdir()
    current.write("config.toml", "")
    current.add_metrics({"step": 1500, "average": {"seen": 61.0, "novel": None, "all": 30.0}})
    assert watch.cells(trials[21]) == ("run-21", "step 1,500", "61.0", "-", "30.0")
    console = Console(file=io.StringIO(), width=80)
    console.print(watch.table())
    text = console.file.getvalue()
    assert "failed: the loss is not finite" in text
    assert "21 of 40 runs finished" in text
    assert "run-21" in text
    assert sum("run-" in line for line in text.splitlines()) == ROWS_SHOWN
