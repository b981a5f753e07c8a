import re
import sys
from pathlib import Path

import pytest
from worlds import RUNTIME, run

from openworld.core.config import SECTIONS, Config, Training
from openworld.core.config_files import read_toml, write_toml
from openworld.core.errors import UserError
from openworld.core.fields import flatten, options, replace
from openworld.core.recipes import RECIPES, recipe_for
from openworld.methods import METHODS
from openworld.planning.prepare import prepare_run
from openworld.runs.folder import RunFolder
from openworld.training.loop import train


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    return path


def test_the_help_names_every_recipe_and_every_method(capsys):
    assert run("train", "--help") == 0
    help_text = " ".join(capsys.readouterr().out.split())
    _, method_and_recipe = help_text.split("--method NAME Training", 1)
    method, recipe = method_and_recipe.split("--recipe NAME", 1)
    assert f" {', '.join(METHODS)}." in method
    assert f" {', '.join(RECIPES)}." in recipe


@pytest.mark.parametrize("name", RECIPES)
def test_a_resolved_configuration_survives_the_file(tmp_path, name):
    config = RECIPES[name]("digits")
    own = {"projection": 64} if config.method == "simclr" else {"mixup": False}
    config = replace(config, {"num_classes": 12, "prior": 'a "b".txt', "seed": 7, **own})
    assert replace(Config(), read_toml(written(tmp_path, write_toml(config)))) == config


def test_names_of_fields_are_unique_so_that_flags_can_be_flat():
    for method in METHODS:
        names = [option.name for option in options(method)]
        assert len(names) == len(set(names))
    keys = [option.key for option in options(*METHODS)]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("name", RECIPES)
def test_flatten_and_replace_are_inverse(name):
    config = RECIPES[name]("digits")
    assert replace(Config(), flatten(config)) == config


def test_every_field_has_a_docstring():
    assert all(re.fullmatch(r"[A-Z].*\.", option.help) for option in options(*METHODS))


@pytest.mark.slow
def test_every_field_is_read_by_something_that_computes(monkeypatch):
    """No setting may be without effect, as TRSSL's warm-up flag and ORCA's seed are.

    The test watches which fields a run reads. Reading a field only to write it to a file does not count.
    """
    read = set()

    def watched(self, name):
        caller = sys._getframe(1)
        module, function = caller.f_globals["__name__"], caller.f_code.co_name
        only_checks = module.endswith("_options") or function == "refuse_unused_settings"
        only_writes = module in ("openworld.core.config", "openworld.core.config_files") or function == "summarise"
        if module.startswith("openworld.") and not only_checks and not only_writes:
            read.add((type(self), name))
        return object.__getattribute__(self, name)

    config = replace(RECIPES["digits"]("digits"), {"steps": 2, "epoch_steps": 1, "uncertainty_from": 0.0})
    configs = {method: replace(config, {"method": method}) for method in METHODS}
    kinds = {"": Config, **SECTIONS, **METHODS}
    for kind in kinds.values():
        monkeypatch.setattr(kind, "__getattribute__", watched)
    for method, config in configs.items():
        train(config, RunFolder(Path(method)), RUNTIME)
    prepare_run({"start": "simclr", "start_steps": 1}, RUNTIME, Path("begun"))
    assert {(kinds[option.section], option.name) for option in options(*METHODS)} <= read


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("sede = 3", "unknown key sede; did you mean seed?"),
        ("[trssl]\ntemprature = 0.2", "unknown key trssl.temprature; did you mean answers.temperature?"),
        ("temperature = 0.2", "unknown key temperature; did you mean answers.temperature?"),
        ("seed = 1.5", "seed is 1.5; it must be of type int"),
        ('[trssl]\nmixup = "no"', "mixup is 'no'; it must be of type bool"),
        ('[training]\nnetwork = "vgg"', "network is 'vgg'; it must be one of resnet18-cifar"),
        ("seed = ", "settings.toml: cannot be read as a TOML file"),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path, text, answer):
    with pytest.raises(UserError, match=re.escape(answer)):
        read_toml(written(tmp_path, text))


def test_a_whole_number_is_good_for_a_float(tmp_path):
    assert read_toml(written(tmp_path, "[training]\nlr = 1")) == {"lr": 1.0}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("novel", 100.0),
        ("labelled", 0.0),
        ("imbalance", 0.5),
        ("num_classes", 0),
        ("steps", -1),
        ("image_size", 4),
        ("lr", 0.0),
        ("warmup", 1.0),
        ("momentum", 1.0),
        ("weight_decay", -1.0),
        ("temperature", 0.0),
        ("threshold", 0.0),
        ("epsilon", 0.0),
        ("iterations", 0),
        ("mixup_alpha", 0.0),
        ("uncertainty_views", 1),
        ("uncertainty_from", 1.5),
        ("simclr.contrast_temperature", 0.0),
        ("simclr.projection", 1),
        ("trssl+.queue", -1),
        ("trssl+.queue_from", 1.5),
        ("trssl+.epsilon", 0.0),
        ("imbalance", float("inf")),
        ("temperature", float("inf")),
    ],
)
def test_a_value_out_of_range_names_its_flag(field, value):
    method, _, name = field.rpartition(".")
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} is "):
        replace(Config(), {"method": method or "trssl", field: value})


def test_a_method_that_is_trained_by_steps_needs_some(refused):
    assert "--steps is 0; it must be 1 or more" in refused("train", "--steps", 0, "--device", "cpu")


def test_the_recipe_follows_from_the_data_and_the_method_unless_named():
    assert recipe_for("auto", "digits", is_benchmark=True, method="trssl") == "digits"
    assert recipe_for("auto", "cifar100", is_benchmark=True, method="trssl") == "pretrained"
    assert recipe_for("auto", "aircraft", is_benchmark=True, method="trssl") == "paper"
    assert recipe_for("auto", "cifar100", is_benchmark=True, method="simclr") == "simclr"
    for method in METHODS:
        assert recipe_for("auto", "photos", is_benchmark=False, method=method) == "own"
        assert recipe_for("paper", "digits", is_benchmark=True, method=method) == "paper"
    with pytest.raises(UserError, match="did you mean paper"):
        recipe_for("papre", "digits", is_benchmark=True, method="trssl")


def test_defaults_are_the_papers():
    training = Training()
    assert (training.steps, training.lr, training.momentum, training.weight_decay) == (200 * 1024, 0.1, 0.9, 1e-4)
    assert (training.batch_labelled, training.batch_unlabelled, training.warmup) == (256, 256, 10 / 200)
