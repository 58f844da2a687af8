"""How fast records get from one cluster to another: the replay job beside what else does that.

    python benchmarks/replay.py [--records 1000000] [--bytes 300] [--rounds 2] [--way …]
Two brokers of ours, one for each cluster, a topic of four partitions, lz4. Each way runs as a
process of its own, in turn; between, the machine is left to it. The speed is that of the target's
growth, from its first record to its last, as somebody sees it who asks for its ends: so programs'
starts and the check after the copy do not count, and `with_start_s` has all of it. The ways:
- replay: exactly once, bytes as they are, with the check; also without, and as rows with a filter
- librdkafka, at least once: a consumer and an idempotent producer in a loop of Python
- librdkafka, exactly once: the same in transactions that carry the offsets along
- Kafka's MirrorMaker (version 1, with Kafka 3.9), at least once, two streams
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from processor_time import BROKER, Watch, below

from ottla.model.ids import TopicPartition
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.options import LATEST, parse_options
from support import kafka_tools
from support.cluster import OttlaCluster

PARTITIONS = 4
LONGEST_S = 600
ENDED_S = 30
"""So long after the last growth of the target nothing more is waited for, the check aside."""
LOOP = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition, KafkaError
source, target, topic, to, partitions, transactions = sys.argv[1:]
base = {"log_level": 0}
consumer = Consumer({**base, "bootstrap.servers": source, "group.id": "copy-" + to,
    "enable.auto.commit": False, "enable.partition.eof": True, "fetch.message.max.bytes": 8 << 20,
    "isolation.level": "read_committed", "queued.max.messages.kbytes": 65536})
own = {"transactional.id": "copy-" + to} if transactions == "true" else {"enable.idempotence": True}
producer = Producer({**base, "bootstrap.servers": target, "linger.ms": 20, "batch.size": 262144,
    "compression.type": "lz4", "queue.buffering.max.messages": 500000, "acks": "all", **own})
places = [TopicPartition(topic, p, 0) for p in range(int(partitions))]
consumer.assign(places)
def commit():
    # The group is one of the target: its offsets are committed with the records.
    offsets = [TopicPartition(to, p.partition, p.offset) for p in consumer.position(places)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)

if transactions == "true":
    producer.init_transactions(30)
    producer.begin_transaction()
ended, count, since = 0, 0, 0
while ended < len(places):
    for message in consumer.consume(10000, 0.2):
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended += 1
            continue
        while True:
            try:
                producer.produce(to, message.value(), message.key(), partition=message.partition(),
                                 headers=message.headers(), timestamp=message.timestamp()[1])
                break
            except BufferError:
                producer.poll(0.05)
        since += 1
    producer.poll(0)
    if transactions == "true" and since >= 40000:
        commit()
        producer.begin_transaction()
        since = 0
assert producer.flush(60) == 0
if transactions == "true":
    commit()
"""


@dataclass(frozen=True, slots=True)
class Copied:
    """What a way took."""

    first_s: float
    """Until the first record was there."""
    last_s: float
    ended_s: float
    seconds: dict[str, float]
    """Of processor time: Java, Python's workers, the driver."""


class Ends:
    """Asks a cluster how many offsets a topic has."""

    def __init__(self, bootstrap: str) -> None:
        options = {"bootstrap": bootstrap, "subscribePattern": ".*"}
        self._cluster = Cluster(parse_options(options))

    def of(self, topic: str) -> int:
        asked = {TopicPartition(topic, p): LATEST for p in range(PARTITIONS)}
        return sum(one.offset for one in self._cluster.offsets(asked).values())


