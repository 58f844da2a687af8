"""A timeline as text: a line for each partition's leaders and ISR, each broker, the controllers.

Invariants: each change is at least one column; a partition without a leader is never drawn over;
what does not fit is counted, not dropped silently.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.cli.tables import styled
from ottla.explain.spans import DOWN, SHUTTING_DOWN, Change, Gap, Timeline, gaps
from ottla.explain.timestamps import time_text
from ottla.model.ids import TopicPartition
from ottla.model.printable import plural

MOST_PARTITIONS = 40
MOST_EVENTS = 40
LEAST_COLUMNS = 30
LINE, NO_LEADER, DYING, ABSENT = "─", "x", "?", " "
LEGEND = (
    f"{LINE} leads, is in sync, or is up   {NO_LEADER} no leader, or down",
    f"{DYING} the leader's process may be dead: its session has not ended yet",
    "Long stretches without a change are shortened: columns do not measure time.",
)


SHORTEST_MS = 20
"""A stretch of this length counts as one; the logarithm of shorter ones would be negative."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Columns 0 to width - 1 for times from the first to the last.

    Between two changes there are columns in proportion to the logarithm of the time between them.
    """

    times: tuple[int, ...]
    places: tuple[float, ...]
    width: int

    @staticmethod
    def over(times: Iterable[int], width: int) -> "Axis":
        """Return the axis of these times, ms since 1970; at least one."""
        known = sorted(set(times))
        places = [0.0]
        for before, after in itertools.pairwise(known):
            places.append(places[-1] + 1 + math.log2(1 + (after - before) / SHORTEST_MS))
        scale = (width - 1) / places[-1] if places[-1] else 0.0
        return Axis(tuple(known), tuple(place * scale for place in places), width)

    def column(self, ts: int) -> int:
        """Return a time's column; one outside the axis gets the nearest."""
        at = bisect.bisect_right(self.times, ts) - 1
        if at < 0:
            return 0
        if at == len(self.times) - 1:
            return int(self.places[-1])
        share = (ts - self.times[at]) / (self.times[at + 1] - self.times[at])
        return int(self.places[at] + share * (self.places[at + 1] - self.places[at]))


class Part(NamedTuple):
    """A stretch of a line: [start, end) in columns."""

    start: int
    end: int
    fill: str
    label: str
    style: str = ""


def lines(
    timeline: Timeline, session_timeouts_ms: Mapping[int, int], width: int, *, colour: bool
) -> Iterator[str]:
    """Yield the lines of the picture."""
    chosen = _chosen(timeline)
    found = gaps(timeline, session_timeouts_ms)
    names = [f"{tp} {what}" for tp in chosen for what in ("leader", "ISR")]
    names += [f"broker {broker}" for broker in timeline.brokers] + ["controller"]
    margin = max(map(len, names)) + 2
    columns = max(width - margin - 1, LEAST_COLUMNS)
    marks = timeline.events[-MOST_EVENTS:]
    axis = Axis.over(_times(timeline, chosen, found), columns)
    yield f"{time_text(timeline.start)} to {time_text(timeline.end)}"
    yield ""
    yield " " * margin + _numbers([axis.column(mark.ts) for mark in marks], columns)
    for tp in chosen:
        changes = timeline.changes[tp]
        mine = [gap for gap in found if gap.tp == tp]
        yield _row(f"{tp} leader", margin, _leaders(axis, changes, mine), columns, colour)
        yield _row(f"{tp} ISR", margin, _isr(axis, changes), columns, colour)
    left = len(timeline.changes) - len(chosen)
    if left:
        yield f"… and {plural(left, 'partition')}; name a topic or a partition, or use --html"
    for broker in sorted(timeline.brokers):
        yield _row(f"broker {broker}", margin, _broker(axis, timeline, broker), columns, colour)
    yield _row("controller", margin, _terms(axis, timeline), columns, colour)
    yield ""
    skipped = len(timeline.events) - len(marks)
    if skipped:
        yield f"… {plural(skipped, 'event')} before"
    for number, mark in enumerate(marks, 1):
        yield f"{number:>3}  {time_text(mark.ts)}  {mark.what}"
    yield ""
    yield from LEGEND
    if timeline.left_out:
        yield f"{plural(timeline.left_out, 'change')} left out: name a partition, or --from"


