"""The one exception that is meant for a person."""


class UserError(Exception):
    """Something the user can put right: what is wrong, where, and what to do, in one line (exit code 2)."""
