"""Transactions: which there are, which hang, and the end of one that hangs.

Invariants: only what the leader knows as open is ended, and only after its page has shown whose it
is.
"""

import time

from starlette.responses import Response

from ottla.admin.operations.record_format import moment
from ottla.client import transactions
from ottla.console.asked import Asked
from ottla.console.changes.preview import Preview, preview
from ottla.console.page import Page, redirect
from ottla.console.rendering import paged
from ottla.console.state import Console

PAGE_ROWS = 100
HANGS_AFTER_MS = 900_000
BACK = "/transactions"


async def listed(console: Console, asked: Asked) -> Page:
    """Return a page of the transactional ids; with `hanging`, what no coordinator will end."""
    found = await parts(console, asked)
    hanging = None
    problems: list[str] = []
    if asked.has("hanging"):
        now_ms = time.time_ns() // 1_000_000
        older_ms = asked.number("older", HANGS_AFTER_MS // 1000, 0, 1 << 31) * 1000
        hanging = await transactions.hanging(console.client, None, older_ms, now_ms, problems)
    values = {**found["ids"].values, "hanging": hanging, "older": HANGS_AFTER_MS // 1000}
    values["not_asked"] = problems
    return Page("transactions.html", {"title": "Transactions", **values})


async def parts(console: Console, asked: Asked) -> dict[str, Page]:
    """Return what of the list is updated live."""
    wanted = asked.text("q")
    problems: list[str] = []
    every = await transactions.list_transactions(console.client, [], problems)
    found = [row for row in every if wanted in row.transactional_id]
    shown, pages = paged(found, asked.number("page", 1, 1, 1 << 31), PAGE_ROWS)
    return {
        "ids": Page(
            "part_ids.html", {"rows": shown, "pages": pages, "q": wanted, "problems": problems}
        )
    }


async def one(console: Console, asked: Asked) -> Page:
    """Return one transactional id with its transaction."""
    found = (await parts_of_one(console, asked))["facts"]
    name = found.values["facts"].transactional_id
    return Page("transaction.html", {"title": f"Transaction {name}", **found.values})


async def parts_of_one(console: Console, asked: Asked) -> dict[str, Page]:
    """Return what of one transactional id is updated live."""
    facts = await transactions.describe(console.client, asked.needed("id"))
    began = None if facts.start_ms is None else moment(facts.start_ms)
    return {"facts": Page("part_transaction.html", {"facts": facts, "began": began})}


async def abort(console: Console, asked: Asked) -> Page | Response:
    """Return whose transaction it is; with `do`, end it."""
    topic, partition = asked.needed("topic"), asked.number("partition", 0, 0, (1 << 31) - 1)
    offset = asked.number("offset", 0)
    if asked.has("do"):
        await transactions.abort(console.client, topic, partition, offset)
        return redirect(BACK)
    found = await transactions.abort(console.client, topic, partition, offset, dry_run=True)
    return preview(
        Preview(
            f"Transaction in {topic}-{partition}",
            ["read_committed consumers skip its records and can then continue."],
            ("producer id", "epoch", "start offset", "last record"),
            [
                (
                    found.producer_id,
                    found.producer_epoch,
                    found.transaction_start_offset,
                    moment(found.last_timestamp),
                )
            ],
            "/transactions/abort",
            [("topic", topic), ("partition", str(partition)), ("offset", str(offset))],
            "Abort transaction",
            BACK,
        )
    )
