"""Searches in records: what is found at once, then live; bounded, ended with the browser."""

import asyncio
import contextlib
import json
import re
import time
from html import unescape
from urllib.parse import parse_qs

import pytest
from confluent_kafka import Producer
from starlette.requests import ClientDisconnect

from ottla.client import consumer
from ottla.console import reading
from ottla.console.pages import searching
from ottla.wire.messages.records import FetchRequest
from support.console import console_on

RECORDS = 6000
HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module", autouse=True)
def contents(cluster):
    """6,000 records of about 1,000 bytes in three partitions, each 500th a needle; one batch."""
    cluster.create_topic("haystack", partitions=3)
    cluster.create_topic("one-batch")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 500})
    for _ in range(600):
        producer.produce("one-batch", "needle")
    assert producer.flush(60) == 0
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.size": 20_000})
    for number in range(RECORDS):
        text = f"needle {number} {HOSTILE}" if number % 500 == 0 else "straw"
        producer.produce("haystack", f"{text:<1000}", "key", partition=number % 3)
    assert producer.flush(60) == 0


@pytest.fixture(autouse=True)
def small_responses(monkeypatch):
    monkeypatch.setattr(consumer, "MAX_BYTES", 100_000)
    monkeypatch.setattr(consumer, "PARTITION_MAX_BYTES", 100_000)
    monkeypatch.setattr(searching, "EVERY_S", 0.02)


@pytest.fixture
def fetches(page, monkeypatch):
    """Delay each Fetch of the console a little, and list when it was sent."""
    sent, call = [], page.console.client.call

    async def counted(request, *args, **more):
        if isinstance(request, FetchRequest):
            sent.append(time.monotonic())
            await asyncio.sleep(0.02)
        return await call(request, *args, **more)

    monkeypatch.setattr(page.console.client, "call", counted)
    return sent


def needles(text):
    return sorted(int(n) for n in re.findall(r"needle (\d+) &lt;script&gt;", text))


def live_url(text):
    return unescape(re.search(r'data-live="([^"]*)"', text)[1])


def events(body):
    """Return (event, element, html) of a stream."""
    found = []
    for name, data in re.findall(r"^event: (\w+)\ndata: (.*)$", body, re.MULTILINE):
        values = json.loads(data)
        found.append((name, values.get("id"), values.get("html", "")))
    return found


def lines(found):
    """Return the lines of progress that were sent, without tags."""
    texts = [re.sub("<.*?>", "", html) for name, at, html in found if at == "progress"]
    return [" ".join(unescape(text).split()) for text in texts]


ALL = list(range(0, RECORDS, 500))
PATH = "/messages?topic=haystack&from=beginning&q=needle"


def test_what_is_found_at_once_is_all_where_that_is_quick(page, monkeypatch):
    monkeypatch.setattr(searching, "AT_ONCE_S", 20)
    text = page(PATH)
    assert needles(text) == ALL
    assert "12 records; 6,000 searched" in text
    assert "data-live" not in text
    assert "data-stop" not in text


@pytest.mark.parametrize("at_once", ["nothing", "a part"])
def test_the_rest_comes_live_and_each_record_once(page, monkeypatch, fetches, at_once):
    if at_once == "nothing":
        monkeypatch.setattr(searching, "AT_ONCE_S", 0.0)
    else:
        monkeypatch.setattr(reading, "MOST_BYTES", 2_000_000)
        monkeypatch.setattr(searching, "AT_ONCE_S", 20)
    text = page(PATH)
    first = needles(text)
    assert bool(first) == (at_once == "a part")
    assert '<tbody id="more"></tbody>' in text
    assert "<progress " in text
    assert re.search(r"<button [^>]*data-stop hidden>", text)
    began = time.monotonic()
    body = page(live_url(text))
    assert len(fetches) > 20
    found = events(body)
    assert found[-1][0] == "end"
    more = needles("".join(html for name, at, html in found if (name, at) == ("more", "more")))
    assert sorted(first + more) == ALL
    assert len([1 for name, *_ in found if name == "more"]) > 1, "as they are found"
    assert HOSTILE not in body.replace("\\", "")
    said = lines(found)
    left = [int(n) for n in re.findall(r"offsets left \((\d+) %\)", " ".join(said))]
    assert left == sorted(left, reverse=True)
    assert len(set(left)) > 5, said
    assert said[-1] == "12 records; 6,000 searched, 5.7 MiB."
    assert all("so far" in line and "Stopped. Continue from there" in line for line in said[:-1])
    assert "Go on" not in said[-1]
    assert time.monotonic() - began < 30
    assert (page.console.searches, page.console.subscribers) == (0, 0)


