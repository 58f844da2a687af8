"""A search in records: what is found at once is the page, the rest comes while it goes on.

Invariants: MOST_SEARCHES read at once for all browsers; a search ends at its bounds, or with the
stream of its browser; each record that it found is sent once, so a stream of it is not begun again.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from ottla.console import reading
from ottla.console.asked import Asked, BadRequestError
from ottla.console.avro import Budget
from ottla.console.page import Page
from ottla.console.pages import records
from ottla.console.rendering import path
from ottla.console.state import Console
from ottla.model.errors import OttlaError

AT_ONCE_S = 0.5
"""So long the page waits for what is found; its stream goes on from there."""
MOST_BYTES = 1024 * reading.MIB
MOST_S = 60.0
MOST_SEARCHES = 3
EVERY_S = 0.3
TOO_MANY = f"{MOST_SEARCHES} searches are already running; try again when one has finished"


class Change(NamedTuple):
    """What becomes of an element of the page: it is replaced, or something is added to it."""

    element: str
    page: Page
    adds: bool = False


async def begin(
    console: Console, asked: Asked, fields: dict[str, str]
) -> tuple[reading.Found, str]:
    """Return what is found at once, and the URL of the stream that goes on, empty if none is to."""
    bounds = reading.Bounds(reading.MOST_BYTES, AT_ONCE_S)
    wanted = await records.wanted(console, asked, fields)
    found = await reading.read(console.client, wanted, bounds)
    further = records.further(fields, found)
    if not further or found.count >= wanted.most:
        return found, ""
    so_far = {
        "count": found.count,
        "looked": found.looked_at,
        "bytes": found.looked_at_bytes,
        "total": found.total,
    }
    return found, path("live", of="search", **further, **so_far)


async def step(console: Console, asked: Asked, fields: dict[str, str]) -> reading.Found:
    """Return what is found within the bounds of a page: a search for browsers without script."""
    console.searches += 1
    try:
        return await reading.read(console.client, await records.wanted(console, asked, fields))
    finally:
        console.searches -= 1


def course(console: Console, asked: Asked) -> AsyncGenerator[Sequence[Change], None]:
    """Return what changes on the page of a search until it ends; BadRequestError."""
    fields = records.fields_of(console, asked)
    found = reading.Found(
        count=asked.number("count", 0, 0, records.MOST_RECORDS),
        looked_at=asked.number("looked", 0),
        looked_at_bytes=asked.number("bytes", 0),
        total=asked.number("total", 0),
    )
    return _course(console, asked, fields, found)


async def _course(
    console: Console, asked: Asked, fields: dict[str, str], found: reading.Found
) -> AsyncGenerator[Sequence[Change], None]:
    if console.searches >= MOST_SEARCHES:
        found.stopped = TOO_MANY
        yield [_progress(fields, found, going=False)]
        return
    console.searches += 1
    budget = Budget()
    task = asyncio.create_task(_read(console, asked, fields, found))
    try:
        going = True
        while going:
            await asyncio.wait({task}, timeout=EVERY_S)
            if task.done():
                task.result()  # an error of ours is raised
                going = False
            elif console.closing():
                found.stopped, going = "the console is shutting down", False
            changes = []
            if found.records:
                rows = records.rows(console, fields, found, budget)
                found.records.clear()
                changes.append(Change("more", Page("part_rows.html", {"rows": rows}), adds=True))
            yield [*changes, _progress(fields, found, going=going)]
    finally:
        console.searches -= 1
        task.cancel()


async def _read(
    console: Console, asked: Asked, fields: dict[str, str], found: reading.Found
) -> None:
    bounds = reading.Bounds(MOST_BYTES, MOST_S)
    try:
        wanted = await records.wanted(console, asked, fields)
        await reading.read(console.client, wanted, bounds, found)
    except (OttlaError, BadRequestError) as error:
        found.stopped = str(error)


def _progress(fields: dict[str, str], found: reading.Found, *, going: bool) -> Change:
    values = records.progress(fields, found, going=going)
    return Change("progress", Page("part_progress.html", values))
