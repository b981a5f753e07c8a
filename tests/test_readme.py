"""The README says what was recorded."""

import importlib.util
import itertools
import json
import re
from pathlib import Path

from worlds import flags_of_commands

from openworld.paper import ITEMS
from openworld.paper.matching import objections
from openworld.paper.records import name_of

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
PAGES = [page for page in PAGES if not {"_build", "generated"} & {*page.parts}]
SITE_ONLY = ("index.md", "guide.md", "research.md", "development.md", "reference.md")
"""Pages that only lead to others."""
DIARY = ROOT / "docs" / "log"
"""Archived as it was written: with flags of then."""
NOT_OURS = {"--data", "--images", "--test-images", "--sides", "--known", "--new", "--seeds", "--help", "--version"}
"""Flags of scripts: the one that makes the tutorial's photos, and those that measure."""


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_the_recorded_results():
    tables = load("readme_table")
    for name in tables.MEASURED:
        assert tables.with_tables(name) == (ROOT / name).read_text()


def test_every_flag_on_a_page_exists():
    known = {flag for flags in flags_of_commands().values() for flag in flags}
    for page in PAGES:
        if DIARY not in page.parents:
            flags = re.findall(r"(?<![\w-])--[a-z][a-z-]+(?:\+?\.[a-z][a-z-]*)?", page.read_text())
            assert {flag for flag in flags if "swap" not in flag} <= known | NOT_OURS, page.name


def test_the_readme_names_every_page():
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name in SITE_ONLY or f"docs/{page.name}" in README


def test_every_link_leads_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            assert link.startswith("http") or (page.parent / link).exists(), f"{page.name}: {link}"


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
        rows = [(item, row) for item in ITEMS.values() if item for row in item.rows if row.data == result["dataset"]]
        assert any(not objections(result, item, row) for item, row in rows), path.name


def test_the_digits_meet_their_bar():
    digits = json.loads((ROOT / "benchmarks" / "results" / "digits.json").read_text())
    assert digits["seeds"] == [0, 1, 2]
    assert digits["all"]["mean"] >= 97
    assert digits["novel"]["mean"] >= 94
    assert digits["seconds"]["max"] <= 60
