"""The leader goal: as many leaders on each broker as on the others, by the order of replicas alone.

Pure. Nothing is copied: a partition's leader is the first of its replicas. From the broker with
most leaders a shortest chain of partitions is looked for by which one leader more ends up where
there are at least two fewer; when there is none from any broker, no order of replicas is more even.
Then leaders of single topics are evened out, with the same sums.
"""

from ottla.pipelines.rebalancing.placement import Placement
from ottla.pipelines.rebalancing.problem import topic_limits

LOOKED_AT = 64
"""Partitions that are looked at for one shift of a leader."""

Shifts = list[dict[int, dict[int, None]]]
"""By leader and by other replica: the partitions, in the order in which they came."""


class Leaders:
    """Leaders by broker and topic, and which partitions could be led by whom instead."""

    def __init__(self, at: Placement) -> None:
        self.at = at
        n = len(at.brokers)
        self.leads = [0] * n
        self.of_topic: list[dict[int, int]] = [{} for _ in at.topic_count]
        self.shifts: Shifts = [{} for _ in range(n)]
        self.may_lead = [not broker.leaves for broker in at.brokers]
        for p, there in enumerate(at.replicas):
            self._count(p, there[0], 1)
            if at.movable[p]:
                self._list(p)

    def _count(self, p: int, b: int, one: int) -> None:
        of = self.of_topic[self.at.topic[p]]
        self.leads[b] += one
        of[b] = of.get(b, 0) + one

    def _list(self, p: int) -> None:
        leader, *others = self.at.replicas[p]
        for b in others:
            if self.may_lead[b]:
                self.shifts[leader].setdefault(b, {})[p] = None

    def shift(self, p: int, to: int) -> None:
        """Make another replica the preferred leader: it and the first one change places."""
        there = self.at.replicas[p]
        leader = there[0]
        for b in there[1:]:
            if self.may_lead[b]:
                del self.shifts[leader][b][p]
        self._count(p, leader, -1)
        place = there.index(to)
        there[0], there[place] = there[place], there[0]
        self._count(p, to, 1)
        self._list(p)

    def level(self) -> None:
        """Even out the sums by broker."""
        settled: set[int] = set()
        while True:
            rest = [b for b, may in enumerate(self.may_lead) if may and b not in settled]
            if not rest:
                return
            start = max(rest, key=lambda b: (self.leads[b], -b))
            chain = self._chain(start)
            if chain is None:
                settled.add(start)
                continue
            for b, c in chain:
                self.shift(self._best(b, c), c)
            settled.clear()

    def _chain(self, start: int) -> list[tuple[int, int]] | None:
        """Return the steps to the broker with fewest leaders, two fewer than here at least."""
        before: dict[int, int] = {start: start}
        queue = [start]
        best: int | None = None
        for b in queue:
            for c in sorted(self.shifts[b]):
                if c in before or not self.shifts[b][c]:
                    continue
                before[c] = b
                queue.append(c)
                if self.leads[c] <= self.leads[start] - 2 and (
                    best is None or self.leads[c] < self.leads[best]
                ):
                    best = c
        if best is None:
            return None
        chain = []
        while best != start:
            chain.append((before[best], best))
            best = before[best]
        return chain[::-1]

    def _best(self, b: int, c: int) -> int:
        """Return the partition to shift that evens out its topic most; moved ones come first."""
        found: tuple[int, int, int] | None = None
        for number, p in enumerate(self.shifts[b][c]):
            if number == LOOKED_AT:
                break
            of = self.of_topic[self.at.topic[p]]
            moved = set(self.at.replicas[p]) != set(self.at.original[p])
            key = (of.get(b, 0) - of.get(c, 0), moved, -p)
            if found is None or key > found:
                found = key
        assert found is not None
        return -found[2]

    def spread_topics(self) -> None:
        """Even out leaders of topics that have too many on one broker, sums unchanged."""
        brokers = sum(self.may_lead)
        totals = [sum(of.values()) for of in self.of_topic]
        most = topic_limits(totals, brokers, self.at.problem.goals.topic_band)
        for p, topic in enumerate(self.at.topic):
            of = self.of_topic[topic]
            leader, *others = self.at.replicas[p]
            if not self.at.movable[p] or of.get(leader, 0) <= most[topic]:
                continue
            for c in sorted(others, key=lambda c: (of.get(c, 0), c)):
                if self.may_lead[c] and of.get(c, 0) < most[topic] and self._exchange(p, c, most):
                    break

    def _exchange(self, p: int, c: int, most: list[int]) -> bool:
        b = self.at.replicas[p][0]
        if self.leads[b] <= self.leads[c]:
            for number, q in enumerate(self.shifts[c].get(b, ())):
                if number == LOOKED_AT:
                    return False
                topic = self.at.topic[q]
                if topic != self.at.topic[p] and self.of_topic[topic].get(b, 0) < most[topic]:
                    self.shift(q, b)
                    break
            else:
                return False
        self.shift(p, c)
        return True


def level(at: Placement) -> None:
    """Choose the order of all replicas."""
    leaders = Leaders(at)
    leaders.level()
    leaders.spread_topics()


def keep_order(at: Placement) -> None:
    """Put replicas that did not move where they stood, behind the leader."""
    for p, there in enumerate(at.replicas):
        original = at.original[p]
        if set(there) == set(original):
            first = there[0]
            there[:] = (
                original if first == original[0] else [first, *(b for b in original if b != first)]
            )
