"""Open the problem of a run: with images, or with the features that a frozen backbone gives for them."""

from openworld.compute.runtime import Runtime
from openworld.core.config import NO_BACKBONE, Config
from openworld.data.dataset import Dataset
from openworld.data.problem import OpenWorld, load_problem
from openworld.nets import backbones
from openworld.nets.backbones import Backbone, find_backbone
from openworld.nets.feature_views import with_features
from openworld.runs.folder import RunFolder


def open_world(
    config: Config, runtime: Runtime, run: RunFolder | None = None, dataset: Dataset | None = None
) -> OpenWorld:
    """Return the problem of a configuration.

    Args:
        config: the configuration.
        runtime: device, memory and workers.
        run: the run, if it exists already: its split and its backbone are used.
        dataset: the data, if the caller has opened it already.
    """
    world = load_problem(config, runtime, run.split() if run else None, dataset)
    training = config.training
    backbone = backbone_of(config, run)
    if backbone is None or training.finetune:
        return world
    backbone = backbone.to(runtime.device)
    return with_features(world, backbone, training.backbone_views, training.augment, runtime.quiet)


def backbone_of(config: Config, run: RunFolder | None = None) -> Backbone | None:
    """Return the backbone of a configuration, or None if it has none. A run that has started holds its own."""
    if config.training.backbone == NO_BACKBONE:
        return None
    return (backbones.kept(run.path) if run else None) or find_backbone(config.training.backbone)
