"""Simulated clients: producers and consumers that speak the real protocol and note everything.

Invariants: they use `client` and the real codec, nothing of a broker's inside; a producer keeps
one batch per partition open and tries it again with the same sequence until it knows, as Kafka's
idempotent producer does; a consumer reads every partition from its start and notes every record
once.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.client.client import Client
from ottla.client.coordinators import GROUP, TRANSACTION
from ottla.model.errors import RETRIABLE, ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import Buffer, World
from ottla.model.protocol import READ_COMMITTED, READ_UNCOMMITTED
from ottla.sim.history import History, Read, Stable, Write
from ottla.wire.batch_header import BatchHeader
from ottla.wire.messages.records import FetchRequest, FetchResponse, ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.messages.transactions import InitProducerIdRequest
from ottla.wire.records import (
    ABORT,
    Record,
    build_batch,
    crc_ok,
    iter_batches,
    iter_records,
    parse_control_record,
)

REQUEST_TIMEOUT_S = 5.0
PRODUCE_VERSIONS = (7, 8, 9, 10, 11)
FETCH_VERSIONS = (9, 10, 11, 12)
FETCH_BYTES = 65_536

# The sequence was forgotten or moved on: what became of the batch cannot be known any more.
LOST_TRACK = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    }
)
# After these an append happened, and may or may not survive.
PERHAPS = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT})


async def create_topic(
    client: Client, name: str, partitions: int, replication: int, configs: dict[str, str]
) -> None:
    """Create a topic, however often that has to be tried."""
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=k, value=v)
                    for k, v in sorted(configs.items())
                ],
            )
        ],
        timeout_ms=5000,
    )
    last = "no response"
    for _ in range(100):
        try:
            response = await client.call(request, "controller", timeout_s=REQUEST_TIMEOUT_S)
        except OttlaError as error:
            last = str(error)
        else:
            code = response.topics[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            last = f"{ErrorCode(code).name} {response.topics[0].error_message}"
        await asyncio.sleep(0.5)
    raise OttlaError(f"topic {name} could not be created: {last}")


async def create_coordinated_topics(client: Client) -> None:
    """Have the internal topics created, as the first group and transaction would."""
    for kind in (GROUP, TRANSACTION):
        while True:
            with contextlib.suppress(OttlaError):
                code, _ = await client.coordinator("first", kind)
                if code == ErrorCode.NONE:
                    break
            await asyncio.sleep(0.3)


def produce_request(
    tp: TopicPartition,
    batch: bytes,
    *,
    acks: int = -1,
    timeout_ms: int = 3000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Return the request that writes one batch."""
    r = ProduceRequest
    data = r.PartitionProduceData(index=tp.partition, records=batch)
    return r(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[r.TopicProduceData(name=tp.topic, partition_data=[data])],
    )


async def produce(
    world: World, client: Client, tp: TopicPartition, request: ProduceRequest, *, refresh: bool
) -> Any:
    """Send a batch to its leader; return what became of it, None where no response came."""
    try:
        leader = await client.leader(tp.topic, tp.partition, refresh=refresh)
        version = world.random.choice(PRODUCE_VERSIONS)
        response = await client.call(request, leader, version=version)
    except OttlaError:
        return None
    return response.responses[0].partition_responses[0]


