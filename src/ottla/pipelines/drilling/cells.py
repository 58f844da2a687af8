"""Cells: what became of the offsets of a part of one partition: acknowledged, held, landed.

Invariants: pure; a cell is CELL offsets at most, so that its arrays have a bound; counts are exact,
of the offsets themselves the first MOST spans are kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

CELL = 1 << 20
"""Offsets in a cell."""
MOST = 100
"""Spans of offsets that are kept of each kind."""
GOOD_DATA, EXACT, TRANSACTIONAL = 1, 2, 4
"""Flags of a run: records, not markers; as many records as offsets; written in transactions."""

Array = np.ndarray[Any, Any]


class Run(NamedTuple):
    """Offsets `base` to `last` of one replica, in whole batches of one leader epoch."""

    broker: int
    base: int
    last: int
    epoch: int
    flags: int


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a partition before its offsets are looked at.

    `starts`: by broker, where its log begins. `cleaned`: below it the cleaner was in a log.
    `high_watermark`: the running cluster's; None if it was not asked. `terms`: (began_ms, last
    leader epoch) by time. `acks`, `lake`: whether there is anything to compare with.
    """

    starts: dict[int, int] = {}
    cleaned: int = 0
    high_watermark: int | None = None
    terms: list[tuple[int, int]] = []
    acks: bool = False
    lake: bool = False
    committed_only: bool = False
    """The lake has records of committed transactions alone."""
    tolerance_ms: int = 1000
    whole_time: bool = True
    """No range of time was asked for: an offset without an acknowledgement had none."""

    @property
    def start(self) -> int:
        """The first offset that must be there: before it retention or the cleaner was."""
        return max(min(self.starts.values(), default=0), self.cleaned)


class Offsets(msgspec.Struct):
    """How many offsets, and the first spans of them: [first, last]."""

    count: int = 0
    spans: list[tuple[int, int]] = []

    @property
    def first(self) -> int | None:
        return self.spans[0][0] if self.spans else None


class Acked(msgspec.Struct):
    """Acknowledgements that came in one term: how many, the lowest and the highest offset."""

    count: int
    first: int
    last: int


class Cell(msgspec.Struct):
    """What was found in a cell; all but `rows`, `row_*` and `by_term` count offsets.

    `by_term`: by the place in `Known.terms`; -1: before the first, or at a time no one knows.
    """

    acked: Offsets = msgspec.field(default_factory=Offsets)
    acked_last: int = -1
    by_term: dict[int, Acked] = {}
    lost: Offsets = msgspec.field(default_factory=Offsets)
    removed: Offsets = msgspec.field(default_factory=Offsets)
    not_readable: Offsets = msgspec.field(default_factory=Offsets)
    overwritten: Offsets = msgspec.field(default_factory=Offsets)
    twice: Offsets = msgspec.field(default_factory=Offsets)
    unacknowledged: Offsets = msgspec.field(default_factory=Offsets)
    lacking: dict[int, Offsets] = {}
    """By broker: acknowledged, held by another replica, and not by this one."""
    rows: int = 0
    row_first: int = -1
    row_last: int = -1
    not_in_lake: Offsets = msgspec.field(default_factory=Offsets)
    doubled_in_lake: Offsets = msgspec.field(default_factory=Offsets)
    not_in_log: Offsets = msgspec.field(default_factory=Offsets)
    waiting: Offsets = msgspec.field(default_factory=Offsets)
    unjudged: Offsets = msgspec.field(default_factory=Offsets)
    """Landed without a row, and no one can tell whether there should be one."""


def judge(
    known: Known,
    acks: tuple[Array, Array],
    rows: Array,
    runs: Sequence[Run],
    landed: Sequence[tuple[int, int]],
) -> Cell:
    """Return what became of the offsets.

    `acks`: offsets and times in ms (0: unknown), one for each acknowledgement; `rows`: offsets of
    the lake's rows and dead letters; `landed`: spans [first, last] that the lake says it has.
    """
    offsets, times = acks
    ends = [*(r.last for r in runs), *(last for _, last in landed)]
    starts = [*(r.base for r in runs), *(first for first, _ in landed)]
    for found in (offsets, rows):
        if len(found):
            starts.append(int(found.min()))
            ends.append(int(found.max()))
    if not starts:
        return Cell()
    low = min(starts)
    size = max(ends) - low + 1
    log = _Log(low, size, runs)
    in_lake = np.zeros(size, bool)
    for first, last in landed:
        in_lake[first - low : last - low + 1] = True
    cell = Cell()
    acked = np.bincount(offsets - low, minlength=size)
    if known.acks:
        _acknowledged(cell, known, log, acked, offsets, times)
    if known.lake:
        _landed(cell, known, log, np.bincount(rows - low, minlength=size), in_lake)
    return cell


class _Log:
    """What the replicas hold of a cell, one array over its offsets for each fact."""

    def __init__(self, low: int, size: int, runs: Sequence[Run]) -> None:
        self.low = low
        self.at = np.arange(low, low + size)
        self.held: dict[int, Array] = {}
        self.epoch = np.full(size, -1, np.int64)
        self.data = np.zeros(size, bool)
        self.exact = np.zeros(size, bool)
        self.transactional = np.zeros(size, bool)
        for run in runs:
            part = slice(run.base - low, run.last - low + 1)
            self.held.setdefault(run.broker, np.zeros(size, bool))[part] = True
            np.maximum(self.epoch[part], run.epoch, out=self.epoch[part])
            self.data[part] |= bool(run.flags & GOOD_DATA)
            self.exact[part] |= bool(run.flags & EXACT)
            self.transactional[part] |= bool(run.flags & TRANSACTIONAL)
        self.any = np.zeros(size, bool)
        for mask in self.held.values():
            self.any |= mask

    def spans(self, mask: Array) -> Offsets:
        return spans_of(mask, self.low)


