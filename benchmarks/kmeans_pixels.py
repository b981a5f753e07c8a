"""Measure the baseline that every method must beat: k-means with ten clusters on the pixels of the digits.

Writes benchmarks/results/kmeans-digits.json: clustering accuracy (Hungarian matching over all classes) on the test
part, for ten seeds of scikit-learn's KMeans, fitted on the training part.
"""

import json
import statistics
from pathlib import Path

import torch
from measure import commit
from sklearn.cluster import KMeans

from openworld.data.benchmarks import read_benchmark
from openworld.ops.metrics import accuracy, confusion_matrix
from openworld.runs.environment import environment


def main() -> None:
    dataset = read_benchmark("digits", Path())
    train, test = (pixels.reshape(len(pixels), -1) / 255 for pixels in (dataset.train.content, dataset.test.content))
    scores = []
    for seed in range(10):
        clusters = KMeans(10, n_init=10, random_state=seed).fit(train).predict(test)
        counts = confusion_matrix(dataset.test.labels, clusters, num_classes=10, num_ids=10)
        scores.append(accuracy(counts, num_seen=0).all)
    content = {
        "command": "python benchmarks/kmeans_pixels.py",
        "commit": commit(),
        "environment": environment(torch.device("cpu")),
        "all": {"mean": statistics.mean(scores), "std": statistics.stdev(scores)},
        "scores": scores,
    }
    path = Path(__file__).parent / "results" / "kmeans-digits.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(path, content["all"])


if __name__ == "__main__":
    main()
