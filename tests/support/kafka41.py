"""Apache Kafka 4 in KRaft mode: N combined nodes (broker and controller), without ZooKeeper.

As processes of bounded heap on 127.0.0.1, from the jars of `scripts/kafka-jars VERSION`. Each
node's folder is formatted by Kafka's own StorageTool, once. Everything stops, by pid, with the
`with` block.
    python tests/support/kafka41.py --brokers 3      runs one until Ctrl-C
"""

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.cluster import free_ports
from support.kafka39 import KafkaProcesses

VERSION = "4.1.0"
VERSION_OF_NEW_GROUPS = "4.4.0"
STORAGE_TOOL = "kafka.tools.StorageTool"
CLUSTER_ID = "b3R0bGEtYmVuY2htYXJrcw"
FORMAT_TIMEOUT_S = 60
# Kafka's own proportion: broker.heartbeat.interval.ms is 2000 where broker.session.timeout.ms is
# 9000.
HEARTBEATS_PER_SESSION = 4.5


class Kafka41Cluster(KafkaProcesses):
    """Combined nodes 0..n-1; all of them vote for the active controller.

    controller.quorum.* are Kafka's defaults (a new controller is elected when voters have not
    heard of the active one for 2 s), unless `settings` say otherwise.
    """

    version = VERSION
    started_line = b"Kafka Server started (kafka.server.KafkaRaftServer)"
    needs_zookeeper = False

    def __init__(
        self,
        folder: Path,
        brokers: int = 1,
        *,
        heap_mb: int = 512,
        session_timeout_ms: int = 6000,
        **settings: str,
    ) -> None:
        ids = list(range(brokers))
        super().__init__(folder, ids, "", session_timeout_ms, settings, heap_mb)
        self.controller_ports = dict(zip(ids, free_ports(brokers), strict=True))

    def __enter__(self) -> Self:
        self.format()
        return super().__enter__()

    def format(self) -> None:
        """Format the nodes' folders that are not formatted yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for node in self.ids:
            if (self.data(node) / "meta.properties").exists():
                continue
            config = self.write_config(node)
            log = self.folder / f"format-{node}.out"
            arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(config))
            jvm = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
            process = self.java(log, jvm, STORAGE_TOOL, *arguments)
            try:
                status = process.wait(FORMAT_TIMEOUT_S)
            finally:
                process.kill()
            if status != 0:
                raise RuntimeError(f"format of node {node}: exit {status}\n{log.read_text()}")

    def properties(self, broker: int) -> dict[str, str]:
        client = f"PLAINTEXT://{self.address(broker)}"
        voters = {n: f"{self.host(n)}:{port}" for n, port in self.controller_ports.items()}
        return {
            "process.roles": "broker,controller",
            "node.id": str(broker),
            "controller.quorum.voters": ",".join(f"{n}@{where}" for n, where in voters.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{client},CONTROLLER://{voters[broker]}",
            "advertised.listeners": client,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data(broker)),
            "broker.session.timeout.ms": str(self.session_timeout_ms),
            "broker.heartbeat.interval.ms": str(
                round(self.session_timeout_ms / HEARTBEATS_PER_SESSION)
            ),
        }

    def controller(self) -> int:
        """Return the active controller as the nodes' files of the quorum have it; -1 for none.

        Clients are not told: Metadata names any live broker, which forwards.
        """
        newest: tuple[int, int] = (-1, -1)
        for node in self.ids:
            path = self.data(node) / "__cluster_metadata-0" / "quorum-state"
            state: dict[str, Any] = json.loads(path.read_text())
            newest = max(newest, (state["leaderEpoch"], state["leaderId"]))
        return newest[1]


class Kafka44Cluster(Kafka41Cluster):
    """The same of Kafka 4.4, whose groups of the new types are all ready for use."""

    version = VERSION_OF_NEW_GROUPS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="keep the files here")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory() as folder:
        with Kafka41Cluster(args.dir or Path(folder), args.brokers) as cluster:
            print(f"bootstrap={cluster.bootstrap} controller={cluster.controller()}", flush=True)
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
