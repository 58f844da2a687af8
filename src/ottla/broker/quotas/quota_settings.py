"""Quota settings: the bounds under /config/users, /config/clients and /config/ips, kept current.

Invariants: a bound that cannot be read is left out, said and survived (F41); what else users have
there, such as credentials, is none of its business. Kafka: `UserConfigHandler`,
`ClientIdConfigHandler` and `IpConfigHandler`.
"""

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.quotas.client_quotas import (
    ANY,
    CONNECTION_RATE,
    CONSUMER_RATE,
    MUTATION_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    Entity,
)
from ottla.zookeeper.znodes import desanitize

if TYPE_CHECKING:
    from ottla.zookeeper.configs import Configs

logger = logging.getLogger(__name__)

USERS, CLIENTS, IPS = "users", "clients", "ips"
KINDS = (USERS, CLIENTS, IPS)
OF_CLIENTS = {
    PRODUCER_RATE: "LONG",
    CONSUMER_RATE: "LONG",
    REQUEST_PERCENTAGE: "DOUBLE",
    MUTATION_RATE: "DOUBLE",
}
OF_ADDRESSES = {CONNECTION_RATE: "INT"}


def plain(name: str) -> str:
    """Return an entity's name as clients say it; `<default>` stays."""
    return name if name == ANY else desanitize(name)


def split(kind: str, name: str) -> Entity:
    """Return (user, client id) of a znode's name below /config/users or /config/clients."""
    if kind == CLIENTS:
        return None, plain(name)
    user, _, client = name.partition("/clients/")
    return plain(user), plain(client) if client else None


def numbers(kind: str, settings: Mapping[str, str]) -> dict[str, float]:
    """Return the bounds among an entity's settings: credentials of users are none."""
    known = OF_ADDRESSES if kind == IPS else OF_CLIENTS
    found = {}
    for name, text in settings.items():
        if name not in known:
            continue
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and value >= 0:
            found[name] = value
        else:
            logger.warning("quota ignored entity=%s quota=%s value=%s", kind, name, text)
    return found


async def names(stored: "Configs", kind: str) -> list[str]:
    """Return the names of all entities of a kind, users' client ids among the users."""
    found = await stored.get_names(kind)
    if kind != USERS:
        return found
    both = [
        f"{user}/clients/{client}"
        for user in found
        for client in await stored.get_names(f"{USERS}/{user}/clients")
    ]
    return found + both


async def load(quotas: ClientQuotas, stored: "Configs") -> None:
    """Read all bounds through a new session."""
    found = [
        (kind, name, settings)
        for kind in KINDS
        for name, settings in (await stored.get_many(kind, await names(stored, kind))).items()
    ]
    quotas.clear()
    for kind, name, settings in found:
        _take(quotas, kind, name, settings)


async def refresh(quotas: ClientQuotas, stored: "Configs", kind: str, name: str) -> None:
    """Read one entity's bounds again: a change was notified."""
    settings = await stored.get(kind, name)
    _take(quotas, kind, name, settings)
    logger.info("quotas changed entity=%s/%s quotas=%s", kind, name, numbers(kind, settings))


def _take(quotas: ClientQuotas, kind: str, name: str, settings: Mapping[str, str]) -> None:
    bounds = numbers(kind, settings)
    if kind != IPS:
        quotas.set(split(kind, name), bounds)
    elif CONNECTION_RATE in bounds:
        quotas.connection_rates[plain(name)] = bounds[CONNECTION_RATE]
    else:
        quotas.connection_rates.pop(plain(name), None)
