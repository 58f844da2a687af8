"""Spread: an even assignment of partitions to brokers that copies few replicas.

Invariants: plain values in, plain values out; equal input gives an equal proposal. In this order:
every partition has as many racks as it can; a topic's replicas are even over the brokers; so are
its preferred leaders (by order alone, which copies nothing); so are the replicas and leaders of all
topics together, those not named counted; and of choices that are equal so far, the one that levels
the bytes. Our own: Kafka's `--generate` (`ReassignPartitionsCommand.generateAssignment`) assigns
all replicas again from a random start.

A step takes one replica, or one leader, from a full broker to an empty one (`level`). Each round of
steps lowers the sum of squares of the counts, so it ends; where no step leads straight there, a way
over other brokers is looked for (an augmenting path of a flow with convex costs). Leaders are
evened out by the order of replicas, which copies nothing.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.model.printable import plural

Replicas = Mapping[TopicPartition, Sequence[int]]


class Proposal(NamedTuple):
    """An assignment; `copies` are replicas to copy, no even spread has fewer than `least`.

    `copied_bytes` counts those partitions whose sizes are known.
    """

    assignment: dict[TopicPartition, tuple[int, ...]]
    copies: int
    least: int
    copied_bytes: int
    uneven: tuple[float, float] | None = None
    """Where bytes are the goal: by which part of the mean brokers differ, before and after."""


def propose(
    current: Replicas,
    brokers: Mapping[int, str | None],
    replication_factor: int | None = None,
    *,
    others: Replicas | None = None,
    sizes: Mapping[TopicPartition, int] | None = None,
) -> Proposal:
    """Return an even spread of the partitions in `current` over `brokers` (id to rack).

    `others`: partitions that stay as they are and count as load; `sizes`: bytes of one replica.
    ValueError: fewer brokers than replicas.
    """
    others, sizes = others or {}, sizes or {}
    wanted: dict[TopicPartition, int] = {}
    for tp, replicas in sorted(current.items()):
        wanted[tp] = len(replicas) if replication_factor is None else replication_factor
        if wanted[tp] > len(brokers):
            raise ValueError(
                f"{tp} has {wanted[tp]} replicas, for {plural(len(brokers), 'broker')}"
            )
    spread = _Spread(current, brokers, others, sizes)
    for tp, count in wanted.items():
        spread.fill(tp, count)
    for topic in spread.topics:
        spread.level_topic(topic)
    spread.level_total()
    level_leaders(spread.replicas, spread.racks, others)
    assignment = {tp: tuple(replicas) for tp, replicas in spread.replicas.items()}
    return Proposal(
        assignment,
        copies(current, assignment),
        least_copies(current, assignment, list(brokers), others),
        sum(
            len(set(replicas) - set(current[tp])) * sizes.get(tp, 0)
            for tp, replicas in assignment.items()
        ),
    )


def copies(before: Replicas, after: Replicas) -> int:
    """Count the replicas that have to be copied to brokers that do not have them."""
    return sum(len(set(replicas) - set(before[tp])) for tp, replicas in after.items())


def least_copies(
    current: Replicas, after: Replicas, brokers: Sequence[int], others: Replicas
) -> int:
    """Return a number of copies that no assignment as even as `after` is below.

    Where a topic (or all together) is within one replica of even, its bound holds for any such
    assignment; where racks prevent that, it holds for those that give each broker as many.
    """
    topics: dict[str, list[TopicPartition]] = {}
    for tp in after:
        topics.setdefault(tp.topic, []).append(tp)
    by_topic = sum(
        _least(current, after, partitions, brokers, {}) for partitions in topics.values()
    )
    load = _count(others, brokers)
    return max(by_topic, _least(current, after, list(after), brokers, load))


def _least(
    current: Replicas,
    after: Replicas,
    partitions: Sequence[TopicPartition],
    brokers: Sequence[int],
    load: Mapping[int, int],
) -> int:
    """Return the copies these partitions need: replicas wanted less those that can stay."""
    held = _count({tp: current[tp] for tp in partitions}, brokers)
    final = _count({tp: after[tp] for tp in partitions}, brokers)
    total = {b: final[b] + load.get(b, 0) for b in brokers}
    wanted = sum(final.values())
    if max(total.values()) - min(total.values()) <= 1:
        floor, more = divmod(sum(total.values()), len(brokers))
        room = {b: max(0, floor - load.get(b, 0)) for b in brokers}
        stay = sum(min(held[b], room[b]) for b in brokers)
        stay += min(more, sum(held[b] > room[b] for b in brokers))
    else:
        stay = sum(min(held[b], final[b]) for b in brokers)
    allowed = set(brokers)
    places = sum(min(len(after[tp]), len(allowed.intersection(current[tp]))) for tp in partitions)
    return wanted - min(stay, places)


def _count(replicas: Replicas, brokers: Sequence[int]) -> dict[int, int]:
    count = dict.fromkeys(brokers, 0)
    for there in replicas.values():
        for broker in there:
            if broker in count:
                count[broker] += 1
    return count


class _Spread:
    """Replicas in the making; how many, and how many bytes, each broker has."""

    def __init__(
        self,
        current: Replicas,
        racks: Mapping[int, str | None],
        others: Replicas,
        sizes: Mapping[TopicPartition, int],
    ) -> None:
        self.racks = dict(sorted(racks.items()))
        self.distinct = len(set(racks.values()))
        self.sizes = sizes
        self.original = {tp: set(replicas) for tp, replicas in current.items()}
        self.load = _count(others, list(self.racks))
        self.bytes = dict.fromkeys(self.racks, 0)
        for tp, replicas in others.items():
            for broker in replicas:
                if broker in self.bytes:
                    self.bytes[broker] += sizes.get(tp, 0)
        self.replicas: dict[TopicPartition, list[int]] = {}
        # By topic: the partitions on each broker.
        self.on: dict[str, dict[int, set[TopicPartition]]] = {}
        for tp, replicas in sorted(current.items()):
            self.on.setdefault(tp.topic, {b: set() for b in self.racks})
            self.replicas[tp] = []
            for broker in replicas:
                if broker in self.racks:
                    self._add(tp, broker)
        self.topics = list(self.on)

    # --- as many replicas, in as many racks, as there should be ------------------------------

    def fill(self, tp: TopicPartition, count: int) -> None:
        there = self.replicas[tp]
        while len(there) > count:
            self._remove(tp, self._spare(tp))
        while len(there) < count:
            self._add(tp, self._traded(tp, self._place_for(tp)))
        while len(self._racks_of(there)) < min(count, self.distinct):
            leaving = self._spare(tp)
            self._remove(tp, leaving)
            self._add(tp, self._place_for(tp))

    def _spare(self, tp: TopicPartition) -> int:
        """Return the replica to give up: of a rack that has another, of the fullest broker."""
        there = self.replicas[tp]
        racks = [self.racks[b] for b in there]
        return max(there, key=lambda b: (racks.count(self.racks[b]) > 1, self._fullness(tp, b)))

    def _place_for(self, tp: TopicPartition) -> int:
        there = self.replicas[tp]
        taken = self._racks_of(there)
        free = [b for b in self.racks if b not in there]
        return min(free, key=lambda b: (self.racks[b] in taken - {None}, self._fullness(tp, b)))

    def _traded(self, tp: TopicPartition, place: int) -> int:
        """Return a place that costs no copy later: the emptiest broker has this partition already.

        Another partition's new replica goes to that broker instead, and leaves its place to this.
        """
        on = self.on[tp.topic]
        emptiest = min(self.racks, key=lambda b: self._fullness(tp, b))
        if len(on[emptiest]) >= len(on[place]):
            return place
        there = self.replicas[tp]
        for broker in self.racks:
            if broker in there or self.racks[broker] != self.racks[place]:
                continue
            for other in sorted(on[broker]):
                if (
                    broker not in self.original[other]
                    and emptiest not in self.replicas[other]
                    and self._may(self.replicas[other], broker, emptiest)
                ):
                    self._move(other, broker, emptiest)
                    return broker
        return place

    def _racks_of(self, there: Sequence[int]) -> set[str | None]:
        return {self.racks[b] for b in there}

    def _fullness(self, tp: TopicPartition, broker: int) -> tuple[int, int, int, int]:
        return (len(self.on[tp.topic][broker]), self.load[broker], self.bytes[broker], broker)

    def _add(self, tp: TopicPartition, broker: int) -> None:
        self.replicas[tp].append(broker)
        self._account(tp, broker, 1)

    def _remove(self, tp: TopicPartition, broker: int) -> None:
        self.replicas[tp].remove(broker)
        self._account(tp, broker, -1)

    def _account(self, tp: TopicPartition, broker: int, by: int) -> None:
        held = self.on[tp.topic][broker]
        (held.add if by > 0 else held.remove)(tp)
        self.load[broker] += by
        self.bytes[broker] += by * self.sizes.get(tp, 0)

    # --- even --------------------------------------------------------------------------------

    def level_topic(self, topic: str) -> None:
        """Make the replicas of a topic even; where they are, the idlest brokers have its extras."""
        on = self.on[topic]

        def find(full: int, empty: int, apart: Collection[TopicPartition]) -> TopicPartition | None:
            return self._best((tp for tp in on[full] if tp not in apart), full, empty)

        def fullness(broker: int) -> tuple[int, ...]:
            return (len(on[broker]), self.load[broker], self.bytes[broker], broker)

        level(self.racks, Steps(lambda b: len(on[b]), fullness, find, self._move))

    def level_total(self) -> None:
        """Make the replicas of all topics even, by moves that leave each topic as even."""

        def find(full: int, empty: int, apart: Collection[TopicPartition]) -> TopicPartition | None:
            return self._best(
                (
                    tp
                    for on in self.on.values()
                    if len(on[full]) > len(on[empty])
                    for tp in on[full]
                    if tp not in apart
                ),
                full,
                empty,
            )

        def fullness(broker: int) -> tuple[int, ...]:
            return (self.load[broker], self.bytes[broker], broker)

        level(self.racks, Steps(lambda b: self.load[b], fullness, find, self._move))

    def _best(
        self, candidates: Iterable[TopicPartition], full: int, empty: int
    ) -> TopicPartition | None:
        """Return the partition whose move costs least; then the one that levels the bytes best."""
        half = (self.bytes[full] - self.bytes[empty]) / 2
        best, least = None, None
        for tp in candidates:
            there = self.replicas[tp]
            if empty in there or not self._may(there, full, empty):
                continue
            original = self.original[tp]
            cost = (
                (empty not in original) - (full not in original),
                abs(self.sizes.get(tp, 0) - half),
                there[0] == full,
                tp,
            )
            if least is None or cost < least:
                best, least = tp, cost
        return best

    def _may(self, there: Sequence[int], leaving: int, coming: int) -> bool:
        """Tell whether a partition keeps as many racks when one broker takes another's place."""
        others = {self.racks[b] for b in there if b != leaving}
        return self.racks[coming] not in others or self.racks[leaving] in others

    def _move(self, tp: TopicPartition, leaving: int, coming: int) -> None:
        there = self.replicas[tp]
        there[there.index(leaving)] = coming
        self._account(tp, leaving, -1)
        self._account(tp, coming, 1)


