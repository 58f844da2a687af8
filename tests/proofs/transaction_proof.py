"""The transaction proof: consume, transform and produce, exactly once, whoever is killed.

Copiers (processes of their own) read a topic as one group, and write what they make of it and the
group's offsets in one transaction each. Meanwhile kill -9 hits, in turn, the broker that
coordinates a copier's transactions, the one that coordinates the group, the one that leads most
of the topic, and a copier. In the end each record read must stand in the other topic exactly once:
by count, by digest, and by place (`partition:offset` of what it was made of).
    python tests/proofs/transaction_proof.py --rounds 12
Exit status 0 only if that holds.
"""

import argparse
import faulthandler
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).parents[1]))
from ottla.admin.session import connected
from ottla.wire.messages.groups import FindCoordinatorRequest
from support.clients import (  # tests are no package
    Load,
    admin_client,
    create_topics,
    named,
    read_ended,
)
from support.cluster import OttlaCluster, add_zookeeper_option, at_least_one
from support.waiting import until

SOURCE, TARGET, GROUP = "proof-in", "proof-out", "proof-copiers"
PARTITIONS = 6
BATCH = 200
RESTART = 3
"""Exit status of a copier that was fenced, or that cannot go on with what it has."""
HANGS_S = 25
"""A copier whose transaction takes longer ends, and another takes over: in librdkafka 2.16 and
before, send_offsets_to_transaction may never return, whatever its timeout, where the broker that
coordinated the group has left the cluster (its issues 5456 and 5511)."""

SETTINGS = {
    "offsets_topic_num_partitions": "3",
    "transaction_state_log_num_partitions": "6",
    "group_initial_rebalance_delay_ms": "0",
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "1000",
}


def made_of(partition: int, offset: int, value: bytes) -> bytes:
    """Return what a copier makes of a record."""
    return b"%d:%d:%s" % (partition, offset, hashlib.sha256(value).hexdigest().encode())


# --- a copier ---------------------------------------------------------------------------------


def copy(bootstrap: str, transactional_id: str, abort_every: int) -> int:
    """Copy until SIGTERM; RESTART when a new copier is to take over."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    settings = {
        "group_id": GROUP,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "session_timeout_ms": 6000,
    }
    consumer = Consumer(named(bootstrap, settings))
    settings = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": 15_000,
        "linger_ms": 5,
    }
    producer = Producer(named(bootstrap, settings))
    done = 0
    try:
        producer.init_transactions(60)
        consumer.subscribe([SOURCE])
        while not stopping.is_set():
            records = [m for m in consumer.consume(BATCH, 0.2) if not m.error()]
            if not records:
                continue
            done += 1
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            try:
                one_transaction(producer, consumer, records, abort=done % abort_every == 0)
            except KafkaException as failure:
                error = failure.args[0]
                print(f"{transactional_id}: {error}", flush=True)
                if error.fatal() or not (error.txn_requires_abort() or error.retriable()):
                    return RESTART
                producer.abort_transaction(60)
                rewind(consumer)
            finally:
                faulthandler.cancel_dump_traceback_later()
    except KafkaException as failure:
        print(f"{transactional_id}: gives up: {failure}", flush=True)
        return RESTART
    consumer.close()
    return 0


def one_transaction(
    producer: Producer, consumer: Consumer, records: list[Any], *, abort: bool
) -> None:
    producer.begin_transaction()
    for m in records:
        producer.produce(
            TARGET,
            made_of(m.partition(), m.offset(), m.value()),
            partition=(m.partition() + m.offset()) % PARTITIONS,
        )
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(
        [p for p in positions if p.offset >= 0], consumer.consumer_group_metadata(), 30
    )
    if abort:
        producer.flush(30)  # so that the brokers have something to abort
        producer.abort_transaction(60)
        rewind(consumer)
    else:
        producer.commit_transaction(60)


def rewind(consumer: Consumer) -> None:
    """Go back to what is committed: what was read since is to be read again."""
    for tp in consumer.committed(consumer.assignment(), timeout=30):
        consumer.seek(TopicPartition(tp.topic, tp.partition, max(tp.offset, 0)))


class Copiers:
    """The copiers' processes, each kept alive under its transactional id."""

    def __init__(self, bootstrap: str, count: int, folder: Path, abort_every: int) -> None:
        self.bootstrap = bootstrap
        self.ids = [f"copier-{n}" for n in range(count)]
        self.restarts: Counter[str] = Counter()
        self._folder = folder
        self._abort_every = abort_every
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._over = threading.Event()

    def __enter__(self) -> Self:
        for name in self.ids:
            self._start(name)
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._keeper.join(10)
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def _start(self, name: str) -> None:
        with (self._folder / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [sys.executable, __file__, "--copier", name, "--bootstrap", self.bootstrap,
                 "--abort-every", str(self._abort_every)],
                stdout=out,
                stderr=out,
            )  # fmt: skip

    def _keep(self) -> None:
        while not self._over.wait(0.2):
            for name, process in list(self._processes.items()):
                if process.poll() is not None:
                    self.restarts[name] += 1
                    self._start(name)

    def kill(self, name: str) -> None:
        os.kill(self._processes[name].pid, signal.SIGKILL)


