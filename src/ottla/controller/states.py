"""States of a partition and of a replica, one transition table each.

A decider. Kafka: `PartitionState` and `ReplicaState`.

A partition is `NonExistentPartition` until a topic names it, `NewPartition` while it has replicas
and no leader yet, `OnlinePartition` while a live broker leads it, `OfflinePartition` while its
leader is dead and none could be elected. A replica has states of its own: new, online, offline;
and when its topic is deleted through started to successful and out of the world, with
`ReplicaDeletionIneligible` for replicas that wait because their broker cannot respond.

A change not in the table is refused with the subject's history (see `model.transitions`).
"""

from enum import Enum
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.model.transitions import Machine, TransitionTable


class PartitionState(Enum):
    """Names as Kafka's state-change log writes them."""

    __hash__ = object.__hash__  # Enum's own is a call of Python, for every look at a table

    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"
    NON_EXISTENT = "NonExistentPartition"


class ReplicaState(Enum):
    """Names as Kafka's state-change log writes them."""

    __hash__ = object.__hash__

    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    NON_EXISTENT = "NonExistentReplica"


class PartitionReplica(NamedTuple):
    """One partition's copy on one broker."""

    partition: TopicPartition
    broker: int

    def __str__(self) -> str:
        return f"{self.partition} on {self.broker}"


PARTITION_TRANSITIONS: TransitionTable[PartitionState] = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset(
        {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}
    ),
    PartitionState.OFFLINE: frozenset(
        {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}
    ),
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
}

REPLICA_TRANSITIONS: TransitionTable[ReplicaState] = {
    ReplicaState.NEW: frozenset({ReplicaState.NON_EXISTENT}),
    ReplicaState.ONLINE: frozenset(
        {
            ReplicaState.NEW,
            ReplicaState.ONLINE,
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_INELIGIBLE,
        }
    ),
    ReplicaState.OFFLINE: frozenset(
        {
            ReplicaState.NEW,
            ReplicaState.ONLINE,
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_INELIGIBLE,
        }
    ),
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset(
        {ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}
    ),
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}


def partition_machine() -> Machine[TopicPartition, PartitionState]:
    return Machine(PARTITION_TRANSITIONS, PartitionState.NON_EXISTENT)


def replica_machine() -> Machine[PartitionReplica, ReplicaState]:
    return Machine(REPLICA_TRANSITIONS, ReplicaState.NON_EXISTENT)