def spans_of(mask: Array, low: int) -> Offsets:
    """Return the offsets at which a mask is true."""
    places = np.flatnonzero(mask)
    if not len(places):
        return Offsets()
    breaks = np.flatnonzero(np.diff(places) > 1)
    firsts = places[np.concatenate(([0], breaks + 1))][:MOST]
    lasts = places[np.concatenate((breaks, [len(places) - 1]))][:MOST]
    found = [(int(a) + low, int(b) + low) for a, b in zip(firsts, lasts, strict=True)]
    return Offsets(len(places), found)


def _readable(known: Known, log: _Log) -> Array:
    mark = known.high_watermark
    return np.ones(len(log.at), bool) if mark is None else log.at < mark


def _acknowledged(
    cell: Cell, known: Known, log: _Log, acked: Array, offsets: Array, times: Array
) -> None:
    there = acked > 0
    readable = _readable(known, log)
    kept = log.at >= known.start
    cell.acked = log.spans(there)
    cell.acked_last = int(offsets.max()) if len(offsets) else -1
    cell.lost = log.spans(there & ~log.any & kept)
    cell.removed = log.spans(there & ~log.any & ~kept)
    cell.not_readable = log.spans(there & log.any & ~readable)
    cell.twice = log.spans(acked > 1)
    if known.whole_time:
        cell.unacknowledged = log.spans(log.data & log.exact & ~there & readable)
    for broker, start in known.starts.items():
        held = log.held.get(broker, np.zeros(len(log.at), bool))
        lacking = log.spans(there & log.any & ~held & (log.at >= max(start, known.cleaned)))
        if lacking.count:
            cell.lacking[broker] = lacking
    _by_terms(cell, known, log, offsets, times)


def _by_terms(cell: Cell, known: Known, log: _Log, offsets: Array, times: Array) -> None:
    """Count acknowledgements by term; find what a later leader wrote in a record's place.

    What stands at an offset was written by a leader of its epoch. If that epoch began after the
    acknowledgement came, the record that was acknowledged is not the one that stands there.
    """
    begun = np.array([began for began, _ in known.terms], np.int64)
    epochs = np.array([-1, *(epoch for _, epoch in known.terms)], np.int64)
    term = np.searchsorted(begun, times, "right")
    for place in np.unique(term):
        of_term = offsets[term == place]
        cell.by_term[int(place) - 1] = Acked(len(of_term), int(of_term.min()), int(of_term.max()))
    latest = np.searchsorted(begun, times + known.tolerance_ms, "right")
    # An epoch is known to be too late only if the term that it began with is known, too.
    late = (term > 0) & (log.epoch[offsets - log.low] > np.maximum.accumulate(epochs)[latest])
    mask = np.zeros(len(log.at), bool)
    mask[offsets[late] - log.low] = True
    cell.overwritten = log.spans(mask & log.any)


def _landed(cell: Cell, known: Known, log: _Log, rows: Array, in_lake: Array) -> None:
    there = rows > 0
    kept = log.at >= known.start
    cell.rows = int(rows.sum())
    if cell.rows:
        places = np.flatnonzero(there)
        cell.row_first, cell.row_last = int(log.at[places[0]]), int(log.at[places[-1]])
    missing = log.data & in_lake & ~there & kept
    certain = log.exact
    if known.committed_only:
        certain = certain & ~log.transactional
    cell.not_in_lake = log.spans(missing & certain)
    cell.unjudged = log.spans(missing & ~certain)
    cell.doubled_in_lake = log.spans(rows > 1)
    cell.not_in_log = log.spans(there & ~log.any & kept)
    cell.waiting = log.spans(log.data & ~in_lake & kept & _readable(known, log))


# -- cells of one partition, added up ----------------------------------------------------------


def added(cells: Iterable[Cell]) -> Cell:
    """Return what several cells of one partition hold together; they come by rising offset."""
    whole = Cell()
    for cell in cells:
        for name in _OFFSETS:
            setattr(whole, name, _both(getattr(whole, name), getattr(cell, name)))
        for broker, lacking in cell.lacking.items():
            whole.lacking[broker] = _both(whole.lacking.get(broker, Offsets()), lacking)
        for place, acked in cell.by_term.items():
            before = whole.by_term.get(place, Acked(0, acked.first, acked.last))
            whole.by_term[place] = Acked(
                before.count + acked.count,
                min(before.first, acked.first),
                max(before.last, acked.last),
            )
        whole.acked_last = max(whole.acked_last, cell.acked_last)
        whole.rows += cell.rows
        if cell.rows:
            whole.row_first = cell.row_first if whole.row_first < 0 else whole.row_first
            whole.row_last = cell.row_last
    return whole


_OFFSETS = (
    "acked", "lost", "removed", "not_readable", "overwritten", "twice", "unacknowledged",
    "not_in_lake", "doubled_in_lake", "not_in_log", "waiting", "unjudged",
)  # fmt: skip


def _both(one: Offsets, other: Offsets) -> Offsets:
    spans = list(one.spans)
    for first, last in other.spans:
        if spans and spans[-1][1] + 1 == first and len(one.spans) < MOST:
            spans[-1] = (spans[-1][0], last)
        elif len(spans) < MOST:
            spans.append((first, last))
    return Offsets(one.count + other.count, spans)


def in_words(found: Offsets | Mapping[str, Any], shown: int = 5) -> str:
    """Return offsets as `17, 20-29, …`."""
    spans = found.spans if isinstance(found, Offsets) else found["spans"]
    parts = [str(a) if a == b else f"{a}-{b}" for a, b in spans[:shown]]
    return ", ".join([*parts, *(["…"] if len(spans) > shown else [])])
