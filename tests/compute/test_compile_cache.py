"""The cache of compiled code, and one run with the compiler itself."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch
from worlds import CPU

from openworld.compute import compiling
from openworld.compute.compiling import compiled_path, load_compiled, save_compiled
from openworld.runs.folder import RunFolder

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def _a_new_process(monkeypatch):
    """Make openworld behave as in a new process."""
    monkeypatch.setattr(compiling.mode, "is_saved", False)
    load_compiled.cache_clear()


def path_of(*kind: object) -> Path:
    return compiled_path(CPU, *kind or ("kind",))


def test_what_was_never_kept_is_not_loaded():
    assert load_compiled(path_of()) is False


@pytest.mark.parametrize(
    "content",
    [b"", b"nonsense", zlib.compress(b"artifacts" * 50)[:-9], zlib.compress(b""), zlib.compress(b"nonsense")],
    ids=["empty", "not compressed", "truncated", "nothing", "no artifacts"],
)
def test_a_damaged_file_is_as_good_as_none(content, caplog, capsys):
    path_of().parent.mkdir(parents=True)
    path_of().write_bytes(content)
    assert load_compiled(path_of()) is False
    assert not caplog.records
    assert capsys.readouterr().err == ""


def test_a_file_that_cannot_be_read_is_as_good_as_none():
    path_of().mkdir(parents=True)
    assert load_compiled(path_of()) is False


@pytest.fixture
def artifacts(monkeypatch) -> bytes:
    """Compiled code that torch offers to save."""
    content = b"compiled code"
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (content, None))
    monkeypatch.setattr(compiling, "_num_new", lambda: 1)
    return content


def test_what_is_kept_is_what_is_loaded_once(monkeypatch, artifacts):
    loaded = []
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", lambda content: loaded.append(content) or "info")
    save_compiled(path_of())
    assert load_compiled(path_of()) is load_compiled(path_of()) is True
    assert loaded == [artifacts]
    assert load_compiled(path_of("other")) is False


@pytest.mark.usefixtures("artifacts")
def test_it_is_kept_once_in_a_process_and_nothing_else_is_left():
    save_compiled(path_of())
    assert list(path_of().parent.iterdir()) == [path_of()]
    path_of().unlink()
    save_compiled(path_of())
    save_compiled(path_of("other"))
    assert list(path_of().parent.iterdir()) == []


@pytest.mark.usefixtures("artifacts")
def test_what_was_found_is_not_kept_again(monkeypatch):
    monkeypatch.setattr(compiling, "_num_new", lambda: 0)
    save_compiled(path_of())
    assert not path_of().exists()


def test_where_torch_has_nothing_nothing_is_kept(monkeypatch):
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: None)
    monkeypatch.setattr(compiling, "_num_new", lambda: 1)
    save_compiled(path_of())
    assert not path_of().exists()


@pytest.mark.usefixtures("artifacts")
def test_a_cache_that_cannot_be_written_is_left_out(monkeypatch, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    save_compiled(path_of())
    assert load_compiled(path_of()) is False
    assert blocker.read_text() == "not a folder"


@pytest.mark.usefixtures("artifacts")
@pytest.mark.parametrize("call", ["mkdir", "write_bytes", "replace", "everything"])
def test_a_full_or_read_only_disk_does_not_stop_a_run(monkeypatch, call):
    """On a read-only disk, even removing a missing file fails."""

    def refuse(path, *arguments, **options):
        raise OSError(30, "Read-only file system", str(path))

    path = path_of()
    with monkeypatch.context() as patch:
        for name in ("mkdir", "write_bytes", "replace", "unlink") if call == "everything" else (call,):
            patch.setattr(Path, name, refuse)
        save_compiled(path)
    assert not path.parent.exists() or not any(path.parent.iterdir())


def test_the_file_follows_from_every_part_of_the_kind(monkeypatch):
    kind = ("trssl", "small", "digits", (1, 8, 8), 10, (8, 16))
    kinds = [kind] + [(*kind[:place], "other", *kind[place + 1 :]) for place in range(len(kind))]
    paths = [compiled_path(CPU, *kind) for kind in kinds]
    assert compiled_path(CPU, *kind) == paths[0]
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "some GPU")
    paths.append(compiled_path(CUDA, *kind))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "another GPU")
    paths.append(compiled_path(CUDA, *kind))
    monkeypatch.setattr(torch, "__version__", "0.0")
    paths.append(compiled_path(CPU, *kind))
    assert len(set(paths)) == len(paths) == len(kind) + 4


# The compiler itself -----------------------------------------------------------------------------------------

COUNTING = """
import atexit, json, sys
from pathlib import Path
from torch._dynamo.utils import counters
atexit.register(lambda: Path(sys.argv[1]).write_text(json.dumps(counters["inductor"])))
from openworld.cli import main
main(sys.argv[2:])
"""


def trained(name: str, *flags: str) -> tuple[str, dict[str, int]]:
    """Train in a new process and return its messages and torch's counters.

    Each process has its own cache folder of torch. All share the cache of openworld.
    """
    sizes = ["--steps", "4", "--epoch-steps", "2", "--batch-labelled", "8", "--batch-unlabelled", "16"]
    arguments = ["train", "digits", *sizes, "--uncertainty-views", "2", "--device", "cpu", "--out", name, "--json"]
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, f"{name}.counts", *arguments, *flags],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(Path(f"{name}.inductor").absolute())},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 4
    return done.stderr, json.loads(Path(f"{name}.counts").read_text())


def recorded_losses(name: str) -> list[float]:
    return [line["loss"] for line in RunFolder(Path(name)).metrics()]


@pytest.mark.slow
def test_a_compiled_run_learns_the_same_and_the_next_process_need_not_compile_it_again():
    """This test takes two minutes. It is the only one that runs the compiler."""
    told, counts = trained("first", "--compile", "on")
    assert "compiling" in told
    assert "--compile off" in told
    assert counts["fxgraph_cache_miss"] > 0
    _, counts = trained("second", "--compile", "on", "--epsilon", "0.05")
    assert counts["fxgraph_cache_hit"] > 0
    assert "fxgraph_cache_miss" not in counts
    told, counts = trained("plain", "--compile", "off")
    assert "compil" not in told
    assert counts == {}
    assert recorded_losses("first") == pytest.approx(recorded_losses("plain"), rel=1e-3)
    assert recorded_losses("second") == pytest.approx(recorded_losses("first"), rel=1e-6)
