"""Record finished runs for the paper's tables: record.py RUN [RUN ...].

    openworld paper table1 --run cifar100 --seed 1
    python benchmarks/record.py runs/paper/table1-cifar100-paper-seed1
    python benchmarks/readme_table.py

Writes benchmarks/results/tables/DATA-LABELLED-RECIPE-STEPS-seedN.json for each run. If the run started from features,
STEPS is the steps of the features and then those of the run. What differs from the recipe and from the usual problem
follows at the end of the name. The file holds the run's summary, commands, commit,
hardware, configuration and the metrics of every epoch. The commit is the one that is checked out now (or $COMMIT, for
machines without git), so record a run before you change the code. The script replaces no file.
"""

import argparse
import json
from pathlib import Path

from measure import RESULTS, commit

from openworld.commands.common import fail
from openworld.core.errors import UserError
from openworld.core.files import write_whole
from openworld.data.benchmarks import BENCHMARKS
from openworld.paper import ITEMS
from openworld.paper.matching import objections, variant_of
from openworld.paper.recording import result_of
from openworld.paper.records import RUNS, name_of
from openworld.runs.folder import RunFolder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a finished run")
    parser.add_argument(
        "--results", type=Path, default=RESULTS / RUNS, metavar="DIR", help="folder of the result files"
    )
    options = parser.parse_args()
    try:
        record(options.runs, options.results)
    except UserError as error:
        fail(str(error), 2)


def record(runs: list[Path], folder: Path) -> None:
    """Record all runs, or none if one of them cannot be recorded."""
    results: dict[Path, dict] = {}
    for run in runs:
        result = {**result_of(RunFolder.open(run)), "commit": commit()}
        result["variant"] = variant_of(result)
        if result["dataset"] not in BENCHMARKS:
            raise UserError(f"{run}: {result['dataset']} is not a benchmark, so no table of the paper can show it")
        path = folder / f"{name_of(result)}.json"
        if path.exists() or path in results:
            raise UserError(f"{run}: {path} exists already; delete that file to record this run in its place")
        results[path] = result
    folder.mkdir(parents=True, exist_ok=True)
    for path, result in results.items():
        write_whole(path, json.dumps(result, indent=1) + "\n")
        print(f"{path}: {place_of(result)}")


def place_of(result: dict) -> str:
    """Return which items show a result, or why none does."""
    rows = [(name, item, row) for name, item in ITEMS.items() for row in (item.rows if item else ())]
    rows = [each for each in rows if each[2].data == result["dataset"]]
    against = {name: objections(result, item, row) for name, item, row in rows}
    shown = [name for name, item, row in rows if not objections(result, item, row)]
    if shown:
        return f"recorded, in {', '.join(dict.fromkeys(shown))}"
    if not against:
        return f"recorded, but no item has {result['dataset']}"
    nearest = min(against, key=lambda name: len(against[name]))
    return f"recorded, but in no item; not in {nearest}: {'; '.join(against[nearest])}"


if __name__ == "__main__":
    main()
