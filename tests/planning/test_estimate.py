"""The estimate of the number of classes: from the command line, from Python, and as the first stage of a run."""

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from feature_files import blobs, write_blobs
from PIL import Image
from worlds import last_checkpoint, run, stopped, trained, write_photos

import openworld
from openworld.core.errors import UserError
from openworld.core.fields import replace
from openworld.core.recipes import simclr
from openworld.ops.rng import generator
from openworld.planning import estimate as module
from openworld.planning.estimate import comparable, judge, standardised
from openworld.runs.folder import RunFolder
from openworld.training.learner import Learner

HERE = ["--device", "cpu", "--workers", "0", "--quiet"]
TINY = ["--steps", "4", "--epoch-steps", "2", "--uncertainty-views", "2", *HERE]
FEATURES = replace(
    simclr("digits"),
    {"recipe": "simclr", "steps": 80, "epoch_steps": 80, "batch_unlabelled": 96, "uncertainty_views": 2},
)
UNTRAINED = replace(FEATURES, {"steps": 6, "epoch_steps": 2, "batch_unlabelled": 16})


@pytest.fixture(scope="module")
def kept_features(tmp_path_factory) -> Path:
    """The SimCLR run that all tests on the digits share."""
    return trained(str(tmp_path_factory.mktemp("digits") / "simclr"), FEATURES).path


@pytest.fixture
def features(kept_features) -> Path:
    """A copy of that run where `--out d` finds it."""
    return Path(shutil.copytree(kept_features, "d/simclr"))


def estimate_in(folder: str) -> dict:
    return json.loads(Path(folder, "estimate.json").read_text())


# On the features of a run ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("features")
def test_the_digits_are_counted(capsys):
    assert run("estimate", "--out", "d", *HERE, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == estimate_in("d")
    assert {"num_classes", "low", "high", "estimator", "curve"} <= set(printed)
    assert printed["low"] <= 10 <= printed["high"]
    assert abs(printed["num_classes"] - 10) <= 2
    assert (printed["num_seen"], printed["estimator"]) == (5, "neighbours")
    counts = [score["k"] for score in printed["curve"]]
    assert counts == list(range(5, 3 * printed["num_classes"] + 1))
    assert max(score["reassigned"] for score in printed["curve"]) > 80
    assert (printed["details"]["features"], printed["details"]["num_features"]) == ("SimCLR, 80 steps", 64)


@pytest.mark.usefixtures("features")
@pytest.mark.parametrize("estimator", module.ESTIMATORS)
def test_every_estimator_says_how_many_and_draws_it(estimator, capsys):
    assert run("estimate", "--out", "d", *HERE, "--estimator", estimator, "--max-classes", 20) == 0
    lines = capsys.readouterr().out.splitlines()
    found = estimate_in("d")
    assert lines[0].startswith(f"about {found['num_classes']} classes ({found['low']} to {found['high']}), ")
    assert lines[1].endswith("features: SimCLR, 80 steps")
    assert "d/estimate.png" in lines[2]
    assert [score["k"] for score in found["curve"]] == list(range(5, 21))
    if estimator != "neighbours":
        assert found["details"]["reassign"] == (estimator == "paper")
        fits = {score["k"]: score["reassigned" if estimator == "paper" else "accuracy"] for score in found["curve"]}
        best = found["details"]["best"]
        assert len(best) == 10
        assert min(fits[k] for k in best) >= max(fit for k, fit in fits.items() if k not in best)
    with Image.open("d/estimate.png") as picture:
        picture.load()
        assert picture.width == (1210 if estimator == "neighbours" else 660)
        assert len(np.unique(np.asarray(picture.convert("L")))) > 20  # something is drawn


@pytest.mark.usefixtures("features")
@pytest.mark.parametrize(
    ("flags", "answer"),
    [
        (["--max-classes", 5], "--max-classes 5 is out of range"),
        (["--max-classes", 0], "--max-classes 0 is out of range"),
        (["--max-classes", -1], "argument --max-classes: -1 "),
        (["--max-classes", 1434], "must be more than 5 (seen classes) and at most 1,433 (samples)"),
        (["--max-classes", 12, "--estimator", "paper"], "--max-classes leaves 8 values of k"),
        (["--estimator", "guess"], "argument --estimator: guess is not one of neighbours"),
        (["--seed", 1], "seed = 0, not 1; choose another --out"),
        (["--novel", 20], "novel = 50.0, not 20.0; choose another --out"),
        (["--minutes", 0], "--minutes is 0.0; it must be above 0"),
    ],
)
def test_a_mistake_is_answered_with_one_line_and_exit_code_2(flags, answer, refused):
    assert answer in refused("estimate", "--out", "d", *HERE, *flags)
    assert not Path("d/estimate.json").exists()


def test_many_seen_classes_leave_room_for_as_many_new_ones():
    assert module.largest_count(None, num_seen=5, num_samples=9_000) == module.MOST_CLASSES
    assert module.largest_count(None, num_seen=401, num_samples=9_000) == 802
    assert module.largest_count(None, num_seen=401, num_samples=600) == 600


@pytest.mark.slow
def test_a_run_lends_its_features(features, capsys):
    assert run("estimate", "--out", "d", *HERE) == 0
    assert run("estimate", features, "--out", "e", *HERE) == 0
    assert capsys.readouterr().err == ""
    first, second = estimate_in("d"), estimate_in("e")
    assert second["details"].pop("features") == f"the run {features} (simclr)"
    first["details"].pop("features")
    assert first == second
    assert not Path("e/simclr").exists()


@pytest.mark.slow
def test_features_that_were_trained_on_the_labels_are_used_with_a_warning(capsys):
    assert run("train", *TINY, "--out", "r") == 0
    capsys.readouterr()
    run("estimate", "r", "--out", "e", *HERE, "--estimator", "paper", "--max-classes", 15)
    captured = capsys.readouterr()
    assert captured.err.startswith("warning: r was trained on labels")
    assert captured.err.count("\n") == 1
    assert "features: the run r (trssl)" in captured.out


@pytest.mark.slow
def test_features_that_were_begun_are_finished_as_they_began(capsys):
    whole = trained("whole/simclr", UNTRAINED)
    stopped("d/simclr", UNTRAINED, step=3)
    flags = [flag for flag in HERE if flag != "--quiet"]
    assert run("estimate", "--out", "d", *flags, "--estimator", "paper", "--max-classes", 15) == 0
    messages = capsys.readouterr().err
    assert "learning features first, without labels, in d/simclr: 6 steps" in messages
    assert last_checkpoint(RunFolder(Path("d/simclr"))) == last_checkpoint(whole)
    assert run("estimate", "--out", "d", *flags, "--estimator", "paper", "--max-classes", 15) == 0
    assert "learning features" not in capsys.readouterr().err


@pytest.mark.slow
def test_an_interrupted_estimate_says_how_to_go_on(monkeypatch, capsys):
    stopped("d/simclr", UNTRAINED, step=3)
    learn = Learner.learn

    def learn_and_interrupt(self):
        learn(self)
        if self.step == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Learner, "learn", learn_and_interrupt)
    assert run("estimate", "--out", "d", *HERE) == 130
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "stopped at step 5" in message
    assert message.endswith("the same command with --out d\n")
    assert Path("d/simclr/checkpoints/step-00000005").exists()


