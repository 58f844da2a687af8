"""The timeline of a killed leader, beside what a producer saw of it."""

import json
import os
import signal
import threading
import time

import pytest
from confluent_kafka import Producer

from ottla.local.cluster_dir import ClusterDir
from ottla.local.processes import alive
from support import command_line
from support.cluster import free_row
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]
SLACK_MS = 3000
"""How far the picture's moments may lie from what ZooKeeper and the producer say."""
NOTICED_MS = 4_000
"""From the kill until another leads, where the killed broker's port refuses connections.

Its session of 6 s, which it last renewed up to 2 s before, ends no sooner than that.
"""
LATE_MS = 15_000
"""What a producer may need to notice a new leader on a busy machine: no promise of any broker's."""


def ottla(*words):
    done = command_line.ottla(*words)
    assert done.returncode == 0, done
    return done.stdout


class Acknowledged:
    """Sends records one by one, acks=all, and keeps when each of those acknowledged was appended.

    In ms, as the leader says: this process may hear of it late.
    """

    def __init__(self, servers, topic):
        self.at_ms = []
        self._ends = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": 0,
                "acks": "all",
                # By default it may wait 1 s to ask for the leader, and 10 s to connect again: on a
                # busy machine that was most of the gap, and no broker's.
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
            }
        )
        self._topic = topic
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._ends.is_set():
            self._producer.produce(
                self._topic,
                b"x",
                on_delivery=lambda e, m: e or self.at_ms.append(m.timestamp()[1]),
            )
            self._producer.flush(60)
            time.sleep(0.01)

    def close(self):
        self._ends.set()
        self._thread.join(70)


@pytest.mark.parametrize("crash_detection", ["own", "off"])
def test_a_producer_s_gap_lies_in_the_picture_s(tmp_path, crash_detection):
    folder = tmp_path / "data"
    setting = f"ottla.crash.detection={crash_detection}"
    ottla("up", "-n", 3, "--dir", folder, "--port-base", free_row(4), "--set", setting)
    try:
        brokers = json.loads((folder / "cluster.json").read_text())["brokers"]
        servers = ",".join(f"127.0.0.1:{b['port']}" for b in brokers)
        ottla("topics", "create", "flights", "--partitions", 1, "--dir", folder,
              "--config", "message.timestamp.type=LogAppendTime")  # fmt: skip
        acknowledged = Acknowledged(servers, "flights")
        try:
            until(lambda: len(acknowledged.at_ms) > 20, 60, "records are acknowledged")
            (topic,) = json.loads(ottla("topics", "describe", "flights", "--dir", folder,
                                        "--output", "json"))  # fmt: skip
            leader = topic["partitions"][0]["leader"]
            status = json.loads(ottla("status", "--dir", folder, "--output", "json"))
            was_controller = status["controller"] == leader
            process = ClusterDir(folder).existing().broker(leader).process
            killed_ms = time.time() * 1000
            # Not by our command: its own start would count.
            os.kill(process.pid, signal.SIGKILL)
            until(lambda: not alive(process), 20, "it is dead")
            died_ms = time.time() * 1000
            until(
                lambda: (
                    acknowledged.at_ms[-1] > killed_ms + 2000
                    and max(acknowledged.at_ms) - killed_ms > 4000
                ),
                60,
                "it goes on",
            )
        finally:
            acknowledged.close()
        drawn = json.loads(
            ottla("history", "timeline", "flights-0", "--dir", folder, "--output", "json")
        )
        text = ottla("history", "timeline", "flights-0", "--dir", folder)
        state = json.loads(ottla("znode", "get", "/brokers/topics/flights/partitions/0/state",
                                 "--dir", folder, "--output", "json"))  # fmt: skip
    finally:
        ottla("down", "--dir", folder)
    times = acknowledged.at_ms
    before = max(at for at in times if at <= died_ms)
    after = min(at for at in times if at > died_ms)
    gaps = drawn["without_leader"]
    dying = [gap["from_ms"] for gap in gaps if gap["leader_may_be_dead"]]
    led = [p for p in drawn["partitions"] if p["leader"] not in (leader, None)]
    end = led[0]["from_ms"]
    if crash_detection == "off":
        assert end == max(gap["until_ms"] for gap in gaps)
        assert min(dying) - SLACK_MS <= killed_ms <= end
        assert min(dying) - SLACK_MS <= before <= end
    else:
        assert not dying, "its port refused connections (R17)"
        assert killed_ms <= end <= killed_ms + NOTICED_MS
    # The controller sends its decision, and writes it down then.
    assert end - SLACK_MS <= after, "no record is acknowledged before there is a leader"
    assert after - end <= LATE_MS
    # The znode was last written by the election: a new controller first has none lead.
    assert state["data"]["leader_epoch"] == (2 if was_controller else 1)
    assert abs(end - state["modified_ms"]) <= SLACK_MS, "ZooKeeper's clock says when it was"
    led = [p["leader"] for p in drawn["partitions"]]
    assert led[0] == leader
    assert led[-1] not in (leader, None)
    line = next(line for line in text.splitlines() if line.startswith("flights-0 leader"))
    assert ("?" in line) == (crash_detection == "off")
