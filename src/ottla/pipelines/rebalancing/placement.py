"""The placement in the making: which broker has which replica, and the sums that goals look at.

Pure; deterministic. Brokers, partitions and topics are numbers here, in the order of ids and names.
Replicas of a broker are kept by size, in classes of the racks of the partition's other replicas: so
a rack is judged once for a class, not per replica.
"""

from bisect import bisect_left, bisect_right, insort

from ottla.pipelines.rebalancing.problem import (
    Assignment,
    Problem,
    must_leave,
    shares,
    topic_limits,
)

Class = tuple[int, int]
"""Racks of a partition's other replicas, as bits, and how many racks it needs."""

SAMPLED = 24
"""Replicas of one class that are looked at for one move."""


class Placement:
    """Replicas by partition, and the sums by broker."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.brokers = sorted(problem.brokers, key=lambda b: b.id)
        self.partitions = sorted(problem.partitions, key=lambda p: p.tp)
        self.index = {b.id: i for i, b in enumerate(self.brokers)}
        n = len(self.brokers)
        racks = sorted({b.rack for b in self.brokers if b.rack is not None})
        aware = problem.rack_aware
        self.rack = [
            1 << racks.index(b.rack) if aware and b.rack is not None else 0 for b in self.brokers
        ]
        needs = {k: problem.racks_needed(k) for k in {len(p.replicas) for p in self.partitions}}
        self.needs = [needs[len(p.replicas)] for p in self.partitions]
        self.sizes = [p.size for p in self.partitions]
        self.rates = [p.rate for p in self.partitions]
        self.movable = [p.movable for p in self.partitions]
        topics = sorted({p.tp.topic for p in self.partitions})
        numbers = {name: i for i, name in enumerate(topics)}
        self.topic = [numbers[p.tp.topic] for p in self.partitions]
        self.original = [[self.index[b] for b in p.replicas] for p in self.partitions]
        self.replicas = [list(there) for there in self.original]
        known = problem.by_id()
        self.lost = [
            frozenset(self.index[b] for b in must_leave(p, known)) for p in self.partitions
        ]
        self.receives = [b.receives and not b.leaves for b in self.brokers]
        self.capacity = [b.capacity for b in self.brokers]
        self.rate_capacity = [b.rate_capacity for b in self.brokers]
        self.weight = [b.weight for b in self.brokers]
        self.bytes = [b.fixed for b in self.brokers]
        self.rate = [0] * n
        self.count = [0] * n
        self.topic_count: list[dict[int, int]] = [{} for _ in topics]
        self.by_size: list[dict[Class, list[tuple[int, int]]]] = [{} for _ in range(n)]
        self.moved_bytes = 0
        self.why: dict[tuple[int, int], str] = {}
        for p, there in enumerate(self.replicas):
            of_topic = self.topic_count[self.topic[p]]
            for b in there:
                self.bytes[b] += self.sizes[p]
                self.rate[b] += self.rates[p]
                self.count[b] += 1
                of_topic[b] = of_topic.get(b, 0) + 1
                if self.movable[p]:
                    self.by_size[b].setdefault(self.class_of(p, b), []).append((self.sizes[p], p))
        for classes in self.by_size:
            for listed in classes.values():
                listed.sort()
        found = shares(problem)
        self.share = [found.share[b.id] for b in self.brokers]
        kept = sum(not b.leaves for b in self.brokers)
        totals = [sum(of.values()) for of in self.topic_count]
        self.topic_limits = topic_limits(totals, kept, problem.goals.topic_band)
        all_bytes = sum(self.share)
        self.replicas_each = sum(self.count) / all_bytes if all_bytes else 0.0
        """Replicas for a byte of a broker's share, so that numbers are even as well."""
        self.lower = [found.lower[b.id] for b in self.brokers]
        self.upper = [found.upper[b.id] for b in self.brokers]

    # --- what holds -------------------------------------------------------------------------------

    def class_of(self, p: int, b: int) -> Class:
        """Return the racks of the partition's replicas on other brokers, and how many it needs."""
        mask = 0
        for other in self.replicas[p]:
            if other != b:
                mask |= self.rack[other]
        return mask, self.needs[p]

    def racks_of(self, p: int) -> int:
        """Count the racks that a partition is on."""
        return self.class_of(p, -1)[0].bit_count()

    def use(self, b: int) -> float:
        """Return a broker's bytes in proportion to its weight."""
        return self.bytes[b] / self.weight[b] if self.weight[b] else float("inf")

    def order(self) -> list[int]:
        """Return the brokers that may receive replicas, the emptiest first."""
        return sorted(
            (b for b, may in enumerate(self.receives) if may), key=lambda b: (self.use(b), b)
        )

    def fits(self, p: int, d: int) -> bool:
        """Return whether a broker may take a replica more, its rack aside."""
        most = self.problem.goals.max_replicas
        limit = self.rate_capacity[d]
        return (
            self.receives[d]
            and d not in self.replicas[p]
            and d not in self.lost[p]
            and self.sizes[p] <= self.capacity[d] - self.bytes[d]
            and (limit is None or self.rate[d] + self.rates[p] <= limit)
            and (most is None or self.count[d] < most)
        )

    def racks_allow(self, p: int, s: int, d: int) -> bool:
        """Return whether a partition is on racks enough when one broker takes another's place."""
        mask, need = self.class_of(p, s)
        return (mask | self.rack[d]).bit_count() >= need

    def cost(self, p: int, s: int, d: int) -> int:
        """Return the bytes that are copied more, or less, for this move."""
        original = self.original[p]
        return self.sizes[p] * ((d not in original) - (s not in original))

    def affordable(self, cost: int) -> bool:
        """Return whether the soft goals may copy so much more."""
        most = self.problem.goals.max_bytes
        return most is None or cost <= 0 or self.moved_bytes + cost <= most

    # --- moving -----------------------------------------------------------------------------------

    def move(self, p: int, s: int, d: int, why: str) -> None:
        """Put a replica elsewhere."""
        there = self.replicas[p]
        size, topic = self.sizes[p], self.topic_count[self.topic[p]]
        self.moved_bytes += self.cost(p, s, d)
        movable = self.movable[p]
        entry = (size, p)
        same = self.rack[s] == self.rack[d]
        if movable:
            for b in (s,) if same else there:
                listed = self.by_size[b][self.class_of(p, b)]
                del listed[bisect_left(listed, entry)]
        there[there.index(s)] = d
        if movable:
            for b in (d,) if same else there:
                insort(self.by_size[b].setdefault(self.class_of(p, b), []), entry)
        for b, one in ((s, -1), (d, 1)):
            self.bytes[b] += one * size
            self.rate[b] += one * self.rates[p]
            self.count[b] += one
            topic[b] = topic.get(b, 0) + one
        # What a hard goal has moved is its own, wherever softer goals then put it.
        first = self.why.pop((p, s), why)
        if d not in self.original[p]:
            self.why[p, d] = first

    def choose(self, s: int, d: int, most: int) -> int | None:
        """Return the replica of `s` to move to `d` that is of `most` bytes at most, or None.

        Of those looked at one that evens out its topic, too, and of a size with which `d` comes to
        an even number of replicas: only then can it get its part of the leaders.
        """
        best: tuple[int, int, int] | None = None
        bit = self.rack[d]
        lacks = self.replicas_each * self.share[d] - self.count[d]
        size_wanted = max(0, int((self.share[d] - self.bytes[d]) / lacks)) if lacks > 0 else most
        for (mask, need), listed in self.by_size[s].items():
            if (mask | bit).bit_count() < need:
                continue
            high = bisect_right(listed, (most, len(self.sizes)))
            low = bisect_left(listed, (1, -1), 0, high)
            for at in sampled(low, high):
                size, p = listed[at]
                if not self.fits(p, d):
                    continue
                topic = self.topic_count[self.topic[p]]
                key = (
                    min(2, topic.get(s, 0) - topic.get(d, 0)),
                    -abs(size - size_wanted),
                    -p,
                )
                if best is None or key > best:
                    best = key
        return None if best is None else -best[2]

    def smallest(self, s: int, d: int, least: int, most: int) -> int | None:
        """Return the smallest replica of `s` between `least` and `most` bytes that `d` may take."""
        best: tuple[int, int] | None = None
        bit = self.rack[d]
        for (mask, need), listed in self.by_size[s].items():
            if (mask | bit).bit_count() < need:
                continue
            low = bisect_left(listed, (max(1, least), -1))
            for at in range(low, min(len(listed), low + 4 * SAMPLED)):
                if listed[at][0] > most or (best is not None and listed[at] >= best):
                    break
                if self.fits(listed[at][1], d):
                    best = listed[at]
                    break
        return None if best is None else best[1]

    def swap(self, s: int, d: int, least: int, most: int) -> tuple[int, int] | None:
        """Return replicas to exchange so that `s` loses and `d` gains `least` to `most` bytes.

        The gain is as large as can be found, at the lowest cost.
        """
        best: tuple[int, int, int, int] | None = None
        bit_s, bit_d = self.rack[s], self.rack[d]
        back = [
            listed
            for (mask, need), listed in self.by_size[d].items()
            if (mask | bit_s).bit_count() >= need and self.receives[s]
        ]
        for (mask, need), listed in self.by_size[s].items():
            if (mask | bit_d).bit_count() < need:
                continue
            low = bisect_left(listed, (max(1, least), -1))
            for at in sampled(low, len(listed)):
                x, p = listed[at]
                if d in self.replicas[p]:
                    continue
                for other in back:
                    first = bisect_left(other, (x - most, -1))
                    for y, q in other[first : first + 4]:
                        gain = x - y
                        if gain < least:
                            break
                        if self.exchangeable(p, q, s, d):
                            key = (gain, -x - y, -p, -q)
                            if best is None or key > best:
                                best = key
                            break
        return None if best is None else (-best[2], -best[3])

    def exchangeable(self, p: int, q: int, s: int, d: int) -> bool:
        """Return whether `p` of broker `s` and `q` of `d` may change places, their racks aside."""
        if s in self.replicas[q] or d in self.replicas[p] or s in self.lost[q] or d in self.lost[p]:
            return False
        gain, rate = self.sizes[p] - self.sizes[q], self.rates[p] - self.rates[q]
        limit_s, limit_d = self.rate_capacity[s], self.rate_capacity[d]
        return (
            (gain <= 0 or self.bytes[d] + gain <= self.capacity[d])
            and (gain >= 0 or self.bytes[s] - gain <= self.capacity[s])
            and (rate <= 0 or limit_d is None or self.rate[d] + rate <= limit_d)
            and (rate >= 0 or limit_s is None or self.rate[s] - rate <= limit_s)
        )

    def assignment(self) -> Assignment:
        """Return the replicas of all partitions by broker ids."""
        return {
            p.tp: tuple(self.brokers[b].id for b in there)
            for p, there in zip(self.partitions, self.replicas, strict=True)
        }


def sampled(low: int, high: int) -> range | list[int]:
    """Return some numbers of a range, the last of them always, the rest evenly spread."""
    count = high - low
    if count <= SAMPLED:
        return range(low, high)
    return [low + (count - 1) * i // (SAMPLED - 1) for i in range(SAMPLED)]
