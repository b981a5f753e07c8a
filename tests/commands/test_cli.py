import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from worlds import RUNTIME, flags_of_commands, run

from openworld.cli import make_parser
from openworld.commands.common import print_table
from openworld.commands.train import request_of
from openworld.data.benchmarks import read_benchmark
from openworld.planning.plan import open_problem, plan_run
from openworld.planning.settings import with_keys
from openworld.runs.folder import RunFolder

FROZEN_FLAGS = Path(__file__).parent / "flags.txt"
TINY = ["--steps", "4", "--epoch-steps", "2", "--batch-labelled", "8", "--batch-unlabelled", "16"]
TINY += ["--uncertainty-views", "2", "--device", "cpu", "--quiet"]


def resolved(*arguments: str):
    """Return the configuration of a run on a benchmark. Its files need not exist."""
    requested = with_keys(request_of(make_parser().parse_args(["train", *arguments])).settings)
    return plan_run(requested, open_problem(requested, RUNTIME), RUNTIME).config


@pytest.fixture
def one_line(capsys):
    """Return a function that reads the one-line error message on standard error."""

    def read() -> str:
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1, captured.err
        return captured.err.strip()

    return read


def test_help_answers_soon_and_without_torch():
    code = "import sys; from openworld.cli import main\ntry: main(['--help'])\nfinally: print('torch' in sys.modules)"
    fastest = float("inf")
    for _ in range(3):  # take the fastest: other tests run at the same time
        began = time.monotonic()
        output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        fastest = min(fastest, time.monotonic() - began)
    assert output.endswith("False\n")
    assert "train" in output
    assert "evaluate" in output
    assert fastest < 3


@pytest.mark.slow
def test_training_waits_for_no_library_that_only_draws_or_estimates():
    code = "import sys, openworld.planning.request\nprint({'matplotlib', 'scipy.stats', 'sklearn'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "set()\n"


def test_flags_are_frozen():
    """A new flag is a decision: write it into flags.txt. Those with a method's name follow from the others."""
    flags = [f"{name} {flag}" for name, flags in flags_of_commands().items() for flag in flags if "." not in flag]
    assert sorted(flags) == FROZEN_FLAGS.read_text().splitlines()


def test_a_terminal_that_knows_no_unicode_is_answered_all_the_same():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "openworld", "paper", "table1"]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert "cifar100, TRSSL" in answer.stdout
    assert "\\xb1" in answer.stdout  # a plus-minus


