"""A row of the paper's tables: train it with one command, record it, and show it."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from paper_results import ours, results_fixture, script  # noqa: F401
from small_cifar import write, write_cifar
from worlds import run

from openworld.cli import make_parser
from openworld.commands.train import settings_of
from openworld.core.config import Answers, Config, Problem, Training
from openworld.core.errors import UserError
from openworld.core.recipes import RECIPES, recipe_for
from openworld.paper import ITEMS
from openworld.paper.recording import result_of
from openworld.paper.running import command_of, trials_of
from openworld.planning import sweep
from openworld.results.scores import PARTS
from openworld.runs.folder import RunFolder


@pytest.mark.parametrize(
    ("row", "name", "command"),
    [
        (("table1", "cifar10", "paper", 0, None), "table1-cifar10-paper-seed0", "cifar10 --labelled 10 --recipe paper"),
        (
            ("labels50", "cifar100", "paper", 0, None),
            "labels50-cifar100-paper-seed0",
            "cifar100 --labelled 50 --recipe paper --temperature 0.2",
        ),
        (
            ("labels50", "cifar10", "simclr", 0, None),
            "labels50-cifar10-simclr-seed0",
            "cifar10 --labelled 50 --recipe simclr",
        ),
        (
            ("labels50", "tiny-imagenet", "paper", 3, 20),
            "labels50-tiny-imagenet-paper-seed3-20-steps",
            "tiny-imagenet --labelled 50 --recipe paper --steps 20 --epoch-steps 2",
        ),
    ],
)
def test_a_row_is_trained_as_the_train_command_does_it(row, name, command, capsys):
    name_of_item, data, recipe, seed, steps = row
    item = ITEMS[name_of_item]
    (trial,) = trials_of(name_of_item, item, [item.row(data)], recipe, [seed], steps)
    assert trial.name == name
    words, told = command.split(), command_of(trial, Path("here")).split()
    assert sorted(told) == sorted(
        ["openworld", "train", *words, "--seed", str(seed), "--out", f"here/{name}", "--resume"]
    )
    typed = make_parser().parse_args(told[1:])  # typing the printed command requests the same
    assert (typed.out, settings_of(typed)) == (Path("here") / name, trial.settings)


def test_by_default_the_recipe_is_the_one_that_train_takes():
    recipe, item = recipe_for("auto", "imagenet100", is_benchmark=True, method="trssl"), ITEMS["table1"]
    (trial,) = trials_of("table1", item, [item.row("imagenet100")], "auto", [0])
    assert trial.settings == {"data": "imagenet100", "labelled": 10.0, "recipe": recipe, "seed": 0}
    assert trial.name == f"table1-imagenet100-{recipe}-seed0"


def test_the_ablation_is_of_the_printed_method():
    item = ITEMS["ablation"]
    (trial,) = trials_of("ablation", item, [item.row("cifar100-neither")], "auto", [0])
    assert trial.settings["recipe"] == "paper"
    assert (trial.settings["uncertainty"], trial.settings["mixed_labels"]) == (False, False)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["table1", "--run", "cifar"], "cifar10, cifar100, imagenet100"),
        (["labels50", "--run", "imagenet100"], "cifar10, cifar100, tiny-imagenet"),
        (["estimation", "--run", "cifar"], "no such row of estimation (choose from cifar10,"),
        (["estimation", "--run", "digits", "--recipe", "fast"], "--recipe"),
        (["--run", "cifar10"], "openworld paper table1 --run cifar10"),
        (["--run"], "openworld paper table1 --run cifar10"),
        (["table1", "--seeds", 2], "--seeds works only with --run"),
        (["table1", "--run", "cifar10", "--seeds", 2, "--seed", 1], "--seeds"),
        (["table1", "--run", "cifar10", "--seeds", 0], "--seeds is 0; it must be 1 or more"),
        (["table1", "--run", "--scale", "small", "--recipe", "fast"], "--recipe does not work with the small scale"),
        (["table1", "--scale", "smal"], "did you mean small?"),
        (["ablation", "--run", "cifar100-both", "--recipe", "fast"], "--recipe does not work with ablation, whose"),
        (["estimation", "--run", "cifar10", "--scale", "small"], "no such row of estimation at small scale"),
        (["table1", "--seed", 0], "--seed works only with --run"),
        (["table1", "--steps", 5], "--steps works only with --run"),
        (["table1", "--data-dir", "x"], "--data-dir works only with --run"),
        (["--recipe", "paper"], "--recipe works only with --run"),
        (["table1", "--run", "cifar10", "--recipe", "papr"], "--recipe papr: no such recipe; did you mean paper?"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_line(arguments, answer, refused):
    assert answer in refused("paper", *arguments)
    assert not Path("runs").exists()


def test_a_row_looks_for_its_data_where_it_is_told_to(capsys):
    assert run("paper", "table1", "--run", "cifar10", "--data-dir", "elsewhere") == 2
    assert "elsewhere/cifar-10-batches-bin" in capsys.readouterr().err


def test_missing_data_is_the_train_commands_to_tell(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("OPENWORLD_DATA", str(tmp_path))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert run("paper", "table1", "--run", "cifar10") == 2
    command, error = capsys.readouterr().err.splitlines()
    assert command.startswith("openworld train cifar10 ")
    assert "is missing: run `openworld data fetch cifar10`" in error


SMALL_ROW = ("paper", "table1", "--run", "cifar10", "--recipe", "paper")


def small(data: str) -> Config:
    """Return a recipe that a CPU trains in no time, in place of the paper's."""
    training = Training(network="small-32", steps=4, epoch_steps=2, batch_labelled=8, batch_unlabelled=16)
    return Config(data=data, problem=Problem(), training=training, answers=Answers(uncertainty_views=2))


