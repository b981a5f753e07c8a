"""Properties of every method: those in `METHODS`, and some that openworld does not know."""

import copy
import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from unheard_of import UNHEARD_OF
from worlds import CPU, RUNTIME, interrupted, last_checkpoint, lines_without_clock, run, trained

from openworld import OpenWorldClassifier, train_on
from openworld.cli import make_parser
from openworld.core.config import Config
from openworld.core.config_files import restored_config, write_toml
from openworld.core.errors import UserError
from openworld.core.fields import Option, options, replace
from openworld.core.recipes import digits
from openworld.data.benchmarks import read_benchmark
from openworld.data.problem import load_problem
from openworld.methods import METHODS
from openworld.methods.base import Method, StepResult
from openworld.nets.inference import inference_copy
from openworld.runs.folder import RunFolder
from openworld.runs.model import Model
from openworld.training.learner import Learner

TINY = replace(
    digits("digits"),
    {"steps": 4, "epoch_steps": 2, "batch_labelled": 8, "batch_unlabelled": 16, "uncertainty_views": 2},
)
ALL = (*METHODS, *UNHEARD_OF)
STEPPED = tuple(name for name in ALL if (METHODS | UNHEARD_OF)[name].method().makes_steps)


@pytest.fixture(autouse=True)
def _with_the_unheard_of(monkeypatch):
    for name, its_options in UNHEARD_OF.items():
        monkeypatch.setitem(METHODS, name, its_options)


def tiny(method: str) -> Config:
    config = replace(TINY, {"method": method})
    if method == "trssl+":
        extras = {"queue": 32, "queue_from": 0.0, "strong_views": True, "balance": True}
        return replace(config, extras)
    return config if method in STEPPED else replace(config, {"network": "identity", "steps": 0})


def learnt(config: Config) -> Learner:
    learner = Learner(config, load_problem(config, RUNTIME).training, RUNTIME)
    for step in range(1, config.training.steps + 1):
        learner.learn()
        if step % config.training.epoch_steps == 0:
            learner.recalibrate_average()
            learner.end_epoch()
    if not config.training.steps:
        learner.end_epoch()
    return learner


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL)
def test_what_answers_is_what_was_trained(method):
    """Changing any tensor of the network changes the predictions, unless the method lists it in `helpers`."""
    learner = learnt(tiny(method))
    network, images = learner.average.network, learner.batches.at(0).images
    before, its = inference_copy(network)(images), learner.method

    def changes(name: str, amount: float) -> bool:
        other, source = copy.deepcopy(network), torch.Generator().manual_seed(0)
        other.state_dict()[name].add_(amount * torch.rand(other.state_dict()[name].shape, generator=source))
        return not torch.equal(inference_copy(other)(images), before)

    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point() and not name.startswith(its.alternatives):
            assert any(changes(name, amount) for amount in (0.2, 2.0)) != name.startswith(its.helpers), name


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL)
def test_what_answers_has_moved_or_is_declared_fixed(method):
    """This includes buffers. The averaged network is the model that predicts."""
    config = tiny(method)
    fresh = Learner(config, load_problem(config, RUNTIME).training, RUNTIME).network.state_dict()
    learner = learnt(config)
    weights, is_set = dict(learner.network.named_parameters()), learner.method.fitted
    for name, value in learner.average.network.state_dict().items():
        is_frozen = name in weights and learner.pace(name) is None and not name.startswith(is_set)
        assert torch.equal(value, fresh[name]) == (is_frozen or name in ("mean", "std")), name


def rows_without_gradient(learner: Learner) -> set[str]:
    """Return the trained parameters, without helpers, that have a row whose gradient is always zero."""
    reached: dict[str, torch.Tensor] = {}
    for _ in range(3):
        learner.learn()
        for name, weights in learner.network.named_parameters():
            if weights.grad is not None and not name.startswith(learner.method.helpers):
                rows = weights.grad.flatten(1).abs().amax(dim=1) if weights.dim() > 1 else weights.grad.abs()
                reached[name] = torch.maximum(reached.get(name, rows * 0), rows)
    return {name for name, rows in reached.items() if (rows == 0).any()}


