"""Blobs of unit vectors, of which some seen ones have labels, and the proportion of them that a clustering finds."""

import torch
import torch.nn.functional as F

from openworld.ops.rng import generator


def blobs(sizes: list[int], spread: float = 0.5, stretch: float = 0.0, width: int = 16):
    """Return blobs of the given sizes, all stretched in one direction that says nothing about the class."""
    source = generator(0, "blobs")
    kinds = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    points = torch.randn(len(sizes), width, generator=source)
    samples = points[kinds] + spread * torch.randn(len(kinds), width, generator=source)
    samples[:, 0] += stretch * torch.randn(len(kinds), generator=source)
    return F.normalize(samples), kinds


def split(samples, kinds, num_seen: int, each: int):
    """Return features and labels of the first samples of each seen class, then features and classes of all others."""
    firsts = torch.cat([(kinds == kind).nonzero()[:each, 0] for kind in range(num_seen)])
    is_labelled = torch.zeros(len(kinds), dtype=torch.bool).index_fill_(0, firsts, True)
    return samples[is_labelled], kinds[is_labelled], samples[~is_labelled], kinds[~is_labelled]


def even(count: int):
    return torch.full((count,), 1 / count)


def share_found(shares, kinds, num_seen: int) -> float:
    """Return the proportion of samples in the right cluster.

    For a novel class that is the cluster with most of its samples, if no other novel class has the same.
    """
    clusters = shares.argmax(dim=1)
    right = (clusters == kinds)[kinds < num_seen].sum()
    novel = [clusters[kinds == kind] for kind in range(num_seen, int(kinds.max()) + 1)]
    places = [int(found.mode().values) for found in novel]
    right += sum((found == place).sum() for found, place in zip(novel, places, strict=True) if places.count(place) == 1)
    return float(right) / len(kinds)
