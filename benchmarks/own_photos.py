"""Train on sets of real photos and on nothing but their features otherwise: own_photos.py NAME SET [SET ...].

    python shared/photo-sets/make.py pets-7 GITDIR --match /images/ --class-from name --per 60 --labels 15 --classes 37
    python benchmarks/own_photos.py own-photos-pets pets-7 pets-8 pets-9

SET is a folder of photos with labelled/, unlabelled/ and test/. Each set is trained as a user would, with the number of
classes given: `openworld train SET --num-classes K`. Writes benchmarks/results/NAME.json: seen / novel / all accuracy
on the test photos (strict) of the run, of the clusters that it began with, and of what a person would do instead with
the same features: see `ALTERNATIVES`. Every set is recorded as soon as it is done.

    python benchmarks/own_photos.py auto-pets pets-7 pets-8 pets-9 --setting 'num_classes="auto"' --only-ours

lets the run estimate the number of classes, and leaves the alternatives out. With --as-features the plain features of
each run also go into a .npz file, and `openworld train` gets that.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from measure import RESULTS, commit
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from openworld import train_on
from openworld.compute.runtime import make_runtime
from openworld.ops.metrics import accuracy, confusion_matrix
from openworld.ops.whitening import within_class_whitening
from openworld.runs.environment import environment
from openworld.runs.folder import RunFolder
from openworld.runs.world import open_world


@dataclass(frozen=True)
class Features:
    """The features of a set, with the labels that training may see, and those of the test photos."""

    labelled: np.ndarray
    labels: np.ndarray
    unlabelled: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    num_classes: int

    @property
    def num_seen(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def all(self) -> np.ndarray:
        return np.concatenate([self.labelled, self.unlabelled])

    def replaced(self, labelled: np.ndarray, unlabelled: np.ndarray, test: np.ndarray) -> "Features":
        return replace(self, labelled=labelled, unlabelled=unlabelled, test=test)


def k_means(found: Features) -> np.ndarray:
    """k-means of all photos. Clusters are named by the labelled photos in them."""
    fitted = KMeans(found.num_classes, n_init=10, random_state=0).fit(found.all)
    return named_by_labels(fitted.labels_[: len(found.labels)], found)[fitted.predict(found.test)]


def whitened_k_means(found: Features) -> np.ndarray:
    """The same on features that are whitened by their covariance within the seen classes."""
    labelled, everything = torch.from_numpy(found.labelled), torch.from_numpy(found.all)
    one_hot = F.one_hot(torch.from_numpy(found.labels)).float()
    matrix = within_class_whitening(labelled, one_hot, everything, floor=1.0)
    parts = found.labelled, found.unlabelled, found.test
    whitened = (F.normalize((torch.from_numpy(part) - everything.mean(dim=0)) @ matrix).numpy() for part in parts)
    return k_means(found.replaced(*whitened))


def semi_supervised_k_means(found: Features, rounds: int = 50) -> np.ndarray:
    """Generalized Category Discovery's: labelled photos stay in their class, k-means++ starts the other centres."""
    seen = np.stack([found.labelled[found.labels == label].mean(axis=0) for label in range(found.num_seen)])
    best, best_inertia = None, np.inf
    for attempt in range(10):
        rng, centres = np.random.default_rng(attempt), list(seen)
        while len(centres) < found.num_classes:
            nearest = squared_distances(found.unlabelled, np.stack(centres)).min(axis=1).clip(min=0)
            centres.append(found.unlabelled[rng.choice(len(nearest), p=nearest / nearest.sum())])
        centres = np.stack(centres)
        for _ in range(rounds):
            distances = squared_distances(found.unlabelled, centres)
            members = np.concatenate([found.labels, distances.argmin(axis=1)])
            sums = np.eye(len(centres), dtype=np.float32)[members].T @ found.all
            counts = np.bincount(members, minlength=len(centres))
            centres = np.where(counts[:, None] > 0, sums / counts.clip(min=1)[:, None], centres)
        inertia = squared_distances(found.unlabelled, centres).min(axis=1).sum()
        if inertia < best_inertia:
            best, best_inertia = centres, inertia
    return squared_distances(found.test, best).argmin(axis=1)


