"""What the pages of records share: the form's fields, what they ask to read, and rows.

Invariants: every field is checked; values are cut.
"""

from ottla.admin.operations.record_format import moment
from ottla.admin.operations.typed_values import parse_place
from ottla.client import topics
from ottla.client.offsets import Place
from ottla.console import avro, reading
from ottla.console.asked import Asked, BadRequestError
from ottla.console.formats import Formed, formed
from ottla.console.rendering import path
from ottla.console.state import Console
from ottla.model.ids import TopicPartition
from ottla.model.partitioning import partition_of
from ottla.model.protocol import READ_COMMITTED, READ_UNCOMMITTED
from ottla.wire.records import Record

MOST_RECORDS = 200
SHOWN_BYTES = 2000
KEY_BYTES = 500
NEWEST = "-20"


def fields_of(console: Console, asked: Asked) -> dict[str, str]:
    """Return the fields of the form, checked one by one."""
    topic = asked.needed("topic")
    schemas = console.schemas
    return {
        "topic": topic,
        "partition": asked.text("partition", most=10).strip(),
        "from": asked.text("from", NEWEST, most=40).strip() or NEWEST,
        "key": asked.text("key"),
        "q": asked.text("q"),
        "as": asked.choice("as", schemas.forms(topic), schemas.usual_form(topic)),
        "isolation": asked.choice("isolation", ("all", "committed"), "all"),
        "at": asked.text("at", most=8000),
        "steps": "1" if asked.has("steps") else "",
    }


async def wanted(console: Console, asked: Asked, fields: dict[str, str]) -> reading.Wanted:
    """Return what the form asks to read."""
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
            raise BadRequestError(f"at: {part[:40]} must be PARTITION:OFFSET")
        if len(offset) > 18 or len(number) > 10:
            raise BadRequestError(f"at: {part[:40]} is not an offset")
        found[int(number)] = int(offset)
    return found


def progress(
    fields: dict[str, str], found: reading.Found, *, going: bool, without_script: str = ""
) -> dict[str, object]:
    """Return the values of the line that says how far a reading came, or is while it goes on."""
    further_fields = further(fields, found) or (fields if going else {})
    return {
        "found": found,
        "count": found.count,
        "percent_left": found.percent_left,
        "going": going,
        "go_on": path("messages", **further_fields) if further_fields else "",
        "without_script": without_script,
    }


def further(fields: dict[str, str], found: reading.Found) -> dict[str, str]:
    """Return the fields that go on where a reading ended, none where all was read."""
    if found.positions:
        at = ",".join(f"{p}:{offset}" for p, offset in sorted(found.positions.items()))
        return {**fields, "at": at} if found.left else {}
    return fields if found.stopped else {}  # it ended before it knew where to begin


def rows(
    console: Console, fields: dict[str, str], found: reading.Found, budget: avro.Budget
) -> list[dict[str, object]]:
    """Return what is shown of records; Avro within a budget for the whole page."""
    return [_row(console, tp, record, fields["as"], budget) for tp, record in found.records]


def _row(
    console: Console, tp: TopicPartition, record: Record, form: str, budget: avro.Budget
) -> dict[str, object]:
    return {
        "partition": tp.partition,
        "offset": record.offset,
        "time": moment(record.timestamp),
        "key": formed(record.key, besides(form), KEY_BYTES),
        "value": value(console, tp.topic, record, form, SHOWN_BYTES, budget),
        "headers": len(record.headers),
        "url": path(
            "message",
            topic=tp.topic,
            partition=str(tp.partition),
            offset=str(record.offset),
            **{"as": form},
        ),
    }


def value(
    console: Console, topic: str, record: Record, form: str, most: int, budget: avro.Budget
) -> Formed:
    """Return a record's value in a form."""
    if form == avro.AVRO:
        schema = console.schemas.of(topic)
        assert schema is not None
        return avro.formed_value(record.value, schema, most, budget)
    return formed(record.value, form, most)


def besides(form: str) -> str:
    """Return the form of keys and headers where values have this one."""
    return "auto" if form == avro.AVRO else form
