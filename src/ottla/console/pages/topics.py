"""Topics: the list, page by page, and one topic with its partitions.

Invariants: the list is of the newest look; one topic is asked for when its page is.
"""

import asyncio

from ottla.client import configs, offsets, reassignments, topics
from ottla.console.asked import Asked
from ottla.console.page import Page
from ottla.console.rendering import paged
from ottla.console.state import Console
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import EARLIEST, LATEST

PAGE_ROWS = 100
ORDERS = {
    "problems": None,
    "name": lambda row: row.topic,
    "partitions": lambda row: (-row.partitions, row.topic),
    "records": lambda row: (-row.end, row.topic),
    "written": lambda row: (-(row.written or 0.0), row.topic),
}
"""How the list may be sorted; None: as `ottla top` has it, what is wrong first."""


async def listed(console: Console, asked: Asked) -> Page:
    """Return a page of the list."""
    look = await console.watcher.look()
    wanted = asked.text("q")
    by = asked.choice("by", ORDERS, "problems")
    rows = [row for row in console.watcher.topics() if wanted in row.topic]
    order = ORDERS[by]
    if order is not None:
        rows.sort(key=order)
    shown, pages = paged(rows, asked.number("page", 1, 1, 1 << 31), PAGE_ROWS)
    values = {"look": look, "rows": shown, "pages": pages, "q": wanted, "by": by, "orders": ORDERS}
    return Page("topics.html", {"title": "Topics", **values})


async def one(console: Console, asked: Asked) -> Page:
    """Return one topic with a page of its partitions."""
    found = await parts(console, asked)
    values = {name: value for part in found.values() for name, value in part.values.items()}
    name = asked.needed("name")
    own = await configs.own(console.client, configs.TOPIC, name)
    return Page("topic.html", {"title": f"Topic {name}", **values, "settings": own})


async def parts(console: Console, asked: Asked) -> dict[str, Page]:
    """Return what of one topic's page is updated live."""
    name = asked.needed("name")
    facts = await topics.describe_topic(console.client, name)
    shown, pages = paged(facts.partitions, asked.number("page", 1, 1, 1 << 31), PAGE_ROWS)
    tps = [TopicPartition(name, p.partition) for p in shown]
    client = console.client
    starts, ends, moves, sizes = await asyncio.gather(
        offsets.log_offsets(client, tps, EARLIEST, problems=[]),
        offsets.log_offsets(client, tps, LATEST, problems=[]),
        reassignments.in_progress(client),
        _sizes(console, tps),
    )
    rows = [
        {
            "facts": p,
            "start": starts.get(tp),
            "end": ends.get(tp),
            "rate": console.watcher.changes.rate(tp),
            "move": moves.get(tp),
            "sizes": sizes.get(tp, {}),
        }
        for p, tp in zip(shown, tps, strict=True)
    ]
    of_all = {"facts": facts, "pages": pages, "explained": console.folder is not None}
    return {
        "counts": Page("part_topic.html", of_all),
        "partitions": Page("part_partitions.html", {**of_all, "rows": rows}),
    }


async def _sizes(
    console: Console, tps: list[TopicPartition]
) -> dict[TopicPartition, dict[int, int]]:
    """Return bytes by partition and broker; nothing where the brokers do not tell."""
    try:
        only = {tps[0].topic: [tp.partition for tp in tps]} if tps else {}
        return await topics.sizes(console.client, only=only)
    except OttlaError:
        return {}
