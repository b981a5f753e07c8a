"""The tutorial as a notebook: docs/tutorial.md is the text, this makes docs/tutorial.ipynb of it.

python docs/make_notebook.py
"""

import re
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).parent
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def notebook(text: str) -> nbformat.NotebookNode:
    """Commands and Python become cells that can be run, all else is text."""
    cells, end = [], 0
    for block in BLOCK.finditer(text):
        cells.append(new_markdown_cell(text[end : block.start()].strip()))
        language, code = block.groups()
        cells.append(new_code_cell(f"%%bash\n{code.strip()}" if language == "bash" else code.strip()))
        end = block.end()
    cells.append(new_markdown_cell(text[end:].strip()))
    cells = [cell for cell in cells if cell.source]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same every time
    return new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})


def written(text: str) -> str:
    return nbformat.writes(notebook(text)) + "\n"


if __name__ == "__main__":
    (HERE / "tutorial.ipynb").write_text(written((HERE / "tutorial.md").read_text()))
