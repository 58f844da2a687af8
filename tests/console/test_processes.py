"""`ottla console` as a process, beside a cluster of processes: a kill, and Ctrl-C."""

import signal
import socket
from contextlib import suppress

import pytest

from ottla.console.server import MOST_CONNECTIONS
from support.console_process import run, served, up
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


def test_a_kill_is_seen_at_once_and_the_broker_comes_back(tmp_path):
    with up(tmp_path / "data") as folder, served("--dir", folder.path) as console:
        console.enter()
        assert console.request("GET", console.path)[0] == 401, "the link let in once"
        console.until("/chaos", "/broker?id=2", 20)
        console.post("/chaos/do", deed="kill", broker="2")
        # 0.25 s alone; here others take the cores. test_browser.py has 1 s
        console.until("/", '<span class="bad">down</span>', 6)  # a session would take longer
        console.until("/", "broker 2 is gone", 40)
        assert not folder.existing().broker(2).running
        console.until("/chaos", "broker 2 killed", 40)
        console.until_gone("/chaos", "goes on", 40)
        console.post("/chaos/do", deed="start", broker="2")
        console.until("/chaos", "broker 2 started", 60)
        console.until("/", "broker 2 is here", 40)
        console.until_gone("/chaos", "goes on", 40)
        console.post("/chaos/do", deed="pause", broker="1")
        console.until("/", '<span class="bad">paused</span>', 40)
        console.until_gone("/chaos", "goes on", 40)
        console.post("/chaos/do", deed="resume", broker="1")
        console.until("/chaos", "broker 1 resumed", 40)
        code, said = console.end()
        assert (code, said) == (0, "")


def test_damaged_requests_and_too_many_connections(tmp_path):
    with served("-b", "127.0.0.1:9") as console:
        host, _, port = console.address.partition(":")

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
        taken = run("console", "-b", "127.0.0.1:9", "--port", port)
        assert taken.returncode == 1
        assert taken.stderr.count("\n") == 1
        assert "cannot listen on" in taken.stderr
        code, said = console.end(signal.SIGTERM)
        assert code in (0, 130)
        assert "Traceback" not in said
    wrong = run("console", "--host", "nowhere", "-b", "127.0.0.1:9")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
