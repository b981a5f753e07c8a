"""The commands `openworld data check`, `openworld data show` and `openworld data fetch`."""

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from openworld.commands.common import add_command, add_data_flags, add_verbs, one_line, print_table, runtime_of
from openworld.core.errors import UserError
from openworld.core.fields import options
from openworld.core.places import count_cores, default_data_dir

LISTED = 20
"""Number of broken files, and of leaks, that are printed; --json has all."""
SOFTWARE = "openworld data show"
"""The text in a PNG file that marks it as a picture of this command."""
SHOWN_OF_A_CLASS, MOST_SAMPLES = 10, 20
"""Number of images in a row of a contact sheet (samples of a class, or views of a sample), and of rows of views."""


def add(commands) -> None:
    verbs = add_verbs(commands, "data", "Check data, draw samples of it, or download a benchmark.")
    summary = "Decode every file once and report class sizes, image sizes, broken files and duplicates."
    checking = add_command(verbs, "check", run_check, summary)
    summary = "Draw a contact sheet, a picture with samples of every class, or with random views of some samples."
    showing = add_command(verbs, "show", run_show, summary)
    fetching = add_command(verbs, "fetch", run_fetch, "Download a benchmark and unpack it.")
    for verb in (checking, showing):
        verb.add_argument("data", metavar="DATA", help="name of a benchmark, folder, manifest.csv or .npz file")
        add_data_flags(verb)
    fetching.add_argument("data", metavar="NAME", help="name of the benchmark")
    fetching.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="folder of the benchmarks [$OPENWORLD_DATA, or in ~/.cache]"
    )
    showing.add_argument("--augmented", action="store_true", help="draw random views of some samples, as in training")
    families = next(option.choices for option in options() if option.name == "augment")
    showing.add_argument("--augment", choices=families, metavar="NAME", help="family of augmentations [as in training]")
    out_help = "PNG file to write [NAME-samples.png, or NAME-views.png with --augmented]"
    showing.add_argument("--out", type=Path, metavar="FILE", help=out_help)
    for verb in (checking, showing, fetching):
        verb.add_argument("--quiet", action="store_true", help="print no progress")


def run_check(parsed: argparse.Namespace) -> int:
    """Check the data and return the exit code: 2 if a file is broken."""
    from openworld.core.progress import CountDisplay
    from openworld.data.check import check
    from openworld.data.opening import open_dataset

    dataset = open_dataset(parsed.data, parsed.data_dir or default_data_dir())
    workers = count_cores() if parsed.workers is None else parsed.workers
    with CountDisplay("decoding", parsed.quiet) as display:
        report = check(dataset, workers, display.tell)
    if parsed.json:
        print(json.dumps(report))
    else:
        print_report(report)
    return 2 if report["broken"] else 0


def print_report(report: dict[str, Any]) -> None:
    parts = report["parts"]
    classes = list(dict.fromkeys(name for part in parts.values() for name in part["classes"]))
    rows = [(name, *(f"{part['classes'].get(name, 0):,}" for part in parts.values())) for name in classes]
    unknown = [part["samples"] - sum(part["classes"].values()) for part in parts.values()]
    if any(unknown):
        rows.append(("(no class)", *(f"{count:,}" for count in unknown)))
    rows.append(("all", *(f"{part['samples']:,}" for part in parts.values())))
    print_table(f"{report['name']}: {report['samples']:,} samples", ("class", *parts), rows)
    if report["sizes"]:
        sides = {name: "{} x {}".format(*report["sizes"][name]) for name in ("smallest", "median", "largest")}
        print(f"sizes: {sides['smallest']} to {sides['largest']} pixels, median {sides['median']}")
    print(f"duplicates within a part: {report['duplicates_within_parts']:,}")
    print(f"leaks (duplicates in different parts): {len(report['leaks']):,}")
    for members in report["leaks"][:LISTED]:
        print("  " + one_line(" = ".join(f"{member['part']} {member['path']}" for member in members)))
    print(f"broken: {len(report['broken']):,}")
    for entry in report["broken"][:LISTED]:
        print(f"  {one_line(entry['path'])} {entry['reason']}")
    if report["left_out"]:
        from openworld.data.own import kinds_of

        print(f"ignored: {kinds_of(report['left_out'])}")
    if max(len(report["leaks"]), len(report["broken"])) > LISTED:
        print(f"only the first {LISTED} of a list are shown; --json lists all")


