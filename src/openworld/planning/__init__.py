"""From a request to a run: settings, time budget, features learnt first, class count, the plan.

Everything that trains goes through `request.execute`: the command line, Python, the paper's rows, the scripts.
It may import every room above, up to `training`.
"""
