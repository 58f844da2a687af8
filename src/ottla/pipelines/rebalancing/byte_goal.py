"""The byte goal: every broker's bytes within a band around its share, with as few bytes copied.

Pure. Bytes beyond the band go from the fullest brokers to the emptiest; a move has to lessen the
sum of what lies outside the bands, so it ends. A replica that is too large to move alone is
exchanged for a smaller one.
"""

from collections.abc import Sequence

from ottla.pipelines.rebalancing.placement import Placement

ROUNDS = 8
WORTH = 6
"""Bytes copied for one byte that a broker is closer to its band, at most, for soft goals."""


def level(at: Placement, why: str) -> None:
    """Bring brokers into their bands, as far as that can be."""
    shed(at, at.upper, at.lower, why, soft=True)
    fill(at, at.upper, at.lower, why)


def outside(bytes_: int, lower: int, upper: int) -> int:
    """Return by how many bytes a broker is out of its band."""
    return max(0, bytes_ - upper, lower - bytes_)


def shed(
    at: Placement, upper: Sequence[int], lower: Sequence[int], why: str, *, soft: bool
) -> None:
    """Move bytes off brokers that have more than `upper`."""
    for _ in range(ROUNDS):
        stuck: set[int] = set()
        progress = False
        while True:
            over = [
                b
                for b in range(len(at.brokers))
                if at.bytes[b] > upper[b] and b not in stuck and not at.brokers[b].leaves
            ]
            if not over:
                break
            s = max(over, key=lambda b: (at.bytes[b] - upper[b], -b))
            if _shed_one(at, s, upper, lower, why, soft=soft):
                progress = True
            else:
                stuck.add(s)
        if not stuck or not progress:
            return


def _shed_one(
    at: Placement, s: int, upper: Sequence[int], lower: Sequence[int], why: str, *, soft: bool
) -> bool:
    excess = at.bytes[s] - upper[s]
    targets = [d for d in at.order() if d != s and at.bytes[d] < upper[d]]
    best: tuple[int, int, int] | None = None
    for d in targets:
        most = min(excess, upper[d] - at.bytes[d])
        p = at.choose(s, d, most)
        if p is None or (soft and not at.affordable(at.cost(p, s, d))):
            continue
        at.move(p, s, d, why)
        return True
    # One replica that is larger than the excess, the smallest of them.
    for d in targets:
        p = at.smallest(s, d, excess, upper[d] - at.bytes[d])
        if p is None or (best is not None and at.sizes[p] >= best[0]):
            continue
        if _gains(at, p, s, d, upper, lower, soft=soft):
            best = (at.sizes[p], p, d)
    if best is not None:
        at.move(best[1], s, best[2], why)
        return True
    return any(_swap(at, s, d, excess, upper, lower, why, soft=soft) for d in targets) or any(
        _overfill(at, s, d, excess, upper, lower, why, soft=soft) for d in targets
    )


def fill(at: Placement, upper: Sequence[int], lower: Sequence[int], why: str) -> None:
    """Move bytes to brokers that have less than `lower`."""
    for _ in range(ROUNDS):
        stuck: set[int] = set()
        progress = False
        while True:
            under = [
                b
                for b in range(len(at.brokers))
                if at.bytes[b] < lower[b] and b not in stuck and at.receives[b]
            ]
            if not under:
                break
            d = max(under, key=lambda b: (lower[b] - at.bytes[b], -b))
            if _fill_one(at, d, upper, lower, why):
                progress = True
            else:
                stuck.add(d)
        if not stuck or not progress:
            return


