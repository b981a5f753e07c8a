"""Write the tables of measured results into README.md and docs/, from the files in benchmarks/results."""

import json
from pathlib import Path

from openworld.paper import estimation
from openworld.paper.accuracy import HEADER, TABLES, our_rows, printed_rows
from openworld.paper.tables import cell_text

ROOT = Path(__file__).parent.parent


def accuracy_table() -> str:
    """Return the Markdown table of the digits."""
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


def speed_table() -> str:
    result = read("step-cost-cuda")
    theirs, parts, setting = result["authors"], result["parts_ms"], result["setting"]
    hardware = f"{result['environment']['device']}, torch {result['environment']['torch']}, commit {result['commit']}"
    rows = [f"| {hardware} | ours | authors' | ratio |", "|---|---|---|---|"]
    for what, key, unit, digits in (
        (f"a step of {' + '.join(map(str, setting['batch']))} images", "step_ms", "ms", 1),
        (
            f"uncertainty, {setting['unlabelled_images']:,} images x {setting['uncertainty_views']}",
            "uncertainty_s",
            "s",
            2,
        ),
        (f"an evaluation, {setting['test_images']:,} images", "evaluation_s", "s", 2),
        (f"an epoch: {setting['epoch_steps']:,} steps and its passes", "epoch_s", "s", 1),
    ):
        ours, other = result[key], theirs[key]
        rows.append(f"| {what} | {ours:.{digits}f} {unit} | {other:.{digits}f} {unit} | {other / ours:.1f}x |")
    listed = ", ".join(f"{name} {ms:.2f}" for name, ms in parts.items())
    return "\n".join(rows) + (
        f"\n\nThe parts by themselves, in ms: {listed}. {result['images_per_s']:,.0f} trained images/s, "
        f"{result['share_of_peak']:.0%} of the measured bf16 matrix peak ({result['matrix_peak_tflops']:.0f} TFLOP/s), "
        f"{result['peak_memory_gib']:.1f} GiB at the peak. "
        f"The authors' views are made by {theirs.get('views', 'hand')}.\n"
    )


def estimation_table() -> str:
    table = estimation()
    rows = [
        f"| {name} | {result['features']['probes']['neighbours']:.1f} | {splits['mean']:.1f} ± {splits['std']:.1f} | "
        f"{splits['mean_absolute_error_percent']:.1f} | {100 * splits['intervals_that_hold_the_truth']:.0f} |"
        for name in ("digits", "cifar10", "cifar100")
        for result in [read(f"estimation-{name}")]
        for splits in [result["other_splits"]]
    ]
    head = "| 40 other splits | neighbours' accuracy | estimate | mean error, % | intervals that hold the truth, % |"
    return markdown(table.header, table.texts()) + "\n".join(["", head, "|---|---|---|---|---|", *rows]) + "\n"


def paper_table() -> str:
    """Return a Markdown table with the paper's row and our rows, for every data set that has recorded runs."""
    rows = []
    for item, table in TABLES.items():
        for data in table.rows:
            ours = our_rows(item, data)
            paper = [printed_rows(item, data)[-1]] if ours else []
            rows += [(cell_text(row[0]), f"{table.labelled:g}%", *map(cell_text, row[1:])) for row in (*paper, *ours)]
    return markdown((HEADER[0], "labels", *HEADER[1:]), rows)


def markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "".join("| " + " | ".join(row) + " |\n" for row in (header, ("---",) * len(header), *rows))


MEASURED = {
    "README.md": {"measured": accuracy_table, "paper": paper_table},
    "docs/performance.md": {"measured": speed_table},
    "docs/estimate.md": {"measured": estimation_table},
}
"""For each file, the functions that make its tables, by the names in its markers."""


def with_tables(name: str) -> str:
    """Return the text of a file with its tables made again."""
    text = (ROOT / name).read_text()
    for table, make in MEASURED[name].items():
        begin, end = f"<!-- {table}: begin -->\n", f"<!-- {table}: end -->\n"
        before, rest = text.split(begin)
        text = before + begin + make() + end + rest.split(end)[1]
    return text


if __name__ == "__main__":
    for name in MEASURED:
        (ROOT / name).write_text(with_tables(name))
