"""Records of a topic: by offset, time, key or what is in them; the newest ones live; one in whole.

Invariants: a page reads within the bounds of `reading` and says how far it came; values are cut,
and shown in whole on a page of their own.
"""

from ottla.admin.operations.record_format import moment
from ottla.client.offsets import Place
from ottla.console import reading
from ottla.console.asked import Asked
from ottla.console.avro import Budget
from ottla.console.formats import formed
from ottla.console.page import Page, problem
from ottla.console.pages import records, searching
from ottla.console.rendering import path
from ottla.console.state import Console
from ottla.model.errors import ErrorCode, OttlaError

LIVE_RECORDS = 30
WHOLE_BYTES = 4_194_304
HEADERS_SHOWN = 50


async def page(console: Console, asked: Asked) -> Page:
    """Return the records that were asked for; a search that has more to look at goes on live."""
    fields = records.fields_of(console, asked)
    live_url = ""
    if asked.has("live"):
        values = (await parts(console, asked))["records"].values
        live_url = path("live", of="messages", **fields)
    elif not (fields["q"] or fields["key"]):
        found = await reading.read(console.client, await records.wanted(console, asked, fields))
        values = {**_values(console, fields, found), **records.progress(fields, found, going=False)}
    elif fields["steps"]:
        if console.searches >= searching.MOST_SEARCHES:
            return problem(503, "Not searched", searching.TOO_MANY)
        found = await searching.step(console, asked, fields)
        values = {**_values(console, fields, found), **records.progress(fields, found, going=False)}
    else:
        found, live_url = await searching.begin(console, asked, fields)
        without_script = path("messages", **{**records.further(fields, found), "steps": "1"})
        shown = records.progress(fields, found, going=bool(live_url), without_script=without_script)
        values = {**_values(console, fields, found), **shown}
    title = f"Records of {fields['topic']}"
    return Page("messages.html", {"title": title, "live_url": live_url, **values})


async def parts(console: Console, asked: Asked) -> dict[str, Page]:
    """Return the newest records, for the page that is live."""
    fields = {**records.fields_of(console, asked), "from": f"-{LIVE_RECORDS}", "live": "1"}
    wanted = await records.wanted(console, asked, fields)
    found = await reading.read(
        console.client, wanted._replace(start=Place(before_end=LIVE_RECORDS))
    )
    found.records.sort(key=lambda item: (item[1].timestamp, item[0], item[1].offset))
    found.records = found.records[: -LIVE_RECORDS - 1 : -1]
    shown = {**records.progress(fields, found, going=False), "go_on": ""}
    values = {**_values(console, fields, found), **shown, "count": len(found.records)}
    return {"records": Page("part_records.html", values)}


def _values(console: Console, fields: dict[str, str], found: reading.Found) -> dict[str, object]:
    rows = records.rows(console, fields, found, Budget())
    return {"fields": fields, "rows": rows, "forms": console.schemas.forms(fields["topic"])}


async def one(console: Console, asked: Asked) -> Page:
    """Return one record in whole."""
    topic, schemas = asked.needed("topic"), console.schemas
    form = asked.choice("as", schemas.forms(topic), schemas.usual_form(topic))
    partition, offset = asked.number("partition", 0, 0, (1 << 31) - 1), asked.number("offset", 0)
    wanted = reading.Wanted(topic, (partition,), Place(offset=offset), 1)
    found = await reading.read(console.client, wanted)
    if not found.records or found.records[0][1].offset != offset:
        raise OttlaError(
            f"{topic}-{partition} has no record at offset {offset}: the offset is a transaction "
            "marker, was deleted, or is not written yet",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    record = found.records[0][1]
    headers = [
        (
            name.encode(errors="surrogateescape").decode(errors="backslashreplace"),
            formed(content, records.besides(form), records.SHOWN_BYTES),
        )
        for name, content in record.headers[:HEADERS_SHOWN]
    ]
    values = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "time": moment(record.timestamp),
        "key": formed(record.key, records.besides(form), WHOLE_BYTES),
        "value": records.value(console, topic, record, form, WHOLE_BYTES, Budget()),
        "headers": headers,
        "more_headers": max(0, len(record.headers) - HEADERS_SHOWN),
        "form": form,
        "forms": schemas.forms(topic),
    }
    return Page("message.html", {"title": f"{topic}-{partition} at {offset}", **values})