# On user data -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_photos_are_learnt_from_in_the_minutes_given():
    photos = write_photos(Path("photos"), labelled=20, unlabelled=120)
    # The quality of the features depends on the machine. This estimator gives a result for any features.
    assert run("estimate", photos, *HERE, "--minutes", 0.02, "--estimator", "paper", "--max-classes", 15) == 0
    (out,) = Path("runs").iterdir()
    assert out.name.startswith("photos-estimate-seed0-")
    found = estimate_in(str(out))
    assert (found["estimator"], found["num_seen"], len(found["curve"])) == ("paper", 2, 14)
    config = RunFolder(out / "simclr").config()
    assert (config.method, config.recipe, config.training.image_size) == ("simclr", "own", 12)
    assert RunFolder(out / "simclr").summary()["steps"] == config.training.steps


def test_features_in_an_npz_are_used_as_they_are(capsys):
    assert run("estimate", write_blobs(*blobs()), "--out", "e", *HERE) == 0
    assert capsys.readouterr().err == ""
    found = estimate_in("e")
    assert (found["num_classes"], found["num_seen"]) == (8, 4)
    assert (found["details"]["features"], found["details"]["num_features"]) == ("from the data", 12)
    assert {path.name for path in Path("e").iterdir()} == {"estimate.json", "estimate.png"}


@pytest.mark.slow
def test_a_feature_that_never_changes_is_left_out_with_a_warning(capsys):
    features, labels = blobs()
    assert run("estimate", write_blobs(features, labels), "--out", "plain", *HERE) == 0
    capsys.readouterr()
    with_constants = np.insert(features, [0, 5], [3.7, 0.0], axis=1)
    assert run("estimate", write_blobs(with_constants, labels), "--out", "e", *HERE) == 0
    message = capsys.readouterr().err
    assert message.startswith("warning: ignoring 2 of 14 features")
    assert message.count("\n") == 1
    assert estimate_in("e") == estimate_in("plain")


