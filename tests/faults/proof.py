"""What all faults share: a cluster under load, what it has to come back to, and who judges.

After each fault: every broker registered, every ISR full, every broker's Metadata as the znodes.
At the end: no acknowledged record lost, doubled or out of order, and replicas equal byte for byte.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from faults.shim import CannotBeTriedError
from ottla.log.files import OsFiles
from ottla.model.errors import OttlaError
from ottla.net.peer import PeerConnection
from ottla.net.runtime import real_world
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.records import Record, build_batch
from proofs.kill_proof import Ack, Writer, problems, read_back
from support.clients import create_topics
from support.cluster import OttlaCluster
from support.seen import Znodes, disagreements
from support.waiting import until

TOPIC = "faults"
LAYOUT = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
CONTROLLER, LEADER, FOLLOWERS = 0, 1, (2, 3)
LAG_S = 5
SESSION_S = 6
CLIENT_TIMEOUT_MS = 5000
"""Which a fenced leader that nobody can tell lets its producers wait for, as Kafka's does."""

SETTINGS = {
    "min_insync_replicas": "2",
    "replica_lag_time_max_ms": str(1000 * LAG_S),
    "auto_leader_rebalance_enable": "false",
    "auto_create_topics_enable": "false",
    "controlled_shutdown_retry_backoff_ms": "200",
}

Fault = Callable[["Proof"], dict[str, Any]]


@dataclass
class Proof:
    """A cluster under load. Broker 0 is the controller and has no replicas of the topic."""

    cluster: OttlaCluster
    znodes: Znodes
    admin: AdminClient
    writer: Writer
    network: Any = None
    zookeeper: Any = None
    quick: bool = False
    """as a test of CI: fewer rounds"""
    partitions: int = len(LAYOUT)

    def leader(self) -> int:
        """Return who leads partition 0, of which broker 1 is the preferred leader."""
        return self.znodes.states(TOPIC)[0].leader

    def isr(self) -> set[int]:
        return set(self.znodes.states(TOPIC)[0].isr)

    def elect_preferred(self) -> None:
        self.admin.list_topics(timeout=10)
        wanted = [TopicPartition(TOPIC, p) for p in range(self.partitions)]

        def elected() -> bool:
            self.admin.elect_leaders(ElectionType.PREFERRED, wanted).result(30)
            return True

        until(elected, 30, "preferred leaders are elected", despite=(KafkaException,))

    def settle(self, timeout_s: float = 60) -> None:
        addresses = {b: self.cluster.address(b) for b in self.cluster.ids}
        until(
            lambda: self.znodes.brokers() == self.cluster.ids,
            timeout_s,
            lambda: f"all are registered: {self.znodes.brokers()}",
        )
        until(
            lambda: self.znodes.full(TOPIC),
            timeout_s,
            lambda: f"every ISR is full: {self.znodes.states(TOPIC)}",
        )
        until(
            lambda: not disagreements(self.znodes, addresses, TOPIC),
            30,
            lambda: disagreements(self.znodes, addresses, TOPIC),
        )

    def registration(self, broker: int) -> int | None:
        """Return the czxid of a broker's registration, None without one."""
        stat = self.znodes.client.exists(f"/brokers/ids/{broker}")
        return None if stat is None else int(stat.czxid)

    def removals(self) -> int:
        """Return how many registrations were removed before their session had ended (R17)."""
        logs = (self.cluster.log(broker).read_bytes() for broker in self.cluster.ids)
        return sum(log.count(b"registration removed broker=") for log in logs)

    def give_office_back(self) -> None:
        """Make broker 0 the controller again."""
        while self.znodes.controller() != CONTROLLER:
            self.znodes.delete_controller()
            until(lambda: self.znodes.controller() >= 0, 20, "there is a controller")
            time.sleep(0.5)

    def acked_between(self, since: float, until_: float) -> int:
        return sum(since < a.at <= until_ for a in self.writer.acks if a.partition == 0)

    def first_ack(self, since: float) -> float:
        """Return when the first record of partition 0 was acknowledged after a time; 0 if never."""
        times = [a.at for a in self.writer.acks if a.partition == 0 and a.at > since]
        return min(times, default=0.0)

    def await_acks(self, count: int, timeout_s: float = 30) -> None:
        """Wait until so many more records were acknowledged."""
        before = len(self.writer.acks)
        until(lambda: len(self.writer.acks) >= before + count, timeout_s, "producing goes on")

    # --- produce requests to one broker, whoever leads ------------------------------------------

    def produce_at(self, broker: int, timeout_s: float) -> int:
        """Send one record of acks=all to this broker; return the error code, -1 without answer."""
        return asyncio.run(self._produce_all(broker, timeout_s, 1, None))[0]

    def produce_while(self, broker: int, then: Callable[[], None], count: int = 5) -> Counter[int]:
        """Let produce requests wait for a broker that is stopped, do `then`; count its answers."""
        return Counter(asyncio.run(self._produce_all(broker, 20, count, then)))

    async def _produce_all(
        self, broker: int, timeout_s: float, count: int, then: Callable[[], None] | None
    ) -> list[int]:
        r = ProduceRequest
        records = build_batch([Record(key=b"elsewhere", value=b"0")])
        request = r(
            acks=-1,
            timeout_ms=int(timeout_s * 500),
            topic_data=[
                r.TopicProduceData(
                    name=TOPIC, partition_data=[r.PartitionProduceData(index=0, records=records)]
                )
            ],
        )
        address = (self.cluster.host(broker), self.cluster.ports[broker])
        world = real_world(OsFiles())
        peer = await PeerConnection.open(world, *address, "pinned", timeout_s=5)
        try:
            answers = [peer.send(request, 9, timeout_s) for _ in range(count)]
            await asyncio.sleep(0.2)
            if then is not None:
                then()
            codes = []
            for done in await asyncio.gather(*answers, return_exceptions=True):
                lost = isinstance(done, BaseException)
                codes.append(-1 if lost else done.responses[0].partition_responses[0].error_code)
            return codes
        finally:
            peer.close()


