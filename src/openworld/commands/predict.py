"""openworld predict"""

import argparse
import codecs
import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from openworld.commands.common import add_command, add_device_flag, print_warning, runtime_of, whole_number
from openworld.core.errors import UserError

if TYPE_CHECKING:
    from openworld.results.predict import Prediction

COLUMNS = ("path", "prediction", "confidence", "uncertainty", "runner_up", "error")


def add(commands) -> None:
    summary = "A class (a known name, or novel-1 ...), confidence and uncertainty for each image."
    parser = add_command(commands, "predict", run, summary)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "images", type=Path, nargs="+", metavar="IMAGES", help="image files, folders, manifests (.csv), or one .npz"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="a .csv or .jsonl, new or of earlier predictions [CSV to standard output]",
    )
    parser.add_argument(
        "--views", type=whole_number, default=5, metavar="N", help="random views behind the uncertainty; 0: none [5]"
    )
    parser.add_argument("--workers", type=whole_number, metavar="N", help="processes that decode images [one a core]")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_device_flag(parser)


def run(parsed: argparse.Namespace) -> int:
    from openworld.core.progress import CountDisplay
    from openworld.results.predict import predict
    from openworld.runs.folder import RunFolder
    from openworld.runs.model import Model

    refuse_bad_place(parsed.out)
    runtime = runtime_of(parsed)
    model = Model.load(RunFolder.open(parsed.run), runtime.device, print_warning)
    total, predictions = predict(model, parsed.images, parsed.views, runtime.workers)
    as_json = parsed.out.suffix.lower() == ".jsonl" if parsed.out else parsed.json
    bad = []

    def told(display: CountDisplay) -> Iterator["Prediction"]:
        for number, prediction in enumerate(predictions, 1):
            if prediction.error:
                bad.append(prediction)
            display.tell(number, total)
            yield prediction

    with output(parsed.out) as file:
        with CountDisplay("predicting", parsed.quiet, " images") as display:
            (write_jsonl if as_json else write_csv)(file, told(display))
        for prediction in bad:
            print_warning(f"{prediction.path} {prediction.error}")
        if len(bad) == total:  # earlier answers stay where they are
            raise UserError(f"not one of {total:,} images can be used")
    if parsed.out and not parsed.quiet:
        not_used = f", {len(bad):,} could not be used" if bad else ""
        print(f"{total - len(bad):,} images predicted{not_used}: {parsed.out}", file=sys.stderr)
    return 0


def refuse_bad_place(out: Path | None) -> None:
    """Before the work."""
    if out and out.suffix.lower() not in (".csv", ".jsonl"):
        raise UserError(f"--out {out}: its name must end in .csv or .jsonl")
    if out and not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}")
    if out and out.exists() and not is_ours(out):
        raise UserError(f"--out {out}: it exists, and is not what openworld predict wrote before; choose another name")


def is_ours(path: Path) -> bool:
    """Whether a file was written by this command before."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(10_000).strip()
    return first == ",".join(COLUMNS).encode() or (first.startswith(b'{"path": ') and b'"runner_up": ' in first)


@contextmanager
def output(path: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that is there only when it is complete."""
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper) and codecs.lookup(sys.stdout.encoding).name == "utf-8":
            sys.stdout.reconfigure(errors="surrogateescape")  # a file may have any name
        yield sys.stdout
        return
    aside = path.with_name(f"{path.name}.tmp")
    try:
        with aside.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            yield file
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_csv(file: IO[str], predictions: Iterable["Prediction"]) -> None:
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(COLUMNS)
    lines.writerows([rounded(getattr(prediction, name)) for name in COLUMNS] for prediction in predictions)


def write_jsonl(file: IO[str], predictions: Iterable["Prediction"]) -> None:
    for prediction in predictions:
        file.write(json.dumps({name: rounded(getattr(prediction, name)) for name in COLUMNS}) + "\n")


def rounded(value: str | int | float | None) -> str | int | float | None:
    return round(value, 4) if isinstance(value, float) else value
