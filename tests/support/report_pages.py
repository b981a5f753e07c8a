"""Report pages of runs, and helpers to read them."""

import html
import json
import re
import shutil
from dataclasses import replace as changed
from pathlib import Path

import pytest
import torch
from worlds import RUNTIME, trained

from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.results.report import pictures, write_report
from openworld.runs.folder import RunFolder
from openworld.runs.outputs import read_outputs, write_outputs

TINY = {"steps": 4, "epoch_steps": 2, "batch_labelled": 8, "batch_unlabelled": 16, "uncertainty_views": 2}
DIGITS = replace(digits("digits"), TINY)
HERE = ["--device", "cpu", "--workers", "0", "--quiet"]
FLAGS = [part for name, value in TINY.items() for part in (f"--{name.replace('_', '-')}", str(value))] + HERE
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)<!--'


@pytest.fixture(autouse=True)
def _few_points(monkeypatch):
    """Plot few points: t-SNE of all points would take seconds for each page."""
    monkeypatch.setattr(pictures, "MOST_POINTS", 60)


@pytest.fixture(scope="module", name="digits_run")
def digits_run_fixture(tmp_path_factory) -> RunFolder:
    return trained(str(tmp_path_factory.mktemp("runs") / "digits"), DIGITS)


@pytest.fixture(name="copy")
def copy_fixture(digits_run) -> RunFolder:
    """A copy of the run that a test may change."""
    return RunFolder(shutil.copytree(digits_run.path, Path("copy").absolute()))


def page_of(folder: RunFolder, warn=None) -> str:
    def unexpected(message: str) -> None:
        raise AssertionError(message)

    return write_report([folder], None, RUNTIME, warn or unexpected).read_text(encoding="utf-8")


def data_in(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def text_of(page: str) -> str:
    """Return the text that a reader sees."""
    page = re.sub(r"<(style|script|title).*?</\1>", "", page, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def headings(page: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page)


def say(folder: RunFolder, noise: float = 0.3) -> None:
    """Change the logits of a run so that most predictions are correct, with novel outputs in another order."""
    source, outputs = torch.Generator().manual_seed(0), {}
    for part, output in read_outputs(folder).items():
        num_classes = output.logits.shape[1]
        logits = noise * torch.randn(output.logits.shape, generator=source)
        seen = num_classes // 2
        targets = torch.where(output.truth < seen, output.truth, num_classes - 1 - (output.truth - seen))
        logits[torch.arange(len(logits)), targets] += 1
        outputs[part] = changed(output, logits=logits)
    write_outputs(folder, outputs)
