"""Apache Kafka 3.9 in ZooKeeper mode, started for real: the oracle that tests and benchmarks ask.

ZooKeeper and N brokers as processes of bounded heap on 127.0.0.1, from the jars of
`scripts/kafka-jars` (or OTTLA_KAFKA_LIBS). Everything stops, by pid, with the `with` block. Given
a `zookeeper` of others and ids of its own, it joins a cluster of ours. With
`zookeeper_server="own"`, or OTTLA_TEST_KAFKA_ZOOKEEPER=own, the brokers run on our ZooKeeper
server.
    python tests/support/kafka39.py --brokers 3      runs one until Ctrl-C
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from ottla.zookeeper.embedded import start_own_zookeeper

sys.path.insert(0, str(Path(__file__).parents[1]))
from support import kafka_tools
from support.cluster import BELOW_KAFKA, BrokerProcesses, chosen_server
from support.waiting import until

ZOOKEEPER_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
KAFKA_MAIN = "kafka.Kafka"
# What Kafka's own start script passes, but for the heap.
KAFKA_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
LOG4J = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.kafka.server.KafkaServer=INFO
log4j.logger.kafka.server.KafkaRaftServer=INFO
"""


def quick_start() -> bool:
    """Return whether brokers are to start with less processor time; benchmarks never ask for it."""
    return os.environ.get("OTTLA_QUICK_JAVA") == "yes"


class KafkasZooKeeper:
    """A ZooKeeper started from Kafka's jars."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(10)


class KafkaProcesses(BrokerProcesses):
    """Brokers of Apache Kafka, whichever version; started means that they say so.

    Who derives names the version and what a broker logs once it has started.
    """

    version = ""
    started_line = b""
    log4j = ""
    """What a broker logs, if not LOG4J."""

    def __init__(
        self,
        folder: Path,
        ids: list[int],
        zookeeper: str,
        session_timeout_ms: int,
        settings: dict[str, str],
        heap_mb: int,
    ) -> None:
        replicas = str(min(3, len(ids)))
        few = {
            "offsets_topic_replication_factor": replicas,
            "offsets_topic_num_partitions": "3",
            "transaction_state_log_replication_factor": replicas,
            "transaction_state_log_min_isr": "1",
            "group_initial_rebalance_delay_ms": "0",
        }
        super().__init__(folder, ids, zookeeper, session_timeout_ms, few | settings)
        self.heap_mb = heap_mb

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j.properties").write_text(self.log4j or LOG4J)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        """Stop one broker in order, several by kill -9; `stop` ends these in order.

        Each tries for up to 15 s to hand its leaders to others, and the last ones have none.
        """
        for broker in self.ids if len(self.ids) > 1 else ():
            if self.running(broker):
                self.processes[broker].kill()
        super().__exit__(*error)

    def launch(self, broker: int, config: Path) -> subprocess.Popen[bytes]:
        jvm = (*(self.quick_jvm() if quick_start() else KAFKA_JVM), f"-Xmx{self.heap_mb}m")
        return self.java(self.log(broker), jvm, KAFKA_MAIN, str(config))

    def started(self, broker: int) -> bool:
        return self.started_line in self.log(broker).read_bytes()

    def kill(self, broker: int) -> None:
        super().kill(broker)
        self._set_log_aside(broker)

    def terminate(self, broker: int, timeout_s: float = 60) -> int:
        status = super().terminate(broker, timeout_s)
        self._set_log_aside(broker)
        return status

    def _set_log_aside(self, broker: int) -> None:
        self.log(broker).rename(self.log(broker).with_suffix(f".{time.time_ns()}.out"))

    def quick_jvm(self) -> tuple[str, ...]:
        of_this_version = self.version == kafka_tools.VERSION
        return kafka_tools.quick_jvm() if of_this_version else kafka_tools.QUICK_JVM

    def java(
        self, log: Path, jvm: tuple[str, ...], main: str, *arguments: str
    ) -> subprocess.Popen[bytes]:
        """Start a program of this version's jars; what it prints goes to `log`."""
        problem = kafka_tools.why_not(self.version)
        if problem:
            raise RuntimeError(problem)
        log4j = f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}"
        with log.open("wb") as out:
            return subprocess.Popen(
                [kafka_tools.java() or "java", *jvm, log4j,
                 "-cp", f"{kafka_tools.libs(self.version)}/*", main, *arguments],
                stdout=out,
                stderr=out,
                start_new_session=True,
            )  # fmt: skip


class Kafka39Cluster(KafkaProcesses):
    """Brokers of Apache Kafka 3.9, with a ZooKeeper of Kafka's jars or a given one."""

    version = kafka_tools.VERSION
    started_line = b"started (kafka.server.KafkaServer)"

    def __init__(
        self,
        folder: Path,
        brokers: int = 1,
        *,
        ids: list[int] | None = None,
        zookeeper: str = "",
        zookeeper_server: str = "java",
        heap_mb: int = 512,
        session_timeout_ms: int = 6000,
        **settings: str,
    ) -> None:
        self.zookeeper_server = zookeeper_server
        ids = ids if ids is not None else list(range(brokers))
        settings = {"inter_broker_protocol_version": "3.9"} | settings
        super().__init__(folder, ids, zookeeper, session_timeout_ms, settings, heap_mb)

    def __enter__(self) -> Self:
        super().__enter__()
        self.wait_known()
        return self

    def start_zookeeper(self, port: int) -> Any:
        if chosen_server(BELOW_KAFKA, self.zookeeper_server) == "own":
            return start_own_zookeeper(self.folder / "zookeeper", port)
        return self.start_kafkas_zookeeper(port)

    def start_kafkas_zookeeper(self, port: int) -> KafkasZooKeeper:
        """Start the one of the brokers' jars, whatever the environment says."""
        data = self.folder / "zookeeper"
        data.mkdir(exist_ok=True)
        config = self.folder / "zookeeper.properties"
        config.write_text(
            f"dataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\n"
            "minSessionTimeout=1000\nmaxSessionTimeout=60000\nmaxClientCnxns=0\nadmin.enableServer=false\n"
        )
        log = self.folder / "zookeeper.out"
        jvm = ("-Xmx256m", *(self.quick_jvm() if quick_start() else ("-XX:+UseSerialGC",)))
        process = self.java(log, jvm, ZOOKEEPER_MAIN, str(config))

        def serves() -> bool:
            assert process.poll() is None, f"ZooKeeper ended:\n{log.read_text()[-2000:]}"
            with socket.socket() as probe:
                probe.settimeout(0.2)
                return probe.connect_ex(("127.0.0.1", port)) == 0

        try:
            until(serves, 60, lambda: f"ZooKeeper serves:\n{log.read_text()[-2000:]}")
        except BaseException:
            process.kill()
            raise
        return KafkasZooKeeper(process)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="keep the files here")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory() as folder:
        with Kafka39Cluster(args.dir or Path(folder), args.brokers) as cluster:
            print(f"zookeeper={cluster.zookeeper} bootstrap={cluster.bootstrap}", flush=True)
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
