"""Offsets at which no record came: whether they are gaps of the log, or records were left out.

Who may call: the lake's parts. Invariants: asks the partition's leader with a reader of its own,
not through Spark. A gap is an offset of a control batch, of an aborted record (read_committed), or
one that compaction removed; a record that readers see there is one that is missing. Kafka: the
choice that Kafka's `CompletedFetch` makes among batches.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import ZERO_UUID
from ottla.model.ports import Buffer, World
from ottla.net.client import Client
from ottla.pipelines.landing.asking import CALL_TIMEOUT_S, ISOLATION_LEVELS, PATIENCE_S
from ottla.pipelines.landing.offsets import Span
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.records import BatchHeader, Record, iter_batches, iter_records, parse_control_record

MAX_BYTES = 8 * 1024 * 1024
RETRY_WAIT_S = 0.3
LAST_VERSION_WITH_NAMES = 12
ABORT = 0
"""A control record's type: the transaction was aborted."""
MOST_SPANS = 100_000


@dataclass(slots=True)
class _Reading:
    """What is known of transactions while one partition is read in order."""

    aborted: list[tuple[int, int]] = field(default_factory=list)  # (first offset, producer id)
    aborting: set[int] = field(default_factory=set)

    def hidden(self, batch: BatchHeader, buffer: Buffer, position: int) -> bool:
        """Tell whether readers skip a batch: a marker, or records of an aborted transaction."""
        while self.aborted and self.aborted[0][0] <= batch.last_offset:
            self.aborting.add(self.aborted.pop(0)[1])
        if batch.is_control:
            record = next(iter(iter_records(buffer, position)))
            if parse_control_record(record).type == ABORT:
                self.aborting.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self.aborting


async def records_in(
    client: Client,
    world: World,
    topic: str,
    topic_id: bytes,
    holes: Mapping[int, Sequence[Span]],
    isolation: str,
) -> list[str]:
    """Return what should have come, in words: records that readers see inside of the holes."""
    wrong: list[str] = []
    for partition, spans in holes.items():
        if not spans:
            continue
        if len(spans) > MOST_SPANS:
            raise OttlaError(
                f"{topic}-{partition} has {len(spans)} gaps in one batch, more than "
                f"{MOST_SPANS} are not looked into; lower batch_records"
            )
        reader = Reader(client, world, topic, topic_id, partition, isolation)
        seen = [r.offset for span in spans async for some in reader.read(span) for r in some]
        if seen:
            wrong.append(
                f"{topic}-{partition}: {len(seen)} records did not come, the first at {seen[0]}"
            )
    return wrong


class Reader:
    """Reads spans of one partition, as a consumer of this isolation sees them."""

    def __init__(
        self,
        client: Client,
        world: World,
        topic: str,
        topic_id: bytes,
        partition: int,
        isolation: str,
    ) -> None:
        self._client = client
        self._world = world
        self._topic = topic
        self._topic_id = topic_id
        self._partition = partition
        self._isolation = ISOLATION_LEVELS[isolation]

    async def read(self, span: Span) -> AsyncIterator[list[Record]]:
        """Yield the records in a span, some at a time."""
        at = span.start
        while at < span.end:
            answer = await self._fetch(at)
            at, records = _look(answer, at, self._isolation)
            yield [r for r in records if r.offset < span.end]

    async def _fetch(self, offset: int) -> Any:
        version = None if self._topic_id != ZERO_UUID else LAST_VERSION_WITH_NAMES
        deadline = self._world.clock.monotonic() + PATIENCE_S
        refresh, problem = False, ""
        while self._world.clock.monotonic() < deadline:
            try:
                leader = await self._client.leader(self._topic, self._partition, refresh=refresh)
                response = await self._client.call(
                    self._request(offset), leader, version=version, timeout_s=CALL_TIMEOUT_S
                )
            except OttlaError as error:
                if not error.retriable:
                    raise
                problem, code = str(error), 0
            else:
                code = response.error_code
                if not code:
                    answer = response.responses[0].partitions[0]
                    code = answer.error_code
                    if not code and answer.records:
                        return answer
                problem = f"{ErrorCode(code).name} at offset {offset}"
                retriable = OttlaError(problem, ErrorCode(code)).retriable
                if code and not retriable:
                    break
            refresh = True
            await asyncio.sleep(RETRY_WAIT_S)
        raise OttlaError(f"{self._topic}-{self._partition}: {problem}; gaps could not be checked")

    def _request(self, offset: int) -> FetchRequest:
        partition = FetchRequest.FetchPartition(
            partition=self._partition, fetch_offset=offset, partition_max_bytes=MAX_BYTES
        )
        topic = FetchRequest.FetchTopic(
            topic=self._topic, topic_id=self._topic_id, partitions=[partition]
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=self._isolation,
            topics=[topic],
        )


def _look(answer: Any, offset: int, isolation: int) -> tuple[int, list[Record]]:
    """Return where to go on, and the records from `offset` on that readers see in an answer."""
    reading = _Reading(
        sorted((a.first_offset, a.producer_id) for a in answer.aborted_transactions or ())
        if isolation
        else []
    )
    seen: list[Record] = []
    at = offset
    for position, batch in iter_batches(answer.records, allow_partial=True):
        hidden = reading.hidden(batch, answer.records, position)
        if batch.last_offset >= offset and not hidden:
            seen += [r for r in iter_records(answer.records, position) if r.offset >= offset]
        at = max(at, batch.next_offset)
    if at == offset:
        raise OttlaError(f"no whole batch at offset {offset}; gaps could not be checked")
    return at, seen
