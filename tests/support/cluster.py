"""A real cluster for tests: a ZooKeeper server and broker processes that can be killed.

The ZooKeeper server is our own, which starts sooner, or a real one where a test asks for it
(`zookeeper_server="java"`). OTTLA_TEST_ZOOKEEPER=own or =java chooses for all clusters of ours,
OTTLA_TEST_KAFKA_ZOOKEEPER for those that begin with brokers of Kafka (`kafka39.py`).

Everything stops with the `with` block, also when the test fails. Servers listen on 127.0.0.1.
"""

import argparse
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, Self

from ottla.local.ports import port_is_free
from ottla.model.errors import OttlaError
from ottla.wire.messages.cluster import MetadataRequest
from ottla.zookeeper.embedded import ZooKeeperProcess, start_own_zookeeper, start_zookeeper

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.seen import ask  # tests are no package
from support.waiting import until

FIRST_TEST_PORT, TEST_PORTS = 10_000, 9_000
"""Below those that the system gives to outgoing connections, and below those of `ottla up`."""
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
"""Which of pytest's processes this is, or is started by."""
SERVERS = ("own", "java")
"""The ZooKeeper servers: ours, a real one."""
BELOW_OURS, BELOW_KAFKA = "OTTLA_TEST_ZOOKEEPER", "OTTLA_TEST_KAFKA_ZOOKEEPER"
"""The variables of the environment that choose one of them."""
_next_port = itertools.count(os.getpid() * 613)
_held: deque[socket.socket] = deque()
MOST_HELD = 200


def free_ports(count: int) -> list[int]:
    """Return ports that are free, all different; each process begins at another place.

    A port is not given out again before all others were, and the newest are held: no other process
    of tests is given one while its broker is down, or before its broker has begun to listen. Each
    of pytest's processes has a part of them: brokers choose some ports themselves.
    """
    found: list[int] = []
    share = TEST_PORTS // WORKERS
    for step in itertools.islice(_next_port, share):
        port = FIRST_TEST_PORT + WORKER * share + step % share
        if _hold(port):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"no {count} free ports from {FIRST_TEST_PORT} on")


def free_row(count: int) -> int:
    """Return the first of so many free ports in a row, for `ottla up --port-base`.

    Without a base, `up` takes the usual ports where they are free: two that start at the same
    moment, in two processes of tests, take the same ones.
    """
    while True:
        ports = free_ports(count)
        if ports[-1] - ports[0] == count - 1:
            return ports[0]


def _hold(port: int) -> bool:
    """Return whether a port is free; then nobody is given it for a while.

    Linux lets a broker listen, with SO_REUSEADDR, where another socket is bound and does not; of
    others who ask here, without it, none is given the port.
    """
    if sys.platform != "linux":
        return port_is_free(port)
    held = socket.socket()
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        return False
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _held.append(held)
    if len(_held) > MOST_HELD:
        _held.popleft().close()
    return True


FEW = {
    "offsets_topic_num_partitions": "4",
    "transaction_state_log_num_partitions": "4",
    "group_initial_rebalance_delay_ms": "0",
}
"""For tests with groups and transactions: 50 partitions of each take seconds to come up."""


def chosen_server(variable: str, otherwise: str) -> str:
    """Return "own" or "java": what the environment says, or what the test asks for."""
    server = os.environ.get(variable) or otherwise
    assert server in SERVERS, f"{variable}={server}: {' or '.join(SERVERS)}"
    return server


def start_test_zookeeper(folder: Path, port: int, server: str = "own") -> ZooKeeperProcess:
    """Start our ZooKeeper server, or with "java" a real one; the environment may say which."""
    if chosen_server(BELOW_OURS, server) == "own":
        return start_own_zookeeper(folder, port)
    return start_zookeeper(folder, port, heap_mb=256)


def add_zookeeper_option(parser: argparse.ArgumentParser) -> None:
    """Let a program's user choose the server: `--zookeeper own` or `java`."""
    parser.add_argument(
        "--zookeeper", choices=SERVERS, default="java", help="our server, or a real one [java]"
    )