def create(bootstrap: str, topic: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "ottla", "topics", "create", topic, "--partitions", str(PARTITIONS),
         "--replication-factor", "1", "--bootstrap-server", bootstrap],
        check=True, timeout=60, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def fill(bootstrap: str, topic: str, records: int, size: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4",
         "batch.size": 262_144, "queue.buffering.max.messages": 500_000}
    )  # fmt: skip
    # Half random, so that it compresses about as JSON does.
    values = [(os.urandom(size // 4).hex() + "x" * size)[:size].encode() for _ in range(1000)]
    for n in range(records):
        while True:
            try:
                producer.produce(topic, values[n % 1000], b"k%d" % n, partition=n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def command(
    way: str, source: OttlaCluster, target: OttlaCluster, topic: str, to: str, folder: Path
) -> list[str]:
    """Return what copies `topic` to `to`."""
    if way.startswith("librdkafka"):
        exactly = str(way.endswith("exactly once")).lower()
        where = [source.bootstrap, target.bootstrap]
        return [sys.executable, "-c", LOOP, *where, topic, to, str(PARTITIONS), exactly]
    if way == "MirrorMaker":
        consumer, producer = folder / "consumer.properties", folder / "producer.properties"
        consumer.write_text(
            f"bootstrap.servers={source.bootstrap}\ngroup.id=mirror-{to}\n"
            "auto.offset.reset=earliest\nmax.partition.fetch.bytes=8388608\n"
        )
        producer.write_text(
            f"bootstrap.servers={target.bootstrap}\ncompression.type=lz4\nlinger.ms=20\n"
            "batch.size=262144\nacks=all\n"
        )
        return [
            kafka_tools.java() or "java", "-Xmx512m", "-cp", f"{kafka_tools.libs()}/*",
            "kafka.tools.MirrorMaker", "--consumer.config", str(consumer),
            "--producer.config", str(producer), "--include", topic, "--num.streams", "2",
        ]  # fmt: skip
    sets = {
        "source.bootstrap_servers": source.bootstrap,
        "target.bootstrap_servers": target.bootstrap,
        "replay.topic": topic,
        "replay.to": to,
    }
    if way == "replay, no check":
        sets["replay.check"] = "false"
    if way == "replay, rows":
        sets["replay.filter"] = "value is not null"
    arguments = [x for key, value in sets.items() for x in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "ottla", "pipeline", "replay", "--master", "local[2]", *arguments]


def copied(words: list[str], ends: Ends, to: str, records: int) -> Copied:
    """Run a way; AssertionError if not all records get there."""
    began = time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as out,
        subprocess.Popen(words, stdout=out, stderr=out) as process,
    ):
        watch = Watch(process.pid)
        first = last = 0.0
        seen = 0
        try:
            while time.monotonic() - began < LONGEST_S:
                ended = process.poll() is not None
                count = ends.of(to)
                now = time.monotonic() - began
                if count and not seen:
                    first = now
                if count != seen:
                    seen, last = count, now
                late = seen > 0 and now - last > ENDED_S
                if ended or (seen >= records and "kafka.tools.MirrorMaker" in words) or late:
                    break
                time.sleep(0.02)
        finally:
            used = watch.end()
            process.terminate()
            process.wait(30)
        out.seek(0)
        assert seen >= records, f"{seen} of {records}: {out.read()[-2000:]}"
    seconds = {"java": used.java, "workers": used.workers, "python": used.driver}
    return Copied(first, last, time.monotonic() - began, seconds)


def broker_seconds() -> float:
    return sum(p.seconds for p in below(os.getpid()).values() if p.kind == BROKER)


WAYS = [
    "replay", "replay, no check", "replay, rows", "librdkafka, at least once",
    "librdkafka, exactly once", "MirrorMaker",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--way", choices=WAYS, nargs="+", default=WAYS)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        OttlaCluster(
            Path(folder) / "source", brokers=1, offsets_topic_replication_factor="1"
        ) as source,
        OttlaCluster(
            Path(folder) / "target",
            brokers=1,
            transaction_state_log_num_partitions="4",
            transaction_state_log_replication_factor="1",
            transaction_state_log_min_isr="1",
            offsets_topic_replication_factor="1",
        ) as target,
    ):
        ends = Ends(target.bootstrap)
        for number in range(args.rounds):
            topic = f"records-{number}"
            create(source.bootstrap, topic)
            fill(source.bootstrap, topic, args.records, args.bytes)
            for at, way in enumerate(args.way):
                if way == "MirrorMaker" and (why := kafka_tools.why_not()):
                    print(json.dumps({"way": way, "left_out": why}), flush=True)
                    continue
                to = topic if way == "MirrorMaker" else f"copy-{number}-{at}"
                create(target.bootstrap, to)
                load, before = os.getloadavg()[0], broker_seconds()
                words = command(way, source, target, topic, to, Path(folder))
                found = copied(words, ends, to, args.records)
                per_record = 1e6 / args.records
                told = {
                    "way": way,
                    "round": number + 1,
                    "records_per_s": round(args.records / (found.last_s - found.first_s)),
                    "first_s": round(found.first_s, 1),
                    "with_start_s": round(found.ended_s, 1),
                    "us_per_record": {
                        **{k: round(v * per_record, 1) for k, v in found.seconds.items()},
                        "brokers": round((broker_seconds() - before) * per_record, 1),
                    },
                    "load": round(load, 1),
                }
                print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
