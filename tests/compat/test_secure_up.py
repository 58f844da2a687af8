"""`ottla up --secure`: three brokers with TLS and certificates of their own CA, in one command."""

import stat
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from ottla.admin.local.cluster_dir import ClusterDir
from support.cluster import free_ports
from support.secret_scan import Secrets, all_leaks

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(180)]


def ottla(*arguments, stdin="", code=0):
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *map(str, arguments)],
        input=stdin, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("secure") / "data"
    try:
        said = ottla("up", "--secure", "--dir", path, "--port-base", free_ports(1)[0])
        yield path, said
    finally:
        ottla("down", "--dir", path)


def settings(said, begin):
    """Return the settings printed below a headline."""
    lines = said.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"# {begin}"))
    block = []
    for line in lines[first + 1 :]:
        if line.startswith("#"):
            break
        block.append(line.split("=", 1))
    return dict(block)


def test_what_is_printed_works(folder, tmp_path):
    path, said = folder
    ottla("topics", "create", "t", "--partitions", 3, "--dir", path)
    producer = Producer(settings(said, "librdkafka") | {"acks": "all"})
    for i in range(100):
        producer.produce("t", b"%d" % i)
    assert producer.flush(30) == 0
    java = settings(said, "Java")
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in java.items()))
    address = java["bootstrap.servers"]
    found = ottla(
        "consume", "t", "--from-beginning", "--timeout-ms", 2000, "-b", address,
        "--command-config", config,
    )  # fmt: skip
    assert set(map(str, range(100))) <= set(found.split())
    ottla("topics", "list", "-b", address, code=1)  # without a certificate


def test_status_restart_and_rotation(folder):
    path, _ = folder
    assert "controller" in ottla("status", "--dir", path)
    ottla("certs", "rotate", "--all", "--dir", path)
    ottla("broker", "restart", 1, "--dir", path)
    ottla("status", "--dir", path)
    assert "broker-2" in ottla("certs", "list", "--dir", path)


def test_nothing_private_is_open(folder):
    path, _ = folder
    for file in (path / "certs").iterdir():
        if file.name != "ca.pem":
            assert not stat.S_IMODE(file.stat().st_mode) & 0o077, file
    assert not stat.S_IMODE((path / "client.properties").stat().st_mode) & 0o077
    secrets = Secrets({})
    keys = [f for f in (path / "certs").iterdir() if b"PRIVATE KEY" in f.read_bytes()]
    assert len(keys) > 3
    for file in keys:
        secrets.add_private_key(file)
    cluster = ClusterDir(path).existing()
    assert all_leaks(secrets, str(cluster.zookeeper.address), path, keys) == []
