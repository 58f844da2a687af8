"""State change logs of several brokers as one, in order of time.

Who may call: the command `merge-state-changes`. Invariants: one line of each file is in memory at a
time; a file's own order is kept, also where its clock went back; of equal times the file named
first comes first; files that end with .gz are read through gzip. Kafka: `StateChangeLogMerger`,
which knows partitions as [topic,0] only, the form of Kafka before 1.1; topic-0 is the form since.
"""

import gzip
import heapq
import re
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import IO, cast

from ottla.model.errors import OttlaError

TIME = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]")
"""What a line begins with: [2026-11-23 12:30:01,123]. Such times sort as text."""
OLD = re.compile(rb"\[([A-Za-z0-9._-]+), *(\d+)\]")
NEW = re.compile(rb"(?<![A-Za-z0-9._-])([A-Za-z0-9._-]+)-(\d+)(?![A-Za-z0-9_-]|\.[A-Za-z0-9_-])")
LONGEST_LINE = 1 << 20
"""Bytes; the rest of a longer line is left out."""
TIME_TEXT = "%Y-%m-%d %H:%M:%S,%f"
_CUT_AT = (10, 13, 16, 19)
"""Lengths of a time that ends with the day, the hour, the minute, the second."""


def parse_time(text: str, *, last: bool = False) -> bytes:
    """Return a time as lines have it, in the time zone of the logs; OttlaError if it is none.

    Kafka's form `2026-11-23 12:30:01,123`, or `2026-11-23T12:30:01.123`; what is left out at the
    end is 0, or with `last` the latest that fits.
    """
    try:
        found = datetime.fromisoformat(text.strip().replace(",", "."))
    except ValueError:
        found = None
    if found is None or found.tzinfo is not None:
        raise OttlaError(
            f"{text!r} is no time of a log: write 2026-11-23 12:30:01,123; the milliseconds, the "
            "seconds, the time of day may be left out"
        )
    full = found.strftime(TIME_TEXT)[:-3]
    if not last:
        return full.encode()
    given = len(text.strip())
    kept = given if given in _CUT_AT else len(full)
    return (full[:kept] + "9999-12-31 23:59:59,999"[kept:]).encode()


def about(topic: str | None, partitions: Container[int] | None) -> Callable[[bytes], bool]:
    """Return a function that says whether a line names such a partition.

    A line may name several; it is enough if one of them is of the topic and among the partitions.
    None: all.
    """
    wanted = None if topic is None else topic.encode()

    def names(line: bytes) -> bool:
        for form in (OLD, NEW):
            for found in form.finditer(line, 25):
                if (wanted is None or found[1] == wanted) and (
                    partitions is None or int(found[2]) in partitions
                ):
                    return True
        return False

    return names


def merged(
    paths: Iterable[Path], start: bytes | None, end: bytes | None, names: Callable[[bytes], bool]
) -> Iterator[bytes]:
    """Yield the lines from `start` to `end`, both included, that `names` accepts.

    Lines without a time are left out, as stack traces are. OSError if a file cannot be read.
    """
    with ExitStack() as opened:
        files = [opened.enter_context(_open(path)) for path in paths]
        streams = [_lines(file, start, end, names) for file in files]
        for _, line in heapq.merge(*streams, key=lambda item: item[0]):
            yield line


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return path.open("rb", buffering=1 << 18)


def _lines(
    file: IO[bytes], start: bytes | None, end: bytes | None, names: Callable[[bytes], bool]
) -> Iterator[tuple[bytes, bytes]]:
    match = TIME.match
    cut = False
    for line in iter(lambda: file.readline(LONGEST_LINE), b""):
        rest, cut = cut, not line.endswith(b"\n")
        if rest or not (found := match(line)):
            continue
        time = found[1]
        if (start is None or time >= start) and (end is None or time <= end) and names(line):
            yield time, line if line.endswith(b"\n") else line + b"\n"


def find(names: Iterable[str], pattern: str | None) -> list[Path]:
    """Return the files named, and those whose names match a pattern in a folder.

    The pattern is a regular expression for the file's name, after the folder. OttlaError if there
    is no such file, or if it is no regular expression.
    """
    found = [Path(name) for name in names]
    if pattern is not None:
        folder, slash, name = pattern.rpartition("/")
        try:
            wanted = re.compile(name)
        except re.error as error:
            raise OttlaError(f"--logs-regex {pattern}: no regular expression ({error})") from error
        where = Path(folder or ("/" if slash else "."))
        matching = sorted(p for p in where.iterdir() if p.is_file() and wanted.fullmatch(p.name))
        if not matching:
            raise OttlaError(f"--logs-regex {pattern}: no file in {where} has such a name")
        found += matching
    return found
