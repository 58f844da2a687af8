"""Leveling: steps from full brokers to empty ones until no step makes them more even.

Invariants: each round lowers the sum of squares of the counts, so it ends; a way over other brokers
is looked for where no step leads straight there (an augmenting path of a flow with convex costs);
the same input takes the same steps.
"""

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ottla.model.ids import TopicPartition


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