def test_without_script_a_link_goes_on_in_steps(page, monkeypatch):
    monkeypatch.setattr(searching, "AT_ONCE_S", 0.0)
    monkeypatch.setattr(reading, "MOST_BYTES", 2_500_000)
    text = page(PATH)
    without = re.search(r"<noscript>(.*?)</noscript>", text)[1]
    assert without.startswith("time limit of 0 s reached. <a ")
    url, found, pages = unescape(re.search(r'href="([^"]*)"', without)[1]), [], 0
    while url:
        assert "steps=1" in url
        text = page(url)
        assert "data-live" not in text
        assert '<input type="hidden" name="steps" value="1">' in text
        found += needles(text)
        pages += 1
        link = re.search(r'href="(/messages\?[^"]+at=[^"]+)"', text)
        url = unescape(link[1]) if link else ""
        assert bool(url) == ("2 MiB searched" in text)
    assert sorted(found) == ALL
    assert pages == 3


@pytest.mark.parametrize(
    ("where", "name", "value", "why"),
    [
        (searching, "MOST_BYTES", 3 << 20, "3 MiB searched"),
        (searching, "MOST_S", 2.0, "time limit of 2 s reached"),
        ("most", "MOST_RECORDS", 5, "page of 5 records"),
    ],
)
def test_a_search_ends_at_its_bounds_and_goes_on(
    page, monkeypatch, fetches, where, name, value, why
):
    from ottla.console.pages import records

    monkeypatch.setattr(searching, "AT_ONCE_S", 0.0)
    monkeypatch.setattr(records if where == "most" else where, name, value)
    if name == "MOST_S":  # in 2 s something is looked at on any machine, on none all of it
        slow_down(monkeypatch, 0.001)
    found = events(page(live_url(page(PATH))))
    assert found[-1][0] == "end"
    last = lines(found)[-1]
    assert re.search(rf"offsets left \(\d+ %\): {why}\. Continue from there$", last), last
    first = needles("".join(html for name, _, html in found if name == "more"))
    link = unescape(re.search(r'href="(/messages\?[^"]+at=[^"]+)"', found[-2][2])[1])
    assert "steps" not in link
    monkeypatch.undo()
    rest = page(link)
    if "data-live" in rest:
        rest += "".join(html for *_, html in events(page(live_url(rest))))
    assert sorted(first + needles(rest)) == ALL


def slow_down(monkeypatch, seconds):
    """Let each record take so long to look at."""
    fits = reading._Sink._fits

    def slowly(sink, record):
        time.sleep(seconds)
        return fits(sink, record)

    monkeypatch.setattr(reading._Sink, "_fits", slowly)


