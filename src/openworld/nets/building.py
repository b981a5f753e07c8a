"""From a configuration to its network: a body by its name, and the head that its method builds."""

import torch
from torch import Tensor

from openworld.core.config import Config
from openworld.data.augment import family
from openworld.data.problem import shown_shape
from openworld.nets.bodies import Shape
from openworld.nets.inference import inference_copy
from openworld.nets.network import Network, build_network
from openworld.ops.rng import generator


def network_of(config: Config, shape: Shape, num_seen: int, num_classes: int, mean_C: Tensor, std_C: Tensor) -> Network:
    """With its first weights; `shape` is that of a sample as it is judged."""
    method, training = config.options.method(), config.training

    def build_head(width: int, source: torch.Generator) -> torch.nn.Module:
        return method.build_head(config, width, num_seen, num_classes, source)

    source = generator(config.seed, "weights")
    return build_network(training.network, shape, mean_C, std_C, build_head, source, training.norm_rows)


def inference_network(
    config: Config,
    sample_shape: Shape,
    num_seen: int,
    num_classes: int,
    weights: dict[str, Tensor],
    device: torch.device,
) -> Network:
    """One that only answers, with the weights of a checkpoint, for which it needs not those of the method's helpers.

    A RuntimeError where the weights are of another network.
    """
    mean_C, std_C = (weights[name].flatten() for name in ("mean", "std"))
    shape = shown_shape(family(config.training.augment, mean_C, std_C), sample_shape)
    network = network_of(config, shape, num_seen, num_classes, mean_C, std_C)
    missing, unexpected = network.load_state_dict(weights, strict=False)
    needed = [name for name in missing if not name.startswith(config.options.method().helpers)]
    if needed or unexpected:
        raise RuntimeError(f"the weights lack {needed}, and have {unexpected} that the network has not")
    return inference_copy(network.to(device))
