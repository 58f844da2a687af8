"""Sums over ranges of both topics, made in Spark's Python workers: counts, hashes, runs.

Invariants: records are read by a reader of its own (`landing.gaps.Reader`,
`wire.records.iter_records`), not by what copies them. A record's hash is over its coordinates in
the source, key, value, headers and timestamp. Hashes of a block are put together by exclusive or,
so that ranges may be divided anywhere.
"""

import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.model.errors import OttlaError
from ottla.pipelines.landing.asking import Topic
from ottla.pipelines.landing.gaps import Reader
from ottla.pipelines.landing.spans import Span
from ottla.pipelines.replaying import origins
from ottla.pipelines.replaying.encoding import encoded_body, encoded_headers
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.options import SourceOptions
from ottla.wire.records import Record

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 4096
"""Offsets of the source that share a hash."""

Headers = Iterable[tuple[str, bytes | None]]
Detail = tuple[int, int, int, tuple[int, int] | None]
"""Partition and offset in the source, hash, and partition and offset in the target."""

HASHED = "partition int, offset long, hash long"


@dataclass(frozen=True, slots=True)
class Part:
    """What one task sums up. `spans`: of the source; `blocks`: give details of these.

    `source_name`: how the origin begins of records that count; None on the source's side.
    `hashed`: whether the source's records are copied as they are. `all_of_job`: leave out the
    target's records of before the spans.
    """

    options: SourceOptions
    topic: Topic
    partition: int
    span: Span
    spans: Mapping[int, Span]
    source_name: str | None = None
    loop_prefix: str = ""
    hashed: bool = True
    all_of_job: bool = False
    dropped: frozenset[int] = frozenset()
    blocks: frozenset[tuple[int, int]] = frozenset()


@dataclass(slots=True)
class Sum:
    """What a task found. `runs`: (target partition, source partition, first offsets, count)."""

    of_source: bool
    records: int = 0
    blocks: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    runs: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    details: list[Detail] = field(default_factory=list)
    problem: str | None = None

    def add(self, part: Part, origin: tuple[int, int], hash_: int, place: Any = None) -> None:
        """Take a record into its block, and into the details if they are wanted."""
        key = (origin[0], origin[1] // BLOCK)
        if part.blocks and key not in part.blocks:
            return
        count, sum_ = self.blocks.get(key, (0, 0))
        self.blocks[key] = (count + 1, sum_ ^ hash_)
        if part.blocks:
            self.details.append((*origin, hash_, place))


def content_hash(
    partition: int, offset: int, key: bytes | None, value: bytes | None, headers: Headers,
    timestamp: int,
) -> int:  # fmt: skip
    """Return a signed hash of 64 bits; nulls differ from what is empty."""
    fixed = b"%d;%d;%d;" % (partition, offset, timestamp)
    data = fixed + encoded_body(key, value) + encoded_headers(list(headers))
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)


def summed(part: Part) -> Sum:
    """Read a range and sum it up; a problem is reported in the result."""
    found = Sum(part.source_name is None)
    try:
        with Cluster(part.options) as cluster:
            reader = Reader(cluster, part.topic, part.partition)
            cluster.run(_read(part, reader.read(part.span), found))
    except OttlaError as error:
        found.problem = f"while both topics are compared: {error}"
    return found


async def _read(part: Part, records: AsyncIterator[list[Record]], found: Sum) -> None:
    take = _take_source if part.source_name is None else _take_target
    async for some in records:
        for record in some:
            take(part, record, found)


def _take_source(part: Part, record: Record, found: Sum) -> None:
    found.records += 1
    if not part.hashed or record.offset in part.dropped or _loops(record, part.loop_prefix):
        return
    origin = (part.partition, record.offset)
    found.add(
        part,
        origin,
        content_hash(*origin, record.key, record.value, record.headers, record.timestamp),
    )


def _loops(record: Record, prefix: str) -> bool:
    return any(
        name == origins.HEADER and value is not None and value.startswith(prefix.encode())
        for name, value in record.headers
    )


def _take_target(part: Part, record: Record, found: Sum) -> None:
    steps = origins.chain(record.headers)
    if not steps or ";".join(steps[-1][:3]) != part.source_name:
        return
    origin = (steps[-1].partition, steps[-1].offset)
    span = part.spans.get(origin[0])
    if part.all_of_job and span is not None and origin[1] < span.start:
        return
    found.records += 1
    *before, last = record.headers
    headers = before if last[0] == origins.HEADER else record.headers
    hash_ = content_hash(*origin, record.key, record.value, headers, record.timestamp)
    found.add(part, origin, hash_, (part.partition, record.offset))
    if span is not None and span.start <= origin[1] < span.end:
        _lengthen(found.runs, part.partition, origin[0], record.offset, origin[1])


def _lengthen(runs: list[tuple[int, int, int, int, int]], a: int, b: int, x: int, y: int) -> None:
    """Put a pair of offsets behind the last run if it goes on there, else begin another."""
    if runs:
        *of, first_x, first_y, count = runs[-1]
        if of == [a, b] and (first_x + count, first_y + count) == (x, y):
            runs[-1] = (a, b, first_x, first_y, count + 1)
            return
    runs.append((a, b, x, y, 1))


def hashed_rows(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Turn rows of partition, offset, key, value, headers and timestamp into rows of HASHED."""
    import pyarrow as pa  # the other way does without it

    for batch in batches:
        columns = [batch.column(n).to_pylist() for n in range(5)]
        times = batch.column(5).cast(pa.int64()).to_pylist()
        hashes = [
            content_hash(
                p, o, key, value, [(h["key"], h["value"]) for h in headers or ()], t // 1000
            )
            for p, o, key, value, headers, t in zip(*columns, times, strict=True)
        ]
        arrays = [batch.column(0), batch.column(1), pa.array(hashes, pa.int64())]
        yield pa.RecordBatch.from_arrays(arrays, names=["partition", "offset", "hash"])
