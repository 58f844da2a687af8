"""A group's offsets of the source as offsets of the target.

Pure. A group that goes on at the translated offset misses nothing: of each source partition the
first copied record that it has not read lies there or behind. Where several partitions of the
source went into one of the target, the smallest offset holds, so that some records of the others
are read again.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Run(NamedTuple):
    """A row of the offset map: as many offsets on both sides, going up by one."""

    source_partition: int
    source_first: int
    source_last: int
    target_partition: int
    target_first: int
    target_last: int


def translated(runs: Iterable[Run], committed: Mapping[int, int]) -> dict[int, int]:
    """Return where to go on in each partition of the target.

    `committed` is the next offset that the group reads, by partition of the source; partitions of
    the target that got nothing of these are left out.
    """
    first: dict[tuple[int, int], int] = {}
    behind: dict[tuple[int, int], int] = {}
    for run in runs:
        at = committed.get(run.source_partition)
        if at is None:
            continue
        key = (run.source_partition, run.target_partition)
        behind[key] = max(behind.get(key, 0), run.target_last + 1)
        if run.source_last >= at:
            offset = run.target_first + max(0, at - run.source_first)
            first[key] = min(first.get(key, offset), offset)
    found: dict[int, int] = {}
    for key, end in behind.items():
        offset = first.get(key, end)
        found[key[1]] = min(found.get(key[1], offset), offset)
    return found
