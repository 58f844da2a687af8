"""Simulated administrators: several people who change topics at once, whatever is under way.

Invariants: the Kafka protocol only; what one asks for is asked once, and a refusal is a response
like another (the others are at work, too); the topics they create and delete are their own, on the
clients' topics they only hold preferred elections and change settings that lose nothing, and move
replicas to another log dir (faults F24 to F27, F43).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random

from ottla.client import configs, elections, topics
from ottla.client.client import CONTROLLER, Client
from ottla.client.elections import Kind
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.sim.clients import REQUEST_TIMEOUT_S
from ottla.sim.masks import Operations
from ottla.wire.messages.cluster import AlterReplicaLogDirsRequest
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
)
from ottla.wire.schema import R, Request

TOPICS = ("ops-a", "ops-b", "ops-c")
MOST_PARTITIONS = 6
SETTINGS = (
    ("unclean.leader.election.enable", ("true", "false")),
    ("min.insync.replicas", ("1", "2", "3")),
    ("retention.ms", ("1000", "604800000")),
    ("segment.bytes", ("1024", "16384")),
    ("leader.replication.throttled.replicas", ("*",)),
)
HARMLESS_SETTINGS = (
    ("segment.bytes", ("2048", "16384")),
    ("flush.messages", ("1", "100")),
    ("max.message.bytes", ("1048588", "2097164")),
)


class Administrator:
    """One person with one request at a time."""

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[tuple[str, int]],
        name: str,
        brokers: int,
        clients_topic: str,
        operations: Operations,
        movable: Sequence[TopicPartition] = (),
        log_dirs: Sequence[str] = (),
    ) -> None:
        self.world = world
        self.client = Client(world, bootstrap, name, timeout_s=REQUEST_TIMEOUT_S)
        self.brokers = brokers
        self.clients_topic = clients_topic
        self.operations = operations
        self.movable = movable
        """The clients' and the internal partitions, which may change their log dir, too."""
        self.log_dirs = log_dirs
        self.rng = world.random
        """Chance of the operation under way."""
        self.stopping = False
        self.ended = False
        self.done = 0
        """Requests that were answered, refused ones among them."""

    async def run(self) -> None:
        """Do something now and then, until `stopping`."""
        acts: tuple[Callable[[], Awaitable[None]], ...] = (
            self._create,
            self._create,
            self._delete,
            self._grow,
            self._move,
            self._move,
            self._cancel,
            self._elect,
            self._elect_clients,
            self._configure,
            self._configure_clients,
            self._change_log_dir,
            self._change_log_dir,
        )
        if len(self.log_dirs) > 1:
            acts += (self._move_log_dir,) * 3
        async for rng in self.operations.due(lambda: self.stopping):
            self.rng = rng
            act = self.rng.choice(acts)
            self.operations.note(act.__name__.strip("_"))
            with contextlib.suppress(OttlaError):
                await act()
                self.done += 1
        await self.client.close()
        self.ended = True

    def _topic(self) -> str:
        return self.rng.choice(TOPICS)

    def _replicas(self) -> list[int]:
        rng = self.rng
        return rng.sample(range(self.brokers), rng.randint(1, min(4, self.brokers)))

    async def _ask(self, request: Request[R]) -> None:
        await self.client.call(request, CONTROLLER)

    async def _create(self) -> None:
        rng = self.rng
        topic = CreateTopicsRequest.CreatableTopic(
            name=self._topic(),
            num_partitions=rng.randint(1, 3),
            replication_factor=rng.randint(1, min(3, self.brokers)),
        )
        if rng.random() < 0.3:
            topic.num_partitions = topic.replication_factor = -1
            count = rng.randint(1, min(4, self.brokers))
            topic.assignments = [
                CreateTopicsRequest.CreatableReplicaAssignment(
                    partition_index=p, broker_ids=rng.sample(range(self.brokers), count)
                )
                for p in range(rng.randint(1, 3))
            ]
        await self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=3000))

    async def _delete(self) -> None:
        await topics.delete_topics(self.client, [self._topic()], timeout_ms=3000)

    async def _grow(self) -> None:
        count = self.rng.randint(2, MOST_PARTITIONS)
        topic = CreatePartitionsRequest.CreatePartitionsTopic(
            name=self._topic(), count=count, assignments=None
        )
        await self._ask(CreatePartitionsRequest(topics=[topic], timeout_ms=3000))

    async def _move(self) -> None:
        partitions = range(self.rng.randint(1, MOST_PARTITIONS))
        await self._reassign({p: self._replicas() for p in partitions})

    async def _move_log_dir(self) -> None:
        """Have one broker's replicas of some partitions lie in one log dir, wherever they are."""
        rng = self.rng
        chosen = [TopicPartition(self._topic(), rng.randrange(MOST_PARTITIONS))]
        chosen += rng.sample(list(self.movable), min(len(self.movable), rng.randint(1, 3)))
        await self._place(chosen, rng)

    async def _cancel(self) -> None:
        await self._reassign(dict.fromkeys(range(MOST_PARTITIONS)))

    async def _change_log_dir(self) -> None:
        """Move replicas of one broker to a log dir, where they may be already."""
        rng = self.rng
        topic = rng.choice((*TOPICS, self.clients_topic, self.clients_topic))
        await self._place([TopicPartition(topic, rng.randrange(4))], rng)

    async def _place(self, chosen: Sequence[TopicPartition], rng: Random) -> None:
        """Ask one broker to have its replicas of these in one of its log dirs."""
        r = AlterReplicaLogDirsRequest
        places: dict[str, AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = {}
        for topic, partition in chosen:
            named = places.setdefault(topic, r.AlterReplicaLogDirTopic(name=topic))
            named.partitions.append(partition)
        move = r.AlterReplicaLogDir(path=rng.choice(self.log_dirs), topics=list(places.values()))
        await self.client.call(r(dirs=[move]), rng.randrange(self.brokers))

    async def _reassign(self, targets: Mapping[int, list[int] | None]) -> None:
        topic = self._topic()
        wanted = [(TopicPartition(topic, p), replicas) for p, replicas in targets.items()]
        await reassign(self.client, wanted)

    async def _elect(self) -> None:
        await self._hold(self._topic(), self.rng.choice((Kind.preferred, Kind.unclean)))

    async def _elect_clients(self) -> None:
        await self._hold(self.clients_topic, Kind.preferred)

    async def _hold(self, topic: str, kind: Kind) -> None:
        partitions = [TopicPartition(topic, p) for p in range(3)]
        await elections.elect(self.client, kind, partitions, timeout_ms=3000)

    async def _configure(self) -> None:
        await self._alter(self._topic(), SETTINGS)

    async def _configure_clients(self) -> None:
        await self._alter(self.clients_topic, HARMLESS_SETTINGS)

    async def _alter(self, topic: str, settings: Sequence[tuple[str, Sequence[str]]]) -> None:
        rng = self.rng
        name, values = rng.choice(settings)
        if rng.choice((True, True, False)):
            await configs.alter(self.client, configs.TOPIC, topic, {name: rng.choice(values)})
        else:
            await configs.alter(self.client, configs.TOPIC, topic, {}, [name])


async def reassign(
    client: Client, wanted: Sequence[tuple[TopicPartition, list[int] | None]]
) -> None:
    """Ask for partitions to be moved to these brokers, or for a move to be cancelled (None)."""
    r = AlterPartitionReassignmentsRequest
    named: dict[str, AlterPartitionReassignmentsRequest.ReassignableTopic] = {}
    for tp, replicas in wanted:
        topic = named.setdefault(tp.topic, r.ReassignableTopic(name=tp.topic))
        topic.partitions.append(
            r.ReassignablePartition(partition_index=tp.partition, replicas=replicas)
        )
    await client.call(r(timeout_ms=3000, topics=list(named.values())), CONTROLLER)


async def set_min_isr(
    world: World, bootstrap: Sequence[tuple[str, int]], scope: str, where: str, value: int | None
) -> None:
    """Set min.insync.replicas of all brokers (scope "default"), one broker or one topic (F50).

    None takes the value away again. Repeated until it is answered, for a while.
    """
    kind, key = configs.TOPIC if scope == "topic" else configs.BROKER, "min.insync.replicas"
    changed, removed = ({}, [key]) if value is None else ({key: str(value)}, [])
    client = Client(world, bootstrap, "operator", timeout_s=REQUEST_TIMEOUT_S)
    for _ in range(10):
        with contextlib.suppress(OttlaError):
            await configs.alter(client, kind, where, changed, removed)
            break
        await asyncio.sleep(0.3)
    await client.close()
