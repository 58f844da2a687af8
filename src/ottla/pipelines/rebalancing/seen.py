"""What was seen of a cluster at one time, and the problem that follows from it and the settings.

Pure. Sizes are bytes; -1 is unknown.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

import msgspec

from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition
from ottla.pipelines.rebalancing.problem import Broker, Goals, Partition, Problem

UNKNOWN = -1
_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    prefix + suffix: int(base**power)
    for power, prefix in enumerate("kmgtp", 1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}


class SeenBroker(NamedTuple):
    """A live broker: its rack, bytes of all that is in its log dirs, of that in no replica.

    `total` and `usable`: bytes of its volumes, each counted once.
    """

    id: int
    rack: str | None
    logs: int
    other: int
    total: int
    usable: int


class SeenPartition(NamedTuple):
    """A partition: replicas in order, the size of each, the leader or -1, offsets or -1."""

    tp: TopicPartition
    topic_id: str
    replicas: tuple[int, ...]
    sizes: tuple[int, ...]
    leader: int
    offline: tuple[int, ...]
    moving: bool
    start: int = UNKNOWN
    end: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class Seen:
    """A cluster at one time, in ms since 1970."""

    at_ms: int
    cluster_id: str
    brokers: Sequence[SeenBroker]
    partitions: Sequence[SeenPartition]


class Rebalance(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[rebalance]`: capacities, what is to be left, what stays, and how even is even enough.

    Sizes are bytes, or texts as "500 GiB". Without `capacity` and `capacities` brokers' own word of
    their volumes counts. `max_use` is the part of a capacity that may be used at any time. `drain`:
    brokers to be left; `added`: if named, only these receive replicas. `exclude_topics`: names, or
    patterns with *. `dead`: whether brokers that are down are left by all replicas.
    """

    capacity: int | str | None = None
    capacities: dict[str, int | str] = {}
    rate_capacity: int | str | None = None
    rate_capacities: dict[str, int | str] = {}
    max_use: float = 0.8
    max_replicas: int | None = None
    max_bytes: int | str | None = None
    drain: list[int] = []
    added: list[int] = []
    exclude_topics: list[str] = []
    dead: Literal["drain", "refuse"] = "drain"
    racks: bool = True
    band: float = 0.05
    topic_band: float = 0.5
    throttle: int | str | None = None
    sample_seconds: float = 0
    samples: str | None = None
    rate_quantile: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.max_use <= 1:
            raise ValueError("max_use must be above 0 and at most 1")
        if not 0 <= self.band < 1 or self.topic_band < 0:
            raise ValueError("band must be from 0 to below 1, topic_band 0 or more")
        if not 0 <= self.sample_seconds <= 3600 or not 0 <= self.rate_quantile <= 1:
            raise ValueError("sample_seconds must be 0 to 3600, rate_quantile 0 to 1")
        if self.max_replicas is not None and self.max_replicas < 1:
            raise ValueError("max_replicas must be at least 1")
        for text in (self.capacity, self.rate_capacity, self.max_bytes, self.throttle):
            if text is not None:
                parse_size(text)
        for table in (self.capacities, self.rate_capacities):
            for broker, text in table.items():
                if not broker.isdigit():
                    raise ValueError(f"{broker!r} is no broker id")
                parse_size(text)

    def goals(self) -> Goals:
        return Goals(
            band=self.band,
            topic_band=self.topic_band,
            max_replicas=self.max_replicas,
            max_bytes=None if self.max_bytes is None else parse_size(self.max_bytes),
            racks=self.racks,
        )


def parse_size(text: int | str) -> int:
    """Parse a number of bytes: 1048576, "500 GB" (1000s) or "500 GiB" (1024s); ValueError."""
    if isinstance(text, int):
        if text < 0:
            raise ValueError(f"{text} is no size")
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"{text!r} is no size; write bytes, or as 500 GiB")
    return int(float(found[1]) * _UNITS[found[2]])


