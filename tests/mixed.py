"""A cluster of both kinds of brokers, ours and Apache Kafka 3.9's, and what a test asks of it.

Who leads, who follows and who is the controller is read from ZooKeeper with kazoo; that every
broker tells its clients the same is asked of each broker by itself.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.log.files import OsFiles
from ottla.net.peer import PeerConnection
from ottla.net.runtime import real_world
from ottla.wire.codec import encode_response
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.messages.alter_partition import AlterPartitionRequest
from ottla.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.create_partitions import CreatePartitionsRequest
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.messages.metadata import MetadataRequest

sys.path.insert(0, str(Path(__file__).parent))
from cluster import OttlaCluster  # tests are no package
from kafka39 import Kafka39Cluster

SESSION_MS = 4000
REASSIGN_ZNODE = "/admin/reassign_partitions"


def until(condition: Callable[[], Any], timeout_s: float, what: str | Callable[[], str]) -> Any:
    """Wait for something to become true; return it."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise AssertionError(f"not within {timeout_s} s: {said}")
        time.sleep(0.1)


@dataclass(frozen=True)
class State:
    """A partition as its znodes have it. `zk_version` is that of the state znode."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    controller_epoch: int


class Znodes:
    """What ZooKeeper says, read and now and then written with kazoo."""

    def __init__(self, hosts: str) -> None:
        self.client = KazooClient(hosts=hosts, timeout=20)

    def __enter__(self) -> Self:
        self.client.start(timeout=30)
        return self

    def __exit__(self, *error: object) -> None:
        self.client.stop()
        self.client.close()

    def read(self, path: str) -> Any:
        """Return a znode's JSON, or None without it."""
        try:
            data, _ = self.client.get(path)
        except NoNodeError:
            return None
        return json.loads(data)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(self.client.get_children(path))
        except NoNodeError:
            return []

    def brokers(self) -> list[int]:
        return sorted(map(int, self.names("/brokers/ids")))

    def controller(self) -> int:
        """Return the controller's id, -1 for none."""
        found = self.read("/controller")
        return -1 if found is None else found["brokerid"]

    def controller_epoch(self) -> int:
        return self.read("/controller_epoch") or 0

    def assignment(self, topic: str) -> dict[int, list[int]]:
        found = self.read(f"/brokers/topics/{topic}")
        return {int(p): r for p, r in found["partitions"].items()} if found else {}

    def moving(self, topic: str) -> bool:
        """Tell whether a partition of a topic is on its way to other brokers."""
        found = self.read(f"/brokers/topics/{topic}") or {}
        return bool(found.get("adding_replicas") or found.get("removing_replicas"))

    def states(self, topic: str) -> dict[int, State]:
        asked = {
            p: self.client.get_async(f"/brokers/topics/{topic}/partitions/{p}/state")
            for p in self.assignment(topic)
        }
        states = {}
        for partition, answer in asked.items():
            with suppress(NoNodeError):
                found = json.loads(answer.get(timeout=20)[0])
                states[partition] = State(
                    found["leader"],
                    tuple(found["isr"]),
                    found["leader_epoch"],
                    found["controller_epoch"],
                )
        return states

    def full(self, topic: str) -> bool:
        """Tell whether every replica is in sync and every partition has a leader."""
        assignment, states = self.assignment(topic), self.states(topic)
        return bool(assignment) and all(
            p in states and states[p].leader in r and sorted(states[p].isr) == sorted(r)
            for p, r in assignment.items()
        )

    def delete_controller(self) -> None:
        with suppress(NoNodeError):
            self.client.delete("/controller")

    def ask_to_reassign(self, topic: str, target: dict[int, list[int]]) -> None:
        """Write the znode by which tools before KIP-455 ask for a reassignment."""
        wanted = [
            {"topic": topic, "partition": p, "replicas": replicas} for p, replicas in target.items()
        ]
        value = {"version": 1, "partitions": wanted}
        self.client.create(REASSIGN_ZNODE, json.dumps(value).encode())


