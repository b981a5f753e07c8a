"""Old runs stay readable: samples of every format, made by the version that wrote it (tests/formats/make.py)."""

import csv
import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
import relay
import torch
from safetensors.torch import load_file
from worlds import run

from openworld import OpenWorldClassifier
from openworld.cli import make_parser
from openworld.commands.train import request_of
from openworld.core.config import Config
from openworld.core.config_files import restored_config, write_toml
from openworld.core.errors import UserError
from openworld.core.fields import flatten, options
from openworld.core.formats import CHECKPOINT_FORMAT, CHECKPOINT_UPGRADES, CONFIG_UPGRADES, FORMAT
from openworld.data.benchmarks import read_benchmark
from openworld.methods import METHODS
from openworld.planning.settings import resolve_settings, with_keys
from openworld.results.export import load_exported
from openworld.runs.folder import RunFolder, warn_about_dropped

SAMPLES = Path(__file__).parents[1] / "formats"
FORMATS = sorted(path.name for path in SAMPLES.iterdir() if path.is_dir() and path.name.isdigit())
KEYS = SAMPLES / "keys.json"


@pytest.fixture(params=FORMATS)
def sample(request, tmp_path) -> Path:
    """A copy of the sample runs of one format."""
    shutil.copytree(SAMPLES / request.param, tmp_path / "sample")
    return tmp_path / "sample"


def test_there_is_a_sample_of_every_format():
    assert list(map(int, FORMATS)) == list(range(1, FORMAT + 1))
    assert set(CONFIG_UPGRADES) == set(range(1, FORMAT))
    assert set(CHECKPOINT_UPGRADES) == set(range(2, CHECKPOINT_FORMAT))  # before the second, nothing was released


def test_a_setting_that_is_added_or_dropped_makes_a_new_format():
    """tests/formats/keys.json lists the keys of a configuration in the current format.

    Add the keys of a new method there. For any other change, first make samples of the old format (formats/make.py),
    then raise FORMAT and say in formats.py what the old format was.
    """
    keys = sorted(option.key for option in options(*METHODS))
    assert json.loads(KEYS.read_text()) == {"format": FORMAT, "keys": keys}


@pytest.mark.slow
def test_a_finished_run_is_evaluated_asked_named_reported_and_exported(sample, capsys):
    folder = sample / "finished"
    assert run("evaluate", folder, "--json") == 0
    assert json.loads(capsys.readouterr().out)["protocols"] == RunFolder(folder).summary()["protocols"]
    np.savez("new.npz", images=read_benchmark("digits", Path("nowhere")).test.content[:50])
    assert run("predict", folder, "new.npz", "--out", "new.csv", "--quiet") == 0
    said = list(csv.DictReader((folder / "predictions.csv").read_text().splitlines()))
    said = [row for row in said if row["split"] == "test"][:50]
    new = list(csv.DictReader(Path("new.csv").read_text().splitlines()))
    assert [row["prediction"] for row in new] == [row["prediction"] for row in said]
    assert [float(row["confidence"]) for row in new] == pytest.approx(
        [float(row["confidence"]) for row in said], abs=2e-4
    )
    assert {row["prediction"] for row in new} & {"seven or so"}
    assert run("name", folder, "novel-1=four or so") == 0
    assert "four or so" in (folder / "predictions.csv").read_text()
    assert run("report", folder, "--quiet") == 0
    assert "four or so" in (folder / "report.html").read_text()
    assert run("export", folder, "m.onnx", "m.safetensors", "m.md") == 0
    relay.main(["pack", str(folder), "relay"])
    relay.main(["unpack", "relay", "carried"])
    assert run("evaluate", "carried", "--json") == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stopped", "requested"])
