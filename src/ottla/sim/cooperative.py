"""How a cooperative group (KIP-429) shares its partitions out: evenly, moving as few as it can.

Invariants: pure; a partition goes to another member only in a generation in which no member says
any more that it owns it. Kafka: `CooperativeStickyAssignor`, for members that all subscribe to the
same topics.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.model.ids import TopicPartition


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
