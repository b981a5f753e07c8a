"""Write files completely or not at all."""

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file completely or not at all. An earlier file stays until the new one is complete."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_to_cache(path: Path, content: bytes) -> None:
    """Write a file completely or not at all. A failure is ignored, because nothing depends on a cached file."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):  # on a read-only disk there is no temporary file to remove
            temporary.unlink()
