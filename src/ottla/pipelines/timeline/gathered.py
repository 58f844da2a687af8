"""Gathered: what a task's rows say of files and brokers, small enough for the driver.

Invariants: pure; what two tasks gathered can be put together in any order. Times are the writers'
own: clocks are agreed upon later. Signs of life are all milliseconds at which a broker wrote; where
these are more than SIGNS, the first and last of each second.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.rows import KIND, NONE, SIDE, Numbers, Rows, Texts, of_kinds, runs

SIGNS = 2_000_000
"""Signs of life that a task and the driver hold at most: 16 MB."""
SECOND_MS = 1000
Place = tuple[int, int, int]
"""block, line, time"""


@dataclass(slots=True)
class File:
    """What one file holds, without the lines outside the wanted time."""

    lines: int = 0
    unread: int = 0
    dropped: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    brokers: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Gathered:
    """Of files by name; of brokers by number."""

    files: dict[str, File] = field(default_factory=dict)
    acted: dict[tuple[int, str, int], tuple[Place, Place]] = field(default_factory=dict)
    """By broker, file and controller epoch: when it acted on its requests, first and last."""
    gone: list[tuple[int, int, int]] = field(default_factory=list)
    """Who went, who says so, and when."""
    signs: dict[int, list[Numbers]] = field(default_factory=dict)
    held: int = 0

    def add(self, rows: Rows, name: str) -> None:
        """Take in rows of one file, in its order."""
        if not len(rows):
            return
        unread = rows["kind"] == KIND[e.UNREAD]
        read = rows[~unread] if unread.any() else rows
        file = self.files.setdefault(name, File())
        file.unread += len(rows) - len(read)
        if not len(read):
            return
        file.lines += len(read)
        times = read["time_ms"]
        first, last = int(times.min()), int(times.max())
        file.first_ms = first if file.first_ms is None else min(file.first_ms, first)
        file.last_ms = last if file.last_ms is None else max(file.last_ms, last)
        dropped = read[(read["kind"] == KIND[e.DROPPED]) & (read["offset"] != NONE)]
        if len(dropped):
            file.dropped = (file.dropped or 0) + int(dropped["offset"].sum())
        first_broker = read["broker"][0]
        alike = (read["broker"] == first_broker).all()
        brokers = [int(first_broker)] if alike else np.unique(read["broker"]).tolist()
        file.brokers.update(brokers)
        for broker in brokers:
            self._sign(broker, times if len(brokers) == 1 else times[read["broker"] == broker])
        for row in read[read["kind"] == KIND[e.GONE]]:
            if row["about"] != NONE:
                self.gone.append((int(row["about"]), int(row["broker"]), int(row["time_ms"])))
        self._act(read, name)

    def _sign(self, broker: int, times: Numbers) -> None:
        changed = times[runs(times)[:-1]]
        self.signs.setdefault(broker, []).append(changed)
        self.held += len(changed)
        if self.held > SIGNS:
            self._thin()

    def _thin(self) -> None:
        self.signs = {b: [np.unique(np.concatenate(some))] for b, some in self.signs.items()}
        self.held = sum(len(times) for some in self.signs.values() for times in some)
        if self.held > SIGNS // 2:
            self.signs = {b: [ends_of_cells(some[0], SECOND_MS)] for b, some in self.signs.items()}
            self.held = sum(len(times) for some in self.signs.values() for times in some)

    def _act(self, read: Rows, name: str) -> None:
        acting = of_kinds(read, (e.CACHED, e.LED, e.FOLLOWED)) & (read["epoch"] != NONE)
        acts = np.flatnonzero(acting & (read["side"] == SIDE[e.BROKER]))
        brokers, epochs = read["broker"][acts].astype(np.int64), read["epoch"][acts]
        ends = runs(brokers << 32 | epochs.astype(np.int64) + (1 << 31))
        for begin, end in itertools.pairwise(ends.tolist()):
            one, other = read[acts[begin]], read[acts[end - 1]]
            key = (int(one["broker"]), name, int(one["epoch"]))
            self._span(key, _place(one), _place(other))

    def _span(self, key: tuple[int, str, int], first: Place, last: Place) -> None:
        known = self.acted.get(key, (first, last))
        self.acted[key] = (min(known[0], first), max(known[1], last))

    def merge(self, other: "Gathered") -> None:
        """Take in what another task gathered."""
        for name, one in other.files.items():
            mine = self.files.setdefault(name, File())
            mine.lines += one.lines
            mine.unread += one.unread
            if one.dropped is not None:
                mine.dropped = (mine.dropped or 0) + one.dropped
            if one.first_ms is not None and one.last_ms is not None:
                first, last = mine.first_ms, mine.last_ms
                mine.first_ms = one.first_ms if first is None else min(first, one.first_ms)
                mine.last_ms = one.last_ms if last is None else max(last, one.last_ms)
            mine.brokers |= one.brokers
        for key, (first_place, last_place) in other.acted.items():
            self._span(key, first_place, last_place)
        self.gone += other.gone
        for broker, times in other.signs.items():
            for some in times:
                self._sign(broker, some)

    def times(self) -> dict[int, Numbers]:
        """Return when each broker wrote, in order."""
        return {b: np.unique(np.concatenate(some)) for b, some in self.signs.items()}


def ends_of_cells(times: Numbers, step_ms: int) -> Numbers:
    """Return the first and last of ordered times in each interval of so many milliseconds."""
    ends = runs(times // step_ms)
    return np.unique(np.concatenate((times[ends[:-1]], times[ends[1:] - 1])))


def signs(times: dict[int, Numbers], shifts: dict[int, int]) -> dict[int, Numbers]:
    """Return, by broker, the first and last time in each second in which it wrote something.

    With clocks agreed; coarser where there are more than SIGNS.
    """
    step = SECOND_MS
    agreed = {broker: some + shifts.get(broker, 0) for broker, some in times.items()}
    while True:
        cells = sum(len(runs(some // step)) - 1 for some in agreed.values())
        if cells <= SIGNS // 2:
            return {broker: ends_of_cells(some, step) for broker, some in agreed.items()}
        step *= 60


def named(rows: Rows, texts: Texts) -> str:
    """Return the file of rows that have one."""
    return texts.names[int(rows["file"][0])]


def _place(row: Rows) -> Place:
    return int(row["block"]), int(row["line"]), int(row["time_ms"])
