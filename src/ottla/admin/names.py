"""Names of a cluster, for shells to complete: topics, groups, brokers, partitions, and profiles.

Invariant: a cluster that does not respond at once has none.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.wire.messages.cluster import MetadataResponse

NAMES_WITHIN_S = 1.5
"""A person waits at the terminal."""


def names(kind: str, chosen: Mapping[str, str]) -> list[str]:
    """Return names of a cluster; none where it does not respond at once."""
    from ottla.model.errors import OttlaError

    try:
        if kind == "profile":
            from ottla.admin import profiles

            return sorted(profiles.load().by_name)
        return _asked(kind, chosen)
    except (OttlaError, OSError, TimeoutError):
        return []


def _asked(kind: str, chosen: Mapping[str, str]) -> list[str]:
    import asyncio

    from ottla.admin.connection import Connection
    from ottla.admin.session import connected

    config, directory = chosen.get("command_config"), chosen.get("directory")
    found = Connection(
        directory=Path(directory) if directory else None,
        bootstrap_server=chosen.get("bootstrap_server"),
        profile=chosen.get("profile"),
        command_config=Path(config) if config else None,
    ).where

    async def question(client: "Client") -> list[str]:
        async with asyncio.timeout(NAMES_WITHIN_S):
            if kind in ("topic", "partition", "number"):
                return _of_topics(kind, (await client.metadata(None)).topics, chosen.get("topic"))
            if kind == "broker":
                return [str(b) for b in await client.broker_ids()]
            if kind == "group":
                from ottla.client.groups import list_groups

                return [g.group for g in await list_groups(client, [])]
            from ottla.client.transactions import list_transactions

            return [t.transactional_id for t in await list_transactions(client, [], [])]

    return connected(
        found.bootstrap(), question, timeout_s=NAMES_WITHIN_S, security=found.settings.security
    )


def _of_topics(
    kind: str, topics: "list[MetadataResponse.MetadataResponseTopic]", topic: str | None
) -> list[str]:
    """Return topics, their partitions, or the numbers of the partitions of one topic."""
    if kind == "topic":
        return sorted(t.name or "" for t in topics)
    found = sorted((t.name or "", p.partition_index) for t in topics for p in t.partitions)
    if kind == "partition":
        return [f"{name}-{number}" for name, number in found]
    return [str(number) for name, number in found if name == topic]
