"""`ottla console` as a process, beside a cluster of processes: kills, cuts, and Ctrl-C."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ottla.console.server import MOST_CONNECTIONS
from ottla.explain.timestamps import parse_time
from ottla.local import faults
from ottla.local.cluster_dir import ClusterDir
from ottla.local.processes import alive, paused, send_signal
from support.cluster import free_row
from support.command_line import lines, ottla
from support.console import of_preview
from support.console_process import served, up
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


QUICK = ("--set", "replica.lag.time.max.ms=1500", "--set", "zookeeper.session.timeout.ms=2000")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with up(tmp_path_factory.mktemp("console") / "data", 3, *QUICK) as found:
        yield found
        send_signal(found.existing().broker(2).process, signal.SIGKILL)  # it removes no sockets
    left = [path for path in found.path.rglob("*") if path.is_socket()]
    assert left == [], "down leaves no sockets"


def done(console, path, words, **fields):
    """Make a change of chaos and wait until it is made."""
    preview = console.change(path, **fields)
    console.until("/chaos", words, 60)
    console.until_gone("/chaos", "goes on", 40)
    return preview


def test_a_kill_is_seen_at_once_and_the_broker_comes_back(folder):
    with served("--dir", folder.path) as console:
        console.enter()
        assert console.request("GET", console.path)[0] == 401, "the link let in once"
        assert re.fullmatch(r"localhost:\d+", console.address)
        assert "; Path=/s/" in console.set_cookie
        console.until("/chaos", "/broker?id=2", 20)
        preview = console.change("/chaos/do", deed="kill", broker="2")
        # 0.25 s alone; here others take the cores. test_browser.py has 1 s
        console.until("/", '<span class="bad">down</span>', 6)  # a session would take longer
        assert "SIGKILL" in preview
        console.until("/", "broker 2 is gone", 40)
        assert not folder.existing().broker(2).running
        assert folder.existing().broker(2).ended.startswith("killed by the console at ")
        console.until("/chaos", "broker 2 killed", 40)
        console.until_gone("/chaos", "goes on", 40)
        done(console, "/chaos/do", "broker 2 started", deed="start", broker="2")
        console.until("/", "broker 2 is here", 40)
        console.change("/chaos/do", deed="pause", broker="1")
        console.until("/", '<span class="bad">paused</span>', 40)
        console.until_gone("/chaos", "goes on", 40)
        process = folder.existing().broker(1).process
        assert paused(process)
        done(console, "/chaos/do", "broker 1 resumed", deed="resume", broker="1")
        assert not paused(process)
        before = folder.existing().broker(0).process
        done(console, "/chaos/do", "broker 0 restarted", deed="restart", broker="0")
        assert folder.existing().broker(0).process != before
        assert not alive(before)
        code, said = console.end()
        assert (code, said) == (0, "")


def test_a_deed_is_done_to_the_process_of_its_preview_alone(folder):
    with served("--dir", folder.path) as console:
        console.enter()
        _, fields = of_preview(console.post("/chaos/do", 200, deed="kill", broker="1"))
        assert fields.pop("process") == str(folder.existing().broker(1).process.pid)
        text = console.post("/chaos/do", 502, **fields, process="1")
        assert "has a new process" in text
        assert "goes on" not in console.get("/chaos")
        assert folder.existing().broker(1).running


def listens_on(pid):
    """Return the addresses on which a process listens, as the kernel has them."""
    inodes = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.exists()}
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    found = [f[1].partition(":")[0] for f in lines if f[3] == "0A" and f"socket:[{f[9]}]" in inodes]
    return [socket.inet_ntoa(bytes.fromhex(address)[::-1]) for address in found]


def test_it_listens_on_this_machine_alone():
    with served("-b", "127.0.0.1:9") as console:
        assert listens_on(console.process.pid) == ["127.0.0.1"]


class States:
    """Leaders and ISRs as ZooKeeper has them, by another client."""

    def __init__(self, folder):
        self._zookeeper = KazooClient(folder.existing().zookeeper.address)

    def __enter__(self):
        self._zookeeper.start(30)
        return self

    def __exit__(self, *_):
        self._zookeeper.stop()
        self._zookeeper.close()

    def of(self, topic):
        data, _ = self._zookeeper.get(f"/brokers/topics/{topic}/partitions/0/state")
        state = json.loads(data)
        return state["leader"], sorted(state["isr"])

    def controller(self):
        return json.loads(self._zookeeper.get("/controller")[0])["brokerid"]

    def registered(self):
        return sorted(map(int, self._zookeeper.get_children("/brokers/ids")))


def test_a_cut_cuts_and_heals(folder):
    """What ZooKeeper has of leaders and ISRs is the truth beside what the page says."""
    with States(folder) as states, served("--dir", folder.path) as console:
        console.enter()
        controller = states.controller()  # ISRs change through it: it is cut from no one
        leader, follower = (b for b in (0, 1, 2) if b != controller)
        replicas = f"{leader}:{controller}:{follower}"
        created = ottla("topics", "create", "cut", "--assignment", replicas, "--dir", folder.path)
        assert created.returncode == 0, created.stderr
        until(lambda: states.of("cut") == (leader, [0, 1, 2]), 40, "all in sync")
        console.change("/chaos/probe", topic="cut")
        done_cut = f"broker {follower} is cut from broker {leader}"
        cut = {"deed": "cut", "broker": follower, "from": leader}
        preview = done(console, "/chaos/do", done_cut, **cut)
        assert f"Nothing gets through between the broker and broker {leader}" in preview
        console.until("/chaos", f"Broker {leader} is cut off from broker {follower}, for", 20)
        in_sync = sorted((leader, controller))
        until(lambda: states.of("cut") == (leader, in_sync), 40, "the follower is out")
        assert states.registered() == [0, 1, 2], "it reaches ZooKeeper"
        assert 'class="strip"' in console.get("/chaos"), "a client's view is beside it"
        done(console, "/chaos/do", "healed", deed="heal")
        until(lambda: states.of("cut") == (leader, [0, 1, 2]), 40, "it is back")
        console.until_gone("/chaos", "min more at most", 20)

        # The leader, from everyone but clients: its session ends, and another one leads.
        everyone = f"broker {leader} is cut from broker"
        done(console, "/chaos/do", everyone, deed="cut", broker=leader)
        until(lambda: leader not in states.registered(), 40, "its session ended")
        until(lambda: states.of("cut")[0] in (controller, follower), 40, "another one leads")
        assert alive(folder.existing().broker(leader).process)
        console.process.kill()  # a cut outlives the console; the next one sees and ends it
        console.process.communicate(timeout=20)
    with States(folder) as states, served("--dir", folder.path) as console:
        console.enter()
        console.until("/chaos", "ZooKeeper, for", 20)
        asked_ms = time.time_ns() // 1_000_000
        drawn = re.search(r"to (\S+ \S+)\. Turn", console.get("/why?partition=cut-0"))
        assert parse_time(drawn[1]) >= asked_ms, "what the journal's last line says holds until now"
        done(console, "/chaos/do", "healed", deed="heal")
        until(lambda: states.registered() == [0, 1, 2], 40, "it is registered again")
        until(lambda: states.of("cut")[1] == [0, 1, 2], 60, "it is back")


def test_a_supervisor_that_is_killed_amid_a_cut_leaves_nothing_that_down_does_not_end(tmp_path):
    path = tmp_path / "data"
    words = ("up", "--foreground", "-n", "2", "--dir", path, "--port-base", free_row(3))
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "ottla", *map(str, words)], stderr=subprocess.PIPE, text=True
    )
    try:
        until(lambda: "Ctrl-C" in supervisor.stderr.readline(), 60, "it is up")
        folder = ClusterDir(path)
        faults.cut(folder, 0, "all", lambda _: None)
        assert faults.in_force(folder).keys() == {0, 1}
    finally:
        supervisor.kill()
        supervisor.communicate(timeout=20)
    processes = folder.existing().processes()
    assert len(processes) == 3
    ended = ottla("down", "--dir", path)
    assert (ended.returncode, ended.stderr) == (0, "3 processes stopped\n"), "none by force"
    assert not [p for p in processes if alive(p)]
    assert not [file for file in path.rglob("*") if file.is_socket()]


def test_a_cut_that_cannot_be_meant(folder):
    with served("--dir", folder.path) as console:
        console.enter()
        for from_, words in (("1", "there are all"), ("9", "there are all"), ("x", "there are")):
            text = console.post("/chaos/do", 502, deed="cut", broker="1", **{"from": from_})
            assert words in text
        console.post("/chaos/do", 502, deed="cut", broker="9")
        done(console, "/chaos/do", "broker 2 paused", deed="pause", broker="2")
        try:
            done(console, "/chaos/do", "broker 2 is paused; resume it", deed="cut", broker="1")
            assert "is cut off from broker" not in console.get("/chaos")
        finally:
            done(console, "/chaos/do", "broker 2 resumed", deed="resume", broker="2")


def test_a_cut_by_commands(folder):
    at = ("--dir", folder.path)
    for broker, whom, words in (("1", "x", "there are all, brokers"), ("9", "all", "broker 9")):
        refused = ottla("broker", "cut", broker, "--from", whom, *at)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert words in refused.stderr
        assert len(lines(refused)) == 1
    assert faults.in_force(folder) == {}
    done = ottla("broker", "cut", "1", "--from", "2", "--output", "json", *at)
    assert json.loads(done.stdout) == [{"broker": 1, "result": "cut"}], done.stderr
    assert done.stderr == (
        "broker 1 is cut from broker 2\n"
        "`ottla broker heal` ends it; otherwise it ends after 30 min\n"
    )
    cuts = faults.in_force(folder)
    assert {of: whom.partition(",")[0] for of, whom in cuts.items()} == {
        1: "broker 2",
        2: "broker 1",
    }
    done = ottla("broker", "heal", *at)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr == "healed: nothing is cut any more at 3 brokers\n"
    assert faults.in_force(folder) == {}


def test_damaged_requests_and_too_many_connections(tmp_path):
    with served("-b", "127.0.0.1:9") as console:
        host, port = "localhost", console.address.rpartition(":")[2]

        def status(data):
            with socket.create_connection((host, int(port)), 30) as connection:
                with suppress(ConnectionResetError, BrokenPipeError):
                    connection.sendall(data)  # what is refused may be answered amid it
                return int(connection.recv(100).split()[1])

        ours = b"Host: localhost\r\n"
        assert status(b"GET / HTTP/1.1\r\n" + ours + b"\r\n") == 401
        assert status(b"GET / HTTP/1.1\r\nHost: evil\r\n\r\n") == 421
        assert status(b"GET / HTTP/1.0\r\n\r\n") == 421
        assert status(b"GET / HTTP/1.1\r\n" + ours * 2 + b"\r\n") == 400
        assert status(b"\x16\x03\x01\x00\r\n\r\n") == 400
        assert status(b"GET / HTTP/1.1\r\n" + ours + b"X: " + b"a" * 200_000) == 400
        upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        assert status(b"GET /live HTTP/1.1\r\n" + ours + upgrade) == 401
        many = [socket.create_connection((host, int(port)), 30) for _ in range(MOST_CONNECTIONS)]
        assert status(b"GET /login HTTP/1.1\r\n" + ours + b"\r\n") == 503
        for connection in many:
            connection.close()
        until(lambda: status(b"GET /login HTTP/1.1\r\n" + ours + b"\r\n") == 401, 30, "room")
        assert console.end() == (0, "")


def test_a_secured_cluster_and_none_of_its_secrets(tmp_path):
    with up(tmp_path / "data", 1, "--secure") as folder:
        properties = folder.client_properties()
        bootstrap = folder.bootstrap()
        with served("-b", bootstrap, "--command-config", properties) as console:
            console.enter()
            console.until("/", "/broker?id=0", 20)
            text = console.get("/settings?kind=broker&name=0")
            assert "ssl.keystore" in text
            lines = [
                line.partition("=")[2].strip()
                for file in (properties, folder.properties_file(0))
                for line in file.read_text().splitlines()
                if "password" in line.partition("=")[0]
            ]
            assert not [secret for secret in lines if secret and secret in text]
            console.end()


def test_what_stands_in_the_way_is_one_line(tmp_path):
    with served("-b", "127.0.0.1:9") as console:
        console.enter()
        assert "cannot reach 127.0.0.1:9" in console.get("/")
        assert "cannot reach 127.0.0.1:9" in console.get("/groups", 502)
        port = console.address.rpartition(":")[2]
        taken = ottla("console", "-b", "127.0.0.1:9", "--port", port)
        assert taken.returncode == 1
        assert taken.stderr.count("\n") == 1
        assert "cannot listen on" in taken.stderr
        code, said = console.end(signal.SIGTERM)
        assert code in (0, 130)
        assert "Traceback" not in said
    wrong = ottla("console", "--host", "nowhere", "-b", "127.0.0.1:9")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
