"""A cluster of both kinds of brokers, ours and Apache Kafka 3.9's, and what a test does with it."""

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from ottla.admin.session import connected
from ottla.client.client import Client
from ottla.model.errors import ErrorCode, OttlaError
from ottla.wire.codec import encode_response
from ottla.wire.messages.control import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    ControlledShutdownRequest,
)
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from ottla.wire.messages.transactions import InitProducerIdRequest
from ottla.wire.records import iter_batches, iter_records

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.cluster import OttlaCluster  # tests are no package
from support.kafka39 import Kafka39Cluster
from support.seen import Znodes, ask, disagreements
from support.waiting import until

SESSION_MS = 6000
"""A live broker may wait longer than a session of 4 s for a busy processor, and lose it."""
OFFICE_TRIES = 5
Kinds = tuple[Callable[..., OttlaCluster], Callable[..., Kafka39Cluster]]
"""What makes brokers of ours, and of Kafka's."""


class MixedCluster:
    """Brokers of ours and of Apache Kafka on one ZooKeeper; ids 0.. are ours, 10.. the JVM's."""

    def __init__(
        self,
        folder: Path,
        ours: int,
        theirs: int,
        *,
        jvm_first: bool = False,
        kinds: Kinds = (OttlaCluster, Kafka39Cluster),
        **more: str,
    ) -> None:
        settings = {
            "auto_leader_rebalance_enable": "false",
            "log_segment_delete_delay_ms": "1000",
            "controlled_shutdown_retry_backoff_ms": "500",
            "auto_create_topics_enable": "false",
            # One number for all: a JVM broker that started before the topic was there goes by its
            # own setting ever after, and would name another coordinator than the others.
            "offsets_topic_num_partitions": "3",
            **more,
        }
        self._folder = folder
        self._jvm_first = jvm_first
        self.ours = kinds[0](
            folder / "ours",
            brokers=ours,
            zookeeper_server="java",
            session_timeout_ms=SESSION_MS,
            **settings,
        )
        self.theirs = kinds[1](
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
        """Make a broker the controller: the others are held while /controller is deleted.

        Not for longer than their sessions last: they go on, and are held anew, where it was not
        elected meanwhile.
        """
        for _ in range(OFFICE_TRIES):
            if self.znodes.controller() == broker or self._elected_alone(broker):
                break
        assert self.znodes.controller() == broker, f"{broker} is elected"
        self.wait_agreed()

    def _elected_alone(self, broker: int) -> bool:
        held = [b for b in self.running() if b != broker]
        for other in held:
            self.kind(other).pause(other)
        try:
            self.znodes.delete_controller()
            give_up_s = time.monotonic() + SESSION_MS / 2000
            while self.znodes.controller() != broker and time.monotonic() < give_up_s:
                time.sleep(0.02)
            return self.znodes.controller() == broker
        finally:
            for other in held:
                self.kind(other).resume(other)

    def give_lead_to(self, broker: int, *topics: str) -> None:
        """Make a broker the first replica of partition 0 of these topics, and its leader."""
        before = {t: self.znodes.assignment(t)[0] for t in topics}
        orders = {t: [broker, *(b for b in r if b != broker)] for t, r in before.items()}
        connected(self.bootstrap, lambda client: _reorder(client, orders))

        def leads() -> bool:
            connected(self.bootstrap, lambda client: _elect_preferred(client, topics))
            return all(self.znodes.states(t)[0].leader == broker for t in topics)

        until(leads, 60, f"broker {broker} leads {topics}")
        self.wait_agreed(*topics)

    def wait_full(self, *topics: str, timeout_s: float = 40) -> None:
        """Wait until every replica is in sync, and every broker says so."""
        for topic in topics:
            until(
                lambda topic=topic: self.znodes.full(topic),
                timeout_s,
                lambda topic=topic: f"full ISR: {self.znodes.states(topic)}",
            )
        self.wait_agreed(*topics)

    def wait_agreed(self, *topics: str, timeout_s: float = 40) -> None:
        """Wait until every broker answers Metadata with what the znodes say."""
        until(
            lambda: not self.disagreements(*topics),
            timeout_s,
            lambda: self.disagreements(*topics),
            despite=(OSError, OttlaError),
        )

    def disagreements(self, *topics: str) -> str:
        """Return where a broker's Metadata differs from the znodes, "" if nowhere."""
        addresses = {b: self.address(b) for b in self.running()}
        return disagreements(self.znodes, addresses, *topics)

    def refusals(self, broker: int) -> dict[str, bytes]:
        """Ask a broker that is not the controller for what only that does: its answers' bytes."""
        return {
            type(request).__name__: b"".join(
                encode_response(ask(self.address(broker), request, version), version)
            )
            for request, version in _for_the_controller(self.znodes.names("/brokers/topics"))
        }

    def producer_id(self, broker: int) -> int:
        """Ask a broker for a new producer id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

        def given() -> int:
            answer = ask(self.address(broker), request, 4)
            return 0 if answer.error_code else answer.producer_id + 1

        return until(given, 40, f"broker {broker} gives a producer id") - 1

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

    def sent_anew(self, topic: str, partition: int) -> set[tuple[str, int]]:
        """Return the (key, number) of records that their client sent once more by a new epoch.

        A leader that is being replaced answers the first of several requests of a connection with
        NOT_LEADER_OR_FOLLOWER, is elected again and refuses the next as out of order. librdkafka
        then raises its producer epoch (KIP-360), and sends anew all that it has not heard of, on
        every partition: also what another leader had appended and could not acknowledge any more.
        Brokers cannot know such a record again. One that is there twice by *one* epoch is theirs.
        """
        epochs: dict[tuple[str, int], list[tuple[int, int]]] = {}
        log = self.log_bytes(self.znodes.states(topic)[partition].leader, topic, partition)
        for position, header in iter_batches(log, allow_partial=True):
            for record in iter_records(log, position):
                named = ((record.key or b"").decode(), int(record.value or 0))
                epochs.setdefault(named, []).append((header.producer_id, header.producer_epoch))
        return {
            named
            for named, found in epochs.items()
            if len(found) > 1 and len(set(found)) == len(found) and len({p for p, _ in found}) == 1
        }

    def replica_differences(self, topic: str) -> list[str]:
        """Compare the log bytes of all replicas (call it when the brokers are stopped)."""
        wrong = []
        for partition, replicas in self.znodes.assignment(topic).items():
            logs = {b: self.log_bytes(b, topic, partition) for b in replicas}
            if len(set(logs.values())) > 1 or not all(logs.values()):
                sizes = {b: len(data) for b, data in logs.items()}
                wrong.append(f"{topic}-{partition}: bytes by broker {sizes}")
        return wrong


async def _reorder(client: Client, orders: dict[str, list[int]]) -> None:
    """Ask for partition 0 of each topic to have its replicas in another order."""
    r = AlterPartitionReassignmentsRequest
    moves = [
        r.ReassignableTopic(
            name=topic, partitions=[r.ReassignablePartition(partition_index=0, replicas=order)]
        )
        for topic, order in orders.items()
    ]
    answer = await client.call(r(topics=moves, timeout_ms=20_000), "controller")
    assert not any(p.error_code for t in answer.responses for p in t.partitions), answer


async def _elect_preferred(client: Client, topics: Iterable[str]) -> None:
    chosen = [ElectLeadersRequest.TopicPartitions(topic=t, partitions=[0]) for t in topics]
    request = ElectLeadersRequest(election_type=0, topic_partitions=chosen, timeout_ms=20_000)
    results = (await client.call(request, "controller")).replica_election_results
    codes = {p.error_code for t in results for p in t.partition_result}
    # What is on its way still has another first replica, or one that is not in sync yet.
    # A machine that is too busy to respond in time is asked again.
    known = {
        0, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }  # fmt: skip
    assert codes <= known, codes


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
