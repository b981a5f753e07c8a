"""Measure what the class prior does on the digits: uneven classes, and one class too many. Writes results/priors.json.

    python benchmarks/priors.py

Each grid is what `openworld sweep` trains with these settings. A run is recorded as soon as its grid is done, with its
scores, the last prior that training estimated, and the true class sizes. Beside the uneven grid stands what a person
would do instead, on the same SimCLR features and on the pixels (`ALTERNATIVES` of own_photos.py).
"""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
from measure import RESULTS, commit
from own_photos import Features, alternatives

from openworld.compute.runtime import Runtime, make_runtime
from openworld.nets.features import extract
from openworld.planning.sweep import Outcome, carry_out, grid
from openworld.runs.environment import environment
from openworld.runs.evaluation import load_average
from openworld.runs.folder import RunFolder
from openworld.runs.world import open_world

SEEDS = [0, 1, 2]
FROM_FEATURES = {"recipe": "pretrained", "start_steps": 300, "steps": 200, "epoch_steps": 20}
GRIDS: dict[str, tuple[dict[str, list[Any]], dict[str, Any]]] = {
    "uneven": (
        {"imbalance": [1.0, 10.0], "prior": ["known", "even", "estimated"], "seed": SEEDS},
        {"data": "digits", **FROM_FEATURES},
    ),
    "one-class-too-many": (
        {"prior": ["even", "estimated"], "seed": SEEDS},
        {"data": "digits", "num_classes": 11},
    ),
}


def main() -> None:
    runtime = make_runtime("cpu", quiet=True)
    content = {
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        "environment": environment(runtime.device),
    }
    content["grids"] = {}
    for name, (varied, common) in GRIDS.items():
        outcomes = carry_out(grid(varied, common), Path("runs/priors") / name, runtime)
        runs = []
        for outcome in outcomes:
            split, facts = outcome.folder.split_and_facts()
            scores = {key: outcome.summary[key] for key in ("seen", "novel", "all", "nmi", "seconds", "class_sizes")}
            prior = outcome.folder.metrics()[-1].get("prior", facts["prior"])
            chosen = {key: outcome.trial.settings[key] for key in varied}
            runs.append({**chosen, **scores, "last_prior": prior, "true_class_sizes": split.class_sizes})
            print(name, chosen, [round(scores[part], 1) for part in ("seen", "novel", "all")], flush=True)
        content["grids"][name] = {"settings": common, "results": runs}
        if name == "uneven":
            known = [each for each in outcomes if each.trial.settings["prior"] == "known"]
            content["grids"][name]["alternatives"] = [beside(each, runtime) for each in known]
        (RESULTS / "priors.json").write_text(json.dumps(content, indent=1) + "\n")


def beside(outcome: Outcome, runtime: Runtime) -> dict[str, Any]:
    """Return the accuracies of the alternatives on the same images: on the shared features, and on the pixels."""
    run = RunFolder(Path(outcome.folder.config().training.start))
    world = open_world(run.config(), runtime, run)
    network, _ = load_average(run, run.config(), runtime.device, print)
    training, test = world.training, world.truths["test"]
    parts = training.labelled, training.unlabelled, test.samples
    inputs = {
        "features": [extract(network, part, training.family).numpy() for part in parts],
        "pixels": [part.data.flatten(1).numpy() / np.float32(16) for part in parts],
    }
    chosen = {key: outcome.trial.settings[key] for key in ("imbalance", "seed")}
    for name, (labelled, unlabelled, images) in inputs.items():
        labels = training.labels.numpy()
        chosen[name] = alternatives(Features(labelled, labels, unlabelled, images, test.labels, training.num_classes))
    return chosen


if __name__ == "__main__":
    main()
