"""What was written, kept through a loss of power: files and folders synced to the disk.

Who may call: the lake's parts. Invariants: returns after the disk has said so; OSError else.
"""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Sync one file, or one folder's list of names."""
    descriptor = os.open(path, os.O_RDONLY)
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
