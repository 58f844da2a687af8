"""Produce: lines in, acknowledged records out, to any Kafka.

Who may call: the command line. Invariants: with acks=all a record is written once, also when a
leader dies in the middle (a producer id and sequence numbers; the same batch is sent again under
the same numbers); one batch per partition is in flight, so order holds; memory is bounded by one
chunk of input. Kafka: `ConsoleProducer` and, in little, to its `Sender`.
"""

import asyncio
import os
import select
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.admin.error_texts import explained
from ottla.model.errors import RETRIABLE, ConnectionLostError, ErrorCode, OttlaError
from ottla.model.partitioning import partition_of
from ottla.model.ports import World
from ottla.model.protocol import ACKS_ALL
from ottla.net.client import Client
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.records import Record, build_batch

CHUNK_BYTES = 256 * 1024
BATCH_BYTES = 512 * 1024
RECORD_OVERHEAD_BYTES = 32
MAX_LINE_BYTES = 1024 * 1024
RETRY_WAIT_S = 0.1
REQUEST_TIMEOUT_S = 30.0
INPUT_WAIT_S = 0.2
MAX_SEQUENCE = 0x7FFFFFFF


class Writer:
    """Writes records to one topic. Open it, then send chunks one after another."""

    def __init__(
        self, client: Client, world: World, topic: str, *, acks: int, timeout_s: float
    ) -> None:
        self.written = 0
        self._client = client
        self._world = world
        self._topic = topic
        self._acks = acks
        self._timeout_s = timeout_s
        self._partitions = 0
        self._turn = 0
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}

    async def open(self, partitions: int) -> None:
        """Learn what sending needs; idempotence is for those who wait for all replicas."""
        self._partitions = partitions
        self._turn = self._world.random.randrange(partitions)  # as Kafka's: not always the first
        if self._acks != ACKS_ALL:
            return
        deadline = self._world.clock.monotonic() + self._timeout_s
        while True:
            response = await self._client.call(InitProducerIdRequest(transactional_id=None))
            if not response.error_code:
                self._producer = (response.producer_id, response.producer_epoch)
                return
            if response.error_code not in RETRIABLE or self._world.clock.monotonic() > deadline:
                raise OttlaError(f"no producer id: {explained(response.error_code)}")
            await asyncio.sleep(RETRY_WAIT_S)

    async def send(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Send (key, value) pairs; return when all are acknowledged."""
        now = self._world.clock.wall_ms()
        lanes: dict[int, list[Record]] = {}
        self._turn += 1
        for key, value in records:
            partition = (
                partition_of(key, self._partitions)
                if key is not None
                else self._turn % self._partitions
            )
            lanes.setdefault(partition, []).append(Record(timestamp=now, key=key, value=value))
        await asyncio.gather(*(self._send_lane(p, lane) for p, lane in sorted(lanes.items())))

    async def _send_lane(self, partition: int, records: list[Record]) -> None:
        for batch in _split(records):
            await self._deliver(partition, batch)
            self.written += len(batch)

    async def _deliver(self, partition: int, records: list[Record]) -> None:
        sequence = self._sequences.get(partition, 0) if self._producer[0] >= 0 else -1
        batch = build_batch(
            records,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
        )
        if sequence >= 0:
            self._sequences[partition] = (sequence + len(records)) & MAX_SEQUENCE
        deadline = self._world.clock.monotonic() + self._timeout_s
        refresh = False
        while True:
            reason = await self._attempt(partition, batch, refresh=refresh)
            if reason is None:
                return
            if self._world.clock.monotonic() > deadline:
                raise OttlaError(
                    f"{len(records)} records for {self._topic}-{partition} were not acknowledged "
                    f"within {self._timeout_s:g} s: {reason}"
                )
            refresh = True
            await asyncio.sleep(RETRY_WAIT_S)

    async def _attempt(self, partition: int, batch: bytes, *, refresh: bool) -> str | None:
        """Send a batch once; return None if it stands, a reason if it may be tried again."""
        request = _request(self._topic, partition, batch, self._acks)
        try:
            leader = await self._client.leader(self._topic, partition, refresh=refresh)
            if self._acks == 0:
                peer, broker = await self._client.peer(leader)
                peer.send_unanswered(request, broker.version(request))
                return None
            response = await self._client.call(request, leader, timeout_s=REQUEST_TIMEOUT_S + 5)
        except ConnectionLostError as error:
            return str(error)
        except OttlaError as error:
            if error.code in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                return str(error)
            raise
        answer = response.responses[0].partition_responses[0]
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return None
        reason = explained(code) + (f": {answer.error_message}" if answer.error_message else "")
        if code in RETRIABLE:
            return reason
        raise OttlaError(f"{self._topic}-{partition} refused records: {reason}")


def _split(records: list[Record]) -> list[list[Record]]:
    """Cut a lane into batches of bounded size."""
    batches: list[list[Record]] = [[]]
    room = BATCH_BYTES
    for record in records:
        size = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES
        if size > room and batches[-1]:
            batches.append([])
            room = BATCH_BYTES
        batches[-1].append(record)
        room -= size
    return batches


def _request(topic: str, partition: int, batch: bytes, acks: int) -> Any:
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=partition, records=batch)
                ],
            )
        ],
    )


class Lines:
    """Lines of bytes cut into (key, value) pairs; bad ones named by their number."""

    def __init__(self, key_separator: bytes | None) -> None:
        self._separator = key_separator
        self._rest = b""
        self._number = 0

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield the pairs of all whole lines; an empty chunk ends the input."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if not chunk and self._rest:
            lines, self._rest = [self._rest], b""
        for line in lines:
            yield self._parse(line)
        if len(self._rest) > MAX_LINE_BYTES:
            self._number += 1
            raise self._too_long()

    def _parse(self, line: bytes) -> tuple[bytes | None, bytes]:
        self._number += 1
        line = line.removesuffix(b"\r")
        if len(line) > MAX_LINE_BYTES:
            raise self._too_long()
        if self._separator is None:
            return None, line
        key, found, value = line.partition(self._separator)
        if not found:
            raise OttlaError(
                f"line {self._number} has no key separator {self._separator.decode()!r}; the "
                "lines before it were produced"
            )
        return key, value

    def _too_long(self) -> OttlaError:
        return OttlaError(
            f"line {self._number} is longer than {MAX_LINE_BYTES} bytes; the lines before it were "
            "produced"
        )


async def produce_lines(world: World, writer: Writer, lines: Lines) -> None:
    """Send standard input line by line until it ends."""
    while True:
        chunk = await world.workers.run(_read_some)
        if chunk is None:
            continue
        records: list[tuple[bytes | None, bytes]] = []
        try:
            records.extend(lines.feed(chunk))
        finally:
            if records:
                await writer.send(records)
        if not chunk:
            return


def _read_some() -> bytes | None:
    """Return what is there to read, b"" at the end, None after a while of nothing."""
    ready, _, _ = select.select([sys.stdin], [], [], INPUT_WAIT_S)
    return os.read(sys.stdin.fileno(), CHUNK_BYTES) if ready else None
