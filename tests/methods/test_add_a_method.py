"""The method in docs/add-a-method.md, tested with the code of that page."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
from worlds import run

import openworld.methods
from openworld.methods import METHODS
from openworld.runs.folder import RunFolder

PAGE = (Path(__file__).parents[2] / "docs" / "add-a-method.md").read_text()
MOST_LINES = 80


@pytest.fixture
def written(tmp_path, monkeypatch) -> None:
    """Write the files of the page where it says, and apply its line to `METHODS`."""
    folder = tmp_path / "methods"
    folder.mkdir()
    blocks = dict(re.findall(r"## \d\. [^\n]*: `methods/(\w+)\.py`.*?```python\n(.*?)```", PAGE, flags=re.S))
    assert list(blocks) == ["swap_options", "swap", "__init__"]
    assert sum(len(code.splitlines()) for code in blocks.values()) <= MOST_LINES
    for name in ("swap_options", "swap"):
        (folder / f"{name}.py").write_text(blocks[name])
    monkeypatch.setattr(openworld.methods, "__path__", [*openworld.methods.__path__, str(folder)])
    monkeypatch.setattr(openworld.methods, "METHODS", METHODS)
    options = importlib.import_module("openworld.methods.swap_options").SwapOptions
    assert blocks["__init__"] == 'METHODS["swap"] = SwapOptions\n'
    monkeypatch.setitem(METHODS, "swap", options)
    yield
    for name in ("swap_options", "swap"):
        sys.modules.pop(f"openworld.methods.{name}", None)


@pytest.mark.slow
@pytest.mark.usefixtures("written")
def test_the_method_of_the_page_finds_the_new_classes(capsys):
    """With an untrained head, or predictions by another head, accuracy would be near chance."""
    assert run("train", "--method", "swap", "--out", "r", "--quiet", "--json", "--steps", 300) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["seen"] > 90
    assert summary["novel"] > 70


@pytest.mark.slow
@pytest.mark.usefixtures("written")
def test_its_options_are_flags_and_keys():
    sizes = ["--steps", 1, "--quiet"]
    assert run("train", "--method", "swap", "--swap.epsilon", 0.1, "--hidden", 16, "--out", "r", *sizes) == 0
    options = RunFolder(Path("r")).config().options
    assert (options.epsilon, options.hidden) == (0.1, 16)
    assert "[swap]\nepsilon = 0.1\nhidden = 16\n" in Path("r/config.toml").read_text()
