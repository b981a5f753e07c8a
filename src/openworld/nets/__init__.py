"""Networks: bodies, heads, their features, and the copy that only predicts.

Normalisation is inside the network, so a checkpoint is complete.
It may import `core`, `compute`, `ops` and `data`.
"""
