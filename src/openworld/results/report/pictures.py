"""Small pictures of samples, and their places on the map of the features."""

import base64
import io
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from openworld.data.problem import OpenWorld
from openworld.nets.features import unit_features
from openworld.ops.rng import derived_seed
from openworld.runs.model import Model

QUALITY = 78
"""Quality of WebP pictures. Pictures with few pixels are stored without loss."""
FEW_PIXELS = 16
"""Largest side of a picture with few pixels. The page shows it without smoothing."""
GALLERY_PIXELS = 6_000_000
"""Pixels of all gallery pictures together: about 5 MB in the page."""
LARGEST_SIDE, SMALLEST_SIDE, ATLAS_SIDE = 160, 48, 56
"""Sides in pixels: of gallery pictures at most and at least, and of atlas pictures at most."""
MOST_POINTS, FEWEST_POINTS = 1200, 5
"""Largest and smallest number of points on a map. With fewer points there is no map."""
COMPONENTS = 50
"""Number of principal components that t-SNE gets."""
CHUNK = 256
"""Number of samples that are read at once."""

Sample = tuple[str, int]
"""A part of the data and a position in it."""


def take(world: OpenWorld, samples: Sequence[Sample]) -> list[Image.Image]:
    """Return the images of samples at the size that the network gets."""
    pictures: dict[Sample, Image.Image] = {}
    for part, rows in _rows(world, samples):
        pixels = world.images[part].take(rows).cpu().permute(0, 2, 3, 1).numpy()
        for position, image in zip(rows.tolist(), pixels, strict=True):
            pictures[part, position] = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    return [pictures[sample] for sample in samples]


def _rows(world: OpenWorld, samples: Sequence[Sample]) -> Iterator[tuple[str, Tensor]]:
    """Yield each part with the positions of its samples, in chunks."""
    for part in world.truths:
        positions = sorted({position for sample_part, position in samples if sample_part == part})
        for rows in torch.tensor(positions, dtype=torch.long).split(CHUNK):
            if len(rows):
                yield part, rows


def gallery_side(num_pictures: int) -> int:
    """Return the side of gallery pictures in pixels. It is smaller if there are more pictures."""
    return max(SMALLEST_SIDE, min(LARGEST_SIDE, math.isqrt(GALLERY_PIXELS // max(num_pictures, 1))))


def shrunk(picture: Image.Image, side: int) -> Image.Image:
    """Return a picture with at most this side."""
    return picture if picture.width <= side else picture.resize((side, side), Image.Resampling.LANCZOS)


def data_uri(picture: Image.Image, side: int) -> str:
    """Return a picture as a data URI. `side` is the side of one image in it, and decides whether loss is allowed."""
    content = io.BytesIO()
    picture.convert("RGB").save(content, "WEBP", quality=QUALITY, lossless=side <= FEW_PIXELS, method=4)
    return f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode()}"


def atlas(pictures: Sequence[Image.Image]) -> dict[str, int | str]:
    """Return many pictures as one, which is far smaller than single files. Picture n is cell n, row by row."""
    side = min(pictures[0].width, ATLAS_SIDE)
    columns = math.isqrt(len(pictures) - 1) + 1
    sheet = Image.new("RGB", (columns * side, -(-len(pictures) // columns) * side))
    for number, picture in enumerate(pictures):
        sheet.paste(shrunk(picture, side), (number % columns * side, number // columns * side))
    return {"image": data_uri(sheet, side), "side": side, "columns": columns, "rows": sheet.height // side}


# The map ---------------------------------------------------------------------------------------------------------


def chosen_evenly(sizes: dict[str, int]) -> list[Sample]:
    """Choose evenly spaced samples of every part: all of them, or an equal part of `MOST_POINTS`."""
    each = MOST_POINTS // max(len(sizes), 1)
    return [
        (part, int(position))
        for part, size in sizes.items()
        for position in np.linspace(0, size - 1, min(size, each)).round()
    ]


def features_of(world: OpenWorld, model: Model, samples: Sequence[Sample]) -> np.ndarray:
    """Return the features (N, D) of samples, in their order."""
    found: dict[Sample, Tensor] = {}
    for part, rows in _rows(world, samples):
        samples_taken = world.truths[part].samples.take(rows)
        features = unit_features(model.network, samples_taken, world.training.family).cpu()
        found.update(zip(((part, position) for position in rows.tolist()), features, strict=True))
    return torch.stack([found[sample] for sample in samples]).numpy()


def flattened(features_ND: np.ndarray, seed: int) -> np.ndarray | None:
    """Return places (N, 2) in the unit square by t-SNE: similar samples are close together.

    Return None if there are too few samples or all features are equal.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    features = features_ND.astype(np.float64)
    num_samples = len(features)
    if num_samples < FEWEST_POINTS or np.ptp(features, axis=0).max() < 1e-6:
        return None
    components = PCA(min(COMPONENTS, *features.shape), svd_solver="full").fit_transform(features)
    places = TSNE(
        perplexity=min(30, (num_samples - 1) / 3),
        init="pca" if components.shape[1] > 1 else "random",
        random_state=derived_seed(seed, "map") % 2**32,
    ).fit_transform(components)
    low, high = places.min(axis=0), places.max(axis=0)
    return (places - low) / np.maximum(high - low, 1e-9)
