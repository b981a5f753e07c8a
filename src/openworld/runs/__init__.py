"""The run folder and its contents: checkpoints, class names, outputs, the trained model, evaluation.

Training writes this folder. All code that shows results reads it.
It may import `core`, `compute`, `ops`, `data`, `nets` and `methods`.
"""
