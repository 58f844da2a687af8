"""Scores: how even a placement is and which goals it breaks; and how little could be copied.

Pure.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.pipelines.rebalancing.problem import Problem, must_leave, shares, topic_limits


class OfBroker(NamedTuple):
    """What one broker has; `off`: by what part its bytes differ from its share."""

    broker: int
    rack: str | None
    bytes: int
    capacity: int
    share: int
    off: float
    rate: int
    replicas: int
    leaders: int


class Score(NamedTuple):
    """How good a placement is; 0 is best everywhere.

    Hard goals, of topics not excluded: `to_leave`: replicas on brokers that are to be left;
    `racks`: partitions on too few racks; `over_capacity`: brokers over a capacity. Soft goals:
    `bytes_off`: the largest `off` of a broker; `outside`: bytes out of the bands; `leaders_off`:
    leaders more on one broker than on another; `topics_off`: pairs of topic and broker with too
    many replicas.
    """

    to_leave: int
    racks: int
    over_capacity: int
    bytes_off: float
    outside: int
    leaders_off: int
    topics_off: int
    brokers: list[OfBroker]

    @property
    def hard(self) -> int:
        """Count what breaks hard goals."""
        return self.to_leave + self.racks + self.over_capacity


def score(
    problem: Problem,
    placement: Mapping[TopicPartition, tuple[int, ...]],
    leaders: Mapping[TopicPartition, int],
) -> Score:
    """Judge a placement, counted anew from the problem."""
    known = problem.by_id()
    bytes_ = {b.id: b.fixed for b in problem.brokers}
    rate, replicas, led = (dict.fromkeys(bytes_, 0) for _ in range(3))
    by_topic: dict[str, dict[int, int]] = {}
    to_leave = too_few_racks = 0
    for p in problem.partitions:
        there = placement[p.tp]
        of = by_topic.setdefault(p.tp.topic, {})
        for b in there:
            bytes_[b] += p.size
            rate[b] += p.rate
            replicas[b] += 1
            of[b] = of.get(b, 0) + 1
        if leaders.get(p.tp, -1) in led:
            led[leaders[p.tp]] += 1
        if p.movable:
            to_leave += len(must_leave(p._replace(replicas=there), known))
            racks = {known[b].rack for b in there}
            too_few_racks += len(racks) < problem.racks_needed(len(there))
    wanted = shares(problem)
    kept = [b for b in problem.brokers if not b.leaves]
    most = problem.goals.max_replicas
    over = sum(
        bytes_[b.id] > b.capacity
        or (b.rate_capacity is not None and rate[b.id] > b.rate_capacity)
        or (most is not None and replicas[b.id] > most)
        for b in kept
    )
    limit = topic_limits(
        [sum(of.values()) for of in by_topic.values()], len(kept), problem.goals.topic_band
    )
    found = [
        OfBroker(
            b.id, b.rack, bytes_[b.id], b.capacity, round(wanted.share[b.id]),
            _off(bytes_[b.id], wanted.share[b.id]), rate[b.id], replicas[b.id], led[b.id],
        )
        for b in sorted(problem.brokers, key=lambda b: b.id)
    ]  # fmt: skip
    of_kept = [led[b.id] for b in kept]
    return Score(
        to_leave=to_leave,
        racks=too_few_racks,
        over_capacity=over,
        bytes_off=max((abs(b.off) for b in found if not known[b.broker].leaves), default=0.0),
        outside=sum(
            max(0, bytes_[b.id] - wanted.upper[b.id], wanted.lower[b.id] - bytes_[b.id])
            for b in kept
        ),
        leaders_off=max(of_kept, default=0) - min(of_kept, default=0),
        topics_off=sum(
            of.get(b.id, 0) > limit[number]
            for number, of in enumerate(by_topic.values())
            for b in kept
        ),
        brokers=found,
    )


def _off(bytes_: int, share: float) -> float:
    return round(bytes_ / share - 1, 4) if share else 0.0


def least_bytes(problem: Problem) -> int:
    """Return how many bytes any plan has to copy that meets the hard and the byte goal.

    Replicas that have to leave are copied once each. Beyond these, what a broker that is kept has
    above its band has to go elsewhere; what one has below its band has to come; and a partition
    that lacks racks after that needs one copy for each.
    """
    known = problem.by_id()
    wanted = shares(problem)
    forced = spread = 0
    staying = {b.id: b.fixed for b in problem.brokers}
    for p in problem.partitions:
        lost = must_leave(p, known) if p.movable else []
        stays = [b for b in p.replicas if b not in lost]
        forced += p.size * len(lost)
        for b in stays:
            staying[b] += p.size
        if p.movable:
            lacks = problem.racks_needed(len(p.replicas)) - len({known[b].rack for b in stays})
            spread += p.size * max(0, lacks - len(lost))
    kept = [b.id for b in problem.brokers if not b.leaves]
    excess = sum(max(0, staying[b] - wanted.upper[b]) for b in kept)
    missing = sum(max(0, wanted.lower[b] - staying[b]) for b in kept)
    return max(forced + excess, forced + spread, missing)
