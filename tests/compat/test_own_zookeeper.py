"""Three brokers of Apache Kafka 3.9 on our ZooKeeper server: kills of a broker, of the server.

Then a real ZooKeeper takes the server's files over while the brokers run: they notice no more than
a lost connection.
"""

import json
import subprocess
from collections import Counter

import pytest
from confluent_kafka import KafkaException

from ottla.zookeeper.embedded import start_zookeeper
from support import command_line
from support.clients import Load, admin_client, create_topic, read_to_end
from support.cluster import free_row
from support.own_zookeeper import OwnZooKeeper, kazoo
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]


class Numbers(Load):
    """Produces numbers; remembers which were acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, 1000, message_timeout_ms=90_000)
        self.topic = topic
        self.acked: set[bytes] = set()
        self.errors: list[str] = []
        self._number = 0

    def send(self) -> None:
        self.producer.produce(self.topic, b"%d" % self._number, on_delivery=self._done)
        self._number += 1

    def _done(self, error, message) -> None:
        if error is None:
            self.acked.add(message.value())
        else:
            self.errors.append(str(error))


def registered(address: str) -> dict[str, int]:
    """Return the czxid of each broker's registration."""
    with kazoo(address) as client:
        ids = client.get_children("/brokers/ids")
        return {i: client.exists(f"/brokers/ids/{i}").czxid for i in ids}


def test_jvm_brokers_live_on_our_zookeeper(tmp_path, kafka_tools):
    from support.kafka39 import Kafka39Cluster

    folder = tmp_path / "zookeeper"
    own = OwnZooKeeper(folder / "data")
    port, address = own.port, own.connect_string
    real = None
    try:
        # Sessions last while a ZooKeeper's JVM starts on busy cores, which took over 6 s once.
        with Kafka39Cluster(
            tmp_path / "kafka", 3, zookeeper=address, heap_mb=320, session_timeout_ms=15_000
        ) as kafka:
            admin = admin_client(kafka.bootstrap)
            topic = create_topic(admin, 3, 3, min_insync_replicas="2")

            def leaders() -> Counter[int]:
                found = admin.list_topics(topic, timeout=10).topics[topic].partitions
                return Counter(p.leader for p in found.values())

            with Numbers(kafka.bootstrap, topic) as load:

                def more(count: int) -> None:
                    enough = len(load.acked) + count
                    until(lambda: len(load.acked) > enough, 90, f"{count} more are acknowledged")

                more(1000)
                before = registered(address)
                assert set(before) == {"0", "1", "2"}
                own.kill()
                more(500)  # leaders serve without ZooKeeper
                own = OwnZooKeeper(folder / "data", port)
                with kazoo(address) as client:
                    assert client.exists(f"/brokers/topics/{topic}")
                more(500)
                assert registered(address) == before, "a session did not survive the restart"
                kafka.kill(2)
                until(lambda: leaders().keys() <= {0, 1}, 60, "others lead")
                assert set(registered(address)) == {"0", "1"}
                more(500)
                kafka.start_broker(2)
                assert registered(address)["2"] > before["2"]
                assert own.stop() == 0
                real = start_zookeeper(folder, port, heap_mb=128)
                more(500)
                assert registered(address)["0"] == before["0"]
                # Until the controller's session is at the real one, it fails with UNKNOWN.
                later = until(
                    lambda: create_topic(admin, 1, 3), 60, "a topic is created",
                    despite=(KafkaException,),
                )  # fmt: skip
            assert not load.errors, load.errors[:3]
            values = read_to_end(kafka.bootstrap, topic, 3, "read_committed")
            assert load.acked <= set(values)
            assert len(values) == len(set(values)), "some are there twice"
            assert read_to_end(kafka.bootstrap, later, 1, "read_committed") == []
    finally:
        own.__exit__()
        if real is not None:
            real.kill()


def status(folder) -> dict:
    return json.loads(run(folder, "status", "--output", "json").stdout)


def ottla(folder, *arguments, stdin: str = "", code: int = 0) -> str:
    done = run(folder, *arguments, stdin=stdin)
    assert code == done.returncode, (arguments, done.stderr)
    return done.stdout + done.stderr


def run(folder, *arguments, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return command_line.ottla(*arguments, "--dir", folder, stdin=stdin)


def test_up_goes_from_our_server_to_a_real_one_and_back(tmp_path):
    folder = tmp_path / "cluster"
    base = free_row(4)
    try:
        for number, kind in enumerate(["own", "embedded-java", "own"]):
            chosen = [] if number == 0 else ["--zookeeper", kind]  # the first is the default
            ottla(folder, "up", "-n", 3, "--port-base", base, *chosen)
            until(lambda: status(folder)["healthy"], 60, "all replicas are in sync")
            assert status(folder)["zookeeper_server"] == kind
            assert f"({kind}): up" in ottla(folder, "status")
            if number == 0:
                ottla(folder, "topics", "create", "t", "--partitions", 3)
                other = ottla(folder, "up", "--zookeeper", "embedded-java", code=1)
                assert "stop it first: ottla down" in other
            values = "".join(f"{number}-{i}\n" for i in range(100))
            ottla(folder, "produce", "t", stdin=values)
            ottla(folder, "down")
        ottla(folder, "up")
        read = run(folder, "consume", "t", "--from-beginning", "--max-messages", 300)
        assert set(read.stdout.splitlines()) == {f"{n}-{i}" for n in range(3) for i in range(100)}
    finally:
        ottla(folder, "down")
