"""A trained model that predicts new samples. It needs its run folder, but not the data that it was trained on."""

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from openworld.core.config import Config
from openworld.core.config_files import parsed_toml, restored_config, write_toml
from openworld.core.formats import upgraded_export
from openworld.data.augment import Family, family
from openworld.data.split import Split
from openworld.nets.backbones import Backbone, Description
from openworld.nets.building import inference_network
from openworld.nets.network import Network
from openworld.ops.rng import generator
from openworld.ops.uncertainty import view_uncertainty
from openworld.runs.classes import Classes
from openworld.runs.evaluation import find_checkpoint, load_average
from openworld.runs.folder import RunFolder
from openworld.runs.outputs import class_probabilities


@dataclass(frozen=True)
class Model:
    """The averaged network of a run's newest checkpoint, with the names of its classes."""

    network: Network
    classes: Classes
    sample_shape: tuple[int, ...]
    """(C, H, W) for images, (D,) for features."""
    family: Family
    """The augmentation that makes views of a sample."""
    temperature: float
    """Temperature of the softmax that turns logits into probabilities."""
    step: int
    device: torch.device

    @classmethod
    def load(cls, run: RunFolder, device: torch.device, warn: Callable[[str], None]) -> "Model":
        """Load the model of a run. `warn` receives messages about damaged checkpoints and unfinished runs."""
        config, (_, facts) = run.config(), run.split_and_facts()
        network, step = load_average(run, config, device, warn)
        return cls._from_network(network, config, Classes.of(run), tuple(facts["sample_shape"]), step)

    @classmethod
    def restored(
        cls,
        config: Config,
        classes: Classes,
        sample_shape: tuple[int, ...],
        weights: dict[str, Tensor],
        step: int,
        device: torch.device,
        backbone: dict[str, Any] | None = None,
    ) -> "Model":
        """Build a model without a run folder. Raise a RuntimeError if the weights belong to another network.

        `weights` are those of `all_weights`, and `backbone` is the description of the backbone in them.
        """
        empty = Backbone(Description.of(backbone)) if backbone else None
        sizes = classes.num_seen, len(classes.outputs)
        network = inference_network(config, sample_shape, *sizes, weights, device, empty)
        return cls._from_network(network, config, classes, sample_shape, step)

    @classmethod
    def _from_network(
        cls, network: Network, config: Config, classes: Classes, sample_shape: tuple[int, ...], step: int
    ) -> "Model":
        views = family(config.training.augment, network.mean.flatten(), network.std.flatten())
        return cls(network, classes, sample_shape, views, config.answers.temperature, step, network.mean.device)

    @property
    def takes_images(self) -> bool:
        return len(self.sample_shape) == 3

    @property
    def backbone(self) -> dict[str, Any] | None:
        """The description of the backbone, or None if there is none."""
        return asdict(self.network.backbone.description) if self.network.backbone else None

    def all_weights(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights of a checkpoint together with those of the backbone, if the checkpoint lacks them."""
        of_backbone = self.network.backbone.state_dict() if self.network.backbone else {}
        return {f"backbone.{name}": value.cpu().contiguous() for name, value in of_backbone.items()} | weights

    @torch.no_grad()
    def probabilities(self, samples: Tensor) -> Tensor:
        """Return (N, M): the probability of each class, for uint8 images (N, C, H, W) or float features (N, D)."""
        return self._probabilities(self.family.plain(samples.to(self.device)))

    @torch.no_grad()
    def features(self, samples: Tensor) -> Tensor:
        """Return (N, D): the features that the head classifies, as unit vectors."""
        return torch.nn.functional.normalize(self.network.features(self.family.plain(samples.to(self.device))))

    @torch.no_grad()
    def uncertainty(self, samples: Tensor, num_views: int) -> Tensor:
        """Return (N,): the standard deviation of the probability of the most probable class over random views.

        All samples get the same augmentations, so that no result depends on the other samples in the call.
        """
        samples = samples.to(self.device)
        views = []
        for view in range(num_views):
            numbers = self.family.draw(samples[:1], generator(0, "predict", view, device=self.device))
            repeated = numbers.expand(len(numbers), len(samples), *numbers.shape[2:])
            views.append(self._probabilities(self.family.view(samples, repeated)))
        return view_uncertainty(torch.stack(views).log())

    def _probabilities(self, views: Tensor) -> Tensor:
        return class_probabilities(self.network(views), self.classes, self.temperature)


@dataclass(frozen=True)
class PackedModel:
    """A model as text and bytes, which can be stored or sent without its run folder."""

    config: str
    """The configuration as TOML."""
    split: str
    """The content of split.json: the sample shape and the names of the outputs."""
    weights: bytes
    """The weights of the averaged network as safetensors."""
    step: int
    backbone: dict[str, Any] | None = None
    """The description of the backbone, whose weights are among the others; None without a backbone."""

    @classmethod
    def of(cls, run: RunFolder) -> "PackedModel":
        """Pack the model of a finished run. Raise a UserError if the run has no undamaged checkpoint."""
        saved = find_checkpoint(run, warnings.warn)
        model = Model.load(run, torch.device("cpu"), warnings.warn)
        weights = model.all_weights(saved.tensors("average"))
        return cls(write_toml(run.config()), run.split(), to_bytes(weights), model.step, model.backbone)

    def model(self, device: torch.device) -> Model:
        """Unpack the model."""
        where = "a packed model"
        tree = parsed_toml(self.config, where)
        config, _ = restored_config(tree, where)
        split, facts = Split.from_json(self.split, where)
        classes = Classes(tuple(facts["class_names"]), split.num_seen)
        weights = upgraded_export(from_bytes(self.weights), tree)
        return Model.restored(config, classes, tuple(facts["sample_shape"]), weights, self.step, device, self.backbone)
