"""What a person is told about a run before it begins."""

from openworld.core.config import Config
from openworld.core.errors import named
from openworld.core.progress import duration
from openworld.data.dataset import Dataset
from openworld.data.decode import SUFFIXES
from openworld.data.own import kinds_of
from openworld.data.problem import OpenWorld


def describe(
    config: Config, dataset: Dataset, world: OpenWorld, seconds: float | None, source: str | None
) -> list[str]:
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
            lines.append(f"left out: {len(world.dropped):,} broken images, which split.json names")
        if dataset.left_out:
            lines.append(f"left out: {kinds_of(dataset.left_out)} (images end in {', '.join(sorted(SUFFIXES))})")
        total = config.problem.num_classes
        if source is None and len(dataset.class_names) > num_seen:
            source = "named in the test part or the manifest"
        elif source is None:
            how_many = f"{named('num_classes')} says how many, auto estimates them"
            source = f"assumed: as many new ones as known ones; {how_many}"
        lines.append(f"classes: {total}, of which {total - num_seen} are new ({source})")
    if not dataset.has_features and training.image_size:
        lines.append(f"images at {training.image_size} x {training.image_size} pixels, network {training.network}")
    labelled, which = f"{training.batch_labelled} labelled + ", "unlabelled"
    if not config.options.method().uses_labels:
        labelled, which = "", kind
    if not config.options.method().makes_steps:
        return [*lines, f"{config.method} is fitted once: no steps"]
    length = f"{training.steps:,} steps of {labelled}2 x {training.batch_unlabelled} {which}"
    when = f"about {duration(seconds)} from now ({named('minutes')})" if seconds else "as you say"
    return [*lines, f"{length}: {when}"]
