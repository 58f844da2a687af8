"""Packed: rows that the rules look at, on their way from the tasks that read to those that judge.

Invariants: all rows of a partition have one bucket; a piece carries the texts of its rows; metadata
that many brokers cached alike is one row per broker and piece, the earliest. A piece has a column
after the other, each as small as its numbers are; a column is unpacked when it is first asked for.
"""

import itertools
import pickle  # of what our own tasks return # nosec B403
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.rows import (
    NO_TEXT,
    NONE,
    ROW,
    TEXTS,
    Numbers,
    Rows,
    Texts,
    joined,
    of_kinds,
)

MOST_BUCKETS = 4096
OF_BUCKET = 32 << 20
"""Bytes of files for each bucket, so that a task that judges holds 10 MB of rows or less."""
_FEW_TEXTS = 64
GATHERED = (e.CACHED, e.SENT)
LEADING = (e.DECIDED, e.LED, e.FOLLOWED)
SAID = ("topic", "partition", "leader", "leader_epoch", "isr", "version")
_NAMED = (*TEXTS, "file")
_FIELDS = ROW.names or ()


def buckets_for(size: int, fewest: int) -> int:
    """Return how many buckets the rows of so many bytes go to."""
    return min(max(size // OF_BUCKET, fewest), MOST_BUCKETS)


def ruled(rows: Rows, topic: int | None, partitions: Sequence[int]) -> Rows:
    """Return the rows that say something of a partition that the rules look at.

    Those by which clocks are compared are kept of all topics.
    """
    kept = of_kinds(rows, e.RULED) & (rows["topic"] != NO_TEXT)
    kept &= ~of_kinds(rows, GATHERED) | (rows["leader_epoch"] != NONE)
    if topic is not None:
        kept &= is_wanted(rows, topic, partitions) | of_kinds(rows, (*LEADING, e.MOVED))
    return rows[kept]  # type: ignore[no-any-return]


def is_wanted(rows: Any, topic: int, partitions: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Tell which rows are of a topic, and of some of its partitions."""
    wanted: npt.NDArray[np.bool_] = rows["topic"] == topic
    return wanted & np.isin(rows["partition"], partitions) if partitions else wanted


def pieces(rows: Rows, texts: Texts, buckets: int) -> Iterator[tuple[int, bytes]]:
    """Give rows as (bucket, piece)."""
    kept = once(rows)
    hashes = np.array([zlib.crc32(name.encode()) for name in texts.names], np.int64)
    partitions = rows["partition"][kept].astype(np.int64)
    bucket_of = (hashes[rows["topic"][kept]] + partitions * 31) % buckets
    order = np.argsort(bucket_of.astype(np.int16), kind="stable")
    rows = rows[kept[order]]
    ends = np.searchsorted(bucket_of[order], np.arange(buckets + 1)).tolist()
    for bucket, (begin, end) in enumerate(itertools.pairwise(ends)):
        if begin < end:
            yield bucket, _piece(rows[begin:end], texts)


def once(rows: Rows) -> Numbers:
    """Say which rows to keep: of metadata that a broker received several times the earliest."""
    gathered = of_kinds(rows, GATHERED)
    several = np.flatnonzero(gathered)
    if not len(several):
        return np.arange(len(rows))
    times = rows["time_ms"][several]
    if (np.diff(times) < 0).any():
        several = several[np.argsort(times, kind="stable")]
    keys = joined([rows[name][several] for name in (*SAID, "broker")])
    return np.concatenate((np.flatnonzero(~gathered), several[first_of_each(keys)]))


def first_of_each(keys: Numbers) -> Numbers:
    """Return where each number stands first; they are numbered by first appearance."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(keys), prepend=-1))


def _piece(rows: Rows, texts: Texts) -> bytes:
    """Return rows with the texts they need; all texts, if they are few."""
    names = texts.names
    if len(names) > _FEW_TEXTS:
        columns = np.stack([rows[name] for name in _NAMED])
        used, places = np.unique(columns, return_inverse=True)
        names = [texts.names[number] for number in used.tolist() if number >= 0]
        places = places.reshape(columns.shape) - (len(used) - len(names))  # NO_TEXT comes first
        for column, name in enumerate(_NAMED):
            rows[name] = places[column]
    packed = {name: _packed(rows[name], NO_TEXT if name in _NAMED else NONE) for name in _FIELDS}
    return pickle.dumps((len(rows), names, packed))


Packed = tuple[int, int, str, bytes]
"""A column: what stands for nothing, the least number less one, the kind of numbers, the numbers.

Each number is less by that least one, and 0 is nothing; without numbers all are the second.
"""


def _packed(values: npt.NDArray[Any], nothing: int) -> Packed:
    first = int(values[0])
    if (values == first).all():
        return nothing, first, "", b""
    said = values != nothing
    all_said = bool(said.all())
    least = int((values if all_said else values[said]).min()) - 1
    most = int(values.max()) - least
    kind = "<u1" if most < 1 << 8 else "<u2" if most < 1 << 16 else "<u4" if most < 1 << 32 else ""
    if not kind:
        return nothing, 0, "<i8", values.astype(np.int64).tobytes()
    small = values.astype(np.int64) - least
    if not all_said:
        small *= said
    return nothing, least, kind, small.astype(kind).tobytes()


def _unpacked(count: int, column: Packed) -> npt.NDArray[Any]:
    nothing, least, kind, raw = column
    if not kind:
        return np.full(count, least, np.int64)
    small = np.frombuffer(raw, kind)
    if kind == "<i8":
        return small
    return np.where(small == 0, np.int64(nothing), small + np.int64(least))


class Table:
    """Rows as `rows.ROW` has them, a column at a time; a part of one takes what it is asked for."""

    def __init__(self, count: int, column: Callable[[str], npt.NDArray[Any]]) -> None:
        self._count = count
        self._column = column
        self._known: dict[str, npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, what: str) -> npt.NDArray[Any]: ...
    @overload
    def __getitem__(self, what: npt.NDArray[Any]) -> "Table": ...
    def __getitem__(self, what: str | npt.NDArray[Any]) -> "npt.NDArray[Any] | Table":
        if isinstance(what, str):
            if what not in self._known:
                self._known[what] = self._column(what)
            return self._known[what]
        at = np.flatnonzero(what) if what.dtype == np.bool_ else what
        return Table(len(at), lambda name: self[name][at])

    def __setitem__(self, name: str, values: npt.NDArray[Any]) -> None:
        self._known[name] = values

    def rows(self) -> Rows:
        """Return all of it as rows."""
        found = np.empty(self._count, ROW)
        for name in _FIELDS:
            found[name] = self[name]
        return found


def unpacked(some: Iterable[bytes]) -> tuple[Table, Texts]:
    """Return the rows of pieces."""
    texts = Texts()
    found = []
    for piece in some:
        count, names, columns = pickle.loads(piece)  # noqa: S301 - of our own tasks # nosec B301
        numbers = np.array([*(texts.number(name) for name in names), NO_TEXT], np.int32)
        found.append((count, numbers, columns))

    def column(name: str) -> npt.NDArray[Any]:
        parts = [
            numbers[values] if name in _NAMED else values
            for count, numbers, columns in found
            for values in (_unpacked(count, columns[name]),)
        ]
        return np.concatenate(parts).astype(ROW[name], copy=False)

    return Table(sum(count for count, _, _ in found), column), texts
