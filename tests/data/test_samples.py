"""Samples that stay in memory and samples that are read for each batch are the same samples."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from worlds import CPU, RUNTIME, tensors_of, write_photos

from openworld.core.errors import UserError
from openworld.core.fields import replace
from openworld.core.recipes import own
from openworld.data import samples as module
from openworld.data.batches import Batches, Views
from openworld.data.decode import decode
from openworld.data.loader import Loader
from openworld.data.own import from_arrays, read_own
from openworld.data.pool import Pool
from openworld.data.problem import OpenWorld, load_problem
from openworld.data.row_cache import RowCache
from openworld.data.samples import Concatenated, Feeder, InMemory, Streamed
from openworld.data.worker import read_piece
from openworld.runs.folder import RunFolder
from openworld.training.loop import train

SMALL = {"image_size": 8, "network": "small", "num_classes": 3, "steps": 4, "epoch_steps": 2, "uncertainty_views": 2}
CONFIG = replace(own("photos"), {**SMALL, "batch_labelled": 5, "batch_unlabelled": 12})
STREAMED = dataclasses.replace(RUNTIME, memory=0)


@pytest.fixture(autouse=True)
def photos() -> Path:
    return write_photos(Path("photos"), sides=(6, 9, 12))


def world_of(runtime, *, with_cache: bool = True) -> OpenWorld:
    with pytest.MonkeyPatch.context() as patch:
        if not with_cache:
            patch.setattr(RowCache, "has_room_for", lambda self, rows: False)
        return load_problem(CONFIG, runtime)


def batches_of(world: OpenWorld) -> Batches:
    return Batches(world.training, CONFIG.training, CONFIG.seed, Views())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("with_cache", [True, False])
def test_batch_k_is_the_same_on_both_paths(workers, with_cache):
    kept = world_of(RUNTIME)
    streamed = world_of(dataclasses.replace(STREAMED, workers=workers), with_cache=with_cache)
    assert isinstance(kept.training.unlabelled, InMemory)
    assert isinstance(streamed.training.unlabelled, Streamed)
    ours, theirs = batches_of(kept), batches_of(streamed)
    for step in (0, 1, 2, 3, 1, 9):  # in a row, back, and far ahead
        for first, second in zip(tensors_of(ours.at(step)), tensors_of(theirs.at(step)), strict=True):
            assert torch.equal(first, second)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_ends_in_the_same_bytes_on_both_paths(workers):
    for name, runtime in {"kept": RUNTIME, "streamed": dataclasses.replace(STREAMED, workers=workers)}.items():
        train(CONFIG, RunFolder(Path(name)), runtime)
    assert RunFolder(Path("kept")).summary()["seen"] is not None
    for path in Path("kept/checkpoints/step-00000004").iterdir():
        assert path.read_bytes() == (Path("streamed/checkpoints/step-00000004") / path.name).read_bytes(), path.name
    assert Path("kept/predictions.csv").read_bytes() == Path("streamed/predictions.csv").read_bytes()


@pytest.mark.parametrize("runtime", [RUNTIME, STREAMED])
def test_samples_are_the_decoded_files_in_their_order(runtime, photos):
    samples = world_of(runtime).truths["test"].samples
    paths = sorted(photos.glob("test/*/*"))
    expected = np.stack([decode(path.read_bytes(), 8) for path in paths]).transpose(0, 3, 1, 2)
    assert np.array_equal(torch.cat(list(samples.chunks())), expected)
    index = torch.tensor([5, 0, 5, 11])
    assert np.array_equal(samples.take(index), expected[index])
    assert (len(samples), samples.shape) == (12, (3, 8, 8))


def test_chunks_hold_so_many_pixels_at_most(monkeypatch):
    monkeypatch.setattr(module, "CHUNK_PIXELS", 5 * 8 * 8)
    for runtime in (RUNTIME, STREAMED):
        chunks = list(world_of(runtime).truths["test"].samples.chunks())
        assert [len(chunk) for chunk in chunks] == [5, 5, 2]


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_ring_too_small_for_a_batch_only_costs_time(monkeypatch, slots):
    """Whatever was asked for ahead of time, and however little room there is."""
    monkeypatch.setattr(module, "PIECE", 4)
    samples = world_of(STREAMED).training.unlabelled
    feeder = samples.feeder
    feeder.free_slots = feeder.free_slots[:slots]
    expected = world_of(RUNTIME).training.unlabelled
    for ahead, index in ((range(20, 28), range(30)), (range(8, 30), range(12)), (range(5), range(5))):
        samples.prefetch(torch.tensor(list(ahead)))
        assert torch.equal(samples.take(torch.tensor(list(index))), expected.take(torch.tensor(list(index))))
    assert len(feeder.free_slots) + len(feeder.pending) == slots


def test_all_workers_work_on_what_is_wanted_now(monkeypatch):
    """What was read ahead gives way, the last first; and a pass over the set is read ahead by more than a chunk."""
    monkeypatch.setattr(module, "PIECE", 2)
    samples = world_of(STREAMED).training.unlabelled
    feeder, submitted = samples.feeder, []
    feeder.free_slots = feeder.free_slots[:4]
    samples.prefetch(torch.arange(8))
    original = type(feeder.pool).submit
    monkeypatch.setattr(type(feeder.pool), "submit", lambda self, *work: submitted.append(1) or original(self, *work))
    samples.take(torch.arange(20, 28))
    assert len(submitted) == 4
    assert not feeder.pending
    monkeypatch.setattr(module, "CHUNK_PIXELS", 2 * 8 * 8)
    chunks = samples.chunks()
    next(chunks)
    assert len(feeder.pending) > 1


@pytest.fixture
def submitted(monkeypatch) -> list[str]:
    """The paths of the images that workers are to read."""
    paths, original = [], Pool.submit

    def submit(self, function, *work):
        if function is read_piece:
            paths.extend(item.path for item in work[2])
        return original(self, function, *work)

    monkeypatch.setattr(Pool, "submit", submit)
    return paths


@pytest.mark.parametrize("slots", [10, 12])
def test_what_nobody_comes_for_gives_way(monkeypatch, submitted, slots):
    """Two batches of five pieces need most of the ring, and others were requested before."""
    monkeypatch.setattr(module, "PIECE", 4)
    monkeypatch.setattr(module, "MOST_PIECES", slots)
    world = world_of(STREAMED)
    batches_of(world).draw(100)
    batches, read, while_reading = batches_of(world), Feeder.read, []

    def counting(self, *arguments):
        before = len(submitted)
        read(self, *arguments)
        while_reading.append(len(submitted) - before)

    monkeypatch.setattr(Feeder, "read", counting)
    for step in range(20):
        batches.draw(step)
    assert sum(while_reading[:2]) == 17  # nothing of the first batch was read ahead
    assert not any(while_reading[slots + 6 :])  # after a ring of reads, and two reads for each of three steps more


def test_only_what_was_told_of_long_ago_gives_way(monkeypatch, submitted):
    monkeypatch.setattr(module, "PIECE", 2)
    monkeypatch.setattr(module, "MOST_PIECES", 3)
    samples = world_of(STREAMED).training.unlabelled
    feeder, nothing = samples.feeder, torch.empty(0, dtype=torch.int64)
    submitted.clear()
    samples.prefetch(torch.arange(6))
    first, second, third = feeder.pending
    samples.take(nothing)
    samples.prefetch(torch.arange(2))
    for _ in range(2):
        samples.take(nothing)
    samples.prefetch(torch.arange(6, 10))  # requested three reads ago is not stale: there is no room
    assert list(feeder.pending) == [second, third, first]
    samples.take(nothing)
    samples.prefetch(torch.arange(2, 4))
    samples.prefetch(torch.arange(6, 10))
    assert list(feeder.pending)[:2] == [first, second]
    assert len(submitted) == 8  # only the third has given way, and so only one more has come
    samples.take(torch.tensor([6, 7, 0, 1, 2, 3]))
    assert len(submitted) == 8
    assert not feeder.pending


@pytest.mark.parametrize("size", [1, 3, 4, 5, 7, 11, 14, 18, 30])
def test_a_pass_decodes_every_image_once(monkeypatch, submitted, size):
    """Also where a chunk is more than half the ring, or more than all of it."""
    monkeypatch.setattr(module, "PIECE", 4)
    monkeypatch.setattr(module, "MOST_PIECES", 4)
    samples = world_of(STREAMED).training.unlabelled
    submitted.clear()  # posing the problem takes a pass too
    assert sum(map(len, samples.chunks(size))) == 30
    assert sorted(submitted) == sorted(item.path for item in samples.items)


def test_reading_ahead_asks_for_the_next_batches(monkeypatch):
    batches = batches_of(world_of(STREAMED))
    requested = []
    monkeypatch.setattr(Streamed, "prefetch", lambda self, index: requested.append(index.tolist()))
    batches.at(3)
    assert requested[1] == batches.at(4).index.tolist()
    assert requested[3] == batches.at(5).index.tolist()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_changes_during_training_stops_it(photos, workers):
    samples = world_of(dataclasses.replace(STREAMED, workers=workers), with_cache=False).training.unlabelled
    victim = sorted(photos.glob("unlabelled/*/*"))[0]
    Image.new("RGB", (9, 9)).save(victim)
    with pytest.raises(UserError, match=f"{victim.name} has changed"):
        samples.take(torch.tensor([0]))
    victim.unlink()
    with pytest.raises(UserError, match=f"{victim.name} cannot be read"):
        samples.take(torch.tensor([0]))


def test_a_cache_that_is_deleted_under_a_run_only_costs_time(tmp_path):
    expected = world_of(RUNTIME).training.unlabelled.take(torch.arange(30))
    samples = world_of(STREAMED).training.unlabelled
    assert all(item.row is not None for item in samples.items)
    shutil.rmtree(tmp_path / "cache")
    assert torch.equal(samples.take(torch.arange(30)), expected)


def test_a_split_is_refused_where_other_files_can_be_decoded(photos, monkeypatch):
    """Its positions would mean other samples."""
    (photos / "unlabelled/cat/000.png").write_text("text")
    dropping = replace(CONFIG, {"on_bad_image": "drop"})
    saved = load_problem(dropping, RUNTIME).split_json()
    assert load_problem(dropping, RUNTIME, saved).dropped
    other = json.dumps({**json.loads(saved), "dropped": {}})
    with pytest.raises(UserError, match=r"photos.*Pillow"):
        load_problem(dropping, RUNTIME, other)
    with pytest.raises(UserError, match=r"split\.json .*fingerprint"):
        load_problem(dropping, RUNTIME, json.dumps({k: v for k, v in json.loads(saved).items() if k != "fingerprint"}))


def test_a_worker_that_is_killed_is_an_error_and_not_a_hang():
    world = world_of(dataclasses.replace(STREAMED, workers=1), with_cache=False)
    samples = world.training.unlabelled
    samples.take(torch.arange(3))
    (process,) = samples.feeder.pool.executor._processes.values()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with pytest.raises(UserError, match=r"killed.*workers"):
        samples.take(torch.arange(3))


SLOW_TO_BEGIN = """
import time
from openworld.data import pool
pool.signal.signal = lambda *_: time.sleep(1)
working = pool.Pool(1)
working.submit(len, "")
print(*working.executor._processes, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_workers_die_with_the_process_they_work_for(photos):
    lock_for_training = f"""
import dataclasses, time, torch
from pathlib import Path
from openworld.data.loader import Loader
from openworld.data.own import read_own
from openworld.compute.runtime import Runtime
loader = Loader(read_own(Path({str(photos.absolute())!r})), 8, "refuse", Runtime(torch.device("cpu"), Path("x"), 2, 0))
samples = loader.samples("train", range(30))
samples.take(torch.arange(30))
samples.take(torch.arange(30).flip(0))
print(*[process.pid for process in samples.feeder.pool.executor._processes.values()], flush=True)
time.sleep(60)
"""
    for script in (lock_for_training, SLOW_TO_BEGIN):
        refuse_orphans(script)


def refuse_orphans(script: str) -> None:
    """Workers must be gone soon after their parent is, which prints their numbers."""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert workers
    assert all(is_alive(pid) for pid in workers)
    parent.kill()
    parent.wait()  # not until its output ends: an orphan would hold that open
    parent.stdout.close()
    until = time.monotonic() + 10
    while any(is_alive(pid) for pid in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(is_alive(pid) for pid in workers)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_arrays_that_do_not_fit_stay_in_memory_and_come_when_wanted():
    pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    dataset = from_arrays(pixels, [0, 1] * 5 + [-1] * 10)
    for runtime in (RUNTIME, STREAMED):
        samples = Loader(dataset, None, "refuse", runtime).samples("train", range(10, 20))
        assert torch.equal(samples.take(torch.tensor([3])), torch.from_numpy(pixels[13:14]).permute(0, 3, 1, 2))
        assert samples.device == CPU


def test_the_fingerprint_sees_every_change(photos):
    def fingerprint(change=lambda: None) -> str:
        change()
        return Loader(read_own(photos), 8, "refuse", RUNTIME).fingerprint

    before = fingerprint()
    assert fingerprint() == before
    one = sorted(photos.glob("unlabelled/*/*"))[0]
    seen = {before}
    for change in (
        lambda: one.write_bytes(one.read_bytes() + b"\0"),
        lambda: one.rename(one.with_name("renamed.png")),
        lambda: (photos / "labelled/cat/000.png").rename(photos / "labelled/dog/x.png"),
        lambda: (photos / "test/fox/000.png").unlink(),
    ):
        now = fingerprint(change)
        assert now not in seen
        seen.add(now)


def test_lots_are_numbered_through_and_taken_in_the_order_asked_for():
    first, second = (torch.arange(start, start + 5, dtype=torch.uint8).view(-1, 1, 1, 1) for start in (0, 5))
    joined = Concatenated(InMemory(first, CPU), InMemory(second, CPU))
    assert len(joined) == 10
    for wanted in ([7, 0, 9, 3, 3, 5], [1, 2], [8, 6]):
        assert joined.take(torch.tensor(wanted)).flatten().tolist() == wanted
