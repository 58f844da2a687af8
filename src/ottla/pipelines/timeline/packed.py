"""Packed: rows that the rules look at, on their way from the tasks that read to those that judge.

Who may call: `job`. Invariants: all rows of a partition have one bucket; a piece carries the texts
of its rows; metadata that many brokers cached alike is one row per broker and piece, the earliest.
"""

import itertools
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

FEWEST_BUCKETS, MOST_BUCKETS = 32, 4096
OF_BUCKET = 32 << 20
"""Bytes of files for each bucket, so that a task that judges holds 10 MB of rows or less."""
_FEW_TEXTS = 64
GATHERED = (e.CACHED, e.SENT)
LEADING = (e.DECIDED, e.LED, e.FOLLOWED)
SAID = ("topic", "partition", "leader", "leader_epoch", "isr", "version")
_NAMED = (*TEXTS, "file")


def buckets_for(size: int | None) -> int:
    """Return how many buckets the rows of so many bytes go to; None for an unknown size."""
    if size is None:
        return MOST_BUCKETS // 4
    return min(max(size // OF_BUCKET, FEWEST_BUCKETS), MOST_BUCKETS)


def ruled(rows: Rows, topic: int | None, partitions: Sequence[int]) -> Rows:
    """Return the rows that say something of a partition that the rules look at.

    Those by which clocks are compared are kept of all topics.
    """
    kept = of_kinds(rows, e.RULED) & (rows["topic"] != NO_TEXT)
    kept &= ~of_kinds(rows, GATHERED) | (rows["leader_epoch"] != NONE)
    if topic is not None:
        kept &= is_wanted(rows, topic, partitions) | of_kinds(rows, (*LEADING, e.MOVED))
    return rows[kept]  # type: ignore[no-any-return]


def is_wanted(rows: Rows, topic: int, partitions: Sequence[int]) -> npt.NDArray[np.bool_]:
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
    """Say which rows to keep: of metadata that a broker was told several times the earliest."""
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
