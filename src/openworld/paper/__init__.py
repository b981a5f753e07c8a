"""The paper's tables and figures beside the results that were recorded with this package.

Each item is a function that returns a table. Reading them needs no torch.
It may import every room above, up to `results`.
"""

from collections.abc import Callable

from openworld.core.errors import UserError
from openworld.paper.accuracy import labels50, table1
from openworld.paper.estimation import estimation, sensitivity
from openworld.paper.tables import Table

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
