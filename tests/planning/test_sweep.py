"""Many runs in one process: the grid, what is shared, and what happens to runs that fail or are stopped."""

from pathlib import Path

import pytest
from worlds import RUNTIME, write_photos

from openworld.core.errors import UserError
from openworld.core.signals import Interrupted
from openworld.planning import sweep
from openworld.planning.request import Request, execute
from openworld.planning.sweep import Trial, carry_out, grid, varied_setting
from openworld.runs.folder import RunFolder
from openworld.training.learner import Learner

SHORT = {"data": "digits", "steps": 4, "epoch_steps": 2, "batch_labelled": 8, "batch_unlabelled": 16}
FROM_FEATURES = {**SHORT, "recipe": "pretrained", "start_steps": 2}


def test_a_grid_has_every_combination():
    trials = grid({"epsilon": [0.05, 0.1], "prior": ["even", "known"], "seed": [0, 1, 2]}, {"data": "digits"})
    assert len({trial.name for trial in trials}) == 12
    assert trials[0] == Trial(
        "epsilon-0.05-prior-even-seed-0", {"data": "digits", "epsilon": 0.05, "prior": "even", "seed": 0}
    )


@pytest.mark.parametrize("varied", [{}, {"seed": [3]}, {"epsilon": [0.1], "seed": [0]}])
def test_a_grid_with_nothing_to_vary_is_refused(varied):
    with pytest.raises(UserError, match="nothing to vary"):
        grid(varied, {})


def test_a_huge_grid_is_refused():
    with pytest.raises(UserError, match="1,000,000 runs"):
        grid({"seed": list(range(1000)), "steps": list(range(1000))}, {})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("epsilon=0.05, 0.1", ("epsilon", [0.05, 0.1])),
        ("mixed-labels=on,off", ("mixed_labels", [True, False])),
        ("num_classes=auto,12", ("num_classes", ["auto", 12])),
        ("trssl+.queue=0,64", ("trssl+.queue", [0, 64])),
        ("prior=even,estimated", ("prior", ["even", "estimated"])),
    ],
)
def test_values_have_the_type_of_their_setting(text, values):
    assert varied_setting(text) == values


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("epsilonn=1,2", "did you mean epsilon?"),
        ("epsilon", "write NAME=VALUE,VALUE"),
        ("epsilon=", "write NAME=VALUE,VALUE"),
        ("epsilon=0.1,,0.2", "write NAME=VALUE,VALUE"),
        ("epsilon=a,b", "a is not a number"),
        ("seed=1.5,2", "1.5 is not a whole number"),
        ("mixup=yes,no", "yes is not on or off"),
        ("network=small,tiny", "must be one of"),
        ("seed=1,1", "1 is there twice"),
    ],
)
def test_values_that_are_not_valid_are_refused(text, answer):
    with pytest.raises(UserError, match=answer.replace("?", r"\?")):
        varied_setting(text)


def test_a_mistake_in_any_trial_is_told_before_the_first_is_trained(tmp_path):
    trials = [Trial("good", SHORT), Trial("bad", {**SHORT, "epsilon": -1.0})]
    with pytest.raises(UserError, match="epsilon is -1"):
        carry_out(trials, tmp_path / "runs", RUNTIME)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_finished_runs_are_skipped_and_a_stopped_one_goes_on(tmp_path, monkeypatch):
    trials = grid({"seed": [0, 1, 2]}, SHORT)
    learn, steps = Learner.learn, []

    def learn_and_stop(learner: Learner) -> None:
        if len(steps) == 6:
            raise Interrupted(2, "stopped")
        learn(learner)
        steps.append(learner.step)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "learn", learn_and_stop)
        with pytest.raises(Interrupted):
            carry_out(trials, tmp_path, RUNTIME)
    assert steps == [1, 2, 3, 4, 1, 2]
    steps.clear()
    monkeypatch.setattr(Learner, "learn", lambda learner: (steps.append(learner.step), learn(learner))[1])
    outcomes = carry_out(trials, tmp_path, RUNTIME)
    assert steps == [2, 3, 0, 1, 2, 3]  # the second goes on, the third begins
    assert [outcome.summary["seed"] for outcome in outcomes] == [0, 1, 2]


@pytest.mark.slow
def test_a_finished_run_with_other_settings_does_not_pass_for_a_trial(tmp_path):
    carry_out([Trial("a", FROM_FEATURES)], tmp_path, RUNTIME)
    (same,) = carry_out([Trial("a", FROM_FEATURES)], tmp_path, RUNTIME)
    assert same.summary["steps"] == 4
    (other,) = carry_out([Trial("a", {**FROM_FEATURES, "epsilon": 0.01})], tmp_path, RUNTIME)
    assert (other.summary, "epsilon" in other.failure) == (None, True)


@pytest.mark.slow
def test_a_trial_that_fails_does_not_stop_the_others(tmp_path):
    prior = tmp_path / "prior.txt"
    prior.write_text("0.5 0.5")
    trials = [Trial("bad", {**SHORT, "prior": str(prior)}), Trial("good", SHORT)]
    told = []
    bad, good = carry_out(trials, tmp_path / "runs", RUNTIME, end=told.append)
    assert "2 numbers for 10 classes" in bad.failure
    assert (bad.summary, good.failure) == (None, None)
    assert good.summary["steps"] == 4
    assert told == [bad, good]


