"""Which offsets are copied next, and into which partition; as plain values.

Invariants: pure. A partition of the source is one task, for its records have to be written in their
order; tasks of one round end at offsets that are known before.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.model.errors import ConfigError
from ottla.model.partitioning import partition_of
from ottla.model.printable import plural
from ottla.pipelines.landing.spans import Span, plan

SAME, BY_KEY = "same", "key"


@dataclass(frozen=True, slots=True)
class PartitionMap:
    """The target's partition for each record: fixed for a source partition, or by the key."""

    by_key: bool
    fixed: Mapping[int, int]
    count: int

    def of(self, partition: int, key: bytes | None) -> int:
        if self.by_key and key is not None:
            return partition_of(key, self.count)
        return self.fixed[partition]


def mapped(
    wanted: str | Mapping[str, int], sources: tuple[int, ...], targets: tuple[int, ...]
) -> PartitionMap:
    """Return the mapping that `partitions` asks for; ConfigError if partitions do not fit."""
    count = len(targets)
    if wanted == BY_KEY:
        return PartitionMap(True, {p: p % count for p in sources}, count)
    if isinstance(wanted, str):
        fixed = {p: p for p in sources}
        way_out = 'add partitions to it, or set partitions = "key" or a table'
    else:
        fixed = {int(p): t for p, t in wanted.items()}
        way_out = "name each partition of the source, and partitions that the target has"
    missing = sorted(set(sources) - set(fixed))
    if missing:
        raise ConfigError(f"partitions says nothing of the source's {missing[0]}: {way_out}")
    foreign = sorted({fixed[p] for p in sources} - set(targets))
    if foreign:
        raise ConfigError(
            f"the target has {plural(count, 'partition')}, records would go to partition "
            f"{foreign[0]}: "
            f"{way_out}"
        )
    return PartitionMap(False, {p: fixed[p] for p in sources}, count)


def next_round(nexts: Mapping[int, int], ends: Mapping[int, int], most: int) -> dict[int, Span]:
    """Return what the next round copies: at most about `most` offsets, shared by what waits."""
    todo = {p: [Span(at, ends[p])] for p, at in nexts.items() if ends.get(p, 0) > at}
    return plan(todo, most)
