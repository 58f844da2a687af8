"""Packed: rows that the rules look at, on their way from the tasks that read to those that judge.

Who may call: `job`. Invariants: all rows of a partition have one bucket; a piece carries the texts
of its rows; metadata that many brokers cached alike is one row per broker and piece, the earliest.
"""

import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence

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

BUCKETS = 256
"""So that a task that judges holds one 256th of all rows at a time."""
GATHERED = (e.CACHED, e.SENT)
LEADING = (e.DECIDED, e.LED, e.FOLLOWED)
SAID = ("topic", "partition", "leader", "leader_epoch", "isr", "version")
_NAMED = (*TEXTS, "file")


def ruled(rows: Rows, topic: int | None, partitions: Sequence[int]) -> Rows:
    """Return the rows that say something of a partition that the rules look at.

    Those by which clocks are compared are kept of all topics.
    """
    kept = of_kinds(rows, e.RULED) & (rows["topic"] != NO_TEXT)
    kept &= ~of_kinds(rows, GATHERED) | (rows["leader_epoch"] != NONE)
    if topic is not None:
        kept &= is_wanted(rows, topic, partitions) | of_kinds(rows, (*LEADING, e.MOVED))
    return rows[kept]


def is_wanted(rows: Rows, topic: int, partitions: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Tell which rows are of a topic, and of some of its partitions."""
    wanted: npt.NDArray[np.bool_] = rows["topic"] == topic
    return wanted & np.isin(rows["partition"], partitions) if partitions else wanted


def pieces(rows: Rows, texts: Texts) -> Iterator[tuple[int, bytes]]:
    """Give rows as (bucket, piece)."""
    rows = once(rows)
    hashes = np.array([zlib.crc32(name.encode()) for name in texts.names], np.int64)
    buckets = (hashes[rows["topic"]] + rows["partition"].astype(np.int64) * 31) % BUCKETS
    rows = rows[np.argsort(buckets, kind="stable")]
    ends = np.searchsorted(np.sort(buckets), np.arange(BUCKETS + 1))
    for bucket, (begin, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        if begin < end:
            yield bucket, _piece(rows[begin:end], texts)


def once(rows: Rows) -> Rows:
    """Keep of metadata that a broker cached, or was sent, several times the earliest."""
    gathered = of_kinds(rows, GATHERED)
    several = rows[gathered]
    if not len(several):
        return rows
    several = several[np.argsort(several["time_ms"], kind="stable")]
    keys = joined([several[name] for name in (*SAID, "broker")])
    return np.concatenate((rows[~gathered], several[first_of_each(keys)]))


def first_of_each(keys: Numbers) -> Numbers:
    """Return where each number stands first; they are numbered by first appearance."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(keys), prepend=-1))


def _piece(rows: Rows, texts: Texts) -> bytes:
    used, places = np.unique(np.stack([rows[name] for name in _NAMED]), return_inverse=True)
    rows = rows.copy()
    names = [texts.names[number] for number in used.tolist() if number >= 0]
    missing = len(used) - len(names)  # NO_TEXT comes first
    places = places.reshape(len(_NAMED), -1) - missing
    for column, name in enumerate(_NAMED):
        rows[name] = places[column]
    return pickle.dumps((names, rows.tobytes()))


def unpacked(some: Iterable[bytes]) -> tuple[Rows, Texts]:
    """Return the rows of pieces."""
    texts = Texts()
    found = []
    for piece in some:
        names, raw = pickle.loads(piece)  # noqa: S301 - of our own tasks
        rows = np.frombuffer(raw, ROW).copy()
        numbers = np.array([*(texts.number(name) for name in names), NO_TEXT], np.int32)
        for name in _NAMED:
            rows[name] = numbers[rows[name]]
        found.append(rows)
    return np.concatenate(found), texts
