"""Paths: where results may go, and what a file system said of it.

Invariants: nothing is written here; what is refused stays as it was.
"""

import os
from pathlib import Path

from ottla.model.errors import ConfigError


def refuse_unwritable(path: Path, option: str) -> None:
    """Refuse what cannot be made, or written into if it is a folder that is there."""
    try:
        there = (p for p in (path, *path.absolute().parents) if p.exists())
        nearest = next(there)
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}") from None
    if not nearest.is_dir():
        raise ConfigError(f"{option} {path}: {nearest} is no folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(f"{option} {path}: nothing may be written into {nearest}")


def of_disk(error: OSError, where: str | Path = "") -> str:
    """Return what a file system said, and of which file; `where` if the error names none.

    Arrow's errors have the system's number and a text of Arrow's own.
    """
    place = error.filename or where
    what = error.strerror or str(error)
    if error.errno and "Detail: [errno" in what:
        what = os.strerror(error.errno)
    return f"{place}: {what}" if place else what
