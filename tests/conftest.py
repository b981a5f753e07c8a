"""Fixtures that all tests use."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run in parallel: more threads would only slow them down

import pytest
import torch
from worlds import run

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _away_from_the_repository(tmp_path, monkeypatch):
    """Run each test in its own folder, with its own caches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def refused(capsys):
    """Return a function that runs a command, expects exit code 2, and returns its one-line error message."""

    def message(*arguments: object) -> str:
        capsys.readouterr()
        assert run(*arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1, captured.err
        return captured.err.strip()

    return message
