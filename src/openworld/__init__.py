"""Open-world semi-supervised learning: classify the seen classes, discover the novel ones."""

__version__ = "0.1.0"
__all__ = ["OpenWorldClassifier", "__version__", "load_exported", "train_on"]


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
