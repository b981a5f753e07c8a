import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests run side by side; two threads each would only get in the way

import pytest
import torch
from worlds import run

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _away_from_the_repository(tmp_path, monkeypatch):
    """Whatever a test writes without being told where goes into its own folder, and so do caches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def refused(capsys):
    """What a command that ends with exit code 2 says, in one line."""

    def answer(*arguments: object) -> str:
        capsys.readouterr()
        assert run(*arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1, captured.err
        return captured.err.strip()

    return answer
