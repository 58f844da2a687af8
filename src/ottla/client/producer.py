"""Produce: records in, acknowledged by any Kafka.

Invariants: with acks=all a record is written once, also when a leader dies in the middle (a
producer id and sequence numbers; the same batch is sent again under the same numbers); one batch
per partition is in flight, so order holds; memory is bounded by what one call is given. Kafka:
`ConsoleProducer` and `Sender`.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from ottla.client import configs
from ottla.client.client import Client, partitions_of
from ottla.client.error_texts import explained, failure
from ottla.model.errors import RETRIABLE, ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.partitioning import partition_of
from ottla.model.printable import plural
from ottla.model.protocol import (
    ACKS_ALL,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
)
from ottla.wire.compression import NONE
from ottla.wire.messages.records import ProduceRequest, ProduceResponse
from ottla.wire.messages.transactions import InitProducerIdRequest
from ottla.wire.records import NewRecord, Record, build_batch

BATCH_BYTES = 512 * 1024
RECORD_OVERHEAD_BYTES = 32
REQUEST_TIMEOUT_S, GRACE_S = 30.0, 5.0
LONGEST_WAIT_S = 0.05
RECORD_ERRORS_TOLD = 3
MIN_IN_SYNC = "min.insync.replicas"
ASK_IN_SYNC_S = 1.0
TOO_FEW_REPLICAS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
STICKY_BYTES = 16_384
"""Records without a key stay in one partition for this many bytes (batch.size of Kafka)."""


class Partitioner:
    """Keyed records by Kafka's hash; others at random, a run of them (sticky) or each for itself.

    `available`: the partitions with a leader; records without a key go only there.
    """

    def __init__(
        self, partitions: int, available: Sequence[int], chance: random.Random, *, sticky: bool
    ) -> None:
        self._partitions = partitions
        self._available = list(available) or list(range(partitions))
        self._chance = chance
        self._sticky = sticky
        self._current = -1
        self._written = STICKY_BYTES

    def partition(self, key: bytes | None, size: int) -> int:
        """Return the partition of a record of `size` bytes."""
        if key is not None:
            return partition_of(key, self._partitions)
        if self._written >= STICKY_BYTES or not self._sticky:
            self._current = self._chance.choice(self._available)
            self._written = 0
        self._written += size
        return self._current


class Numbers(TypedDict):
    """What makes a batch of an idempotent producer known to brokers; -1 for those of others."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class Sequences:
    """A producer id, if there is one, with the next sequence number of each partition."""

    def __init__(
        self, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_PRODUCER_EPOCH
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self._next: dict[TopicPartition, int] = {}

    def take(self, tp: TopicPartition, count: int) -> Numbers:
        """Return the numbers of the next `count` records of a partition."""
        sequence = NO_SEQUENCE
        if self.producer_id != NO_PRODUCER_ID:
            sequence = self._next.get(tp, 0)
            self._next[tp] = (sequence + count) & MAX_SEQUENCE
        return {
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "base_sequence": sequence,
        }

    def give_back(self, tp: TopicPartition, numbers: Numbers) -> None:
        """Use these numbers again: nothing that carried them was appended."""
        self._next[tp] = numbers["base_sequence"]


async def produce(
    client: Client,
    leader: int,
    tp: TopicPartition,
    batch: bytes,
    *,
    acks: int = ACKS_ALL,
    transactional_id: str | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
    grace_s: float = GRACE_S,
    version: int | None = None,
) -> ProduceResponse.PartitionProduceResponse:
    """Send one batch to one partition; return the response to it, or an empty one for acks=0.

    `timeout_s`: how long the leader may wait for its followers; its response may take `grace_s`
    longer. `version`: the newest by default.
    A batch that the leader has already (DUPLICATE_SEQUENCE_NUMBER) stands; its first offset is -1.
    OttlaError, with the code, for one that is refused.
    """
    r = ProduceRequest
    data = r.PartitionProduceData(index=tp.partition, records=batch)
    request = r(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=int(timeout_s * 1000),
        topic_data=[r.TopicProduceData(name=tp.topic, partition_data=[data])],
    )
    if acks == 0:
        peer, broker = await client.peer(leader)
        peer.send_without_response(request, version or broker.version(request))
        return ProduceResponse.PartitionProduceResponse()
    response = await client.call(request, leader, version=version, timeout_s=timeout_s + grace_s)
    found: ProduceResponse.PartitionProduceResponse = response.responses[0].partition_responses[0]
    if found.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return found
    reason = explained(found.error_code) + (
        f": {found.error_message}" if found.error_message else ""
    )
    details = "; ".join(
        f"record {e.batch_index}: {e.batch_index_error_message}"
        for e in found.record_errors[:RECORD_ERRORS_TOLD]
        if e.batch_index_error_message
    )
    code = ErrorCode(found.error_code)
    refused = "" if code in RETRIABLE else " refused records"
    raise OttlaError(f"{tp}{refused}: {reason}" + (f" ({details})" if details else ""), code)


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
        self._world = client.world
        self._topic = topic
        self._acks = acks
        self._timeout_s = timeout_s
        self._codec = codec
        self._sticky = sticky
        self._dry_run = False
        self._partitions = 0
        self._partitioner = Partitioner(1, (), client.world.random, sticky=sticky)
        self._sequences = Sequences()

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
        patience = self._client.patience(self._timeout_s)
        while True:
            response = await self._client.call(InitProducerIdRequest(transactional_id=None))
            if not response.error_code:
                self._sequences = Sequences(response.producer_id, response.producer_epoch)
                return
            await patience.wait(failure("no producer id", response.error_code))

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
        tp = TopicPartition(self._topic, partition)
        numbers = self._sequences.take(tp, len(records))
        batch = build_batch(records, codec=self._codec, **numbers)
        patience = self._client.patience(self._timeout_s, LONGEST_WAIT_S)
        waits = _Unacknowledged(len(records), f"every in-sync replica of {tp} to write the records")
        self._unacknowledged[partition] = waits
        refresh = False
        while True:
            try:
                await self._attempt(tp, batch, waits, refresh=refresh)
            except OttlaError as error:
                problem = error
            else:
                self.written += len(records)
                del self._unacknowledged[partition]
                return
            if problem.code == ErrorCode.MESSAGE_TOO_LARGE and len(records) > 1:
                # The topic takes smaller batches than ours. Nothing of this one was appended.
                del self._unacknowledged[partition]
                self._sequences.give_back(tp, numbers)
                middle = len(records) // 2
                await self._deliver(partition, records[:middle])
                await self._deliver(partition, records[middle:])
                return
            if not problem.retriable:
                waits.unknown = False  # it was refused
                raise problem
            reason = str(problem).removeprefix(f"{tp}: ")
            waits.reason = reason if reason.startswith(str(tp)) else f"{tp}: {reason}"
            if problem.code in TOO_FEW_REPLICAS:
                await self._name_in_sync(tp, waits)
            try:
                await patience.wait(problem)
            except OttlaError:
                raise OttlaError(
                    f"{plural(len(records), 'record')} for {tp} not acknowledged within "
                    f"{self._timeout_s:g} s: {reason}"
                    + (f"; {waits.in_sync}" if waits.in_sync else "")
                ) from None
            refresh = True

    async def _attempt(
        self, tp: TopicPartition, batch: bytes, waits: _Unacknowledged, *, refresh: bool
    ) -> None:
        """Send a batch once; return if it stands."""
        leader = await self._client.leader(*tp, refresh=refresh)
        await self._client.peer(leader)  # what fails up to here was not sent
        before, waits.unknown = waits.unknown, self._acks != 0
        try:
            await produce(self._client, leader, tp, batch, acks=self._acks)
        except OttlaError as error:
            if error.code == ErrorCode.NOT_ENOUGH_REPLICAS:  # refused before it was written
                waits.unknown = before
            raise

    async def _name_in_sync(self, tp: TopicPartition, waits: _Unacknowledged) -> None:
        """Have `waits` name the replicas that are not in sync, as far as the cluster tells."""
        now_s = self._world.clock.monotonic()
        if now_s - waits.asked_s >= ASK_IN_SYNC_S:
            waits.asked_s = now_s
            with contextlib.suppress(OttlaError):
                found = dict(partitions_of(await self._client.metadata([self._topic])))
                known = found.get(tp)
                settings = await configs.settings(
                    self._client, configs.TOPIC, self._topic, [MIN_IN_SYNC]
                )
                if known is not None and settings:
                    missing = sorted(set(known.replica_nodes) - set(known.isr_nodes))
                    waits.in_sync = (
                        f"{tp} has {len(known.isr_nodes)} of "
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
