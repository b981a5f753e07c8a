"""The run folder and what is read from it: checkpoints, class names, outputs, the trained model, evaluation.

Training writes this folder. Everything that shows results reads it.
It may import `core`, `compute`, `ops`, `data`, `nets` and `methods`.
"""
