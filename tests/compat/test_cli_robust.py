"""The command line against hostile names, false servers, copies, full disks, closed streams.

What is expected: one clear line, the right exit code, nothing changed, no traceback.
"""

import contextlib
import http.server
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ottla.local import relocation
from ottla.local.cluster_dir import ClusterDir
from ottla.local.zookeeper_session import ZooKeeper
from ottla.zookeeper.embedded import start_zookeeper
from support.cluster import free_ports, free_row
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]

EVIL = "[/evil]\x1b[31mred"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and namespaces are root's")


def ottla(*arguments, timeout=90, **more):
    command = [sys.executable, "-m", "ottla", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, **more
    )


def one_line(done, code, *words):
    """Check that a command failed as it should: a code, one line that has all of these words."""
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("waiting: ")]
    assert len(said) == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


@contextlib.contextmanager
def cluster(folder, *arguments):
    if "--port-base" not in arguments and not folder.exists():
        arguments = (*arguments, "--port-base", free_row(2))
    done = ottla("up", "-n", "1", "--dir", folder, *arguments)
    assert done.returncode == 0, done.stderr
    try:
        yield folder
    finally:
        ottla("down", "--dir", folder)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    # A copy of its ZooKeeper is to know the broker still when a JVM has started on busy cores.
    session = ("--set", "zookeeper.session.timeout.ms=30000")
    with cluster(tmp_path_factory.mktemp("robust") / "data", *session) as folder:
        yield folder


def bootstrap(folder):
    lines = ottla("up", "--dir", folder).stderr.splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("bootstrap"))


# A: names are data --------------------------------------------------------------------------


def test_names_are_no_markup_and_no_control_sequences(here):
    from confluent_kafka import Consumer

    assert ottla("topics", "create", "names", "--partitions", "1", "--dir", here).returncode == 0
    servers = bootstrap(here)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "[bold]hi", "client.id": EVIL})
    try:
        consumer.subscribe(["names"])
        until(lambda: consumer.poll(0.2) is None and consumer.assignment(), 60, "it is assigned")
        for arguments in (["describe", "[bold]hi"], ["lag", "[bold]hi"], ["list"]):
            done = ottla("groups", *arguments, "--dir", here)
            assert done.returncode == 0, done
            assert "[bold]hi" in done.stdout
            assert "\x1b" not in done.stdout
        assert (
            r"[/evil]\x1b[31mred" in ottla("groups", "describe", "[bold]hi", "--dir", here).stdout
        )
    finally:
        consumer.close()
    done = ottla(
        "configs", "alter", "--user", "[/u]", "--set", "producer_byte_rate=1000000", "--dir", here
    )
    assert done.returncode == 0, done.stderr
    assert "[/u]" in ottla("configs", "describe", "--quotas", "--dir", here).stdout


# B, C: `up`, `status` and `down` speak of their own processes -----------------------------------


def test_an_id_that_another_cluster_has_is_no_success(here, tmp_path):
    zookeeper = next(
        line.partition("=")[2]
        for line in ottla("up", "--dir", here).stderr.splitlines()
        if line.startswith("zookeeper")
    )
    at = ("--zookeeper", zookeeper, "--port-base", free_row(1))
    done = ottla("up", "-n", "1", "--dir", tmp_path / "other", *at)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "broker id 0 is registered" in last
    assert "another" in last
    assert ottla("status", "--dir", here).returncode == 0


def copied(here, tmp_path):
    """Copy a cluster that runs, but for what it is about to rename: that may be gone meanwhile."""
    copy = tmp_path / "copy"
    shutil.copytree(here, copy, ignore=shutil.ignore_patterns("*.sock", "*.tmp"))
    return copy


