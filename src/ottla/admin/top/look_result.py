"""A look as `ottla top --output json` prints it."""

from collections.abc import Sequence
from typing import Self

from msgspec import Struct

from ottla.admin.top.changes import BrokerRow, Changes


class BrokerLook(Struct):
    broker: int
    alive: bool
    leaders: int
    replicas: int
    out_of_sync: int
    written_per_s: float | None
    requests_per_s: float | None
    produce_p99_ms: float | None
    idle: float | None

    @classmethod
    def of(cls, row: BrokerRow) -> Self:
        facts = row.facts
        known = (None,) * 3 if facts is None else (facts.requests, facts.p99_ms, facts.idle)
        counts = (row.leaders, row.replicas, row.out_of_sync, row.written)
        return cls(row.broker, facts is not None, *counts, *known)


class TopicLook(Struct):
    topic: str
    partitions: int
    without_leader: int
    under_replicated: int
    moving: int
    written_per_s: float | None
    records: int


class Moves(Struct):
    partitions: int
    bytes_copied: int | None
    bytes: int | None
    bytes_per_s: float | None
    seconds_left: float | None


class GroupLook(Struct):
    group: str
    state: str
    members: int
    lag: int


class LookResult(Struct):
    time_ms: int
    controller: int | None
    problem: str | None
    brokers: list[BrokerLook]
    topics: list[TopicLook]
    reassignments: Moves | None
    groups: list[GroupLook]
    events: list[str]

    @classmethod
    def of(cls, changes: Changes, time_ms: int, events: Sequence[str]) -> Self:
        """Return the newest look; `events`: what has happened since the one before."""
        look = changes.look
        assert look is not None
        known = (None,) * 4 if look.estimate is None else look.estimate
        return cls(
            time_ms,
            look.controller if look.controller >= 0 else None,
            look.problem or None,
            [BrokerLook.of(row) for row in changes.brokers()],
            [TopicLook(*row) for row in changes.topics()],
            Moves(len(look.moves), *known) if look.moves else None,
            [GroupLook(name, *group) for name, group in (look.groups or {}).items()],
            list(events),
        )
