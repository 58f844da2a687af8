"""Simulated operators: they create, delete and move topics while everything else goes on.

Invariants: they use the public ways only (the Kafka protocol, /admin/reassign_partitions);
everything they do is repeated until it is done or the run stops; what they find wrong goes into the
history's complaints (faults F24 to F27).
"""

import asyncio
import contextlib
import json
from collections.abc import Sequence

from ottla.client import elections
from ottla.client.client import Client
from ottla.client.fetching import fetch
from ottla.model.errors import RETRIABLE, ErrorCode, OttlaError, UnknownTopicError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import World
from ottla.sim.administrators import reassign
from ottla.sim.clients import REQUEST_TIMEOUT_S, create_topic, produce
from ottla.sim.history import History
from ottla.sim.masks import Operations
from ottla.wire.messages.topics import DeleteTopicsRequest
from ottla.wire.records import Record, build_batch, iter_batches, iter_records
from ottla.zookeeper.session import Session

DELETE_VERSION = 5
"""The last version that names topics; the ids of later ones would have to be asked for."""
WRITE_TRIES = 20
UNKNOWN_TRIES = 10
"""A topic that is unknown so often in a row, each 0.3 s, is not there."""


class Churn:
    """One topic that comes and goes under one name, with other records each time (F26)."""

    def __init__(
        self, world: World, bootstrap: Sequence[tuple[str, int]], topic: str, history: History
    ) -> None:
        self.world = world
        self.client = Client(world, bootstrap, "churn", timeout_s=REQUEST_TIMEOUT_S)
        self.topic = topic
        self.history = history
        self.generation = 0
        self.stopping = False
        self.ended = False
        self._ids: dict[int, set[bytes]] = {}
        """The topic ids that were seen while a generation's records were written.

        A controller that knows little yet calls a topic unknown that is still there, as Kafka's
        does: then one topic has the records of two generations, and rightly so.
        """

    async def run(self) -> None:
        """Create, write, read, delete, again."""
        while not self.stopping:
            self.generation += 1
            await create_topic(self.client, self.topic, 2, 3, {"min.insync.replicas": "2"})
            # It may be gone at once: a new controller that knew little yet called the one before
            # unknown, so it was taken for deleted, and then for the new one.
            if await self._write_some():
                for partition in range(2):
                    with contextlib.suppress(OttlaError):
                        await self._read(partition)
            await asyncio.sleep(self.world.random.uniform(0.0, 3.0))
            await self._delete()
        await self.client.close()
        self.ended = True

    async def _topic_id(self) -> bytes:
        """Ask for the topic's id, and note that this generation may lie under it."""
        response = await self.client.metadata([self.topic])
        topic_id = bytes(response.topics[0].topic_id)
        self._ids.setdefault(self.generation, set()).add(topic_id)
        return topic_id

    async def _write_some(self) -> bool:
        """Write four records, as far as that can be done; False if the topic is not there."""
        for number in range(4):
            if not await self._write(number):
                return False
        return True

    async def _write(self, number: int) -> bool:
        """Try to write one record; False if the topic is not there."""
        value = b"g%d-%d" % (self.generation, number)
        batch = build_batch([Record(-1, self.world.clock.wall_ms(), None, value)])
        tp = TopicPartition(self.topic, number % 2)
        unknown = 0
        for _ in range(WRITE_TRIES):
            code = None
            try:
                await self._topic_id()
                await produce(self.client, tp, batch, refresh=False)
                code = ErrorCode.NONE
            except UnknownTopicError:
                pass  # to this client; only its leader knows
            except OttlaError as error:
                code = error.code
            with contextlib.suppress(OttlaError):
                await self._topic_id()
                if code is ErrorCode.NONE:
                    return True
            unknown = unknown + 1 if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else 0
            if unknown == UNKNOWN_TRIES:
                return False
            await asyncio.sleep(0.3)
        return True

    async def _read(self, partition: int) -> None:
        """Read by topic id: no record of a former topic of that name is there."""
        topic_id = await self._topic_id()
        if topic_id == ZERO_UUID:
            return  # the broker asked does not know the topic
        leader = await self.client.leader(self.topic, partition)
        found = await fetch(
            self.client,
            leader,
            {TopicPartition(self.topic, partition): 0},
            partition_bytes=65536,
            topic_ids={self.topic: topic_id},
        )
        for _, data in found:
            self._judge(topic_id, partition, data.records or b"")

    def _judge(self, topic_id: bytes, partition: int, records: bytes | memoryview) -> None:
        for position, _ in iter_batches(records, allow_partial=True):
            for record in iter_records(records, position):
                value = record.value or b""
                generation = int(value.partition(b"-")[0].removeprefix(b"g"))
                if topic_id not in self._ids.get(generation, ()):
                    self.history.complaints.append(
                        f"{self.topic}-{partition}@{record.offset} holds {value!r} of a deleted "
                        f"topic; this is generation {self.generation}"
                    )

    async def _delete(self) -> None:
        request = DeleteTopicsRequest(topic_names=[self.topic], timeout_ms=4000)
        while not self.stopping:
            with contextlib.suppress(OttlaError):
                response = await self.client.call(request, "controller", version=DELETE_VERSION)
                code = ErrorCode(response.responses[0].error_code)
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return
                # Kafka has no code of its own for a ZooKeeper session that ended meanwhile.
                expected = (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
                if code not in RETRIABLE and code not in expected:
                    self.history.complaints.append(f"DeleteTopics answered {code.name}")
                    return
            await asyncio.sleep(0.3)


class Mover:
    """Moves partitions to other brokers, by znode and by API, and changes its mind (F24, F27)."""

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[tuple[str, int]],
        zookeeper: str,
        tps: Sequence[TopicPartition],
        brokers: int,
        replicas: int,
        operations: Operations,
    ) -> None:
        self.world = world
        self.client = Client(world, bootstrap, "mover", timeout_s=REQUEST_TIMEOUT_S)
        self.zookeeper = zookeeper
        self.tps = tps
        self.brokers = brokers
        self.replicas = replicas
        self.operations = operations
        self.rng = world.random
        """Chance of the operation under way."""
        self.stopping = False
        self.ended = False
        self.asked = 0
        self._session: Session | None = None

    async def run(self) -> None:
        """Ask for something every few seconds; a refusal is fine, one is under way perhaps."""
        async for rng in self.operations.due(lambda: self.stopping):
            self.rng = rng
            way = self.rng.choice((self._by_znode, self._by_api, self._elect))
            self.operations.note(way.__name__.strip("_"))
            with contextlib.suppress(OttlaError):
                await way()
                self.asked += 1
        await self.client.close()
        self.ended = True

    def _targets(self) -> list[tuple[TopicPartition, list[int]]]:
        rng = self.rng
        chosen = sorted(rng.sample(list(self.tps), rng.randint(1, len(self.tps))))
        return [(tp, rng.sample(range(self.brokers), self.replicas)) for tp in chosen]

    async def _by_znode(self) -> None:
        if self._session is None or not self._session.alive:
            self._session = await Session.connect(
                self.world, self.zookeeper, 10_000, 5_000, lambda _event: None
            )
        partitions = [
            {"topic": tp.topic, "partition": tp.partition, "replicas": replicas}
            for tp, replicas in self._targets()
        ]
        data = json.dumps({"version": 1, "partitions": partitions}).encode()
        await self._session.create("/admin/reassign_partitions", data)

    async def _by_api(self) -> None:
        """Replace a target that is still being moved to, or cancel the move."""
        await reassign(
            self.client,
            [(tp, None if self.rng.random() < 0.2 else target) for tp, target in self._targets()],
        )

    async def reassign(self, tp: TopicPartition, replicas: list[int] | None) -> None:
        """Move a partition to these brokers, or cancel (None); a refusal is fine."""
        with contextlib.suppress(OttlaError):
            await reassign(self.client, [(tp, replicas)])

    async def _elect(self) -> None:
        """Give leadership back to the first assigned replicas."""
        chosen = [tp for tp, _ in self._targets()]
        await elections.elect(self.client, elections.Kind.preferred, chosen, timeout_ms=5000)
