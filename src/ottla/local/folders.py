"""Files of a folder: those below one, for tools that read whatever is there, and private ones.

Invariant: what cannot be looked into is an error, since an answer drawn from the rest would
mislead.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ottla.model import durable_files
from ottla.model.errors import OttlaError

OF_FILE_SYSTEM = "lost+found"
"""At the top of a file system; for root alone."""


def files_below(
    folder: Path, wanted: Callable[[str], object], deepest: int | None = None
) -> Iterator[Path]:
    """Yield the files of a folder whose names are wanted, then those of its subfolders.

    `deepest`: how many levels of subfolders; links to folders are followed then, and only then.
    OSError for a folder that cannot be read, also for `folder` itself.
    """

    def fail(error: OSError) -> None:
        raise error

    top = len(folder.parts)
    for path, folders, names in os.walk(folder, onerror=fail, followlinks=deepest is not None):
        here = Path(path)
        files = (here / name for name in sorted(names) if wanted(name))
        yield from (file for file in files if file.is_file())
        if deepest is not None and len(here.parts) - top >= deepest:
            folders.clear()
        folders[:] = sorted(name for name in folders if name != OF_FILE_SYSTEM)


PRIVATE, PUBLIC = 0o600, 0o644


def replace_file(file: Path, data: bytes, mode: int = PRIVATE) -> None:
    """Replace a file whole; a private one is never open to other users. OttlaError."""
    try:
        durable_files.replace_file(file, data, mode)
    except OSError as error:
        raise OttlaError(f"cannot write {file}: {error.strerror}") from error
