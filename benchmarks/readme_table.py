"""The README's table of measured claims, made from benchmarks/results: readme_table.py writes it into the README."""

import json
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"


def table() -> str:
    """Markdown rows of what was recorded, and nothing else."""
    rows = [
        "| digits (1,797 images of 8x8; 5 classes seen with 10% labelled, 5 novel) | Seen | Novel | All | seconds |",
        "|---|---|---|---|---|",
    ]
    ours, floor = read("digits"), read("kmeans-digits")
    seeds, cores = ", ".join(map(str, ours["seeds"])), ours["environment"]["cpu_count"]
    rows.append(row(f"`openworld train`, seeds {seeds}, {cores} CPU cores", ours))
    rows.append(row("the same, seeds 10 to 14, which no tuning has seen", read("digits-untouched-seeds")))
    rows.append(f"| k-means on the pixels, no labels used, 10 seeds | - | - | {spread(floor['all'])} | - |")
    return "\n".join(rows) + "\n"


def row(what: str, result: dict) -> str:
    scores = " | ".join(spread(result[key]) for key in ("seen", "novel", "all"))
    return f"| {what} | {scores} | at most {result['seconds']['max']:.0f} |"


def read(name: str) -> dict:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def spread(numbers: dict) -> str:
    return f"{numbers['mean']:.1f} ± {numbers['std']:.1f}"


def with_table(readme: str) -> str:
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    return before + BEGIN + table() + END + after


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(with_table(path.read_text()))
    print(table())
