"""Make the notebook docs/tutorial.ipynb from the tutorial docs/tutorial.md.

python docs/make_notebook.py
"""

import re
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).parent
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def notebook(text: str) -> nbformat.NotebookNode:
    """Return a notebook: bash and Python blocks become code cells, everything else becomes text."""
    cells, end = [], 0
    for block in BLOCK.finditer(text):
        cells.append(new_markdown_cell(text[end : block.start()].strip()))
        language, code = block.groups()
        cells.append(new_code_cell(f"%%bash\n{code.strip()}" if language == "bash" else code.strip()))
        end = block.end()
    cells.append(new_markdown_cell(text[end:].strip()))
    cells = [cell for cell in cells if cell.source]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # fixed ids: the same text gives the same file
    return new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})


def written(text: str) -> str:
    """Return the notebook as the text of an .ipynb file."""
    return nbformat.writes(notebook(text)) + "\n"


if __name__ == "__main__":
    (HERE / "tutorial.ipynb").write_text(written((HERE / "tutorial.md").read_text()))