@pytest.mark.parametrize("method", STEPPED)
def test_the_loss_reaches_every_row_of_what_is_trained(method):
    """A head with rows that are only normalised and decayed changes too, but learns nothing."""
    learner = Learner(tiny(method), load_problem(tiny(method), RUNTIME).training, RUNTIME)
    assert rows_without_gradient(learner) == set()


def test_a_loss_that_forgets_the_novel_classes_is_found_out(monkeypatch):
    def seen_only(self, network, batch):
        return StepResult(torch.nn.functional.cross_entropy(network(batch.labelled)[:, :5], batch.labels))

    monkeypatch.setattr(METHODS["bilevel"].method(), "loss", seen_only)
    monkeypatch.setattr(METHODS["bilevel"].method(), "build_head", Method.build_head)
    learner = Learner(tiny("bilevel"), load_problem(tiny("bilevel"), RUNTIME).training, RUNTIME)
    assert rows_without_gradient(learner) == {"head.weight"}


def test_weights_that_the_loss_does_not_reach_stop_the_run_at_once(monkeypatch):
    """A method with extra heads beside the one that predicts has such weights."""
    monkeypatch.setattr(METHODS["simclr"].method(), "fitted", ())
    learner = Learner(tiny("simclr"), load_problem(tiny("simclr"), RUNTIME).training, RUNTIME)
    with pytest.raises(TypeError, match=r"loss of Simclr .*no gradient to head\.classes\.weight"):
        learner.learn()


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL)
def test_what_is_fitted_is_the_same_in_the_student_the_average_and_the_answers(method):
    learner = learnt(tiny(method))
    networks = learner.network, learner.average.network, learner.answering
    for name, _ in learner.network.state_dict().items():
        if name.startswith(learner.method.fitted):
            first, *others = (network.state_dict()[name] for network in networks)
            assert all(torch.equal(first, other) for other in others), name


@pytest.mark.parametrize("method", ALL)
def test_first_weights_follow_from_the_seed_alone(method):
    config, states = tiny(method), []
    data = load_problem(config, RUNTIME).training
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(Learner(config, data, RUNTIME).network.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.slow
@pytest.mark.parametrize("method", STEPPED)
@pytest.mark.parametrize("step", [1, 3])
def test_a_resumed_run_is_the_run_that_was_never_stopped(method, step):
    config = tiny(method)
    whole = trained("whole", config)
    resumed = interrupted("resumed", config, step)
    trained("resumed", config)
    assert last_checkpoint(resumed) == last_checkpoint(whole)
    assert lines_without_clock(resumed) == lines_without_clock(whole)


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL)
def test_a_saved_run_answers_as_its_learner_did(method):
    config = tiny(method)
    folder, learner = trained("r", config), learnt(config)
    images = read_benchmark("digits", Path("nowhere")).test.content[:20].transpose(0, 3, 1, 2).copy()
    model = Model.load(folder, CPU, pytest.fail)
    shown = model.family.plain(torch.from_numpy(images))
    expected = (learner.answering(shown) / config.answers.temperature).softmax(dim=1)
    torch.testing.assert_close(model.probabilities(torch.from_numpy(images)), expected, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL)
def test_the_truth_of_unlabelled_samples_changes_nothing(method, monkeypatch):
    """The test shuffles their classes. This keeps the class sizes, which a prior may know."""
    config = tiny(method)
    world = load_problem(config, RUNTIME)
    labels = world.truths["unlabelled"].labels
    honest = learnt(config)
    np.random.default_rng(0).shuffle(labels)
    monkeypatch.setattr("test_every_method.load_problem", lambda *_: world)
    fooled = learnt(config)
    states = [{**each.network.state_dict(), **each.method.state_dict()} for each in (honest, fooled)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL)
