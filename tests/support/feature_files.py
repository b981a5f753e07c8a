"""Files of features, for tests."""

from pathlib import Path

import numpy as np


def blobs(classes: int = 8, num_seen: int = 4, each: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Return features of a hundred samples of each class, and labels for some samples of the first classes."""
    truth = np.arange(100 * classes) % classes
    features = 8 * np.eye(classes, 12)[truth] + np.random.default_rng(0).normal(0, 1, (len(truth), 12))
    return features, np.where((truth < num_seen) & (np.arange(len(truth)) < each * classes), truth, -1)


def write_blobs(features: np.ndarray, labels: np.ndarray) -> Path:
    np.savez("blobs.npz", features=features, labels=labels)
    return Path("blobs.npz")
