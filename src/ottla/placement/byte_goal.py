"""The byte goal: every broker's bytes within a band around the mean, with few bytes copied.

Plain values in, plain values out; equal input gives an equal proposal. Replica counts stay, a
partition is on as many racks as it can be, and no broker gets many more replicas of a topic than
the mean. Bytes beyond the band go from the fullest brokers to the emptiest, by moves and by
exchanges of two replicas; each has to lessen what lies outside of the bands by a fair part of what
it copies, so it ends. Greedy: in tight clusters it may miss a way. Leaders are then evened out by
the order of replicas, which copies nothing.
"""

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ottla.model.ids import TopicPartition
from ottla.model.printable import plural
from ottla.placement.spread import Proposal, Replicas, copies, level_leaders

BAND = 0.05
"""A broker may differ from the mean by this part of it."""
TOPIC_BAND = 0.5
"""A broker may have this part more replicas of a topic than the mean."""
WORTH = 6
"""Bytes copied, at most, for one byte that a broker is closer to its band."""
NEAREST = 16
"""So many replicas of about the right size are tried for an exchange."""

Sizes = Mapping[TopicPartition, int]


def propose(
    current: Replicas, brokers: Mapping[int, str | None], sizes: Sizes, others: Replicas
) -> Proposal:
    """Return where the partitions in `current` are to be, of all `brokers` (id to rack).

    `sizes`: bytes of one replica, 0 for those that are missing; `others`: partitions that stay and
    count. ValueError: fewer brokers than replicas.
    """
    for tp, there in current.items():
        if len(there) > len(brokers):
            raise ValueError(
                f"{tp} has {plural(len(there), 'replica')}, for {plural(len(brokers), 'broker')}"
            )
    goal = _Goal(current, brokers, sizes, others)
    goal.leave()
    while goal.step():
        pass
    level_leaders(goal.replicas, brokers, others)
    assignment = {tp: tuple(there) for tp, there in goal.replicas.items()}
    copied = sum(
        len(set(there) - set(current[tp])) * sizes.get(tp, 0) for tp, there in assignment.items()
    )
    before, after = (
        unevenness({**some, **others}, list(brokers), sizes) for some in (current, assignment)
    )
    return Proposal(assignment, copies(current, assignment), 0, copied, (before, after))


def unevenness(replicas: Replicas, brokers: Sequence[int], sizes: Sizes) -> float:
    """Return by which part of the mean a broker's bytes differ from it, at most."""
    held = dict.fromkeys(brokers, 0)
    for tp, there in replicas.items():
        for broker in there:
            if broker in held:
                held[broker] += sizes.get(tp, 0)
    mean = sum(held.values()) / len(held)
    return max(abs(size - mean) for size in held.values()) / mean if mean else 0.0