def level_leaders(
    replicas: dict[TopicPartition, list[int]],
    brokers: Collection[int],
    others: Mapping[TopicPartition, Sequence[int]],
) -> None:
    """Reorder `replicas` in place; `others` stay as they are and count."""
    led: dict[str, dict[int, set[TopicPartition]]] = {}
    total = Counter(there[0] for there in others.values() if there)
    for tp, there in replicas.items():
        led.setdefault(tp.topic, {b: set() for b in brokers})[there[0]].add(tp)
        total[there[0]] += 1

    def take(tp: TopicPartition, full: int, empty: int) -> None:
        there = replicas[tp]
        place = there.index(empty)
        there[0], there[place] = there[place], there[0]
        led[tp.topic][full].remove(tp)
        led[tp.topic][empty].add(tp)
        total[full] -= 1
        total[empty] += 1

    def one_that_may(
        of: Mapping[int, set[TopicPartition]],
        full: int,
        empty: int,
        apart: Collection[TopicPartition],
    ) -> TopicPartition | None:
        return min(
            (tp for tp in of[full] if empty in replicas[tp] and tp not in apart), default=None
        )

    def level_topic(of: Mapping[int, set[TopicPartition]]) -> None:
        def find(full: int, empty: int, apart: Collection[TopicPartition]) -> TopicPartition | None:
            return one_that_may(of, full, empty, apart)

        level(brokers, Steps(lambda b: len(of[b]), lambda b: (len(of[b]), total[b], b), find, take))

    for of in led.values():
        level_topic(of)

    def in_any_topic(
        full: int, empty: int, apart: Collection[TopicPartition]
    ) -> TopicPartition | None:
        for of in led.values():
            if len(of[full]) > len(of[empty]):
                found = one_that_may(of, full, empty, apart)
                if found is not None:
                    return found
        return None

    level(brokers, Steps(lambda b: total[b], lambda b: (total[b], b), in_any_topic, take))


