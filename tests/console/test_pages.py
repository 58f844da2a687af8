"""Pages of a cluster in threads: what commands show is on them; hostile text is text."""

import asyncio
import json
import re
import threading
import time
from html import unescape

import pytest
from confluent_kafka import Consumer, Producer
from starlette.testclient import TestClient

from ottla.admin.operations import status
from ottla.admin.session import connected
from ottla.admin.top.changes import Broker, Look, Partition
from ottla.client import configs, groups, topics
from ottla.console.application import GETS, application
from ottla.console.state import console_for
from ottla.model.ids import TopicPartition
from support.console import let_in_as_a_program, live_parts, until_text

HOSTILE = "<script>alert('x')</script>\x1b[31m\u202e\"'&{{7*7}}"
SHOWN = "<script>alert('x')</script>\\x1b[31m\\u202e\"'&{{7*7}}"


def ask(cluster, question):
    return connected(cluster.bootstrap, question)


@pytest.fixture(scope="module", autouse=True)
def contents(cluster):
    """A topic with records, and a group with a hostile name that has read a part of them."""
    cluster.create_topic("orders", partitions=3, min_insync_replicas=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    for number in range(30):
        producer.produce("orders", f"{number}", partition=number % 3)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap, "group.id": HOSTILE,
            "client.id": HOSTILE, "enable.auto.commit": False, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.subscribe(["orders"])
    read = 0
    while read < 10:
        message = consumer.poll(40)
        assert message is not None
        read += message.error() is None
    consumer.commit(asynchronous=False)
    yield
    consumer.close()


def test_every_url_of_a_page_is_below_the_place_of_its_session(page):
    """Where a browser went elsewhere, it would send no cookie."""
    (session,) = page.console.sessions._sessions.values()
    own = re.compile(r'\b(?:href|src|action|data-live|formaction|poster)="(/[^"]*)"')
    hostile = {"name": HOSTILE, "topic": "orders", "partition": "0", "offset": "0", "kind": "topic"}
    seen = set()
    for path in [*GETS, "/nothing", "/topic", "/messages", "/group"]:
        for fields in ({}, hostile, {"topic": "orders", "name": "orders", "from": "beginning"}):
            found = own.findall(page.http.get(session.place + path, params=fields).text)
            assert found or path == "/nothing", path
            assert not [url for url in found if not url.startswith(f"{session.place}/")], path
            seen.update(unescape(url).removeprefix(session.place) for url in found)
    assert {"/", "/topics", "/live?of=overview", "/static/console.js", "/topics/create"} <= seen
    live = live_parts(page.http, "of=overview", len, path=f"{session.place}/live")
    assert f'href="{session.place}/topics"' in "".join(html for _, html in live)
    data = {"form_token": session.form_token}
    ended = page.http.post(f"{session.place}/chaos/probe", data=data, follow_redirects=False)
    assert ended.headers.get("location", session.place).startswith(session.place)


def test_the_overview_agrees_with_ottla_status(cluster, page):
    text = page("/")
    found = ask(cluster, status.ask)
    (broker,) = found.brokers
    assert f"Cluster {found.cluster_id}" in text
    assert re.search(r'<a href="/broker\?id=1">1</a> <span class="tag">controller', text)
    assert broker.address in text
    cards = dict(re.findall(r"<dt>(.+?)</dt><dd>(.*?)</dd>", text, re.DOTALL))
    assert re.sub("<.*?>", "", cards["Partitions"]) == f"{found.partitions:,}"
    assert cards["Without leader"] == cards["Under-replicated"] == "0"


def test_the_list_of_topics_and_its_search(page):
    text = until_text(page, "orders", "/topics")
    assert re.search(r'<a href="/topic\?name=orders">orders</a></th><td class="n">3</td>', text)
    assert "No topic matches" in page("/topics", q="no such")
    assert "none can have this name" in page("/topic", 404, name="a b")
    for order in ("problems", "name", "partitions", "records", "written"):
        assert "orders" in page("/topics", by=order, q="ord")
    page("/topics", 400, by="nothing")
    page("/topics", 400, page="x")
    page("/topics", 400, q="x" * 1001)


def test_a_topic_with_its_partitions(cluster, page):
    text = page("/topic", name="orders")
    facts = ask(cluster, lambda client: topics.describe_topic(client, "orders"))
    assert facts.topic_id in text
    rows = re.findall(r'<tr><th scope="row">(\d)</th>\n<td>(\d)</td>', text)
    assert rows == [(str(p.partition), str(p.leader)) for p in facts.partitions]
    assert text.count('<td class="n">10</td>') == 3, "each ends at 10"
    sizes = ask(cluster, lambda client: topics.sizes(client, ["orders"]))
    assert len(sizes) == 3
    for by_broker in sizes.values():
        assert f"1 <small>({by_broker[1]:,} B)</small>" in text
    assert re.search(r"<dt>min.insync.replicas</dt><dd>1</dd>", text)
    assert "does not exist" in page("/topic", 404, name="missing")
    page("/topic", 400, name=" ")
    assert "<h1>Topics</h1>" in page("/topic"), "where none is named, the list is shown"
    assert "&lt;script&gt;" in page("/topic", 404, name=HOSTILE)


def test_a_group_by_partition_and_in_total(cluster, page):
    rows = ask(cluster, lambda client: groups.lag(client, HOSTILE))
    text = page("/group", name=HOSTILE)
    assert f"<dt>Total lag</dt><dd>{sum(r.lag or 0 for r in rows)}</dd>" in text
    assert "<script>alert" not in text
    assert SHOWN in unescape(text)
    listed = until_text(page, 'class="n">1</td>', "/groups", q="script")
    link = unescape(re.search(r'href="(/group\?[^"]+)"', listed)[1])
    assert "Total lag" in page(link), "the link leads to the group"
    assert "<script>alert" not in listed
    page("/group", 404, name="missing")


def test_settings_with_value_source_and_default(cluster, page):
    own = ask(cluster, lambda client: configs.settings(client, configs.TOPIC, "orders"))
    text = page("/settings", kind="topic", name="orders")
    for setting in own:
        assert f'<th scope="row">{setting.key}' in text, setting.key
    row = re.search(r"min\.insync\.replicas</th>\n(.*?)</tr>", text, re.DOTALL)[1]
    assert re.findall(r"<td.*?>(.*?)</td>", row) == ["1", "topic", "1", "int"]
    only = page("/settings", kind="topic", name="orders", set="1")
    assert "min.insync.replicas" in only
    assert "compression.type" not in only
    assert "listeners" in page("/settings", kind="broker", name="1")
    page("/settings", 400, kind="broker", name="x")
    page("/settings", 400, kind="user", name="x")
    page("/settings", 400, kind="topic")
    assert "Settings of all brokers" in page("/settings")
    page("/settings", 404, kind="topic", name="missing")


def test_what_is_sensitive_has_no_value(cluster, page):
    found = ask(cluster, lambda client: configs.settings(client, configs.BROKER, "1"))
    secret = [setting.key for setting in found if setting.sensitive]
    assert len(secret) >= 3
    text = page("/settings", kind="broker", name="1")
    for key in secret:
        row = text[text.index(f'<th scope="row">{key}') :].partition("</tr>")[0]
        assert row.count("<em>hidden</em>") == 2, key


def test_a_broker(cluster, page):
    text = page("/broker", id="1")
    assert cluster.address(1) in text
    assert str(cluster.dir / "broker-1" / "data") in text
    assert "broker 7 does not exist" in page("/broker", 502, id="7")


def test_the_doctor_is_asked_in_the_background(page):
    text = until_text(page, "as of", "/doctor")
    assert "few-zookeepers" in text
    assert "few-replicas" in text
    assert re.search(r"no problems, \d+ risks|\d+ problem", page("/"))


def test_the_findings_appear_on_the_page_by_themselves(page):
    assert 'data-live="/live?of=doctor"' in page("/doctor")
    page("/doctor", again=1)
    parts = live_parts(page.http, "of=doctor", lambda parts: parts and "as of" in parts[-1][1])
    assert parts[-1][0] == "findings"
    assert "few-replicas" in parts[-1][1]


def test_pages_that_are_not_there(page):
    page("/nothing", 404)
    page("/static/nothing", 404)
    page("/static/../console.css", 404)
    page("/static/%2e%2e/command.py", 404)
    assert "prefers-color-scheme" in page("/static/console.css")


def test_pages_have_what_readers_need(page):
    for path in ("/", "/topics", "/groups", "/doctor", "/topic?name=orders", "/broker?id=1"):
        text = page(path)
        assert text.startswith('<!doctype html>\n<html lang="en">')
        assert text.count("<h1>") == 1
        assert text.count("<main ") == text.count("<header>") == text.count("<footer>") == 1
        assert 'href="#main"' in text
        assert not re.search(r"<script(?! src=\"/static)", text), "no script but our own files"
        assert not re.search(r"\son\w+=|style=|javascript:", text)
        for field in re.findall(r"<(?:input|select|textarea)\b[^>]*>", text):
            at = text.index(field)
            labelled = text.rfind("<label", 0, at) > text.rfind("</label>", 0, at)
            assert labelled or 'type="hidden"' in field, field


def test_the_end_of_all_sessions(cluster):
    from support.console import console_on, form_token

    with console_on(cluster.bootstrap) as http:
        data = {"form_token": form_token(http)}
        assert "All sessions ended" in http.post("/leave", data=data).text
        assert http.get("/").status_code == 401


def fixed_look(names=1000, partitions=10):
    facts = Partition(1, 4, (1, 2, 3), (1, 2, 3), 1000)
    found = {TopicPartition(f"t{n:04}", p): facts for n in range(names) for p in range(partitions)}
    brokers = {b: Broker(f"h:{b}", None) for b in (1, 2, 3)}
    return Look(time.monotonic(), "12:00:00", "c", 1, brokers, found, {}, groups={})


class Looking:
    """Gives looks without a cluster."""

    def __init__(self, look):
        self.given = look

    async def look(self):
        return self.given


class NoClient:
    async def call(self, *_args, **_more):
        await asyncio.sleep(3600)

    async def close(self):
        pass


def test_a_thousand_topics_of_ten_partitions_take_a_page_no_200_ms():
    """Of processor time: how long this process waits for a core is the machine's."""
    console = console_for(NoClient(), NoClient)
    console.watcher._looking = Looking(fixed_look())
    with TestClient(application(console), base_url="http://127.0.0.1:8090") as http:
        http.get("/login", params={"token": console.sessions.token})
        let_in_as_a_program(http)
        assert http.get("/topics").is_success
        times = []
        for number in range(1, 11):
            began = time.process_time()
            text = http.get("/topics", params={"page": number, "by": "name"}).text
            times.append(time.process_time() - began)
            first = (number - 1) * 100
            assert f"{first + 1:,} to {first + 100:,} of 1,000" in text
            assert f">t{first:04}<" in text
            assert f">t{first + 99:04}<" in text
            assert text.count('<th scope="row">') == 100
        assert sorted(times)[5] < 0.2, times
        assert "901 to 1,000" in http.get("/topics", params={"page": 999}).text


# --- live -------------------------------------------------------------------------------------


def test_parts_come_again_when_they_have_changed(page):
    """The stream as a server drives it, for the test's client gives no part of a response."""
    console = page.console
    sent, ended = [], threading.Event()
    cookie = "; ".join(f"{c.name}={c.value}" for c in page.http.cookies.jar)

    async def run():
        app = page.http.app
        gone = asyncio.Event()

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            body = message.get("body", b"")
            if b"alert" in body:
                gone.set()
            if message["type"] == "http.response.body" and body.startswith(b":"):
                console.watcher.changes.events.append(HOSTILE)

        scope = {
            "type": "http", "method": "GET", "path": "/live", "raw_path": b"/live",
            "query_string": b"of=overview", "root_path": "", "scheme": "http",
            "http_version": "1.1", "server": ("127.0.0.1", 8090), "client": ("127.0.0.1", 1),
            "headers": [(b"host", b"127.0.0.1:8090"), (b"cookie", cookie.encode())],
        }  # fmt: skip
        async with asyncio.timeout(60):
            await app(scope, receive, send)
        ended.set()

    page.http.portal.call(run)
    assert ended.is_set()
    assert sent[0]["status"] == 200
    assert dict(sent[0]["headers"])[b"content-type"].startswith(b"text/event-stream")
    body = b"".join(m.get("body", b"") for m in sent).decode()
    parts = [json.loads(d) for d in re.findall(r"^data: (.*)$", body, re.MULTILINE)]
    assert {p["id"] for p in parts[:3]} == {"health", "brokers", "events"}
    last = [p["html"] for p in parts if p["id"] == "events"][-1]
    assert f"<li>{SHOWN}</li>" in unescape(last)
    assert "<script>" not in last
    assert console.subscribers == 0


def test_streams_are_bounded_in_number(page):
    console = page.console
    console.subscribers += 16
    try:
        page("/live", 503, of="overview")
    finally:
        console.subscribers -= 16
    page("/live", 400, of="nothing")
