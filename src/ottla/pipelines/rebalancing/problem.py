"""The problem: brokers, partitions and goals as plain values, and the shares that follow from them.

Pure. Sizes are bytes, rates bytes per second; every replica of a partition counts with the same
size, the largest that any broker reported, since a new copy will be as large as its leader.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.printable import plural

Assignment = dict[TopicPartition, tuple[int, ...]]


class UnmetGoalError(OttlaError):
    """A hard goal that cannot be met; the message is one line and says which."""


class Broker(NamedTuple):
    """A broker: what it may hold and whether replicas may come to it or have to leave it.

    `capacity`: bytes that replicas may take at any time; `weight`: its share of all bytes is in
    proportion to that; `rate_capacity`: bytes per second that are written to its replicas, None:
    no limit; `fixed`: bytes of the capacity that are taken by what is no replica of a partition.
    """

    id: int
    rack: str | None
    capacity: int
    weight: int
    rate_capacity: int | None = None
    fixed: int = 0
    receives: bool = True
    leaves: bool = False
    alive: bool = True


class Partition(NamedTuple):
    """A partition: replicas in order (the first is preferred as leader), bytes and bytes/s of one.

    `leader`: -1 if there is none; `offline`: brokers whose replica is on a failed log dir;
    not `movable`: it stays as it is and only counts.
    """

    tp: TopicPartition
    replicas: tuple[int, ...]
    size: int
    rate: int = 0
    leader: int = -1
    offline: frozenset[int] = frozenset()
    movable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """What is wanted.

    `band`: by what part of its share a broker's bytes may differ from it; `topic_band`: by what
    part more than the mean of a topic's replicas a broker may have; `max_replicas`: of a broker;
    `max_bytes`: how much to copy for the soft goals at most, forced copies included; `racks`:
    whether racks count.
    """

    band: float = 0.05
    topic_band: float = 0.5
    max_replicas: int | None = None
    max_bytes: int | None = None
    racks: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """All of it; `brokers` has each broker that a partition names."""

    brokers: Sequence[Broker]
    partitions: Sequence[Partition]
    goals: Goals = field(default_factory=Goals)

    def by_id(self) -> dict[int, Broker]:
        return {broker.id: broker for broker in self.brokers}

    @property
    def rack_aware(self) -> bool:
        """Return whether there are racks to spread over: every broker that may keep one has one."""
        return self.goals.racks and all(b.rack is not None for b in self.brokers if not b.leaves)

    def racks_needed(self, replicas: int) -> int:
        """Return over how many racks so many replicas have to be spread; 0 without racks."""
        if not self.rack_aware:
            return 0
        return min(replicas, len({b.rack for b in self.brokers if not b.leaves}))


class Shares(NamedTuple):
    """Bytes by broker: an even share of all, and the bounds of the band around it."""

    share: dict[int, float]
    lower: dict[int, int]
    upper: dict[int, int]


def shares(problem: Problem) -> Shares:
    """Return what each broker should hold: all bytes, in proportion to the weights.

    Racks go before: where each rack has to have a replica, brokers of a rack with fewer of them get
    more. Who is drained should hold nothing.
    """
    keeps = [b for b in problem.brokers if not b.leaves]
    of_racks = _rack_totals(problem, keeps)
    share = {b.id: 0.0 for b in problem.brokers}
    for b in keeps:
        total, weight = of_racks[b.rack if problem.rack_aware else None]
        share[b.id] = total * b.weight / weight if weight else 0.0
    band = problem.goals.band
    caps = {b.id: b.capacity for b in problem.brokers}
    return Shares(
        share,
        {b: min(caps[b], int((1 - band) * bytes_)) for b, bytes_ in share.items()},
        {b: min(caps[b], -int(-(1 + band) * bytes_)) for b, bytes_ in share.items()},
    )


def _rack_totals(problem: Problem, keeps: Sequence[Broker]) -> dict[str | None, tuple[float, int]]:
    """Return the bytes that each rack should hold, and the sum of its brokers' weights."""
    weights: dict[str | None, int] = {}
    for b in keeps:
        rack = b.rack if problem.rack_aware else None
        weights[rack] = weights.get(rack, 0) + b.weight
    fixed = sum(b.fixed for b in keeps)
    total = fixed + sum(p.size * len(p.replicas) for p in problem.partitions)
    least = most = fixed
    for p in problem.partitions:
        need = max(1, problem.racks_needed(len(p.replicas)))
        least += p.size * (need == len(weights))
        most += p.size * (len(p.replicas) - need + 1)
    least -= fixed

    def held(level: float) -> dict[str | None, float]:
        return {rack: min(max(level * w, least), most) for rack, w in weights.items()}

    low, high = 0.0, total / max(1, min(weights.values(), default=1)) + 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(held(middle).values()) < total else (low, middle)
    return {rack: (bytes_, weights[rack]) for rack, bytes_ in held(high).items()}


def topic_limits(replicas: Sequence[int], brokers: int, band: float) -> list[int]:
    """Return how many replicas of each topic a broker may have; `replicas`: of each topic."""
    return [
        max(count // brokers + 1, -int(-count * (1 + band) // brokers)) if brokers else count
        for count in replicas
    ]


def check(problem: Problem) -> None:
    """Raise UnmetGoalError for what no placement can mend."""
    can_hold = sum(b.receives for b in problem.brokers)
    known = problem.by_id()
    for p in problem.partitions:
        leaving = must_leave(p, known)
        if not leaving:
            continue
        if not p.movable:
            drained = [b for b in leaving if known[b].leaves and known[b].alive]
            if drained:
                raise UnmetGoalError(
                    f"drain: {p.tp} is on broker {drained[0]} and its topic is excluded; "
                    "take it off exclude_topics, or do not drain the broker"
                )
            continue
        if p.leader < 0:
            raise UnmetGoalError(
                f"drain: {p.tp} has no leader, so that there is nothing to copy from; start one of "
                f"the brokers {_ids(p.replicas)}, or put the topic into exclude_topics"
            )
        if len(p.replicas) > can_hold:
            raise UnmetGoalError(
                f"replica count: {p.tp} has {plural(len(p.replicas), 'replica')}, for {can_hold} "
                "brokers "
                "that may receive replicas; add brokers, or drain fewer"
            )


def must_leave(p: Partition, known: Mapping[int, Broker]) -> list[int]:
    """Return the brokers that a partition's replicas have to leave."""
    return [b for b in p.replicas if known[b].leaves or b in p.offline]


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
