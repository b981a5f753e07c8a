"""Features of views by a backbone: computed once, cached by content, the same in every run."""

import errno
import shutil

import pytest
import torch
from tiny_backbone import tiny_backbone
from worlds import CPU, RUNTIME

from openworld.core.config import Config
from openworld.core.errors import UserError
from openworld.core.fields import replace
from openworld.core.places import cache_dir
from openworld.data.augment import VIEWS, family
from openworld.data.own import from_arrays
from openworld.data.problem import OpenWorld, load_problem
from openworld.data.row_cache import RowCache
from openworld.data.samples import InMemory
from openworld.nets import feature_views as module
from openworld.nets.feature_views import ViewSource, with_features
from openworld.ops.rng import generator

BACKBONE = tiny_backbone()


def images(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator(seed, "photos"))


def features(samples: torch.Tensor, num_random: int = 2, backbone=BACKBONE, threads: int = 1) -> torch.Tensor:
    source = ViewSource(backbone, "photos", 32)
    torch.set_num_threads(threads)
    with source.computing():
        found = torch.cat(list(source.features(InMemory(samples, CPU), num_random)))
    assert torch.get_num_threads() == threads
    torch.set_num_threads(1)
    return found


def test_views_differ_and_the_first_is_the_plain_one():
    samples = images(5)
    found = features(samples)
    assert found.shape == (5, 3, BACKBONE.num_features)
    plain = BACKBONE(family("photos", torch.zeros(3), torch.ones(3)).plain(samples))
    torch.testing.assert_close(found[:, 0], plain, rtol=1e-4, atol=1e-5)
    for view in (1, 2):
        assert (found[:, view] - found[:, 0]).abs().max() > 1e-3
    assert (found[:, 1] - found[:, 2]).abs().max() > 1e-3


def test_a_cached_view_is_never_computed_again(monkeypatch):
    before = features(images(20))
    monkeypatch.setattr(ViewSource, "compute", lambda *_: pytest.fail("this was computed before"))
    assert torch.equal(features(images(20)), before)
    assert torch.equal(features(images(20)[7:9], num_random=1), before[7:9, :2])


def test_the_bits_do_not_depend_on_what_was_cached_or_on_the_number_of_threads():
    """A run that was stopped while it read features gets the same ones as an undisturbed run."""
    whole = features(images(21))
    shutil.rmtree(cache_dir())
    features(images(21)[[3, 8, 20]], num_random=1)
    assert torch.equal(features(images(21)), whole)
    shutil.rmtree(cache_dir())
    assert torch.equal(features(images(21), threads=2), whole)


def test_other_weights_have_a_cache_of_their_own():
    first = features(images(4))
    second = features(images(4), backbone=tiny_backbone(seed=1))
    assert (first - second).abs().max() > 1e-3
    assert torch.equal(features(images(4)), first)


def test_a_shorter_cache_than_its_keys_is_read_as_missing():
    before = features(images(6))
    for rows in cache_dir().rglob("rows.bin"):
        rows.write_bytes(rows.read_bytes()[:100])
    assert torch.equal(features(images(6)), before)


def test_a_cache_without_its_rows_is_filled_again_in_every_place(monkeypatch):
    """Several chunks are written. None may leave a hole that a later chunk, or a later run, reads as zeros."""
    monkeypatch.setattr(module, "IMAGES_AT_ONCE", 3)
    before = features(images(10))
    for rows in cache_dir().rglob("rows.bin"):
        rows.unlink()
    assert torch.equal(features(images(10)), before)
    assert torch.equal(features(images(10)), before)


def test_passes_that_do_not_fit_the_memory_are_halved(monkeypatch):
    before, usual = features(images(5)), ViewSource._pass
    shutil.rmtree(cache_dir())
    tried = []

    def small_only(source, samples, numbers, view, rows):
        tried.append(rows)
        if rows > 2:
            raise torch.OutOfMemoryError
        return usual(source, samples, numbers, view, rows)

    monkeypatch.setattr(ViewSource, "_pass", small_only)
    torch.testing.assert_close(features(images(5)), before, rtol=1e-4, atol=1e-5)
    assert tried[0] == 8
    assert {*tried} == {8, 4, 2}
    monkeypatch.setattr(ViewSource, "_pass", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError))
    with pytest.raises(torch.OutOfMemoryError):
        features(images(5, seed=1))


@pytest.mark.parametrize("when", ["there is no room", "the disk is full"])
def test_a_full_disk_costs_the_cache_and_not_the_run(monkeypatch, capsys, when):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    if when == "there is no room":
        monkeypatch.setattr(RowCache, "has_room_for", lambda self, rows: False)
    else:
        monkeypatch.setattr(RowCache, "commit", full)
    found = features(images(6))
    assert capsys.readouterr().err.count("the features are not kept for later runs") == 1
    monkeypatch.undo()
    assert torch.equal(features(images(6)), found)


def world_of(samples: torch.Tensor) -> OpenWorld:
    labels = torch.arange(len(samples)) % 4
    labels[labels > 1] = -1
    labels[8:] = -1
    config = replace(Config(), {"backbone": "efficientnet-lite0", "network": "adapter", "prior": "even"})
    config = replace(config, {"augment": "photos", "num_classes": 4})
    return load_problem(config, RUNTIME, dataset=from_arrays(samples.permute(0, 2, 3, 1).numpy(), labels.numpy()))


def test_a_problem_gets_features_in_place_of_images_and_keeps_the_images_to_show():
    before = world_of(images(24))
    after = with_features(before, BACKBONE, 2, "photos", quiet=True)
    assert after.training.augment == VIEWS
    assert after.training.unlabelled.shape == (3, BACKBONE.num_features)
    assert after.sample_shape == before.sample_shape == (3, 32, 32)
    assert after.images is before.images
    assert after.truths["unlabelled"].samples is after.training.unlabelled
    assert torch.equal(after.training.labels, before.training.labels)


def test_useless_features_stop_the_run():
    with pytest.raises(UserError, match="the same features for all images"):
        with_features(world_of(torch.zeros(24, 3, 32, 32, dtype=torch.uint8)), BACKBONE, 0, "photos", quiet=True)
    broken = tiny_backbone()
    broken.body.last.bias.data[0] = torch.nan
    with pytest.raises(UserError, match="NaN"):
        features(images(3), backbone=broken)
