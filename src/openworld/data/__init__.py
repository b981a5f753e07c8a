"""From files to batches: readers, decoding, the split, the open-world problem, augmented views.

Training and evaluation get separate objects, so that ground truth cannot leak into training.
It may import `core`, `compute` and `ops`.
"""