class Producer:
    """One idempotent producer with a task per partition."""

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[tuple[str, int]],
        name: str,
        tps: Sequence[TopicPartition],
        history: History,
        pause_s: float,
        *,
        keyed: bool = False,
    ) -> None:
        """`keyed`: each record has a key that no other has, so compaction removes none."""
        self.world = world
        self.client = Client(world, bootstrap, name, timeout_s=REQUEST_TIMEOUT_S)
        self.name = name
        self.tps = tps
        self.history = history
        self.pause_s = pause_s
        self.keyed = keyed
        self.stopping = False
        self.ended = False
        self._count = 0

    async def run(self) -> None:
        """Produce until `stopping`; every batch that was begun is seen through."""
        async with asyncio.TaskGroup() as group:
            for tp in self.tps:
                group.create_task(self._partition(tp))
        await self.client.close()
        self.ended = True

    async def _partition(self, tp: TopicPartition) -> None:
        rng = self.world.random
        while not self.stopping:
            producer_id, epoch = await self._identity()
            sequence = 0
            while not self.stopping:
                await asyncio.sleep(rng.expovariate(1.0 / self.pause_s))
                write = self._next_write(tp, acks=-1)
                batch = build_batch(
                    self._records(write),
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    codec=rng.choice((0, 0, 1, 2, 3, 4)),
                )
                if not await self._see_through(write, batch):
                    break
                sequence += len(write.values)

    def _records(self, write: Write) -> list[Record]:
        now_ms = self.world.clock.wall_ms()
        return [Record(-1, now_ms, v if self.keyed else None, v) for v in write.values]

    def _next_write(self, tp: TopicPartition, acks: int) -> Write:
        values = []
        for _ in range(self.world.random.choice((1, 1, 2, 5, 20))):
            self._count += 1
            values.append(b"%s-%d" % (self.name.encode(), self._count))
        now = asyncio.get_running_loop().time()
        return self.history.invoke(self.name, tp, tuple(values), acks, now)

    async def _identity(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while True:
            try:
                response = await self.client.call(request)
            except OttlaError:
                response = None
            if response is not None and response.error_code == ErrorCode.NONE:
                return response.producer_id, response.producer_epoch
            await asyncio.sleep(0.3)

    async def _see_through(self, write: Write, batch: bytes) -> bool:
        """Send until the outcome is known; False if this producer id can be used no more."""
        refresh = False
        while True:
            response = await self._attempt(write, batch, refresh=refresh)
            loop = asyncio.get_running_loop()
            if response is not None:
                code = ErrorCode(response.error_code)
                if code == ErrorCode.NONE and response.base_offset >= 0:
                    write.offset = response.base_offset
                    write.completed_s = loop.time()
                    return True
                if code in LOST_TRACK or code == ErrorCode.NONE:
                    write.abandoned = True
                    return False
                if code not in RETRIABLE and code not in PERHAPS:
                    self.history.complaints.append(f"{self.name} {write.tp} got {code.name}")
                    write.abandoned = True
                    return False
            refresh = True
            await asyncio.sleep(0.1 + 0.2 * self.world.random.random())

    async def _attempt(self, write: Write, batch: bytes, *, refresh: bool) -> Any:
        request = produce_request(write.tp, batch, acks=write.acks)
        return await produce(self.world, self.client, write.tp, request, refresh=refresh)


class NoRetryProducer(Producer):
    """Sends with acks=1, without a producer id, and never again: what is lost is lost.

    It makes leaders run ahead of their followers, so that these have something to truncate.
    """

    async def _partition(self, tp: TopicPartition) -> None:
        refresh = False
        while not self.stopping:
            await asyncio.sleep(self.world.random.expovariate(1.0 / self.pause_s))
            write = self._next_write(tp, acks=1)
            batch = build_batch(self._records(write))
            response = await self._attempt(write, batch, refresh=refresh)
            refresh = response is None or response.error_code != ErrorCode.NONE
            if refresh:
                write.abandoned = True
                await asyncio.sleep(0.2)
            else:
                write.offset = response.base_offset
                write.completed_s = asyncio.get_running_loop().time()


AUDIT_S = 1.0
"""How long an auditor waits after it has come to an end."""


class Consumer:
    """Reads every partition from its start, one task each."""

    isolation_level = READ_UNCOMMITTED

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[tuple[str, int]],
        name: str,
        tps: Sequence[TopicPartition],
        history: History,
    ) -> None:
        self.world = world
        self.client = Client(world, bootstrap, name, timeout_s=REQUEST_TIMEOUT_S)
        self.name = name
        self.tps = tps
        self.history = history
        self.stopping = False
        self.offsets = dict.fromkeys(tps, 0)

    async def run(self) -> None:
        """Read until `stopping`."""
        async with asyncio.TaskGroup() as group:
            for tp in self.tps:
                group.create_task(self._partition(tp))
        await self.client.close()

    async def _partition(self, tp: TopicPartition) -> None:
        refresh = False
        while not self.stopping:
            try:
                leader = await self.client.leader(tp.topic, tp.partition, refresh=refresh)
                refresh = await self._fetch(tp, leader)
            except OttlaError:
                refresh = True
            if refresh:
                await asyncio.sleep(0.2 + 0.2 * self.world.random.random())

    async def _fetch(self, tp: TopicPartition, leader: int) -> bool:
        """Fetch once; return whether the leader has to be looked up again."""
        offset, isolation = self.offsets[tp], self.isolation_level
        data = await fetch(self.world, self.client, tp, offset, leader, isolation_level=isolation)
        if data is None:
            return True
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.history.complaints.append(
                f"{self.name} {tp} offset {self.offsets[tp]} is out of range for leader {leader} "
                f"(end {data.high_watermark}) at {asyncio.get_running_loop().time():.3f} s"
            )
            return True
        if data.error_code:
            return True
        self._take(tp, data)
        return False

    def _take(self, tp: TopicPartition, data: FetchResponse.PartitionData) -> None:
        now = asyncio.get_running_loop().time()
        self._saw(tp, data, now)
        records = data.records or b""
        for position, header, visible in batches_of(data, self.isolation_level):
            self._check(tp, records, position, header)
            if visible:
                for record in iter_records(records, position):
                    if record.offset >= self.offsets[tp]:
                        value = record.value or b""
                        self.history.reads.append(Read(self.name, tp, record.offset, value, now))
            self.offsets[tp] = max(self.offsets[tp], header.next_offset)

    def _check(
        self, tp: TopicPartition, records: Buffer, position: int, batch: BatchHeader
    ) -> None:
        """Note a batch that is not what its checksum says (F20)."""
        if not crc_ok(records, position, batch):
            self.history.complaints.append(f"{self.name} got {tp}@{batch.base_offset} damaged")

    def _saw(self, tp: TopicPartition, data: FetchResponse.PartitionData, now: float) -> None:
        """Note how far the leader says its log is."""