class _Goal:
    """Replicas in the making, and what each broker has."""

    def __init__(
        self,
        current: Replicas,
        racks: Mapping[int, str | None],
        sizes: Sizes,
        others: Replicas,
    ) -> None:
        self.racks = dict(sorted(racks.items()))
        self.original = {tp: set(there) for tp, there in current.items()}
        self.replicas = {tp: list(there) for tp, there in sorted(current.items())}
        self.size = {tp: sizes.get(tp, 0) for tp in (*current, *others)}
        self.distinct = len(set(racks.values()))
        self.held = dict.fromkeys(self.racks, 0)
        self.on: dict[int, list[tuple[int, TopicPartition]]] = {b: [] for b in self.racks}
        """Of each broker the replicas that may move, by size."""
        self.of_topic: dict[str, Counter[int]] = {}
        replicas_of_topic: Counter[str] = Counter()
        for tp, there in (*self.replicas.items(), *others.items()):
            replicas_of_topic[tp.topic] += len(there)
            for broker in there:
                if broker not in self.held:
                    continue
                self.held[broker] += self.size[tp]
                self.of_topic.setdefault(tp.topic, Counter())[broker] += 1
                if tp in self.replicas:
                    insort(self.on[broker], (self.size[tp], tp))
        self.most_of_topic = {
            topic: math.ceil(count / len(self.racks) * (1 + TOPIC_BAND))
            for topic, count in replicas_of_topic.items()
        }
        every = (*self.replicas.items(), *others.items())
        mean = sum(self.size[tp] * len(there) for tp, there in every) / len(self.racks)
        self.mean_count = sum(map(len, self.on.values())) // len(self.on)
        self.lower, self.upper = mean * (1 - BAND), mean * (1 + BAND)

    # -- what has to move ------------------------------------------------------------------------

    def leave(self) -> None:
        """Take replicas off brokers that are to have none, and give each all racks it can have."""
        for tp, there in self.replicas.items():
            for broker in [b for b in there if b not in self.racks]:
                self._move(tp, broker, self._place(tp, broker))
            while self._racks_of(there) < min(len(there), self.distinct):
                racks = [self.racks[b] for b in there]
                doubled = [b for b, rack in zip(there, racks, strict=True) if racks.count(rack) > 1]
                leaving = max(doubled, key=lambda b: (self.held[b], b))
                self._move(tp, leaving, self._place(tp, leaving))

    def _place(self, tp: TopicPartition, leaving: int) -> int:
        """Return the emptiest broker for a replica, of a rack that the others are not on."""
        stay = [b for b in self.replicas[tp] if b != leaving]
        taken = {self.racks.get(b) for b in stay}
        free = [b for b in self.racks if b not in self.replicas[tp]]
        return min(free, key=lambda b: (self.racks[b] in taken - {None}, self.held[b], b))

    def _racks_of(self, there: Sequence[int]) -> int:
        return len({self.racks.get(b) for b in there})

    # -- what evens out --------------------------------------------------------------------------

    def step(self) -> bool:
        """Move or exchange what helps a broker outside of its band; return whether any did."""
        by_size = sorted(self.racks, key=lambda b: (self.held[b], b))
        for src in reversed(by_size):
            if self.held[src] <= self.upper:
                break
            if any(self._moved(src, dst) or self._exchanged(src, dst) for dst in by_size):
                return True
        for dst in by_size:
            if self.held[dst] >= self.lower:
                break
            if any(self._moved(src, dst) or self._exchanged(src, dst) for src in by_size[::-1]):
                return True
        return False

    def _moved(self, src: int, dst: int) -> bool:
        """Move the replica from one broker to the other that helps most, if one does."""
        wanted = min(self._wanted(src, dst), self._room(src, dst))
        # A broker that lacks replicas gets many small ones: then leaders can be even, too.
        lacking = max(1, self.mean_count - len(self.on[dst]))
        for size_wanted in (wanted / lacking, wanted):
            best: tuple[float, int, TopicPartition] | None = None
            for size, tp in self._about(src, size_wanted):
                gain = self._gain(src, dst, size)
                fair = gain > 0 and self._cost(tp, src, dst) <= WORTH * gain
                if fair and self._may(tp, src, dst):
                    best = max(best or (0.0, 0, tp), (gain, -size, tp))
            if best is not None:
                self._move(best[2], src, dst)
                return True
        return False

    def _exchanged(self, src: int, dst: int) -> bool:
        """Exchange a replica for a smaller one, if that helps."""
        wanted = min(self._wanted(src, dst), self._room(src, dst))
        if wanted <= 0:
            return False
        for small, back in self._about(dst, 0):
            for large, tp in self._about(src, small + wanted):
                gain = self._gain(src, dst, large - small)
                cost = self._cost(tp, src, dst) + self._cost(back, dst, src)
                if gain <= 0 or cost > WORTH * gain or tp == back:
                    continue
                if self._may(tp, src, dst, back) and self._may(back, dst, src, tp):
                    self._move(tp, src, dst)
                    self._move(back, dst, src)
                    return True
        return False

    def _wanted(self, src: int, dst: int) -> float:
        """Return how many bytes would bring the one that is outside into its band."""
        return max(self.held[src] - self.upper, self.lower - self.held[dst])

    def _room(self, src: int, dst: int) -> float:
        return min(self.upper - self.held[dst], self.held[src] - self.lower)

    def _about(self, broker: int, size: float) -> Iterator[tuple[int, TopicPartition]]:
        """Yield the replicas of a broker whose size is near."""
        held = self.on[broker]
        at = bisect_left(held, size, key=lambda one: one[0])
        yield from held[max(0, at - NEAREST) : at + NEAREST]

    def _outside(self, size: float) -> float:
        return max(0.0, size - self.upper, self.lower - size)

    def _gain(self, src: int, dst: int, by: int) -> float:
        """Return how many bytes fewer lie outside of the bands if so many go to the other."""
        if src == dst:
            return 0.0
        before = self._outside(self.held[src]) + self._outside(self.held[dst])
        return before - self._outside(self.held[src] - by) - self._outside(self.held[dst] + by)

    def _cost(self, tp: TopicPartition, src: int, dst: int) -> int:
        """Return the bytes that a move copies more: none of what is copied anyhow, or goes back."""
        original = self.original[tp]
        return self.size[tp] * ((dst not in original) - (src not in original))

    def _may(
        self, tp: TopicPartition, src: int, dst: int, back: TopicPartition | None = None
    ) -> bool:
        """Return whether a replica may move, `back` coming the other way."""
        there = self.replicas[tp]
        if dst in there:
            return False
        same_topic = back is not None and back.topic == tp.topic
        if self.of_topic[tp.topic][dst] >= self.most_of_topic[tp.topic] and not same_topic:
            return False
        after = [dst if b == src else b for b in there]
        return self._racks_of(after) >= self._racks_of(there)

    def _move(self, tp: TopicPartition, src: int, dst: int) -> None:
        there = self.replicas[tp]
        there[there.index(src)] = dst
        for broker, by in ((src, -1), (dst, 1)):
            if broker not in self.held:
                continue
            self.held[broker] += by * self.size[tp]
            self.of_topic.setdefault(tp.topic, Counter())[broker] += by
            if by > 0:
                insort(self.on[broker], (self.size[tp], tp))
            else:
                del self.on[broker][bisect_left(self.on[broker], (self.size[tp], tp))]
