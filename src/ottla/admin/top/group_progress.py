"""How far a group is at one moment, in few numbers: what is kept of many looks.

A decider. Invariants: only partitions count whose lag is known, so `end` - `committed` is the lag
but where a broker tells an end below what was committed.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.client.groups import PartitionLag


class Progress(NamedTuple):
    """Sums over the partitions of a group. `at_s` is monotonic; `topics` is the lag of each.

    `partitions` stands for which ones they are: sums over others cannot be compared.
    """

    at_s: float
    lag: int
    committed: int
    end: int
    partitions: int
    topics: Mapping[str, int]


def progress_of(rows: Iterable["PartitionLag"], at_s: float) -> Progress | None:
    """Return the sums of rows that were asked for at a moment; None if no lag is known."""
    topics: dict[str, int] = {}
    committed = end = 0
    known = []
    for row in rows:
        if row.lag is None or row.committed is None or row.end is None:
            continue
        topics[row.topic] = topics.get(row.topic, 0) + row.lag
        committed += row.committed
        end += row.end
        known.append((row.topic, row.partition))
    if not known:
        return None
    return Progress(at_s, sum(topics.values()), committed, end, hash(tuple(known)), topics)
