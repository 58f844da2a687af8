"""Simulated clients: producers and consumers that speak the real protocol and note everything.

Invariants: they use `client` and the real codec, nothing of a broker's inside; a producer keeps
one batch per partition open and tries it again with the same sequence until it knows, as Kafka's
idempotent producer does; a consumer reads every partition from its start and notes every record
once.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence

from ottla.client import fetching, producer, topics
from ottla.client.client import Client
from ottla.client.coordinators import GROUP, TRANSACTION
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import Buffer, World
from ottla.model.protocol import ACKS_ALL, READ_COMMITTED, READ_UNCOMMITTED, UNKNOWN_OFFSET
from ottla.sim.history import History, Read, Stable, Write
from ottla.wire.batch_header import BatchHeader
from ottla.wire.messages.records import FetchResponse
from ottla.wire.messages.transactions import InitProducerIdRequest
from ottla.wire.records import Aborted, Record, build_batch, crc_ok, iter_batches, iter_records

REQUEST_TIMEOUT_S = 5.0
PRODUCE_TIMEOUT_S = 3.0
"""How long a leader waits for its followers."""
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


def may_try_again(error: OttlaError) -> bool:
    """Whether a batch is sent again after this."""
    return error.retriable or error.code in PERHAPS


async def create_topic(
    client: Client, name: str, partitions: int, replication: int, configs: dict[str, str]
) -> None:
    """Create a topic, however often that has to be tried."""
    last = OttlaError()
    for _ in range(100):
        try:
            await topics.create_topic(
                client,
                name,
                partitions=partitions,
                replication_factor=replication,
                settings=dict(sorted(configs.items())),
                timeout_ms=5000,
            )
        except OttlaError as error:
            if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return
            last = error
        else:
            return
        await asyncio.sleep(0.5)
    raise last


async def create_coordinated_topics(client: Client) -> None:
    """Have the internal topics created, as the first group and transaction would."""
    for kind in (GROUP, TRANSACTION):
        while True:
            with contextlib.suppress(OttlaError):
                code, _ = await client.coordinator("first", kind)
                if code == ErrorCode.NONE:
                    break
            await asyncio.sleep(0.3)


async def produce(
    client: Client,
    tp: TopicPartition,
    batch: bytes,
    *,
    refresh: bool,
    acks: int = ACKS_ALL,
    transactional_id: str | None = None,
    timeout_s: float = PRODUCE_TIMEOUT_S,
    grace_s: float = REQUEST_TIMEOUT_S - PRODUCE_TIMEOUT_S,
) -> int:
    """Send a batch to its leader; return its first offset, -1 where it is not told."""
    leader = await client.leader(*tp, refresh=refresh)
    found = await producer.produce(
        client,
        leader,
        tp,
        batch,
        acks=acks,
        transactional_id=transactional_id,
        timeout_s=timeout_s,
        grace_s=grace_s,
        version=client.world.random.choice(PRODUCE_VERSIONS),
    )
    return found.base_offset if acks else UNKNOWN_OFFSET


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
            try:
                offset = await produce(self.client, write.tp, batch, refresh=refresh)
            except OttlaError as error:
                if error.code not in LOST_TRACK and not may_try_again(error):
                    self.history.complaints.append(f"{self.name} {write.tp} got {error.code.name}")
                if error.code in LOST_TRACK or not may_try_again(error):
                    break
            else:
                if offset < 0:
                    break
                write.acknowledged(offset, asyncio.get_running_loop().time())
                return True
            refresh = True
            await asyncio.sleep(0.1 + 0.2 * self.world.random.random())
        write.abandoned = True
        return False


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
            try:
                offset = await produce(self.client, tp, batch, acks=1, refresh=refresh)
            except OttlaError:
                refresh = write.abandoned = True
                await asyncio.sleep(0.2)
            else:
                refresh = False
                write.acknowledged(offset, asyncio.get_running_loop().time())


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
        data = await fetch(self.client, tp, self.offsets[tp], leader, self.isolation_level)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(tp, data, leader)
        elif not data.error_code:
            self._take(tp, data)
        return bool(data.error_code)

    def _out_of_range(
        self, tp: TopicPartition, data: FetchResponse.PartitionData, leader: int
    ) -> None:
        self.history.complaints.append(
            f"{self.name} {tp} offset {self.offsets[tp]} is out of range for leader {leader} "
            f"(end {data.high_watermark}) at {asyncio.get_running_loop().time():.3f} s"
        )

    def _take(self, tp: TopicPartition, data: FetchResponse.PartitionData) -> None:
        now = asyncio.get_running_loop().time()
        self._saw(tp, data, now)
        for position, header, visible in visible_records(data):
            self._check(tp, data.records or b"", position, header)
            for record in visible:
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
        data = await fetch(self.client, tp, before, leader, max_wait_ms=1)
        if not data.error_code:
            records = data.records or b""
            for position, header in iter_batches(records, allow_partial=True):
                self._check(tp, records, position, header)
                self.offsets[tp] = header.next_offset
        if self.offsets[tp] == before:
            self.offsets[tp] = 0
            await asyncio.sleep(AUDIT_S)
        return bool(data.error_code)


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
    client: Client,
    tp: TopicPartition,
    offset: int,
    leader: int,
    isolation: int = READ_UNCOMMITTED,
    *,
    max_wait_ms: int = 2000,
    max_bytes: int = FETCH_BYTES,
) -> FetchResponse.PartitionData:
    """Fetch one partition from its leader."""
    found = await fetching.fetch(
        client,
        leader,
        {tp: offset},
        partition_bytes=max_bytes,
        max_wait_ms=max_wait_ms,
        leader_epochs={tp: client.leader_epoch(*tp)},
        isolation=isolation,
        version=client.world.random.choice(FETCH_VERSIONS),
    )
    if not found:
        raise OttlaError(f"no response about {tp}")
    return found[0][1]


def visible_records(
    data: FetchResponse.PartitionData,
) -> Iterator[tuple[int, BatchHeader, Iterable[Record]]]:
    """Yield a response's batches: place, header, and the records that are for the application."""
    records = data.records or b""
    aborted = Aborted((a.producer_id, a.first_offset) for a in data.aborted_transactions or ())
    for position, header in iter_batches(records, allow_partial=True):
        hidden = aborted.covers(records, position, header) or header.is_control
        yield position, header, () if hidden else iter_records(records, position)
