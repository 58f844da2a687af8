"""Offsets at which no record came: whether they are gaps of the log, or records were left out.

Invariants: asks the partition's leader with a reader of its own, not through Spark. A gap is an
offset of a control batch, of an aborted record (read_committed), or one that compaction removed; a
record that readers see there is one that is missing. Kafka: the choice that Kafka's
`CompletedFetch` makes among batches.
"""

from collections.abc import AsyncIterator, Mapping, Sequence

from ottla.client.fetching import fetch
from ottla.model.errors import ErrorCode, OttlaError, error_name
from ottla.model.ids import TopicPartition
from ottla.model.printable import plural
from ottla.pipelines.lake.asking import Topic
from ottla.pipelines.lake.spans import Span
from ottla.pipelines.source.cluster import Cluster
from ottla.wire.messages.records import FetchResponse
from ottla.wire.records import Aborted, Record, iter_batches, iter_records

MAX_BYTES = 8 * 1024 * 1024
MOST_SPANS = 100_000


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
            at, records = _look(response, at)
            yield [r for r in records if r.offset < span.end]

    async def _fetch(self, offset: int) -> FetchResponse.PartitionData:
        patience = self._cluster.patience()
        while True:
            try:
                return await self._respond(offset)
            except OttlaError as error:
                try:
                    await patience.wait(error)
                except OttlaError:
                    raise OttlaError(f"{self._tp}: {error}; gaps could not be checked") from None
                await self._cluster.client.refresh([self._topic.name])

    async def _respond(self, offset: int) -> FetchResponse.PartitionData:
        """Return what the leader has from an offset on; a response without records is none."""
        client = self._cluster.client
        answered = await fetch(
            client,
            await client.leader(*self._tp),
            {self._tp: offset},
            partition_bytes=MAX_BYTES,
            max_wait_ms=500,
            topic_ids={self._topic.name: self._topic.id_bytes},
            isolation=self._isolation,
        )
        code = ErrorCode.OFFSET_NOT_AVAILABLE
        for _, found in answered:
            if found.records and not found.error_code:
                return found
            code = ErrorCode(found.error_code or code)
        raise OttlaError(f"{error_name(code)} at offset {offset}", code)


def _look(response: FetchResponse.PartitionData, offset: int) -> tuple[int, list[Record]]:
    """Return where to go on, and the records from `offset` on that readers see in a response."""
    listed = response.aborted_transactions or ()  # none where uncommitted records are read, too
    aborted = Aborted((a.producer_id, a.first_offset) for a in listed)
    assert response.records is not None
    seen: list[Record] = []
    at = offset
    for position, batch in iter_batches(response.records, allow_partial=True):
        hidden = aborted.covers(response.records, position, batch) or batch.is_control
        if batch.last_offset >= offset and not hidden:
            seen += [r for r in iter_records(response.records, position) if r.offset >= offset]
        at = max(at, batch.next_offset)
    if at == offset:
        raise OttlaError(f"no whole batch at offset {offset}; gaps could not be checked")
    return at, seen
