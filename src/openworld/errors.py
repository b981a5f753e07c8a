"""The one exception that is meant for a person, in the words of whoever asked: flags, or parameters in Python."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_asked_in_python: ContextVar[bool] = ContextVar("asked_in_python", default=False)


class UserError(Exception):
    """Something the user can put right: what is wrong, where, and what to do, in one line (exit code 2)."""


def named(setting: str, value: Any = None) -> str:
    """A setting as the user writes it: a flag on the command line, a parameter in Python.

    >>> named("num_classes"), named("method", "simclr")
    ('--num-classes', '--method simclr')
    >>> with asked_in_python():
    ...     named("num_classes"), named("method", "simclr")
    ('num_classes', "method='simclr'")
    """
    if _asked_in_python.get():
        return setting if value is None else f"{setting}={value!r}"
    flag = f"--{setting.replace('_', '-')}"
    return flag if value is None else f"{flag} {value}"


@contextmanager
def asked_in_python() -> Iterator[None]:
    """Within this context messages name parameters, not flags."""
    before = _asked_in_python.set(True)
    try:
        yield
    finally:
        _asked_in_python.reset(before)


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
