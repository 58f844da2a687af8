"""Findings: what must not happen to one partition, or to one broker, and what is worth a look.

Invariants: pure; an error is said only of what the logs prove: the same leader epoch led by two
brokers, a broker's own order of epochs, controller epochs against leader epochs. Only overlapping
terms rest on clocks, and so on a tolerance.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.facts import Fact
from ottla.pipelines.timeline.terms import Gap, Term

ERROR, WARNING = "error", "warning"
DOUBLE_LEADER = "double-leader"
OVERLAP = "overlapping-terms"
STALE_LEADER_EPOCH = "stale-leader-epoch"
STALE_CONTROLLER = "stale-controller-epoch"
NO_LEADER = "no-leader"


class Finding(msgspec.Struct, frozen=True, gc=False):
    """One thing that is wrong, when it was seen first, and at which broker."""

    kind: str
    level: str
    time_ms: int
    broker: int
    text: str


def double_leaders(own: Mapping[int, Sequence[Fact]], decided: Iterable[Fact]) -> list[Finding]:
    """Find leader epochs that two brokers lead, or were given to lead."""
    found = []
    led: dict[tuple[int, int], dict[int, Fact]] = {}
    for lines in own.values():
        for fact in lines:
            if fact.kind == e.LED and fact.leader_epoch is not None:
                of_epoch = led.setdefault((fact.life, fact.leader_epoch), {})
                of_epoch.setdefault(fact.broker, fact)
    for (_, epoch), by_broker in sorted(led.items()):
        if len(by_broker) == 1:
            continue
        first, *others = sorted(by_broker.values(), key=lambda f: f.time_ms)
        for other in others:
            if _same_topic(first, other):
                text = (
                    f"brokers {first.broker} and {other.broker} both lead at leader epoch {epoch}"
                )
                found.append(Finding(DOUBLE_LEADER, ERROR, other.time_ms, other.broker, text))
    given: dict[tuple[int, int], Fact] = {}
    for fact in sorted(decided, key=lambda f: f.time_ms):
        if fact.leader is None or fact.leader < 0 or fact.leader_epoch is None:
            continue
        before = given.setdefault((fact.life, fact.leader_epoch), fact)
        if before.leader != fact.leader:
            text = (
                f"leader epoch {fact.leader_epoch} was given to broker {before.leader} by "
                f"controller {before.broker} (epoch {before.epoch}) and to broker {fact.leader} by "
                f"controller {fact.broker} (epoch {fact.epoch})"
            )
            found.append(Finding(DOUBLE_LEADER, ERROR, fact.time_ms, fact.broker, text))
    return found


def _same_topic(one: Fact, other: Fact) -> bool:
    return one.topic_id is None or other.topic_id is None or one.topic_id == other.topic_id


def overlaps(terms: Sequence[Term], tolerance_ms: int) -> list[Finding]:
    """Find leaders that led on, by their own word, long after the next had begun."""
    found = []
    for _, group in groupby(terms, key=lambda t: t.life):
        last: Term | None = None
        for term in group:
            if last is not None and last.ended_to_ms is not None and last.leader != term.leader:
                ms = last.ended_to_ms - term.began_ms
                if ms > tolerance_ms and last.last_epoch < term.first_epoch:
                    text = (
                        f"broker {last.leader} led on at leader epoch {last.last_epoch} for "
                        f"{ms / 1000:.3f} s after broker {term.leader} began at leader epoch "
                        f"{term.first_epoch}"
                    )
                    found.append(Finding(OVERLAP, ERROR, term.began_ms, last.leader, text))
            ended = term.ended_to_ms or 0
            if term.own_word and (last is None or ended > (last.ended_to_ms or 0)):
                last = term
    return found


def stale_leader_epochs(own: Mapping[int, Sequence[Fact]]) -> list[Finding]:
    """Find brokers that took a role at an epoch after they had had a newer one."""
    found = []
    for broker, lines in own.items():
        newest: Fact | None = None
        for fact in lines:
            if fact.leader_epoch is None:
                continue
            if newest is None or newest.life != fact.life:
                newest = fact
            assert newest.leader_epoch is not None
            if fact.leader_epoch < newest.leader_epoch and _same_topic(fact, newest):
                role = "leads" if fact.kind == e.LED else "follows"
                text = (
                    f"broker {broker} {role} at leader epoch {fact.leader_epoch} after it had "
                    f"acted on leader epoch {newest.leader_epoch}"
                )
                found.append(Finding(STALE_LEADER_EPOCH, ERROR, fact.time_ms, broker, text))
            elif fact.leader_epoch > newest.leader_epoch:
                newest = fact
    return found


def stale_decisions(decided: Iterable[Fact]) -> list[Finding]:
    """Find leaderships written by a controller after one of a newer controller epoch."""
    found = []
    newest: Fact | None = None
    ordered = [f for f in decided if f.leader_epoch is not None and f.epoch is not None]
    ordered.sort(key=lambda f: (f.life, f.leader_epoch or 0, f.epoch or 0))
    for fact in ordered:
        if newest is None or newest.life != fact.life or (fact.epoch or 0) >= (newest.epoch or 0):
            newest = fact
            continue
        text = (
            f"controller {fact.broker} of epoch {fact.epoch} wrote leader epoch "
            f"{fact.leader_epoch} after controller {newest.broker} of epoch {newest.epoch} had "
            f"written leader epoch {newest.leader_epoch}"
        )
        found.append(Finding(STALE_CONTROLLER, ERROR, fact.time_ms, fact.broker, text))
    return found


class Acted(NamedTuple):
    """When a broker first and last acted on requests of a controller epoch, in one file."""

    broker: int
    file: int
    epoch: int
    first_place: tuple[int, int]
    first_ms: int
    last_place: tuple[int, int]
    last_ms: int


def stale_controllers(acted: Iterable[Acted]) -> list[Finding]:
    """Find brokers that acted on a controller's request after one of a newer controller epoch.

    Within a file by its order, across a broker's files by time.
    """
    found = []
    ordered = sorted(acted, key=lambda a: (a.broker, a.epoch))
    for broker, group in groupby(ordered, key=lambda a: a.broker):
        spans = list(group)
        reported = set()
        for old in spans:
            for new in spans:
                if new.epoch <= old.epoch or (old.epoch, new.epoch) in reported:
                    continue
                same = old.file == new.file
                if (same and old.last_place > new.first_place) or (
                    not same and old.last_ms > new.first_ms
                ):
                    reported.add((old.epoch, new.epoch))
                    text = (
                        f"broker {broker} acted on a request of controller epoch {old.epoch} "
                        f"after it had acted on one of controller epoch {new.epoch}"
                    )
                    found.append(Finding(STALE_CONTROLLER, ERROR, old.last_ms, broker, text))
    return found


def leaderless(gaps: Iterable[Gap]) -> list[Finding]:
    """Tell of partitions that had no leader when the logs ended."""
    return [
        Finding(
            NO_LEADER, WARNING, gap.start_to_ms, gap.after,
            f"no leader since broker {gap.after} {gap.how}, until the logs end",
        )
        for gap in gaps
        if gap.end_ms is None
    ]  # fmt: skip


def decided_states(facts: Iterable[Fact]) -> list[Fact]:
    """Return what controllers wrote, of their own words."""
    return [f for f in facts if f.kind == e.DECIDED]
