"""Readiness: whether this broker does its full part in the cluster, and if not, why.

Invariant: the work goes in time slices. Ready is a broker that is registered, whose ZooKeeper
session it has not lost (it is not fenced), and whose replicas all are online and in sync, as far as
the controller has reported.
"""

from collections.abc import Sequence
from typing import Protocol

from ottla.model.ports import World
from ottla.model.printable import plural
from ottla.model.time_slices import InTimeSlices
from ottla.replication.replica_manager import ReplicaManager

NAMED = 5
"""How many partitions a reason names."""


class KnownPartition(Protocol):
    """A partition as the controller reported it."""

    @property
    def isr(self) -> Sequence[int]: ...


class KnownCluster(Protocol):
    """What the controller reported: the metadata cache."""

    @property
    def ready(self) -> bool: ...

    def partition(self, topic: str, partition: int) -> KnownPartition | None: ...


class Registered(Protocol):
    """What readiness looks at."""

    world: World
    broker_id: int
    replicas: ReplicaManager

    @property
    def metadata(self) -> KnownCluster: ...

    @property
    def is_registered(self) -> bool: ...


async def why_not_ready(services: Registered) -> list[str]:
    """Return the reasons why a broker is not ready; none if it is."""
    if not services.replicas.may_propose:
        return ["it is fenced: its ZooKeeper session is lost"]
    if not services.is_registered:
        return ["it is not registered"]
    if not services.metadata.ready:
        return ["it was not sent the cluster's metadata yet"]
    reasons = []
    offline = [str(tp) for tp in services.replicas.offline]
    if offline:
        reasons.append(
            f"{plural(len(offline), 'replica is', 'replicas are')} offline: {_few(offline)}"
        )
    behind = []
    partitions = list(services.replicas.partitions)
    async for tp in InTimeSlices(partitions, services.world.clock):
        state = services.metadata.partition(*tp)
        if state is not None and services.broker_id not in state.isr:
            behind.append(str(tp))
    if behind:
        reasons.append(
            f"{plural(len(behind), 'replica is', 'replicas are')} not in sync: {_few(behind)}"
        )
    return reasons


def _few(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
