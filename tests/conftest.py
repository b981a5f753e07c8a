import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests run side by side; two threads each would only get in the way

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _away_from_the_repository(tmp_path, monkeypatch):
    """Whatever a test writes without being told where goes into its own folder, and so do caches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
