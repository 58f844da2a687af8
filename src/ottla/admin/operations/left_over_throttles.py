"""Throttles that are left over in a cluster: asked for and, on request, removed.

Invariants: what counts as left over is `forgotten_throttles`'; a broker that does not respond is
left out; works with any Kafka.
"""

import contextlib
from collections.abc import Collection, Iterable

from ottla.admin.operations import reassign
from ottla.admin.operations.forgotten_throttles import Forgotten, forgotten_throttles
from ottla.admin.operations.throttles import BROKER_ANSWERS_IN_S
from ottla.client import configs, log_dirs
from ottla.client.client import Client
from ottla.client.configs import BROKER, TOPIC
from ottla.model.errors import ConnectionLostError
from ottla.model.throttle_settings import LEASE, LOG_DIRS_RATE, RATES, THROTTLED_REPLICAS


async def forgotten(
    client: Client,
    moving_log_dirs: set[int] | None = None,
    names: Collection[str] | None = None,
) -> list[Forgotten]:
    """Return the throttles that no one needs; brokers that do not answer are left out.

    If known already: `moving_log_dirs`, brokers with a replica on its way to another log dir, and
    `names`, all topics.
    """
    brokers = {}
    for broker in await reassign.racks(client):
        with contextlib.suppress(ConnectionLostError):
            brokers[broker] = await configs.own(
                client, BROKER, str(broker), [*RATES, LEASE], timeout_s=BROKER_ANSWERS_IN_S
            )
    if names is None:
        names = [topic.name or "" for topic in (await client.metadata(None)).topics]
    topics = await configs.own_of_topics(client, names, THROTTLED_REPLICAS)
    if moving_log_dirs is None:  # all replicas of a broker are many: only where it matters
        throttled = [b for b, own in brokers.items() if LOG_DIRS_RATE in own and LEASE not in own]
        moving_log_dirs = log_dirs.moving(await log_dirs.describe(client, throttled))
    return forgotten_throttles(
        brokers,
        topics,
        reassigning=await reassign.in_progress(client),
        moving_log_dirs=moving_log_dirs,
    )


async def remove(client: Client, found: Iterable[Forgotten]) -> None:
    """Remove throttles that were found forgotten."""
    for one in found:
        kind = BROKER if one.kind == "broker" else TOPIC
        await configs.alter(client, kind, one.name, {}, list(one.settings))
