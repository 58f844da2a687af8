"""A new topic: checked by the brokers, shown, then created.

Invariants: a preview creates nothing: the brokers only check it.
"""

import asyncio
import contextlib

from starlette.responses import Response

from ottla.client import topics
from ottla.console.asked import Asked
from ottla.console.changes.preview import Preview, preview
from ottla.console.page import Page, redirect
from ottla.console.rendering import path
from ottla.console.state import Console
from ottla.model.errors import UnknownTopicError

MOST_PARTITIONS = 100_000
MOST_REPLICAS = 1000
DEFAULT = -1
"""Of a count: the brokers' own."""
KNOWN_S = 5.0
POLL_S = 0.1


async def create(console: Console, asked: Asked) -> Page | Response:
    """Return the preview of a new topic; with `do`, create it."""
    name = asked.needed("name").strip()
    partitions = asked.number("partitions", DEFAULT, 1, MOST_PARTITIONS)
    replicas = asked.number("replicas", DEFAULT, 1, MOST_REPLICAS)
    agreed = asked.has("do")
    counts = await topics.create_topic(
        console.client,
        name,
        partitions=partitions,
        replication_factor=replicas,
        validate_only=not agreed,
    )
    if agreed:
        await _until_known(console, name)
        return redirect(path("topic", name=name))
    default = "the brokers' default"
    shown = [
        str(asked_for) if asked_for > 0 else f"{real} ({default})" if real > 0 else default
        for asked_for, real in zip((partitions, replicas), counts, strict=True)
    ]
    fields = [("name", name)]
    fields += [
        (k, str(n)) for k, n in (("partitions", partitions), ("replicas", replicas)) if n > 0
    ]
    return preview(
        Preview(
            "New topic",
            ["The brokers would accept this change."],
            ("topic", "partitions", "replication factor"),
            [(name, *shown)],
            "/topics/create",
            fields,
            f"Create {name}",
            "/topics",
        )
    )


async def _until_known(console: Console, name: str) -> None:
    """Wait a while until the broker that is asked knows it: the controller tells it so."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KNOWN_S):
            while True:
                with contextlib.suppress(UnknownTopicError):
                    await topics.describe_topic(console.client, name)
                    return
                await asyncio.sleep(POLL_S)
