"""The one exception that is meant for a person, and whether text can be shown to one."""


class UserError(Exception):
    """Something the user can put right: what is wrong, where, and what to do, in one line (exit code 2)."""


def is_utf8(text: str) -> bool:
    """Whether it can be written down: names of files and arguments may hold bytes that are no text.

    >>> is_utf8("é"), is_utf8("\\udcff")
    (True, False)
    """
    return text.isascii() or text.encode(errors="ignore").decode() == text
