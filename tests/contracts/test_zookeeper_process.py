"""`ottla zookeeper run`: starts small, ends in order, says in one line why it does not start."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from support.own_zookeeper import OwnZooKeeper, kazoo

pytestmark = pytest.mark.processes


def refused(*arguments: object) -> str:
    """Run a server that must not start; return its one line."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "zookeeper", "run", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1, done
    lines = [line for line in done.stderr.splitlines() if not line.startswith("20")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def test_it_is_small_keeps_what_it_acknowledged_and_ends_in_order(tmp_path):
    data = tmp_path / "data"
    with OwnZooKeeper(data) as own:
        assert resident_mb(own.process.pid) < 40
        with kazoo(own.connect_string) as client:
            client.create("/kept", b"here")
        assert own.stop() == 0
        assert "server stopped" in own.log.read_text()
    with OwnZooKeeper(data) as own, kazoo(own.connect_string) as client:
        assert client.get("/kept")[0] == b"here"


def test_it_says_in_one_line_why_it_does_not_start(tmp_path):
    data = tmp_path / "data"
    with OwnZooKeeper(data) as own:
        assert "in use by another server" in refused("--data-dir", data, "--client-port", 0)
        line = refused("--data-dir", tmp_path / "other", "--client-port", own.port)
        assert "in use" in line
        with kazoo(own.connect_string) as client:
            for i in range(5):
                client.create(f"/{i}")
        own.kill()
    (log,) = (data / "version-2").glob("log.*")
    content = bytearray(log.read_bytes())
    content[40] ^= 1
    log.write_bytes(content)
    line = refused("--data-dir", data, "--client-port", 0)
    assert "damage at position 16" in line
    assert str(log) in line
    file = tmp_path / "file"
    file.write_text("")
    assert str(file) in refused("--data-dir", file, "--client-port", 0)


def test_a_full_disk_ends_it_and_nothing_is_acknowledged(tmp_path):
    """The file may not grow beyond its first piece: as if the disk were full."""
    own = OwnZooKeeper(tmp_path / "data")
    with own, kazoo(own.connect_string) as client:
        acknowledged = []
        resource.prlimit(own.process.pid, resource.RLIMIT_FSIZE, (6_000_000, 6_000_000))

        def fill() -> None:
            for i in range(200):
                client.create(f"/{i}", b"x" * 100_000)
                acknowledged.append(f"/{i}")

        with pytest.raises(Exception):  # noqa: B017 - kazoo has several for a lost connection
            fill()
        assert own.process.wait(30) == 1
        assert "transaction log not written" in own.log.read_text()
        (line,) = own.process.stderr.read().decode().splitlines()
        assert line.startswith(f"ottla zookeeper: {tmp_path}/data/version-2")
    with OwnZooKeeper(tmp_path / "data") as again, kazoo(again.connect_string) as client:
        assert len(acknowledged) > 20
        assert {f"/{name}" for name in client.get_children("/")} >= set(acknowledged)


def test_no_thread_for_an_fsync_ends_it_and_nothing_is_acknowledged(tmp_path):
    """As at a limit of processes: whatever ends the flush ends the server."""
    data = tmp_path / "data"
    program = """
import sys
from ottla.broker import zookeeper_process
from ottla.net import runtime
real, calls = runtime.RealWorkers.run, 0
async def run(self, function, *args):
    global calls
    calls += 1
    if calls == 12:
        raise RuntimeError("can't start new thread")
    return await real(self, function, *args)
runtime.RealWorkers.run = run
sys.exit(zookeeper_process.main(sys.argv[1:]))
"""
    own = OwnZooKeeper(data, command=[sys.executable, "-c", program])
    acknowledged = []
    with own, kazoo(own.connect_string) as client:
        with contextlib.suppress(KazooException):
            while len(acknowledged) < 50:
                path = f"/{len(acknowledged)}"
                client.create(path)
                acknowledged.append(path)
        assert own.process.wait(30) == 1
        assert own.process.stderr.read().decode() == (
            "ottla zookeeper: RuntimeError: can't start new thread\n"
        )
    assert "CRITICAL" in own.log.read_text()
    with OwnZooKeeper(data) as again, kazoo(again.connect_string) as client:
        assert acknowledged
        assert {f"/{name}" for name in client.get_children("/")} >= set(acknowledged)


def test_no_session_ends_because_the_server_stood_still(tmp_path):
    with OwnZooKeeper(tmp_path / "data", 0, "--tick-time", "200") as own:
        clients = [KazooClient(own.connect_string, timeout=1.5) for _ in range(3)]
        try:
            for number, client in enumerate(clients):
                client.start(60)
                client.create(f"/{number}", ephemeral=True)
            sessions = [client.client_id for client in clients]
            os.kill(own.process.pid, signal.SIGSTOP)
            time.sleep(4)
            os.kill(own.process.pid, signal.SIGCONT)
            for number, client in enumerate(clients):
                assert client.retry(client.exists, f"/{number}") is not None
            assert [client.client_id for client in clients] == sessions
            assert "session expired" not in own.log.read_text()
            assert "server stood still late_s=" in own.log.read_text()
        finally:
            for client in clients:
                client.stop()
                client.close()


def test_a_loss_is_accepted_on_demand(tmp_path):
    data = tmp_path / "data"
    with OwnZooKeeper(data) as own:
        with kazoo(own.connect_string) as client:
            for i in range(5):
                client.create(f"/{i}")
        own.kill()
    (log,) = (data / "version-2").glob("log.*")
    content = bytearray(log.read_bytes())
    content[40] ^= 1
    log.write_bytes(content)
    line = refused("--data-dir", data, "--client-port", 0)
    assert line.endswith(
        f"restore {data}/version-2 from a copy, or start once with --accept-data-loss: it loses "
        "every change after zxid 0x0"
    )
    with OwnZooKeeper(data, 0, "--accept-data-loss") as own:
        aside = data / "version-2" / f"damaged.{log.name}"
        assert f"file set aside zxid=0x0 path={aside}" in own.log.read_text()
        assert aside.read_bytes() == bytes(content)
        with kazoo(own.connect_string) as client:
            client.create("/later")
        assert own.stop() == 0
    with OwnZooKeeper(data) as own, kazoo(own.connect_string) as client:
        assert sorted(client.get_children("/")) == ["later", "zookeeper"]


def test_the_port_is_ours_alone(tmp_path):
    with OwnZooKeeper(tmp_path / "data") as own:
        with socket.socket() as probe, pytest.raises(OSError):
            probe.bind(("127.0.0.1", own.port))
