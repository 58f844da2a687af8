"""What Spark calls to write: a writer for a batch, and one for each micro-batch of a stream.

Invariants: what does not fit is refused before anything is sent; a task never commits. Spark gives
a task's rows to `write` on an executor, one attempt's message of each task to `commit` on the
driver, and calls `abort` if anything failed, `commit` included. Spark: `KafkaStreamingWrite`.
"""

import asyncio
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import types as t
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ottla.client.producer import Sequences, produce
from ottla.client.transactional_producer import Encoded, TransactionalProducer
from ottla.model.errors import (
    ConfigError,
    ErrorCode,
    OttlaError,
    ProducerFencedError,
    UnknownTopicError,
)
from ottla.model.ids import TopicPartition
from ottla.model.protocol import ACKS_ALL
from ottla.pipelines.sink.committing import Committer, Plan, Prepared, producer_of, transactional_id
from ottla.pipelines.sink.encoding import RowEncoder, refuse_schema
from ottla.pipelines.sink.options import PREFIX, SinkOptions, parse_sink_options
from ottla.pipelines.source.cluster import Cluster
from ottla.wire.messages.transactions import InitProducerIdRequest

if TYPE_CHECKING:
    import pyarrow as pa

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of a stream's tasks."""
MOST_IN_FLIGHT = 8
STOPPING_S = 3.0
"""How long a task may run on once its job has failed: Spark ends its worker after two seconds."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What a task tells the driver. `prepared`: None if it wrote nothing."""

    plan: Plan
    query: str
    prepared: Prepared | None


class IdempotentProducer:
    """Writes without transactions, as `kafka.acks` says; once each while it lives."""

    def __init__(self, cluster: Cluster, options: SinkOptions) -> None:
        self._client = cluster.client
        self._options = options
        self._sequences = Sequences()

    async def open(self) -> None:
        if self._options.acks == ACKS_ALL:
            response = await self._client.call(InitProducerIdRequest(transactional_id=None))
            self._sequences = Sequences(response.producer_id, response.producer_epoch)

    async def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Do nothing: there is no transaction."""

    async def send(self, tp: TopicPartition, records: Encoded) -> int:
        numbers = self._sequences.take(tp, records.count)
        batch = records.framed(self._options.codec, numbers, transactional=False)
        patience = self._client.patience(self._options.delivery_timeout_ms / 1000)
        while True:
            try:
                leader = await self._client.leader(*tp)
                found = await produce(
                    self._client, leader, tp, batch, acks=self._options.acks,
                    timeout_s=self._options.request_timeout_s,
                )  # fmt: skip
                return int(found.base_offset)
            except OttlaError as error:
                await patience.wait(error)
                await self._client.refresh([tp.topic])


class _Task:
    """A task's rows on their way: encoded here, several partitions' batches in flight."""

    def __init__(
        self, cluster: Cluster, options: SinkOptions, number: int,
        producer: TransactionalProducer | IdempotentProducer,
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._producer = producer
        self._counts: dict[str, int] = {}
        self._pending: dict[TopicPartition, asyncio.Task[int]] = {}
        self.encoder = RowEncoder(options.topic, self._count_of, options.batch_bytes, number)
        self.open = False

    def write(self, batches: "Iterable[pa.RecordBatch]") -> None:
        for batch in batches:
            self._send(list(self.encoder.take(batch)))
        self._send(list(self.encoder.rest()))
        for tp in list(self._pending):
            self._finish(tp)

    def _send(self, ready: list[tuple[TopicPartition, Encoded]]) -> None:
        if not ready:
            return
        if not self.open:
            self._cluster.run(self._producer.open())
            self.open = True
        self._cluster.run(self._producer.add([tp for tp, _ in ready]))
        for tp, records in ready:
            if tp in self._pending:
                self._finish(tp)
            elif len(self._pending) >= MOST_IN_FLIGHT:
                self._finish(next(iter(self._pending)))
            self._pending[tp] = self._cluster.start(self._producer.send(tp, records))

    def _finish(self, tp: TopicPartition) -> None:
        self._cluster.finish(self._pending.pop(tp))

    def _count_of(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = partitions_of(self._cluster, topic)
        return self._counts[topic]


def partitions_of(cluster: Cluster, topic: str) -> int:
    """Return how many partitions a topic has; UnknownTopicError if there is none."""
    found = cluster.existing([topic]).get(topic)
    if found is None:
        raise UnknownTopicError(
            f"topic {topic} does not exist at {cluster.options.bootstrap}; create it with: ottla "
            f"topics create {topic} --partitions 3 -b {cluster.options.bootstrap}"
        )
    return len(found.partitions)


class _Writer:
    """What both writers share. `query` and `batch` of a task are found where it runs."""

    def __init__(self, options: SinkOptions, schema: t.StructType) -> None:
        refuse_schema(schema, options.topic)
        self.options = options
        self.plan: Plan | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Plan the write: Spark pickles a writer where it plans, once, and nowhere else."""
        if self.plan is None:
            self.plan = self._planned()
        return self.__dict__

    def _numbered(self) -> bool:
        """Return whether writes have numbers, by which they are known when they are run again."""
        raise NotImplementedError

    def _task_of(self, context: TaskContext) -> tuple[str, int | None]:
        """Return which query and batch a task is of."""
        raise NotImplementedError

    def _planned(self) -> Plan:
        options = self.options
        plan = Plan(options.prefix or f"{PREFIX}{uuid.uuid4().hex}")
        with Cluster(options.cluster) as cluster:
            if options.topic is not None:
                partitions_of(cluster, options.topic)
            if options.exactly_once and self._numbered():
                return Committer(cluster, options, plan).open()
        return plan

    def write(self, batches: "Iterator[pa.RecordBatch]") -> Written:
        context = TaskContext.get()
        assert context is not None
        assert self.plan is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        query, batch = self._task_of(context)
        if self.plan.skips(query, batch, task):
            for _ in batches:  # Spark waits until they are read
                pass
            return Written(self.plan, query, None)
        options = self.options
        with Cluster(options.cluster) as cluster:
            if not options.exactly_once:
                _Task(cluster, options, task, IdempotentProducer(cluster, options)).write(batches)
                return Written(self.plan, query, None)
            name = transactional_id(self.plan.prefix, task, attempt)
            producer = producer_of(cluster, options, name)
            writing = _Task(cluster, options, task, producer)
            with _aborting(cluster, producer, options):
                writing.write(batches)
            if not writing.open:
                return Written(self.plan, query, None)
            encoder = writing.encoder
            prepared = Prepared(task, attempt, *producer.identity, encoder.rows, encoder.bytes)
            return Written(self.plan, query, prepared)

    def _end(self, messages: Sequence[Written | None], batch: int | None, *, commit: bool) -> None:
        there = [one for one in messages if one is not None]
        prepared = [one.prepared for one in there if one.prepared is not None]
        plan = self.plan or (there[0].plan if there else None)
        options = self.options
        if plan is None or not options.exactly_once or (commit and not prepared and batch is None):
            return
        query = there[0].query if there else ""
        with Cluster(options.cluster) as cluster:
            committer = Committer(cluster, options, plan)
            if commit:
                committer.commit(query, batch, prepared)
            else:
                committer.abort()
                if messages.count(None) > 1:  # beside the task that failed, some may still write
                    time.sleep(STOPPING_S)
                    committer.abort()


class BatchWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write`: all rows of one run, or none."""

    def _numbered(self) -> bool:
        return self.options.batch is not None

    def _task_of(self, _context: TaskContext) -> tuple[str, int | None]:
        return "", self.options.batch

    def commit(self, messages: list[Written | None]) -> None:
        self._end(messages, self.options.batch, commit=True)

    def abort(self, messages: list[Written | None]) -> None:
        self._end(messages, self.options.batch, commit=False)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream`: each micro-batch once, however often Spark runs it."""

    def _numbered(self) -> bool:
        return True

    def _task_of(self, context: TaskContext) -> tuple[str, int | None]:
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        assert query is not None
        assert batch is not None
        return query, int(batch)

    def commit(self, messages: list[Written | None], batchId: int) -> None:  # noqa: N803
        self._end(messages, batchId, commit=True)

    def abort(self, messages: list[Written | None], batchId: int) -> None:  # noqa: N803
        self._end(messages, batchId, commit=False)


def batch_writer(options: Mapping[str, str], schema: t.StructType, overwrite: bool) -> BatchWriter:
    """Return what writes a batch; ConfigError if it cannot be."""
    if overwrite:
        raise ConfigError('a topic is only appended to: use mode("append")')
    return BatchWriter(parse_sink_options(options, streaming=False), schema)


def stream_writer(options: Mapping[str, str], schema: t.StructType) -> StreamWriter:
    """Return what writes a stream's micro-batches; ConfigError if it cannot be."""
    return StreamWriter(parse_sink_options(options, streaming=True), schema)


@contextmanager
def _aborting(
    cluster: Cluster, producer: TransactionalProducer, options: SinkOptions
) -> Iterator[None]:
    """Abort what a task has written if it fails, and say what helps if that had happened before."""
    name, timeout = producer.transactional_id, options.transaction_timeout_ms
    try:
        yield
    except BaseException as error:
        with suppress(OttlaError):
            cluster.run(producer.abort())
        if not isinstance(error, OttlaError):
            raise
        if isinstance(error, ProducerFencedError) or error.code == ErrorCode.INVALID_TXN_STATE:
            raise OttlaError(
                f"the transaction of {name} was aborted: another run of this write took over, or "
                f"the task wrote for longer than kafka.transaction.timeout.ms={timeout}: raise it, "
                "or use more partitions"
            ) from None
        if error.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise ConfigError(
                f"brokers refuse kafka.transaction.timeout.ms={timeout}: lower it to their "
                "transaction.max.timeout.ms"
            ) from None
        raise