class Steps(NamedTuple):
    """What a step is.

    `count`: what is made even; `fullness`: the order of brokers, by count first; `find`: the best
    partition, none of those given, that can give something of the first broker to the second;
    `take`: have it do so.
    """

    count: Callable[[int], int]
    fullness: Callable[[int], tuple[int, ...]]
    find: Callable[[int, int, Collection[TopicPartition]], TopicPartition | None]
    take: Callable[[TopicPartition, int, int], None]


def level(brokers: Collection[int], steps: Steps) -> None:
    """Take steps until no two brokers differ by two or more, or no way leads between them."""
    stuck: set[int] = set()
    progress = False
    while True:
        order = sorted(brokers, key=steps.fullness)
        least = steps.count(order[0])
        full = next(
            (b for b in reversed(order) if b not in stuck and steps.count(b) - least >= 2), None
        )
        if full is not None:
            path = _path(full, order, steps)
            if path and _follow(path, steps):
                progress = True
            else:
                stuck.add(full)
        elif stuck and progress:  # what moved since may have freed a way
            stuck.clear()
            progress = False
        else:
            return


def _path(full: int, order: Sequence[int], steps: Steps) -> list[int]:
    """Return brokers from `full` to one that has at least two fewer; empty if no way is found."""
    emptier = [b for b in order if steps.count(full) - steps.count(b) >= 2]
    for empty in emptier:
        if steps.find(full, empty, ()) is not None:
            return [full, empty]
    before = {full: full}
    queue = [full]
    for at in queue:
        for to in order:
            if to in before or steps.find(at, to, ()) is None:
                continue
            before[to] = at
            queue.append(to)
            if to in emptier:
                path = [to]
                while path[-1] != full:
                    path.append(before[path[-1]])
                return path[::-1]
    return []


