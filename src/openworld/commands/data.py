"""openworld data check | show | fetch"""

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
"""Broken files, and leaks, that are shown to a person; --json has all."""
SOFTWARE = "openworld data show"
SHOWN_OF_A_CLASS, MOST_SAMPLES = 10, 20
"""Samples in a row of a contact sheet, or views; and rows of views."""


def add(commands) -> None:
    verbs = add_verbs(commands, "data", "Check data, look at it, or fetch a benchmark.")
    summary = "Decode everything once: counts, sizes, broken files, and what is there twice."
    checking = add_command(verbs, "check", run_check, summary)
    showing = add_command(verbs, "show", run_show, "Draw a contact sheet: samples of every class, or random views.")
    fetching = add_command(verbs, "fetch", run_fetch, "Download a benchmark and unpack it.")
    for verb in (checking, showing):
        verb.add_argument("data", metavar="DATA", help="a benchmark's name, a folder, a manifest.csv or an .npz")
        add_data_flags(verb)
    fetching.add_argument("data", metavar="NAME", help="a benchmark's name")
    fetching.add_argument("--data-dir", type=Path, metavar="DIR", help="where to put it")
    showing.add_argument("--augmented", action="store_true", help="random views of some samples, as in training")
    families = next(option.choices for option in options() if option.name == "augment")
    showing.add_argument("--augment", choices=families, metavar="NAME", help="the family of views [that of training]")
    showing.add_argument("--out", type=Path, metavar="FILE", help="the PNG file to write [NAME-samples.png]")
    for verb in (checking, showing, fetching):
        verb.add_argument("--quiet", action="store_true", help="no progress")


def run_check(parsed: argparse.Namespace) -> int:
    """Exit code 2 if a file is broken."""
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
        print(f"sizes: {sides['smallest']} to {sides['largest']} pixels, the middle one {sides['median']}")
    print(f"there twice within a part: {report['duplicates_within_parts']:,}")
    print(f"the same in different parts, a leak: {len(report['leaks']):,}")
    for members in report["leaks"][:LISTED]:
        print("  " + one_line(" = ".join(f"{member['part']} {member['path']}" for member in members)))
    print(f"broken: {len(report['broken']):,}")
    for entry in report["broken"][:LISTED]:
        print(f"  {one_line(entry['path'])} {entry['reason']}")
    if report["left_out"]:
        from openworld.data.own import kinds_of

        print(f"left out: {kinds_of(report['left_out'])}")
    if max(len(report["leaks"]), len(report["broken"])) > LISTED:
        print("--json lists all")


def run_show(parsed: argparse.Namespace) -> int:
    import torch

    from openworld.data.contact_sheet import contact_sheet, rows_by_class, rows_of_views
    from openworld.data.opening import open_dataset
    from openworld.data.peek import peek, some_of_each_class
    from openworld.data.problem import refuse_misfit
    from openworld.planning.settings import resolve_settings

    if parsed.augment and not parsed.augmented:
        raise UserError("--augment says how views are made: add --augmented, which shows them")
    requested = {"data": parsed.data, **({"augment": parsed.augment} if parsed.augment else {})}
    runtime = runtime_of(parsed, device="auto")
    dataset = open_dataset(parsed.data, runtime.data_dir)
    config = resolve_settings(requested, dataset, runtime.device)  # size and views are those of training here
    size = config.training.image_size
    if dataset.has_features:
        raise UserError(f"{dataset.name} holds features: there is nothing to look at")
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
        labels[labels < 0] = num_classes  # they get a row of their own
        names = (*dataset.class_names, "(no label)")
        rows = [row for row in rows_by_class(names, images, labels, SHOWN_OF_A_CLASS) if row.images]
    path = parsed.out or Path(f"{dataset.name}-{'views' if parsed.augmented else 'samples'}.png")
    refuse_other_picture(path)
    if path.suffix.lower() != ".png":
        raise UserError(f"--out {path}: a contact sheet is a PNG file, so let its name end in .png")
    contact_sheet(rows).save(path, "PNG", pnginfo=signature())
    print(json.dumps({"file": str(path), "rows": len(rows)}) if parsed.json else f"{len(rows)} rows: {path}")
    return 0


def signature():
    """By which a picture of ours is known again."""
    from PIL.PngImagePlugin import PngInfo

    about = PngInfo()
    about.add_text("Software", SOFTWARE)
    return about


def refuse_other_picture(path: Path) -> None:
    """What somebody else made is not replaced."""
    from PIL import Image

    if not path.exists():
        return
    try:
        with Image.open(path) as picture:
            is_ours = picture.info.get("Software") == SOFTWARE
    except (OSError, ValueError):
        is_ours = False
    if not is_ours:
        raise UserError(f"{path} exists and was not made by openworld data show: choose another --out")


def views_of(images, augment: str) -> list:
    """Some random views of each image, as training makes them."""
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
    already = is_there(parsed.data, data_dir)
    with ExitStack() as stack:
        displays: dict[str, CountDisplay] = {}

        def tell(done: int, total: int | None, label: str) -> None:
            if label not in displays:
                stack.close()  # one bar at a time
                displays[label] = stack.enter_context(CountDisplay(label, parsed.quiet, " bytes"))
            displays[label].tell(done, total)

        folder = fetch(parsed.data, data_dir, tell)
    if parsed.json:
        print(json.dumps({"name": parsed.data, "folder": str(folder), "was_there": already}))
    else:
        print(f"{parsed.data} {'was there already' if already else 'is ready'}: {folder}")
    return 0
