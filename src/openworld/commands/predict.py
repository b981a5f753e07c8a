"""The command `openworld predict`: predict classes of images."""

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

VIEWS, VIEWS_WITH_BACKBONE = 5, 2
"""Default number of random views: each of them costs a pass through the network, and a backbone is slow."""
COLUMNS = ("path", "prediction", "confidence", "uncertainty", "runner_up", "error")


def add(commands) -> None:
    summary = "Predict a class (a seen class, or novel-1, ...), a confidence and an uncertainty for each image."
    parser = add_command(commands, "predict", run, summary)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "images", type=Path, nargs="+", metavar="IMAGES", help="image files, folders, manifests (.csv) or one .npz file"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="file to write, .csv or .jsonl; it must be new or hold earlier predictions [CSV to standard output]",
    )
    parser.add_argument(
        "--views",
        type=whole_number,
        metavar="N",
        help="number of random views from which the uncertainty is measured; 0: no uncertainty [5; 2 with a backbone]",
    )
    parser.add_argument("--workers", type=whole_number, metavar="N", help="processes that decode images [one per core]")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    add_device_flag(parser)


def run(parsed: argparse.Namespace) -> int:
    from openworld.core.progress import CountDisplay
    from openworld.results.predict import predict
    from openworld.runs.folder import RunFolder
    from openworld.runs.model import Model

    refuse_bad_place(parsed.out)
    runtime = runtime_of(parsed)
    model = Model.load(RunFolder.open(parsed.run), runtime.device, print_warning)
    usual_views = VIEWS_WITH_BACKBONE if model.backbone else VIEWS
    views = usual_views if parsed.views is None else parsed.views
    total, predictions = predict(model, parsed.images, views, runtime.workers)
    as_json = parsed.out.suffix.lower() == ".jsonl" if parsed.out else parsed.json
    failed = []

    def with_progress(display: CountDisplay) -> Iterator["Prediction"]:
        for number, prediction in enumerate(predictions, 1):
            if prediction.error:
                failed.append(prediction)
            display.tell(number, total)
            yield prediction

    with output(parsed.out) as file:
        with CountDisplay("predicting", parsed.quiet, " images") as display:
            (write_jsonl if as_json else write_csv)(file, with_progress(display))
        for prediction in failed:
            print_warning(f"{prediction.path} {prediction.error}")
        if len(failed) == total:  # the error keeps `output` from replacing earlier predictions
            raise UserError("the image cannot be used" if total == 1 else f"none of the {total:,} images can be used")
    if parsed.out and not parsed.quiet:
        not_used = f", {len(failed):,} could not be used" if failed else ""
        print(f"{total - len(failed):,} images predicted{not_used}: {parsed.out}", file=sys.stderr)
    return 0


def refuse_bad_place(out: Path | None) -> None:
    """Raise a UserError, before any work, if predictions cannot or must not be written to this file."""
    if out and out.suffix.lower() not in (".csv", ".jsonl"):
        raise UserError(f"--out {out}: the file name must end in .csv or .jsonl")
    if out and not out.parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} does not exist; create it or choose another --out")
    if out and out.exists() and not is_ours(out):
        raise UserError(f"{out} exists and was not created by openworld predict; choose another --out")


def is_ours(path: Path) -> bool:
    """Return whether this command created the file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(10_000).strip()
    return first == ",".join(COLUMNS).encode() or (first.startswith(b'{"path": ') and b'"runner_up": ' in first)


@contextmanager
def output(path: Path | None) -> Iterator[IO[str]]:
    """Open standard output, or a file that appears under its name only when it is complete."""
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper) and codecs.lookup(sys.stdout.encoding).name == "utf-8":
            sys.stdout.reconfigure(errors="surrogateescape")  # names of files may contain any bytes
        yield sys.stdout
        return
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            yield file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_csv(file: IO[str], predictions: Iterable["Prediction"]) -> None:
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(COLUMNS)
    lines.writerows([rounded(getattr(prediction, name)) for name in COLUMNS] for prediction in predictions)


def write_jsonl(file: IO[str], predictions: Iterable["Prediction"]) -> None:
    for prediction in predictions:
        file.write(json.dumps({name: rounded(getattr(prediction, name)) for name in COLUMNS}) + "\n")


def rounded(value: str | int | float | None) -> str | int | float | None:
    return round(value, 4) if isinstance(value, float) else value
