"""Why, what if and chaos on pages, on three brokers in threads: one of them is killed."""

import asyncio
import json
import re
import subprocess
import sys
import time
from html import unescape

import pytest

from ottla.console.probe import SHOWN_S, Lane, bars
from ottla.explain.timestamps import time_text
from ottla.local.cluster_dir import ClusterDir
from ottla.testing.sync_cluster import SyncCluster
from support.console import console_on, form_token, of_preview, until_text
from support.waiting import until


@pytest.fixture(scope="module")
def three():
    with SyncCluster(3, in_process=True) as cluster:
        cluster.create_topic("orders", partitions=3)
        yield cluster


@pytest.fixture(scope="module")
def http(three):
    with console_on(three.bootstrap, ClusterDir(three.dir)) as found:
        yield found


def get(http, path, status=200, **fields):
    response = http.get(path, params=fields or None)
    assert response.status_code == status, response.text
    return response.text


def test_what_would_happen_if_brokers_died(three, http):
    text = get(http, "/whatif")
    assert "Choose brokers" in text
    harmless = get(http, "/whatif", broker="1")
    assert "No partition would lose its leader" in harmless
    text = get(http, "/whatif?broker=1&broker=2&broker=3&event=kill")
    assert "This would do harm" in text
    printed = subprocess.run(
        [sys.executable, "-m", "ottla", "whatif", "kill", "1", "2", "3", "-b", three.bootstrap,
         "--output", "json"],
        capture_output=True, text=True, timeout=60, check=False,
    ).stdout  # fmt: skip
    after = json.loads(printed)["after"]
    cards = dict(re.findall(r"<dt>(.+?)</dt><dd>(.*?)</dd>", text))
    assert cards["Without leader"] == f"0 → {after['without_leader']}"
    assert cards["Under-replicated"] == f"0 → {after['under_replicated']}"
    assert "would restart" not in get(http, "/whatif?broker=1&event=restart")
    get(http, "/whatif", 400, event="drain", broker=["1", "2"])
    get(http, "/whatif", 400, event="explode", broker="1")
    get(http, "/whatif", 502, broker="9")


def kill_a_leader(three, http):
    """Kill the leader of orders-0; return it, and after how many seconds a page said so."""
    until_text(lambda path: get(http, path), "/broker?id=3", "/")
    leader = three.leader_of("orders-0")
    three.kill(leader)
    killed = time.monotonic()
    # Either is first: the console's own question, or the controller that removed the registration.
    seen = re.compile(f"broker {leader} (does not respond|is gone)")
    until(lambda: seen.search(get(http, "/")), 40, "the kill is on the page")
    return leader, time.monotonic() - killed


