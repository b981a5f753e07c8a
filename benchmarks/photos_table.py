"""Write the tables of real photos in README.md and docs/backbones.md from the recorded results: photos_table.py.

The results come from own_photos.py. Each row is the mean over the sets of a record, with the lowest and highest set.
"""

import json
import statistics
from pathlib import Path

from measure import RESULTS

ROOT = Path(__file__).parent.parent
ROWS = {
    "pets": "37 breeds of pets",
    "flowers": "60 kinds of flowers",
    "pets-uneven": "the pets, sizes uneven by 5",
    "flowers-uneven": "the flowers, sizes uneven by 5",
    "leaves": "38 plants and diseases, leaves",
    "aid": "30 kinds of satellite scenes",
    "dtd": "10 textures",
    "grocery": "30 groceries in shops",
}
"""Title of each row, by the name of its record."""
SHORT = ("pets", "flowers", "pets-uneven", "aid", "leaves")
"""The rows of README.md."""
METHODS = (
    "k-means",
    "k-means, whitened",
    "semi-supervised k-means",
    "nearest centroid, k-means of the rest",
    "HDBSCAN",
)
"""The alternatives in the long table; label spreading and self-training know no new classes and are near 50."""


def records() -> dict[str, list[dict]]:
    """Return the recorded sets of each row that has any."""
    found: dict[str, list[dict]] = {}
    for path in sorted(RESULTS.glob("own-photos-*.json")):
        for name, result in json.loads(path.read_text())["sets"].items():
            kind = name.rsplit("-", 1)[0]
            row = {"petsu": "pets-uneven", "flowersu": "flowers-uneven"}.get(kind, kind)
            if row in ROWS:
                found.setdefault(row, []).append(result)
    return {row: found[row] for row in ROWS if row in found}


def of_runs(sets: list[dict]) -> list[float]:
    return [each["all"] for each in sets]


def mean(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f}"


def long_table() -> str:
    header = ("photos", "sets", "`openworld train`", "its first clusters", *METHODS)
    rows = [
        (
            ROWS[row],
            str(len(sets)),
            f"**{mean(of_runs(sets))}** ({' '.join(f'{score:.1f}' for score in of_runs(sets))})",
            mean([each["first_clusters"]["all"] for each in sets]),
            *(mean([each["alternatives"][method]["all"] for each in sets]) for method in METHODS),
        )
        for row, sets in records().items()
    ]
    return table(header, rows)


def short_table() -> str:
    header = ("photos", "`openworld train`", "k-means", "best of five alternatives")
    rows = []
    for row, sets in records().items():
        if row in SHORT:
            others = {name: statistics.mean(each["alternatives"][name]["all"] for each in sets) for name in METHODS}
            best = max(others, key=others.get)
            rows.append((ROWS[row], mean(of_runs(sets)), f"{others['k-means']:.1f}", f"{others[best]:.1f} ({best})"))
    return table(header, rows)


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ("---",) * len(header), *rows))


def write(path: Path, content: str) -> None:
    """Replace the block between the two marks of a page."""
    before, rest = path.read_text().split("<!-- photos: begin -->\n")
    after = rest.split("<!-- photos: end -->")[1]
    path.write_text(f"{before}<!-- photos: begin -->\n{content}\n<!-- photos: end -->{after}")


if __name__ == "__main__":
    write(ROOT / "README.md", short_table())
    write(ROOT / "docs" / "backbones.md", long_table())
