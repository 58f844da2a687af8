"""State change logs of several brokers as one, in order of time.

Invariants: two blocks of each file are in memory at a time; a file's own order is kept, also where
its clock went back; of equal times the file named first comes first; files that end with .gz are
read through gzip. Kafka: `StateChangeLogMerger`, which knows partitions as [topic,0] only, the form
of Kafka before 1.1; topic-0 is the form since.

Lines are taken by blocks and sorted together, since a heap of one line of each file costs as much
again as reading the lines (docs/BENCHMARKS.md).
"""

import gzip
import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import IO, cast

from ottla.local.folders import files_below
from ottla.model.errors import OttlaError
from ottla.model.journal_schema import GZIP

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading a damaged .gz raises."""

TIME = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]")
"""What a line begins with: [2026-11-23 12:30:01,123]. Such times sort as text."""
_NUMBERED = rb"-(\d+)(?![A-Za-z0-9_-]|\.[A-Za-z0-9_-])"
ANY_OLD = re.compile(rb"\[[A-Za-z0-9._-]+, *(\d+)\]")
ANY_NEW = re.compile(rb"-(?<=[A-Za-z0-9._-]-)" + _NUMBERED[1:])
"""Patterns begin with what is rare in a line: what comes before it is looked at afterwards."""
OF_BROKER = re.compile(r"state-change\.log(\.[\d-]+)?(\.gz)?")
"""A broker's log, and those that it set aside: Kafka's, and ours by `SET_ASIDE`."""
OF_PARTITION = re.compile(r"\d{20}\.")
"""Segments and indexes: a record may look like a line of a log."""
BLOCK = 1 << 18
"""Bytes of a file that are read at a time."""
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
    if topic is None:
        forms = (ANY_NEW, ANY_OLD)
    else:
        name = re.escape(topic.encode())
        forms = (
            re.compile(name + rb"(?<![A-Za-z0-9._-]" + name + rb")" + _NUMBERED),
            re.compile(rb"\[" + name + rb", *(\d+)\]"),
        )
    new, old = (form.search for form in forms)
    if partitions is None:
        return lambda line: (new(line, 25) or old(line, 25)) is not None

    def names(line: bytes) -> bool:
        return any(int(n[1]) in partitions for form in forms for n in form.finditer(line, 25))

    return names


def merged(
    paths: Iterable[Path], start: bytes | None, end: bytes | None, names: Callable[[bytes], bool]
) -> Iterator[list[bytes]]:
    """Yield the lines from `start` to `end`, both included, that `names` accepts, in portions.

    Lines without a time are left out, as stack traces are. OSError if a file cannot be read.
    """
    with ExitStack() as opened:
        files = [opened.enter_context(_open(path)) for path in paths]
        sources = [_Source(_lines(file, start, end, names)) for file in files]
        while sources := [source for source in sources if source.filled()]:
            # Of every file, all lines of before this time are here: no more of them can come.
            until = min(source.times[-1] for source in sources)
            earlier = [row for source in sources for row in source.take_before(until)]
            earlier.sort(key=itemgetter(0))  # stable: of equal times the first file's come first
            if earlier:
                yield [line for _, line in earlier]
            for source in sources:
                while source.filled() and source.times[0] <= until:
                    yield source.take_up_to(until)


class _Source:
    """The lines of a file that are read and not given away yet, with the times that they count as.

    That is the latest time up to a line, which is another than its own where the clock went back.
    """

    def __init__(self, blocks: Iterator[list[tuple[bytes, bytes]]]) -> None:
        self._blocks = blocks
        self._lines: list[bytes] = []
        self.times: list[bytes] = []

    def filled(self) -> bool:
        """Read on if there is nothing left; return whether there is something now."""
        while not self.times:
            block = next(self._blocks, None)
            if block is None:
                return False
            self.times = [time for time, _ in block]
            self._lines = [line for _, line in block]
        return True

    def take_before(self, time: bytes) -> list[tuple[bytes, bytes]]:
        count = bisect_left(self.times, time)
        taken = list(zip(self.times[:count], self._lines[:count], strict=True))
        del self.times[:count], self._lines[:count]
        return taken

    def take_up_to(self, time: bytes) -> list[bytes]:
        count = bisect_right(self.times, time)
        taken = self._lines[:count]
        del self.times[:count], self._lines[:count]
        return taken


def _open(path: Path) -> IO[bytes]:
    if path.suffix == GZIP:
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return path.open("rb", buffering=0)


def _lines(
    file: IO[bytes], start: bytes | None, end: bytes | None, names: Callable[[bytes], bool]
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield each block's wanted lines with the latest time up to them; there may be none."""
    match = TIME.match
    latest = b""
    for lines in _blocks(file):
        found = []
        for line in lines:
            timed = match(line)
            if timed is None:
                continue
            time = timed[1]
            if (start is None or time >= start) and (end is None or time <= end) and names(line):
                latest = max(latest, time)
                found.append((latest, line))
        yield found


def _blocks(file: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of each block, without their ends; of a too long line the begin."""
    rest, skip = b"", False
    while data := _read(file):
        first, *others = data.split(b"\n")
        if not skip:
            rest += first
        if others:
            lines = [rest[:LONGEST_LINE], *others[:-1]]
            rest, skip = others[-1], False
        else:
            lines = []
        if len(rest) > LONGEST_LINE:
            rest, skip = rest[:LONGEST_LINE], True
        yield lines
    if rest:
        yield [rest]


def _read(file: IO[bytes]) -> bytes:
    """Return the next block; OttlaError for damage of what is compressed."""
    try:
        return file.read(BLOCK)
    except DAMAGED as error:
        raise OttlaError(
            f"{file.name}: {error}; it is damaged, or still being written: leave it out by --logs"
        ) from error


def find(names: Iterable[str], pattern: str | None) -> list[Path]:
    """Return the files named, and those whose names match a pattern in a folder or below it.

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
        matching = _below(where, wanted)
        if not matching:
            raise OttlaError(
                f"--logs-regex {pattern}: no file in {where} or below it has such a name"
            )
        found += matching
    return found


def of_cluster(folder: Path) -> list[Path]:
    """Return the state change logs of all brokers below a folder; OttlaError if there are none."""
    found = _below(folder, OF_BROKER)
    if not found:
        raise OttlaError(
            f"no state-change.log in {folder} or below it; name the cluster by --dir, or the files "
            "by --logs or --logs-regex"
        )
    there = set(found)
    # Of one that is being compressed there are two for a moment.
    return [path for path in found if path.with_name(path.name + GZIP) not in there]


def _below(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Return the files with such names in a folder and below it, but for those of partitions."""

    def wanted(name: str) -> bool:
        return pattern.fullmatch(name) is not None and OF_PARTITION.match(name) is None

    return sorted(files_below(folder, wanted))
