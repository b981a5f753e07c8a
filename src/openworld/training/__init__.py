"""The training loop: the learner, the optimiser, the averaged model, and what a step costs.

`loop.train` goes from a configuration and a run folder to a summary. `learner.Learner` makes one step.
It may import every room above: `core`, `compute`, `ops`, `data`, `nets`, `methods` and `runs`.
"""
