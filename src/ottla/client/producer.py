"""Produce: records in, acknowledged by any Kafka.

Invariants: with acks=all a record is written once, also when a leader dies in the middle (a
producer id and sequence numbers; the same batch is sent again under the same numbers); one batch
per partition is in flight, so order holds; memory is bounded by what one call is given. Kafka:
`ConsoleProducer` and, in little, to its `Sender`.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ottla.client import configs
from ottla.client.client import Client, partitions_of
from ottla.client.error_texts import explained
from ottla.client.partitioner import Partitioner
from ottla.model.errors import RETRIABLE, ConnectionLostError, ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.model.printable import plural
from ottla.model.protocol import ACKS_ALL
from ottla.wire.compression import NONE
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.messages.transactions import InitProducerIdRequest
from ottla.wire.records import NewRecord, Record, build_batch

BATCH_BYTES = 512 * 1024
RECORD_OVERHEAD_BYTES = 32
RETRY_WAIT_S = 0.1
REQUEST_TIMEOUT_S = 30.0
MAX_SEQUENCE = 0x7FFFFFFF
RECORD_ERRORS_TOLD = 3
MIN_IN_SYNC = "min.insync.replicas"
ASK_IN_SYNC_S = 1.0


@dataclass(slots=True)
class _Unacknowledged:
    """A batch that is being sent to a partition."""

    records: int
    reason: str
    """What it waits for."""
    unknown: bool = False
    """Whether the broker may have written it."""
    asked_s: float = float("-inf")
    """When the in-sync replicas were asked for."""
    in_sync: str = ""


class Producer:
    """Writes records to one topic. Open it, then send chunks one after another."""

    def __init__(
        self,
        client: Client,
        world: World,
        topic: str,
        *,
        acks: int,
        timeout_s: float,
        codec: int = NONE,
        sticky: bool = True,
    ) -> None:
        """`codec` is a number of `wire.compression`; `sticky` is for records without a key."""
        self.written = 0
        """How many records were acknowledged."""
        self.given = 0
        """How many records there were to send."""
        self._unacknowledged: dict[int, _Unacknowledged] = {}
        self._client = client
        self._world = world
        self._topic = topic
        self._acks = acks
        self._timeout_s = timeout_s
        self._codec = codec
        self._sticky = sticky
        self._dry_run = False
        self._partitions = 0
        self._partitioner = Partitioner(1, (), world.random, sticky=sticky)
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}

    async def open(
        self, partitions: int, available: Sequence[int] = (), *, dry_run: bool = False
    ) -> None:
        """Learn what sending needs; idempotence is for those who wait for all replicas.

        `available`: the partitions with a leader, where records without a key go; all by default.
        With `dry_run` records are checked and counted, and not sent.
        """
        self._partitions = partitions
        self._partitioner = Partitioner(
            partitions, available, self._world.random, sticky=self._sticky
        )
        self._dry_run = dry_run
        if self._acks != ACKS_ALL or dry_run:
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

    async def send(self, records: Sequence[NewRecord]) -> None:
        """Send records; return when all are acknowledged."""
        now = self._world.clock.wall_ms()
        lanes: dict[int, list[Record]] = {}
        for new in records:
            record = Record(
                timestamp=now if new.timestamp is None else new.timestamp,
                key=new.key,
                value=new.value,
                headers=new.headers,
            )
            partition = new.partition
            if partition is None:
                partition = self._partitioner.partition(new.key, _size(record))
            elif not 0 <= partition < self._partitions:
                raise no_such_partition(self._topic, partition, self._partitions)
            lanes.setdefault(partition, []).append(record)
        if self._dry_run:
            self.written += len(records)
            return
        self.given += len(records)
        with self._client.waiting(self.waits_for):
            await asyncio.gather(*(self._send_lane(p, lane) for p, lane in sorted(lanes.items())))

    @property
    def unknown(self) -> int:
        """How many records may have been written without being acknowledged."""
        return sum(each.records for each in self._unacknowledged.values() if each.unknown)

    def waits_for(self) -> str:
        """Return what the records that are being sent wait for; empty if none are."""
        found = [each.reason for each in list(self._unacknowledged.values())]
        more = f"; and {plural(len(found) - 1, 'more partition')}" if len(found) > 1 else ""
        return found[0] + more if found else ""

    async def _send_lane(self, partition: int, records: list[Record]) -> None:
        for batch in _split(records):
            await self._deliver(partition, batch)

    async def _deliver(self, partition: int, records: list[Record]) -> None:
        sequence = self._sequences.get(partition, 0) if self._producer[0] >= 0 else -1
        batch = build_batch(
            records,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            codec=self._codec,
        )
        if sequence >= 0:
            self._sequences[partition] = (sequence + len(records)) & MAX_SEQUENCE
        deadline = self._world.clock.monotonic() + self._timeout_s
        refresh = False
        waits = _Unacknowledged(
            len(records), f"every in-sync replica of {self._topic}-{partition} to write the records"
        )
        self._unacknowledged[partition] = waits
        while True:
            try:
                reason = await self._attempt(partition, batch, waits, refresh=refresh)
            except OttlaError as error:
                waits.unknown = False  # it was refused
                if error.code != ErrorCode.MESSAGE_TOO_LARGE or len(records) == 1:
                    raise
                del self._unacknowledged[partition]
                # The topic takes smaller batches than ours. Nothing of this one was appended.
                if sequence >= 0:
                    self._sequences[partition] = sequence
                middle = len(records) // 2
                await self._deliver(partition, records[:middle])
                await self._deliver(partition, records[middle:])
                return
            if reason is None:
                self.written += len(records)
                del self._unacknowledged[partition]
                return
            if self._world.clock.monotonic() > deadline:
                raise OttlaError(
                    f"{plural(len(records), 'record')} for {self._topic}-{partition} not "
                    f"acknowledged within {self._timeout_s:g} s: {reason}"
                    + (f"; {waits.in_sync}" if waits.in_sync else "")
                )
            refresh = True
            await asyncio.sleep(RETRY_WAIT_S)

    async def _attempt(
        self, partition: int, batch: bytes, waits: _Unacknowledged, *, refresh: bool
    ) -> str | None:
        """Send a batch once; return None if it stands, a reason if it may be tried again."""
        request = _request(self._topic, partition, batch, self._acks)
        unknown = waits.unknown
        try:
            leader = await self._client.leader(self._topic, partition, refresh=refresh)
            peer, broker = await self._client.peer(leader)
            if self._acks == 0:
                peer.send_without_response(request, broker.version(request))
                return None
            waits.unknown = True
            response = await self._client.call(request, leader, timeout_s=REQUEST_TIMEOUT_S + 5)
        except ConnectionLostError as error:
            waits.reason = f"{self._topic}-{partition}: {error}"
            return str(error)
        except OttlaError as error:
            if error.code in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                waits.reason = str(error)
                return str(error)
            raise
        item = response.responses[0].partition_responses[0]
        code = item.error_code
        if code == ErrorCode.NOT_ENOUGH_REPLICAS:  # refused before it was written
            waits.unknown = unknown
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return None
        reason = explained(code) + (f": {item.error_message}" if item.error_message else "")
        if code in RETRIABLE:
            waits.reason = f"{self._topic}-{partition}: {reason}"
            if code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                await self._name_in_sync(partition, waits)
            return reason
        details = "; ".join(
            f"record {e.batch_index}: {e.batch_index_error_message}"
            for e in item.record_errors[:RECORD_ERRORS_TOLD]
            if e.batch_index_error_message
        )
        raise OttlaError(
            f"{self._topic}-{partition} refused records: {reason}"
            + (f" ({details})" if details else ""),
            ErrorCode(code),
        )

    async def _name_in_sync(self, partition: int, waits: _Unacknowledged) -> None:
        """Have `waits` name the replicas that are not in sync, as far as the cluster tells."""
        now_s = self._world.clock.monotonic()
        if now_s - waits.asked_s >= ASK_IN_SYNC_S:
            waits.asked_s = now_s
            with contextlib.suppress(OttlaError):
                found = dict(partitions_of(await self._client.metadata([self._topic])))
                known = found.get(TopicPartition(self._topic, partition))
                settings = await configs.settings(
                    self._client, configs.TOPIC, self._topic, [MIN_IN_SYNC]
                )
                if known is not None and settings:
                    missing = sorted(set(known.replica_nodes) - set(known.isr_nodes))
                    waits.in_sync = (
                        f"{self._topic}-{partition} has {len(known.isr_nodes)} of "
                        f"{settings[0].value} in-sync replicas that {MIN_IN_SYNC} asks for; not in "
                        f"sync: broker {', '.join(map(str, missing)) or 'none'}"
                    )
        waits.reason = waits.in_sync or waits.reason


def no_such_partition(topic: str, partition: int, count: int) -> OttlaError:
    """Return an error for a partition that a topic of `count` partitions does not have."""
    return OttlaError(f"partition {partition}: topic {topic} has partitions 0 to {count - 1}")


def _size(record: Record) -> int:
    """Return about how many bytes a record takes."""
    headers = sum(len(name) + len(content or b"") for name, content in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD_BYTES


def _split(records: list[Record]) -> list[list[Record]]:
    """Cut a lane into batches of bounded size."""
    batches: list[list[Record]] = [[]]
    room = BATCH_BYTES
    for record in records:
        size = _size(record)
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