@pytest.mark.parametrize("topic", ["haystack", "one-batch"])
def test_the_time_ends_it_amid_a_response(page, monkeypatch, topic):
    """In batches of twenty records, and in one of six hundred."""
    monkeypatch.setattr(consumer, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(consumer, "PARTITION_MAX_BYTES", 1 << 20)
    monkeypatch.setattr(searching, "AT_ONCE_S", 2.0)  # in 0.5 s a busy machine may look at none
    slow_down(monkeypatch, 0.02)
    began = time.monotonic()
    text = page(f"/messages?topic={topic}&from=beginning&q=needle")
    assert time.monotonic() - began < 12, "all records of a response take more than 12 s"
    looked_at = int(re.search(r"(\d+) searched", text)[1])
    assert 0 < looked_at < 200
    (at,) = parse_qs(live_url(text))["at"]
    assert looked_at == sum(int(part.partition(":")[2]) for part in at.split(","))


def test_progress_amid_a_response_goes_on_where_it_was(page, monkeypatch):
    monkeypatch.setattr(consumer, "TURN_RECORDS", 10)
    slow_down(monkeypatch, 0.004)
    found = events(page("/live?of=search&topic=one-batch&from=beginning&q=needle"))
    rows = seen = 0
    for name, element, html in found:
        rows += html.count("<tr>") if name == "more" else 0
        if element == "progress" and "at=" in html:
            (at,) = parse_qs(unescape(re.search(r'href="([^"]+)"', html)[1]))["at"]
            assert at == f"0:{rows}"
            seen += 1
    assert rows == 200
    assert seen > 3


def test_what_was_found_before_counts(page):
    url = "/live?of=search&topic=haystack&from=beginning&q=needle"
    found = events(page(f"{url}&count=199&looked=10&bytes=100&total=9000"))
    assert needles("".join(html for *_, html in found)) == ALL[:1]
    assert re.match("200 records; ", lines(found)[-1])
    for wrong in ("count=201", "looked=-1", "bytes=1e9", "total=x"):
        page(f"{url}&{wrong}", 400)
    page("/live?of=search", 400)


def test_a_search_by_key_reads_its_partition(page, monkeypatch):
    monkeypatch.setattr(searching, "AT_ONCE_S", 0.0)
    text = page("/messages?topic=haystack&from=beginning&key=key&q=needle")
    said = lines(events(page(live_url(text))))[-1]
    assert re.fullmatch(r"4 records; 2,000 searched, .* MiB\.", said)


def test_only_so_many_searches_read_at_once(page, monkeypatch):
    console = page.console
    monkeypatch.setattr(searching, "AT_ONCE_S", 0.0)
    console.searches += searching.MOST_SEARCHES
    try:
        found = events(page(live_url(page(PATH))))
        assert [name for name, *_ in found] == ["part", "end"]
        assert "3 searches are already running" in lines(found)[0]
        assert "Continue from there" in lines(found)[0]
        assert "3 searches are already running" in page(PATH + "&steps=1", 503)
        assert "searched" in page("/messages?topic=haystack"), "no search"
        assert console.searches == searching.MOST_SEARCHES
    finally:
        console.searches -= searching.MOST_SEARCHES
    assert needles("".join(html for *_, html in events(page(live_url(page(PATH)))))) == ALL


def test_a_browser_that_comes_again_does_not_begin_it_again(page, fetches):
    url = "/live?of=search&topic=haystack&from=beginning&q=needle"
    assert "\nid: 1\n" in "\n" + page(url)
    before = len(fetches)
    response = page.http.get(url, headers={"last-event-id": "1"})
    assert (response.status_code, response.content) == (204, b"")
    assert len(fetches) == before


def test_an_error_ends_it_with_a_line(page):
    for topic, said in (("missing", "missing"), ("haystack&partition=9", "partition 9")):
        found = events(page(f"/live?of=search&topic={topic}&q=x"))
        *parts, end = [name for name, *_ in found]  # on a busy machine it has shown progress before
        assert ({*parts}, end) == ({"part"}, "end")
        assert said in lines(found)[-1]
    found = events(page("/live?of=search&topic=haystack&q=x&at=0:x"))
    assert "at: 0:x must be PARTITION:OFFSET" in lines(found)[0]


def test_it_ends_with_the_console(page, monkeypatch, fetches):
    monkeypatch.setattr(page.console, "closing", lambda: True)
    found = events(page("/live?of=search&topic=haystack&from=beginning&q=needle"))
    assert "the console is shutting down. Continue from there" in lines(found)[-1]
    assert page.console.searches == 0


def test_a_console_that_is_read_only_searches(cluster, monkeypatch):
    monkeypatch.setattr(searching, "AT_ONCE_S", 0.0)
    with console_on(cluster.bootstrap, read_only=True) as http:
        body = http.get(live_url(http.get(PATH).text)).text
    assert needles(body) == ALL


@pytest.mark.parametrize("spec", ["2.3", "2.4"])
def test_it_reads_no_more_when_the_browser_has_gone(page, fetches, spec):
    """The stream as a server drives it; in both ways in which servers say that nobody reads."""
    console = page.console
    cookie = "; ".join(f"{c.name}={c.value}" for c in page.http.cookies.jar)
    seen = {}

    async def run():
        gone, sent = asyncio.Event(), []

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if gone.is_set() and spec == "2.4":
                raise OSError("gone")
            sent.append(message)
            if len(sent) == 6:
                seen["searches"] = console.searches
                gone.set()

        scope = {
            "type": "http", "method": "GET", "path": "/live", "raw_path": b"/live",
            "query_string": b"of=search&topic=haystack&from=beginning&q=needle", "root_path": "",
            "scheme": "http", "http_version": "1.1", "server": ("127.0.0.1", 8090),
            "client": ("127.0.0.1", 1), "asgi": {"spec_version": spec, "version": "3.0"},
            "headers": [(b"host", b"127.0.0.1:8090"), (b"cookie", cookie.encode())],
        }  # fmt: skip
        with contextlib.suppress(ClientDisconnect):
            async with asyncio.timeout(60):
                await page.http.app(scope, receive, send)
        seen["then"] = console.searches, console.subscribers
        await asyncio.sleep(0.1)  # what was under way
        seen["fetches"] = len(fetches)
        await asyncio.sleep(0.5)

    page.http.portal.call(run)
    assert seen["searches"] == 1
    assert seen["then"] == (0, 0)
    assert 0 < seen["fetches"] < 30, "of about sixty"
    assert len(fetches) == seen["fetches"]
