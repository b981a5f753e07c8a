"""From a request to a run: settings, time budget, pretrained features, class count, the plan.

The command line, Python, the rows of the paper and the scripts all train through `request.execute`.
It may import every room above, up to `training`.
"""
