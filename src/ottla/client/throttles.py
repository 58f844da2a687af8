"""Throttles of reassignments: set, removed, and those that no one needs any more.

Invariants: validated everywhere before it is set anywhere; set only on brokers that live, removed
only where it is set; a broker that does not respond is named, not waited for; works with any Kafka
(KIP-73).
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.client import configs
from ottla.client.client import Client
from ottla.client.configs import BROKER, TOPIC
from ottla.model.errors import ConnectionLostError, OttlaError, UnsupportedVersionError
from ottla.model.throttle_settings import LEASE, RATES, REPLICATION_RATES, THROTTLED_REPLICAS
from ottla.placement.plans import Throttled

MAX_LEASE_CHARS = 200_000
"""What is longer than a znode should be leaves topics to `reassign verify`; rates are leased."""
BROKER_ANSWERS_IN_S = 5.0


class Cleared(NamedTuple):
    """From which brokers and topics throttles were removed, and which brokers did not respond."""

    brokers: list[int]
    topics: list[str]
    silent: list[int]


async def limit(
    client: Client, throttled: Throttled, live: Collection[int], rate: int
) -> list[int]:
    """Set the rate on brokers, then name the replicas: nothing is throttled to an old rate.

    With it goes a lease, by which brokers of ours remove it all themselves once the reassignment
    has ended; the brokers that do not know leases are returned.
    """
    leaders, followers, brokers = throttled
    alive = [broker for broker in brokers if broker in live]
    rates = {key: str(rate) for key in REPLICATION_RATES}
    leased = rates | {LEASE: lease_of(leaders)}
    without = [broker for broker in alive if not await knows_leases(client, broker)]
    wanted = {broker: rates if broker in without else leased for broker in alive}
    for validate_only in (True, False):
        for broker in alive:
            await _set(client, BROKER, str(broker), wanted[broker], validate_only=validate_only)
        for topic in leaders:
            changed = dict(zip(THROTTLED_REPLICAS, (leaders[topic], followers[topic]), strict=True))
            await _set(client, TOPIC, topic, changed, validate_only=validate_only)
    for broker in alive:
        await configs.wait_in_force(client, broker, wanted[broker])
    return without


async def lease(client: Client, brokers: Iterable[int]) -> list[int]:
    """Give brokers whose moves between log dirs are throttled a lease; return who knows none."""
    without = []
    for broker in sorted(brokers):
        if not await knows_leases(client, broker):
            without.append(broker)
        elif LEASE not in await configs.own(client, BROKER, str(broker), [LEASE]):
            await configs.alter(client, BROKER, str(broker), {LEASE: ""})
    return without


async def knows_leases(client: Client, broker: int) -> bool:
    """Tell whether a broker shows a lease, set or not: Kafka's brokers do not know the setting."""
    found = await configs.settings(client, BROKER, str(broker), [LEASE])
    return any(s.key == LEASE and not s.sensitive for s in found)


async def set_now(
    client: Client, live: Iterable[int], topics: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return the throttled brokers and topics: first those without a lease, then those leased.

    A broker that does not respond is left out.
    """
    kept: list[str] = []
    leased: list[str] = []
    named: set[str] = set()
    for broker in sorted(live):
        try:
            found = await configs.own(
                client, BROKER, str(broker), (*RATES, LEASE), timeout_s=BROKER_ANSWERS_IN_S
            )
        except ConnectionLostError:
            continue
        if found.keys() & set(RATES):
            (leased if LEASE in found else kept).append(f"broker {broker}")
        named.update((found.get(LEASE) or "").split(","))
    own = await configs.own_of_topics(client, topics, THROTTLED_REPLICAS)
    for topic in sorted(name for name, throttled in own.items() if throttled):
        (leased if topic in named else kept).append(f"topic {topic}")
    return kept, leased


async def leased_topics(client: Client, live: Iterable[int]) -> set[str]:
    """Return the topics that the leases of these brokers name."""
    named: set[str] = set()
    for broker in live:
        with contextlib.suppress(ConnectionLostError):
            found = await configs.own(
                client, BROKER, str(broker), [LEASE], timeout_s=BROKER_ANSWERS_IN_S
            )
            named.update(name for name in (found.get(LEASE) or "").split(",") if name)
    return named


def lease_of(topics: Iterable[str]) -> str:
    """Return the value of a lease: these topics, as many as there is room for."""
    text = ",".join(sorted(topics))
    return text if len(text) <= MAX_LEASE_CHARS else text[:MAX_LEASE_CHARS].rpartition(",")[0]


async def _set(
    client: Client, kind: int, name: str, changed: Mapping[str, str], *, validate_only: bool
) -> None:
    try:
        await configs.alter(client, kind, name, changed, validate_only=validate_only)
    except UnsupportedVersionError as error:
        raise OttlaError(f"--throttle cannot be set here ({error}); leave it out") from None


async def clear(client: Client, live: Iterable[int], topics: Iterable[str]) -> Cleared:
    """Remove the throttles of all live brokers and of these topics, which exist.

    A broker that is dead or does not respond keeps its throttle: it is its own to change.
    """
    brokers, silent = [], []
    for broker in live:
        try:
            if await _clear(client, BROKER, str(broker)):
                brokers.append(broker)
        except ConnectionLostError:
            silent.append(broker)
    cleared = [topic for topic in sorted(topics) if await _clear(client, TOPIC, topic)]
    return Cleared(brokers, cleared, silent)


async def _clear(client: Client, kind: int, name: str) -> bool:
    keys = (*RATES, LEASE) if kind == BROKER else THROTTLED_REPLICAS
    # Whoever does not say in time what it has must not keep the others from being asked.
    timeout_s = BROKER_ANSWERS_IN_S if kind == BROKER else None
    found = await configs.own(client, kind, name, keys, timeout_s=timeout_s)
    there = [key for key in keys if key in found]
    if there:
        await configs.alter(client, kind, name, {}, there)
    return bool(there)