def test_a_copy_never_controls_the_original(here, tmp_path):
    copy = copied(here, tmp_path)
    for command in (["down"], ["status"], ["up"], ["topics", "list"]):
        one_line(ottla(*command, "--dir", copy), 1, "is a copy of", "--adopt")
    assert ottla("status", "--dir", here).returncode == 0, "the original still runs"
    try:
        adopted = ottla("up", "--adopt", "--dir", copy)
        assert adopted.returncode == 0, adopted.stderr
        assert ottla("status", "--dir", copy).returncode == 0
        assert bootstrap(copy) != bootstrap(here)
    finally:
        ottla("down", "--dir", copy)
    assert ottla("status", "--dir", here).returncode == 0


def test_what_is_true_of_the_original_alone_is_removed_from_a_copy(here, tmp_path):
    """The copy of ZooKeeper's data names living brokers, which its controller would write to."""
    copy = copied(here, tmp_path)
    folder = ClusterDir(copy)
    known = folder.load()
    assert len(list(copy.glob("broker-*/data/.ottla-*"))) >= len(known.brokers)
    relocation.remove_marks(folder, known)
    assert not list(copy.glob("broker-*/data/.ottla-*"))
    (port,) = free_ports(1)
    zookeeper = start_zookeeper(folder.zookeeper_dir, port)
    client = KazooClient(f"127.0.0.1:{port}")
    try:
        client.start()
        assert client.get_children("/brokers/ids"), "their sessions have not ended here yet"
        relocation.remove_registrations(ZooKeeper(f"127.0.0.1:{port}"))
        assert client.get_children("/brokers/ids") == []
        assert client.exists("/controller") is None
    finally:
        client.stop()
        zookeeper.kill()


def test_a_copy_of_a_running_cluster_becomes_one_of_its_own(here, tmp_path):
    assert ottla("topics", "create", "copied", "--partitions", "6", "--dir", here).returncode == 0
    copy = copied(here, tmp_path)
    described = ottla("topics", "describe", "copied", "--dir", here).stdout
    try:
        adopted = ottla("up", "--adopt", "--dir", copy)
        assert adopted.returncode == 0, adopted.stderr
        assert (
            ottla("topics", "alter", "copied", "--partitions", "9", "--dir", copy).returncode == 0
        )
        assert ottla("status", "--dir", copy).returncode == 0
    finally:
        ottla("down", "--dir", copy)
    assert ottla("topics", "describe", "copied", "--dir", here).stdout == described


def test_a_folder_that_was_moved_is_the_same_cluster(tmp_path):
    with cluster(tmp_path / "before") as before:
        ottla("down", "--dir", before)
        after = tmp_path / "after"
        before.rename(after)
        with cluster(after):
            assert ottla("status", "--dir", after).returncode == 0


def test_why_a_broker_is_down_is_said(tmp_path):
    with cluster(tmp_path / "data") as folder:
        pid = int(ottla("status", "--dir", folder).stdout.splitlines()[1].split("\t")[6])
        os.kill(pid, signal.SIGKILL)
        until(lambda: ottla("status", "--dir", folder).returncode == 1, 20, "it is down")
        assert "ended without a message (kill -9" in ottla("status", "--dir", folder).stdout


# D: a full disk ------------------------------------------------------------------------------


