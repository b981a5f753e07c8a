"""Every command in README and docs works as typed: small data, few steps. The tutorial has a test of its own."""

import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import relay
from PIL import Image
from worlds import run, write_photos

from openworld.core.fields import replace
from openworld.data import benchmarks
from openworld.data.benchmarks import BENCHMARKS, Benchmark
from openworld.data.own import from_arrays
from openworld.planning import budget, pretraining, request
from openworld.training import step_cost, timing
from openworld.training.loop import train

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TESTED_ELSEWHERE = {"tutorial.md"}
SHELL = {"source", "head", "pip"}
"""Programs that are not ours."""
WRITES_INTO_THE_REPOSITORY = {"record.py", "readme_table.py", "step_cost.py", "same_weights.py", "before_after.py"}
"""Scripts whose file must exist; nothing more is tried here."""
SMALLER = {"network": "small-32", "batch_labelled": 8, "batch_unlabelled": 16, "epoch_steps": 2}
MOST_STEPS = 3


def commands_of(page: Path) -> list[str]:
    """The commands in the code blocks of a page, in order: without comments, continued lines joined."""
    found = []
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), flags=re.M | re.S):
        if language in ("", "bash", "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                found += [part.strip() for part in re.sub(r"\s#.*", "", line).split("&&")]
    programs = ("openworld ", "python ", "make ", "timeout ")
    return [command for command in found if command.startswith(programs) and command.split()[0] not in SHELL]


WITH_COMMANDS = [page for page in PAGES if commands_of(page) and page.name not in TESTED_ELSEWHERE]


def test_the_commands_are_found():
    """The collection itself must not fail silently."""
    assert len(WITH_COMMANDS) >= 10
    assert "openworld train photos --out trip" in commands_of(ROOT / "README.md")
    assert sum(len(commands_of(page)) for page in WITH_COMMANDS) >= 60


def test_every_finding_that_is_named_exists():
    named = {
        label for path in (ROOT / "src").rglob("*.py") for label in re.findall(r"finding-[\w-]*\w", path.read_text())
    }
    pages = "\n".join(page.read_text() for page in (ROOT / "docs/findings").glob("*.md"))
    sections = set(re.findall(r"^\((finding-[^)]*)\)=$", pages, flags=re.M))
    listed = set(re.findall(r"^- `(finding-[^`]*)`", (ROOT / "docs/findings.md").read_text(), flags=re.M))
    assert len(named) >= 10
    assert named <= sections, named - sections
    assert listed == sections, listed ^ sections


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """What the pages talk of: photos, features, and a run under each of the names that they give it."""
    folder = tmp_path_factory.mktemp("documented")
    write_photos(folder / "photos", sides=(16,), unlabelled=90)
    shutil.copytree(folder / "photos/test", folder / "more-photos")
    Image.new("RGB", (20, 20), (200, 60, 60)).save(folder / "photo.jpg")
    (folder / "shares.txt").write_text("0.3 0.3 0.4")
    draw = np.random.default_rng(0)
    labels = np.arange(120) % 3
    features = draw.normal(5 * np.eye(3, 8)[labels], 1.0).astype(np.float32)
    np.savez(
        folder / "features.npz", features=features, labels=np.where((labels < 2) & (np.arange(120) < 60), labels, -1)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        flags = ("--num-classes", 5, "--steps", 3, "--epoch-steps", 3, "--uncertainty-views", 2, "--quiet")
        assert run("train", "photos", "--out", "RUN", *flags) == 0
    shutil.copytree(folder / "RUN", folder / "runs/NAME")
    shutil.copytree(folder / "runs/NAME", folder / "RUN/simclr")
    (folder / "DATA").symlink_to("photos")
    return folder


@pytest.fixture
def _small_world(prepared, tmp_path, monkeypatch):
    """A copy of it, in which training is short and benchmarks are small."""
    shutil.copytree(prepared, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    for config in Path().glob("**/config.toml"):
        config.write_text(config.read_text().replace(str(prepared), str(tmp_path / "here")))

    def short(config, *arguments):
        changes = {"steps": min(config.training.steps, MOST_STEPS), **(SMALLER if config.data in BENCHMARKS else {})}
        return train(replace(config, changes), *arguments)

    for module in (request, pretraining):
        monkeypatch.setattr(module, "train", short)
    monkeypatch.setattr("openworld.planning.plan.refuse_large_batches", lambda *_: None)
    for name in ("OWN_MINUTES", "FEATURES_MINUTES"):
        monkeypatch.setattr(budget, name, 0.001)
    monkeypatch.setattr(budget, "FEWEST_STEPS", MOST_STEPS)
    for name, classes in (("cifar10", 10), ("cifar100", 100), ("tiny-imagenet", 200), ("oxford-pets", 37)):
        monkeypatch.setitem(BENCHMARKS, name, small_benchmark(name, classes))
        (tmp_path / "data" / name).mkdir(parents=True)
    monkeypatch.setenv("OPENWORLD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(benchmarks, "_check_classes", lambda *_: None)
    monkeypatch.setattr(step_cost, "CPU_SIZES", (1200, 100, 1))
    monkeypatch.setattr(step_cost, "ON_A_CPU", {"network": "small", "batch_labelled": 4, "batch_unlabelled": 8})
    monkeypatch.setattr(timing, "ROUNDS", 1)


def small_benchmark(name: str, num_classes: int) -> Benchmark:
    def read(_folder: Path):
        draw = np.random.default_rng(0)
        labels = np.arange(20 * num_classes) % num_classes
        images = draw.integers(0, 256, (len(labels), 16, 16, 3), dtype=np.uint8)
        return from_arrays(images, labels, images[: 2 * num_classes], labels[: 2 * num_classes], name)

    return Benchmark(name, read, BENCHMARKS[name].source)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
@pytest.mark.usefixtures("_small_world")
def test_every_command_works_as_typed(page):
    for command in commands_of(page):
        assert works(command), command


def works(command: str) -> bool:
    program, *words = shlex.split(re.sub(r"^timeout \S+ ", "", command))
    words = [word for word in words if word != "..."]  # as in RUN RUN ...
    if program == "make":
        return words[0] in re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    if program == "python":
        return script_works(ROOT / words[0], words[1:])
    if words[:2] == ["report", "RUN"] and len(words) > 2:
        words = ["report", "RUN", "runs/NAME"]  # a comparison needs two different runs
    return run(*words, *(["--device", "cpu"] if words[0] in ("train", "bench", "estimate") else [])) == 0


def script_works(script: Path, words: list[str]) -> bool:
    if script.name == "relay.py":
        verb, source, target = words
        if verb == "pack":
            shutil.rmtree(target, ignore_errors=True)
        elif Path(target).exists():  # on the other machine there is no such run yet
            target = f"{target}-there"
        relay.main([verb, source, target])
        return Path(target).is_dir()
    if script.name == "example_photos.py":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [str(script), "made", "--images", "800", "--test-images", "80", *words[1:]])
            runpy.run_path(str(script), run_name="__main__")
        return Path("made/labelled").is_dir()
    return script.is_file() and script.name in WRITES_INTO_THE_REPOSITORY
