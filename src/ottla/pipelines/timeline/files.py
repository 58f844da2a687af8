"""Files: which state-change logs and journals are meant.

Invariants: a file is named once, however often it is found; a folder is looked through three levels
deep, so that the folder of a cluster will do; nothing found is an error that says what was looked
for. Names with a scheme (`hdfs://…`) go to Spark as they are.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ottla.model.errors import OttlaError
from ottla.model.journal_schema import JOURNAL_NAME

LOG_PATTERN = "state-change.log*"
DEEPEST = 3
"""Levels below a named folder: `ottla-data/broker-0/data/`."""


class NoLogsError(OttlaError):
    """There is nothing to make a timeline of."""


@dataclass(frozen=True, slots=True)
class Files:
    """Paths or addresses that Spark can read."""

    logs: list[str]
    journals: list[str]


def find(paths: Sequence[str], regex: str | None = None) -> Files:
    r"""Return the files of paths, folders and of a regex as `/var/log/kafka/state-change\\.log.*`.

    The regex is the merge tool's: up to the last slash a folder, behind it what a name holds.
    NoLogsError where something named is not there, or nothing is found.
    """
    found: dict[str, None] = {}
    for path in paths:
        if "://" in path:
            found[path] = None
            continue
        local = Path(path)
        if local.is_dir():
            _add(found, _below(local))
        elif local.exists():
            _add(found, [local])
        else:
            raise NoLogsError(f"{path}: no such file or folder")
    if regex is not None:
        _add(found, _matching(regex))
    files = Files(
        [f for f in found if not is_journal(f)],
        [f for f in found if is_journal(f)],
    )
    if not found:
        where = ", ".join([*paths, *([regex] if regex else [])])
        raise NoLogsError(
            f"no {LOG_PATTERN} and no {JOURNAL_NAME} in {where}: name the files, a folder above "
            "them (at most three levels), or a regex by --logs-regex"
        )
    return files


def is_journal(path: str) -> bool:
    """Return whether a file, by its name, is a controller's journal."""
    return path.rpartition("/")[2].startswith(JOURNAL_NAME)


def _add(found: dict[str, None], paths: Iterable[Path]) -> None:
    for path in paths:
        found[str(path.resolve())] = None


def _below(folder: Path) -> list[Path]:
    return [
        path
        for depth in range(DEEPEST)
        for pattern in (LOG_PATTERN, JOURNAL_NAME + "*")
        for path in sorted(folder.glob("*/" * depth + pattern))
        if path.is_file()
    ]


def _matching(regex: str) -> list[Path]:
    head, _, tail = regex.rpartition("/")
    folder = Path(head or ("/" if regex.startswith("/") else "."))
    try:
        wanted = re.compile(tail)
    except re.error as error:
        raise NoLogsError(f"{tail!r} is no regular expression: {error}") from error
    if not folder.is_dir():
        raise NoLogsError(f"{folder}: no such folder")
    return [p for p in sorted(folder.iterdir()) if p.is_file() and wanted.search(p.name)]
