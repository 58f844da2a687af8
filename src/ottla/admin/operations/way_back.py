"""The way back: the assignment before a reassignment, in a file before anything is changed.

Invariants: the file is on disk before the first request that changes something; at most
`MOST_FILES` are kept, the oldest go; a name is never used twice. The folder is
$XDG_STATE_HOME/ottla/reassign (~/.local/state/ottla/reassign).
"""

import contextlib
import os
import time
from pathlib import Path

from ottla.model.durable_files import sync
from ottla.model.errors import OttlaError

MOST_FILES = 100


def folder() -> Path:
    """Return where these files are kept."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "ottla" / "reassign"


def write(text: str, chosen: str | None = None) -> Path:
    """Write a plan to a new file and wait for the disk; return its path.

    `chosen`: a path that was named. OttlaError if it exists or cannot be written: nothing is to be
    changed then.
    """
    if chosen is not None:
        _write_new(Path(chosen), text)
        return Path(chosen)
    home = folder()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OttlaError(_refusal(home, error)) from None
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(MOST_FILES):
        path = home / f"{moment}-{os.getpid()}-{number:02}.json"
        if not path.exists():
            break
    _write_new(path, text)
    for old in sorted(home.glob("*Z-*.json"))[:-MOST_FILES]:
        with contextlib.suppress(OSError):
            old.unlink()
    return path


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x") as file:
            file.write(text + "\n")
        sync(path)
        sync(path.parent)
    except FileExistsError:
        raise OttlaError(
            f"--rollback-file {path} exists already; name another one; nothing was sent"
        ) from None
    except OSError as error:
        raise OttlaError(_refusal(path, error)) from None


def _refusal(path: Path, error: OSError) -> str:
    return (
        f"the way back cannot be written to {path}: {error.strerror}; name a place by "
        "--rollback-file; nothing was sent"
    )