@AS_ROOT
def test_a_full_disk_is_named(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    up = f"{sys.executable} -m ottla up -n 1 --dir {folder}/data"
    script = f"""
        mount -t tmpfs -o size=12m tmpfs {folder} || exit 99
        {up} --port-base {free_row(2)} >{tmp_path}/up 2>&1 || exit 98
        head -c 20000000 /dev/zero >{folder}/filler 2>/dev/null
        {sys.executable} -m ottla down --dir {folder}/data >{tmp_path}/down 2>&1
        echo $? >{tmp_path}/code
        {up} >{tmp_path}/again 2>&1
        echo $? >>{tmp_path}/code
    """
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if done.returncode == 99:
        pytest.skip(f"no tmpfs can be mounted: {done.stderr}")
    assert done.returncode != 98, (tmp_path / "up").read_text()
    stopped, started = (tmp_path / "code").read_text().split()
    down = (tmp_path / "down").read_text().splitlines()
    if stopped != "0":  # what the processes gave back was not enough for cluster.json
        assert down[-1].startswith("ottla: everything is stopped, but cannot write"), down
    assert started == "1"
    again = (tmp_path / "again").read_text().splitlines()[-1]
    assert f"bytes free on {folder}/data" in again
    assert "Traceback" not in "".join(again)


@AS_ROOT
def test_a_full_disk_that_ended_the_brokers_is_named(tmp_path):
    """By the brokers' last words, though their log is on that disk, by `status` and `doctor`."""
    folder = tmp_path / "small"
    folder.mkdir()
    script = f"""
        ottla() {{ {sys.executable} -m ottla "$@" --dir {folder}/data; }}
        mount -t tmpfs -o size=8m tmpfs {folder} || exit 99
        ottla up -n 1 --port-base {free_row(2)} >{tmp_path}/up 2>&1 || exit 98
        ottla topics create big --replication-factor 1
        head -c 20000000 /dev/zero >{folder}/filler
        ottla status >{tmp_path}/full 2>&1
        ottla doctor --for 0s >{tmp_path}/diagnosed 2>&1
        head -c 9000000 /dev/urandom | base64 -w 900 | ottla produce big --timeout-ms 3000
        for n in $(seq 100); do ottla status | grep -q "no broker of" && break; sleep 0.2; done
        ottla status >{tmp_path}/status 2>&1
        ottla doctor >{tmp_path}/doctor 2>&1
        ottla down
        exit 0
    """
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    if done.returncode == 99:
        pytest.skip(f"no tmpfs can be mounted: {done.stderr}")
    assert done.returncode == 0, (tmp_path / "up").read_text()
    full = re.compile(rf"^disk: [\d,]+ bytes free on {folder}/data$", re.MULTILINE)
    assert full.search((tmp_path / "full").read_text())
    diagnosed = (tmp_path / "diagnosed").read_text()
    assert re.search(rf"\d bytes free on {folder}/data", diagnosed), "the brokers run or do not"
    status = (tmp_path / "status").read_text()
    assert full.search(status)
    last = f"broker 0: no log dir is usable any more; the last was {folder}/data/broker-0/data: "
    assert f"{last}[Errno 28] No space left on device\n" in status, status
    doctor = (tmp_path / "doctor").read_text()
    assert re.search(rf"no broker of {folder}/data runs: [\d,]+ bytes free on ", doctor)


# E, J, K: streams and interrupts --------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["topics list --dir {} >&-", "produce names --dir {} <&-", "topics list --dir {} <&- >&- 2>&-"],
)
def test_closed_streams_end_no_process(here, command):
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m ottla {command.format(here)}"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done
    assert "Assertion" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("after_s", [0.02, 0.05, 0.1, 0.2])
def test_ctrl_c_at_once_is_no_traceback(here, after_s):
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "topics", "list", "--dir", str(here)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    # Python itself may be interrupted before our first line runs, or in those before `main`.
    first = re.compile(r'.*ottla/__main__\.py", line \d+, in <module>')
    ours = [line for line in told.splitlines() if "ottla/" in line and not first.fullmatch(line)]
    assert not ours, told


# F: servers that are no brokers ----------------------------------------------------------------


def test_a_silent_port_is_told_soon():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        done = ottla("topics", "list", "--bootstrap-server", address)
        assert time.monotonic() - started < 15
        one_line(done, 1, address, "did not respond", "is it a Kafka broker")


def test_an_http_server_is_called_one():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"127.0.0.1:{server.server_port}"
        done = ottla("topics", "list", "--bootstrap-server", address)
        assert done.returncode == 1
        assert address in done.stderr
        assert "frame size" not in done.stderr
    finally:
        server.shutdown()
        thread.join(10)


# G: other addresses ------------------------------------------------------------------------------


