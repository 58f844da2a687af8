"""Clusters whose brokers meet, and serve clients, over TLS; a listener in the clear is the test's.

Each broker has PLAINTEXT (for the test to ask), SSL (for clients and brokers) and, with `mtls`, a
listener CLIENTS that asks for certificates.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from support.certificates import Authority, Identity
from support.cluster import OttlaCluster, free_ports
from support.kafka39 import Kafka39Cluster
from support.waiting import until

HOST = "127.0.0.1"


class Listeners:
    """The addresses and settings of brokers with TLS, each with a certificate of its own."""

    def __init__(self, authority: Authority, ids: list[int], **settings: str) -> None:
        self.authority = authority
        count = len(ids)
        ports = free_ports(2 * count)
        self.ssl_ports = dict(zip(ids, ports[:count], strict=True))
        self.mtls_ports = dict(zip(ids, ports[count:], strict=True))
        self.identities: dict[int, Identity] = {
            broker: authority.issue(f"broker-{broker}", common_name=f"broker-{broker}")
            for broker in ids
        }
        self.settings = settings

    def properties(self, broker: int, plaintext: str) -> dict[str, str]:
        listeners = (
            f"PLAINTEXT://{plaintext},SSL://{HOST}:{self.ssl_ports[broker]},"
            f"CLIENTS://{HOST}:{self.mtls_ports[broker]}"
        )
        return {
            "listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CLIENTS:SSL",
            "inter.broker.listener.name": "SSL",
            "listener.name.clients.ssl.client.auth": "required",
            **self.authority.server(self.identities[broker]),
            **self.settings,
        }

    def addresses(self, *, mtls: bool = False) -> str:
        ports = self.mtls_ports if mtls else self.ssl_ports
        return ",".join(f"{HOST}:{port}" for port in ports.values())

    def client(self, identity: Identity | None = None, **more: Any) -> dict[str, Any]:
        """Return librdkafka's settings; with an identity those of the listener that wants one."""
        shown = {}
        if identity is not None:
            shown = {
                "ssl.certificate.location": str(identity.chain),
                "ssl.key.location": str(identity.key),
            }
        return {
            "bootstrap.servers": self.addresses(mtls=identity is not None),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.pem),
            **shown,
            **more,
        }


class SecuredCluster(OttlaCluster):
    """Brokers of ours with TLS."""

    def __init__(
        self, folder: Path, authority: Authority, brokers: int = 3, **settings: str
    ) -> None:
        super().__init__(folder, brokers, **settings)
        self.tls = Listeners(authority, self.ids)

    def properties(self, broker: int) -> dict[str, str]:
        return super().properties(broker) | self.tls.properties(broker, self.address(broker))


class SecuredKafka(Kafka39Cluster):
    """Brokers of Apache Kafka with the same."""

    def __init__(self, folder: Path, authority: Authority, ids: list[int], **settings: Any) -> None:
        super().__init__(folder, ids=ids, **settings)
        self.tls = Listeners(authority, self.ids)

    def properties(self, broker: int) -> dict[str, str]:
        return super().properties(broker) | self.tls.properties(broker, self.address(broker))


def produce(settings: dict[str, Any], topic: str, values: Iterable[bytes]) -> None:
    """Produce each value once, with acks=all; AssertionError unless all is acknowledged."""
    failed: list[Any] = []
    wanted = {"acks": "all", "enable.idempotence": True, "linger.ms": 5}
    producer = Producer(wanted | settings)
    for value in values:
        producer.produce(topic, value, on_delivery=lambda e, _: failed.append(e) if e else None)
    assert producer.flush(60) == 0
    assert not failed


def consume(settings: dict[str, Any], topic: str, count: int, timeout_s: float = 60) -> list[bytes]:
    """Read a topic from its beginning by a group, until as many records came."""
    reader = Consumer({"group.id": "g", "auto.offset.reset": "earliest", **settings})
    reader.subscribe([topic])
    found: list[bytes] = []

    def enough() -> bool:
        # What is no record says that something is not known yet.
        found.extend(m.value() for m in reader.consume(1000, 1.0) if m.error() is None)
        return len(found) >= count

    try:
        until(
            enough,
            timeout_s,
            lambda: f"{count} records are read, not {len(found)}",
        )
    finally:
        reader.close()
    return found
