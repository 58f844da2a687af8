"""Moves between log dirs under Kafka's eyes: its tool begins them, its broker finishes ours.

One folder, used by our broker and the JVM's in turn; each is killed amid a move of 4 MB, and the
other goes on with the future log that it finds.
"""

import json

import pytest

from ottla.admin.session import connected
from ottla.cli.grammar import main as cli
from ottla.client import configs
from ottla.wire.messages.cluster import DescribeLogDirsRequest
from support import kafka_tools as tools
from support.clients import admin_client, create_topic, produce, read_ended
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.seen import Znodes, ask
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(tools.why_not() is not None, reason=str(tools.why_not())),
]

SESSION_MS = 2000
SLOW = 100_000
"""bytes per second: 4 MB take longer than all that is done meanwhile"""
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
COUNT = 4000


class Folder:
    """Two log dirs of broker 0, and a cluster of either kind to run it."""

    def __init__(self, path):
        self.dirs = (path / "a", path / "b")
        listed = ",".join(map(str, self.dirs))
        more = {"log_dirs": listed, "log_segment_delete_delay_ms": "1000"}
        self.ours = OttlaCluster(path / "ours", brokers=1, session_timeout_ms=SESSION_MS, **more)
        self.theirs = Kafka39Cluster(
            path / "theirs", heap_mb=320, session_timeout_ms=SESSION_MS, **more
        )
        self.theirs.folder.mkdir(parents=True)
        self.now = self.ours

    def home(self, topic):
        """Return the dir in which the partition's current log lies."""
        (home,) = (d for d in self.dirs if (d / f"{topic}-0").is_dir())
        return home

    def futures(self, topic):
        return [p for d in self.dirs for p in d.glob(f"{topic}-0.*-future")]

    def other(self, home):
        return next(d for d in self.dirs if d != home)

    def lags(self, topic):
        """Return {(dir, is future): lag} as DescribeLogDirs tells it."""
        answer = ask(self.now.address(0), DescribeLogDirsRequest(topics=None), 4)
        return {
            (r.log_dir, p.is_future_key): p.offset_lag
            for r in answer.results
            for t in r.topics
            for p in t.partitions
            if t.name == topic
        }

    def is_amid(self, topic, there):
        """Return whether a part of the log is in the other dir."""
        return 0 < self.lags(topic).get((str(there), True), COUNT) < COUNT

    def kill_and_start(self, cluster, znodes):
        """Kill the broker that runs with -9; start it, or that of the other kind, on its files."""
        self.now.kill(0)
        until(lambda: not znodes.brokers(), 20, "its session is over")
        self.now = cluster
        cluster.start_broker(0)
        until(lambda: 0 in cluster.known_to(0), 30, "it knows itself")

    def throttle(self, rate):
        """Set the throttle, and wait until the broker obeys it: Kafka's tool does not wait."""
        changed = {} if rate is None else {THROTTLE: str(rate)}

        async def alter(client):
            removed = [] if changed else [THROTTLE]
            await configs.alter(client, configs.BROKER, "0", changed, removed)
            if changed:
                await configs.wait_in_force(client, 0, changed)

        connected(self.now.bootstrap, alter)

    def finishes(self, topic, there):
        """Let a move go on at full speed, and wait for its end."""
        self.throttle(None)
        until(
            lambda: (there / f"{topic}-0").is_dir() and not self.futures(topic), 40, "it has moved"
        )
        until(lambda: self.lags(topic) == {(str(there), False): 0}, 20, "it is told so")


def ottla(*words):
    return cli(list(words))


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path)
    with folder.ours:
        folder.theirs.zookeeper = folder.ours.zookeeper
        (folder.theirs.folder / "log4j.properties").write_text(
            "log4j.rootLogger=INFO, stdout\n"
            "log4j.appender.stdout=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.stdout.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.stdout.layout.ConversionPattern=%m (%c)%n\n"
        )
        try:
            yield folder
        finally:
            folder.theirs.stop()


@pytest.mark.alone  # half a minute
def test_a_move_begun_by_kafkas_tool_outlives_kills_and_is_finished_by_either(
    folder, tmp_path, capsys
):
    admin = admin_client(folder.ours.bootstrap)
    topic = create_topic(admin, 1, 1, segment_bytes="1000000")
    values = [b"%06d" % n + b"x" * 1000 for n in range(COUNT)]
    produce(folder.ours.bootstrap, topic, values, 1)
    first = folder.home(topic)
    second = folder.other(first)
    plan = tmp_path / "plan.json"

    def to(target):
        entry = {"topic": topic, "partition": 0, "replicas": [0], "log_dirs": [str(target)]}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))

    with tools.OneJvm() as jvm, Znodes(folder.ours.zookeeper) as znodes:

        def reassign(action, *more):
            return jvm.call(
                tools.REASSIGN, "--bootstrap-server", folder.now.bootstrap,
                action, "--reassignment-json-file", str(plan), *more,
            )  # fmt: skip

        to(second)
        folder.throttle(SLOW)
        code, out = reassign("--execute", "--replica-alter-log-dirs-throttle", str(SLOW))
        assert code == 0, out
        assert f"started moving log directory to {second} for replica {topic}-0 with" in out
        until(lambda: folder.futures(topic), 20, "the future log is there")
        code, out = reassign("--verify", "--preserve-throttles")
        assert f"Reassignment of replica {topic}-0-0 is still in progress" in out
        until(lambda: folder.is_amid(topic, second), 20, "some way")
        code, out = jvm.call(
            tools.LOG_DIRS, "--bootstrap-server", folder.now.bootstrap, "--describe"
        )
        assert '"isFuture":true' in out, out

        # The JVM's broker goes on where ours was killed.
        folder.kill_and_start(folder.theirs, znodes)
        assert folder.futures(topic), "still amid the move"
        folder.finishes(topic, second)
        to(first)
        folder.throttle(SLOW)
        assert reassign("--execute", "--replica-alter-log-dirs-throttle", str(SLOW))[0] == 0
        until(lambda: folder.futures(topic), 20, "the way back")
        until(lambda: folder.is_amid(topic, first), 20, "some way")

        # And ours where the JVM's was.
        folder.kill_and_start(folder.ours, znodes)
        assert folder.futures(topic), "still amid the move"
        folder.finishes(topic, first)
        code, out = reassign("--verify")
        assert f"Reassignment of replica {topic}-0-0 completed successfully" in out, out

        # Our command line, in the same format; what it shows is what Kafka's tool shows.
        to(second)
        server = ("--bootstrap-server", folder.now.bootstrap)
        of = ("--file", str(plan))
        assert ottla("reassign", "execute", *of, "--log-dirs-throttle", str(SLOW), *server) == 0
        until(lambda: folder.is_amid(topic, second), 20, lambda: f"some way: {folder.lags(topic)}")
        assert ottla("reassign", "verify", *of, *server) == 1
        assert "records to go" in capsys.readouterr().err
        assert ottla("log-dirs", topic, *server) == 0
        assert f"{topic}-0 on broker 0 moves to {second}: " in capsys.readouterr().err
        folder.throttle(None)
        assert ottla("reassign", "verify", *of, "--wait", "30", *server) == 0
    assert read_ended(folder.ours.bootstrap, topic, 1) == values
    folder.ours.terminate(0)
    assert tools.dump_log(second / f"{topic}-0", ".log").count("| offset: ") == COUNT
