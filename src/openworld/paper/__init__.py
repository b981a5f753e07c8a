"""The tables and figures of the paper beside the results that we recorded.

Each item is a function that returns a `Table`. Reading the items does not import torch.
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
"""Functions by the name of their item. `openworld paper` prints their docstrings as summaries."""


def table_of(item: str) -> Table:
    """Return the table of an item. Raise a UserError if there is no such item."""
    if item not in ITEMS:
        raise UserError(f"{item}: no such item of the paper (choose from {', '.join(ITEMS)})")
    return ITEMS[item]()
