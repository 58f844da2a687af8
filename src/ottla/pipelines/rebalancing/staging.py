"""Stages: a plan in parts, each of which is executed and has ended before the next one begins.

Pure. In a stage every broker has room for what it has and all that comes to it, since old replicas
go only when the new ones are in sync. What must move comes first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.pipelines.rebalancing.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of one stage: bytes copied, partitions, replicas that come to one broker.

    A partition that alone is more than `max_bytes` is a stage by itself.
    """

    max_bytes: int = 100 * 1024**3
    partitions: int = 500
    moves_per_broker: int = 50


class Change(NamedTuple):
    """One partition's replicas before and after; `forced`: a hard goal asks for it."""

    tp: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: int
    rate: int
    forced: bool
    urgent: int = 0
    """Among the forced ones the lowest comes first."""

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(b for b in self.after if b not in self.before)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(b for b in self.before if b not in self.after)

    @property
    def copied(self) -> int:
        """Bytes that have to be copied."""
        return self.size * len(self.adding)


class Room:
    """What brokers hold while stages go by."""

    def __init__(self, problem: Problem) -> None:
        self.brokers = problem.by_id()
        self.most = problem.goals.max_replicas
        self.bytes = {b.id: b.fixed for b in problem.brokers}
        self.rate = dict.fromkeys(self.bytes, 0)
        self.count = dict.fromkeys(self.bytes, 0)
        for p in problem.partitions:
            for b in p.replicas:
                self.add(b, p.size, p.rate)

    def add(self, broker: int, size: int, rate: int, one: int = 1) -> None:
        """Count a replica more, or with -1 one less."""
        self.bytes[broker] += one * size
        self.rate[broker] += one * rate
        self.count[broker] += one

    def allows(self, change: Change) -> bool:
        """Return whether all brokers to which the partition comes have room for it now."""
        for b in change.adding:
            broker = self.brokers[b]
            limit = broker.rate_capacity
            if (
                self.bytes[b] + change.size > broker.capacity
                or (limit is not None and self.rate[b] + change.rate > limit)
                or (self.most is not None and self.count[b] >= self.most)
            ):
                return False
        return True


def staged(
    problem: Problem, changes: Sequence[Change], bounds: Bounds
) -> tuple[list[list[Change]], list[Change]]:
    """Return the stages, and the changes for which there never was room."""
    room = Room(problem)
    left = sorted(changes, key=lambda c: (not c.forced, c.urgent, -c.copied, c.tp))
    stages: list[list[Change]] = []
    while left:
        stage, later = _next_stage(room, left, bounds)
        if not stage:
            break
        for change in stage:
            for b in change.removing:
                room.add(b, change.size, change.rate, -1)
        stages.append(stage)
        left = later
    return stages, left


def _next_stage(
    room: Room, left: Sequence[Change], bounds: Bounds
) -> tuple[list[Change], list[Change]]:
    """Return what is to be done now, and what later; counts what is added now."""
    stage: list[Change] = []
    later: list[Change] = []
    coming: dict[int, int] = {}
    copied = 0
    for change in left:
        if (
            len(stage) >= bounds.partitions
            or (stage and copied + change.copied > bounds.max_bytes)
            or any(coming.get(b, 0) >= bounds.moves_per_broker for b in change.adding)
            or not room.allows(change)
        ):
            later.append(change)
            continue
        stage.append(change)
        copied += change.copied
        for b in change.adding:
            coming[b] = coming.get(b, 0) + 1
            room.add(b, change.size, change.rate)
    return stage, later


def busiest(stage: Sequence[Change], leaders: Mapping[TopicPartition, int]) -> int:
    """Return the most bytes that one broker receives, or sends as leader, in a stage."""
    received: dict[int, int] = {}
    sent: dict[int, int] = {}
    for change in stage:
        leader = leaders[change.tp]
        sent[leader] = sent.get(leader, 0) + change.copied
        for b in change.adding:
            received[b] = received.get(b, 0) + change.size
    return max([0, *received.values(), *sent.values()])