@pytest.fixture
def small_rows(tmp_path, monkeypatch):
    """Write a CIFAR-10 of noise that is small enough to train a row."""
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    write(folder / "batches.meta.txt", "".join(f"class {number}\n" for number in range(10)))
    batches = {f"data_batch_{number}": [(label,) for label in range(10)] * 4 for number in range(1, 6)}
    write_cifar(folder, monkeypatch, **batches, test_batch=[(label,) for label in range(10)] * 2)
    monkeypatch.setenv("OPENWORLD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setitem(RECIPES, "paper", small)


@pytest.mark.slow
def test_a_row_is_trained_shown_recorded_and_in_the_table(small_rows, results, capsys, monkeypatch):
    assert run(*SMALL_ROW, "--seed", 1, "--json") == 0
    captured = capsys.readouterr()
    rows = json.loads(captured.out)["rows"]
    summary = RunFolder(Path("runs/paper/table1-cifar10-paper-seed1")).summary()
    assert [row[0] for row in rows[-2:]] == [
        "cifar10, TRSSL (paper)",
        "cifar10, paper, 4 steps: this run",
    ]
    scores = [{"mean": summary[part], "std": None} for part in PARTS]
    assert rows[-1][1:6] == [*scores, pytest.approx(summary["all"] - 92.2, abs=0.06), [1]]
    assert "1/1 table1-cifar10-paper-seed1 " in captured.err
    assert "slowly on a CPU" not in captured.err

    monkeypatch.setenv("COMMIT", "abc")
    record = script("record", monkeypatch)
    folder = results()
    monkeypatch.setattr(sys, "argv", ["record.py", "runs/paper/table1-cifar10-paper-seed1", "--results", str(folder)])
    record.main()
    assert capsys.readouterr().out == f"{folder}/cifar10-10-paper-4-seed1.json: recorded, in table1, ablation\n"
    assert [row[0] for row in ours(data="cifar10")] == ["cifar10, paper, 4 steps"]
    result = json.loads((folder / "cifar10-10-paper-4-seed1.json").read_text())
    assert summary.items() <= result.items()
    assert (result["commit"], result["total_seconds"]) == ("abc", summary["seconds"])
    assert [line["step"] for line in result["epochs"]] == [2, 4]
    assert len(result["command"]) == len(result["environment"]) == 1
    assert "start_run" not in result


@pytest.mark.slow
def test_a_row_that_was_stopped_goes_on_and_a_finished_one_is_shown(small_rows, results, capsys):
    assert run(*SMALL_ROW) == 0
    first = capsys.readouterr().out
    folder = Path("runs/paper/table1-cifar10-paper-seed0")
    shutil.rmtree(folder / "checkpoints" / "step-00000004")
    (folder / "summary.json").unlink()
    assert run(*SMALL_ROW) == 0
    again = capsys.readouterr().out
    assert len(result_of(RunFolder(folder))["command"]) == 2
    assert run(*SMALL_ROW) == 0
    assert capsys.readouterr().out == again
    assert len(result_of(RunFolder(folder))["command"]) == 2
    assert first.splitlines()[:6] == again.splitlines()[:6]  # the scores; only the minutes may differ


@pytest.mark.slow
def test_a_short_try_does_not_stand_in_the_full_runs_place(small_rows, results, capsys):
    assert run(*SMALL_ROW, "--steps", 1) == 0
    assert run(*SMALL_ROW) == 0
    assert {path.name for path in Path("runs/paper").iterdir()} == {
        "table1-cifar10-paper-seed0",
        "table1-cifar10-paper-seed0-1-steps",
    }


@pytest.mark.slow
def test_a_row_that_fails_is_told_after_the_others_are_shown(small_rows, monkeypatch, capsys):
    train_one = sweep.train_one

    def fail_for_one(trial, *arguments):
        if trial.settings["seed"] == 0:
            raise UserError("the loss is not finite")
        return train_one(trial, *arguments)

    monkeypatch.setattr(sweep, "train_one", fail_for_one)
    assert run(*SMALL_ROW, "--seeds", 2) == 2
    captured = capsys.readouterr()
    assert "this run" in captured.out
    assert captured.err.splitlines()[-1] == (
        "openworld: 1 of 2 runs failed; the first is table1-cifar10-paper-seed0: the loss is not finite"
    )
