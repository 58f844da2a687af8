"""Throughput over SSL and SASL_SSL, handshakes a second, beside Apache Kafka 3.9 and PLAINTEXT.

One broker of each kind at a time, the same certificates (ECDSA P-256), the same clients: librdkafka
produces 100-byte records with acks=all, then reads them all; then processes of Python's ssl connect
and shake hands as often as they can, each time without a session to resume.
    python benchmarks/security.py [--only ottla|kafka39] [--records 1000000] [--times 3]
        [--handshakes 5] [--protocols PLAINTEXT,SSL,SASL_SSL]
SASL_SSL is a listener of its own with SASL/PLAIN. Systems take turns. The medians are printed, with
all figures before them. Each wait is bounded.
"""

import argparse
import multiprocessing
import socket
import ssl
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.certificates import Authority
from support.clients import create_topics
from support.cluster import free_ports
from support.sasl_clusters import PLAIN
from support.secured import HOST, SecuredCluster, SecuredKafka

USER, PASSWORD = "bench", "bench-secret"
VALUE = b"x" * 100
CLIENTS = 2
LONGEST_S = 120.0
KINDS = ("ottla", "kafka39")


class WithSasl:
    """Brokers with one listener more: SASL, which is SASL_SSL."""

    sasl_port = 0

    def properties(self, broker: int) -> dict[str, str]:
        found: dict[str, str] = super().properties(broker)  # type: ignore[misc]
        jaas = f'{PLAIN} required username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
        protocols = found["listener.security.protocol.map"]
        return found | {
            "listeners": f"{found['listeners']},SASL://{HOST}:{self.sasl_port}",
            "listener.security.protocol.map": f"{protocols},SASL:SASL_SSL",
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": jaas,
        }


class Ottla(WithSasl, SecuredCluster):
    """One broker of ours with PLAINTEXT, SSL and SASL_SSL."""


class Kafka(WithSasl, SecuredKafka):
    """One broker of Apache Kafka with the same."""


def settings(cluster: Any, protocol: str) -> dict[str, Any]:
    """Return how a client reaches a listener."""
    if protocol == "PLAINTEXT":
        return {"bootstrap.servers": cluster.bootstrap, "log_level": 2}
    found: dict[str, Any] = cluster.tls.client(log_level=2)
    if protocol == "SASL_SSL":
        found |= {
            "bootstrap.servers": f"{HOST}:{cluster.sasl_port}",
            "security.protocol": protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    return found


def produced(client: dict[str, Any], topic: str, count: int) -> float:
    """Produce records; return how many a second."""
    more = {"acks": "all", "linger.ms": 10, "batch.size": 262_144}
    more["queue.buffering.max.messages"] = 500_000
    producer = Producer(client | more)
    failed: list[Any] = []
    began = time.monotonic()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, VALUE)
                break
            except BufferError:
                producer.poll(0.05)
        if not number % 10_000:
            producer.poll(0)
    left = producer.flush(LONGEST_S)
    took_s = time.monotonic() - began
    if left or failed:
        raise RuntimeError(f"{left} records were not acknowledged")
    return count / took_s


def consumed(client: dict[str, Any], topic: str, count: int) -> float:
    """Read a topic from its beginning; return how many records a second."""
    more = {"group.id": "none", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    more |= {"queued.min.messages": 1_000_000, "fetch.message.max.bytes": 4_194_304}
    reader = Consumer(client | more)
    reader.assign([TopicPartition(topic, 0, 0)])
    found = 0
    began = time.monotonic()
    while found < count:
        found += len(reader.consume(10_000, 1.0))
        if time.monotonic() - began > LONGEST_S:
            raise RuntimeError(f"{found} of {count} records came")
    took_s = time.monotonic() - began
    reader.close()
    return count / took_s


def _shaking(port: int, ca: str, seconds: float, results: Any) -> None:
    context = ssl.create_default_context(cafile=ca)
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        with (
            socket.create_connection((HOST, port), 10) as raw,
            context.wrap_socket(raw, server_hostname=HOST),
        ):
            count += 1
    results.put(count)


def handshakes(cluster: Any, seconds: float) -> float:
    """Return the handshakes a second of some clients that do nothing else."""
    results: Any = multiprocessing.Queue()
    arguments = (cluster.tls.ssl_ports[0], str(cluster.tls.authority.pem), seconds, results)
    clients = [multiprocessing.Process(target=_shaking, args=arguments) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    total = sum(results.get(timeout=seconds + 30) for _ in clients)
    for client in clients:
        client.join(10)
    return total / seconds


def measured(kind: str, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Start one broker, measure it, stop it."""
    authority = Authority(folder / "certificates")
    more = {
        "max_connection_creation_rate": "1000000",
        "offsets_topic_replication_factor": "1",
        "log_retention_check_interval_ms": "3600000",
    }
    cluster: Any = (
        Ottla(folder / kind, authority, 1, **more)
        if kind == "ottla"
        else Kafka(folder / kind, authority, [0], heap_mb=1024, **more)
    )
    cluster.sasl_port = free_ports(1)[0]
    found: dict[str, float] = {}
    with cluster:
        admin = AdminClient(settings(cluster, "PLAINTEXT"))
        for protocol in options.protocols.split(","):
            client, topic = settings(cluster, protocol), f"bench-{protocol.lower()}"
            create_topics(admin, NewTopic(topic, 1, 1))
            produced(client, topic, options.records // 4)  # a JVM is slow at first
            found[f"produce {protocol}"] = produced(client, topic, options.records)
            found[f"consume {protocol}"] = consumed(client, topic, options.records)
        if options.handshakes:
            handshakes(cluster, 1.0)
            found["handshakes"] = handshakes(cluster, options.handshakes)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--handshakes", type=float, default=5.0, help="seconds")
    parser.add_argument("--protocols", default="PLAINTEXT,SSL,SASL_SSL")
    options = parser.parse_args()
    kinds = [options.only] if options.only else list(KINDS)
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(options.times):
        for kind in kinds:
            with tempfile.TemporaryDirectory() as folder:
                found = measured(kind, Path(folder), options)
            results[kind].append(found)
            print(kind, *(f"{name}={value:,.0f}/s" for name, value in found.items()), flush=True)
    print("| median, a second |", " | ".join(kinds), "|")
    print("|---|" + "---:|" * len(kinds))
    for name in results[kinds[0]][0]:
        medians = [statistics.median(r[name] for r in results[kind]) for kind in kinds]
        print(f"| {name} |", " | ".join(f"{median:,.0f}" for median in medians), "|")


if __name__ == "__main__":
    main()