def test_the_kill_of_a_leader_is_seen_at_once_and_explained(three, http):
    leader, took_s = kill_a_leader(three, http)
    if took_s >= 1.0:  # within a second, unless this process waited for a core: once more
        three.start(leader)
        three.wait_until_in_sync()
        leader, took_s = kill_a_leader(three, http)
    assert took_s < 1.0, "within a second"
    follower = three.leader_of("orders-0")
    text = until_text(
        lambda path: get(http, path, partition="orders-0"), f"leader {follower}", "/why"
    )
    printed = subprocess.run(
        [sys.executable, "-m", "ottla", "why", "orders-0", str(three.dir), "--output", "json"],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    newest = json.loads(printed)["entries"][-1]
    number, row = re.search(r'<tbody>\n<tr id="d(\d+)"[^>]*>(.*?)</tr>', text, re.DOTALL).groups()
    row = unescape(row)
    assert time_text(newest["time_ms"]) in row
    assert newest["how"] in row
    assert newest["rule"] in row
    assert '<svg id="s"' in text
    entries = json.loads(printed)["entries"]
    assert int(number) == len(entries) - 1
    bars = bars_of(text)
    for label, place in bars.items():  # each leads to the decision that made it so, or the last
        assert time_text(entries[place]["time_ms"]) <= label[:23], label
        assert f'<tr id="d{place}"' in text
    made = [n for n, entry in enumerate(entries) if entry["what"] == "leader"]
    assert made[-1] == len(entries) - 1
    for place in made:
        led_by = entries[place]["after"]["leader"]
        name = "no leader" if led_by is None else f"leader {led_by}"
        label = f"{time_text(entries[place]['time_ms'])}: {name}, "
        assert place in [number for text, number in bars.items() if text.startswith(label)]
    assert f"orders-0: leader {follower}" in unescape(text)
    assert not re.search(r"<script(?! src=\"/static)|style=|\son\w+=", text)
    three.start(leader)


def bars_of(text):
    """Return what each bar of the picture that leads somewhere says, and the number of its row."""
    found = re.findall(r'<a href="#d(\d+)" aria-label="([^"]+)"><rect', text)
    assert found
    return {unescape(label): int(number) for number, label in found}


def test_a_leader_that_is_not_the_preferred_one_has_a_tag(three, http):
    three.wait_until_in_sync()
    wanted = {
        p: three.leader_of(f"orders-{p}") != three.replicas_of(f"orders-{p}")[0] for p in range(3)
    }
    assert any(wanted.values()), "a leader was killed"
    text = get(http, "/topic", name="orders")
    rows = re.findall(r'<tr><th scope="row"><a [^>]*>(\d)</a></th>\n<td>(.*?)</td>', text)
    assert {int(p): "not preferred" in cell for p, cell in rows} == wanted
    assert not all(wanted.values()), "the others are led as before"


def test_what_no_journal_knows(http):
    assert "no journal knows orders-9" in get(http, "/why", 404, partition="orders-9")
    unknown = get(http, "/why", 404, partition="nosuch-0")
    assert re.search(r"no journal knows nosuch-0; the topics are: [^<]*orders", unknown), unknown
    get(http, "/why", 400, partition="orders")
    assert "&lt;b&gt;" in get(http, "/why", 400, partition="<b>")
    assert "Enter a partition" in get(http, "/why")
    assert "addEventListener" in get(http, "/static/timeline.js")


def test_a_cluster_that_is_known_by_its_address_has_no_journals_here(page):
    assert "start it with --dir" in page("/why", 502, partition="orders-0")
    assert "start the console with --dir" in unescape(page("/chaos", 502))
    assert 'href="/chaos"' not in page("/")


def begin_probe(http, topic):
    """Begin the client that writes, by its preview; return that."""
    preview = http.post("/chaos/probe", data={"form_token": form_token(http), "topic": topic}).text
    assert not http.console.probe.running, "a preview begins nothing"
    action, fields = of_preview(preview)
    assert http.post(action, data=fields).is_success
    return preview


def test_a_client_writes_and_its_view_is_drawn(three, http):
    post = {"form_token": form_token(http), "topic": "orders"}
    assert "3 partitions" in begin_probe(http, "orders")
    until_text(lambda path: get(http, path), 'class="quick"', "/chaos")
    lanes = http.console.probe.lanes
    until(lambda: all(lane.acknowledged for lane in lanes), 30, "a record of each partition")
    text = get(http, "/chaos")
    assert text.count('<svg class="strip"') == 3
    assert http.post("/chaos/probe", data={**post, "stop": "1"}).is_success
    assert not http.console.probe.running
    three.wait_until_in_sync()
    assert http.post("/chaos/probe", data={**post, "topic": "missing"}).status_code == 404
    assert http.post("/chaos/probe", data={**post, "topic": ""}).status_code == 400


def test_the_usual_topic_of_the_probe_is_created(three, http):
    post = {"form_token": form_token(http), "topic": "console-probe"}
    assert http.post("/chaos/probe", data={**post, "do": "1"}).status_code == 404, "not shown"
    assert "console-probe-0" not in three.partitions()
    assert "The topic is created" in begin_probe(http, "console-probe")
    until_text(lambda path: get(http, path), 'class="quick"', "/chaos")
    assert len(three.replicas_of("console-probe-0")) == 3
    http.post("/chaos/probe", data={**post, "stop": "1"})


def test_deeds_on_what_is_no_cluster_of_up_are_refused(http):
    post = {"form_token": form_token(http), "broker": "1", "deed": "kill"}
    assert http.post("/chaos/do", data=post).status_code == 502
    assert http.post("/chaos/do", data={**post, "deed": "burn"}).status_code == 400


def test_bars_are_of_the_last_minute_and_show_what_is_waited_for():
    lane = Lane(0)
    lane.taken.extend([(0.0, 1.0), (100.0, 30.0), (150.0, 1.5)])
    lane.waits_since_s = 155.0
    assert bars(lane, 160.0) == [
        (0.0, 30 / SHOWN_S, 30.0), (50 / SHOWN_S, 51.5 / SHOWN_S, 1.5), (55 / SHOWN_S, 1.0, 5.0)
    ]  # fmt: skip


def test_one_long_question_at_a_time(http):
    running, most = 0, 0

    def work():
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.05)
        running -= 1

    async def ask():
        await asyncio.gather(*(http.console.alone(work) for _ in range(5)))

    http.portal.call(ask)
    assert most == 1
