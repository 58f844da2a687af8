"""The page of a group: its lag over time as a picture and a table, live, and where it goes."""

import asyncio
import re
import time
from html import unescape
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from starlette.testclient import TestClient

from ottla.admin.session import connected
from ottla.admin.top.changes import Broker, Look
from ottla.admin.top.group_progress import Progress, progress_of
from ottla.client import groups
from ottla.console import watcher
from ottla.console.application import application
from ottla.console.lag_history import MOST_TOPICS, LagHistory
from ottla.console.state import console_for
from support.console import live_parts, until_text

TOPICS = [f"events-{n}" for n in range(2)]


def produce(cluster, topic, count):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, f"{number}", partition=0)
    assert producer.flush(30) == 0


def commit(cluster, group, **offsets):
    """Commit offsets of a group without members."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = [TopicPartition(t.replace("_", "-"), 0, o) for t, o in offsets.items()]
    (future,) = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, wanted)]
    ).values()
    assert not [p for p in future.result(30).topic_partitions if p.error]


@pytest.fixture(scope="module", autouse=True)
def contents(cluster):
    for topic in TOPICS:
        cluster.create_topic(topic, partitions=1, min_insync_replicas=1)
        produce(cluster, topic, 100)


@pytest.fixture(autouse=True)
def _no_history(page):
    page.console.watcher.lags = LagHistory()


def seen(cluster, group):
    rows = connected(cluster.bootstrap, lambda client: groups.lag(client, group))
    return progress_of(rows, time.monotonic())


def lines(text):
    """Return the paths of lines that a page draws, by kind."""
    picture = text[text.index("<svg") : text.index("</svg>")]
    return dict(re.findall(r'<path class="line (\S+)" d="(\S[^"]*)"/>', picture))


def cards(text):
    return dict(re.findall(r"<dt>(.+?)</dt><dd>(.*?)</dd>", text, re.DOTALL))


def test_a_picture_a_table_and_rates_of_what_was_seen(cluster, page):
    commit(cluster, "past", events_0=100, events_1=40)
    page("/")
    wait_for(lambda: "past" in (page.console.watcher.changes.look.groups or ()), 40)
    now = seen(cluster, "past")
    assert (now.lag, now.topics) == (60, {"events-0": 0, "events-1": 60})
    history = LagHistory()  # no look of the console comes before what is past
    for before_s, consumed, produced, lag in (
        (600, 0, 0, 5),
        (100, 50, 100, 110),
        (50, 25, 50, 85),
    ):
        history.add(
            "past",
            now._replace(
                at_s=now.at_s - before_s, lag=lag, topics={"events-0": 0, "events-1": lag},
                committed=now.committed - consumed, end=now.end - produced,
            ),
        )  # fmt: skip
        history._looked = {"past"} if before_s < 600 else set()
    page.console.watcher.lags = history
    text = page("/group", name="past")
    found = cards(text)
    assert found["Total lag"] == "60"
    assert float(found["Consumed/s"]) == pytest.approx(0.5, abs=0.1)
    assert float(found["Produced/s"]) == pytest.approx(1.0, abs=0.1)
    assert found["Lag trend"] == "grows by 0.5/s"
    drawn = lines(text)
    assert set(drawn) == {"total", "topic-1", "topic-2"}
    assert drawn["total"].count("M") == 2, "one gap"
    assert drawn["total"].count("L") == 2
    label = re.search(r'role="img" aria-label="([^"]+)"', text)[1]
    assert label == (
        "Lag in the last 15 minutes: 60 now, minimum 5, maximum 110; 1 gap while nobody watched"
    )
    legend = re.sub("<.*?>", "", re.search(r'<ul class="legend">.*?</ul>', text, re.DOTALL)[0])
    assert [*filter(None, map(str.strip, legend.splitlines()))] == [
        "whole group: 60", "events-0: 0", "events-1: 60"
    ]  # fmt: skip
    table = text[text.index("<summary>") : text.index("</details>")]
    rows = re.findall(r"<tr><th scope=\"row\">(\S+)</th>(.*?)</tr>", table)
    assert len(rows) == 12
    assert re.fullmatch(r"\d\d:\d\d:\d\d", rows[0][0])
    values = [re.findall(r">([^<]+)</td>", row) for _, row in rows]
    assert values[0] == ["85", "0", "85"]
    assert values.count(["-", "-", "-"]) == 9
    assert not re.search(r"\son\w+=|style=|javascript:|<script(?! src=\"/static)", text)


def test_groups_are_kept_whose_page_nobody_opened(cluster, page):
    commit(cluster, "unseen", events_0=97, events_1=98)
    lags = page.console.watcher.lags
    page("/")
    wait_for(lambda: lags.points("unseen", 0.0), 40)
    (point,) = lags.points("unseen", 0.0)
    found = seen(cluster, "unseen")
    assert point[3:6] == (found.lag, found.committed, found.end)
    by_topic = dict(zip(lags.topics("unseen"), point.topics, strict=True))
    by_topic.pop(None)
    assert by_topic == found.topics


def test_one_topic_is_one_line(cluster, page):
    commit(cluster, "one", events_0=1)
    text = page("/group", name="one")
    assert set(lines(text)) == {"total"}
    assert lines(text)["total"].endswith("h0"), "the first look is a dot"
    assert cards(text)["Lag trend"] == "-"


def test_the_five_topics_with_the_highest_lag_and_no_more(cluster, page, monkeypatch):
    commit(cluster, "many", events_0=1)
    topics = {f"t{n}": n for n in range(30)}
    history = LagHistory()
    history.add("many", seen(cluster, "many")._replace(at_s=time.monotonic() - 60, topics=topics))
    page.console.watcher.lags = history
    text = page("/group", name="many")
    assert len(lines(text)) == 1 + MOST_TOPICS
    for topic in ("events-0", "t29", "t28", "t27", "t26"):
        assert f" {topic}: " in text, topic
    assert "with the highest lag" not in text, "it has one now"
    progress = seen(cluster, "many")._replace(topics=topics)
    monkeypatch.setattr("ottla.console.pages.groups.progress_of", lambda *_: progress)
    assert "Shows the 5 of 30 topics with the highest lag" in page("/group", name="many")


def test_a_group_that_has_committed_nothing(cluster, page):
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "idle", "enable.auto.commit": False}
    )
    consumer.subscribe(["events-0"])
    try:
        wait_for(lambda: consumer.poll(0.1) or consumer.assignment(), 40)
        text = page("/group", name="idle")
        assert "No lag to show" in text
        assert cards(text)["Total lag"] == "-"
    finally:
        consumer.close()


SEVEN = '<td class="n">7</td>'


def test_the_page_is_updated_live(cluster, page, monkeypatch):
    commit(cluster, "live", events_0=100)
    text = page("/group", name="live")
    link = unescape(re.search(r'data-live="([^"]+)"', text)[1])
    assert link == "/live?of=group&name=live&page=1"
    for element in ("facts", "history", "partitions", "members"):
        assert f'id="{element}"' in text

    def until(parts):
        ids = [element for element, _ in parts]
        if len(ids) == 4:
            assert ids == ["facts", "history", "partitions", "members"]
            # Not from here: this is the loop that asks the cluster.
            asyncio.get_running_loop().run_in_executor(None, produce, cluster, "events-0", 7)
            parts.append(("produced", ""))
        new = dict(parts[5:])  # the newest of each; the lag may come in the one look or the other
        return "7 now" in new.get("history", "") and SEVEN in new.get("partitions", "")

    parts = live_parts(page.http, link.partition("?")[2], until)
    after = dict(parts)
    assert cards(after["facts"])["Total lag"] == "7"
    assert lines(after["history"])["total"].count("L") >= 1, "a line, not a dot"
    assert SEVEN in after["partitions"]
    assert page.console.subscribers == 0


def test_a_page_that_is_gone_sends_nothing_more_but_stays(cluster, page):
    assert page("/live", 400, of="groups")
    assert live_parts(page.http, urlencode({"of": "group", "name": "none"}), lambda _: True) == []


# --- what the watcher sees --------------------------------------------------------------------


class Looking:
    """Gives looks without a cluster: the groups that are set, asked for anew in each."""

    def __init__(self):
        self.lag = 100
        self.problem = ""
        self.kept = None

    async def look(self):
        now_s = time.monotonic()
        progress = Progress(now_s, self.lag, 0, self.lag, 1, {"t": self.lag})
        found = {"g": progress} if self.kept is None else self.kept
        if self.problem:
            return Look(now_s, "12:00:00", "", -1, {}, {}, {}, problem=self.problem)
        brokers = {1: Broker("h:1", None)}
        return Look(now_s, "12:00:00", "c", 1, brokers, {}, {}, progress=found)


class NoClient:
    async def call(self, *_args, **_more):
        await asyncio.sleep(3600)

    async def close(self):
        pass


@pytest.fixture
def watched(monkeypatch):
    """A console whose watcher looks all the time while `watching`; each look is a point.

    Not by the clock: a busy machine would end it after one look, and none would come any more.
    """
    monkeypatch.setattr(watcher, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr("ottla.console.lag_history.EVERY_S", 0.01)
    console = console_for(NoClient(), NoClient)
    console.watcher._looking = Looking()

    def watching(going):
        monkeypatch.setattr(watcher, "IDLE_S", 3600.0 if going else -1.0)
        if going:
            http.portal.call(console.watcher.want)

    with TestClient(application(console), base_url="http://127.0.0.1:8090") as http:
        yield SimpleNamespace(watcher=console.watcher, watching=watching)


def points(watched):
    return watched.watcher.lags.points("g", 0.0)


def wait_for(condition, timeout_s=40):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_look_is_a_point_and_where_nobody_looks_is_a_gap(watched):
    watched.watching(True)
    wait_for(lambda: len(points(watched)) >= 3)
    watched.watching(False)
    wait_for(lambda: not watched.watcher._wanted.is_set())
    first = points(watched)
    assert [p.joined for p in first] == [False] + [True] * (len(first) - 1)
    time.sleep(0.2)
    assert points(watched) == first, "nothing was asked"
    watched.watching(True)
    wait_for(lambda: len(points(watched)) > len(first) + 2)
    after = points(watched)[len(first) :]
    assert not after[0].joined
    assert after[1].joined


def test_looks_that_fail_are_a_gap(watched):
    watched.watching(True)
    looking = watched.watcher._looking
    wait_for(lambda: len(points(watched)) >= 2)
    looking.problem = "no broker responds"
    wait_for(lambda: watched.watcher.changes.look.problem)
    before = len(points(watched))
    looking.problem = ""
    wait_for(lambda: len(points(watched)) > before + 1)
    joined = [p.joined for p in points(watched)]
    assert joined.count(False) == 2, "the first one, and the first after the problem"


def test_groups_that_a_look_has_of_the_one_before_are_no_point(watched):
    looking = watched.watcher._looking
    looking.kept = {"g": Progress(time.monotonic(), 5, 0, 5, 1, {"t": 5})}
    watched.watching(True)
    wait_for(lambda: watched.watcher.version >= 4)
    assert [p.lag for p in points(watched)] == [5]


def test_the_list_of_groups_has_the_trend(cluster, page):
    commit(cluster, "listed", events_0=50, events_1=50)
    text = until_text(page, "listed", "/groups", q="listed")
    assert '<th scope="col">Trend</th>' in text
    now = seen(cluster, "listed")
    history = LagHistory()
    for before_s in (100, 50, 0):
        at = now._replace(at_s=now.at_s - before_s, committed=now.committed - before_s)
        history.add("listed", at._replace(lag=now.lag + before_s))
    page.console.watcher.lags = history
    assert "<td>caught up in 2 min</td>" in page("/groups", q="listed")