def _fill_one(at: Placement, d: int, upper: Sequence[int], lower: Sequence[int], why: str) -> bool:
    need = lower[d] - at.bytes[d]
    room = upper[d] - at.bytes[d]
    sources = sorted(
        (b for b in range(len(at.brokers)) if b != d and at.bytes[b] > lower[b]),
        key=lambda b: (-at.use(b), b),
    )
    best: tuple[int, int, int] | None = None
    for s in sources:
        most = min(need, at.bytes[s] - lower[s])
        p = at.choose(s, d, most)
        if p is None or not at.affordable(at.cost(p, s, d)):
            continue
        at.move(p, s, d, why)
        return True
    for s in sources:
        p = at.smallest(s, d, need, room)
        if p is None or (best is not None and at.sizes[p] >= best[0]):
            continue
        if _gains(at, p, s, d, upper, lower, soft=True):
            best = (at.sizes[p], p, s)
    if best is not None:
        at.move(best[1], best[2], d, why)
        return True
    return any(_swap(at, s, d, need, upper, lower, why, soft=True) for s in sources)


def _change(
    at: Placement, s: int, d: int, by: int, upper: Sequence[int], lower: Sequence[int]
) -> int:
    """Return how many bytes fewer lie outside the bands if so many go from one to the other."""
    before = outside(at.bytes[s], lower[s], upper[s]) + outside(at.bytes[d], lower[d], upper[d])
    after = outside(at.bytes[s] - by, lower[s], upper[s]) + outside(
        at.bytes[d] + by, lower[d], upper[d]
    )
    return before - after


def _gains(
    at: Placement,
    p: int,
    s: int,
    d: int,
    upper: Sequence[int],
    lower: Sequence[int],
    *,
    soft: bool,
) -> bool:
    """Return whether a move brings enough for what it costs."""
    gain = _change(at, s, d, at.sizes[p], upper, lower)
    cost = at.cost(p, s, d)
    return gain > 0 and (not soft or (at.affordable(cost) and cost <= WORTH * gain))


def _swap(
    at: Placement,
    s: int,
    d: int,
    wanted: int,
    upper: Sequence[int],
    lower: Sequence[int],
    why: str,
    *,
    soft: bool,
) -> bool:
    """Exchange two replicas, if that helps."""
    found = at.swap(s, d, 1, max(1, min(wanted, upper[d] - at.bytes[d])))
    if found is None and not soft:
        found = at.swap(s, d, 1, max(1, upper[d] - at.bytes[d]))
    if found is None:
        return False
    p, q = found
    gain = _change(at, s, d, at.sizes[p] - at.sizes[q], upper, lower)
    cost = at.cost(p, s, d) + at.cost(q, d, s)
    if gain <= 0 or (soft and (cost > WORTH * gain or not at.affordable(cost))):
        return False
    at.move(p, s, d, why)
    at.move(q, d, s, why)
    return True


def _overfill(
    at: Placement,
    s: int,
    d: int,
    excess: int,
    upper: Sequence[int],
    lower: Sequence[int],
    why: str,
    *,
    soft: bool,
) -> bool:
    """Move a replica that takes another broker over its band, but less far than this one is."""
    p = at.smallest(s, d, 1, min(excess, at.capacity[d] - at.bytes[d]))
    if p is None or not _gains(at, p, s, d, upper, lower, soft=soft):
        return False
    at.move(p, s, d, why)
    return True


def undo(at: Placement) -> None:
    """Take back moves that no goal needs any more."""
    for p in sorted(range(len(at.sizes)), key=lambda p: (-at.sizes[p], p)):
        if not at.movable[p]:
            continue
        there, original = at.replicas[p], at.original[p]
        came = [b for b in there if b not in original]
        if not came:
            continue
        for d in came:
            for s in [b for b in original if b not in at.replicas[p] and b not in at.lost[p]]:
                if _returns(at, p, d, s):
                    at.move(p, d, s, "")
                    break


def _returns(at: Placement, p: int, d: int, s: int) -> bool:
    limit = at.rate_capacity[s]
    most = at.problem.goals.max_replicas
    topic = at.topic[p]
    return (
        at.topic_count[topic].get(s, 0) < at.topic_limits[topic]
        and at.racks_allow(p, d, s)
        and at.bytes[s] + at.sizes[p] <= at.capacity[s]
        and (limit is None or at.rate[s] + at.rates[p] <= limit)
        and (most is None or at.count[s] < most)
        and _change(at, d, s, at.sizes[p], at.upper, at.lower) >= 0
    )
