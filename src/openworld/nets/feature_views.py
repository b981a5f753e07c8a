"""The features of images by a frozen backbone: each image goes through it once for each of a few views.

The features are cached on disk by the content of the image. The random numbers of a view depend only on that content
and on the number of the view, so a cached view serves every run.

Shapes: N images, V views (the plain one first), B images at once, D features.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from openworld.core.errors import UserError, named
from openworld.core.places import cache_dir
from openworld.core.progress import CountDisplay
from openworld.data.augment import VIEWS, Family, family
from openworld.data.problem import OpenWorld
from openworld.data.row_cache import RowCache, read_rows, write_row
from openworld.data.samples import InMemory, Samples
from openworld.nets.backbones import Backbone
from openworld.ops.rng import generator

IMAGES_AT_ONCE = 256
"""Number of images that are read, and whose features are written to the cache, at once."""
ROWS_ON_A_CORE, ROWS_ON_A_GPU = 8, 256
"""Number of images in one pass through the backbone. On a CPU the activations of 8 photos fit into the cache."""


def with_features(world: OpenWorld, backbone: Backbone, num_random: int, augment: str, quiet: bool) -> OpenWorld:
    """Return the problem with the features of its images in place of the images.

    Args:
        world: the problem with images.
        backbone: the network that gives the features, on the device of the images.
        num_random: number of random views of each image, beside the plain one.
        augment: augmentation family of the random views.
        quiet: whether to print no progress.
    """
    source = ViewSource(backbone, augment, world.sample_shape[-1])
    total = (1 + num_random) * sum(map(len, world.images.values()))
    with CountDisplay(f"features by {backbone.description.kind}", quiet, " views") as display, source.computing():
        done, features = 0, {}
        for name, images in world.images.items():
            parts = []
            for part_BVD in source.features(images, num_random):
                parts.append(part_BVD)
                done += part_BVD.shape[0] * part_BVD.shape[1]
                display.tell(done, total)
            features[name] = InMemory(torch.cat(parts).to(world.training.device), world.training.device)
    if float(torch.cat([each.data[:, 0] for each in features.values()]).std(dim=0).max()) < 1e-6:
        raise UserError(
            f"{named('backbone', backbone.description.name)} gives the same features for all images; check the images "
            "and the weights"
        )
    return in_place_of_images(world, features, backbone.num_features)


def with_blank_features(world: OpenWorld, backbone: Backbone) -> OpenWorld:
    """Return the problem with zeros for features, which shows at once whether the settings fit it."""
    one, device = torch.zeros(1, 2, backbone.num_features), world.training.device
    blank = {name: InMemory(one.expand(len(each), -1, -1).to(device), device) for name, each in world.images.items()}
    return in_place_of_images(world, blank, backbone.num_features)


def in_place_of_images(world: OpenWorld, features: dict[str, Samples], num_features: int) -> OpenWorld:
    """Return the problem with (N, V, D) features in place of the images of the same part."""
    training = replace(
        world.training,
        labelled=features["labelled"],
        unlabelled=features["unlabelled"],
        mean=torch.zeros(num_features),
        std=torch.ones(num_features),
        augment=VIEWS,
    )
    truths = {name: replace(truth, samples=features[name]) for name, truth in world.truths.items()}
    return replace(world, training=training, truths=truths)


class ViewSource:
    """Gives the features of views of images: from the cache, or else from the backbone."""

    def __init__(self, backbone: Backbone, augment: str, side: int):
        self.backbone, self.device = backbone, backbone.mean.device
        self.family: Family = family(augment, torch.zeros(3), torch.ones(3))
        rounding = "-bfloat16" if self.device.type == "cuda" else ""
        self.place = cache_dir() / "features-1" / backbone.description.identity / f"{augment}-{side}{rounding}"
        self.stored: dict[int, dict[bytes, int]] = {}
        self.is_cached = True
        self.executor: ThreadPoolExecutor | None = None
        self.rows = ROWS_ON_A_CORE if self.device.type == "cpu" else ROWS_ON_A_GPU

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Let each core of a CPU work on images of its own, which is faster than all cores on the same images."""
        before = torch.get_num_threads()
        if self.device.type != "cpu":
            yield
            return
        with ThreadPoolExecutor(before, initializer=torch.set_num_threads, initargs=(1,)) as self.executor:
            try:
                yield
            finally:
                self.executor.shutdown(cancel_futures=True)
                torch.set_num_threads(before)
        self.executor = None

    def features(self, images: Samples, num_random: int) -> Iterator[Tensor]:
        """Yield the (B, V, D) features of all images, in their order, on the CPU."""
        keys = images.keys()
        for positions in torch.arange(len(images)).split(IMAGES_AT_ONCE):
            chosen = [keys[position] for position in positions.tolist()]
            out = torch.empty(len(chosen), 1 + num_random, self.backbone.num_features)
            pixels = None
            for view in range(1 + num_random):
                missing = self._read(view, chosen, out[:, view])
                if missing and pixels is None:
                    pixels = images.take(positions)
                if missing:
                    found = self.compute(pixels[missing], [chosen[row] for row in missing], view)
                    out[missing, view] = found
                    self._write(view, [chosen[row] for row in missing], found)
            yield out

    def compute(self, images: Tensor, keys: Sequence[bytes], view: int) -> Tensor:
        """Return the (B, D) features of one view of some images, on the CPU."""
        found, numbers = None, self._numbers(keys, view)
        while found is None:
            try:
                found = self._passes(images, numbers, view, self.rows)
            except torch.OutOfMemoryError:
                if self.rows == 1:
                    raise
            if found is None:
                self.rows //= 2
                torch.cuda.empty_cache()
        if not found.isfinite().all():
            raise UserError(f"{named('backbone', self.backbone.description.name)} gives NaN or infinity as a feature")
        return found

    def _passes(self, images: Tensor, numbers: Tensor, view: int, rows: int) -> Tensor:
        """Return the features of some images, `rows` of them in a pass."""
        batches = list(zip(images.split(rows), numbers.split(rows, dim=1), strict=True))
        run: Callable = self.executor.map if self.executor else map
        return torch.cat([part.cpu() for part in run(lambda batch: self._pass(*batch, view, rows), batches)])

    def _pass(self, images: Tensor, numbers: Tensor, view: int, rows: int) -> Tensor:
        """Return the features of at most `rows` images. The rounding must not depend on how many they are."""
        with torch.inference_mode():
            views = self.family.view(images, numbers.to(self.device)) if view else self.family.plain(images)
            filler = views[:1].expand(rows - len(views), *views.shape[1:])
            return self.backbone(torch.cat([views, filler]))[: len(views)]

    def _numbers(self, keys: Sequence[bytes], view: int) -> Tensor:
        """Return the random numbers of a view, a column for each image."""
        one = torch.empty(1, 3, 1, 1)
        sources = (generator(0, "backbone-view", view, int.from_bytes(key[:8])) for key in keys)
        return torch.cat([self.family.draw(one, source) for source in sources], dim=1)

    def _cache(self, view: int) -> RowCache:
        return RowCache(self.place / str(view), 4 * self.backbone.num_features)

    def _read(self, view: int, keys: Sequence[bytes], out_BD: Tensor) -> list[int]:
        """Read the cached features into `out_BD`. Return the rows that the cache does not hold."""
        cache = self._cache(view)
        if view not in self.stored:
            self.stored[view] = cache.find()
        rows = [row for row, key in enumerate(keys) if key in self.stored[view]]
        found = np.empty((len(rows), self.backbone.num_features), dtype="<f4")
        try:
            if rows:
                places = [self.stored[view][keys[row]] for row in rows]
                read_rows(cache.rows_path, places, cache.row_bytes, memoryview(found).cast("B"))
        except OSError:  # users may delete the cache at any time
            rows, self.stored[view] = [], {}
        out_BD[rows] = torch.from_numpy(found[: len(rows)].astype(np.float32, copy=False))
        return sorted({*range(len(keys))} - {*rows})

    def _write(self, view: int, keys: Sequence[bytes], features_BD: Tensor) -> None:
        """Add features to the cache, if the disk has room for them."""
        cache = self._cache(view)
        try:
            if not self.is_cached or not cache.has_room_for(len(keys)):
                raise OSError("no room is left")
            with cache.writing() as first, cache.rows_path.open("r+b", buffering=0) as file:
                for number, features_D in enumerate(features_BD.numpy().astype("<f4", copy=False)):
                    write_row(file, first + number, features_D.tobytes())
                cache.commit(list(keys))
        except OSError as error:
            if self.is_cached:
                reason = f"{cache.folder}: {error.strerror or error}"
                print(f"warning: the features are not kept for later runs ({reason})", file=sys.stderr, flush=True)
            self.is_cached = False
