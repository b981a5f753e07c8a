"""Write the tables of measured results into README.md and docs/, from the files in benchmarks/results."""

import json
from collections.abc import Sequence
from pathlib import Path

from openworld.core.config import Training
from openworld.core.recipes import USUAL
from openworld.paper import ITEMS
from openworld.paper.accuracy import header_of, our_rows, printed_rows, results_of, small_runs
from openworld.paper.estimation import estimation
from openworld.paper.items import OWN, Item, Row, at_small_scale
from openworld.paper.records import recorded_runs
from openworld.paper.tables import cell_text
from openworld.results.scores import over_seeds

ROOT = Path(__file__).parent.parent
PAPER_STEPS = Training().steps
"""Length of the printed schedule."""


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
    """Return a Markdown table for each item that has recorded runs: the paper's own rows and ours."""
    # Figures over an axis and the confusion matrix repeat rows of the tables
    tables = {name: item for name, item in ITEMS.items() if item and not item.x and not item.shows_matrix}
    return "\n".join(text for name, item in tables.items() if (text := item_table(name, item, results_of(name))))


def small_table() -> str:
    """Return a Markdown table for each item that is recorded at small scale."""
    items = {name: at_small_scale(item) for name, item in ITEMS.items() if item}
    return "\n".join(
        text for name, item in items.items() if (text := item_table(name, item, results_of(name, is_small=True)))
    )


def item_table(name: str, item: Item, results: list[dict]) -> str:
    """Return a Markdown table of an item, below its name; empty if nothing is recorded for it."""
    rows = []
    for row in item.rows:
        ours = our_rows(item, row, results)
        printed = [each for each in printed_rows(item, row) if each[0].endswith(f"{OWN} (paper)")]
        rows += [tuple(map(cell_text, each)) for each in ((*printed, *ours) if ours else ())]
    return f"`{name}`: {item.title}\n\n{markdown(header_of(item), rows)}" if rows else ""


PRIORS = ("even", "known", "estimated")
KINDS_OF_PHOTOS = {
    "pets": "pets",
    "petsu": "pets, uneven by 5",
    "flowers": "flowers",
    "flowersu": "flowers, uneven by 5",
}
"""Sets of photos by the beginning of their folder's name."""


def priors_table() -> str:
    """Return a Markdown table with the accuracy on all classes for each class prior."""
    grids, rows = read("priors")["grids"], []

    def row(name: str, scores: dict[str, list[float]], beside: tuple[float, ...] = ()) -> None:
        cells = [with_spread(each) for each in (*(scores[prior] for prior in PRIORS), beside)]
        rows.append((name, *cells, str(max(map(len, scores.values())))))

    for factor in (1, 10):
        uneven = [run for run in grids["uneven"]["results"] if run["imbalance"] == factor]
        name = "digits from SimCLR features, " + (f"sizes uneven by {factor}" if factor > 1 else "equal sizes")
        alternatives = [each for each in grids["uneven"]["alternatives"] if each["imbalance"] == factor]
        beside = tuple(each["features"]["k-means, whitened"]["all"] for each in alternatives)
        row(name, {prior: [run["all"] for run in uneven if run["prior"] == prior] for prior in PRIORS}, beside)
    for factor in (10, 20):
        runs = [run for run in small_runs("imbalance") if run["imbalance"] == factor]
        scores = {prior: [run["all"] for run in runs if run["prior"] == prior] for prior in PRIORS}
        row(f"digits from scratch, sizes uneven by {factor}", scores)
    surplus = grids["one-class-too-many"]["results"]
    row("digits, one class too many", {p: [run["all"] for run in surplus if run["prior"] == p] for p in PRIORS})
    for factor in (10, 20):
        runs = [run for run in recorded_runs() if run["dataset"] == "cifar100" and run["imbalance"] == factor]
        scores = {prior: [run["all"] for run in runs if run["prior"] == prior] for prior in PRIORS}
        row(f"CIFAR-100, sizes uneven by {factor}", scores)
    photos = {prior: read(f"own-photos-prior-{prior}")["sets"] for prior in ("even", "estimated")}
    for kind, name in KINDS_OF_PHOTOS.items():
        of_kind = {p: [s["all"] for key, s in sets.items() if key.startswith(f"{kind}-")] for p, sets in photos.items()}
        row(f"photos with a backbone: {name}", {**of_kind, "known": []})
    return markdown(("all classes, %", *(f"`{prior}`" for prior in PRIORS), "k-means, whitened", "runs"), rows)


