"""Files that are written whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """A file that is there whole or not at all; what it replaces stays until then."""
    aside = path.with_name(f"{path.name}.tmp")
    try:
        with aside.open("wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_to_cache(path: Path, content: bytes) -> None:
    """A file that is there whole or not at all. Nothing depends on it: where it cannot be written, it is left out."""
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content)
        aside.replace(path)
    except OSError:
        with suppress(OSError):  # on a read-only disk there is nothing to remove, and no way to
            aside.unlink()
