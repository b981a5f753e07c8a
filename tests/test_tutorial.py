"""Run the tutorial as it is written, but on a few small images and for a few steps."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from worlds import write_photos

DOCS = Path(__file__).parent.parent / "docs"
SMALLER = {
    "--minutes 5": "--steps 8 --epoch-steps 4 --uncertainty-views 2 --image-size 16",
    "minutes=5": "steps=8",
    "--count 20": "--count 5",
}
"""Replacements that make the tutorial short."""


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_notebook", DOCS / "make_notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def text() -> str:
    return (DOCS / "tutorial.md").read_text()


def test_the_notebook_is_the_tutorial(maker, text):
    assert (DOCS / "tutorial.ipynb").read_text() == maker.written(text)
    nbformat.validate(nbformat.read(DOCS / "tutorial.ipynb", as_version=4))


@pytest.mark.slow
def test_it_runs(maker, text, monkeypatch):
    write_photos(Path("photos"), sides=(16,))
    for number, path in enumerate(sorted(Path("photos/unlabelled").rglob("*.png"))):
        path.rename(f"photos/unlabelled/{number:05d}.jpg")  # the content decides the file type, not the name
    for folder in Path("photos/unlabelled").glob("*/"):
        folder.rmdir()
    for old, new in SMALLER.items():
        assert old in text
        text = text.replace(old, new)
    notebook = maker.notebook(text)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    script, _, rest = first.source.partition("openworld data check")  # the test wrote the photos already
    assert "example_photos.py" in script
    first.source = f"%%bash\nopenworld data check{rest}"
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("%%bash"):
            cell.source = cell.source.replace("%%bash", "%%bash\nset -e", 1)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    assert Path("trip/report.html").exists()
    assert Path("trip.onnx").exists()
    assert shutil.which("openworld")
