"""Hard goals: no replica on a broker that is to be left, racks, capacities.

Pure. UnmetGoalError names the goal that no placement was found for.
"""

from collections.abc import Sequence

from ottla.model.printable import plural
from ottla.pipelines.rebalancing import byte_goal
from ottla.pipelines.rebalancing.placement import Placement
from ottla.pipelines.rebalancing.problem import Problem, UnmetGoalError

DRAIN, RACKS, CAPACITY = "drain", "racks", "capacity"
BYTES, TOPICS = "bytes", "topic spread"
HARD = (DRAIN, RACKS, CAPACITY)


def met(problem: Problem) -> Placement:
    """Return a placement with which all hard goals are met; UnmetGoalError if none was found.

    In the order of names a broker gets small and large replicas alike, so that it can have its
    part of the leaders; where room is short, the large ones have to be placed first.
    """
    at = Placement(problem)
    try:
        _meet(at, list(range(len(at.sizes))))
    except UnmetGoalError:
        at = Placement(problem)
        _meet(at, sorted(range(len(at.sizes)), key=lambda p: (-at.sizes[p], p)))
    return at


def _meet(at: Placement, order: Sequence[int]) -> None:
    for p in order:
        if at.lost[p] and at.movable[p]:
            _leave(at, p)
    for p in order:
        if at.movable[p]:
            _spread(at, p)
    _shed_rates(at)
    _shed_counts(at)
    byte_goal.shed(at, at.capacity, [0] * len(at.brokers), CAPACITY, soft=False)
    verify(at)


def _leave(at: Placement, p: int) -> None:
    """Take a partition's replicas off the brokers that are to be left."""
    left = [b for b in at.replicas[p] if b in at.lost[p]]
    for number, s in enumerate(left):
        others = [b for b in at.replicas[p] if b not in left[number:]]
        mask = 0
        for b in others:
            mask |= at.rack[b]
        enough = at.needs[p] - (len(left) - number - 1)
        at.move(p, s, _target(at, p, mask, enough, DRAIN), DRAIN)


def _target(at: Placement, p: int, mask: int, enough: int, why: str) -> int:
    """Return the emptiest broker that brings a partition to so many racks.

    Where none has room the one is taken that lacks the least: others may still give way.
    """
    best: tuple[int, float, int, int] | None = None
    for d, may in enumerate(at.receives):
        if not may or d in at.replicas[p] or d in at.lost[p]:
            continue
        if (mask | at.rack[d]).bit_count() < enough:
            continue
        lacks = 0 if at.fits(p, d) else max(1, at.bytes[d] + at.sizes[p] - at.capacity[d])
        weight = at.weight[d]
        use = (at.bytes[d] + at.sizes[p]) / weight if weight else float("inf")
        key = (lacks, use, at.topic_count[at.topic[p]].get(d, 0), d)
        if best is None or key < best:
            best = key
    if best is None:
        goal = "racks" if enough > mask.bit_count() else "replica count"
        raise UnmetGoalError(
            f"{goal}: no broker that may receive replicas is left for {at.partitions[p].tp} "
            f"({why}); add a broker in another rack, drain fewer, or set rebalance.racks = false"
        )
    return best[3]


def _spread(at: Placement, p: int) -> None:
    """Spread a partition over as many racks as it needs."""
    while at.racks_of(p) < at.needs[p]:
        there = at.replicas[p]
        doubled = [b for b in there if at.class_of(p, b)[0] & at.rack[b]]
        # The one on the fullest broker goes; the preferred leader only if it is alone in that.
        s = max(doubled, key=lambda b: (at.use(b), b != there[0], -b))
        mask = at.class_of(p, s)[0]
        at.move(p, s, _target(at, p, mask, mask.bit_count() + 1, RACKS), RACKS)


def _shed_rates(at: Placement) -> None:
    """Move replicas off brokers to which more is written per second than they can take."""
    for s, limit in enumerate(at.rate_capacity):
        if limit is None or at.rate[s] <= limit:
            continue
        held = sorted(
            (-at.rates[p], size, p) for listed in at.by_size[s].values() for size, p in listed
        )
        for rate, _, p in held:
            if at.rate[s] <= limit or not rate:
                break
            _move_anywhere(at, p, s)


def _shed_counts(at: Placement) -> None:
    """Move replicas off brokers that have more than `max_replicas`, the smallest first."""
    most = at.problem.goals.max_replicas
    for s in range(len(at.brokers)):
        if most is None or at.count[s] <= most:
            continue
        held = sorted(entry for listed in at.by_size[s].values() for entry in listed)
        for _, p in held:
            if at.count[s] <= most:
                break
            _move_anywhere(at, p, s)


def _move_anywhere(at: Placement, p: int, s: int) -> None:
    for d in at.order():
        if at.fits(p, d) and at.racks_allow(p, s, d):
            at.move(p, s, d, CAPACITY)
            return


def verify(at: Placement) -> None:
    """Raise UnmetGoalError for the first hard goal that does not hold."""
    for p, there in enumerate(at.replicas):
        assert len(set(there)) == len(at.original[p]), "a replica too many or too few"
        assert not at.movable[p] or not at.lost[p].intersection(there), "a replica did not leave"
        if at.movable[p] and at.racks_of(p) < at.needs[p]:
            raise UnmetGoalError(f"racks: {at.partitions[p].tp} cannot be spread over its racks")
    most = at.problem.goals.max_replicas
    for b, broker in enumerate(at.brokers):
        if broker.leaves:
            continue
        if at.bytes[b] > at.capacity[b]:
            raise UnmetGoalError(
                f"capacity: no placement was found in which broker {broker.id} holds no more than "
                f"{at.capacity[b]:,} bytes; the best has {at.bytes[b]:,}; add brokers or capacity"
            )
        limit = at.rate_capacity[b]
        if limit is not None and at.rate[b] > limit:
            raise UnmetGoalError(
                f"rate capacity: no placement was found in which no more than {limit:,} bytes/s "
                f"are written to broker {broker.id}; the best has {at.rate[b]:,}"
            )
        if most is not None and at.count[b] > most:
            raise UnmetGoalError(
                f"max_replicas: no placement was found in which broker {broker.id} has no more "
                f"than {plural(most, 'replica')}; the best has {at.count[b]:,}"
            )