def run_show(parsed: argparse.Namespace) -> int:
    import torch

    from openworld.data.contact_sheet import contact_sheet, rows_by_class, rows_of_views
    from openworld.data.opening import open_dataset
    from openworld.data.peek import peek, some_of_each_class
    from openworld.data.problem import refuse_misfit
    from openworld.planning.settings import resolve_settings

    if parsed.augment and not parsed.augmented:
        raise UserError("--augment works only with --augmented; add --augmented or leave --augment out")
    requested = {"data": parsed.data, **({"augment": parsed.augment} if parsed.augment else {})}
    runtime = runtime_of(parsed, device="auto")
    dataset = open_dataset(parsed.data, runtime.data_dir)
    config = resolve_settings(requested, dataset, runtime.device)  # for the image size and the views of training
    size = config.training.image_size
    if dataset.has_features:
        raise UserError(f"{dataset.name} contains features, which cannot be drawn; choose data with images")
    refuse_misfit(config, dataset)
    num_classes = len(dataset.class_names)
    positions = some_of_each_class(dataset.train, num_classes, 1 if parsed.augmented else SHOWN_OF_A_CLASS)
    if parsed.augmented:
        positions = positions[:MOST_SAMPLES]
        images = peek(dataset.train, positions, size)
        headings = [str(dataset.train.name_of(position)) for position in positions]
        rows = rows_of_views(headings, images, views_of(images, config.training.augment))
    else:
        images = peek(dataset.train, positions, size)
        labels = torch.from_numpy(dataset.train.labels[positions])
        labels[labels < 0] = num_classes  # samples without a label get a row of their own
        names = (*dataset.class_names, "(no label)")
        rows = [row for row in rows_by_class(names, images, labels, SHOWN_OF_A_CLASS) if row.images]
    path = parsed.out or Path(f"{dataset.name}-{'views' if parsed.augmented else 'samples'}.png")
    refuse_other_picture(path)
    if path.suffix.lower() != ".png":
        raise UserError(f"--out {path}: the contact sheet is a PNG file, so its name must end in .png")
    contact_sheet(rows).save(path, "PNG", pnginfo=signature())
    print(json.dumps({"file": str(path), "rows": len(rows)}) if parsed.json else f"{len(rows)} rows: {path}")
    return 0


def signature():
    """Return the PNG metadata that marks a picture as ours."""
    from PIL.PngImagePlugin import PngInfo

    about = PngInfo()
    about.add_text("Software", SOFTWARE)
    return about


def refuse_other_picture(path: Path) -> None:
    """Raise a UserError if the file exists and was not created by this command."""
    from PIL import Image

    if not path.exists():
        return
    try:
        with Image.open(path) as picture:
            is_ours = picture.info.get("Software") == SOFTWARE
    except (OSError, ValueError):
        is_ours = False
    if not is_ours:
        raise UserError(f"{path} exists and was not created by openworld data show; choose another --out")


def views_of(images, augment: str) -> list:
    """Return some random views of each image, as in training."""
    import torch

    from openworld.data.augment import family
    from openworld.ops.rng import generator

    channels = torch.full((images.shape[1],), 0.5)
    random_view = family(augment, channels, channels).random
    return [random_view(images, generator(0, "show", number)) for number in range(SHOWN_OF_A_CLASS)]


def run_fetch(parsed: argparse.Namespace) -> int:
    from openworld.core.progress import CountDisplay
    from openworld.data.fetch import fetch, is_there

    data_dir = parsed.data_dir or default_data_dir()
    was_there = is_there(parsed.data, data_dir)
    with ExitStack() as stack:
        displays: dict[str, CountDisplay] = {}

        def show_progress(done: int, total: int | None, label: str) -> None:
            if label not in displays:
                stack.close()  # one bar at a time
                displays[label] = stack.enter_context(CountDisplay(label, parsed.quiet, " bytes"))
            displays[label].tell(done, total)

        folder = fetch(parsed.data, data_dir, show_progress)
    if parsed.json:
        print(json.dumps({"name": parsed.data, "folder": str(folder), "was_there": was_there}))
    else:
        print(f"{parsed.data} {'was already downloaded' if was_there else 'is ready'}: {folder}")
    return 0
