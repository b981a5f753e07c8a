"""Networks: bodies (backbones), heads, features, and the copy for inference.

The network normalises its inputs itself, so a checkpoint is complete.
It may import `core`, `compute`, `ops` and `data`.
"""
