"""One broker of Apache Kafka 3.9 shares a cluster with three of ours, under load.

It follows a partition that we lead and leads one that we follow; both sides' logs are equal byte
for byte, Kafka's own ReplicaVerificationTool agrees, and killing it moves its leadership to us.
"""

import re
import subprocess
import threading
from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.clients import Load, admin_client, create_topics
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

TOPIC = "mixed"
JVM = 10
REPLICAS = {0: [0, JVM, 1], 1: [JVM, 1, 2]}


class BothLeaders(Load):
    """Produces to both partitions in turn; counts what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, 2000, message_timeout_ms=60_000)
        self.acked: Counter[int] = Counter()
        self.errors: list[str] = []
        self._number = 0

    def send(self) -> None:
        value, partition = b"%d" % self._number, self._number % 2
        self.producer.produce(TOPIC, value, partition=partition, on_delivery=self._done)
        self._number += 1

    def _done(self, error, message) -> None:
        if error is None:
            self.acked[message.partition()] += 1
        else:
            self.errors.append(str(error))


def partitions(admin: AdminClient):
    return admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions


def verify_replicas(tools, bootstrap: str) -> str:
    """Run ReplicaVerificationTool for some reports; return the last one."""
    command = tools.command(
        "org.apache.kafka.tools.ReplicaVerificationTool", "--broker-list", bootstrap,
        "--topics-include", TOPIC, "--report-interval-ms", "1000", "--time", "-2",
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        killer = threading.Timer(100, process.kill)
        killer.start()
        lines: list[str] = []
        reports = 0
        for raw in process.stdout or ():
            lines.append(raw.decode())
            reports += "max lag is" in lines[-1]
            if reports == 3:
                break
        killer.cancel()
        process.kill()
    assert reports == 3, "".join(lines)
    return "".join(lines)


def test_a_jvm_broker_follows_leads_and_dies(tmp_path, kafka_tools):
    from support.cluster import OttlaCluster
    from support.kafka39 import Kafka39Cluster

    # The load takes both cores: who lives is to keep its session all the same.
    session = {"session_timeout_ms": 10_000}
    with OttlaCluster(tmp_path / "ours", brokers=3, zookeeper_server="java", **session) as ours:
        with Kafka39Cluster(
            tmp_path / "theirs", ids=[JVM], zookeeper=ours.zookeeper, heap_mb=384, **session
        ) as theirs:
            bootstrap = f"{ours.bootstrap},{theirs.bootstrap}"
            admin = admin_client(ours.bootstrap)
            until(
                lambda: JVM in admin.list_topics(timeout=10).brokers, 30, "the JVM broker is known"
            )
            new = NewTopic(
                TOPIC,
                num_partitions=2,
                replica_assignment=[REPLICAS[0], REPLICAS[1]],
                config={"min.insync.replicas": "2"},
            )
            create_topics(admin, new)
            with BothLeaders(bootstrap) as load:
                until(lambda: min(load.acked[0], load.acked[1]) > 2000, 90, "2,000 acked")
                state = partitions(admin)
                assert (state[0].leader, state[1].leader) == (0, JVM)
                assert {len(p.isrs) for p in state.values()} == {3}
                report = verify_replicas(kafka_tools, bootstrap)
                lags = re.findall(r"max lag is (-?\d+)", report)
                assert "differs" not in report.lower(), report
                assert lags, report

                theirs.kill(JVM)
                before = Counter(load.acked)
                until(lambda: partitions(admin)[1].leader in (1, 2), 40, "we lead partition 1")
                until(
                    lambda: all(load.acked[p] > before[p] + 500 for p in (0, 1)),
                    60,
                    "producing goes on without it",
                )
                theirs.start_broker(JVM)
                until(
                    lambda: all(len(p.isrs) == 3 for p in partitions(admin).values()),
                    60,
                    "the JVM broker is back in both ISRs",
                )
            assert not load.errors, load.errors[:5]
            report = verify_replicas(kafka_tools, bootstrap)
            assert "max lag is 0 " in report.splitlines()[-1], report
            theirs.terminate(JVM)
        ours.stop()
        for partition, replicas in REPLICAS.items():
            folders = [(theirs if b == JVM else ours).data(b) for b in replicas]
            logs = [
                b"".join(p.read_bytes() for p in sorted((f / f"{TOPIC}-{partition}").glob("*.log")))
                for f in folders
            ]
            assert logs[0] == logs[1] == logs[2], [len(log) for log in logs]
            assert len(logs[0]) > 10_000
