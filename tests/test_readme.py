"""The README says what was recorded."""

import importlib.util
import json
import re
from pathlib import Path

from openworld.cli import make_parser

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_the_recorded_results():
    assert load("readme_table").with_table(README) == README


def test_every_flag_in_the_readme_exists():
    commands = make_parser()._subparsers._group_actions[0].choices
    known = {flag for parser in commands.values() for flag in parser._option_string_actions}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) <= known


def test_recorded_results_carry_their_evidence():
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        result = json.loads(path.read_text())
        assert result["command"].startswith("python "), path.name
        if "runs" in result:
            assert {"commit", "environment", "config", "seeds"} <= set(result), path.name
            assert len(result["runs"]) == len(result["seeds"])


def test_the_digits_meet_their_bar():
    digits = json.loads((ROOT / "benchmarks" / "results" / "digits.json").read_text())
    assert digits["seeds"] == [0, 1, 2]
    assert digits["all"]["mean"] >= 97
    assert digits["novel"]["mean"] >= 94
    assert digits["seconds"]["max"] <= 60
