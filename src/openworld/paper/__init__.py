"""The paper's tables and figures, beside what was recorded with this package. Reads recorded results only."""

from collections.abc import Callable

from openworld.errors import UserError
from openworld.paper.accuracy import labels50, table1
from openworld.paper.class_count import estimation, sensitivity
from openworld.paper.recorded import Table

ITEMS: dict[str, Callable[[], Table]] = {
    "table1": table1,
    "labels50": labels50,
    "estimation": estimation,
    "sensitivity": sensitivity,
}


def table_of(item: str) -> Table:
    if item not in ITEMS:
        raise UserError(f"{item}: no such item of the paper (there are {', '.join(ITEMS)})")
    return ITEMS[item]()
