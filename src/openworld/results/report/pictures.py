"""Small pictures of samples, and where each lies on a map of the features."""

import base64
import io
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from openworld.data.problem import OpenWorld
from openworld.ops.rng import derived_seed
from openworld.runs.model import Model

QUALITY = 78
"""Of WebP; pictures of few pixels are kept as they are."""
FEW_PIXELS = 16
GALLERY_PIXELS = 6_000_000
"""Of all pictures in the galleries together: about 5 MB in the page."""
LARGEST_SIDE, SMALLEST_SIDE, ATLAS_SIDE = 160, 48, 56
MOST_POINTS, FEWEST_POINTS = 1200, 5
COMPONENTS = 50
"""Of the principal components that t-SNE sees."""
CHUNK = 256

Sample = tuple[str, int]
"""A part and a position in it."""


def take(world: OpenWorld, samples: Sequence[Sample]) -> list[Image.Image]:
    """The images as the network sees them."""
    pictures: dict[Sample, Image.Image] = {}
    for part, rows in _rows(world, samples):
        pixels = world.truths[part].samples.take(rows).cpu().permute(0, 2, 3, 1).numpy()
        for position, image in zip(rows.tolist(), pixels, strict=True):
            pictures[part, position] = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    return [pictures[sample] for sample in samples]


def _rows(world: OpenWorld, samples: Sequence[Sample]) -> Iterator[tuple[str, Tensor]]:
    """Which rows of which part are wanted, a chunk at a time."""
    for part in world.truths:
        wanted = sorted({position for where, position in samples if where == part})
        for rows in torch.tensor(wanted, dtype=torch.long).split(CHUNK):
            if len(rows):
                yield part, rows


def gallery_side(num_pictures: int) -> int:
    """Pixels: the more pictures there are, the smaller each is."""
    return max(SMALLEST_SIDE, min(LARGEST_SIDE, math.isqrt(GALLERY_PIXELS // max(num_pictures, 1))))


def shrunk(picture: Image.Image, side: int) -> Image.Image:
    return picture if picture.width <= side else picture.resize((side, side), Image.Resampling.LANCZOS)


def data_uri(picture: Image.Image, side: int) -> str:
    """The picture in the text of the page, itself; `side` is that of what it shows."""
    content = io.BytesIO()
    picture.convert("RGB").save(content, "WEBP", quality=QUALITY, lossless=side <= FEW_PIXELS, method=4)
    return f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode()}"


def atlas(pictures: Sequence[Image.Image]) -> dict[str, int | str]:
    """Many pictures in one: the n-th is cell n, by rows. Far smaller than as many files."""
    side = min(pictures[0].width, ATLAS_SIDE)
    columns = math.isqrt(len(pictures) - 1) + 1
    sheet = Image.new("RGB", (columns * side, -(-len(pictures) // columns) * side))
    for number, picture in enumerate(pictures):
        sheet.paste(shrunk(picture, side), (number % columns * side, number // columns * side))
    return {"image": data_uri(sheet, side), "side": side, "columns": columns, "rows": sheet.height // side}


# The map ---------------------------------------------------------------------------------------------------------


def chosen_evenly(sizes: dict[str, int]) -> list[Sample]:
    """Samples of every part, as many of each as there are or fit, at even distances."""
    each = MOST_POINTS // max(len(sizes), 1)
    return [
        (part, int(position))
        for part, size in sizes.items()
        for position in np.linspace(0, size - 1, min(size, each)).round()
    ]


def features_of(world: OpenWorld, model: Model, samples: Sequence[Sample]) -> np.ndarray:
    """(N, D), in the order of the samples."""
    found: dict[Sample, Tensor] = {}
    for part, rows in _rows(world, samples):
        features = model.features(world.truths[part].samples.take(rows)).cpu()
        found.update(zip(((part, position) for position in rows.tolist()), features, strict=True))
    return torch.stack([found[sample] for sample in samples]).numpy()


def flattened(features_ND: np.ndarray, seed: int) -> np.ndarray | None:
    """(N, 2) within the unit square: near each other what is alike (t-SNE). None where all are the same."""
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
