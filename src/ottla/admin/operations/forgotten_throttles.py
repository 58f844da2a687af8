"""Throttles that no one needs: settings of replication throttles while nothing is reassigned.

Invariants: plain values in, plain values out; an operator may have set a throttle by hand, as for a
broker that recovers: what is found is offered, never removed here. A broker with a lease removes
its own (broker/configs/throttle_lease.py).
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from ottla.model.throttle_settings import (
    LEASE,
    LOG_DIRS_RATE,
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
