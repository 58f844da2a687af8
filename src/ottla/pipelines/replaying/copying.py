"""A task: one partition's range of offsets, copied in transactions that carry the progress along.

Invariants: a task begins by taking the partition's transactional id, which ends whatever an earlier
attempt had open, and reads the progress only after that; so what it writes follows what is
committed, even if an earlier attempt is still alive. Records and progress are committed together. A
task never raises: what went wrong is in `Done`.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.client.transactional_producer import Encoded, TransactionalProducer
from ottla.model.errors import (
    ConfigError,
    CorruptRecordError,
    ErrorCode,
    OffsetOutOfRangeError,
    OttlaError,
    RecordTooLargeError,
    UnknownTopicError,
)
from ottla.model.ids import TopicPartition
from ottla.pipelines.replaying import origins
from ottla.pipelines.replaying.encoding import (
    Lane,
    RawRecord,
    encoded_body,
    encoded_headers,
    raw_records,
)
from ottla.pipelines.replaying.plan import PartitionMap
from ottla.pipelines.sink import progress
from ottla.pipelines.sink.progress import PROGRESS, Progress
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.fetching import PartitionFetcher
from ottla.pipelines.source.options import SourceOptions
from ottla.pipelines.source.ranges import OffsetRange
from ottla.wire.aborted import Aborted
from ottla.wire.compression import NONE
from ottla.wire.records import crc_ok, iter_batches, read_payload

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 256 * 1024
TRANSACTION_BYTES = 16 * 1024 * 1024
TRANSACTION_S = 5.0
"""A transaction ends after so many bytes or seconds, if not by its number of records before."""

RESULT = "partition int, next long, records long, looped long, problem string, final boolean"
REPLACED = "\N{REPLACEMENT CHARACTER}"
FINAL = (
    ConfigError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnknownTopicError,
)
"""Errors that another attempt would meet again."""


class NewerRunError(ConfigError):
    """Another run of the job has begun since."""

    code = ErrorCode.PRODUCER_FENCED


@dataclass(frozen=True, slots=True)
class Task:
    """What a task needs; can be pickled.

    `source_prefix`: the header's value up to the offset. `loop_prefix`: how the header begins of
    what came from the target. `progress_from`: an offset of the progress topic not beyond the
    newest record. `dropped`: offsets that are left out.
    """

    source: SourceOptions
    target: SourceOptions
    wanted: OffsetRange
    to: str
    job: str
    run: str
    source_prefix: bytes
    loop_prefix: bytes
    partitions: PartitionMap
    codec: int
    transaction_records: int
    progress_from: int = 0
    dropped: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Done:
    """How a task ended. `final`: another attempt would end so, too."""

    partition: int
    next: int
    records: int
    looped: int
    problem: str | None = None
    final: bool = False


def transactional_id(job: str, partition: int) -> str:
    """Return the transactional id of a partition's tasks."""
    return f"{progress.topic_of(job)}.{partition}"


def producer_of(
    cluster: Cluster, transactional_id: str, codec: int = NONE
) -> TransactionalProducer:
    """Return what writes to a cluster under a transactional id."""
    return TransactionalProducer(
        cluster.client,
        transactional_id,
        codec,
        patience_s=cluster.options.api_timeout_ms / 1000,
        request_timeout_s=cluster.options.request_timeout_ms / 1000,
    )


def copy(task: Task) -> Done:
    """Copy a range as it stands, from the source's batches to the target's."""
    return _ended(task, _batches)


def copy_rows(task: Task, rows: "Iterable[pa.RecordBatch]") -> Done:
    """Copy rows of Spark: partition, offset, key, value, headers, timestamp, in order."""
    return _ended(task, lambda _task, _from: _row_records(task, rows))


def _ended(task: Task, records: Any) -> Done:
    with Cluster(task.target) as cluster:
        copying = Copying(task, cluster)
        try:
            copying.open()
            for record in records(task, copying.next):
                copying.take(record)
            copying.end()
        except OttlaError as error:
            return copying.done(str(error), final=isinstance(error, FINAL))
        finally:
            copying.close()
    return copying.done()


