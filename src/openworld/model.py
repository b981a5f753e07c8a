"""A trained network that answers for new samples. It needs its run folder, not the data that it was trained on."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from openworld.classes import Classes
from openworld.data.augment import Family, family
from openworld.errors import UserError
from openworld.evaluate import load_average
from openworld.nets import Network
from openworld.outputs import shares_of
from openworld.record import RunFolder
from openworld.rng import generator
from openworld.uncertainty import view_uncertainty


@dataclass(frozen=True)
class Model:
    """The averaged network of a run's newest checkpoint, and the names of its classes."""

    network: Network
    classes: Classes
    sample_shape: tuple[int, ...]
    """(C, H, W) of an image, (D,) of features."""
    family: Family
    """How views of a sample are made."""
    temperature: float
    """Of the softmax that makes cosines probabilities."""
    step: int
    device: torch.device

    @classmethod
    def load(cls, run: RunFolder, device: torch.device, warn: Callable[[str], None]) -> "Model":
        config, classes = run.config(), Classes.of(run)
        _, facts = run.split_and_facts()
        network, step = load_average(run, config, device, warn)
        if len(network.head.weight) != len(classes.outputs) or "sample_shape" not in facts:
            raise UserError(f"{run.path} is damaged: split.json and the checkpoint do not fit each other")
        views = family(config.training.augment, network.mean.flatten(), network.std.flatten())
        shape = tuple(facts["sample_shape"])
        return cls(network, classes, shape, views, config.trssl.temperature, step, device)

    @property
    def takes_images(self) -> bool:
        return len(self.sample_shape) == 3

    @torch.no_grad()
    def shares(self, samples: Tensor) -> Tensor:
        """(N, M) the probability of each class; of uint8 images (N, C, H, W) or float features (N, D)."""
        return self._shares(self.family.plain(samples.to(self.device)))

    @torch.no_grad()
    def features(self, samples: Tensor) -> Tensor:
        """(N, D) unit vectors, on which the classes are told apart."""
        return torch.nn.functional.normalize(self.network.features(self.family.plain(samples.to(self.device))))

    @torch.no_grad()
    def uncertainty(self, samples: Tensor, num_views: int) -> Tensor:
        """(N,) how much the probability of the favourite class changes over random views.

        All samples are changed in the same ways, so that no answer hangs on which others are asked about with it.
        """
        samples = samples.to(self.device)
        views = []
        for view in range(num_views):
            numbers = self.family.draw(samples[:1], generator(0, "predict", view, device=self.device))
            for_all = numbers.expand(len(numbers), len(samples), *numbers.shape[2:])
            views.append(self._shares(self.family.view(samples, for_all)))
        return view_uncertainty(torch.stack(views).log())

    def _shares(self, shown: Tensor) -> Tensor:
        return shares_of(self.network(shown), self.classes, self.temperature)
