"""Open-world semi-supervised learning: classify the known classes, discover the new ones."""

__version__ = "0.1.0"
