"""Whether processes can still write to a folder: free bytes, free inodes, a read-only file system.

Invariant: nothing is written to find out.
"""

import os
from collections.abc import Iterable
from pathlib import Path

LEAST_FREE_BYTES = 2 * 1024 * 1024


def problem(path: Path | str) -> str | None:
    """Return `0 bytes free on PATH` or the like; None where there is room, or no such folder."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    if found.f_flag & os.ST_RDONLY:
        return f"{path} is on a read-only file system"
    free = found.f_bavail * found.f_frsize
    if free < LEAST_FREE_BYTES:
        return f"{free:,} bytes free on {path}"
    if found.f_files and not found.f_favail:
        return f"no inodes free on {path}, so no file can be created"
    return None


def problem_of(paths: Iterable[Path]) -> str | None:
    """Return the problem of the first file system that has one; each is asked once."""
    asked = set()
    for path in paths:
        try:
            device = path.stat().st_dev
        except OSError:
            continue
        if device not in asked:
            asked.add(device)
            found = problem(path)
            if found is not None:
                return found
    return None