def test_from_the_command_line_to_an_exported_file(method, capsys):
    """Train, evaluate, predict, report and export. Export compares the file with the original."""
    flags = ["--steps", 3, "--epoch-steps", 3] if method in STEPPED else ["--network", "identity"]
    sizes = ["--batch-labelled", 8, "--batch-unlabelled", 16, "--uncertainty-views", 2]
    assert run("train", "--method", method, "--out", "r", "--quiet", "--json", *flags, *sizes) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["method"] == method
    assert run("evaluate", "r", "--json") == 0
    assert json.loads(capsys.readouterr().out)["protocols"] == summary["protocols"]
    images = read_benchmark("digits", Path("nowhere")).test.content[:5]
    np.savez("new.npz", images=images)
    assert run("predict", "r", "new.npz", "--out", "p.csv", "--quiet") == 0
    assert len(list(csv.DictReader(Path("p.csv").read_text().splitlines()))) == 5
    assert run("report", "r", "--quiet") == 0
    assert run("export", "r", "m.onnx", "m.safetensors") == 0
    assert run("train", "--out", "r", "--resume", "--quiet", "--json") == 0  # finished: the same result
    assert '"method": ' in capsys.readouterr().out


@pytest.mark.parametrize("method", ALL)
def test_a_configuration_comes_back_from_its_file(method):
    config = tiny(method)
    Path("config.toml").write_text(write_toml(config))
    assert RunFolder(Path()).config() == config


def test_options_of_methods_share_a_name_only_if_they_are_of_one_kind_and_none_with_another_setting():
    """Options with the same name share a flag."""
    common = {option.name for option in options()}
    kinds = {}
    for option in options(*METHODS):
        if option.section in METHODS:
            assert option.name not in common
            assert kinds.setdefault(option.name, option.kind) == option.kind


@pytest.mark.parametrize(("name", "kind", "default"), [("temperature", float, 0.5), ("epsilon", int, 3)])
def test_an_option_that_cannot_share_its_name_is_refused_when_flags_are_made(monkeypatch, name, kind, default):
    """The name belongs to a setting of all methods, or to an option of another kind."""
    clashing = Option("demanding", name, kind, default, "Clashes.")
    monkeypatch.setattr("openworld.commands.common.options", lambda *_: (*options("trssl"), clashing))
    with pytest.raises(TypeError, match=f"demanding.{name} cannot share its name with .*{name}"):
        make_parser()


@pytest.mark.slow
def test_two_methods_may_have_an_option_of_one_name(capsys):
    flags = ["--steps", 1, "--batch-labelled", 8, "--batch-unlabelled", 16, "--uncertainty-views", 2, "--quiet"]
    for number, (method, flag) in enumerate((("demanding", "--epsilon"), ("demanding", "--demanding.epsilon"))):
        assert run("train", "--method", method, flag, 0.25, "--out", f"r{number}", *flags) == 0
        assert RunFolder(Path(f"r{number}")).config().options.epsilon == 0.25
    capsys.readouterr()
    assert run("train", "--method", "trssl", "--demanding.epsilon", 0.25, "--out", "r3", *flags) == 2
    message = capsys.readouterr().err
    assert "--demanding.epsilon" in message
    assert "--method demanding" in message


def test_what_a_method_asks_for_it_gets():
    config = tiny("demanding")
    learner = Learner(config, load_problem(config, RUNTIME).training, RUNTIME)
    batch = learner.batches.at(0)
    assert [tuple(view.shape) for view in batch.labelled_views] == [(8, 1, 8, 8)] * 2
    assert [view.shape[2] for view in batch.unlabelled_views] == [8, 6, 7]
    assert not torch.equal(*batch.labelled_views)
    stem = {name: value.clone() for name, value in learner.network.state_dict().items() if "stem.0.conv" in name}
    for _ in range(3):
        learner.learn()
    assert all(torch.equal(learner.network.state_dict()[name], value) for name, value in stem.items())
    assert learner.meter.means()["rows"] == 8 * 2 + 16 * 3
    decays = {group["weight_decay"] for group in learner.optimiser.sgd.param_groups}
    assert decays == {0.0, 2 * config.training.weight_decay}
    assert learner.optimiser.rates[0.5] == pytest.approx(0.5 * config.training.lr * 0.9**2)