def _chosen(timeline: Timeline) -> list[TopicPartition]:
    """Return the partitions to draw: those with the most changes, in order of their names."""
    most = sorted(timeline.changes, key=lambda tp: (-len(timeline.changes[tp]), tp))
    return sorted(most[:MOST_PARTITIONS])


def _times(
    timeline: Timeline, chosen: Sequence[TopicPartition], found: Sequence[Gap]
) -> Iterator[int]:
    yield timeline.start
    yield timeline.end
    for tp in chosen:
        yield from (change.ts for change in timeline.changes[tp])
    for changes in timeline.brokers.values():
        yield from (change.ts for change in changes)
    for term in timeline.terms:
        yield term.start
    names = set(chosen)
    yield from (gap.start for gap in found if gap.tp in names)


def _numbers(columns: Sequence[int], width: int) -> str:
    """Return a line with the numbers of the events where there is room; `*` for one without."""
    line = [" "] * (width + 3)
    for number, column in enumerate(columns, 1):
        text = str(number)
        if all(c == " " for c in line[column : column + len(text) + 1]):
            line[column : column + len(text)] = text
        elif line[column] == " ":
            line[column] = "*"
    return "".join(line).rstrip()


def _row(name: str, margin: int, parts: Sequence[Part], width: int, colour: bool) -> str:
    cells = [ABSENT] * width
    styles = [""] * width
    for part in parts:
        end = min(max(part.end, part.start + 1), width)
        size = end - part.start
        text = part.label if len(part.label) < size or len(part.label) == size == 1 else ""
        text = (text + part.fill * size)[:size]
        cells[part.start : end] = text
        styles[part.start : end] = [part.style] * size
    drawn, at = "", 0
    while at < width:
        end = at
        while end < width and styles[end] == styles[at]:
            end += 1
        text = "".join(cells[at:end])
        drawn += styled(text, styles[at]) if colour and styles[at] else text
        at = end
    return f"{name:<{margin}}{drawn}".rstrip()


def _stretches(axis: Axis, changes: Sequence[Change]) -> Iterator[tuple[int, int, Change]]:
    for index, change in enumerate(changes):
        last = index + 1 == len(changes)
        end = axis.width if last else axis.column(changes[index + 1].ts)
        yield axis.column(change.ts), end, change


def _leaders(axis: Axis, changes: Sequence[Change], mine: Sequence[Gap]) -> list[Part]:
    parts: list[Part] = []
    label = ""
    for start, end, change in _stretches(axis, changes):
        if change.now is None or change.now.leader < 0:
            label = ""
            continue
        leader = str(change.now.leader)
        parts.append(Part(start, end, LINE, "" if leader == label else leader))
        label = leader
    for gap in sorted(mine, key=lambda gap: not gap.dying):
        end = axis.width if gap.end is None else axis.column(gap.end)
        style = "yellow" if gap.dying else "red"
        parts.append(
            Part(axis.column(gap.start), end, DYING if gap.dying else NO_LEADER, "", style)
        )
    return parts


def _isr(axis: Axis, changes: Sequence[Change]) -> list[Part]:
    parts: list[Part] = []
    label = ""
    for start, end, change in _stretches(axis, changes):
        if change.now is None:
            label = ""
            continue
        isr = ",".join(map(str, change.now.isr))
        style = "" if set(change.now.isr) >= set(change.now.replicas) else "yellow"
        parts.append(Part(start, end, LINE, "" if isr == label else isr, style))
        label = isr
    return parts


def _broker(axis: Axis, timeline: Timeline, broker: int) -> list[Part]:
    changes = timeline.brokers[broker]
    parts = []
    for index, change in enumerate(changes):
        last = index + 1 == len(changes)
        end = axis.width if last else axis.column(changes[index + 1].ts)
        down = change.state == DOWN
        label = change.state if change.state == SHUTTING_DOWN else ""
        fill, style = (NO_LEADER, "red") if down else (LINE, "yellow" if label else "")
        parts.append(Part(axis.column(change.ts), end, fill, label, style))
    return parts


def _terms(axis: Axis, timeline: Timeline) -> list[Part]:
    parts = []
    for term in timeline.terms:
        end = axis.width if term.end is None else axis.column(term.end)
        label = f"{term.controller} epoch {term.epoch}"
        parts.append(Part(axis.column(term.start), end, LINE, label))
    return parts
