"""Facts: what the logs say of one partition, in an order that no clock can spoil.

Invariants: pure; a broker's own lines stay in the order it wrote them, file by file; files of one
broker that overlap in time are merged by a time that never goes back. A partition that was deleted
and created again begins a new life, with leader epochs from 0; a fact belongs to the life that its
time falls into, and a broker's facts never go back to an earlier one.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

from ottla.pipelines.timeline import events as e

NEW, NONE_YET, OFFLINE = "NewPartition", "NonExistentPartition", "OfflinePartition"
JOURNAL = "JOURNAL"
SAME_CREATION_MS = 1000
"""A log and a journal tell of the same creation at about the same time."""
EARLY_MS = 2000
"""A clock that is behind may put a replica's first line so long before its creation."""


class Fact(NamedTuple):
    """An event about one partition, as `events.Event`; its time is in agreement with others."""

    time_ms: int
    broker: int
    kind: str
    level: str = "INFO"
    epoch: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    isr: str | None = None
    version: int | None = None
    previous: int | None = None
    topic_id: str | None = None
    before: str | None = None
    after: str | None = None
    offset: int | None = None
    file: int = 0
    """Files of all brokers, by number, a broker's older one first."""
    place: int = 0
    """Where in the file."""
    life: int = 0
    """Set by `in_lives`: 0 for the first that the logs know of."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """What the logs say of brokers, whatever the partition."""

    signs: Callable[[int, int], int | None] = lambda _broker, _before: None
    """(broker, before) -> when the broker last wrote any line before that time."""
    gone: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """When controllers saw registrations go, in order."""
    last_ms: int = 0
    """The end of all logs."""


def own_lines(facts: Iterable[Fact]) -> dict[int, list[Fact]]:
    """Return, by broker, what it says of its own replica, in its own order, roles' epochs known.

    Before Kafka 2.8 a line where a role begins has no leader epoch: it is that of the request. Else
    requests play no part, not in the order either: `partition_facts` puts those together.
    """
    kinds = {e.LED, e.FOLLOWED, e.STOPPED, e.ASKED}
    of_broker: dict[int, list[Fact]] = {}
    for fact in facts:
        if fact.kind in kinds:
            of_broker.setdefault(fact.broker, []).append(fact)
    found = {}
    for broker, said in sorted(of_broker.items()):
        lines = said if any(map(_has_no_epoch, said)) else [f for f in said if f.kind != e.ASKED]
        if not lines:
            continue
        lines.sort(key=attrgetter("file", "place"))
        if lines[0].file == lines[-1].file:
            roles = _with_epochs(lines)
        else:
            by_file = groupby(lines, key=attrgetter("file"))
            files = [_monotonic(list(of_file)) for _, of_file in by_file]
            roles = _with_epochs([fact for _, fact in merge(*files, key=itemgetter(0))])
        if roles:
            found[broker] = roles
    return found


def _has_no_epoch(fact: Fact) -> bool:
    return fact.kind in {e.LED, e.FOLLOWED} and fact.leader_epoch is None


def _monotonic(facts: list[Fact]) -> list[tuple[int, Fact]]:
    latest = facts[0].time_ms
    timed = []
    for fact in facts:
        latest = max(latest, fact.time_ms)
        timed.append((latest, fact))
    return timed


def _with_epochs(facts: list[Fact]) -> list[Fact]:
    """Drop requests; give an older broker's roles the epoch it was last asked to take."""
    whole = any(f.kind in {e.LED, e.FOLLOWED} and f.leader_epoch is not None for f in facts)
    found: list[Fact] = []
    asked: Fact | None = None
    for fact in facts:
        if fact.kind == e.ASKED:
            asked = fact
        elif fact.kind == e.STOPPED or fact.leader_epoch is not None:
            found.append(fact)
        elif not whole and asked is not None:
            found.append(
                fact._replace(
                    leader_epoch=asked.leader_epoch,
                    leader=asked.leader,
                    isr=asked.isr,
                    version=asked.version,
                )
            )
    return found


def creations(facts: Iterable[Fact]) -> list[int]:
    """Return when the partition was created, as far as the logs say."""
    said: dict[bool, list[int]] = {True: [], False: []}
    for fact in facts:
        if fact.before == NONE_YET and fact.after == NEW:
            said[fact.level == JOURNAL].append(fact.time_ms)
    found: list[int] = []
    by_journals = len(said[True]) > len(said[False])
    for time in sorted(said[by_journals]):
        if not found or time - found[-1] > SAME_CREATION_MS:
            found.append(time)
    return found


def in_lives(
    facts: Sequence[Fact], own: Mapping[int, list[Fact]]
) -> tuple[list[Fact], dict[int, list[Fact]], list[int]]:
    """Say of each fact, and of each broker's own lines, to which life they belong.

    Returned with the times at which lives begin that are not the first.
    """
    marks = creations(facts)
    if marks and all(fact.time_ms >= marks[0] - EARLY_MS for fact in facts):
        marks = marks[1:]  # the logs know of nothing before
    if not marks:
        return list(facts), dict(own), marks
    lived = [fact._replace(life=bisect_right(marks, fact.time_ms)) for fact in facts]
    owned = {}
    for broker, lines in own.items():
        life = 0
        found = []
        for fact in lines:
            first = fact.leader_epoch == 0 and fact.previous == -1
            life = max(life, bisect_right(marks, fact.time_ms + EARLY_MS * first))
            found.append(fact._replace(life=life))
        owned[broker] = found
    return lived, owned, marks
