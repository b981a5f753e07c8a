"""Novel class discovery on the digits and on own photos, beside what scikit-learn gives: ncd.py SET [SET ...].

    python benchmarks/ncd.py pets-7 pets-8 flowers-7

SET is a folder of photos of shared/photo-sets, with SET.csv beside it, which holds the true classes. The script links
it without the unlabelled photos of seen classes, and trains it with and without `--task ncd`. On the same features,
and on the pixels of the digits, it fits what a person would do instead: k-means of the unlabelled samples with as many
clusters as there are novel classes, then logistic regression on the labels and the clusters. Writes results/ncd.json.
"""

import csv
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from measure import RESULTS, commit
from own_photos import Features, num_classes_of, plain_features
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

from openworld import train_on
from openworld.compute.runtime import make_runtime
from openworld.ops.metrics import accuracy, confusion_matrix, task_aware_predictions
from openworld.runs.environment import environment
from openworld.runs.folder import RunFolder
from openworld.runs.world import open_world


def scikit_learn(found: Features) -> dict[str, float]:
    """Return task-aware novel accuracy and the task-agnostic ones of k-means and logistic regression."""
    num_novel = found.num_classes - found.num_seen
    clusters = found.num_seen + KMeans(num_novel, n_init=10, random_state=0).fit_predict(found.unlabelled)
    model = LogisticRegression(C=30, max_iter=1000).fit(found.all, np.concatenate([found.labels, clusters]))
    scores, truth = model.decision_function(found.test), found.test_labels
    aware = task_aware_predictions(scores, truth >= found.num_seen, found.num_seen)
    sizes = int(truth.max()) + 1, found.num_classes
    novel = accuracy(confusion_matrix(truth, aware, *sizes), found.num_seen).novel
    return {"task_aware": novel, **vars(accuracy(confusion_matrix(truth, scores.argmax(1), *sizes), found.num_seen))}


def ours(summary: dict) -> dict[str, float]:
    aware = summary["protocols"].get("task-aware", {"novel": None})["novel"]
    return {"task_aware": aware, **{part: summary[part] for part in ("seen", "novel", "all")}}


def on_digits(seed: int, out: Path) -> dict[str, dict[str, float]]:
    summary = train_on("digits", task="ncd", seed=seed, out=out)
    run = RunFolder(out)
    world = open_world(run.config(), make_runtime("cpu", quiet=True), run)
    test, training = world.truths["test"], world.training
    pixels = [part.data.flatten(1).numpy() / 16.0 for part in (training.labelled, training.unlabelled, test.samples)]
    found = Features(pixels[0], training.labels.numpy(), *pixels[1:], test.labels, training.num_classes)
    return {"ours": ours(summary), "scikit-learn on pixels": scikit_learn(found)}


def on_photos(folder: Path, work: Path) -> dict[str, dict[str, float]]:
    """Train a set without the unlabelled photos of seen classes."""
    seen = {path.name for path in (folder / "labelled").iterdir()}
    truth = {row["path"]: row["truth"] for row in csv.DictReader(folder.with_suffix(".csv").read_text().splitlines())}
    linked = work / folder.name
    for path in folder.rglob("*.*"):
        name = str(path.relative_to(folder))
        if truth.get(name) not in seen or not name.startswith("unlabelled"):
            (linked / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(path, linked / name) if path.is_file() else None
    found = {}
    for task in ("ncd", "open-world"):
        out = work / f"{folder.name}-{task}"
        summary = train_on(str(linked), out=out, task=task, num_classes=num_classes_of(folder), device="cpu")
        found["ours" if task == "ncd" else "ours, without the task"] = ours(summary)
    features = plain_features(RunFolder(work / f"{folder.name}-ncd"))
    units = (
        F.normalize(torch.from_numpy(each)).numpy() for each in (features.labelled, features.unlabelled, features.test)
    )
    return {**found, "scikit-learn on the features": scikit_learn(features.replaced(*units))}


def main() -> None:
    content = {"command": f"python {shlex.join(sys.argv)}", "commit": commit(), "problems": {}}
    content["environment"] = environment(torch.device("cpu"))
    with tempfile.TemporaryDirectory(dir=Path(sys.argv[1]).resolve().parent) as work:
        for problem in (*sys.argv[1:], *(f"digits, seed {seed}" for seed in range(3))):
            is_digits = problem.startswith("digits")
            run = Path(work) / problem.replace(", ", "-").replace(" ", "-")
            result = on_digits(int(problem[-1]), run) if is_digits else on_photos(Path(problem), Path(work))
            content["problems"][Path(problem).name] = result
            (RESULTS / "ncd.json").write_text(json.dumps(content, indent=1) + "\n")
            print(
                problem,
                {
                    name: [round(s, 1) if s is not None else None for s in each.values()]
                    for name, each in result.items()
                },
                flush=True,
            )


if __name__ == "__main__":
    main()
