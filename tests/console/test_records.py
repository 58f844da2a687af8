"""Records on pages: found by place, key and content; hostile bytes are text; new ones."""

import re
import time
from html import unescape

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.console import reading
from ottla.console.pages import searching

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module", autouse=True)
def contents(cluster):
    """40 records by key in two partitions, and hostile ones in a topic of their own."""
    cluster.create_topic("letters", partitions=2)
    cluster.create_topic("hostile")
    cluster.create_topic("written", partitions=3)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2_random",
         "message.max.bytes": 2_000_000}
    )  # fmt: skip
    for number in range(40):
        producer.produce(
            "letters", f"value {number}", f"key {number % 4}", timestamp=1_000_000 + number
        )
    producer.produce("hostile", HOSTILE, HOSTILE, headers=[(HOSTILE, HOSTILE.encode())])
    producer.produce("hostile", b"\xff\xfe\x00")
    producer.produce("hostile", b"\x1b[31m\xe2\x80\xaered")
    producer.produce("hostile", b"x" * 1_000_000)
    producer.produce("hostile", b"[" * 60_000)
    producer.produce("hostile", None, "tombstone")
    producer.produce("hostile", b'{"deep": {"<b>": [1, 2]}}')
    assert producer.flush(30) == 0


@pytest.fixture(autouse=True)
def _whole_searches(monkeypatch):
    """A busy machine may look at nothing in the half second after which the rest comes live."""
    monkeypatch.setattr(searching, "AT_ONCE_S", 20.0)


def rows(text):
    """Return (partition, offset, key, value) of the records on a page."""
    found = re.findall(
        r'<tr><td class="n"[^>]*>(\d+)</td><th.*?>(\d+)</a></th><td class="t">.*?</td>\n'
        r'<td class="value"[^>]*>(.*?)</td>\n<td class="value"[^>]*>(.*?)</td>',
        text, re.DOTALL,
    )  # fmt: skip
    return [
        (
            int(p),
            int(o),
            *(unescape(re.sub(r"<small>.*</small>|<.*?>", "", c)).strip() for c in cells),
        )
        for p, o, *cells in found
    ]


def test_all_records_from_the_beginning(page):
    found = rows(page("/messages", topic="letters", **{"from": "beginning"}))
    assert sorted(value for *_, value in found) == sorted(f"value {n}" for n in range(40))
    by_partition = {}
    for partition, offset, *_ in found:
        by_partition.setdefault(partition, []).append(offset)
    assert all(offsets == sorted(offsets) for offsets in by_partition.values())


def test_records_by_offset_time_key_and_content(page):
    everything = rows(page("/messages", topic="letters", **{"from": "beginning"}))
    of_0 = [row for row in everything if row[0] == 0]
    assert rows(page("/messages", topic="letters", partition=0, **{"from": "3"})) == of_0[3:]
    assert rows(page("/messages", topic="letters", partition=0, **{"from": "-2"})) == of_0[-2:]
    late = rows(page("/messages", topic="letters", **{"from": "@1000030"}))
    assert {v for *_, v in late} == {f"value {n}" for n in range(30, 40)}
    key = rows(page("/messages", topic="letters", key="key 1", **{"from": "beginning"}))
    assert [v for *_, v in key] == [f"value {n}" for n in range(1, 40, 4)]
    text = page("/messages", topic="letters", q="value 39", **{"from": "beginning"})
    assert [v for *_, v in rows(text)] == ["value 39"]
    assert "1 record; 40 searched" in text


