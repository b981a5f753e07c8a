"""Open-world semi-supervised learning: classify the known classes, discover the new ones."""

__version__ = "0.1.0"
__all__ = ["OpenWorldClassifier", "__version__", "train_on"]


def __getattr__(name: str):
    """torch and scikit-learn are imported when something is trained, not before."""
    if name == "train_on":
        from openworld.api import train_on

        return train_on
    if name == "OpenWorldClassifier":
        from openworld.estimator import OpenWorldClassifier

        return OpenWorldClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
