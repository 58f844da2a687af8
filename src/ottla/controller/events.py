"""Events: everything the controller reacts to, in the past tense.

A decider's vocabulary. Who may call: `loop` queues them, one handler each. Invariants: an event
from a watch carries no facts (they are read when it is handled); an event from a client or a
broker carries the request and where the response goes; each gets its cause id when it is queued and
is handled with it.
Kafka: `ControllerEvent`.
"""

from dataclasses import dataclass
from typing import Any

from ottla.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened; see the module."""


@dataclass(frozen=True, slots=True)
class SessionBegan(Event):
    """This broker is registered in a new ZooKeeper session: take part in elections."""


@dataclass(frozen=True, slots=True)
class ControllerChanged(Event):
    """/controller was created, changed or deleted."""


@dataclass(frozen=True, slots=True)
class BrokersChanged(Event):
    """The children of /brokers/ids changed."""


@dataclass(frozen=True, slots=True)
class ProcessGone(Event):
    """All endpoints of a broker's registration refuse connections; `evidence` says which."""

    broker: int
    broker_epoch: int
    evidence: str


@dataclass(frozen=True, slots=True)
class BrokerModified(Event):
    """A registration's data changed: new endpoints."""

    broker: int


@dataclass(frozen=True, slots=True)
class TopicsChanged(Event):
    """The children of /brokers/topics changed."""


@dataclass(frozen=True, slots=True)
class PartitionsModified(Event):
    """A topic's znode changed: perhaps it has more partitions."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletionsRequested(Event):
    """The children of /admin/delete_topics changed."""


@dataclass(frozen=True, slots=True)
class IsrChangesNotified(Event):
    """A leader of an old version wrote an ISR by itself and says so."""


@dataclass(frozen=True, slots=True)
class LogDirsFailed(Event):
    """A broker says that a log directory of its own failed."""


@dataclass(frozen=True, slots=True)
class PreferredElectionRequested(Event):
    """/admin/preferred_replica_election was created."""


@dataclass(frozen=True, slots=True)
class ReassignmentRequested(Event):
    """/admin/reassign_partitions was created or changed."""


@dataclass(frozen=True, slots=True)
class LeaderBalanceDue(Event):
    """A timer is due: check whether leadership is spread as assigned."""


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled(Event):
    """A topic's configuration, or the default (None), now allows unclean elections."""

    topic: str | None


@dataclass(frozen=True, slots=True)
class FullResyncDue(Event):
    """A broker that lost requests responds again: send it everything anew."""

    broker: int


@dataclass(frozen=True, slots=True)
class JournalRotated(Event):
    """The journal goes on in a new file, which is to begin with a snapshot."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponseReceived(Event):
    """A broker answered a LeaderAndIsr."""

    broker: int
    response: Any


@dataclass(frozen=True, slots=True)
class UpdateMetadataResponseReceived(Event):
    """A broker answered an UpdateMetadata."""

    broker: int
    response: Any


@dataclass(frozen=True, slots=True)
class StopReplicaResponseReceived(Event):
    """A broker answered a StopReplica; `deletes` are the replicas it was to delete."""

    broker: int
    response: Any
    deletes: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class RequestReceived(Event):
    """A request came in; its handler's result, or error, is set on `result`."""

    request: Any
    result: Any


@dataclass(frozen=True, slots=True)
class AlterPartitionReceived(RequestReceived):
    """A leader proposes ISRs (AlterPartition)."""


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsReceived(RequestReceived):
    """A broker requests a block of producer ids (AllocateProducerIds)."""


@dataclass(frozen=True, slots=True)
class ControlledShutdownReceived(RequestReceived):
    """A broker that shuts down requests that others lead (ControlledShutdown)."""


@dataclass(frozen=True, slots=True)
class ElectLeadersReceived(RequestReceived):
    """Elections are requested (ElectLeaders): (kind, partitions or None for all)."""


@dataclass(frozen=True, slots=True)
class AlterReassignmentsReceived(RequestReceived):
    """Reassignments are requested: partition -> target replicas, None to cancel."""


@dataclass(frozen=True, slots=True)
class ListReassignmentsReceived(RequestReceived):
    """What is being reassigned is requested: partitions, or None for all."""
