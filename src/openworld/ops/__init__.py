"""Pure functions of tensors and arrays: Sinkhorn, mixup, losses, metrics, k-means, class count, random numbers.

The result of each function depends only on its arguments.
It may import `core` and `compute` (to mark functions that may be compiled).
"""