def test_a_search_is_bounded_and_goes_on(page, monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES", 150)
    found, url, pages = [], "/messages?topic=letters&from=beginning&q=value+3", 0
    while url:
        text = page(url)
        found += [v for *_, v in rows(text)]
        pages += 1
        assert pages < 20
        link = re.search(r'href="(/messages\?[^"]+at=[^"]+)"', text)
        url = unescape(link[1]) if link else ""
        assert bool(url) == ("0 MiB searched" in text)
    assert sorted(found) == sorted(f"value {n}" for n in (3, *range(30, 40)))
    assert pages > 1


def test_a_search_is_bounded_in_time(page, monkeypatch):
    monkeypatch.setattr(reading, "MOST_S", 0.0)
    assert "time limit of 0 s reached" in page(
        "/messages", topic="letters", **{"from": "beginning"}
    )


def test_hostile_bytes_are_text(page):
    text = page("/messages", topic="hostile", **{"from": "beginning"})
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    found = {offset: (key, value) for _, offset, key, value in rows(text)}
    assert found[0] == (HOSTILE, HOSTILE)
    assert found[1] == ("null", f"00000000  {'ff fe 00':<47}  ...")
    assert found[2][1] == "\\x1b[31m\\u202ered"
    assert found[3][1] == "x" * 2000
    assert "976.6 KiB, first 2.0 KiB shown" in text
    assert found[5] == ("tombstone", "null")
    assert '"deep": {' in found[6][1]
    assert len(text) < 50_000


def test_one_record_in_whole(page):
    text = page("/message", topic="hostile", partition=0, offset=0)
    assert "<script>alert" not in text
    assert unescape(text).count(HOSTILE) == 4, "key, value, a header's name and value"
    assert "x" * 1_000_000 in page("/message", topic="hostile", partition=0, offset=3)
    shown = page("/message", topic="hostile", partition=0, offset=2, **{"as": "hex"})
    assert "1b 5b 33 31 6d e2 80 ae 72 65 64" in shown
    assert "no record at offset 7" in page("/message", 404, topic="hostile", partition=0, offset=7)
    page("/message", 400, topic="hostile", partition=9, offset=0)
    page("/message", 404, topic="missing", partition=0, offset=0)


@pytest.mark.parametrize(
    "fields",
    [
        {"from": "yesterday"}, {"from": "x" * 50}, {"partition": "9"}, {"partition": "x"},
        {"at": "0:x"}, {"at": "0:" + "9" * 19}, {"at": "0"}, {"as": "xml"}, {"isolation": "none"},
    ],
)  # fmt: skip
def test_what_cannot_be_meant(page, fields):
    page("/messages", 400, topic="letters", **fields)


def test_the_newest_records_live(page):
    text = page("/messages", topic="letters", live="1")
    assert 'data-live="/live?of=messages&amp;topic=letters' in text
    values = [v for *_, v in rows(text)]
    assert values == [f"value {n}" for n in range(39, 9, -1)], "the newest first"


def written(cluster, partition):
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reads-written"})
    consumer.assign([TopicPartition("written", partition, 0)])
    deadline, found = time.monotonic() + 20, None
    while found is None and time.monotonic() < deadline:
        message = consumer.poll(1)
        found = message if message is not None and not message.error() else None
    consumer.close()
    return found.key(), found.value(), found.headers()


def test_a_record_is_shown_before_it_is_written(cluster, page):
    assert "New record in" in page("/produce", topic="written")
    fields = {
        "topic": "written", "partition": "2", "key": "k", "value": f"{HOSTILE}\r\nline two",
        "headers": "a=1\r\nb=x=y", "writing": "text",
    }  # fmt: skip
    preview = page.post("/produce", fields=fields)
    assert "Record to produce" in preview
    assert "<script>alert" not in preview
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', preview))
    again = {k: unescape(v) for k, v in hidden.items() if k != "form_token"}
    after = page.post("/produce", fields={**again, "do": "1"})
    assert "line two" in unescape(after)
    key, value, headers = written(cluster, 2)
    assert (key, value) == (b"k", f"{HOSTILE}\nline two".encode())
    assert headers == [("a", b"1"), ("b", b"x=y")]


def test_bytes_and_tombstones_are_written(cluster, page):
    fields = {"topic": "written", "key": "00ff", "value": "", "writing": "hex", "no_value": "1"}
    assert "<em>null</em>" in page.post("/produce", fields=fields)
    where = re.search(r"<dt>Partition</dt><dd>(\d)</dd>", page.post("/produce", fields=fields))[1]
    page.post("/produce", fields={**fields, "partition": "0", "do": "1"})
    assert int(where) in range(3)
    assert written(cluster, 0) == (b"\x00\xff", None, None)


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (400, {"topic": "written", "value": "0", "writing": "hex"}),
        (400, {"topic": "written", "value": "\x1b"}),
        (400, {"topic": "written", "headers": "no equals sign"}),
        (400, {"topic": "written", "headers": "\n".join("a=1" for _ in range(51))}),
        (400, {"topic": "written", "value": "x" * 1_048_577}),
        (400, {"topic": "written", "partition": "x"}),
        (502, {"topic": "written", "partition": "3"}),
        (404, {"topic": "missing"}),
    ],
)
def test_records_that_cannot_be_written(page, status, fields):
    page.post("/produce", status, fields)
