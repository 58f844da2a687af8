"""`ottla top` on real clusters: on a terminal of 80 by 24; as JSON beside librdkafka's metadata."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios

import pytest

from support.clients import admin_client, fresh
from support.cluster import OttlaCluster
from support.command_line import ok
from support.kafka39 import Kafka39Cluster
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(200)]


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def cluster(request, tmp_path_factory):
    kind = OttlaCluster
    if request.param == "kafka":
        request.getfixturevalue("kafka_tools")
        kind = Kafka39Cluster
    folder = tmp_path_factory.mktemp(request.param)
    with kind(folder, brokers=2) as found:
        yield found


def command(cluster, *arguments):
    return [sys.executable, "-m", "ottla", *arguments, "--bootstrap-server", cluster.bootstrap]


class Terminal:
    """A process on a terminal of its own, and all that it wrote there."""

    def __init__(self, words):
        controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            words, stdin=terminal, stdout=terminal, stderr=terminal, env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self.fd = controller
        self.written = ""

    def read(self):
        while select.select([self.fd], [], [], 0.05)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.written += data.decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.written)

    def shows(self, pattern, within_s=30):
        until(
            lambda: re.search(pattern, self.read()),
            within_s,
            lambda: f"{pattern!r} is shown:\n{self.read()[-5000:]}",
        )

    def press(self, key):
        self.written = ""
        os.write(self.fd, key.encode())

    def close(self):
        self.process.kill()
        self.process.wait(10)
        os.close(self.fd)


def test_the_screen_and_what_happens(cluster):
    topic = fresh()
    ok(cluster, "topics", "create", topic, "--assignment", "0:1,1:0", "--config",
        "min.insync.replicas=1")  # fmt: skip
    terminal = Terminal(command(cluster, "top", "--interval", "0.5"))
    try:
        terminal.shows("2 brokers")
        terminal.press("t")
        terminal.shows(topic)
        cluster.kill(1)
        terminal.shows("broker 1 is gone", 30)
        # A look may fall between the broker's end and the election.
        terminal.shows(f"{topic}-1: leader (1|none) → 0", 60)
        cluster.start_broker(1)
        terminal.shows("broker 1 is here", 60)
        terminal.press("q")
        assert terminal.process.wait(20) == 0
    finally:
        terminal.close()


def test_json_is_what_librdkafka_sees(cluster):
    topic = fresh()
    ok(cluster, "topics", "create", topic, "--assignment", "0:1,1:0,1:0")

    def both():
        lines = ok(cluster, "top", "--interval", "0.5", "--count", "2", "--output", "json")
        last = json.loads(lines.splitlines()[-1])
        seen = admin_client(cluster.bootstrap).list_topics(timeout=20)
        leaders = [p.leader for t in seen.topics.values() for p in t.partitions.values()]
        ours = (
            {b["broker"]: b["leaders"] for b in last["brokers"]},
            {t["topic"]: t["partitions"] for t in last["topics"]},
            last["problem"],
        )
        theirs = (
            {b: leaders.count(b) for b in seen.brokers},
            {name: len(t.partitions) for name, t in seen.topics.items()},
            None,
        )
        return ours, theirs

    def same():
        ours, theirs = both()
        return ours == theirs and topic in ours[1]

    # The two looks are at two moments, and may be at two brokers.
    until(same, 60, lambda: str(both()))
