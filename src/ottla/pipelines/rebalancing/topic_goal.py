"""The topic goal: no broker has many more replicas of a topic than the topic's mean.

Pure. The byte goal goes before it: no broker may leave its band, or get further out of it, because
of a move made here; else replicas of about the same size are exchanged.
"""

from bisect import bisect_left
from collections.abc import Iterator

from ottla.pipelines.rebalancing.byte_goal import outside
from ottla.pipelines.rebalancing.placement import Placement

TRIED = 32
"""Replicas that are tried for one that is too many."""


def spread(at: Placement, why: str) -> None:
    """Move replicas of topics that have too many on one broker."""
    kept = [b for b, broker in enumerate(at.brokers) if not broker.leaves]
    most = at.topic_limits
    listed: dict[int, list[int]] = {}
    for p, topic in enumerate(at.topic):
        if at.movable[p] and any(at.topic_count[topic].get(b, 0) > most[topic] for b in kept):
            listed.setdefault(topic, []).append(p)
    for topic, partitions in listed.items():
        of = at.topic_count[topic]
        for s in sorted(kept, key=lambda b: (-of.get(b, 0), b)):
            held = sorted((at.sizes[p], p) for p in partitions if s in at.replicas[p])
            for _, p in held:
                if of.get(s, 0) <= most[topic]:
                    break
                _move_away(at, p, s, most, why)


def _move_away(at: Placement, p: int, s: int, most: list[int], why: str) -> bool:
    topic = at.topic[p]
    of = at.topic_count[topic]
    targets = sorted(
        (d for d, may in enumerate(at.receives) if may and of.get(d, 0) < most[topic]),
        key=lambda d: (of.get(d, 0), at.use(d), d),
    )
    for d in targets:
        if (
            at.fits(p, d)
            and at.racks_allow(p, s, d)
            and _harmless(at, s, d, at.sizes[p])
            and at.affordable(at.cost(p, s, d))
        ):
            at.move(p, s, d, why)
            return True
    for d in targets:
        if d in at.replicas[p] or d in at.lost[p] or not at.racks_allow(p, s, d):
            continue
        for q in _partners(at, p, s, d, most):
            cost = at.cost(p, s, d) + at.cost(q, d, s)
            if _harmless(at, s, d, at.sizes[p] - at.sizes[q]) and at.affordable(cost):
                at.move(p, s, d, why)
                at.move(q, d, s, why)
                return True
    return False


def _partners(at: Placement, p: int, s: int, d: int, most: list[int]) -> Iterator[int]:
    """Yield replicas of `d` that may come to `s` in exchange, the most alike in size first."""
    if not at.receives[s]:
        return
    found: list[tuple[int, int]] = []
    for (mask, need), listed in at.by_size[d].items():
        if (mask | at.rack[s]).bit_count() < need:
            continue
        near = bisect_left(listed, (at.sizes[p], p))
        for size, q in listed[max(0, near - TRIED) : near + TRIED]:
            other = at.topic[q]
            if (
                other != at.topic[p]
                and at.topic_count[other].get(s, 0) < most[other]
                and at.exchangeable(p, q, s, d)
            ):
                found.append((abs(size - at.sizes[p]), q))
    for _, q in sorted(found)[:TRIED]:
        yield q


def _harmless(at: Placement, s: int, d: int, by: int) -> bool:
    """Return whether neither broker gets further out of its band by that."""
    return all(
        outside(after, at.lower[b], at.upper[b]) <= outside(at.bytes[b], at.lower[b], at.upper[b])
        for b, after in ((s, at.bytes[s] - by), (d, at.bytes[d] + by))
    )
