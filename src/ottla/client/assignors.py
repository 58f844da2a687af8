"""Assignors: how a group shares its partitions out: `range`, and `cooperative-sticky` (KIP-429).

Invariants: pure; with the cooperative one a partition goes to another member only in a generation
in which no member says any more that it owns it. Kafka: `RangeAssignor` without racks,
`CooperativeStickyAssignor` for members that all subscribe to the same topics.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.model.ids import TopicPartition, by_topic
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.groups import ConsumerProtocolSubscription

Shares = dict[str, dict[str, list[int]]]
"""What each member is given: topic -> partitions."""
Said = Mapping[str, ConsumerProtocolSubscription]
"""What each member said when it joined."""


class RangeAssignor:
    """Assigns runs of each topic's partitions; between generations no member owns any."""

    name = "range"

    def subscription(
        self,
        topics: list[str],
        owned: Iterable[TopicPartition],  # noqa: ARG002
        generation: int,  # noqa: ARG002
    ) -> bytes:
        """Return what a member says of itself: `owned`, since `generation`, where it counts."""
        return encode_versioned(ConsumerProtocolSubscription(topics=topics), 0)

    def share_out(self, counts: Mapping[str, int], said: Said) -> Shares:
        """Share out topics of so many partitions."""
        return assign_range(counts, {member: one.topics for member, one in said.items()})


class CooperativeAssignor(RangeAssignor):
    """An even share each, moving as few partitions as it can; members keep what does not move."""

    name = "cooperative-sticky"

    def subscription(
        self, topics: list[str], owned: Iterable[TopicPartition], generation: int
    ) -> bytes:
        one = ConsumerProtocolSubscription.TopicPartition
        said = ConsumerProtocolSubscription(
            topics=topics,
            owned_partitions=[one(topic=t, partitions=p) for t, p in by_topic(owned).items()],
            generation_id=generation,
        )
        return encode_versioned(said, 3)

    def share_out(self, counts: Mapping[str, int], said: Said) -> Shares:
        tps = [TopicPartition(topic, p) for topic, count in counts.items() for p in range(count)]
        claims = {
            member: Claim(
                one.generation_id,
                frozenset(
                    TopicPartition(t.topic, p) for t in one.owned_partitions for p in t.partitions
                ),
            )
            for member, one in said.items()
        }
        return {m: by_topic(given) for m, given in assign_cooperative(tps, claims).items()}


RANGE, COOPERATIVE = RangeAssignor(), CooperativeAssignor()


def assign_range(
    partitions: Mapping[str, int], subscriptions: Mapping[str, Iterable[str]]
) -> Shares:
    """Give each topic's partitions to its members in runs, members sorted by id.

    `partitions` maps topics to their counts, `subscriptions` members to topics. The first members
    get one more where it does not divide evenly.
    """
    given: Shares = {member: {} for member in subscriptions}
    for topic, count in partitions.items():
        members = sorted(m for m, topics in subscriptions.items() if topic in topics)
        start = 0
        for place, member in enumerate(members):
            size = count // len(members) + (place < count % len(members))
            if size:
                given[member][topic] = list(range(start, start + size))
            start += size
    return given


class Claim(NamedTuple):
    """What a member says it owns, and the generation in which it was given that (-1: none)."""

    generation: int
    partitions: frozenset[TopicPartition]


def owners(claims: Mapping[str, Claim]) -> tuple[dict[TopicPartition, str], set[TopicPartition]]:
    """Return who owns what, by the newest claim, and what several own by claims of one age."""
    newest: dict[TopicPartition, tuple[int, list[str]]] = {}
    for member in sorted(claims):
        generation, partitions = claims[member]
        for tp in partitions:
            age, members = newest.get(tp, (-2, []))
            if generation > age:
                newest[tp] = generation, [member]
            elif generation == age:
                members.append(member)
    owned = {tp: members[0] for tp, (_, members) in newest.items() if len(members) == 1}
    return owned, set(newest) - set(owned)


def assign_cooperative(
    tps: Sequence[TopicPartition], claims: Mapping[str, Claim]
) -> dict[str, list[TopicPartition]]:
    """Share partitions out evenly, moving as few as possible, and none before it was given up.

    What moves is no one's in this generation: its owner sees that and joins again without it.
    """
    owned, disputed = owners(claims)
    held: dict[str, list[TopicPartition]] = {member: [] for member in claims}
    for tp in sorted(tps):
        if tp in owned:
            held[owned[tp]].append(tp)
    least, more = divmod(len(tps), len(claims))
    in_order = sorted(claims, key=lambda member: (-len(held[member]), member))
    quota = {member: least + (place < more) for place, member in enumerate(in_order)}
    given = {member: held[member][: quota[member]] for member in in_order}
    kept = {tp for partitions in given.values() for tp in partitions}
    free = [tp for tp in sorted(tps) if tp not in kept]
    for member in in_order:
        while free and len(given[member]) < quota[member]:
            given[member].append(free.pop(0))
    return {
        member: sorted(
            tp for tp in partitions if tp not in disputed and owned.get(tp, member) == member
        )
        for member, partitions in given.items()
    }
