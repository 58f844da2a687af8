"""One new record: typed, looked at, written.

Invariants: what is written is what the preview showed; the record is written as `ottla produce`
writes, acknowledged by all replicas in sync.
"""

from typing import NamedTuple

from starlette.responses import Response

from ottla.client import topics
from ottla.client.producer import Producer, no_such_partition
from ottla.console.asked import Asked, BadRequestError
from ottla.console.formats import formed
from ottla.console.page import Page, redirect
from ottla.console.rendering import path
from ottla.console.state import Console
from ottla.model.partitioning import partition_of
from ottla.model.protocol import ACKS_ALL
from ottla.wire.records import NewRecord

MOST_TYPED = 3_000_000
MOST_VALUE_BYTES = 1_048_576
MOST_HEADERS = 50
TIMEOUT_S = 20.0
SHOWN_BYTES = 4000
WRITINGS = ("text", "hex")


class Typed(NamedTuple):
    """What was typed, and the record that it is."""

    fields: dict[str, str]
    record: NewRecord


async def page(console: Console, asked: Asked) -> Page:
    """Return the empty form."""
    topic = asked.needed("topic")
    fields = dict.fromkeys(("partition", "key", "value", "headers", "writing", "no_value"), "")
    values = {"fields": {**fields, "topic": topic}, "writings": WRITINGS, "preview": None}
    await topics.describe_topic(console.client, topic)
    return Page("produce.html", {"title": f"New record in {topic}", **values})


async def write(console: Console, asked: Asked) -> Page | Response:
    """Return the preview of a record; with `do`, write it and go to where it is."""
    typed = _typed(asked)
    topic, record = typed.fields["topic"], typed.record
    facts = await topics.describe_topic(console.client, topic)
    count = len(facts.partitions)
    if record.partition is not None and record.partition >= count:
        raise no_such_partition(topic, record.partition, count)
    if asked.has("do"):
        writer = Producer(console.client, topic, acks=ACKS_ALL, timeout_s=TIMEOUT_S)
        await writer.open(count, [p.partition for p in facts.partitions if p.leader is not None])
        await writer.send([record])
        return redirect(path("messages", topic=topic, **{"from": "-20"}))
    values = {"fields": typed.fields, "writings": WRITINGS, "preview": _preview(record, count)}
    return Page("produce.html", {"title": f"New record in {topic}", **values})


def _preview(record: NewRecord, partitions: int) -> dict[str, object]:
    where, most = record.partition, SHOWN_BYTES
    if where is None and record.key is not None:
        where = partition_of(record.key, partitions)
    return {
        "partition": where,
        "key": formed(record.key, "auto", most),
        "value": formed(record.value, "auto", most),
        "headers": [(name, formed(content, "auto", most)) for name, content in record.headers],
    }


def _typed(asked: Asked) -> Typed:
    fields = {
        "topic": asked.needed("topic"),
        "partition": asked.text("partition", most=10).strip(),
        "key": asked.text("key", most=MOST_TYPED),
        "value": asked.text("value", most=MOST_TYPED),
        "headers": asked.text("headers", most=100_000),
        "writing": asked.choice("writing", WRITINGS, "text"),
        "no_value": "1" if asked.has("no_value") else "",
    }
    partition = asked.number("partition", -1, 0, (1 << 31) - 1)
    writing = fields["writing"]
    key = _bytes("key", fields["key"], writing) if fields["key"] else None
    value = None if fields["no_value"] else _bytes("value", fields["value"], writing)
    if len(key or b"") + len(value or b"") > MOST_VALUE_BYTES:
        raise BadRequestError(f"more than {MOST_VALUE_BYTES:,} bytes; `ottla produce` takes files")
    headers = tuple(_header(line) for line in fields["headers"].splitlines() if line.strip())
    if len(headers) > MOST_HEADERS:
        raise BadRequestError(f"headers: more than {MOST_HEADERS}")
    record = NewRecord(key, value, headers, partition=None if partition < 0 else partition)
    return Typed(fields, record)


def _bytes(name: str, text: str, writing: str) -> bytes:
    if writing == "text":
        # A form's lines end with two characters; people mean one.
        text = text.replace("\r\n", "\n")
        if any(c < " " and c not in "\n\t" for c in text):
            raise BadRequestError(f"{name}: browsers alter control characters; enter them as hex")
        return text.encode()
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadRequestError(f"{name}: must be pairs of hexadecimal digits") from None


def _header(line: str) -> tuple[str, bytes | None]:
    name, equals, value = line.partition("=")
    if not equals or not name:
        raise BadRequestError(f"headers: {line[:40]}: must be NAME=VALUE, one per line")
    return name, value.encode()