def test_a_table_breaks_long_names_and_no_number(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    path = "holidays/" * 12 + "1.png"
    print_table("t", ("image", "why", "a", "b"), [(path, "so " * 40, "68.4±0.4", "1,234,567")], texts=("why",))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(line.split(" ")[0] for line in lines[3:]) == path
    assert "68.4±0.4  1,234,567" in lines[3]


@pytest.mark.parametrize(
    "sections",
    [
        "[answers]\ntemperature = 0.3\n[trssl]\nepsilon = 0.2\n",
        "[trssl]\ntemperature = 0.3\nepsilon = 0.2\n",  # the format of files until format 2
    ],
)
def test_flags_win_over_the_file_which_wins_over_the_recipe(tmp_path, monkeypatch, sections):
    monkeypatch.setattr("openworld.planning.plan.open_dataset", lambda *_: read_benchmark("digits", Path("nowhere")))
    file = tmp_path / "settings.toml"
    file.write_text(f'recipe = "paper"\nseed = 5\n{sections}')
    assert resolved("cifar10", "--config", str(file)).answers.temperature == 0.3
    config = resolved("cifar10", "--config", str(file), "--temperature", "0.4")
    assert config.answers.temperature == 0.4
    assert config.options.epsilon == 0.2
    assert config.seed == 5
    assert config.training.network == "resnet18-cifar"
    assert config.recipe == "paper"
    assert resolved().training.network == "small"
    assert resolved("--no-mixup").options.mixup is False


@pytest.mark.parametrize("flag", ["--epsilon", "--trssl.epsilon"])
def test_a_flag_of_the_method_wins_over_the_file_too(flag):
    Path("settings.toml").write_text("[trssl]\nepsilon = 0.2\n")
    assert resolved("--config", "settings.toml").options.epsilon == 0.2
    assert resolved("--config", "settings.toml", flag, "0.3").options.epsilon == 0.3


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["train", "--temprature", "0.2"], "unknown argument --temprature; did you mean --temperature?"),
        (["train", "digist"], "did you mean digits?"),
        (["train", "--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["train", "--workers", "few"], "argument --workers: few is not a whole number"),
        (["train", "--network", "vgg"], "argument --network: vgg is not one of"),
        (["train", "--recipe", "fats"], "--recipe fats: no such recipe"),
        (["train", "--labelled", "0"], "--labelled is 0.0; it must be above 0"),
        (["train", "--novel", "90"], "--novel 90 leaves 1 of 10 classes seen; at least 2 are needed"),
        (["train", "--num-classes", "3"], "--num-classes 3 is fewer than the 5 seen classes"),
        (["train", "--batch-unlabelled", "5000"], "--batch-unlabelled 5000 is larger than the"),
        (["train", "--batch-labelled", "5000"], "--batch-labelled 5000 is larger than the"),
        (["train", "--prior", "nowhere.txt"], "--prior nowhere.txt: no such file"),
        (["train", "--config", "nowhere.toml"], "nowhere.toml: no such configuration file"),
        (["train", "--resume"], "--resume needs --out"),
        (["train", "--device", "cuda"], "use --device cpu"),
        (["train", "cifar10"], "is missing: run `openworld data fetch cifar10`"),
        (["evaluate", "nowhere"], "nowhere is not a run"),
        (["evaluate"], "the following arguments are required: RUN"),
        (["trian"], "did you mean train?"),
    ],
)
def test_a_mistake_is_answered_with_one_line_and_exit_code_2(arguments, answer, one_line, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENWORLD_DATA", str(tmp_path))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert run(*arguments) == 2
    assert answer in one_line()


@pytest.mark.parametrize(
    ("place", "arguments", "answer"),
    [
        ("openworld.training.learner.Learner.learn", ["train", *TINY], "memory: lower --batch-labelled"),
        ("openworld.runs.folder.RunFolder.open", ["predict", "r", "x.png"], "GPU has too little memory"),
    ],
)
def test_a_gpu_with_too_little_memory_is_told_of(place, arguments, answer, one_line, monkeypatch):
    def without_memory(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(place, without_memory)
    assert run(*arguments, "--device", "cpu") == 2
    assert answer in one_line()


def test_a_refused_run_leaves_no_folder_behind(one_line):
    assert run("train", "--novel", "90", "--out", "here") == 2
    one_line()
    assert not Path("here").exists()


def test_a_folder_that_is_not_a_run_is_left_alone(one_line):
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    assert run("train", *TINY, "--out", "mine") == 2
    assert "mine exists but is not a run" in one_line()
    assert [path.name for path in Path("mine").iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_a_run_is_not_overwritten_but_resumed(one_line, capsys):
    assert run("train", *TINY, "--out", "r", "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert run("train", *TINY, "--out", "r") == 2
    assert "add --resume" in one_line()
    assert run("train", "--resume", "--out", "r", "--seed", "1") == 2
    assert "started with seed = 0, not 1" in one_line()
    assert run("train", "--resume", "--out", "r", "--json", "--quiet") == 0
    assert json.loads(capsys.readouterr().out) == first
    assert run("train", "--resume", "--out", "r") == 0
    message = capsys.readouterr().err
    assert "r is already finished" in message
    assert message.endswith("openworld report r\n")


@pytest.mark.slow
def test_train_prints_a_table_and_leaves_the_run_folder_of_the_design(capsys):
    assert run("train", *TINY, "--out", "r") == 0
    output = capsys.readouterr().out
    assert "trssl" in output
    assert output.rstrip().endswith("run folder: r")
    names = {str(path.relative_to("r")) for path in Path("r").rglob("*") if path.is_file()}
    checkpoint = {f"{n}.safetensors" for n in ("model", "average", "optimizer", "method")}
    checkpoint |= {"state.json", "MANIFEST.json"}
    assert {"config.toml", "split.json", "environment.json", "metrics.jsonl"} <= names
    assert {"summary.json", "predictions.csv"} <= names
    assert {f"checkpoints/step-00000004/{name}" for name in checkpoint} <= names

    summary = RunFolder(Path("r")).summary()
    wanted = "seen novel all nmi ari protocol num_classes num_seen steps seconds seed dataset labelled novel_share"
    wanted += " imbalance prior method recipe switches device"
    assert set(wanted.split()) <= set(summary)
    assert (summary["num_classes"], summary["num_seen"], summary["steps"]) == (10, 5, 4)

    rows = Path("r/predictions.csv").read_text().splitlines()
    assert rows[0] == "index,split,prediction,confidence,uncertainty,runner_up"
    split = json.loads(Path("r/split.json").read_text())
    num_test = 1797 - len(split["labelled"]) - len(split["unlabelled"])
    assert len(rows) == 1 + len(split["unlabelled"]) + num_test
    assert sum(",test," in row for row in rows) == num_test


@pytest.mark.slow
def test_what_novel_accuracy_is_made_of_is_logged_for_student_and_average():
    assert run("train", *TINY, "--out", "r") == 0
    lines = RunFolder(Path("r")).metrics()
    assert [line["step"] for line in lines] == [2, 4]
    for line in lines:
        assert {"loss", "lr", "hard_share", "temperature", "marginal_error", "gradient_norm", "seconds"} <= set(line)
        for model in ("student", "average"):
            assert set(line[model]) == {"seen", "novel", "all", "novel_as_seen", "novel_only"}


@pytest.mark.slow
def test_switches_that_are_off_are_in_the_summary():
    assert run("train", *TINY, "--out", "r", "--no-mixup", "--no-cross-labels") == 0
    assert RunFolder(Path("r")).summary()["switches"] == ["cross_labels", "mixup"]


@pytest.mark.slow
def test_evaluate_repeats_the_result_of_training(capsys):
    assert run("train", *TINY, "--out", "r", "--json") == 0
    trained = json.loads(capsys.readouterr().out)
    assert run("evaluate", "r", "--json", "--device", "cpu") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["protocols"] == trained["protocols"]
    assert again["nmi"] == trained["nmi"]
    assert run("evaluate", "r", "--part", "unlabelled") == 0
    assert "unlabelled part, step 4" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_that_is_not_there_begins_and_says_so(capsys):
    loud = [flag for flag in TINY if flag != "--quiet"]
    assert run("train", *loud, "--resume", "--out", "r") == 0
    first_line = capsys.readouterr().err.splitlines()[0]
    assert "r contains no run" in first_line
    assert "digits" in first_line


def test_an_interrupted_preparation_has_begun_nothing(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("openworld.planning.prepare.plan_run", interrupted)
    assert run("train", *TINY, "--out", "r") == 130
    assert "interrupted; no step was saved yet" in capsys.readouterr().err
    assert not Path("r").exists()


@pytest.mark.slow
def test_without_a_gpu_a_large_network_is_warned_of(capsys):
    assert run("train", *TINY, "--network", "resnet18-cifar", "--steps", 1, "--out", "r") == 0
    assert "resnet18-cifar trains slowly on a CPU" in capsys.readouterr().err


@pytest.mark.slow
def test_a_class_with_one_labelled_image_is_trained_on_with_a_warning(capsys):
    assert run("train", *TINY, "--labelled", "0.5", "--out", "r") == 0
    assert "one labelled image for class 0, 1, 2, 3, 4" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "extra", [["--novel", "0"], ["--num-classes", "13"], ["--imbalance", "5"], ["--labelled", "100"]]
)
def test_other_problems_run(extra):
    assert run("train", *TINY, *extra, "--out", "r") == 0
    summary = RunFolder(Path("r")).summary()
    assert (summary["novel"] is None) == (extra == ["--novel", "0"])