def with_nan(features: np.ndarray) -> np.ndarray:
    features[3, 3] = np.nan
    return features


@pytest.mark.parametrize(
    ("features", "labels", "answer"),
    [
        (np.ones((800, 12)), blobs()[1], "all features are constant"),
        (with_nan(blobs()[0]), blobs()[1], "first in row 3"),
        (*blobs(num_seen=1), "only one class has labelled samples"),
        (*blobs(each=2), "fewer than 2 classes have 3"),
        (0 * blobs()[0] + np.arange(800)[:, None] // 8, blobs()[1], "the number of classes cannot be estimated"),
    ],
    ids=["constant", "nan", "one class", "two labels", "classes in one heap"],
)
def test_features_from_which_nothing_can_be_told_are_refused(features, labels, answer, refused):
    path = write_blobs(features, labels)
    assert answer in refused("estimate", path, "--out", "e", *HERE)
    assert not Path("e").exists()


def test_standardised_features_have_mean_0_and_deviation_1(capsys):
    features = torch.randn(50, 4, generator=generator(0, "features")) * torch.tensor([1e-2, 1, 1e3, 0]) + 7
    columns = standardised(features)
    torch.testing.assert_close(columns.mean(dim=0), torch.zeros(3), atol=1e-3, rtol=0)
    torch.testing.assert_close(columns.std(dim=0), torch.ones(3), atol=1e-3, rtol=0)
    assert "1 of 4 features" in capsys.readouterr().err


def test_many_columns_become_unit_vectors_whose_lengths_and_common_part_do_not_count():
    features = torch.randn(50, 128, generator=generator(0, "features")).abs()
    louder = features * torch.linspace(0.5, 2, 50)[:, None]
    units = comparable(features)
    torch.testing.assert_close(units, comparable(louder))
    torch.testing.assert_close(units.norm(dim=1), torch.ones(50))
    roots = features.sqrt() / features.sqrt().norm(dim=1, keepdim=True)
    torch.testing.assert_close(units, torch.nn.functional.normalize(roots - roots.mean(dim=0)))


def labelled_first() -> tuple[torch.Tensor, torch.Tensor]:
    features, labels = blobs()
    order = np.argsort(labels < 0, kind="stable")
    return torch.from_numpy(features[order]).float(), torch.from_numpy(labels[labels >= 0])


def test_a_large_set_is_clustered_in_part_but_counted_whole(monkeypatch):
    whole = judge(*labelled_first(), "neighbours")
    monkeypatch.setattr(module, "DRAWN_SAMPLES", 150)
    monkeypatch.setattr(module, "DRAWN_COUNTS", 5)
    in_part = judge(*labelled_first(), "neighbours")
    assert in_part.details == whole.details
    assert [score.k for score in in_part.curve] == [4, 8, 12, 16, 20, 24]
    assert len(whole.curve) == 21
    assert whole.curve[4].accuracy == 100  # 8 clusters
    as_in_the_paper = judge(*labelled_first(), "paper", max_classes=13).curve
    assert [score.k for score in as_in_the_paper] == list(range(4, 14))
    assert as_in_the_paper[4].accuracy == 100


# As the first stage of a run ---------------------------------------------------------------------------------


def test_a_run_estimates_its_classes_and_then_trains(capsys):
    path = write_blobs(*blobs())
    arguments = ["train", path, *TINY, "--num-classes", "auto", "--out", "r"]
    assert run(*[argument for argument in arguments if argument != "--quiet"]) == 0
    messages = capsys.readouterr().err.splitlines()
    assert messages[0].startswith("about 8 classes (")
    assert RunFolder(Path("r")).config().problem.num_classes == estimate_in("r")["num_classes"] == 8
    assert "num_classes = 8\n" in Path("r/config.toml").read_text()
    summary = RunFolder(Path("r")).summary()
    assert (summary["num_classes"], summary["num_classes_estimated"]) == (8, True)
    assert run(*arguments, "--resume", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {**summary, "run": "r"}


def test_a_run_that_was_stopped_resumes_with_the_same_flags():
    arguments = ["train", write_blobs(*blobs()), *TINY, "--num-classes", "auto", "--out", "r"]
    assert run(*arguments) == 0
    before = last_checkpoint(RunFolder(Path("r")))
    Path("r/summary.json").unlink()
    Path("r/estimate.png").unlink()
    assert run(*arguments, "--resume") == 0
    assert last_checkpoint(RunFolder(Path("r"))) == before
    assert not Path("r/estimate.png").exists()  # once begun, a run does not estimate again


@pytest.mark.slow
def test_a_run_that_ended_after_its_estimate_begins_with_the_same_flags(features):
    """The folder of the run holds only the files of the estimate."""
    features.parent.rename("r")
    assert run("estimate", "--out", "r", *HERE) == 0
    found = estimate_in("r")["num_classes"]
    small = ["--batch-labelled", 8, "--batch-unlabelled", 16]
    assert run("train", *TINY, *small, "--num-classes", "auto", "--out", "r") == 0
    assert RunFolder(Path("r")).summary()["num_classes"] == found


def test_a_configuration_file_may_ask_for_the_estimate():
    Path("settings.toml").write_text('[problem]\nnum_classes = "auto"\n')
    arguments = ["train", write_blobs(*blobs()), "--config", "settings.toml", *TINY, "--out", "r"]
    assert run(*arguments) == 0
    assert RunFolder(Path("r")).summary()["num_classes_estimated"] is True
    assert run(*arguments, "--resume") == 0


def test_a_number_that_is_given_is_not_estimated():
    assert run("train", write_blobs(*blobs()), *TINY, "--num-classes", 9, "--out", "r") == 0
    assert RunFolder(Path("r")).summary()["num_classes_estimated"] is False
    assert not Path("r/estimate.json").exists()


@pytest.mark.parametrize("word", ["0", "-2", "some", "Auto", "3.5"])
def test_what_is_neither_a_number_of_classes_nor_auto_is_refused(word, refused):
    message = refused("train", write_blobs(*blobs()), *TINY, f"--num-classes={word}", "--out", "r")
    assert "--num-classes" in message
    assert word in message
    assert not Path("r").exists()


def test_data_that_cannot_be_estimated_leaves_no_run(refused):
    path = write_blobs(*blobs(each=2))
    assert "3 labelled samples" in refused("train", path, *TINY, "--num-classes", "auto", "--out", "r")
    assert not Path("r").exists()


def test_from_python():
    features, labels = blobs()
    settings = {"steps": 2, "epoch_steps": 2, "uncertainty_views": 2, "device": "cpu", "workers": 0}
    summary = openworld.train_on(features, labels, num_classes="auto", out="r", **settings)
    assert (summary["num_classes"], summary["num_classes_estimated"]) == (8, True)
    assert estimate_in(summary["run"])["num_classes"] == 8
    with pytest.raises(UserError, match="r already contains a run"):
        openworld.train_on(features, labels, num_classes="auto", out="r", **settings)


# Bad or incomplete input -------------------------------------------------------------------------------------


def test_a_number_that_is_given_after_an_estimate_is_not_estimated():
    path = write_blobs(*blobs())
    assert run("estimate", path, "--out", "r", *HERE) == 0
    assert run("train", path, *TINY, "--num-classes", 9, "--out", "r") == 0
    assert RunFolder(Path("r")).summary()["num_classes_estimated"] is False


def gray_images() -> tuple[np.ndarray, np.ndarray]:
    truth = np.arange(160) % 4
    images = np.random.default_rng(0).normal(60 * truth[:, None, None], 20, (160, 9, 9))
    return np.clip(images, 0, 255).astype(np.uint8), np.where((truth < 2) & (np.arange(160) < 80), truth, -1)


@pytest.mark.slow
def test_features_of_data_that_has_changed_since_are_refused(refused):
    images, labels = gray_images()
    flags = ["--minutes", 0.02, "--estimator", "paper", "--max-classes", 20, "--out", "d", *HERE]
    np.savez("set.npz", images=images, labels=labels)
    assert run("estimate", "set.npz", *flags) == 0
    np.savez("set.npz", images=images[::-1], labels=labels)
    message = refused("estimate", "set.npz", *flags)
    assert "set.npz has changed" in message
    assert "d/simclr" in message


@pytest.mark.slow
def test_images_in_memory_are_counted_too():
    images, labels = gray_images()
    settings = {"minutes": 0.02, "device": "cpu", "workers": 0}
    summary = openworld.train_on(images, labels, num_classes="auto", out="r", **settings)
    assert summary["num_classes_estimated"] is True


def test_settings_that_do_not_fit_are_refused_before_classes_are_counted(refused):
    path = write_blobs(*blobs())
    told = refused("train", path, *TINY, "--num-classes", "auto", "--minutes", 1, "--out", "r")
    assert "--minutes and --steps both" in told
    assert not Path("r").exists()


def test_a_number_of_classes_that_is_no_number_is_named_in_python_too():
    with pytest.raises(UserError, match="num_classes is 'some'"):
        openworld.train_on(*blobs(), num_classes="some", out="r", device="cpu", workers=0, steps=2)