def nearest_centroid(found: Features) -> np.ndarray:
    """The nearest mean of a seen class, unless it is farther than most labelled photos are; k-means of the rest."""
    seen = np.stack([found.labelled[found.labels == label].mean(axis=0) for label in range(found.num_seen)])
    limit = np.quantile(squared_distances(found.labelled, seen)[np.arange(len(found.labels)), found.labels], 0.95)
    distances = squared_distances(found.test, seen)
    rest = found.unlabelled[squared_distances(found.unlabelled, seen).min(axis=1) > limit]
    num_novel = found.num_classes - found.num_seen
    if len(rest) < num_novel or not num_novel:
        return distances.argmin(axis=1)
    novel = found.num_seen + KMeans(num_novel, n_init=10, random_state=0).fit(rest).predict(found.test)
    return np.where(distances.min(axis=1) > limit, novel, distances.argmin(axis=1))


def label_spreading(found: Features) -> np.ndarray:
    """Label spreading over the nearest neighbours. It knows no new classes."""
    labels = np.concatenate([found.labels, np.full(len(found.unlabelled), -1)])
    return LabelSpreading(kernel="knn", n_neighbors=10).fit(found.all, labels).predict(found.test)


def self_training(found: Features) -> np.ndarray:
    """Self-training of logistic regression. It knows no new classes."""
    labels = np.concatenate([found.labels, np.full(len(found.unlabelled), -1)])
    base = LogisticRegression(C=30, max_iter=300)
    return SelfTrainingClassifier(base).fit(found.all, labels).predict(found.test)


def hdbscan(found: Features) -> np.ndarray:
    """HDBSCAN of all photos. A test photo gets the cluster of its nearest neighbour, or none where that is noise."""
    labels = HDBSCAN(min_cluster_size=5, copy=True).fit(found.all).labels_
    names = np.append(named_by_labels(labels[: len(found.labels)], found, int(labels.max()) + 1), -1)
    nearest = (found.test @ found.all.T).argmax(axis=1)
    return names[labels[nearest]]


KEPT = "seen", "novel", "all", "num_classes", "steps", "seed", "backbone", "class_sizes"
"""What is recorded of the summary of a run."""
ALTERNATIVES: dict[str, Callable[[Features], np.ndarray]] = {
    "k-means": k_means,
    "k-means, whitened": whitened_k_means,
    "semi-supervised k-means": semi_supervised_k_means,
    "nearest centroid, k-means of the rest": nearest_centroid,
    "HDBSCAN": hdbscan,
    "label spreading": label_spreading,
    "self-training": self_training,
}


