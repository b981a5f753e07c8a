"""Measure the same training work in the arrangement of the authors' code, in every point that decides its cost.

The workers of data loaders make views one by one with Pillow. Each of the two views has its own forward pass, and each
third of the mixed batch too. Numbers are in TF32, images in NCHW. Nothing is compiled or recorded as a CUDA graph. The
host waits for every loss. The uncertainty comes from ten views of every image, which workers make as well. The
arithmetic is the same as ours.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image
from pillow_views import changed, solarized_or_equalized
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from openworld.compute.runtime import Runtime
from openworld.core.places import count_cores
from openworld.data import augment
from openworld.data.batches import Batch
from openworld.data.pool import CONTEXT
from openworld.data.samples import Samples
from openworld.methods.trssl import Trssl
from openworld.nets.building import network_of
from openworld.ops.losses import soft_cross_entropy
from openworld.ops.mix import mixup
from openworld.ops.uncertainty import temperatures, view_uncertainty
from openworld.training.step_cost import SIDE, Workload
from openworld.training.timing import seconds_of

WORKERS = min(4, count_cores())
"""Number of workers of each of the authors' loaders: four, or fewer if there are fewer cores."""
PASS_BATCH = 64
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
AVERAGING = 0.999


def measure_authors(workload: Workload, runtime: Runtime, report: Callable[[str], None]) -> dict[str, Any]:
    training, device = workload.config.training, runtime.device
    split = workload.world.split
    report("measuring the authors' arrangement ...")
    with tf32():
        theirs = Authors(workload, device)
        labelled = loader(Views(workload.pixels[list(split.labelled)], 1), training.batch_labelled)
        unlabelled = loader(Views(workload.pixels[list(split.unlabelled)], 2), training.batch_unlabelled)
        with Feed(labelled) as labelled_batches, Feed(unlabelled) as unlabelled_batches:

            def step() -> None:
                theirs.step(next(labelled_batches), next(unlabelled_batches))

            ahead = 2 * WORKERS  # batches that were ready before the timing would make the loaders look faster
            step_s = seconds_of(step, device, max(workload.repeats // 2, 3) + ahead)
        report(f"a step takes {1000 * step_s:.1f} ms; measuring a part of the ten-view pass ...")
        theirs.network.eval()
        views = workload.config.answers.uncertainty_views
        with Feed(loader(Views(workload.pixels, views), PASS_BATCH)) as batches:
            uncertainty_s = seconds_of(lambda: theirs.uncertainty(next(batches)), device, 3 * WORKERS + ahead)
        views_per_s = views * PASS_BATCH / uncertainty_s
        uncertainty_s *= len(split.unlabelled) / PASS_BATCH
        test = workload.world.truths["test"].samples
        evaluation_s = seconds_of(lambda: theirs.evaluate(test), device)
    return {
        "step_ms": 1000 * step_s,
        "uncertainty_s": uncertainty_s,
        "evaluation_s": evaluation_s,
        "epoch_s": training.epoch_steps * step_s + uncertainty_s + evaluation_s,
        "workers": 2 * WORKERS,
        "views": transforms()[0],
        "views_per_s_and_worker": views_per_s / WORKERS,
        "scaled": f"the pass from {(3 * WORKERS + ahead) * PASS_BATCH * 3:,} images, the epoch from steps and passes",
    }


class Authors:
    """The authors' training step and uncertainty."""

    def __init__(self, workload: Workload, device: torch.device):
        data, training = workload.world.training, workload.config.training
        network = network_of(workload.config, data.shown_shape, data.num_seen, data.num_classes, data.mean, data.std)
        self.network = network.to(device, memory_format=torch.contiguous_format)
        self.average = {name: value.clone() for name, value in self.network.state_dict().items()}
        self.method, self.device = Trssl(workload.config, data), device
        self.sgd = torch.optim.SGD(
            self.network.parameters(), lr=0.01, momentum=training.momentum, weight_decay=training.weight_decay
        )
        self.num_steps = 0

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, without the casts and the memory format of our own forward pass. Images arrive normalised."""
        return self.network.head(self.network.body(images))

    def step(self, labelled: tuple[list[Tensor], Tensor], unlabelled: tuple[list[Tensor], Tensor]) -> float:
        (images,), numbers = labelled
        views, index = unlabelled
        views = [view.to(self.device) for view in views]
        draws = self.method.draw(len(images) + sum(map(len, views)), self.num_steps)
        weight, partners = (draw.to(self.device) for draw in draws)
        with torch.no_grad():
            logits = torch.stack([self.forward(view) for view in views])
            pseudo_labels, _ = self.method.pseudo_labels(logits)
        labels, images = numbers.to(self.device) % self.method.num_seen, images.to(self.device)
        batch = Batch((images,), labels, tuple(views), index.to(self.device), images)
        rows = self.method.rows(batch, batch.views, pseudo_labels)
        images, targets, temperature = mixup(*rows, weight=weight, partners=partners)
        thirds = images.split([len(labels), len(index), len(index)])
        logits = torch.cat([self.forward(third) for third in thirds])
        loss = soft_cross_entropy(logits / temperature[:, None], targets)
        self.sgd.zero_grad()
        loss.backward()
        self.sgd.step()
        self.network.head.normalise()
        for name, value in self.network.state_dict().items():
            if value.is_floating_point():
                self.average[name].mul_(AVERAGING).add_(value, alpha=1 - AVERAGING)
        self.num_steps += 1
        return loss.item()

    @torch.no_grad()
    def uncertainty(self, batch: tuple[list[Tensor], Tensor]) -> Tensor:
        logits = [self.forward(view.to(self.device)) for view in batch[0]]
        return temperatures(view_uncertainty(torch.stack(logits)), self.method.temperature).cpu()

    @torch.no_grad()
    def evaluate(self, samples: Samples) -> None:
        for chunk in samples.chunks():
            self.forward(chunk / 255)


class Views(Dataset):
    """Data set of views, made one image at a time."""

    def __init__(self, pixels: np.ndarray, num_views: int):
        self.pixels, self.num_views, self.transform = pixels, num_views, transforms()[1]

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, position: int) -> tuple[list[Tensor], int]:
        image = Image.fromarray(self.pixels[position])
        return [self.transform(image) for _ in range(self.num_views)], position


def transforms() -> tuple[str, Callable[[Image.Image], Tensor]]:
    """Return a name and a function from an image to a normalised tensor.

    It is torchvision's, as in the authors' code. Without torchvision it is `by_hand`, which is faster.
    """
    try:
        import torchvision.transforms as tv
    except (ImportError, RuntimeError, AttributeError):  # torchvision is not installed, or not for this torch
        return "hand", by_hand
    crops = [tv.RandomCrop(SIDE, padding=SIDE // 8), tv.RandomResizedCrop(SIDE, scale=(0.5, 1.0))]
    jitter = tv.ColorJitter(augment.BRIGHTNESS, augment.CONTRAST, augment.SATURATION, augment.HUE)
    steps = [
        tv.RandomChoice(crops),
        tv.RandomHorizontalFlip(),
        tv.RandomApply([jitter], p=0.6),
        partial(solarized_or_equalized, rng=Random()),
        tv.ToTensor(),
        tv.Normalize(MEAN, STD),
    ]
    return f"torchvision {version('torchvision')}", tv.Compose(steps)


def by_hand(image: Image.Image) -> Tensor:
    """Return a random view as a normalised tensor. torch draws, converts and normalises, as in torchvision."""
    tensor = torch.from_numpy(np.array(changed(image, TorchRandom()))).permute(2, 0, 1).contiguous().float().div(255)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (MEAN, STD))
    return tensor.clone().sub_(mean).div_(std)


class TorchRandom:
    """The functions of `random.Random` that views need, with random numbers from torch."""

    def random(self) -> float:
        return torch.rand(1).item()

    def uniform(self, low: float, high: float) -> float:
        return torch.empty(1).uniform_(low, high).item()

    def randint(self, low: int, high: int) -> int:
        return torch.randint(low, high + 1, (1,)).item()

    def shuffle(self, items: list) -> None:
        items[:] = [items[position] for position in torch.randperm(len(items)).tolist()]


def loader(views: Views, batch_size: int) -> DataLoader:
    endless = RandomSampler(views, replacement=True, num_samples=2**30)
    return DataLoader(views, batch_size, sampler=endless, num_workers=WORKERS, multiprocessing_context=CONTEXT)


class Feed:
    """Context manager for an iterator over a loader. It stops the workers at the end."""

    def __init__(self, batches: DataLoader):
        self.iterator: Iterator | None = iter(batches)

    def __enter__(self) -> Iterator:
        return self.iterator

    def __exit__(self, *_: object) -> None:
        self.iterator._shutdown_workers()
        self.iterator = None


@contextmanager
def tf32() -> Iterator[None]:
    """Compute matrix products in TF32 too, as torch computes convolutions by default."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