def test_a_stopped_run_goes_on_as_it_would_have_then(sample, name):
    """This holds too for a run that was stopped while it learnt its features."""
    folder, expected = RunFolder(sample / name), json.loads((sample / "expected.json").read_text())[name]
    assert run("train", "--resume", "--out", folder.path, "--quiet", "--device", "cpu") == 0
    average = load_file(folder.checkpoints / f"step-{expected['summary']['steps']:08d}" / "average.safetensors")
    norms = {name: float(value.double().norm()) for name, value in average.items() if value.is_floating_point()}
    assert norms == pytest.approx(expected["norms"], rel=1e-3)
    summary = folder.summary()
    assert {name: summary[name] for name in expected["summary"]} == pytest.approx(expected["summary"], abs=2)
    assert tomllib.loads((folder.path / "config.toml").read_text())["format"] == FORMAT


def test_exported_weights_answer(sample):
    model = load_exported(sample / "exported.safetensors")
    shares = model.probabilities(torch.randint(256, (3, *model.sample_shape), dtype=torch.uint8))
    assert shares.sum(dim=1).tolist() == pytest.approx([1, 1, 1])
    assert "seven or so" in model.classes.names


@pytest.mark.slow
def test_a_configuration_of_the_first_format_may_be_given_to_a_new_run():
    """The file may be complete or hand-written. A setting that moved to another method selects that method."""
    config = SAMPLES / "1" / "finished" / "config.toml"
    sizes = ["--steps", 1, "--start-steps", 1, "--quiet"]
    assert run("train", "--config", config, "--out", "r", *sizes) == 0
    assert RunFolder(Path("r")).config().method == "trssl+"
    Path("mine.toml").write_text("[trssl]\ntemperature = 0.2\nthreshold = 0.6\n")
    assert run("train", "--config", "mine.toml", "--out", "s", "--steps", 1, "--quiet") == 0
    config = RunFolder(Path("s")).config()
    assert (config.method, config.answers.temperature, config.options.threshold) == ("trssl", 0.2, 0.6)


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("[trssl]\ntemperature = 0.2\n[simclr]\nprojection = 64", "--start simclr", {"simclr.projection": 64}),
        ("[trssl]\ntemperature = 0.2\n[simclr]\nprojection = 64", "--method simclr", {"simclr.projection": 64}),
        ('recipe = "fast"\n[trssl]\nepsilon = 0.06\nqueue = 16', "", {"trssl+.epsilon": 0.06, "trssl+.queue": 16}),
        ('recipe = "fast"\nmethod = "trssl"\n[trssl]\nepsilon = 0.06\ntemperature = 0.2', "", {"trssl+.epsilon": 0.06}),
        ("[trssl]\nepsilon = 0.06\ntemperature = 0.2", "--recipe fast", {"trssl+.epsilon": 0.06, "temperature": 0.2}),
        ("[trssl]\nqueue_from = 0.3", "--queue 64", {"trssl+.queue_from": 0.3, "trssl+.queue": 64}),
        (
            "[answers]\nuncertainty_views = 3\n[trssl]\ntemperature = 0.2",
            "",
            {"uncertainty_views": 3, "temperature": 0.2},
        ),
        ("[trssl]\nepsilon = 0.06\n", "--epsilon 0.07 --trssl.epsilon 0.08", {"trssl.epsilon": 0.08}),
        ("[trssl]\nepsilon = 0.06\n", "--recipe fast", {"trssl+.epsilon": 0.06}),
    ],
)
def test_what_a_person_wrote_in_the_first_format_still_holds(text, flags, expected):
    Path("mine.toml").write_text(text)
    parsed = make_parser().parse_args(["train", "--config", "mine.toml", *flags.split()])
    dataset = read_benchmark("digits", Path("nowhere"))
    config = flatten(resolve_settings(with_keys(request_of(parsed).settings), dataset, torch.device("cpu")))
    assert {name: config[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("requested", "method"),
    [
        ({"start": "simclr", "queue": 32}, "trssl+"),
        ({"recipe": "pretrained", "method": "trssl"}, "trssl+"),
        ({"recipe": "pretrained", "strong_views": False, "threshold": 0.6}, "trssl+"),
        ({"start": "simclr", "method": "trssl", "threshold": 0.6}, "trssl"),
    ],
)
def test_what_was_asked_for_in_the_first_format_is_understood(requested, method):
    """The request is that of a run that was stopped while it learnt its features."""
    Path("request.json").write_text(json.dumps({"asked": requested, "minutes": None}))
    now = with_keys(RunFolder(Path()).request()["requested"])
    assert resolve_settings(now, read_benchmark("digits", Path("nowhere")), torch.device("cpu")).method == method


def test_the_flags_that_began_a_run_of_the_first_format_still_resume_it(tmp_path):
    shutil.copytree(SAMPLES / "1" / "finished", tmp_path / "r")
    assert run("train", "--resume", "--out", "r", "--method", "trssl", "--recipe", "pretrained", "--queue", 64) == 0


def test_an_estimator_that_was_pickled_in_the_first_format_answers(tmp_path):
    """In that format the pickle holds the texts and weights of its run, by file name."""
    shutil.copytree(SAMPLES / "1" / "finished", tmp_path / "r")
    (last,) = (tmp_path / "r" / "checkpoints").iterdir()
    texts = {name: (tmp_path / "r" / name).read_text() for name in ("config.toml", "split.json")}
    packed = {**texts, "average": (last / "average.safetensors").read_bytes()}
    model = OpenWorldClassifier(device="cpu")
    model.__setstate__(
        {**model.__getstate__(), "_packed_": packed, "summary_": {"steps": 8}, "classes_": np.arange(10)}
    )
    images = read_benchmark("digits", Path("nowhere")).test.content[:5]
    assert model.predict(images).shape == (5,)


def test_what_was_dropped_since_is_named_in_one_line_and_ignored(sample, capsys):
    path = sample / "finished" / "config.toml"
    path.write_text(path.read_text().replace("[training]", "[training]\nspeed = 3\n") + "\n[gone]\nold = 1\n")
    warn_about_dropped.cache_clear()
    assert run("evaluate", sample / "finished", "--json") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: ")
    assert str(path) in line
    assert "ignoring training.speed, gone.old" in line


def test_what_a_later_version_made_is_refused(sample, refused):
    path = sample / "stopped" / "config.toml"
    text = path.read_text()
    path.write_text("format = 99\n" + "".join(line for line in text.splitlines(True) if "format" not in line))
    message = refused("evaluate", sample / "stopped")
    assert f"config.toml has format 99, but this openworld reads up to {FORMAT}" in message
    path.write_text(text)
    (checkpoint,) = (sample / "stopped" / "checkpoints").iterdir()
    state = json.loads((checkpoint / "state.json").read_text())
    (checkpoint / "state.json").write_text(json.dumps({**state, "format_version": 99}))
    (checkpoint / "MANIFEST.json").write_text("{}")
    message = refused("evaluate", sample / "stopped")
    assert "has checkpoint format 99" in message
    assert f"reads formats 2 to {CHECKPOINT_FORMAT}" in message


@pytest.mark.parametrize("content", ["", "data = 3", "format = 'x'", "format = 0", "method = 'trssl'", "trssl = 1"])
def test_a_damaged_configuration_is_refused_in_one_line(sample, refused, content):
    (sample / "stopped" / "config.toml").write_text(content)
    assert "config.toml" in refused("evaluate", sample / "stopped")


def test_nothing_may_be_missing_in_a_whole_configuration():
    text = write_toml(Config())
    for line in text.splitlines():
        if "=" in line and "format" not in line and "method" not in line:
            with pytest.raises(UserError, match=f"config.toml is damaged: .* {line.split(' ')[0]}$"):
                restored_config(tomllib.loads(text.replace(f"{line}\n", "")), "config.toml")
