"""Throttles that are left over in a cluster: settings of throttles while nothing is reassigned.

Invariants: an operator may have set a throttle by hand, as for a broker that recovers: what is
found is offered, and removed only on request. A broker with a lease removes its own
(broker/configs/throttle_lease.py). A broker that does not respond is left out; works with any
Kafka.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from ottla.client import configs, log_dirs, reassignments
from ottla.client.client import Client
from ottla.client.configs import BROKER, TOPIC
from ottla.client.throttles import BROKER_ANSWERS_IN_S
from ottla.model.errors import ConnectionLostError
from ottla.model.throttle_settings import (
    LEASE,
    LOG_DIRS_RATE,
    RATES,
    REPLICATION_RATES,
    THROTTLED_REPLICAS,
)


class Forgotten(Struct, frozen=True):
    """Throttles of one broker or topic; `fix` is the command that removes them."""

    kind: str
    name: str
    settings: dict[str, str]
    fix: str


def forgotten_throttles(
    brokers: Mapping[int, Mapping[str, str | None]],
    topics: Mapping[str, Mapping[str, str | None]],
    *,
    reassigning: Collection[object] = (),
    moving_log_dirs: Collection[int] = (),
) -> list[Forgotten]:
    """Return the throttles there are while none is needed.

    `brokers`, `topics`: the settings of their own, by id and by name; `reassigning`: what is being
    reassigned; `moving_log_dirs`: brokers with a replica on its way to another log dir. A broker
    with a lease is left out, and so are the topics that the lease names.
    """
    leases = [settings[LEASE] or "" for settings in brokers.values() if LEASE in settings]
    leased = {name for lease in leases for name in lease.split(",")}
    found: list[Forgotten] = []
    for broker, settings in sorted(brokers.items()):
        keys: tuple[str, ...] = () if reassigning else REPLICATION_RATES
        if broker not in moving_log_dirs:
            keys += (LOG_DIRS_RATE,)
        if LEASE not in settings:
            _note(found, "broker", str(broker), settings, keys)
    if not reassigning:
        for topic, settings in sorted(topics.items()):
            if topic not in leased:
                _note(found, "topic", topic, settings, THROTTLED_REPLICAS)
    return found


def _note(
    found: list[Forgotten],
    kind: str,
    name: str,
    settings: Mapping[str, str | None],
    keys: Collection[str],
) -> None:
    there = {key: settings[key] or "" for key in keys if key in settings}
    if there:
        deleted = "".join(f" --delete {key}" for key in there)
        fix = f"ottla configs alter --{kind} {name}{deleted}"
        found.append(Forgotten(kind, name, there, fix))


async def forgotten(
    client: Client,
    moving_log_dirs: set[int] | None = None,
    names: Collection[str] | None = None,
) -> list[Forgotten]:
    """Return the throttles that are left over; brokers that do not respond are left out.

    If known already: `moving_log_dirs`, brokers with a replica on its way to another log dir, and
    `names`, all topics.
    """
    brokers = {}
    for broker in await reassignments.racks(client):
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
        reassigning=await reassignments.in_progress(client),
        moving_log_dirs=moving_log_dirs,
    )


async def remove(client: Client, found: Iterable[Forgotten]) -> None:
    """Remove throttles that were found forgotten."""
    for one in found:
        kind = BROKER if one.kind == "broker" else TOPIC
        await configs.alter(client, kind, one.name, {}, list(one.settings))
