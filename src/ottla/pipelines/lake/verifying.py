"""The full check of a table: each offset asked of the cluster again, and held against the rows.

Invariants: neither side is the job's own: the leaders are read by the reader of `gaps`, the tables
by their libraries. What the cluster no longer holds is counted, not judged. Memory: 8 bytes for
each offset of a partition.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ottla.model.printable import plural
from ottla.pipelines.lake.gaps import Reader
from ottla.pipelines.lake.landing import Landing
from ottla.pipelines.lake.spans import Span
from ottla.pipelines.source.cluster import Cluster

PLACE = ("kafka_partition", "kafka_offset")


def verify(cluster: Cluster, landing: Landing) -> tuple[int, int, list[str]]:
    """Return how many records were compared, how many offsets are gone, and what is wrong."""
    compared, gone, wrong = 0, 0, []
    for partition, account in landing.rows.state.accounts.items():
        name = f"{landing.name}-{partition}"
        first = max(account.start, landing.held[partition].start)
        gone += min(first, account.next) - account.start
        there = np.sort(np.concatenate([*_offsets(landing, partition)]))
        again = there[1:][there[1:] == there[:-1]]
        wrong += [f"{name}: offset {offset} stands twice" for offset in again[:5]]
        beyond = there[(there < account.start) | (there >= account.next)]
        wrong += [f"{name}: offset {offset} has not landed and is there" for offset in beyond[:5]]
        reader = Reader(cluster, landing.topic, partition)
        held = cluster.run(_read(reader, Span(min(first, account.next), account.next)))
        compared += len(held)
        if missing := len(lost := np.setdiff1d(held, there)):
            wrong.append(f"{name}: {plural(missing, 'record')} missing, the first at {lost[0]}")
        there = there[(there >= first) & (there < account.next)]
        if foreign := len(strange := np.setdiff1d(there, held)):
            wrong.append(f"{name}: {plural(foreign, 'row')} of no record, such as {strange[0]}")
    return compared, gone, wrong


async def _read(reader: Reader, span: Span) -> NDArray[np.int64]:
    found: list[int] = []
    async for records in reader.read(span):
        found += [record.offset for record in records]
    return np.array(found, np.int64)


def _offsets(landing: Landing, partition: int) -> Iterable[NDArray[np.int64]]:
    yield np.empty(0, np.int64)
    for table in (landing.rows, landing.dead):
        for batch in table.read(PLACE, {partition: 0}):
            offsets = batch.column("kafka_offset").to_numpy(zero_copy_only=False)
            yield offsets
