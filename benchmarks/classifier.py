"""Measure OpenWorldClassifier on the digits, as quoted in docs/python.md: classifier.py [--settings '{"muon": 0}'].

First, training gets two thirds of the digits, with half of the labels of 0 to 4, for the default number of steps. The
other third is for evaluation. Second, every sample has a label: three-fold cross-validation, compared with
scikit-learn's logistic regression. Writes benchmarks/results/estimator-digits.json.
"""

import argparse
import json
import shlex
import sys
import time
from pathlib import Path

import numpy as np
import torch
from measure import RESULTS, commit
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from openworld import OpenWorldClassifier
from openworld.core.config_files import write_toml
from openworld.core.fields import replace
from openworld.core.recipes import own
from openworld.ops.metrics import accuracy, confusion_matrix
from openworld.runs.environment import environment

SEEDS = 0, 1, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=json.loads, default={}, help="settings of the classifier, as JSON")
    parser.add_argument("--out", type=Path, default=RESULTS / "estimator-digits.json", help="result file")
    options = parser.parse_args()
    digits = load_digits()
    kinds = {"images": (digits.images * 255 / 16).astype(np.uint8), "features": digits.data}
    runs = []
    for kind, samples in kinds.items():
        for seed in SEEDS:
            runs.append({"kind": kind, "seed": seed, **open_world(samples, digits.target, seed, options.settings)})
            print(runs[-1], flush=True)
    ours = make_pipeline(StandardScaler(), OpenWorldClassifier(device="cpu", settings=options.settings))
    theirs = make_pipeline(StandardScaler(), LogisticRegression())
    content = {
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        "environment": environment(torch.device("cpu")),
        "config": write_toml(replace(own("digits"), options.settings)),
        "seeds": SEEDS,
        "runs": runs,
        "folds": {
            name: (100 * cross_val_score(classifier, digits.data, digits.target, cv=3)).tolist()
            for name, classifier in (("ours", ours), ("logistic regression", theirs))
        },
    }
    print(content["folds"])
    options.out.write_text(json.dumps(content, indent=1) + "\n")


def open_world(samples: np.ndarray, digits: np.ndarray, seed: int, settings: dict) -> dict[str, float]:
    train, test = train_test_split(np.arange(len(digits)), test_size=1 / 3, random_state=seed, stratify=digits)
    is_hidden = (digits[train] >= 5) | (np.random.default_rng(seed).random(len(train)) < 0.5)
    labels = np.where(is_hidden, -1, digits[train])
    began = time.monotonic()
    model = OpenWorldClassifier(num_classes=10, random_state=seed, device="cpu", settings=settings)
    model.fit(samples[train], labels)
    counts = confusion_matrix(digits[test], model.predict(samples[test]), num_classes=10, num_ids=10)
    scores = accuracy(counts, num_seen=5)
    return {"known": scores.seen, "new": scores.novel, "all": scores.all, "seconds": time.monotonic() - began}


if __name__ == "__main__":
    main()
