"""Simulated clients: producers and consumers that speak the real protocol and note everything.

Who may call: `cluster`, as the main of a client node. Invariants: they use `net.client` and the
real codec, nothing of a broker's inside; a producer keeps one batch per partition open and tries
it again with the same sequence until it knows, as Kafka's idempotent producer does; a consumer
reads every partition from its start and notes every record once.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from ottla.model.errors import RETRIABLE, ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.net.client import Client
from ottla.sim.history import History, Read, Write
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.records import Record, build_batch, iter_batches, iter_records

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
    last = "no answer"
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
    ) -> None:
        self.world = world
        self.client = Client(world, bootstrap, name, timeout_s=REQUEST_TIMEOUT_S)
        self.name = name
        self.tps = tps
        self.history = history
        self.pause_s = pause_s
        self.stopping = False
        self._count = 0

    async def run(self) -> None:
        """Produce until `stopping`; every batch that was begun is seen through."""
        async with asyncio.TaskGroup() as group:
            for tp in self.tps:
                group.create_task(self._partition(tp))
        await self.client.close()

    async def _partition(self, tp: TopicPartition) -> None:
        rng = self.world.random
        while not self.stopping:
            producer_id, epoch = await self._identity()
            sequence = 0
            while not self.stopping:
                await asyncio.sleep(rng.expovariate(1.0 / self.pause_s))
                write = self._next_write(tp, acks=-1)
                batch = build_batch(
                    [Record(-1, self.world.clock.wall_ms(), None, v) for v in write.values],
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    codec=rng.choice((0, 0, 1, 2, 3, 4)),
                )
                if not await self._see_through(write, batch):
                    break
                sequence += len(write.values)

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
            answer = await self._attempt(write, batch, refresh=refresh)
            loop = asyncio.get_running_loop()
            if answer is not None:
                code = ErrorCode(answer.error_code)
                if code == ErrorCode.NONE and answer.base_offset >= 0:
                    write.offset = answer.base_offset
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
        tp = write.tp
        request = ProduceRequest(
            acks=write.acks,
            timeout_ms=3000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=tp.topic,
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=tp.partition, records=batch)
                    ],
                )
            ],
        )
        try:
            leader = await self.client.leader(tp.topic, tp.partition, refresh=refresh)
            response = await self.client.call(
                request, leader, version=self.world.random.choice(PRODUCE_VERSIONS)
            )
        except OttlaError:
            return None
        return response.responses[0].partition_responses[0]


class HastyProducer(Producer):
    """Sends with acks=1, without a producer id, and never again: what is lost is lost.

    It makes leaders run ahead of their followers, so that these have something to truncate.
    """

    async def _partition(self, tp: TopicPartition) -> None:
        refresh = False
        while not self.stopping:
            await asyncio.sleep(self.world.random.expovariate(1.0 / self.pause_s))
            write = self._next_write(tp, acks=1)
            records = [Record(-1, self.world.clock.wall_ms(), None, v) for v in write.values]
            answer = await self._attempt(write, build_batch(records), refresh=refresh)
            refresh = answer is None or answer.error_code != ErrorCode.NONE
            if refresh:
                write.abandoned = True
                await asyncio.sleep(0.2)
            else:
                write.offset = answer.base_offset
                write.completed_s = asyncio.get_running_loop().time()


class Consumer:
    """Reads every partition from its start, one task each."""

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
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[
                FetchRequest.FetchTopic(
                    topic=tp.topic,
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=tp.partition,
                            current_leader_epoch=self.client.leader_epoch(*tp),
                            fetch_offset=self.offsets[tp],
                            partition_max_bytes=FETCH_BYTES,
                        )
                    ],
                )
            ],
        )
        response = await self.client.call(
            request, leader, version=self.world.random.choice(FETCH_VERSIONS)
        )
        if response.error_code or not response.responses:
            return True
        data = response.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.history.complaints.append(
                f"{self.name} {tp} offset {self.offsets[tp]} is out of range for leader {leader} "
                f"(end {data.high_watermark}) at {asyncio.get_running_loop().time():.3f} s"
            )
            return True
        if data.error_code:
            return True
        self._take(tp, data.records)
        return False

    def _take(self, tp: TopicPartition, records: memoryview | None) -> None:
        now = asyncio.get_running_loop().time()
        for position, header in iter_batches(records or b"", allow_partial=True):
            assert records is not None
            if not header.is_control:
                for record in iter_records(records, position):
                    if record.offset >= self.offsets[tp]:
                        value = record.value or b""
                        self.history.reads.append(Read(self.name, tp, record.offset, value, now))
            self.offsets[tp] = max(self.offsets[tp], header.next_offset)
