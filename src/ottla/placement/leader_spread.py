"""Preferred leaders made even by the order of replicas, which copies nothing.

Invariants: no partition's set of replicas changes; each topic's leaders are evened out first, then
those of all topics together by steps that leave each topic as even.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ottla.model.ids import TopicPartition
from ottla.placement.leveling import Steps, level


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

    for of in led.values():
        level(
            brokers,
            Steps(
                lambda b, of=of: len(of[b]),  # type: ignore[misc]
                lambda b, of=of: (len(of[b]), total[b], b),  # type: ignore[misc]
                lambda full, empty, apart, of=of: one_that_may(of, full, empty, apart),  # type: ignore[misc]
                take,
            ),
        )

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
