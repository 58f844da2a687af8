"""The sink proof: each row is in the topic once, although processes die while a stream writes.

Brokers and drivers are real processes. A stream copies a topic into another by format("ottla") on
both sides. The driver is killed with kill -9 twice, each time while transactions are open; in its
last run an executor (on a local cluster of Spark) and two brokers, one after the other. Then
librdkafka, with read_committed, counts what stands in the target.
    python tests/proofs/sink_proof.py --records 300000
    python tests/proofs/sink_proof.py --records 300000 --kafka 4.4
Exit status 0 only if nothing is lost and nothing stands twice.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from ottla.model.ids import TopicPartition
from ottla.model.protocol import LATEST
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.options import parse_options
from support.clients import named
from support.cluster import OttlaCluster, add_zookeeper_option, at_least_one
from support.kafka39 import Kafka39Cluster
from support.kafka41 import Kafka44Cluster
from support.replayed import descendants, read_all

SOURCE, TARGET = "proof-rows", "proof-sink"
PARTITIONS = 4
SETTINGS = {
    "offsets_topic_num_partitions": "3",
    "transaction_state_log_num_partitions": "3",
    "default_replication_factor": "3",
}
SINKING = Path(__file__).parents[1] / "support" / "sinking.py"
EXECUTORS = "local-cluster[2,1,1024]"
TIMEOUT_S = 900


def create(cluster, topic):
    subprocess.run(
        [sys.executable, "-m", "ottla", "topics", "create", topic, "--partitions", str(PARTITIONS),
         "--replication-factor", "3", "--config", "min.insync.replicas=1",
         "--bootstrap-server", cluster.bootstrap],
        check=True, timeout=90,
    )  # fmt: skip


def send(cluster, count):
    from confluent_kafka import Producer

    producer = Producer(named(cluster.bootstrap, {"acks": "all", "linger_ms": 20}))
    for n in range(count):
        while True:
            try:
                producer.produce(SOURCE, b"row %d" % n, b"k%d" % n, partition=n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0


class Stream:
    """The process, and how far it is: seen from the brokers and in Spark's checkpoint."""

    def __init__(self, cluster, folder, per_batch, master="local[2]"):
        self.checkpoint = folder / "checkpoint"
        self.told = (folder / "told").open("ab")
        command = [
            sys.executable, str(SINKING), cluster.bootstrap, SOURCE, TARGET, str(self.checkpoint),
            str(per_batch), master,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdout=self.told, stderr=self.told, start_new_session=True
        )
        options = {"bootstrap": cluster.bootstrap, "subscribePattern": ".*"}
        self._asking = Cluster(parse_options(options))

    @property
    def batches(self):
        return len(list((self.checkpoint / "commits").glob("[0-9]*")))

    def open_transaction(self):
        asked = {TopicPartition(TARGET, p): LATEST for p in range(PARTITIONS)}
        ends = self._asking.offsets(asked)
        stable = self._asking.offsets(asked, committed=True)
        return any(stable[tp].offset < ends[tp].offset for tp in asked)

    def wait(self, moment):
        """Return whether a moment came while the stream ran."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None:
            if moment():
                return True
            assert time.monotonic() < deadline, "the moment did not come"
            time.sleep(0.002)
        return False

    def kill(self):
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)
        self._asking.close()
        self.told.close()


def killed_driver(cluster, folder, per_batch, more):
    """Kill a driver after some micro-batches more, while a transaction is open."""
    stream = Stream(cluster, folder, per_batch)
    wanted = stream.batches + more
    try:
        seen = stream.wait(lambda: stream.batches >= wanted and stream.open_transaction())
    finally:
        facts = {"driver_killed_at": stream.batches}
        stream.kill()
    assert seen, f"the stream ended before it was killed: {(folder / 'told').read_text()[-2000:]}"
    return facts


def last_run(cluster, folder, per_batch, *, brokers):
    """Run to the end; kill an executor and brokers meanwhile."""
    stream = Stream(cluster, folder, per_batch, EXECUTORS)
    facts = {"executor_killed": None, "brokers_killed": []}
    wanted = stream.batches + 1
    try:
        if stream.wait(lambda: stream.batches >= wanted and stream.open_transaction()):
            executors = descendants(stream.process.pid, b"CoarseGrainedExecutorBackend")
            os.kill(executors[-1], signal.SIGKILL)
            facts["executor_killed"] = executors[-1]
        for broker in brokers:
            at = stream.batches
            if stream.wait(lambda at=at: stream.batches > at and stream.open_transaction()):
                cluster.kill(broker)
                facts["brokers_killed"].append(broker)
                until = stream.batches + 1
                restart = threading.Timer(8, cluster.start_broker, (broker,), {"wait": False})
                restart.start()
                stream.wait(lambda until=until: stream.batches >= until)
                restart.join()
                cluster.wait(broker)
        stream.process.wait(TIMEOUT_S)
        code = stream.process.returncode
        assert code == 0, (folder / "told").read_text()[-3000:]
    finally:
        facts["micro_batches"] = stream.batches
        stream.kill()
    return facts


def judged(cluster, count):
    """Return what a stranger counts in the target."""
    times = Counter(r.value for r in read_all(cluster.bootstrap, TARGET, timeout_s=300))
    wanted = {b"copy of row %d" % n for n in range(count)}
    return {
        "records": sum(times.values()),
        "lost": len(wanted - times.keys()),
        "doubled": sum(n > 1 for n in times.values()),
        "foreign": len(times.keys() - wanted),
    }


def proof(cluster, folder, count, *, drivers=2, brokers=(1, 2)):
    """Return what happened, and what was counted."""
    create(cluster, SOURCE)
    create(cluster, TARGET)
    send(cluster, count)
    per_batch = max(count // 10, 1_000)
    facts = [killed_driver(cluster, folder, per_batch, 2) for n in range(drivers)]
    if brokers:
        facts.append(last_run(cluster, folder, per_batch, brokers=brokers))
    else:
        stream = Stream(cluster, folder, per_batch)
        try:
            assert stream.process.wait(TIMEOUT_S) == 0, (folder / "told").read_text()[-2000:]
        finally:
            stream.kill()
    return facts, judged(cluster, count)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=at_least_one, default=300_000)
    parser.add_argument("--kafka", choices=("3.9", "4.4"), help="on Apache Kafka's brokers")
    add_zookeeper_option(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.kafka is None:
            made = OttlaCluster(
                folder / "cluster", brokers=3, zookeeper_server=args.zookeeper, **SETTINGS
            )
        else:
            kind = {"3.9": Kafka39Cluster, "4.4": Kafka44Cluster}[args.kafka]
            made = kind(folder / "cluster", brokers=3, **SETTINGS)
        with made as cluster:
            facts, counted = proof(cluster, folder, args.records)
    for one in facts:
        print(json.dumps(one), flush=True)
    print(json.dumps({"sent": args.records, **counted}), flush=True)
    wrong = counted["lost"] or counted["doubled"] or counted["foreign"]
    return 1 if wrong or counted["records"] != args.records else 0


if __name__ == "__main__":
    sys.exit(main())
