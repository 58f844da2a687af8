"""The kill proof: kill -9 of any one broker during an acks=all produce loses nothing.

Twenty times in a row (`--rounds`), in turn: the leader of most partitions, the controller's
broker, a broker that is neither where there is one. Each round produces all the time, kills,
goes on producing while the broker is dead, reads everything back with another client *while it
is still dead* and checks it, restarts the broker, waits until every ISR is full, reads and
checks again, and at the end of all rounds compares the replicas' logs byte for byte.

A round counts only if at least a tenth of its acknowledgements fell between kill and return.
    python tests/proofs/kill_proof.py --rounds 20
Exit status 0 only if every round held.
"""

import argparse
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from kafka import KafkaConsumer, TopicPartition

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.clients import Load, admin_client, create_topics  # tests are no package
from support.cluster import OttlaCluster, add_zookeeper_option, at_least_one
from support.waiting import until

TOPIC = "proof"
PARTITIONS = 6
logging.getLogger("kafka").setLevel(logging.CRITICAL)


@dataclass
class Ack:
    key: str
    number: int
    partition: int
    offset: int | None
    at: float


@dataclass
class Writer(Load):
    """Produces numbered records at a bounded rate, and remembers what was acknowledged when."""

    bootstrap: str
    rate: int
    numbers: Counter[str]  # the next number per key; goes on across rounds
    topic: str = TOPIC
    keys: int = 24
    request_timeout_ms: int = 30_000
    security: dict[str, Any] = field(default_factory=dict)  # librdkafka's settings
    acks: list[Ack] = field(default_factory=list)
    failed: int = 0
    errors: Counter[str] = field(default_factory=Counter)  # of records that failed, by name

    def __post_init__(self) -> None:
        super().__init__(
            self.bootstrap,
            self.rate,
            linger_ms=2,
            request_timeout_ms=self.request_timeout_ms,
            message_timeout_ms=60_000,
            **self.security,
        )

    def send(self) -> None:
        key = f"k{random.randrange(self.keys)}"
        number = self.numbers[key]
        self.numbers[key] += 1
        try:
            self.producer.produce(
                self.topic,
                key=key,
                value=str(number),
                on_delivery=lambda error, message: self._delivered(error, message, key, number),
            )
        except BufferError:
            self.numbers[key] -= 1
            self.producer.poll(0.05)

    def _delivered(self, error: Any, message: Any, key: str, number: int) -> None:
        if error is not None:
            self.failed += 1
            self.errors[error.name()] += 1
            return
        self.acks.append(Ack(key, number, message.partition(), message.offset(), time.monotonic()))