def with_spread(scores: Sequence[float]) -> str:
    """Return mean and standard deviation as text; a dash without scores."""
    return str(over_seeds(scores) or "-").replace("±", " ± ")


NCD_KINDS = {"digits": "digits", "pets": "37 breeds of pets", "flowers": "60 kinds of flowers"}
"""Problems of novel class discovery by the beginning of their name."""


def ncd_table() -> str:
    """Return a Markdown table of novel class discovery beside scikit-learn: mean of three sets or seeds."""
    problems, rows = read("ncd")["problems"], []
    for kind, name in NCD_KINDS.items():
        found = [each for key, each in problems.items() if key.startswith(kind)]
        other = next(key for key in found[0] if key.startswith("scikit-learn"))

        def cell(who: str, score: str, found: list[dict] = found) -> str:
            return with_spread([each[who][score] for each in found]) if who in found[0] else "-"

        columns = (("ours", "task_aware"), (other, "task_aware"), ("ours", "all"), (other, "all"))
        rows.append((name, *(cell(*each) for each in columns), cell("ours, without the task", "all")))
    header = ("novel, task-aware: ours", "scikit-learn", "all: ours", "scikit-learn", "ours without `--task ncd`")
    return markdown(("", *header), rows)


NAMES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet100": "ImageNet-100",
    "tiny-imagenet": "Tiny ImageNet",
}


def results_table() -> str:
    """Return the short table of the README: for each data set the paper, the printed method and `openworld train`."""
    digits = read("digits")
    seconds = f"{digits['seconds']['max'] / 60:.1f} ({digits['environment']['cpu_count']} CPU cores)"
    rows = [("digits", "10%", "-", "-", f"{spread(digits['all'])} ({len(digits['seeds'])} seeds)", seconds)]
    for item in (ITEMS["table1"], ITEMS["labels50"]):
        for row in item.rows:
            recorded = {recipe: first_row(item, row, recipe) for recipe in ("paper", USUAL.get(row.data, "paper"))}
            if any(recorded.values()):
                printed, usual = (score_and_length(each) for each in recorded.values())
                minutes = cell_text(recorded[USUAL[row.data]][6]) + " (H200)"
                labelled, paper = f"{row.settings['labelled']:g}%", f"{row.printed[OWN][2]}"
                rows.append((NAMES[row.data], labelled, paper, printed, usual, minutes))
    return markdown(("", "labels", "paper", "`--recipe paper`", "`openworld train`", "minutes"), rows)


def first_row(item: Item, row: Row, recipe: str) -> tuple | None:
    """Return our row of a recipe as it is, without flags: the longest one, because a shorter run is a trial."""
    ours = [each for each in our_rows(item, row, results_of("table1")) if each[0].startswith(f"{row.name}, {recipe},")]
    return max(ours, key=lambda each: steps_of(each[0]), default=None)


def steps_of(label: str) -> int:
    """Return the steps of a run after those of its features, from the label of its row."""
    return int(label.removesuffix(" steps").rsplit(" ", 1)[-1].replace(",", ""))


def score_and_length(row: tuple | None) -> str:
    """Return the accuracy over all classes with the number of seeds, or the steps of a run that is shorter."""
    if row is None:
        return "not run"
    steps = steps_of(row[0])
    is_short = ", paper," in row[0] and steps < PAPER_STEPS
    seeds = (
        f"{steps / PAPER_STEPS:.0%} of the steps"
        if is_short
        else f"{len(row[5])} seeds"
        if len(row[5]) > 1
        else "1 run"
    )
    return f"{cell_text(row[3]).replace('±', ' ± ')} ({seeds})"


def markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "".join("| " + " | ".join(row) + " |\n" for row in (header, ("---",) * len(header), *rows))


MEASURED = {
    "README.md": {"results": results_table},
    "docs/paper.md": {"measured": accuracy_table, "paper": paper_table, "small": small_table},
    "docs/priors.md": {"priors": priors_table, "ncd": ncd_table},
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
