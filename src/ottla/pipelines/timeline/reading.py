"""Reading: lines of logs and journals as rows, block by block.

Invariants: a task holds one block of a file at a time (BLOCK bytes, or one line where that is
longer, up to LONGEST); a file's own order is (`block`, `line`), whatever the times say. Plain files
of this machine are opened by Spark's Python workers themselves, since Spark takes longer to hand a
line over than it takes to read it; `line` is then the byte at which a line begins. Packed files and
addresses come through Spark's own text source; `line` is then its number.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from urllib.parse import quote
from zoneinfo import ZoneInfo

import numpy as np

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline import journals
from ottla.pipelines.timeline.files import is_journal
from ottla.pipelines.timeline.rows import KIND, Numbers, Rows, Texts, empty, put
from ottla.pipelines.timeline.templates import PADDING, Bytes, Lines, Parser, split

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 1 << 20
"""Larger ones cost more: memory that is asked of the kernel anew for each block."""
LONGEST = 64 << 20
"""A line that is longer is cut, and its pieces are not understood."""
SMALLEST_SPLIT, LARGEST_SPLIT = 8 << 20, 128 << 20
PACKED = {".bz2", ".deflate", ".gz", ".lz4", ".snappy", ".zst"}
_BOM = b"\xef\xbb\xbf"
_LOOK = 64 << 10
_IN_URI = "/!$&'()*+,;=:@~-._"


class Split(NamedTuple):
    """The lines of a file that begin at `start` or later, and before `stop`."""

    path: str
    start: int
    stop: int


class Block(NamedTuple):
    """Some lines of one file, and what they say; rows of journals may be fewer or more."""

    rows: Rows
    lines: Lines
    of_line: Numbers
    """Which line a row is of."""


def is_plain(path: str) -> bool:
    """Return whether a worker can open a file itself."""
    return "://" not in path and Path(path).suffix not in PACKED


def splits(paths: Sequence[str], tasks: int) -> list[Split]:
    """Divide plain files among tasks."""
    sizes = {path: Path(path).stat().st_size for path in paths}
    size = min(max(sum(sizes.values()) // max(tasks, 1), SMALLEST_SPLIT), LARGEST_SPLIT)
    return [
        Split(path, start, min(start + size, whole))
        for path, whole in sizes.items()
        for start in range(0, whole, size)
    ]


def uri(path: str) -> str:
    """Return a file's name as Spark has it."""
    return path if "://" in path else "file:" + quote(path, safe=_IN_URI)


class Reader:
    """Makes rows of lines, with one memory of what lines look like."""

    def __init__(self, zone: str) -> None:
        self.texts = Texts()
        self._parser = Parser(ZoneInfo(zone), self.texts)

    def of_split(self, part: Split) -> Iterator[Block]:
        """Read a part of a plain file."""
        name = self.texts.number(uri(part.path))
        with Path(part.path).open("rb") as file:
            for first, data, stop in _blocks(file, part):
                found = split(data, stop)
                block = self._block(found, journal=is_journal(part.path))
                block.rows["file"] = name
                block.rows["block"] = part.start
                block.rows["line"] = first + found.starts[block.of_line] - 1
                yield block

    def of_batch(self, batch: "pa.RecordBatch") -> Iterator[Block]:
        """Read lines that Spark has read: value, file, block, line."""
        columns = [column.to_pylist() for column in batch.columns]
        values, files, blocks, numbers = columns
        begin = 0
        for end in range(1, len(values) + 1):
            if end < len(values) and files[end] == files[begin]:
                continue
            text = b"\n".join(values[begin:end]) + b"\n"
            data = np.frombuffer(b"\n" + text + b"\n" * PADDING, np.uint8)
            breaks = np.cumsum([0, *(len(value) + 1 for value in values[begin:end])])
            found = Lines(data, 1 + len(text), breaks[:-1] + 1, breaks[1:])
            block = self._block(found, journal=is_journal(files[begin]))
            block.rows["file"] = self.texts.number(files[begin])
            block.rows["block"] = np.array(blocks[begin:end], np.int64)[block.of_line]
            block.rows["line"] = np.array(numbers[begin:end], np.int64)[block.of_line]
            yield block
            begin = end

    def _block(self, found: Lines, *, journal: bool) -> Block:
        if journal:
            return self._journal(found)
        return Block(self._parser.parse(found), found, np.arange(len(found.starts)))

    def _journal(self, found: Lines) -> Block:
        said: list[e.Event | None] = []
        of_line: list[int] = []
        for at, (begin, end) in enumerate(zip(found.starts, found.ends, strict=True)):
            raw = found.data[begin:end].tobytes().decode("utf-8", "replace")
            events: Sequence[e.Event | None] | None = journals.parse(raw) if raw else []
            events = [None] if events is None else events
            said += events
            of_line += [at] * len(events)
        rows = empty(len(said))
        for at, event in enumerate(said):
            if event is None or not put(rows, at, event, self.texts):
                rows["kind"][at] = KIND[e.UNREAD]
        return Block(rows, found, np.array(of_line, np.int64))


def _blocks(file: BinaryIO, part: Split) -> Iterator[tuple[int, Bytes, int]]:
    """Give whole lines: where in the file they begin, the padded bytes, and where those stop."""
    begin = _line_after(file, part.start - 1) if part.start else 0
    end = _line_after(file, part.stop - 1)
    file.seek(begin)
    if begin == 0 and file.read(len(_BOM)) == _BOM:
        begin = len(_BOM)
    file.seek(begin)
    held = b""
    while begin < end:
        read = file.read(min(BLOCK, end - begin - len(held)))
        raw = held + read
        whole = raw.rfind(b"\n") + 1
        if not whole and read and len(raw) < min(LONGEST, end - begin):
            held = raw
            continue
        if not raw:
            return  # the file has become shorter
        whole = whole or len(raw)
        held = raw[whole:]
        ended = raw[whole - 1 : whole] == b"\n"
        data = np.full(1 + whole + (not ended) + PADDING, ord("\n"), np.uint8)
        data[1 : 1 + whole] = np.frombuffer(raw, np.uint8, whole)
        yield begin, data, 1 + whole + (not ended)
        begin += whole


def _line_after(file: BinaryIO, at: int) -> int:
    r"""Return where the line begins that follows the first \n at a place or behind it."""
    file.seek(at)
    while piece := file.read(_LOOK):
        found = piece.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(piece)
    return at
