"""`ottla zookeeper run`: starts small, ends in order, says in one line why it does not start."""

import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

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
        assert len(own.process.stderr.read().splitlines()) == 1
    with OwnZooKeeper(tmp_path / "data") as again, kazoo(again.connect_string) as client:
        assert len(acknowledged) > 20
        assert {f"/{name}" for name in client.get_children("/")} >= set(acknowledged)


def test_the_port_is_ours_alone(tmp_path):
    with OwnZooKeeper(tmp_path / "data") as own:
        with socket.socket() as probe, pytest.raises(OSError):
            probe.bind(("127.0.0.1", own.port))
