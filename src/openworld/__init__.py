"""Open-world semi-supervised learning: classify the seen classes, discover the novel ones."""

import os

__version__ = "0.1.0"
__all__ = ["OpenWorldClassifier", "__version__", "load_exported", "train_on"]

# OpenMP reads this when torch is imported: how long a thread spins before it sleeps. The default is so long that a step
# takes 30 times as long when another process wants a core. This value costs nothing on an idle machine
# (docs/findings.md#finding-openmp-spin).
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
# torch reads this at its import, too: the CPU computes what Apple's GPU lacks, instead of an error.
os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")


def __getattr__(name: str):
    """Import the public names on first use, so that `import openworld` does not load torch or scikit-learn."""
    if name == "train_on":
        from openworld.api import train_on

        return train_on
    if name == "OpenWorldClassifier":
        from openworld.classifier import OpenWorldClassifier

        return OpenWorldClassifier
    if name == "load_exported":
        from openworld.results.export import load_exported

        return load_exported
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
