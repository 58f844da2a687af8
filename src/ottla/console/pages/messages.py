"""Records of a topic: by offset, time, key or what is in them; the newest ones live; one in whole.

Who may call: `application`, `live`. Invariants: a page reads within the bounds of `reading` and
says how far it came; values are cut, and shown in whole on a page of their own.
"""

from typing import Any

from ottla.admin.operations import topics
from ottla.admin.operations.places import Place, parse_place
from ottla.admin.operations.record_format import moment
from ottla.console import reading
from ottla.console.asked import Asked, BadRequestError
from ottla.console.formats import FORMS, formed
from ottla.console.page import Page
from ottla.console.rendering import path
from ottla.console.state import Console
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.partitioning import partition_of
from ottla.model.protocol import READ_COMMITTED, READ_UNCOMMITTED
from ottla.wire.records import Record

MOST_RECORDS = 200
LIVE_RECORDS = 30
SHOWN_BYTES = 2000
KEY_BYTES = 500
WHOLE_BYTES = 4_194_304
HEADERS_SHOWN = 50
NEWEST = "-20"


async def page(console: Console, asked: Asked) -> Page:
    """Return the records that were asked for."""
    fields = _fields(asked)
    if asked.has("live"):
        part = (await parts(console, asked))["records"]
        values = {**part.values, "live_url": path("live", of="messages", **fields)}
        return Page("messages.html", {"title": f"Records of {fields['topic']}", **values})
    wanted = await _wanted(console, asked, fields)
    found = await reading.read(console.client, wanted)
    values = {**_values(fields, found), "go_on": _go_on(fields, found), "live_url": ""}
    return Page("messages.html", {"title": f"Records of {fields['topic']}", **values})


async def parts(console: Console, asked: Asked) -> dict[str, Page]:
    """Return the newest records, for the page that is live."""
    fields = {**_fields(asked), "from": f"-{LIVE_RECORDS}", "live": "1"}
    wanted = (await _wanted(console, asked, fields))._replace(
        start=Place(before_end=LIVE_RECORDS), most=MOST_RECORDS
    )
    found = await reading.read(console.client, wanted)
    found.records.sort(key=lambda item: (item[1].timestamp, item[0], item[1].offset))
    found.records = found.records[: -LIVE_RECORDS - 1 : -1]
    return {"records": Page("part_records.html", {**_values(fields, found), "go_on": ""})}


def _fields(asked: Asked) -> dict[str, str]:
    """Return the fields of the form, checked one by one."""
    return {
        "topic": asked.needed("topic"),
        "partition": asked.text("partition", most=10).strip(),
        "from": asked.text("from", NEWEST, most=40).strip() or NEWEST,
        "key": asked.text("key"),
        "q": asked.text("q"),
        "as": asked.choice("as", FORMS, "auto"),
        "isolation": asked.choice("isolation", ("all", "committed"), "all"),
        "at": asked.text("at", most=8000),
    }


async def _wanted(console: Console, asked: Asked, fields: dict[str, str]) -> reading.Wanted:
    partition = asked.number("partition", -1, 0, (1 << 31) - 1)
    key = fields["key"].encode() if fields["key"] else None
    if key is not None and partition < 0:
        facts = await topics.describe_topic(console.client, fields["topic"])
        partition = partition_of(key, len(facts.partitions))
    start: Place | dict[int, int]
    if fields["at"]:
        start = _positions(fields["at"])
    else:
        try:
            start = parse_place(fields["from"])
        except ValueError as error:
            raise BadRequestError(f"from: {error}") from None
    return reading.Wanted(
        fields["topic"],
        () if partition < 0 else (partition,),
        start,
        MOST_RECORDS,
        fields["q"].encode(),
        key,
        READ_COMMITTED if fields["isolation"] == "committed" else READ_UNCOMMITTED,
    )


def _positions(text: str) -> dict[int, int]:
    """Return where a reading was to go on: `0:17,1:20` by partition."""
    found = {}
    for part in text.split(","):
        number, _, offset = part.partition(":")
        if not (number + offset).isascii() or not (number.isdigit() and offset.isdigit()):
            raise BadRequestError(f"at: {part[:40]} is no partition with an offset")
        if len(offset) > 18 or len(number) > 10:
            raise BadRequestError(f"at: {part[:40]} is no offset")
        found[int(number)] = int(offset)
    return found


def _go_on(fields: dict[str, str], found: reading.Found) -> str:
    """Return the URL that goes on with the reading, empty where all was read."""
    if not found.left:
        return ""
    at = ",".join(f"{p}:{offset}" for p, offset in sorted(found.positions.items()))
    return path("messages", **{**fields, "at": at})


def _values(fields: dict[str, str], found: reading.Found) -> dict[str, Any]:
    rows = [_row(tp, record, fields["as"]) for tp, record in found.records]
    return {"fields": fields, "rows": rows, "found": found, "forms": FORMS}


def _row(tp: TopicPartition, record: Record, form: str) -> dict[str, Any]:
    return {
        "partition": tp.partition,
        "offset": record.offset,
        "time": moment(record.timestamp),
        "key": formed(record.key, form, KEY_BYTES),
        "value": formed(record.value, form, SHOWN_BYTES),
        "headers": len(record.headers),
        "url": path(
            "message", topic=tp.topic, partition=str(tp.partition), offset=str(record.offset)
        ),
    }


async def one(console: Console, asked: Asked) -> Page:
    """Return one record in whole."""
    topic, form = asked.needed("topic"), asked.choice("as", FORMS, "auto")
    partition, offset = asked.number("partition", 0, 0, (1 << 31) - 1), asked.number("offset", 0)
    wanted = reading.Wanted(topic, (partition,), Place(offset=offset), 1)
    found = await reading.read(console.client, wanted)
    if not found.records or found.records[0][1].offset != offset:
        raise OttlaError(
            f"{topic}-{partition} has no record at offset {offset}: it is a marker, was removed, "
            "or is yet to come",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    record = found.records[0][1]
    headers = [
        (name.encode(errors="surrogateescape").decode(errors="backslashreplace"),
         formed(content, form, SHOWN_BYTES))
        for name, content in record.headers[:HEADERS_SHOWN]
    ]  # fmt: skip
    values = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "time": moment(record.timestamp),
        "key": formed(record.key, form, WHOLE_BYTES),
        "value": formed(record.value, form, WHOLE_BYTES),
        "headers": headers,
        "more_headers": max(0, len(record.headers) - HEADERS_SHOWN),
        "form": form,
        "forms": FORMS,
    }
    return Page("message.html", {"title": f"{topic}-{partition} at {offset}", **values})
