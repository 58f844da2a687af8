"""Files that outlast a loss of power: replaced whole, synced with their folders.

For files of the command line and of jobs; a server's files go through the port `Files`. One
writer at a time: the unfinished file has a fixed name, so the next writer replaces what a killed
one left.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def unfinished(path: Path) -> Path:
    """Return where the new content of a file is written; readers of Parquet skip such a name."""
    return path.with_name(f".{path.name}.part")


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield an empty file to be filled, which then replaces `path`; removed if that fails.

    `mode`: its permissions from its first byte on, less the umask. OSError: `path` is as before,
    except where only the sync of its folder failed.
    """
    part = unfinished(path)
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    try:
        yield part
        sync(part)
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    sync(path.parent)


def replace_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Give a file this content, whole or not at all; OSError as of `replacing`."""
    with replacing(path, mode) as part:
        part.write_bytes(data)


def sync(path: Path) -> None:
    """Sync one file, or one folder's list of names."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Sync a folder with all that is below it."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            sync_tree(Path(entry.path))
        else:
            sync(Path(entry.path))
    sync(folder)