def problem_of(
    seen: Seen, settings: Rebalance, rates: Mapping[TopicPartition, float] | None = None
) -> Problem:
    """Return the problem; ConfigError for what is missing, unknown, or must not be begun now."""
    moving = [p.tp for p in seen.partitions if p.moving]
    if moving:
        raise ConfigError(
            f"{moving[0]} is being reassigned (and {len(moving) - 1} more): wait until `ottla "
            "reassign list` has none, or cancel it"
        )
    alive = {b.id: b for b in seen.brokers}
    named = {b for p in seen.partitions for b in p.replicas}
    dead = sorted(named - set(alive))
    _check_names(settings, alive, named, {p.tp.topic for p in seen.partitions})
    if dead and settings.dead == "refuse":
        raise ConfigError(
            f'broker {dead[0]} is down; start it, or set rebalance.dead = "drain" to have its '
            "replicas made anew elsewhere"
        )
    stay = set(alive) - set(settings.drain)
    with_rack = [b for b in stay if alive[b].rack is not None]
    if settings.racks and 0 < len(with_rack) < len(stay):
        without = min(stay - set(with_rack))
        raise ConfigError(
            f"broker {without} has no rack while others have one; give all of them a broker.rack, "
            "or set rebalance.racks = false"
        )
    brokers = [_broker(b, settings) for b in seen.brokers] + [
        Broker(b, None, 0, 0, receives=False, leaves=True, alive=False) for b in dead
    ]
    rates = rates or {}
    excluded = _matching(settings.exclude_topics)
    partitions = [
        Partition(
            p.tp,
            p.replicas,
            max(0, *p.sizes, 0),
            round(rates.get(p.tp, 0)),
            p.leader,
            frozenset(b for b in p.offline if b in alive),
            movable=not excluded(p.tp.topic),
        )
        for p in seen.partitions
    ]
    return Problem(brokers, partitions, settings.goals())


def _matching(patterns: Sequence[str]) -> Callable[[str], bool]:
    found: dict[str, bool] = {}

    def matches(topic: str) -> bool:
        if topic not in found:
            found[topic] = any(fnmatchcase(topic, pattern) for pattern in patterns)
        return found[topic]

    return matches


def _check_names(
    settings: Rebalance, alive: Mapping[int, SeenBroker], named: set[int], topics: set[str]
) -> None:
    tables = (
        ("drain", settings.drain, set(alive) | named),
        ("added", settings.added, set(alive)),
        ("capacities", [int(b) for b in settings.capacities], set(alive) | named),
        ("rate_capacities", [int(b) for b in settings.rate_capacities], set(alive) | named),
    )
    for key, ids, known in tables:
        for broker in ids:
            if broker not in known:
                raise ConfigError(
                    f"[rebalance]: {key} names broker {broker}, which is not there; alive are "
                    f"{', '.join(map(str, sorted(alive))) or 'none'}"
                )
    both = set(settings.drain) & set(settings.added)
    if both:
        raise ConfigError(f"[rebalance]: broker {min(both)} is in drain and in added")
    for pattern in settings.exclude_topics:
        if not any(fnmatchcase(topic, pattern) for topic in topics):
            raise ConfigError(
                f"[rebalance]: exclude_topics names {pattern}, and there is no such topic"
            )


def _broker(seen: SeenBroker, settings: Rebalance) -> Broker:
    drained = seen.id in settings.drain
    capacity, weight = _capacity(seen, settings)
    rate = settings.rate_capacities.get(str(seen.id), settings.rate_capacity)
    return Broker(
        seen.id,
        seen.rack,
        capacity,
        weight,
        None if rate is None else parse_size(rate),
        seen.other,
        receives=not drained and (not settings.added or seen.id in settings.added),
        leaves=drained,
    )


def _capacity(seen: SeenBroker, settings: Rebalance) -> tuple[int, int]:
    """Return the bytes that a broker's log dirs may take at any time, and its weight."""
    given = settings.capacities.get(str(seen.id), settings.capacity)
    if given is not None:
        bytes_ = int(parse_size(given) * settings.max_use)
        return bytes_, bytes_
    if settings.capacities:
        raise ConfigError(
            f"[rebalance]: capacities says nothing of broker {seen.id}; add it, or set "
            "rebalance.capacity for all others"
        )
    if seen.total < 0 or seen.usable < 0:
        raise ConfigError(
            f"broker {seen.id} does not tell how large its volumes are (Kafka does from 3.3 on); "
            "set rebalance.capacity, or it in rebalance.capacities"
        )
    kept_free = round((1 - settings.max_use) * seen.total)
    return max(0, seen.logs + seen.usable - kept_free), seen.total


def rate_between(before: Seen, after: Seen) -> dict[TopicPartition, float]:
    """Return bytes per second written to each partition between two looks at the same cluster.

    Records that came, by the mean size of those that the log holds: retention does not disturb it.
    """
    seconds = (after.at_ms - before.at_ms) / 1000
    first = {(p.tp, p.topic_id): p.end for p in before.partitions}
    found = {}
    for p in after.partitions:
        end = first.get((p.tp, p.topic_id), UNKNOWN)
        if seconds > 0 and end >= 0 and p.end >= end and p.end > p.start >= 0:
            found[p.tp] = (p.end - end) * max(p.sizes) / (p.end - p.start) / seconds
    return found
