"""The same script under Kafka 3.9's controller and ours: the same requests in the same order.

One real broker is the controller. Brokers 1 to 3 only listen: they are registered, remember every
request the controller sends them and answer as a broker would. Partitions live on these three.
"""

import asyncio
import importlib.util
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ottla.log.files import OsFiles
from ottla.model.cluster import BrokerInfo, Endpoint, ReplicaAssignment, TopicInfo
from ottla.model.ids import TopicPartition
from ottla.net.peer import PeerConnection
from ottla.net.runtime import real_world
from ottla.net.server import Server
from ottla.wire.codec import decode_request, encode_response
from ottla.wire.headers import decode_request_header, response_header
from ottla.wire.messages.control import AlterPartitionRequest, ControlledShutdownRequest
from ottla.wire.messages.topics import ListPartitionReassignmentsRequest
from ottla.zookeeper import znodes
from ottla.zookeeper.operations import Create, Delete
from ottla.zookeeper.session import Session
from ottla.zookeeper.store import Store

sys.path.insert(0, str(Path(__file__).parents[1]))
from support import kafka_tools
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster


def _story_module(name: str) -> Any:
    if f"story_{name}" not in sys.modules:
        path = Path(__file__).parents[1] / "stories" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"story_{name}", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[f"story_{name}"] = module
        spec.loader.exec_module(module)
    return sys.modules[f"story_{name}"]


harness = _story_module("harness")
script = _story_module("script")

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(kafka_tools.why_not() is not None, reason=str(kafka_tools.why_not())),
]

QUIET_S, LATE_S, FIRST_WORD_S, MOST_ROUNDS = 0.4, 0.4, 15.0, 6
SESSION_MS = 60_000


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


@dataclass
class Listener:
    """A registered broker that only remembers and answers."""

    id: int
    rig: "Rig"
    answers: Any = None
    server: Server | None = None
    session: Session | None = None
    got: list[str] = field(default_factory=list)

    async def start(self) -> None:
        self.answers = harness.StubBroker(self, BrokerInfo(self.id, ()))
        self.told = {0: []}
        self.highest_epoch = 0
        self.server = Server(self.rig.world, "127.0.0.1", 0, self.dispatch)
        await self.server.start()
        await self.register()

    @property
    def info(self) -> BrokerInfo:
        return BrokerInfo(self.id, (Endpoint("127.0.0.1", self.server.port),))

    async def register(self) -> None:
        self.session = await self.rig.connect()
        self.answers.epochs.append(await Store(self.session).brokers.register(self.info))

    async def bounce(self) -> None:
        old, self.session = self.session, await self.rig.connect()
        path = znodes.broker_path(self.id)
        data = znodes.encode_broker(self.info, 0)
        await self.session.multi([Delete(path), Create(path, data, ephemeral=True)])
        self.answers.epochs.append((await self.session.exists(path)).czxid)
        await old.close()

    def dispatch(self, _conn: Any, frame: memoryview) -> Any:
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        message = decode_request(key, version, frame, position)
        answer = self.answers.receive(0, key, message)
        self.got.append(self.describe(key, version, message))
        return [
            response_header(key, version, header.correlation_id),
            *encode_response(answer, version),
        ]

    def describe(self, key: int, version: int, message: Any) -> str:
        epochs = self.answers.epochs
        epoch = message.broker_epoch
        # The first request may arrive before our own registration has been answered.
        life = epochs.index(epoch) if epoch in epochs else len(epochs)
        name = {4: "leader_and_isr", 5: "stop_replica", 6: "update_metadata"}[key]
        text = getattr(script, name)(message)
        if key == 4:
            body, leaders = text.rsplit(" leaders=", 1)
            leaders = ",".join(sorted(leaders.split(",")))  # the JVM's order is a hash's
            text = " | ".join(sorted(body.split(" | "))) + f" leaders={leaders}"
        elif key == 6:
            live = ",".join(str(b.id) for b in sorted(message.live_brokers, key=lambda b: b.id))
            text = " | ".join([f"live={live}", *sorted(text.split(" | ")[1:])])
        else:
            text = " | ".join(sorted(text.split(" | ")))
        return f"v{version} life={life} controller_epoch={message.controller_epoch} {name} {text}"


