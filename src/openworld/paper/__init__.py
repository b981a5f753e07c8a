"""The tables and figures of the paper beside the results that we recorded, and how to run them again.

An item holds the printed numbers (`printed.py`). Importing this module does not import torch.
It may import every room above, up to `results`.
"""

from openworld.core.errors import UserError, did_you_mean
from openworld.paper import printed
from openworld.paper.items import Item
from openworld.paper.tables import Table

ESTIMATION = "estimation"
"""The item about the number of classes. All others are about accuracies."""
ITEMS: dict[str, Item | None] = {
    "table1": printed.TABLE1,
    "table2": printed.TABLE2,
    "ablation": printed.ABLATION,
    ESTIMATION: None,
    "imbalance": printed.IMBALANCE,
    "ncd": printed.NCD,
    "labels50": printed.LABELS50,
    "labels-few": printed.LABELS_FEW,
    "fine-grained25": printed.FINE_GRAINED25,
    "sensitivity": printed.SENSITIVITY,
    "novel-share": printed.NOVEL_SHARE,
    "ncd-share": printed.NCD_SHARE,
    "temperature": printed.TEMPERATURE,
    "confusion": printed.CONFUSION,
}


def summary_of(name: str) -> str:
    """Return a line about an item."""
    item = ITEMS[name]
    return (
        item.summary if item else 'Tables "Estimation of the number of novel classes", with and without reassignment.'
    )


def refuse_unknown(name: str) -> None:
    """Raise a UserError if there is no such item."""
    if name not in ITEMS:
        raise UserError(
            f"{name}: no such item of the paper{did_you_mean(name, ITEMS)} (choose from {', '.join(ITEMS)})"
        )


def table_of(name: str, is_small: bool = False) -> Table:
    """Return the table of an item, at full or at small scale. Raise a UserError if there is no such item."""
    from openworld.paper.accuracy import accuracy_table
    from openworld.paper.estimation import estimation

    refuse_unknown(name)
    item = ITEMS[name]
    return accuracy_table(name, item, is_small) if item else estimation(is_small)