def squared_distances(samples: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return (samples**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2 * samples @ centres.T


def named_by_labels(clusters: np.ndarray, found: Features, num_clusters: int | None = None) -> np.ndarray:
    """Return the class of each cluster: seen classes by most labelled photos, other clusters are novel classes."""
    num_clusters = num_clusters or found.num_classes
    counts = np.zeros((num_clusters, found.num_seen))
    inside = clusters >= 0
    np.add.at(counts, (clusters[inside], found.labels[inside]), 1)
    rows, columns = linear_sum_assignment(-counts)
    names = np.full(num_clusters, -1)
    names[rows] = columns
    names[names < 0] = found.num_seen + np.arange((names < 0).sum())
    return names


def scores(predictions: np.ndarray, truth: np.ndarray, num_seen: int) -> dict[str, float | None]:
    """Return the strict accuracies. A photo without a prediction, -1, counts as wrong."""
    num_outputs = max(int(predictions.max()) + 1, int(truth.max()) + 1) + 1
    predictions = np.where(predictions < 0, num_outputs - 1, predictions)
    return vars(accuracy(confusion_matrix(truth, predictions, int(truth.max()) + 1, num_outputs), num_seen, "trssl"))


def trained(folder: Path, out: Path, flags: dict[str, Any]) -> tuple[dict[str, Any], RunFolder]:
    """Train as `openworld train` does, and return what is recorded of the run."""
    began = time.monotonic()
    summary = train_on(str(folder), out=out, device="auto", quiet=False, **flags)
    run = RunFolder(out)
    first, estimate = run.metrics()[0], run.read_json("estimate.json")
    return {
        **{name: summary[name] for name in KEPT},
        "estimate": estimate and {name: estimate[name] for name in ("num_classes", "low", "high")},
        "keeps_first_clusters": summary.get("keeps_first_clusters"),
        "first_clusters": {name: first["average"][name] for name in ("seen", "novel", "all")},
        "agreement": [line.get("agreement") for line in run.metrics()],
        "seconds_from_command_to_classes": round(time.monotonic() - began, 1),
        "views": run.config().training.backbone_views,
        "config": run.read("config.toml"),
    }, run


def plain_features(run: RunFolder) -> Features:
    """Return the features of the plain views that the run used."""
    world = open_world(run.config(), make_runtime("cpu", quiet=True), run)
    training, test = world.training, world.truths["test"]
    parts = training.labelled, training.unlabelled, test.samples
    labelled, unlabelled, of_test = (training.family.plain(part.data).numpy() for part in parts)
    return Features(labelled, training.labels.numpy(), unlabelled, of_test, test.labels, training.num_classes)


def write_npz(features: Features, path: Path) -> None:
    """Write the features as someone would who has computed them elsewhere: -1 stands for no label."""
    labels = np.concatenate([features.labels, np.full(len(features.unlabelled), -1)])
    test = {"test_features": features.test, "test_labels": features.test_labels}
    np.savez(path, features=features.all, labels=labels, **test)


def alternatives(features: Features) -> dict[str, Any]:
    """Return the accuracies of the alternatives on the features as unit vectors."""
    parts = features.labelled, features.unlabelled, features.test
    found = features.replaced(*(F.normalize(torch.from_numpy(part)).numpy() for part in parts))
    results = {}
    for name, method in ALTERNATIVES.items():
        began = time.monotonic()
        accuracies = scores(method(found), found.test_labels, found.num_seen)
        results[name] = accuracies | {"seconds": round(time.monotonic() - began, 1)}
        print(f"  {name}: {results[name]}", file=sys.stderr, flush=True)
    return results


def num_classes_of(folder: Path) -> int:
    """Return the number of classes, which the user knows here: as many as the test photos have."""
    return sum(path.is_dir() for path in (folder / "test").iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="NAME of the result file")
    parser.add_argument("sets", type=Path, nargs="+", help="folders of photos")
    parser.add_argument("--out", type=Path, default=Path("own-photos-runs"), help="folder of the runs")
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="a setting of train_on")
    parser.add_argument("--only-ours", action="store_true", help="leave the alternatives out")
    parser.add_argument("--as-features", action="store_true", help="train on a .npz file of the features as well")
    options = parser.parse_args()
    settings = {name: json.loads(value) for name, _, value in (each.partition("=") for each in options.setting)}
    record: dict[str, Any] = {
        "name": options.name,
        "command": f"python benchmarks/{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}",
        "commit": commit(),
        "environment": environment(torch.device("cpu")),
        "sets": {},
    }
    path = RESULTS / f"{options.name}.json"
    before = json.loads(path.read_text())["sets"] if path.exists() else {}  # alternatives are the same every time
    for folder in options.sets:
        out = options.out / f"{folder.name}-{options.name}"
        flags = {"num_classes": num_classes_of(folder), **settings}
        result, run = trained(folder, out, flags)
        known = before.get(folder.name, {})
        is_known = (known.get("backbone"), known.get("views")) == (result["backbone"], result["views"])
        if is_known and "alternatives" in known:
            result["alternatives"] = known["alternatives"]
        elif not options.only_ours:
            result["alternatives"] = alternatives(plain_features(run))
        if options.as_features:
            npz = out.with_suffix(".npz")
            write_npz(plain_features(run), npz)
            of_features = {name: value for name, value in flags.items() if not name.startswith("backbone")}
            result["as_features"], _ = trained(npz, out.with_name(f"{out.name}-features"), of_features)
        record["sets"][folder.name] = result
        record["mean"] = {
            name: round(statistics.mean(each[name] for each in record["sets"].values()), 2)
            for name in ("seen", "novel", "all")
        }
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(folder.name, {name: result[name] for name in ("seen", "novel", "all", "first_clusters")}, flush=True)


if __name__ == "__main__":
    main()
