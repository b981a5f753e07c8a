"""Build the network of a configuration: a body by its name, and the head of the method."""

import copy

import torch
from torch import Tensor

from openworld.core.config import Config
from openworld.data.augment import family
from openworld.data.problem import shown_shape
from openworld.nets.backbones import Backbone
from openworld.nets.bodies import Shape
from openworld.nets.inference import inference_copy
from openworld.nets.network import Network, build_network
from openworld.ops.rng import generator


def network_of(
    config: Config,
    shape: Shape,
    num_seen: int,
    num_classes: int,
    mean_C: Tensor,
    std_C: Tensor,
    backbone: Backbone | None = None,
) -> Network:
    """Return the network of a configuration with random initial weights.

    Args:
        config: the configuration of the run.
        shape: the shape of a sample in evaluation (`TrainingSet.shown_shape`), or of its features by a backbone.
        num_seen: the number of seen classes.
        num_classes: the number of all classes.
        mean_C: the mean of each channel or feature.
        std_C: the standard deviation of each channel or feature.
        backbone: the backbone, if the network takes images through it.
    """
    method, training = config.options.method(), config.training

    def build_head(width: int, source: torch.Generator) -> torch.nn.Module:
        return method.build_head(config, width, num_seen, num_classes, source)

    source = generator(config.seed, "weights")
    return build_network(training.network, shape, mean_C, std_C, build_head, source, training.norm_rows, backbone)


def inference_network(
    config: Config,
    sample_shape: Shape,
    num_seen: int,
    num_classes: int,
    weights: dict[str, Tensor],
    device: torch.device,
    backbone: Backbone | None = None,
) -> Network:
    """Return a network for inference only, with the weights of a checkpoint.

    The weights may lack those of the method's helpers, which take no part in predictions, and those of a backbone that
    was not trained. Raise a RuntimeError if the weights belong to another network.
    """
    mean_C, std_C = (weights[name].flatten() for name in ("mean", "std"))
    shape = mean_C.shape if backbone else shown_shape(family(config.training.augment, mean_C, std_C), sample_shape)
    network = network_of(config, tuple(shape), num_seen, num_classes, mean_C, std_C, copy.deepcopy(backbone))
    missing, unexpected = network.load_state_dict(weights, strict=False)
    needed = [name for name in missing if not name.startswith((*config.options.method().helpers, "backbone."))]
    if needed or unexpected:
        raise RuntimeError(f"the weights do not fit the network: {needed} are missing, {unexpected} are unknown")
    return inference_copy(network.to(device))