def features_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("features-*"))


@pytest.mark.slow
def test_runs_share_features_where_the_images_are_the_same(tmp_path):
    """SimCLR sees no labels: neither the prior nor the split matters, but the seed and the imbalance do."""
    varied = [
        {},
        {"prior": "even"},
        {"novel": 30.0, "labelled": 20.0},
        {"task": "ncd"},
        {"seed": 1},
        {"imbalance": 5.0},
        {"task": "ncd", "labelled": 50.0},
    ]
    trials = [Trial(str(number), {**FROM_FEATURES, **settings}) for number, settings in enumerate(varied)]
    outcomes = carry_out(trials, tmp_path, RUNTIME)
    assert [outcome.failure for outcome in outcomes] == [None] * len(trials)
    starts = [outcome.folder.config().training.start for outcome in outcomes]
    assert [starts.index(start) for start in starts] == [0, 0, 0, 0, 4, 5, 6]
    assert len(features_of(tmp_path)) == 4
    for outcome in outcomes:
        assert outcome.folder.read_json("start.json")["method"] == "simclr"


@pytest.mark.slow
def test_features_that_were_stopped_go_on_for_any_trial(tmp_path, monkeypatch):
    first, second = (Trial(prior, {**FROM_FEATURES, "prior": prior, "novel": novel}) for prior, novel in PRIORS)
    learn = Learner.learn

    def stop(learner: Learner) -> None:
        raise Interrupted(2, "stopped")

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "learn", stop)
        with pytest.raises(Interrupted):
            carry_out([first], tmp_path, RUNTIME)
    monkeypatch.setattr(Learner, "learn", learn)
    outcomes = carry_out([second, first], tmp_path, RUNTIME)
    assert [outcome.failure for outcome in outcomes] == [None, None]
    assert len(features_of(tmp_path)) == 1


PRIORS = (("known", 50.0), ("even", 30.0))


@pytest.mark.slow
def test_other_data_of_the_same_name_has_features_of_its_own(tmp_path):
    for place in ("a", "b"):
        write_photos(tmp_path / place / "photos", sides=(16,), unlabelled=20)
    lengths = {"steps": 2, "start_steps": 2, "epoch_steps": 2, "batch_labelled": 4, "batch_unlabelled": 8}
    common = {"start": "simclr", "backbone": "none", "network": "small", "image_size": 16, **lengths}
    trials = [Trial(place, {**common, "data": str(tmp_path / place / "photos")}) for place in ("a", "b")]
    outcomes = carry_out(trials, tmp_path / "runs", RUNTIME)
    assert [outcome.failure for outcome in outcomes] == [None, None]
    assert len(features_of(tmp_path / "runs")) == 2
    next(path for path in (tmp_path / "a/photos/unlabelled").rglob("*") if path.is_file()).unlink()
    (changed,) = carry_out([Trial("c", trials[0].settings)], tmp_path / "runs", RUNTIME)
    assert "has changed since" in changed.failure


@pytest.mark.slow
def test_a_run_that_was_started_by_itself_goes_on_and_a_moved_sweep_is_shown(tmp_path):
    alone = RunFolder(tmp_path / "runs" / "alone")
    execute(Request(settings=FROM_FEATURES), alone, RUNTIME)
    trials = [Trial("alone", FROM_FEATURES), Trial("shared", FROM_FEATURES)]
    outcomes = carry_out(trials, tmp_path / "runs", RUNTIME)
    assert [outcome.failure for outcome in outcomes] == [None, None]
    assert alone.config().training.start == "simclr"
    (tmp_path / "runs").rename(tmp_path / "moved")
    outcomes = carry_out(trials, tmp_path / "moved", RUNTIME)
    assert [outcome.failure for outcome in outcomes] == [None, None]


@pytest.mark.slow
def test_a_mistake_in_a_trial_is_told_before_its_features_are_learnt(tmp_path):
    (outcome,) = carry_out([Trial("bad", {**FROM_FEATURES, "imbalance": 1000.0})], tmp_path / "runs", RUNTIME)
    assert "leaves no image of class" in outcome.failure
    assert not (tmp_path / "runs").exists()


def test_runs_that_would_share_a_folder_are_refused():
    with pytest.raises(UserError, match="two runs would have the same folder, data-a-photos"):
        grid({"data": ["a/photos", "a-photos"]}, {})


def test_an_estimate_of_the_classes_has_features_of_its_own():
    assert sweep.shares_features(Trial("a", FROM_FEATURES))
    assert not sweep.shares_features(Trial("a", {**FROM_FEATURES, "num_classes": "auto"}))
    assert not sweep.shares_features(Trial("a", SHORT))
    assert not sweep.shares_features(Trial("a", {**FROM_FEATURES, "start": "elsewhere"}))


@pytest.mark.slow
def test_a_trial_is_the_run_of_the_train_command(tmp_path):
    """The weights are those of the same run alone, from the same features."""
    (alone,) = carry_out([Trial("alone", SHORT)], tmp_path / "a", RUNTIME)
    _, beside = carry_out([Trial("first", {**SHORT, "seed": 3}), Trial("beside", SHORT)], tmp_path / "b", RUNTIME)
    files = [outcome.folder.checkpoints / "step-00000004" / "model.safetensors" for outcome in (alone, beside)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert RunFolder(tmp_path / "a" / "alone").summary()["all"] == beside.summary["all"]