def at_least_one(text: str) -> int:
    """Parse how often a proof does something: what is never done proves nothing."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} proves nothing")
    return int(text)


class BrokerProcesses:
    """Brokers as processes, on a ZooKeeper of their own or a given one, or without any (KRaft).

    Who derives says what starts a ZooKeeper and a broker, and when a broker has started. In the
    value of a setting {broker} stands for the broker's id.
    """

    needs_zookeeper = True

    def __init__(
        self,
        folder: Path,
        ids: list[int],
        zookeeper: str,
        session_timeout_ms: int,
        settings: dict[str, str],
    ) -> None:
        self.folder = folder
        self.ids = ids
        self.ports = dict(zip(ids, free_ports(len(ids)), strict=True))
        self.settings = {k.replace("_", "."): v for k, v in settings.items()}
        self.session_timeout_ms = session_timeout_ms
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.zookeeper = zookeeper
        self._zookeeper: Any = None

    def start_zookeeper(self, port: int) -> Any:
        """Start a ZooKeeper on a port; return what has a `stop`."""
        raise NotImplementedError

    def launch(self, broker: int, config: Path) -> subprocess.Popen[bytes]:
        """Start a broker with this file of settings."""
        raise NotImplementedError

    def started(self, broker: int) -> bool:
        """Return whether a broker that runs has started."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            if self.needs_zookeeper and not self.zookeeper:
                port = free_ports(1)[0]
                self._zookeeper = self.start_zookeeper(port)
                self.zookeeper = f"127.0.0.1:{port}"
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
            self._zookeeper.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(b) for b in self.ids)

    def host(self, broker: int) -> str:
        return "127.0.0.1"

    def address(self, broker: int) -> str:
        return f"{self.host(broker)}:{self.ports[broker]}"

    def data(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}"

    def log(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}.out"

    def pid(self, broker: int) -> int:
        return self.processes[broker].pid

    def running(self, broker: int) -> bool:
        return broker in self.processes and self.processes[broker].poll() is None

    def properties(self, broker: int) -> dict[str, str]:
        """Return what a broker's file of settings begins with; those of the cluster follow."""
        return {
            "broker.id": str(broker),
            "listeners": f"PLAINTEXT://{self.address(broker)}",
            "log.dirs": str(self.data(broker)),
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": str(self.session_timeout_ms),
            # By default it is as short as a session: a broker that starts on busy cores would end.
            "zookeeper.connection.timeout.ms": "60000",
        }

    def write_config(self, broker: int) -> Path:
        """Write a broker's file of settings; return its path."""
        values = {**self.properties(broker), **self.settings}
        config = self.folder / f"broker-{broker}.properties"
        text = "".join(f"{k}={v}\n" for k, v in values.items())
        config.write_text(text.replace("{broker}", str(broker)))
        return config

    def start_broker(self, broker: int, *, wait: bool = True) -> None:
        self.processes[broker] = self.launch(broker, self.write_config(broker))
        if wait:
            self.wait(broker)

    def wait(self, broker: int, timeout_s: float = 150) -> None:
        """Wait until a broker has started; RuntimeError with its last words if it ends instead."""

        def told() -> str:
            tail = self.log(broker).read_text(errors="replace")[-3000:]
            return f"broker {broker} has started (exit {self.processes[broker].poll()}):\n{tail}"

        def over() -> bool:
            return not self.running(broker) or self.started(broker)

        until(over, timeout_s, told, despite=(OSError, OttlaError))
        if not self.running(broker):
            raise RuntimeError(f"it never came to this: {told()}")

    def known_to(self, broker: int) -> set[int]:
        """Return the brokers that one names in its Metadata; none while it has no controller."""
        found = ask(self.address(broker), MetadataRequest(topics=[]), 9)
        return set() if found.controller_id < 0 else {b.node_id for b in found.brokers}

    def wait_known(self) -> None:
        """Wait until each knows all: before that a topic with so many replicas is refused."""
        try:
            for broker in self.ids:
                until(
                    lambda broker=broker: self.known_to(broker).issuperset(self.ids),
                    60,
                    f"broker {broker} knows all others",
                    despite=(OSError, OttlaError),
                )
        except BaseException:
            self.__exit__()
            raise

    def kill(self, broker: int) -> None:
        """kill -9."""
        self.processes[broker].kill()
        self.processes[broker].wait(10)

    def pause(self, broker: int) -> None:
        """Stop a process, and wait until it is: on busy cores it runs on until it has its turn."""
        process = self.processes[broker]
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self, broker: int) -> None:
        self.processes[broker].send_signal(signal.SIGCONT)

    def terminate(self, broker: int, timeout_s: float = 60) -> int:
        """SIGTERM, a bounded wait; return the exit status."""
        self.processes[broker].terminate()
        return self.processes[broker].wait(timeout_s)

    def stop(self, timeout_s: float = 20) -> None:
        """Stop all brokers at once: the last ones have nobody to hand their leaders to."""
        living = [p for p in self.processes.values() if p.poll() is None]
        for process in living:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        deadline = time.monotonic() + timeout_s
        for process in living:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


class OttlaCluster(BrokerProcesses):
    """Brokers 0..n-1 of ours."""

    def __init__(
        self,
        folder: Path,
        brokers: int = 3,
        *,
        zookeeper: str = "",
        zookeeper_server: str = "own",
        session_timeout_ms: int = 6000,
        **settings: str,
    ) -> None:
        super().__init__(folder, list(range(brokers)), zookeeper, session_timeout_ms, settings)
        self.zookeeper_server = zookeeper_server

    def __enter__(self) -> Self:
        super().__enter__()
        self.wait_known()
        return self

    def start_zookeeper(self, port: int) -> Any:
        return start_test_zookeeper(self.folder / "zookeeper", port, self.zookeeper_server)

    def command(self, broker: int, config: Path) -> list[str]:
        """Return what starts a broker with this file of settings."""
        return [sys.executable, "-m", "ottla", "broker", "--config", str(config)]

    def launch(self, broker: int, config: Path) -> subprocess.Popen[bytes]:
        with self.log(broker).open("ab") as out:
            return subprocess.Popen(
                self.command(broker, config), stdout=out, stderr=out, start_new_session=True
            )

    def started(self, broker: int) -> bool:
        """Return whether a broker answers and has heard of itself from the controller."""
        return broker in self.known_to(broker)

    def log_bytes(self, broker: int, partition: str) -> bytes:
        """Return the bytes of a replica's segments in order, of `topic-n`."""
        segments = sorted((self.data(broker) / partition).glob("*.log"))
        return b"".join(p.read_bytes() for p in segments)

    def replica_differences(self, topic: str, partitions: int) -> list[str]:
        """Compare the log bytes of all replicas (call it when the brokers are stopped)."""
        wrong = []
        for partition in range(partitions):
            name = f"{topic}-{partition}"
            logs = {b: self.log_bytes(b, name) for b in self.ids if (self.data(b) / name).is_dir()}
            sizes = {b: len(data) for b, data in logs.items()}
            if len(set(logs.values())) > 1:
                wrong.append(f"{name}: replicas differ, bytes by broker {sizes}")
        return wrong
