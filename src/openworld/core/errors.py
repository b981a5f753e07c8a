"""The one exception that is meant for a person, in the words of whoever requested: flags, or parameters in Python."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_called_from_python: ContextVar[bool] = ContextVar("called_from_python", default=False)


class UserError(Exception):
    """Something the user can put right: what is wrong, where, and what to do, in one line (exit code 2)."""


def named(setting: str, value: Any = None) -> str:
    """A setting as the user writes it: a flag on the command line, a parameter in Python.

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
    """Within this context messages name parameters, not flags."""
    before = _called_from_python.set(True)
    try:
        yield
    finally:
        _called_from_python.reset(before)


def check(holds: bool, setting: str, value: object, wanted: str) -> None:
    """Refuse a setting whose value cannot be used."""
    if not holds:
        raise UserError(f"{named(setting)} is {value}; it must be {wanted}")


def is_utf8(text: str) -> bool:
    """Whether it can be written down: names of files and arguments may hold bytes that are no text.

    >>> is_utf8("é"), is_utf8("\\udcff")
    (True, False)
    """
    return text.isascii() or text.encode(errors="ignore").decode() == text


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """'; did you mean X?' for the candidate nearest to a misspelt word, compared by the last part too.

    >>> did_you_mean("CIFAR10", ["cifar10", "cifar100"]), did_you_mean("step", ["training.steps"])
    ('; did you mean cifar10?', '; did you mean training.steps?')
    """
    word, whole = word.casefold(), {candidate.casefold(): candidate for candidate in candidates}
    by_last_part = {spelt.rsplit(".", 1)[-1]: candidate for spelt, candidate in whole.items()}
    for known, spelt in ((whole, word), (by_last_part, word.rsplit(".", 1)[-1])):
        for near in difflib.get_close_matches(spelt, known, n=1):
            return f"; did you mean {known[near]}?"
    return ""
