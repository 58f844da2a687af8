"""Apache Kafka 3.9 with its MBeans to be read: what JMX would show of each broker."""

import socket
import subprocess
from pathlib import Path

from support.cluster import free_ports
from support.kafka39 import KAFKA_JVM, Kafka39Cluster, quick_start

PROGRAM = Path(__file__).with_name("KafkaMBeans.java")

MBeans = dict[str, dict[str, str]]
"""Values, as Java prints them, by MBean and attribute."""


class KafkaWithMBeans(Kafka39Cluster):
    """Brokers of Apache Kafka 3.9 whose MBeans a test may read at any time."""

    def launch(self, broker: int, config: Path) -> subprocess.Popen[bytes]:
        self.mbean_ports = getattr(self, "mbean_ports", {})
        (self.mbean_ports[broker],) = free_ports(1)
        jvm = (*(self.quick_jvm() if quick_start() else KAFKA_JVM), f"-Xmx{self.heap_mb}m")
        port = str(self.mbean_ports[broker])
        return self.java(self.log(broker), jvm, str(PROGRAM), port, str(config))

    def mbeans(self, broker: int) -> MBeans:
        """Return all of Kafka's MBeans with their attributes as they are now."""
        parts = []
        with socket.create_connection(("127.0.0.1", self.mbean_ports[broker]), 10) as reader:
            while part := reader.recv(65_536):
                parts.append(part)
        found: MBeans = {}
        for line in b"".join(parts).decode().split("\n"):
            if line.count("\t") == 2:
                name, attribute, value = line.split("\t")
                found.setdefault(name, {})[attribute] = value
        return found
