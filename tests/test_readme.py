"""README and docs agree with the recorded results, the flags and the files."""

import importlib.util
import itertools
import json
import re
from pathlib import Path

from worlds import flags_of_commands

from openworld.paper.accuracy import item_of, objections
from openworld.paper.records import name_of

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = ("data", "design", "estimate", "export", "paper", "performance", "predict", "python", "report", "suggest")
PAGES += ("relay", "tutorial")
NOT_OURS = {"--data", "--images", "--test-images", "--sides", "--known", "--new", "--seeds"}
"""Flags of the scripts in benchmarks/, which the docs mention."""


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_the_recorded_results():
    tables = load("readme_table")
    for name in tables.MEASURED:
        assert tables.with_tables(name) == (ROOT / name).read_text()


def test_every_flag_in_the_readme_exists():
    known = {flag for flags in flags_of_commands().values() for flag in flags}
    for text in (README, *((ROOT / "docs" / f"{page}.md").read_text() for page in PAGES)):
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+(?:\+?\.[a-z][a-z-]*)?", text)) <= known | NOT_OURS


def test_every_page_is_named_and_every_link_leads_somewhere():
    for page in PAGES:
        assert f"docs/{page}.md" in README
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert link.startswith("http") or (path.parent / link).exists(), f"{path.name}: {link}"


def test_recorded_results_carry_their_evidence():
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        result = json.loads(path.read_text())
        assert result["command"].startswith("python "), path.name
        assert {"commit", "environment"} <= set(result), path.name
        if "runs" in result:
            assert {"commit", "environment", "config", "seeds"} <= set(result), path.name
            kinds = {run.get("kind", "") for run in result["runs"]}
            found = sorted((run.get("kind", ""), run["seed"]) for run in result["runs"])
            assert found == sorted(itertools.product(kinds, result["seeds"])), path.name  # each seed once, of each kind


def test_what_fills_the_papers_tables_carries_its_evidence():
    for path in (ROOT / "benchmarks" / "results" / "tables").glob("*.json"):
        result = json.loads(path.read_text())
        assert path.stem == name_of(result)
        assert all(result[name] for name in ("commit", "command", "environment", "config")), path.name
        assert result["epochs"][-1]["step"] == result["steps"], path.name
        assert item_of(result), path.name
        assert objections(result, item_of(result)) == [], path.name


def test_the_digits_meet_their_bar():
    digits = json.loads((ROOT / "benchmarks" / "results" / "digits.json").read_text())
    assert digits["seeds"] == [0, 1, 2]
    assert digits["all"]["mean"] >= 97
    assert digits["novel"]["mean"] >= 94
    assert digits["seconds"]["max"] <= 60
