"""Journals: finding the files of all brokers, and reading them as one.

Invariants: nothing is written; of a broker's files those that were set aside come first, in the
order of their time (`log.predecessors` names them so, `.gz` or not); a controller epoch belongs to
one broker, so journals are merged by epoch and stay in their own order within it, whatever their
clocks say; a line that cannot be believed is skipped, and counted with file, number and problem.
Lines are read one by one: a journal is never in memory as a whole.
"""

import contextlib
import gzip
import heapq
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from ottla.explain.lines import Entry, parse
from ottla.local.folders import files_below
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.journal_schema import (
    GZIP,
    JOURNAL_NAME,
    SET_ASIDE,
    DamagedLineError,
    DecisionLine,
    DroppedLine,
    Line,
    RequestLine,
    StateChangeLine,
    TopicsChanged,
)

DEEPEST = 3
"""Folders below a named one in which a journal is looked for: `ottla-data/broker-0/data/`."""
WAY_OUT = "name the file, a folder above it, or the cluster by --dir"
LONGEST_LINE = 64 * 1024 * 1024
NAMED = 1000


class NoJournalError(OttlaError):
    """There is nothing to explain from."""


@dataclass(slots=True)
class Damage:
    """What was skipped: the first so many by name, all counted."""

    count: int = 0
    named: list[tuple[str, int, str]] = field(default_factory=list)
    missing: int = 0
    """Lines that a controller said it dropped."""

    def add(self, file: str, number: int, problem: str) -> None:
        self.count += 1
        if len(self.named) < NAMED:
            self.named.append((file, number, problem))


def find(paths: Sequence[Path]) -> list[list[Path]]:
    """Return each journal's files, oldest first, of files or folders; NoJournalError if none.

    OSError for a folder that cannot be read.
    """
    found: dict[Path, list[Path]] = {}
    for path in paths:
        if path.is_dir():
            named = files_below(path, lambda n: n.startswith(JOURNAL_NAME), DEEPEST - 1)
            candidates = list(named)
        elif path.exists():
            candidates = [path]
        else:
            raise NoJournalError(f"{path}: no such file or folder; {WAY_OUT}")
        for file in candidates:
            aside = SET_ASIDE.search(file.name)
            if aside is None and path.is_dir() and not file.name.endswith(JOURNAL_NAME):
                continue  # it is being compressed
            base = file.resolve()
            if aside is not None:
                base = base.with_name(base.name[: aside.start()])
            files = found.setdefault(base, [])
            if file.resolve() not in [f.resolve() for f in files]:
                files.append(file)
    if not found:
        where = ", ".join(map(str, paths))
        raise NoJournalError(
            f"no journal in {where}: a controller writes {JOURNAL_NAME} into the first of its "
            f"log directories; {WAY_OUT}"
        )
    return [_in_order(files) for files in found.values()]


def _in_order(files: Sequence[Path]) -> list[Path]:
    """Return files in the order of time; of one that is there twice, the compressed one."""
    by_time: dict[float, Path] = {}
    for file in sorted(files):  # .gz after the same without
        aside = SET_ASIDE.search(file.name)
        by_time[math.inf if aside is None else int(aside[1])] = file
    return [by_time[when] for when in sorted(by_time)]


def _beginning(kind: type[Line]) -> bytes:
    return b'{"kind":"%s",' % str(kind.__struct_config__.tag).encode()


_SENT = _beginning(RequestLine)
_NAMING = (_beginning(DecisionLine), _beginning(StateChangeLine))
"""Of lines about nothing but the partitions that they name."""
_OF_TOPICS = (b',"event":"%s",' % TopicsChanged.__name__.encode(), b',"part":"topic",')
"""In the head of lines about nothing but the topics that they name."""
_HEAD = 160
"""Bytes at most, up to these: kind, time, controller, epoch, cause."""


def about(tp: TopicPartition) -> Callable[[bytes], bool]:
    """Return which lines, as bytes, the history of one partition needs.

    Not what was decided and which states changed of others alone, nor which other topics there are,
    nor what brokers were sent: that is most of a large cluster's journal, and to parse it takes
    most of the time.
    """
    name, topic = b'"%s"' % str(tp).encode(), b'"%s"' % tp.topic.encode()

    def is_about(raw: bytes) -> bool:
        if raw.startswith(_SENT):
            return False
        if raw.startswith(_NAMING):
            return name in raw
        head = raw[:_HEAD]
        return topic in raw or not any(beginning in head for beginning in _OF_TOPICS)

    return is_about


def read(
    journals: Sequence[Sequence[Path]],
    damage: Damage,
    wanted: Callable[[bytes], bool] = lambda _raw: True,
) -> Iterator[Entry]:
    """Yield all lines, merged by controller epoch; those that are not wanted are not looked at."""
    streams = [_one(files, damage, wanted) for files in journals]
    for _, _, entry in heapq.merge(*streams, key=lambda item: item[0]):
        if isinstance(entry.line, DroppedLine):
            damage.missing += entry.line.lines
        yield entry


def _opened(file: Path) -> IO[bytes]:
    """Open a file that may be compressed, or has been since it was listed."""
    if not file.name.endswith(GZIP):
        with contextlib.suppress(FileNotFoundError):
            return file.open("rb")
        file = file.with_name(file.name + GZIP)
    return cast("IO[bytes]", gzip.open(file, "rb"))


def _line(file: IO[bytes], name: str, number: int, damage: Damage) -> bytes:
    """Return the next line; none after damage of what is compressed, which is counted."""
    try:
        return file.readline(LONGEST_LINE)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        damage.add(name, number + 1, f"nothing after it can be read ({error})")
        return b""


def _one(
    files: Sequence[Path], damage: Damage, wanted: Callable[[bytes], bool]
) -> Iterator[tuple[int, int, Entry]]:
    """Yield (epoch, number, entry); a line without an epoch belongs to the one before it."""
    epoch = -1
    count = 0
    for file in files:
        name = str(file)
        with _opened(file) as opened:
            number = 0
            while raw := _line(opened, name, number, damage):
                number += 1
                if raw == b"\n" or not wanted(raw):
                    continue
                try:
                    entry = parse(raw, name, number)
                except DamagedLineError as error:
                    problem = str(error) if raw.endswith(b"\n") else f"cut off ({error})"
                    damage.add(name, number, problem)
                    continue
                count += 1
                epoch = max(epoch, entry.line.epoch)
                yield epoch, count, entry
