"""Offsets at which no record came: whether they are gaps of the log, or records were left out.

Invariants: asks the partition's leader with a reader of its own, not through Spark. A gap is an
offset of a control batch, of an aborted record (read_committed), or one that compaction removed; a
record that readers see there is one that is missing. Kafka: the choice that Kafka's
`CompletedFetch` makes among batches.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.model.errors import ErrorCode, OttlaError, error_name
from ottla.model.ids import TopicPartition
from ottla.model.ports import Buffer
from ottla.model.printable import plural
from ottla.pipelines.landing.asking import Topic
from ottla.pipelines.landing.spans import Span
from ottla.pipelines.source.cluster import Cluster
from ottla.wire.batch_header import BatchHeader
from ottla.wire.messages.records import FetchRequest
from ottla.wire.records import ABORT, Record, iter_batches, iter_records, parse_control_record

MAX_BYTES = 8 * 1024 * 1024
LAST_VERSION_WITH_NAMES = 12
MOST_SPANS = 100_000


@dataclass(slots=True)
class _Reading:
    """What is known of transactions while one partition is read in order."""

    aborted: list[tuple[int, int]] = field(default_factory=list)  # (first offset, producer id)
    aborting: set[int] = field(default_factory=set)

    def hidden(self, batch: BatchHeader, buffer: Buffer, position: int) -> bool:
        """Return whether readers skip a batch: a marker, or records of an aborted transaction."""
        while self.aborted and self.aborted[0][0] <= batch.last_offset:
            self.aborting.add(self.aborted.pop(0)[1])
        if batch.is_control:
            record = next(iter(iter_records(buffer, position)))
            if parse_control_record(record).type == ABORT:
                self.aborting.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self.aborting


async def records_in(
    cluster: Cluster, topic: Topic, holes: Mapping[int, Sequence[Span]]
) -> list[str]:
    """Return what should have come, in words: records that readers see inside of the holes."""
    wrong: list[str] = []
    for partition, spans in holes.items():
        if not spans:
            continue
        if len(spans) > MOST_SPANS:
            raise OttlaError(
                f"{topic.name}-{partition} has {plural(len(spans), 'gap')} in one batch, more than "
                f"{MOST_SPANS} are not looked into; lower batch_records"
            )
        reader = Reader(cluster, topic, partition)
        seen = [r.offset for span in spans async for some in reader.read(span) for r in some]
        if seen:
            wrong.append(
                f"{topic.name}-{partition}: {plural(len(seen), 'record')} did not come, "
                f"the first at {seen[0]}"
            )
    return wrong


class Reader:
    """Reads spans of one partition, as a consumer of the cluster's isolation level sees them."""

    def __init__(self, cluster: Cluster, topic: Topic, partition: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._tp = TopicPartition(topic.name, partition)
        self._isolation = int(cluster.options.read_committed)

    async def read(self, span: Span) -> AsyncIterator[list[Record]]:
        """Yield the records in a span, some at a time."""
        at = span.start
        while at < span.end:
            response = await self._fetch(at)
            at, records = _look(response, at, self._isolation)
            yield [r for r in records if r.offset < span.end]

    async def _fetch(self, offset: int) -> Any:
        patience = self._cluster.patience()
        while True:
            try:
                return await self._respond(offset)
            except OttlaError as error:
                try:
                    await patience.wait(error)
                except OttlaError:
                    raise OttlaError(f"{self._tp}: {error}; gaps could not be checked") from None
                await self._cluster.client.metadata([self._topic.name])

    async def _respond(self, offset: int) -> Any:
        """Return what the leader has from an offset on; a response without records is none."""
        version = None if self._topic.topic_id else LAST_VERSION_WITH_NAMES
        client = self._cluster.client
        response = await client.call(
            self._request(offset), await client.leader(*self._tp), version=version
        )
        code = response.error_code
        if not code:
            item = response.responses[0].partitions[0]
            if not item.error_code and item.records:
                return item
            code = item.error_code or ErrorCode.OFFSET_NOT_AVAILABLE
        raise OttlaError(f"{error_name(code)} at offset {offset}", ErrorCode(code))

    def _request(self, offset: int) -> FetchRequest:
        partition = FetchRequest.FetchPartition(
            partition=self._tp.partition, fetch_offset=offset, partition_max_bytes=MAX_BYTES
        )
        topic = FetchRequest.FetchTopic(
            topic=self._topic.name, topic_id=self._topic.id_bytes, partitions=[partition]
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=self._isolation,
            topics=[topic],
        )


def _look(response: Any, offset: int, isolation: int) -> tuple[int, list[Record]]:
    """Return where to go on, and the records from `offset` on that readers see in a response."""
    reading = _Reading(
        sorted((a.first_offset, a.producer_id) for a in response.aborted_transactions or ())
        if isolation
        else []
    )
    seen: list[Record] = []
    at = offset
    for position, batch in iter_batches(response.records, allow_partial=True):
        hidden = reading.hidden(batch, response.records, position)
        if batch.last_offset >= offset and not hidden:
            seen += [r for r in iter_records(response.records, position) if r.offset >= offset]
        at = max(at, batch.next_offset)
    if at == offset:
        raise OttlaError(f"no whole batch at offset {offset}; gaps could not be checked")
    return at, seen