def told(codes: Counter[int]) -> dict[str, int]:
    return {str(code): count for code, count in codes.items()}


def begin(cluster: OttlaCluster, znodes: Znodes) -> AdminClient:
    """Create the topic; return an admin client."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    until(lambda: znodes.brokers() == cluster.ids, 30, "all brokers are there")
    new = NewTopic(TOPIC, len(LAYOUT), replica_assignment=LAYOUT)
    create_topics(admin, new)
    return admin


def try_all(proof: Proof, faults: Iterable[tuple[str, Fault]], *, loaded: bool = True) -> int:
    """Try one fault after the other, say how each went; return how many did not hold."""
    wrong = 0
    for name, fault in faults:
        began = time.monotonic()
        try:
            proof.give_office_back()
            proof.elect_preferred()
            proof.settle()
            if loaded:
                proof.await_acks(100)
            facts, verdict = fault(proof), "held"
        except CannotBeTriedError as reason:
            facts, verdict = {"why": str(reason)}, "not tried"
        except (AssertionError, KafkaException, OSError, OttlaError, RuntimeError) as error:
            wrong += 1
            facts, verdict = {"why": f"{type(error).__name__}: {error}"}, "FAILED"
        took = {"took_s": round(time.monotonic() - began, 1)}
        print(json.dumps({"fault": name, "verdict": verdict, **facts, **took}), flush=True)
    return wrong


def lost_or_doubled(
    bootstrap: str, acks: list[Ack], *, topic: str = TOPIC, count: int = len(LAYOUT)
) -> list[str]:
    """Read everything back with another client; return what is wrong."""
    found = read_back(bootstrap, topic=topic, count=count)
    ours = {place: record for place, record in found.items() if record[0] != "elsewhere"}
    return problems(acks, ours)


def judge(proof: Proof, writer: Writer, *, stop: bool = True) -> int:
    """Say what is wrong once the writer has ended; return the number of it.

    Replicas are compared when the brokers are stopped, or (without `stop`) when nobody writes.
    """
    wrong = lost_or_doubled(proof.cluster.bootstrap, writer.acks)
    for line in wrong[:10]:
        print("  " + line)
    print(f"{len(writer.acks)} acknowledged, {writer.failed} not within 60 s")
    proof.settle()
    if stop:
        proof.cluster.stop()
    different = proof.cluster.replica_differences(TOPIC, len(LAYOUT))
    for line in different:
        print("  " + line)
    print("replicas differ" if different else "replicas are equal")
    return len(wrong) + len(different)