class MixedCluster:
    """Brokers of ours and of Apache Kafka on one ZooKeeper; ids 0.. are ours, 10.. the JVM's."""

    def __init__(self, folder: Path, ours: int, theirs: int, *, jvm_first: bool) -> None:
        settings = {
            "auto_leader_rebalance_enable": "false",
            "log_segment_delete_delay_ms": "1000",
            "controlled_shutdown_retry_backoff_ms": "500",
            "auto_create_topics_enable": "false",
        }
        self._folder = folder
        self._jvm_first = jvm_first
        self.ours = OttlaCluster(
            folder / "ours", brokers=ours, session_timeout_ms=SESSION_MS, **settings
        )
        self.theirs = Kafka39Cluster(
            folder / "theirs",
            ids=list(range(10, 10 + theirs)),
            heap_mb=320,
            session_timeout_ms=SESSION_MS,
            **settings,
        )

    def __enter__(self) -> Self:
        first, second = (self.theirs, self.ours) if self._jvm_first else (self.ours, self.theirs)
        first.__enter__()
        try:
            second.zookeeper = first.zookeeper
            second.__enter__()
        except BaseException:
            first.__exit__()
            raise
        self._order = (second, first)
        self.znodes = Znodes(first.zookeeper).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.znodes.__exit__()
        self.stop()
        for cluster in self._order:
            cluster.__exit__()

    def stop(self) -> None:
        """Stop all brokers; the JVM's first, which try for long when nobody is left."""
        self.theirs.stop()
        self.ours.stop()

    @property
    def ids(self) -> list[int]:
        return [*self.ours.ids, *self.theirs.ids]

    @property
    def bootstrap(self) -> str:
        return f"{self.ours.bootstrap},{self.theirs.bootstrap}"

    def kind(self, broker: int) -> OttlaCluster | Kafka39Cluster:
        return self.ours if broker in self.ours.ids else self.theirs

    def address(self, broker: int) -> str:
        return self.kind(broker).address(broker)

    def folder(self, broker: int) -> Path:
        return self.kind(broker).data(broker)

    def running(self) -> list[int]:
        return [b for b in self.ids if self.kind(b).running(b)]

    def start(self, broker: int) -> None:
        """Start a broker once ZooKeeper has forgotten its last life, which a JVM broker needs."""
        until(lambda: broker not in self.znodes.brokers(), 30, f"broker {broker} is forgotten")
        self.kind(broker).start_broker(broker)
        until(lambda: broker in self.znodes.brokers(), 30, f"broker {broker} is registered")

    def give_office_to(self, broker: int) -> None:
        """Make a broker the controller: the others are held while /controller is deleted."""
        if self.znodes.controller() == broker:
            return
        held = [b for b in self.running() if b != broker]
        for other in held:
            self.kind(other).pause(other)
        try:
            self.znodes.delete_controller()
            until(lambda: self.znodes.controller() == broker, 3, f"{broker} takes office")
        finally:
            for other in held:
                self.kind(other).resume(other)
        self.wait_agreed()

    def wait_full(self, *topics: str, timeout_s: float = 40) -> None:
        """Wait until every replica is in sync, and every broker says so."""
        for topic in topics:
            until(
                lambda topic=topic: self.znodes.full(topic),
                timeout_s,
                lambda topic=topic: f"full ISR: {self.znodes.states(topic)}",
            )
        self.wait_agreed(*topics)

    def wait_agreed(self, *topics: str, timeout_s: float = 20) -> None:
        """Wait until every broker answers Metadata with what the znodes say."""
        until(
            lambda: not self.disagreements(*topics), timeout_s, lambda: self.disagreements(*topics)
        )

    def disagreements(self, *topics: str) -> str:
        """Return where a broker's Metadata differs from the znodes, "" if nowhere."""
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=t) for t in topics]
        )
        truth: dict[str, Any] = {
            "controller": self.znodes.controller(),
            "brokers": self.znodes.brokers(),
        }
        for topic in topics:
            for partition, state in self.znodes.states(topic).items():
                truth[f"{topic}-{partition}"] = (state.leader, sorted(state.isr))
        for broker in self.running():
            found = self.ask(broker, request, 9)
            said: dict[str, Any] = {
                "controller": found.controller_id,
                "brokers": sorted(b.node_id for b in found.brokers),
            }
            for topic in found.topics:
                for p in topic.partitions:
                    said[f"{topic.name}-{p.partition_index}"] = (p.leader_id, sorted(p.isr_nodes))
            if said != truth:
                return f"broker {broker} says {said}, the znodes {truth}"
        return ""

    def ask(self, broker: int, request: Any, version: int) -> Any:
        """Send one request to one broker; return its answer."""
        return asyncio.run(_ask(self.address(broker), request, version))

    def refusals(self, broker: int) -> dict[str, bytes]:
        """Ask a broker that is not the controller for what only that does: its answers' bytes."""
        return {
            type(request).__name__: b"".join(
                encode_response(self.ask(broker, request, version), version)
            )
            for request, version in _for_the_controller(self.znodes.names("/brokers/topics"))
        }

    def producer_id(self, broker: int) -> int:
        """Ask a broker for a new producer id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

        def given() -> int:
            answer = self.ask(broker, request, 4)
            return 0 if answer.error_code else answer.producer_id + 1

        return until(given, 20, f"broker {broker} gives a producer id") - 1

    def folders(self, topic: str) -> dict[int, list[str]]:
        """Return a topic's partition folders by broker.

        A JVM broker's count until they are renamed to `-delete`: it looks at those for the first
        time half a minute after its start. Ours count until they are gone.
        """
        found = {
            b: [
                p.name
                for p in sorted(self.folder(b).glob(f"{topic}-*"))
                if b in self.ours.ids or not p.name.endswith("-delete")
            ]
            for b in self.ids
        }
        return {b: names for b, names in found.items() if names}

    def log_bytes(self, broker: int, topic: str, partition: int) -> bytes:
        segments = sorted((self.folder(broker) / f"{topic}-{partition}").glob("*.log"))
        return b"".join(p.read_bytes() for p in segments)

    def replica_differences(self, topic: str) -> list[str]:
        """Compare the log bytes of all replicas (call it when the brokers are stopped)."""
        wrong = []
        for partition, replicas in self.znodes.assignment(topic).items():
            logs = {b: self.log_bytes(b, topic, partition) for b in replicas}
            if len(set(logs.values())) > 1 or not all(logs.values()):
                sizes = {b: len(data) for b, data in logs.items()}
                wrong.append(f"{topic}-{partition}: bytes by broker {sizes}")
        return wrong


def _for_the_controller(topics: Iterable[str]) -> list[tuple[Any, int]]:
    """Return requests and the versions to send them in; carried out, none would change a thing."""
    name = next(iter(topics))
    tps = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=[0])]
    move = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0)
    return [
        (
            CreateTopicsRequest(
                topics=[
                    CreateTopicsRequest.CreatableTopic(
                        name=name, num_partitions=1, replication_factor=1
                    )
                ]
            ),
            7,
        ),
        (DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="none")]), 6),
        (
            CreatePartitionsRequest(
                topics=[
                    CreatePartitionsRequest.CreatePartitionsTopic(
                        name=name, count=1, assignments=None
                    )
                ],
                timeout_ms=5000,
            ),
            3,
        ),
        (ElectLeadersRequest(topic_partitions=tps), 2),
        (
            AlterPartitionReassignmentsRequest(
                topics=[
                    AlterPartitionReassignmentsRequest.ReassignableTopic(
                        name=name, partitions=[move]
                    )
                ]
            ),
            0,
        ),
        (ListPartitionReassignmentsRequest(), 0),
        (AlterPartitionRequest(broker_id=77), 3),
        (AllocateProducerIdsRequest(broker_id=77), 0),
        (ControlledShutdownRequest(broker_id=77), 3),
    ]


async def _ask(address: str, request: Any, version: int) -> Any:
    host, _, port = address.rpartition(":")
    world = real_world(OsFiles())
    peer = await PeerConnection.open(world, host, int(port), "mixed", timeout_s=5)
    try:
        return await peer.send(request, version, 15)
    finally:
        peer.close()
