"""Recorded results in a temporary folder, the rows that they give, and the scripts that read them."""

import importlib.util
import json
from pathlib import Path

import pytest

from openworld.paper import records as recorded
from openworld.paper import table_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(name="results")
def results_fixture(tmp_path, monkeypatch):
    """Return a function that records results in a temporary folder."""
    monkeypatch.setattr(recorded, "results_dir", lambda: tmp_path)
    folder = tmp_path / "tables"
    folder.mkdir()

    def put(*contents: dict) -> Path:
        for content in contents:
            (folder / f"{recorded.name_of(content)}.json").write_text(json.dumps(content))
        return folder

    return put


def ours(item: str = "table1", data: str = "cifar100") -> list[tuple[str, ...]]:
    """Return our rows of a data set as users see them, without the rows of the paper."""
    rows = [row for row in table_of(item).texts() if row[0].startswith(f"{data}, ")]
    return [row for row in rows if not row[0].endswith(" (paper)")]


def script(name: str, monkeypatch):
    """Import a script of benchmarks/. Scripts import one another, so their folder joins the path."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