class Auditor(Consumer):
    """Reads every partition from its start, again and again: damage is found by those who read."""

    ended = False

    async def run(self) -> None:
        await super().run()
        self.ended = True

    async def _fetch(self, tp: TopicPartition, leader: int) -> bool:
        before = self.offsets[tp]
        data = await fetch(self.world, self.client, tp, before, leader, max_wait_ms=1)
        if data is not None and not data.error_code:
            records = data.records or b""
            for position, header in iter_batches(records, allow_partial=True):
                self._check(tp, records, position, header)
                self.offsets[tp] = header.next_offset
        if data is None or self.offsets[tp] == before:
            self.offsets[tp] = 0
            await asyncio.sleep(AUDIT_S)
        return data is None or bool(data.error_code)


class CommittedConsumer(Consumer):
    """Reads what is committed only, and notes each last stable offset it received."""

    isolation_level = READ_COMMITTED

    async def run(self) -> None:
        self.history.committed_readers.add(self.name)
        await super().run()

    def _saw(self, tp: TopicPartition, data: FetchResponse.PartitionData, now: float) -> None:
        seen = self.history.stables.setdefault(tp, [])
        stable = Stable(data.last_stable_offset, data.high_watermark, now)
        if not seen or seen[-1][:2] != stable[:2]:
            seen.append(stable)


async def fetch(
    world: World,
    client: Client,
    tp: TopicPartition,
    offset: int,
    leader: int,
    *,
    isolation_level: int = READ_UNCOMMITTED,
    max_wait_ms: int = 2000,
    max_bytes: int = FETCH_BYTES,
) -> FetchResponse.PartitionData | None:
    """Fetch one partition from its leader; None for an answer that does not tell of it."""
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[
            FetchRequest.FetchTopic(
                topic=tp.topic,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=tp.partition,
                        current_leader_epoch=client.leader_epoch(*tp),
                        fetch_offset=offset,
                        partition_max_bytes=max_bytes,
                    )
                ],
            )
        ],
    )
    response = await client.call(request, leader, version=world.random.choice(FETCH_VERSIONS))
    if response.error_code or not response.responses:
        return None
    found: FetchResponse.PartitionData = response.responses[0].partitions[0]
    return found


def batches_of(
    data: FetchResponse.PartitionData, isolation_level: int
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yield a response's batches: place, header, and whether its records are for the application.

    As a consumer does it: an aborted transaction of the response's list hides its producer's
    batches from its first offset on, until that producer's next abort marker.
    """
    records = data.records or b""
    listed = sorted(data.aborted_transactions or (), key=lambda a: a.first_offset)
    hidden: set[int] = set()
    for position, header in iter_batches(records, allow_partial=True):
        while listed and listed[0].first_offset <= header.last_offset:
            hidden.add(listed.pop(0).producer_id)
        if header.is_control:
            marker = parse_control_record(next(iter(iter_records(records, position))))
            if marker.type == ABORT:
                hidden.discard(header.producer_id)
        undecided = header.is_transactional and header.producer_id in hidden
        hide = isolation_level == READ_COMMITTED and undecided
        yield position, header, not header.is_control and not hide
