"""Apache Kafka 3.9 in ZooKeeper mode, started for real: the oracle that tests and benchmarks ask.

ZooKeeper and N brokers as processes of bounded heap on 127.0.0.1, from the jars of
`scripts/kafka-jars` (or OTTLA_KAFKA_LIBS). Everything stops, by pid, with the `with` block. Given
a `zookeeper` of others and ids of its own, it joins a cluster of ours.
    python tests/kafka39.py --brokers 3      runs one until Ctrl-C
"""

import argparse
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).parent))
import kafka_tools  # tests are no package
from cluster import free_ports

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
"""


class Kafka39Cluster:
    """Brokers of Apache Kafka as processes, on a ZooKeeper of their own or a given one."""

    def __init__(
        self,
        folder: Path,
        brokers: int = 1,
        *,
        ids: list[int] | None = None,
        zookeeper: str = "",
        heap_mb: int = 512,
        session_timeout_ms: int = 6000,
        **settings: str,
    ) -> None:
        self.folder = folder
        self.ids = ids if ids is not None else list(range(brokers))
        self.ports = dict(zip(self.ids, free_ports(len(self.ids)), strict=True))
        self.heap_mb = heap_mb
        self.session_timeout_ms = session_timeout_ms
        self.settings = {k.replace("_", "."): v for k, v in settings.items()}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.zookeeper = zookeeper
        self._zookeeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j.properties").write_text(LOG4J)
        try:
            if not self.zookeeper:
                self._start_zookeeper()
            for broker in self.ids:
                self.start_broker(broker, wait=False)
            for broker in self.ids:
                self.wait(broker)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper.wait(10)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(b) for b in self.ids)

    def address(self, broker: int) -> str:
        return f"127.0.0.1:{self.ports[broker]}"

    def data(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}"

    def log(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}.out"

    def pid(self, broker: int) -> int:
        return self.processes[broker].pid

    def running(self, broker: int) -> bool:
        return broker in self.processes and self.processes[broker].poll() is None

    def start_broker(self, broker: int, *, wait: bool = True) -> None:
        replicas = str(min(3, len(self.ids)))
        values = {
            "broker.id": str(broker),
            "listeners": f"PLAINTEXT://{self.address(broker)}",
            "log.dirs": str(self.data(broker)),
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": str(self.session_timeout_ms),
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "inter.broker.protocol.version": "3.9",
            **self.settings,
        }
        config = self.folder / f"broker-{broker}.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in values.items()))
        self.processes[broker] = self._java(
            self.log(broker), (*KAFKA_JVM, f"-Xmx{self.heap_mb}m"), KAFKA_MAIN, str(config)
        )
        if wait:
            self.wait(broker)

    def wait(self, broker: int, timeout_s: float = 90) -> None:
        """Wait until a broker accepts connections and says that it has started."""
        deadline = time.monotonic() + timeout_s
        while b"started (kafka.server.KafkaServer)" not in self.log(broker).read_bytes():
            if not self.running(broker) or time.monotonic() > deadline:
                tail = self.log(broker).read_text(errors="replace")[-3000:]
                raise RuntimeError(f"Kafka broker {broker} did not start:\n{tail}")
            time.sleep(0.05)

    def kill(self, broker: int) -> None:
        """kill -9."""
        self.processes[broker].kill()
        self.processes[broker].wait(10)
        self.log(broker).rename(self.log(broker).with_suffix(f".{time.time_ns()}.out"))

    def pause(self, broker: int) -> None:
        self.processes[broker].send_signal(signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        self.processes[broker].send_signal(signal.SIGCONT)

    def terminate(self, broker: int, timeout_s: float = 60) -> int:
        """SIGTERM, a bounded wait; return the exit status."""
        self.processes[broker].terminate()
        status = self.processes[broker].wait(timeout_s)
        self.log(broker).rename(self.log(broker).with_suffix(f".{time.time_ns()}.out"))
        return status

    def stop(self, timeout_s: float = 20) -> None:
        """Stop every broker, the slow ones the hard way."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        deadline = time.monotonic() + timeout_s
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def _start_zookeeper(self) -> None:
        port = free_ports(1)[0]
        data = self.folder / "zookeeper"
        data.mkdir(exist_ok=True)
        config = self.folder / "zookeeper.properties"
        config.write_text(
            f"dataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\n"
            "minSessionTimeout=1000\nmaxClientCnxns=0\nadmin.enableServer=false\n"
        )
        log = self.folder / "zookeeper.out"
        self._zookeeper = self._java(
            log, ("-Xmx256m", "-XX:+UseSerialGC"), ZOOKEEPER_MAIN, str(config)
        )
        self.zookeeper = f"127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                probe.settimeout(0.2)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self._zookeeper.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"ZooKeeper did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)

    def _java(
        self, log: Path, jvm: tuple[str, ...], main: str, *arguments: str
    ) -> subprocess.Popen[bytes]:
        problem = kafka_tools.why_not()
        if problem:
            raise RuntimeError(problem)
        log4j = f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}"
        with log.open("wb") as out:
            return subprocess.Popen(
                [kafka_tools.java() or "java", *jvm, log4j, "-cp", f"{kafka_tools.libs()}/*",
                 main, *arguments],
                stdout=out,
                stderr=out,
                start_new_session=True,
            )  # fmt: skip


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
