"""A real cluster for tests: a real ZooKeeper and broker processes that can be killed.

Everything stops with the `with` block, also when the test fails. Servers listen on 127.0.0.1.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from ottla.zookeeper.embedded import start_zookeeper


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def wait_for_port(
    port: int,
    process: subprocess.Popen[bytes],
    log: Path,
    timeout_s: float,
    host: str = "127.0.0.1",
) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex((host, port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"no broker on port {port} (exit {process.poll()}):\n{tail}")
        time.sleep(0.05)


class OttlaCluster:
    """Brokers 0..n-1 of ours as processes, on a ZooKeeper of their own or a given one."""

    def __init__(
        self,
        folder: Path,
        brokers: int = 3,
        *,
        zookeeper: str | None = None,
        session_timeout_ms: int = 6000,
        **settings: str,
    ) -> None:
        self.folder = folder
        self.ids = list(range(brokers))
        self.ports = free_ports(brokers)
        self.settings = {k.replace("_", "."): v for k, v in settings.items()}
        self.session_timeout_ms = session_timeout_ms
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._zookeeper = None
        self.zookeeper = zookeeper or ""

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.zookeeper:
            port = free_ports(1)[0]
            self._zookeeper = start_zookeeper(self.folder / "zookeeper", port, heap_mb=256)
            self.zookeeper = f"127.0.0.1:{port}"
        try:
            for broker in self.ids:
                self.start_broker(broker, wait=False)
            for broker in self.ids:
                self._wait(broker)
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

    def command(self, broker: int, config: Path) -> list[str]:
        """Return what starts a broker with this file of settings."""
        return [sys.executable, "-m", "ottla", "broker", "--config", str(config)]

    def data(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}"

    def log(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}.out"

    def running(self, broker: int) -> bool:
        return broker in self.processes and self.processes[broker].poll() is None

    def start_broker(self, broker: int, *, wait: bool = True) -> None:
        values = {
            "broker.id": str(broker),
            "listeners": f"PLAINTEXT://{self.address(broker)}",
            "log.dirs": str(self.data(broker)),
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": str(self.session_timeout_ms),
            **self.settings,
        }
        config = self.folder / f"broker-{broker}.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in values.items()))
        with self.log(broker).open("ab") as out:
            self.processes[broker] = subprocess.Popen(
                self.command(broker, config),
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        if wait:
            self._wait(broker)

    def _wait(self, broker: int, timeout_s: float = 30) -> None:
        wait_for_port(
            self.ports[broker],
            self.processes[broker],
            self.log(broker),
            timeout_s,
            self.host(broker),
        )

    def kill(self, broker: int) -> None:
        """kill -9."""
        self.processes[broker].kill()
        self.processes[broker].wait(10)

    def pause(self, broker: int) -> None:
        os.kill(self.processes[broker].pid, signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        os.kill(self.processes[broker].pid, signal.SIGCONT)

    def terminate(self, broker: int, timeout_s: float = 30) -> int:
        """SIGTERM, a bounded wait; return the exit status."""
        self.processes[broker].terminate()
        return self.processes[broker].wait(timeout_s)

    def stop(self) -> None:
        """Stop all brokers at once: the last ones have nobody to hand their leaders to."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        deadline = time.monotonic() + 20
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

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