def test_a_method_that_is_fitted_once_makes_no_steps(capsys):
    assert run("train", "--method", "clusters", "--network", "identity", "--out", "r", "--quiet", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["steps"], summary["all"] > 60) == (0, True)
    assert run("train", "--method", "clusters", "--steps", 5, "--out", "s") == 2
    assert "--steps has no effect: clusters" in capsys.readouterr().err
    assert run("train", "--method", "clusters", "--minutes", 5, "--out", "s") == 2
    assert "--minutes has no effect: clusters" in capsys.readouterr().err
    assert run("train", "--steps", 0, "--out", "s") == 2
    assert "--steps is 0; it must be 1 or more" in capsys.readouterr().err


@pytest.mark.slow
def test_a_method_that_is_fitted_once_has_no_answers_before_and_is_fitted_again_if_it_was_stopped(monkeypatch, refused):
    end_epoch = METHODS["clusters"].method().end_epoch

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(METHODS["clusters"].method(), "end_epoch", die)
    assert run("train", "--method", "clusters", "--network", "identity", "--out", "r", "--quiet") == 130
    assert "r has no undamaged checkpoint" in refused("evaluate", "r")
    monkeypatch.setattr(METHODS["clusters"].method(), "end_epoch", end_epoch)
    assert run("train", "--resume", "--out", "r", "--quiet") == 0
    Path("r/summary.json").unlink()
    assert run("train", "--resume", "--out", "r", "--quiet") == 0
    assert len(RunFolder(Path("r")).metrics()) == 1


@pytest.mark.slow
def test_the_estimator_takes_every_method():
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (60, 8, 8), dtype=np.uint8)
    labels = np.where(np.arange(60) < 40, np.arange(60) % 2, -1)
    for method in ALL:
        settings = {"batch_labelled": 4, "batch_unlabelled": 8, "uncertainty_views": 2}
        steps = {"steps": 2} if method in STEPPED else {}
        model = OpenWorldClassifier(num_classes=3, method=method, device="cpu", settings=settings, **steps)
        assert model.fit(images, labels).predict(images).shape == (60,)


def test_the_head_that_was_chosen_answers():
    learner = learnt(tiny("choosy"))
    network, images = learner.average.network, learner.batches.at(0).images
    chosen = int(network.head.chosen)
    assert chosen in (0, 1)
    expected = network.head.heads[chosen](network.features(images))
    torch.testing.assert_close(learner.answering(images), expected, atol=1e-4, rtol=0)
    network.head.chosen.fill_(1 - chosen)
    assert not torch.allclose(inference_copy(network)(images), expected, atol=1e-2)


def test_views_of_images_are_refused_for_features():
    features = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    with pytest.raises(UserError, match=r"method='demanding' needs augmented views .* features"):
        train_on(features, np.where(np.arange(60) < 40, np.arange(60) % 2, -1), method="demanding", steps=1)


def test_a_body_that_takes_one_size_is_refused_views_of_another(refused):
    told = refused("train", "--network", "identity", "--augment", "simclr", "--steps", 1)
    assert "--network identity" in told
    assert "8 pixels, but simclr views have 6" in told


def test_a_method_with_weights_of_its_own_is_refused(monkeypatch):
    method = METHODS["simclr"].method()
    monkeypatch.setattr(method, "__init__", lambda self, *_: with_a_layer(self))
    config = tiny("simclr")
    with pytest.raises(TypeError, match=r"Simclr\.layer\.weight: .*head"):
        Learner(config, load_problem(config, RUNTIME).training, RUNTIME)


def with_a_layer(method) -> None:
    torch.nn.Module.__init__(method)
    method.layer = torch.nn.Linear(2, 2)


def test_an_unknown_method_is_answered_with_the_nearest():
    with pytest.raises(UserError, match=r"--method trsl: .*did you mean trssl\?"):
        Config(method="trsl")
    tree = {"format": 2, "method": "gone"}
    with pytest.raises(UserError, match="gone"):
        restored_config(tree, "config.toml")