# --- what is copied, and how it is checked ------------------------------------------------------


class Source(Load):
    """Fills the topic that is read; keeps what was acknowledged."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        super().__init__(bootstrap, rate)
        self.written: dict[tuple[int, int], bytes] = {}
        self.failed = 0
        self._number = 0

    def send(self) -> None:
        self.producer.produce(
            SOURCE,
            b"%d" % self._number,
            partition=self._number % PARTITIONS,
            on_delivery=self._delivered,
        )
        self._number += 1

    def _delivered(self, error: object, message: Any) -> None:
        if error is not None:
            self.failed += 1
        else:
            self.written[message.partition(), message.offset()] = message.value()


def problems(written: dict[tuple[int, int], bytes], values: list[bytes]) -> list[str]:
    """Return what is wrong: lost, doubled or altered records."""
    expected = {made_of(p, o, value) for (p, o), value in written.items()}
    found = Counter(values)
    wrong = [f"{value!r} stands {n} times" for value, n in found.items() if n > 1]
    wrong += [f"lost: {value!r}" for value in sorted(expected - found.keys())]
    wrong += [f"made of nothing: {value!r}" for value in sorted(found.keys() - expected)]
    if digest(expected) != digest(values):
        wrong.append("the digests differ")
    return wrong


def digest(values: Any) -> str:
    """Return a digest of values in whatever order."""
    total = sum(int.from_bytes(hashlib.sha256(v).digest(), "big") for v in values)
    return f"{total % 2**256:064x}"


def wait_until_copied(
    bootstrap: str, written: dict[tuple[int, int], bytes], timeout_s: float
) -> None:
    """Wait until the group has committed all that was written."""
    ends = {p: 1 + max(o for q, o in written if q == p) for p in {p for p, _ in written}}
    watcher = Consumer(named(bootstrap, {"group_id": GROUP}))
    left: dict[int, int] = {}

    def copied() -> bool:
        found = watcher.committed([TopicPartition(SOURCE, p) for p in ends], timeout=10)
        left.update({tp.partition: ends[tp.partition] - tp.offset for tp in found})
        return not any(left.values())

    try:
        until(copied, timeout_s, lambda: f"copied; left: {left}", despite=(KafkaException,))
    finally:
        watcher.close()


# --- the rounds ---------------------------------------------------------------------------------


def coordinator(bootstrap: str, key: str, kind: int) -> int:
    """Return the broker that coordinates a group (kind 0) or a transactional id (kind 1)."""
    request = FindCoordinatorRequest(key_type=kind, key=key)

    def found() -> int:
        answer = connected(bootstrap, lambda client: client.call(request, version=2))
        return 0 if answer.error_code else answer.node_id + 1

    return until(found, 30, f"{key} has a coordinator") - 1


def choose(number: int, cluster: OttlaCluster, admin: AdminClient, copiers: Copiers) -> Any:
    """Return who dies in a round, a broker's id or a copier's name, and why."""
    name = copiers.ids[number % len(copiers.ids)]
    kind = number % 4
    if kind == 0:
        return coordinator(cluster.bootstrap, name, 1), f"coordinates transactions of {name}"
    if kind == 1:
        return name, "a copier"
    if kind == 2:
        return coordinator(cluster.bootstrap, GROUP, 0), "coordinates the group"
    partitions = admin.list_topics(TARGET, timeout=10).topics[TARGET].partitions.values()
    return Counter(p.leader for p in partitions).most_common(1)[0][0], "leads most"


def wait_for_full_isr(admin: AdminClient) -> None:
    topics = (SOURCE, TARGET, "__consumer_offsets", "__transaction_state")

    def full() -> bool:
        found = admin.list_topics(timeout=10).topics
        if not found.keys() >= set(topics):  # a copier that starts late makes the last of them
            return False
        partitions = [p for t in topics for p in found[t].partitions.values()]
        return all(len(p.isrs) == len(p.replicas) and p.leader >= 0 for p in partitions)

    until(full, 60, "every ISR is full", despite=(KafkaException,))


def prove(args: argparse.Namespace, folder: Path) -> int:
    with OttlaCluster(
        folder,
        brokers=3,
        zookeeper_server=args.zookeeper,
        session_timeout_ms=args.session_timeout,
        **SETTINGS,
    ) as cluster:
        admin = admin_client(cluster.bootstrap)
        config = {"min.insync.replicas": "2"}
        topics = [NewTopic(t, PARTITIONS, 3, config=config) for t in (SOURCE, TARGET)]
        create_topics(admin, *topics)
        started = time.monotonic()
        with (
            Source(cluster.bootstrap, args.rate) as source,
            Copiers(cluster.bootstrap, args.copiers, folder, args.abort_every) as copiers,
        ):
            time.sleep(args.before)
            for number in range(args.rounds):
                one_round(number, args, cluster, admin, copiers)
            source.__exit__()
            wait_until_copied(cluster.bootstrap, source.written, 120)
        took_s = time.monotonic() - started
        values = read_ended(cluster.bootstrap, TARGET, PARTITIONS, timeout_s=90)
        wrong = problems(source.written, values)
        summary = {
            "rounds": args.rounds,
            "read": len(source.written),
            "committed": len(values),
            "digest": digest(values)[:16],
            "copiers_started_again": sum(copiers.restarts.values()),
            "took_s": round(took_s, 1),
            "wrong": wrong[:10],
        }
        print(json.dumps(summary), flush=True)
        if not source.written or wrong:
            print(f"NOT exactly once: {len(wrong)} problems", flush=True)
            return 1
    print("exactly once", flush=True)
    return 0


def one_round(
    number: int,
    args: argparse.Namespace,
    cluster: OttlaCluster,
    admin: AdminClient,
    copiers: Copiers,
) -> None:
    victim, why = choose(number, cluster, admin, copiers)
    print(f"round {number}: kill -9 {victim} ({why})", flush=True)
    if isinstance(victim, str):
        copiers.kill(victim)
        time.sleep(args.after)
        return
    cluster.kill(victim)
    time.sleep(args.down)
    cluster.start_broker(victim)
    wait_for_full_isr(admin)
    time.sleep(args.after)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=at_least_one, default=4)
    parser.add_argument("--rate", type=int, default=1500, help="records a second")
    parser.add_argument("--copiers", type=int, default=2)
    parser.add_argument("--abort-every", type=int, default=7, help="each so many'th on purpose")
    parser.add_argument("--before", type=float, default=6.0, help="seconds before the first kill")
    parser.add_argument("--down", type=float, default=6.0, help="seconds a broker stays dead")
    parser.add_argument("--after", type=float, default=3.0, help="seconds after each return")
    parser.add_argument("--session-timeout", type=int, default=4000, help="ms, to ZooKeeper")
    parser.add_argument("--keep", type=Path, help="folder for logs and data; kept")
    parser.add_argument("--copier", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    add_zookeeper_option(parser)
    args = parser.parse_args()
    if args.copier:
        return copy(args.bootstrap, args.copier, args.abort_every)
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
        return prove(args, args.keep)
    with tempfile.TemporaryDirectory(prefix="ottla-transactions-") as folder:
        return prove(args, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
