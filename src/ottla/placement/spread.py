"""Spread: an even assignment of partitions to brokers that copies few replicas.

Invariants: plain values in, plain values out; equal input gives an equal proposal. In this order:
every partition has as many racks as it can; a topic's replicas are even over the brokers; so are
its preferred leaders (by order alone, which copies nothing); so are the replicas and leaders of all
topics together, those not named counted; and of choices that are equal so far, the one that levels
the bytes. Our own: Kafka's `--generate` (`ReassignPartitionsCommand.generateAssignment`) assigns
all replicas again from a random start.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.model.printable import plural
from ottla.placement.leader_spread import level_leaders
from ottla.placement.leveling import Steps, level

Replicas = Mapping[TopicPartition, Sequence[int]]


class Proposal(NamedTuple):
    """An assignment; `copies` are replicas to copy, no even spread has fewer than `least`.

    `copied_bytes` counts those partitions whose sizes are known.
    """

    assignment: dict[TopicPartition, tuple[int, ...]]
    copies: int
    least: int
    copied_bytes: int


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
