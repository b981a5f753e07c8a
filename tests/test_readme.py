"""The README says what was recorded."""

import importlib.util
import json
import re
from pathlib import Path

from worlds import flags_of_commands

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DATA = (ROOT / "docs" / "data.md").read_text()
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text()
ESTIMATE = (ROOT / "docs" / "estimate.md").read_text()


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_the_recorded_results():
    tables = load("readme_table")
    for name in tables.TABLES:
        assert tables.with_table(name) == (ROOT / name).read_text()


def test_every_flag_in_the_readme_exists():
    known = {flag for flags in flags_of_commands().values() for flag in flags}
    for text in (README, DATA, PERFORMANCE, ESTIMATE):
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= known


def test_recorded_results_carry_their_evidence():
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        result = json.loads(path.read_text())
        assert result["command"].startswith("python "), path.name
        assert {"commit", "environment"} <= set(result), path.name
        if "runs" in result:
            assert {"commit", "environment", "config", "seeds"} <= set(result), path.name
            assert len(result["runs"]) == len(result["seeds"])


def test_the_digits_meet_their_bar():
    digits = json.loads((ROOT / "benchmarks" / "results" / "digits.json").read_text())
    assert digits["seeds"] == [0, 1, 2]
    assert digits["all"]["mean"] >= 97
    assert digits["novel"]["mean"] >= 94
    assert digits["seconds"]["max"] <= 60
