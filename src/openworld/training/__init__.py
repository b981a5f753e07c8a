"""The training loop: the learner, the optimiser, the averaged model, and the cost of a step.

`loop.train` takes a configuration and a run folder and returns a summary. `learner.Learner` makes one training step.
It may import every room above: `core`, `compute`, `ops`, `data`, `nets`, `methods` and `runs`.
"""
