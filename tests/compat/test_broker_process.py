"""A broker as a program: what it says when something is wrong, and what it does not import."""

import re
import socket
import subprocess
import sys

import pytest

from ottla.zookeeper.embedded import start_own_zookeeper
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

HEAVY = ("typer", "rich", "click", "textual", "pyspark", "pandas", "numpy", "kazoo", "ssl")


def ottla(*arguments, timeout_s=60):
    return subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def settings(folder, **extra):
    values = {
        "broker.id": "0",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder / "data"),
        "zookeeper.connect": "127.0.0.1:1",
        "zookeeper.session.timeout.ms": "6000",
    } | {k.replace("_", "."): v for k, v in extra.items()}
    path = folder / f"{len(list(folder.iterdir()))}.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in values.items()))
    return str(path)


def complaint(done, code=1):
    assert done.returncode == code, (done.returncode, done.stderr)
    lines = [
        line
        for line in done.stderr.splitlines()
        if line.startswith(("ottla broker: ", "ottla broker run: "))
    ]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


def test_a_broker_imports_nothing_heavy():
    code = "import sys, ottla.broker.process; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & (set(HEAVY) - {"ssl"}), sorted(loaded & set(HEAVY))


def test_bad_usage_is_one_line():
    assert "--config" in complaint(ottla("broker", "run"), code=2)
    assert "--nonsense" in complaint(ottla("broker", "--config", "x", "--nonsense"), code=2)
    assert "KEY=VALUE" in complaint(ottla("broker", "--config", "x", "--override", "y"), code=2)


def test_a_missing_file(tmp_path):
    assert "No such file" in complaint(ottla("broker", "--config", str(tmp_path / "absent")))


def test_bad_settings_name_the_key(tmp_path):
    config = settings(tmp_path)
    for override, word in [
        ("log.segment.bytes=x", "log.segment.bytes"),
        ("broker.id=-2", "broker.id"),
        ("listeners=nonsense", "listeners"),
        ("process.roles=broker", "KRaft"),
        ("authorizer.class.name=org.example.Own", "authorizer.class.name"),
        ("super.users=User:admin", "authorizer.class.name"),
    ]:
        assert word in complaint(ottla("broker", "--config", config, "--override", override))


def test_a_malformed_escape_is_one_line(tmp_path):
    config = settings(tmp_path, broker_rack="D:\\users")
    assert "malformed \\u escape" in complaint(ottla("broker", "--config", config))


def test_a_broker_without_an_id_generates_one_and_keeps_it(tmp_path):
    zookeeper = start_own_zookeeper(tmp_path / "zookeeper", 0)

    def started(name, **extra):
        """Start a broker until it runs; return its id."""
        config = settings(
            tmp_path,
            zookeeper_connect=zookeeper.connect_string,
            log_dirs=str(tmp_path / name),
            **extra,
        )
        log = tmp_path / f"{name}.log"
        command = [sys.executable, "-m", "ottla", "broker", "run", "--config", config]
        with log.open("wb") as out:
            broker = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            until(
                lambda: broker.poll() is not None or b"state=RUNNING" in log.read_bytes(),
                40,
                "the broker runs",
            )
            assert broker.poll() is None, log.read_text()
        finally:
            broker.terminate()
            broker.wait(30)
        text = (tmp_path / name / "meta.properties").read_text()
        return int(re.search(r"broker.id=(\d+)", text)[1])

    try:
        assert started("a", broker_id="-1") == 1001
        assert started("a", broker_id="-1") == 1001
        assert started("b", broker_id="-1", reserved_broker_max_id="2000") == 2002
        assert started("c", broker_id="5000", broker_id_generation_enable="false") == 5000
    finally:
        zookeeper.stop()


def test_no_zookeeper_is_a_bounded_wait(tmp_path):
    config = settings(tmp_path, zookeeper_connection_timeout_ms="1000")
    line = complaint(ottla("broker", "--config", config))
    assert "127.0.0.1:1" in line
    assert not (tmp_path / "data").exists()


@pytest.mark.java
def test_what_stands_in_the_way_of_a_start(one_broker, tmp_path):
    zookeeper = one_broker.zookeeper
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = taken.getsockname()[1]
    config = settings(
        tmp_path,
        broker_id="7",
        zookeeper_connect=zookeeper,
        listeners=f"PLAINTEXT://127.0.0.1:{port}",
    )
    assert f"127.0.0.1:{port}" in complaint(ottla("broker", "--config", config))
    taken.close()

    same_folder = settings(
        tmp_path, broker_id="7", zookeeper_connect=zookeeper, log_dirs=str(one_broker.data(0))
    )
    assert "in use by another broker" in complaint(ottla("broker", "--config", same_folder))

    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "meta.properties").write_text(
        "version=0\nbroker.id=7\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"
    )
    config = settings(tmp_path, broker_id="7", zookeeper_connect=zookeeper, log_dirs=str(foreign))
    assert "belongs to cluster AAAAAAAAAAAAAAAAAAAAAA" in complaint(
        ottla("broker", "--config", config)
    )
    assert [p.name for p in foreign.iterdir()] == ["meta.properties"]

    same_address = settings(
        tmp_path,
        broker_id="8",
        zookeeper_connect=zookeeper,
        log_dirs=str(tmp_path / "eight"),
        advertised_listeners=f"PLAINTEXT://{one_broker.address(0)}",
    )
    assert "already registered by broker 0" in complaint(ottla("broker", "--config", same_address))
    same_id = settings(
        tmp_path, broker_id="0", zookeeper_connect=zookeeper, log_dirs=str(tmp_path / "nine")
    )
    assert "broker.id=0" in complaint(ottla("broker", "--config", same_id))