def _follow(path: Sequence[int], steps: Steps) -> bool:
    """Take the steps of a path, each by another partition; take all back if one is not there."""
    taken: list[tuple[TopicPartition, int, int]] = []
    for full, empty in itertools.pairwise(path):
        tp = steps.find(full, empty, {tp for tp, _, _ in taken})
        if tp is None:
            for done, a, b in reversed(taken):
                steps.take(done, b, a)
            return False
        steps.take(tp, full, empty)
        taken.append((tp, full, empty))
    return True


def drained(
    leaving: Mapping[TopicPartition, Sequence[int]],
    every: Mapping[TopicPartition, Sequence[int]],
    broker: int,
    others: Mapping[int, str | None],
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return where the replicas of `broker` go: each to one of `others` (id to rack).

    `leaving` are the partitions with a replica on it, `every` all partitions of the cluster. The
    new replica takes the place of the old one in the list. Preferred is a rack that the partition
    does not have yet; then the broker with the fewest replicas of the topic, or, for a preferred
    leader, that leads fewest of the topic; then the one with the fewest replicas of all topics.
    ValueError: all others have a replica already.
    """
    load = dict.fromkeys(sorted(others), 0)
    load.update(Counter(b for replicas in every.values() for b in replicas if b in load))
    held = Counter((tp.topic, b) for tp, replicas in every.items() for b in replicas)
    leads = Counter((tp.topic, replicas[0]) for tp, replicas in every.items() if replicas)
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for tp, replicas in sorted(leaving.items()):
        free = [b for b in load if b not in replicas]
        if not free:
            raise ValueError(
                f"{tp} has {plural(len(replicas), 'replica')} and only "
                f"{plural(len(others), 'other broker is', 'other brokers are')} alive"
            )
        taken = {others.get(b) for b in replicas if b != broker} - {None}
        led = replicas[0] == broker

        def fullness(
            b: int, tp: TopicPartition = tp, taken: set[str | None] = taken, led: bool = led
        ) -> tuple[int, ...]:
            of_topic = (held[tp.topic, b], leads[tp.topic, b])
            return (others[b] in taken, *(of_topic[::-1] if led else of_topic), load[b], b)

        chosen = min(free, key=fullness)
        load[chosen] += 1
        held[tp.topic, chosen] += 1
        leads[tp.topic, chosen] += led
        plan[tp] = tuple(chosen if b == broker else b for b in replicas)
    return plan