def read_back(
    bootstrap: str,
    timeout_s: float = 60,
    *,
    topic: str = TOPIC,
    count: int = PARTITIONS,
    **security: Any,
) -> dict[tuple[int, int], tuple[str, int]]:
    """Return every record as (partition, offset) -> (key, number), read with kafka-python."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=5000,
        fetch_max_wait_ms=100,
        **security,
    )
    try:
        partitions = [TopicPartition(topic, p) for p in range(count)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        consumer.seek_to_beginning(*partitions)
        found: dict[tuple[int, int], tuple[str, int]] = {}
        deadline = time.monotonic() + timeout_s
        latest = time.monotonic()
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            if time.monotonic() > deadline:
                left = {tp.partition: ends[tp] - consumer.position(tp) for tp in partitions}
                raise TimeoutError(
                    f"could not read to the end in {timeout_s} s: {left} left, {len(found)} read, "
                    f"the latest {time.monotonic() - latest:.1f} s ago, "
                    f"{time.process_time():.1f} s of processor time since the start"
                )
            for records in consumer.poll(timeout_ms=500).values():
                latest = time.monotonic()
                for record in records:
                    place = (record.partition, record.offset)
                    found[place] = (record.key.decode(), int(record.value))
        return found
    finally:
        consumer.close()


def problems(
    acks: list[Ack],
    found: dict[tuple[int, int], tuple[str, int]],
    sent_anew: Collection[tuple[str, int]] = (),
) -> list[str]:
    """Return what is wrong: lost, duplicated, misplaced or reordered records.

    `sent_anew` is what the client itself sent once more as another record (see MixedCluster).

    Now and then librdkafka takes a batch for acknowledged without knowing its place: sent again
    to a leader that restored its producers from a snapshot, which has the last batch of each only,
    it comes out of order, but below what was acknowledged since. Such a one must stand somewhere.
    """
    wrong = []
    standing = set(found.values())
    for ack in acks:
        if ack.offset is None:
            if (ack.key, ack.number) not in standing:
                wrong.append(f"acknowledged {ack.key}#{ack.number} somewhere: it is nowhere")
            continue
        got = found.get((ack.partition, ack.offset))
        if got != (ack.key, ack.number):
            wrong.append(
                f"acknowledged {ack.key}#{ack.number} at {ack.partition}:{ack.offset}: {got}"
            )
    times = Counter(found.values())
    wrong += [
        f"{key}#{number} stands {n} times"
        for (key, number), n in times.items()
        if n > 1 and (key, number) not in sent_anew
    ]
    last: dict[str, int] = {}
    for place in sorted(found):
        key, number = found[place]
        if number <= last.get(key, -1) and (key, number) not in sent_anew:
            wrong.append(f"{key}#{number} at {place} after {key}#{last[key]}")
        last[key] = number
    return wrong


def longest_silence(acks: list[Ack], since: float, end: float) -> float:
    times = sorted(a.at for a in acks if since <= a.at <= end)
    edges = [since, *times, end]
    return max(b - a for a, b in pairwise(edges))


def choose(round_number: int, admin: AdminClient, cluster: OttlaCluster) -> tuple[int, str]:
    metadata = admin.list_topics(TOPIC, timeout=10)
    leads = Counter(p.leader for p in metadata.topics[TOPIC].partitions.values())
    controller = metadata.controller_id
    most = max(cluster.ids, key=lambda b: (leads[b], -b))
    others = [b for b in cluster.ids if b not in (most, controller)]
    kind = ("most leaders", "controller", "another")[round_number % 3]
    broker = {"most leaders": most, "controller": controller}.get(kind, (others or [most])[0])
    return broker, f"{kind}, led {leads[broker]} of {PARTITIONS}"


def partitions_of(admin: AdminClient) -> list[PartitionMetadata]:
    return list(admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values())


def wait_for_full_isr(admin: AdminClient, replicas: int) -> float:
    """Return how long it took, in seconds."""

    def full() -> bool:
        return all(len(p.isrs) == replicas and p.leader >= 0 for p in partitions_of(admin))

    started = time.monotonic()
    until(full, 60, "every ISR is full")
    return time.monotonic() - started


def create_topic(admin: AdminClient) -> None:
    new = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    create_topics(admin, new)


def one_round(
    number: int,
    cluster: OttlaCluster,
    admin: AdminClient,
    args: argparse.Namespace,
    acks_before: list[Ack],
) -> tuple[dict[str, object], list[str]]:
    broker, why = choose(number, admin, cluster)
    with Writer(cluster.bootstrap, args.rate, args.numbers) as writer:
        time.sleep(args.before)
        killed = time.monotonic()
        cluster.kill(broker)
        time.sleep(args.down)
        stopped = time.monotonic()
    acks = writer.acks
    outage = [a for a in acks if killed < a.at <= stopped]
    alive = ",".join(cluster.address(b) for b in cluster.ids if b != broker)
    everything = acks_before + acks
    wrong = [f"while {broker} is dead: {p}" for p in problems(everything, read_back(alive))]
    assert not cluster.running(broker)
    still = [p for p in partitions_of(admin) if broker in p.isrs]
    if still:
        wrong.append(f"{broker} is dead and stands in the ISR of {len(still)} partitions")
    cluster.start_broker(broker)
    healed = wait_for_full_isr(admin, 3)
    wrong += [f"after {broker} is back: {p}" for p in problems(everything, read_back(alive))]
    if writer.failed:
        wrong.append(f"{writer.failed} records were not acknowledged within 60 s")
    if len(outage) * 10 < max(1, len(acks)):
        wrong.append(f"only {len(outage)} of {len(acks)} acknowledgements fell into the outage")
    facts: dict[str, object] = {
        "round": number + 1,
        "killed": broker,
        "why": why,
        "acked": len(acks),
        "acked_while_dead": len(outage),
        "longest_silence_s": round(longest_silence(acks, killed - 0.5, stopped), 2),
        "isr_full_after_s": round(healed, 2),
        "wrong": len(wrong),
    }
    acks_before.extend(acks)
    return facts, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=at_least_one, default=20)
    parser.add_argument("--rate", type=int, default=1000, help="records a second")
    parser.add_argument("--before", type=float, default=2.0, help="seconds before the kill")
    parser.add_argument("--down", type=float, default=10.0, help="seconds of producing after it")
    parser.add_argument("--dir", type=Path, help="keep the cluster's files here")
    add_zookeeper_option(parser)
    args = parser.parse_args()
    args.numbers = Counter()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        where = args.dir or Path(folder)
        with OttlaCluster(where, brokers=3, zookeeper_server=args.zookeeper) as cluster:
            admin = admin_client(cluster.bootstrap)
            create_topic(admin)
            wait_for_full_isr(admin, 3)
            acks: list[Ack] = []
            for number in range(args.rounds):
                facts, wrong = one_round(number, cluster, admin, args, acks)
                print(json.dumps(facts), flush=True)
                for line in wrong[:10]:
                    print("  " + line, flush=True)
                bad += bool(wrong)
            cluster.stop()
            for line in (differences := cluster.replica_differences(TOPIC, PARTITIONS)):
                print("  " + line)
            bad += bool(differences)
    print(f"{args.rounds} rounds, {len(acks)} acknowledged, {bad} with something wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