@AS_ROOT
def test_a_cluster_listens_on_other_addresses_in_a_namespace(tmp_path):
    folder = tmp_path / "data"
    script = f"""
        ip link set lo up && ip address add 10.99.0.1/24 dev lo || exit 99
        ottla() {{ {sys.executable} -m ottla "$@" --dir {folder}; }}
        ottla up -n 2 --listen 0.0.0.0 2>{tmp_path}/none; echo $?
        ottla up -n 2 --listen 127.0.0.1 --advertise 10.99.0.7 2>{tmp_path}/wrong; echo $?
        ottla up -n 2 --listen 0.0.0.0 --advertise 10.99.0.1 2>{tmp_path}/right; echo $?
        {sys.executable} -m ottla topics create t --bootstrap-server 10.99.0.1:9092 2>&1; echo $?
        {sys.executable} -m ottla status --bootstrap-server 10.99.0.1:9092
        ottla down
    """
    done = subprocess.run(
        ["unshare", "-n", "bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if done.returncode == 99:
        pytest.skip(f"no network namespace: {done.stderr}")
    assert "add --advertise" in (tmp_path / "none").read_text()
    assert "10.99.0.7" in (tmp_path / "wrong").read_text()
    lines = done.stdout.splitlines()
    assert lines[:3] == ["1", "1", "0"], (done, (tmp_path / "right").read_text())
    assert "10.99.0.1:9093" in done.stdout


# H: ZooKeeper is dead -------------------------------------------------------------------------


def test_a_dead_zookeeper_is_named(tmp_path):
    import json

    with cluster(tmp_path / "data") as folder:
        known = json.loads((folder / "cluster.json").read_text())
        os.kill(known["zookeeper"]["process"]["pid"], signal.SIGKILL)
        done = ottla("topics", "create", "t", "--dir", folder)
        one_line(done, 1, "ZooKeeper at", "is down; start it with `ottla up`")


# K -----------------------------------------------------------------------------------------------


def test_what_is_not_there_is_said(here):
    one_line(ottla("log-dirs", "nope", "--dir", here), 1, "topic nope does not exist")
    one_line(ottla("configs", "describe", "--topic", "nope", "--dir", here), 1, "no such topic")
    one_line(ottla("up", "-n", "x", "--dir", here), 2, "-n x: not an integer")
    one_line(ottla("up", "-n", "0", "--dir", here), 2, "-n")
    one_line(ottla("up", "--set", "foo", "--dir", here), 2, "write key=value")


def test_more_brokers_get_the_next_ports(tmp_path):
    port = free_row(3)
    with cluster(tmp_path / "data", "--port-base", port) as folder:
        done = ottla("up", "-n", "2", "--dir", folder)
        assert done.returncode == 0, done.stderr
        assert f"127.0.0.1:{port},127.0.0.1:{port + 2}" in done.stderr, (
            "ZooKeeper has the one between"
        )


def test_one_line_after_another_reaches_several_partitions(here):
    assert ottla("topics", "create", "spread", "--partitions", "20", "--dir", here).returncode == 0
    for _ in range(8):
        assert ottla("produce", "spread", "--dir", here, input="x\n").returncode == 0
    lines = ottla(
        "consume", "spread", "--from-beginning", "--max-messages", "8", "--timeout-ms", "20000",
        "--output", "json", "--dir", here,
    ).stdout.splitlines()  # fmt: skip
    import json

    assert len({json.loads(line)["partition"] for line in lines}) > 1


def test_a_table_in_a_pipe_is_tab_separated(here):
    lines = ottla("topics", "list", "--dir", here).stdout.splitlines()
    assert lines[0] == "topic\tpartitions\treplicas\tunder-replicated\tleaderless"
    assert all(line.count("\t") == 4 and line == line.rstrip() for line in lines)


def test_other_peoples_files_are_not_called_damaged(tmp_path):
    folder = Path(tmp_path / "data")
    folder.mkdir()
    (folder / "cluster.json").write_text("{")
    one_line(ottla("status", "--dir", folder), 1, "is damaged")