class Copying:
    """The target's side of a task."""

    def __init__(self, task: Task, cluster: Cluster) -> None:
        self.next = task.wanted.start
        self._task = task
        self._cluster = cluster
        self._partition = task.wanted.partition
        self._writer = producer_of(cluster, transactional_id(task.job, self._partition), task.codec)
        self._progress_tp = TopicPartition(progress.topic_of(task.job), self._partition + 1)
        self._lanes: dict[int, Lane] = {}
        self._pending: asyncio.Task[Any] | None = None
        self._records = self._committed_records = self._looped = 0
        self._total = 0
        self._start = 0
        self._open_records = self._open_bytes = 0
        self._began_s = 0.0
        self._reached = self.next

    def open(self) -> None:
        """Take the transactional id, then read how far the partition got."""
        task = self._task
        self._cluster.run(self._writer.open())
        found = progress.newest(self._cluster, self._progress_tp, task.progress_from)
        last = progress.decoded(found, PROGRESS, Progress)
        if last is None or last.run != task.run:
            raise NewerRunError(f"another run of job {task.job} has begun; this one ends")
        self.next = self._reached = last.next
        self._total, self._start = last.records, last.start

    def take(self, record: RawRecord) -> None:
        """Take the next record; it is written with the transaction that it belongs to."""
        offset, task = record.offset, self._task
        if offset < self._reached:
            return
        self._reached = offset + 1
        if offset in task.dropped:
            return
        if origins.ENCODED_NAME in record.headers and _loops(record.headers, task.loop_prefix):
            self._looped += 1
            return
        if not self._open_records:
            self._began_s = time.monotonic()
        to = task.partitions.of(self._partition, record.key)
        lane = self._lanes.get(to)
        if lane is None:
            lane = self._lanes[to] = Lane()
        lane.append(record, task.source_prefix + b"%d" % offset)
        self._open_records += 1
        if len(lane.batch.payload) >= BATCH_BYTES:
            self._send(to, lane.taken())
        if (
            self._open_records >= task.transaction_records
            or self._open_bytes >= TRANSACTION_BYTES
            or (self._open_records & 0xFF == 0 and time.monotonic() - self._began_s > TRANSACTION_S)
        ):
            self._commit(self._reached)

    def end(self) -> None:
        """Commit what is left; the partition got to the range's end."""
        if self.next < self._task.wanted.end:
            self._commit(self._task.wanted.end)

    def close(self) -> None:
        """Leave what is not committed to the next attempt, which ends it."""
        if self._pending is not None:
            self._pending.cancel()

    def done(self, problem: str | None = None, *, final: bool = False) -> Done:
        return Done(
            self._partition, self.next, self._committed_records, self._looped, problem, final
        )

    def _send(self, partition: int, records: Encoded) -> None:
        """Begin to send a batch; the one before is waited for."""
        self._wait()
        self._open_bytes += len(records.payload)
        tp = TopicPartition(self._task.to, partition)
        self._pending = self._cluster.start(self._writer.send(tp, records))

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._cluster.finish(pending)

    def _commit(self, reached: int) -> None:
        """End the transaction: its records, and that the source was read up to there."""
        self._wait()
        written = self._committed_records + self._open_records
        total = self._total + self._open_records
        left = {p: lane.taken() for p, lane in self._lanes.items() if lane.batch.count}
        note = Progress(run=self._task.run, next=reached, start=self._start, records=total)
        sends = {TopicPartition(self._task.to, p): batch for p, batch in left.items()}
        self._cluster.run(
            self._finish({**sends, self._progress_tp: progress.encoded(PROGRESS, note)})
        )
        self._committed_records, self._total = written, total
        self.next = reached
        self._open_records = self._open_bytes = 0

    async def _finish(self, sends: dict[TopicPartition, Encoded]) -> None:
        await self._writer.add(list(sends))
        await asyncio.gather(*(self._writer.send(tp, batch) for tp, batch in sends.items()))
        await self._writer.commit()


def _loops(headers: bytes, prefix: bytes) -> bool:
    """Return whether a record came from the target, at any step."""
    return any(
        name == origins.HEADER and value is not None and value.startswith(prefix)
        for name, value in origins.encoded_headers(headers)
    )


def _batches(task: Task, start: int) -> Iterator[RawRecord]:
    """Yield the committed records of the range from an offset on."""
    wanted = task.wanted.starting_at(start)
    with Cluster(task.source) as cluster:
        for fetched in PartitionFetcher(cluster, wanted):
            aborted = Aborted(fetched.aborted)
            for at, batch in iter_batches(fetched.records, allow_partial=True):
                if not crc_ok(fetched.records, at, batch):
                    raise CorruptRecordError(
                        f"{wanted.tp}: the batch at offset {batch.base_offset} fails its checksum"
                    )
                if aborted.covers(fetched.records, at, batch) or batch.is_control:
                    continue
                for record in raw_records(batch, read_payload(batch, fetched.records, at)):
                    if wanted.start <= record.offset < wanted.end:
                        yield record


def _row_records(task: Task, rows: "Iterable[pa.RecordBatch]") -> Iterator[RawRecord]:
    """Yield the records that rows stand for; OttlaError if a row is not of the task's range."""
    import pyarrow as pa  # the other way does without it

    wanted = task.wanted
    for batch in rows:
        columns = [batch.column(n).to_pylist() for n in range(5)]
        times = batch.column(5).cast(pa.int64()).to_pylist()
        for partition, offset, key, value, headers, time_us in zip(*columns, times, strict=True):
            if partition != wanted.partition or not wanted.start <= offset < wanted.end:
                raise OttlaError(f"offset {offset} of partition {partition} is not of {wanted}")
            if time_us is None:
                raise ConfigError(f"{wanted.tp}, offset {offset}: transform gave no timestamp")
            pairs = _pairs(task, offset, headers)
            body, encoded = encoded_body(key, value), encoded_headers(pairs)
            yield RawRecord(offset, time_us // 1000, key, body, len(pairs), encoded)


def _pairs(task: Task, offset: int, headers: Any) -> list[tuple[str, bytes | None]]:
    pairs = [(h["key"], h["value"]) for h in headers or ()]
    for name, _ in pairs:
        if name is None or REPLACED in name:
            raise ConfigError(
                f"{task.wanted.tp}, offset {offset}: a header's name is null or no UTF-8, which "
                "rows of Spark cannot carry; copy this record without filter and transform"
            )
    return pairs
