"""Placement: which brokers get a new partition's replicas.

A decider. Invariants: replicas of one partition are distinct; leaders go round the brokers,
followers are shifted further on each round; with racks no rack gets a second replica before every
rack has one. Chance comes in as an argument. Kafka: `AdminUtils.assignReplicasToBrokers` (KIP-36)
and `AdminZkClient.createNewPartitionsAssignment`.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from ottla.model.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    OttlaError,
)


class BrokerRack(NamedTuple):
    """A broker that may take replicas, and where it stands."""

    id: int
    rack: str | None = None


class Chance(Protocol):
    """Where the first replica lands; `random.Random` is one."""

    def randrange(self, stop: int, /) -> int: ...


class PlacementError(OttlaError):
    """The brokers' racks contradict each other."""


def assign_replicas(
    brokers: Iterable[BrokerRack],
    partitions: int,
    replication_factor: int,
    *,
    start: int | None = None,
    shift: int | None = None,
    first_partition: int = 0,
    random: Chance | None = None,
) -> dict[int, tuple[int, ...]]:
    """Return replicas for partitions `first_partition` onward, the leader-to-be first.

    `start` is the index of the first leader, `shift` the first distance to its followers; where
    one is None it is drawn from `random`.
    """
    by_id = sorted(brokers)
    if partitions <= 0:
        raise InvalidPartitionsError("Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise InvalidReplicationFactorError("Replication factor must be larger than 0.")
    if replication_factor > len(by_id):
        raise InvalidReplicationFactorError(
            f"Replication factor: {replication_factor} larger than available brokers: {len(by_id)}."
        )
    racks = {b.id: b.rack for b in by_id if b.rack is not None}
    if racks and len(racks) != len(by_id):
        raise PlacementError(
            "Not all brokers have rack information for replica rack aware assignment."
        )
    order = alternate_racks(racks) if racks else [b.id for b in by_id]
    if start is None:
        start = _draw(random, len(order))
    if shift is None:
        shift = _draw(random, len(order))
    result = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        first = (partition + start) % len(order)
        if racks:
            result[partition] = _spread(order, racks, first, shift, replication_factor)
        else:
            followers = (_follower(order, first, shift, j) for j in range(replication_factor - 1))
            result[partition] = (order[first], *followers)
    return result


def assign_added(
    brokers: Iterable[BrokerRack],
    existing: Mapping[int, tuple[int, ...]],
    added: int,
    *,
    random: Chance | None = None,
) -> dict[int, tuple[int, ...]]:
    """Return replicas for `added` more partitions, going on from where partition 0 began."""
    by_id = sorted(brokers)
    first_replicas = existing[0]
    start = next((i for i, b in enumerate(by_id) if b.id >= first_replicas[0]), 0)
    return assign_replicas(
        by_id,
        added,
        len(first_replicas),
        start=start,
        shift=start,
        first_partition=len(existing),
        random=random,
    )


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers so that neighbours stand in different racks while that is possible."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    names = sorted(by_rack)
    longest = max(len(members) for members in by_rack.values())
    return [by_rack[n][i] for i in range(longest) for n in names if i < len(by_rack[n])]


def _draw(random: Chance | None, stop: int) -> int:
    assert random is not None, "start and shift are given, or chance is"
    return random.randrange(stop)


def _follower(order: list[int], first: int, shift: int, j: int) -> int:
    if len(order) == 1:
        return order[0]
    return order[(first + 1 + (shift + j) % (len(order) - 1)) % len(order)]


def _spread(
    order: list[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(set(racks.values()))
    chosen = [order[first]]
    used = {racks[chosen[0]]}
    step = 0
    while len(chosen) < replication_factor:
        broker = _follower(order, first, shift * rack_count, step)
        step += 1
        rack_is_new = racks[broker] not in used or len(used) == rack_count
        if rack_is_new and broker not in chosen:
            chosen.append(broker)
            used.add(racks[broker])
    return tuple(chosen)
