"""The exception for mistakes of users, and the pieces of its messages.

Messages name a setting as the user writes it: as a flag on the command line, as a parameter in Python.
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_called_from_python: ContextVar[bool] = ContextVar("called_from_python", default=False)


class UserError(Exception):
    """A mistake that the user can correct. The message says in one line what is wrong, where, and what to do.

    The command line prints the message and ends with exit code 2.
    """


class CannotEstimate(UserError):
    """The number of classes cannot be estimated from these features and labels."""


def named(setting: str, value: Any = None) -> str:
    """Return a setting as the user writes it: a flag on the command line, a parameter in Python.

    >>> named("num_classes"), named("method", "simclr")
    ('--num-classes', '--method simclr')
    >>> with called_from_python():
    ...     named("num_classes"), named("method", "simclr")
    ('num_classes', "method='simclr'")
    """
    if _called_from_python.get():
        return setting if value is None else f"{setting}={value!r}"
    flag = f"--{setting.replace('_', '-')}"
    return flag if value is None else f"{flag} {value}"


@contextmanager
def called_from_python() -> Iterator[None]:
    """Make error messages within this context name Python parameters instead of flags."""
    before = _called_from_python.set(True)
    try:
        yield
    finally:
        _called_from_python.reset(before)


def check(holds: bool, setting: str, value: object, wanted: str) -> None:
    """Raise a UserError that names the setting, its value and the values `wanted`, unless the condition holds."""
    if not holds:
        raise UserError(f"{named(setting)} is {value}; it must be {wanted}")


def is_utf8(text: str) -> bool:
    """Return whether the text can be written as UTF-8: names of files and arguments may contain other bytes.

    >>> is_utf8("é"), is_utf8("\\udcff")
    (True, False)
    """
    return text.isascii() or text.encode(errors="ignore").decode() == text


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return '; did you mean X?' with the candidate nearest to a misspelt word, or '' if none is near.

    If no whole candidate is near, the parts after the last dot are compared.

    >>> did_you_mean("CIFAR10", ["cifar10", "cifar100"]), did_you_mean("step", ["training.steps"])
    ('; did you mean cifar10?', '; did you mean training.steps?')
    """
    word, whole = word.casefold(), {candidate.casefold(): candidate for candidate in candidates}
    by_last_part = {spelt.rsplit(".", 1)[-1]: candidate for spelt, candidate in whole.items()}
    for known, spelt in ((whole, word), (by_last_part, word.rsplit(".", 1)[-1])):
        for near in difflib.get_close_matches(spelt, known, n=1):
            return f"; did you mean {known[near]}?"
    return ""