class Rig:
    """One controller under test and its listeners."""

    def __init__(self, zookeeper: str, controller: str) -> None:
        self.world = real_world(OsFiles(), seed=1)
        self.zookeeper = zookeeper
        self.host, _, port = controller.partition(":")
        self.port = int(port)
        self.listeners = [Listener(i, self) for i in (1, 2, 3)]
        self.steps: dict[str, list[list[str]]] = {}

    async def connect(self) -> Session:
        return await Session.connect(self.world, self.zookeeper, SESSION_MS, 20_000)

    async def run(self) -> dict[str, list[list[str]]]:
        self.store = Store(await self.connect())
        while await self.store.election.get_controller_id() is None:
            await asyncio.sleep(0.1)
        self.peer = await PeerConnection.open(
            self.world, self.host, self.port, "script", timeout_s=60
        )
        try:
            await self.play()
        finally:
            self.peer.close()
            for listener in self.listeners:
                if listener.session is not None:
                    await listener.session.close()
                if listener.server is not None:
                    await listener.server.close()
            await self.store.session.close()
        return self.steps

    async def settle(self, step: str) -> None:
        """Wait until nobody is told anything more, and file what was told.

        Each step has somebody told something: that is waited for. Silence after it counts only
        where a round took no longer than its pauses: a machine that is late itself hears late.
        """
        clock = self.world.clock
        give_up_s = clock.monotonic() + FIRST_WORD_S
        while not self.told and clock.monotonic() < give_up_s:
            await asyncio.sleep(0.05)
        for _ in range(MOST_ROUNDS):
            before, began_s = self.told, clock.monotonic()
            await asyncio.sleep(QUIET_S)
            # Answered once the controller has worked off what came before, however long it takes.
            await self.peer.send(ListPartitionReassignmentsRequest(), 0, 60)
            await asyncio.sleep(QUIET_S)
            if self.told == before and clock.monotonic() - began_s < 2 * QUIET_S + LATE_S:
                break
        self.steps[step] = [x.got for x in self.listeners]
        for listener in self.listeners:
            listener.got = []

    @property
    def told(self) -> int:
        """How many requests came since the last step."""
        return sum(len(x.got) for x in self.listeners)

    async def play(self) -> None:
        one, two, three = self.listeners
        store = self.store
        for listener in self.listeners:
            await listener.start()
            await self.settle(f"{listener.id} starts")
        await self.create({0: (1, 2, 3), 1: (2, 3, 1), 2: (3,)})
        await self.settle("create")
        await two.session.close()
        await self.settle("2 dies")
        await two.register()
        await self.settle("2 starts")
        await self.isr(0, 1, 1, 3, 2)
        await self.isr(1, 3, 3, 1, 2)
        await self.settle("2 catches up")
        await store.admin_requests.create_preferred_election([tp(0), tp(1)])
        await self.settle("preferred election")
        await store.admin_requests.create_reassignment({tp(2): (1,)})
        await self.settle("reassignment begins")
        await self.isr(2, 3, 3, 1)
        await self.settle("reassignment ends")
        await self.grow({3: (1, 2)})
        await self.settle("grow")
        response = await self.peer.send(
            ControlledShutdownRequest(broker_id=3, broker_epoch=three.answers.epochs[-1]),
            3,
            60,
        )
        assert not response.remaining_partitions
        await self.settle("3 asks to be relieved")
        await three.session.close()
        await self.settle("3 stops")
        await three.register()
        await self.settle("3 starts again")
        await one.bounce()
        await self.settle("1 bounces")
        two.answers.failed_replicas = {tp(1)}
        await Store(two.session).log_dir_events.notify(2)
        await self.settle("2 loses a folder")
        await store.topics.request_deletion("t")
        await self.settle("deletion is asked, a replica is offline")
        two.answers.failed_replicas = set()
        await two.bounce()
        await self.settle("2 bounces, the topic goes")
        self.steps["left"] = [await store.topics.get_names()]

    async def create(self, replicas: dict[int, tuple[int, ...]]) -> None:
        await self.store.zk.create_recursive("/config/topics/t", b'{"version":1,"config":{}}')
        assignment = {p: ReplicaAssignment(r) for p, r in replicas.items()}
        await self.store.topics.create(TopicInfo("t", b"t" * 16, assignment))

    async def grow(self, replicas: dict[int, tuple[int, ...]]) -> None:
        info = (await self.store.topics.get_many(["t"]))["t"]
        added = {p: ReplicaAssignment(r) for p, r in replicas.items()}
        new = replace(info, assignment={**info.assignment, **added})
        await self.store.topics.set(new)

    async def isr(self, partition: int, leader: int, *isr: int) -> None:
        known = (await self.store.states.get_one(tp(partition))).leader_and_isr
        assert known.leader == leader
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.listeners[leader - 1].answers.epochs[-1],
            topics=[
                AlterPartitionRequest.TopicData(
                    topic_id=b"t" * 16,
                    partitions=[
                        AlterPartitionRequest.PartitionData(
                            partition_index=partition,
                            leader_epoch=known.leader_epoch,
                            new_isr_with_epochs=[
                                AlterPartitionRequest.BrokerState(broker_id=b) for b in isr
                            ],
                            partition_epoch=known.partition_epoch,
                        )
                    ],
                )
            ],
        )
        response = await self.peer.send(request, 3, 60)
        assert response.error_code == 0
        assert response.topics[0].partitions[0].error_code == 0


def without_deletions_told_again(told):
    """Leave out what a broker hears from us only, when it registers while topics are deleted.

    Kafka does not tell it of them: it would list a topic of which it has no replica for ever.
    """
    first, *rest = told
    head, *partitions = first.split(" | ")
    assert len(partitions) == 4, first
    assert all(re.fullmatch(r"t-\d -2/\d+@0 v0", p) for p in partitions), first
    return [head, *rest]


def without_stopping_first(told):
    """Leave out the StopReplica that Kafka sends before it writes the ISRs, and again after.

    Our followers go on until no ISR names them: producers do not wait for them meanwhile.
    """
    stops = [n for n, request in enumerate(told) if " stop_replica " in request]
    assert len(stops) == 2, told
    return told[: stops[0]] + told[stops[0] + 1 :]


def test_both_controllers_tell_the_same_in_the_same_order(tmp_path):
    # Neither controller is to lose its term amid the script.
    settings = {"auto_leader_rebalance_enable": "false", "session_timeout_ms": 18_000}

    def told(cluster):
        with cluster:
            return asyncio.run(Rig(cluster.zookeeper, cluster.bootstrap).run())

    both = (
        OttlaCluster(tmp_path / "ours", brokers=1, **settings),
        Kafka39Cluster(tmp_path / "theirs", brokers=1, heap_mb=320, **settings),
    )
    with ThreadPoolExecutor(2) as at_once:  # most of it is waiting
        we, they = at_once.map(told, both)
    for step, expected in they.items():
        if step == "2 bounces, the topic goes":
            we[step][1] = without_deletions_told_again(we[step][1])
        if step == "3 asks to be relieved":
            expected[2] = without_stopping_first(expected[2])
        for who, (ours_told, theirs_told) in enumerate(zip(we[step], expected, strict=True), 1):
            assert ours_told == theirs_told, f"{step}: what {who} was told"
