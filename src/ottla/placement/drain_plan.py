"""Where the replicas of one broker go when it is drained.

Invariants: plain values in, plain values out; only replicas of this broker move; equal input gives
an equal plan.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from ottla.model.ids import TopicPartition
from ottla.model.printable import plural


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
