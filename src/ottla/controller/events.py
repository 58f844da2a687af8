"""Events: everything the controller reacts to, in the past tense.

A decider's vocabulary. Invariants: an event from a watch carries no facts (they are read when it is
handled); an event from a client or a broker carries the request and where the response goes; each
gets its cause id when it is queued and is handled with it. Kafka: `ControllerEvent`.
"""

from typing import Any

import msgspec

from ottla.model.cluster import Endpoint
from ottla.model.ids import TopicPartition


class Event(msgspec.Struct, frozen=True):
    """Something happened; see the module."""


class SessionBegan(Event, frozen=True):
    """This broker is registered in a new ZooKeeper session: take part in elections."""


class ControllerChanged(Event, frozen=True):
    """/controller was created, changed or deleted."""


class BrokersChanged(Event, frozen=True):
    """The children of /brokers/ids changed."""


class ProcessGone(Event, frozen=True):
    """All endpoints of a broker's registration refuse connections; `evidence` says so in words."""

    broker: int
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]
    evidence: str


class BrokerModified(Event, frozen=True):
    """A registration's data changed: new endpoints."""

    broker: int


class TopicsChanged(Event, frozen=True):
    """The children of /brokers/topics changed."""


class PartitionsModified(Event, frozen=True):
    """A topic's znode changed: perhaps it has more partitions."""

    topic: str


class TopicDeletionsRequested(Event, frozen=True):
    """The children of /admin/delete_topics changed."""


class IsrChangesNotified(Event, frozen=True):
    """A leader of an old version wrote an ISR by itself and says so."""


class LogDirsFailed(Event, frozen=True):
    """A broker says that a log directory of its own failed."""


class PreferredElectionRequested(Event, frozen=True):
    """/admin/preferred_replica_election was created."""


class ReassignmentRequested(Event, frozen=True):
    """/admin/reassign_partitions was created or changed."""


class LeaderBalanceDue(Event, frozen=True):
    """A timer is due: check whether leadership is spread as assigned."""


class UncleanElectionEnabled(Event, frozen=True):
    """A topic's configuration, or the default (None), now allows unclean elections."""

    topic: str | None


class FullResyncDue(Event, frozen=True):
    """A broker that lost requests responds again: send it everything again."""

    broker: int


class JournalRotated(Event, frozen=True):
    """The journal goes on in a new file, which is to begin with a snapshot."""


class LeaderAndIsrResponseReceived(Event, frozen=True):
    """A broker answered a LeaderAndIsr."""

    broker: int
    response: Any


class UpdateMetadataResponseReceived(Event, frozen=True):
    """A broker answered an UpdateMetadata."""

    broker: int
    response: Any


class StopReplicaResponseReceived(Event, frozen=True):
    """A broker answered a StopReplica; `deletes` are the replicas it was to delete."""

    broker: int
    response: Any
    deletes: frozenset[TopicPartition]


class RequestReceived(Event, frozen=True):
    """A request came in; its handler's result, or error, is set on `result`."""

    request: Any
    result: Any

    def answer(self, response: Any) -> None:
        """Give the response, unless the session's end has given one."""
        if not self.result.done():
            self.result.set_result(response)


class AlterPartitionReceived(RequestReceived, frozen=True):
    """A leader proposes ISRs (AlterPartition)."""


class AllocateProducerIdsReceived(RequestReceived, frozen=True):
    """A broker requests a block of producer ids (AllocateProducerIds)."""


class ControlledShutdownReceived(RequestReceived, frozen=True):
    """A broker that shuts down requests that others lead (ControlledShutdown)."""


class ElectLeadersReceived(RequestReceived, frozen=True):
    """Elections are requested (ElectLeaders): (kind, partitions or None for all)."""


class AlterReassignmentsReceived(RequestReceived, frozen=True):
    """Reassignments are requested: partition -> target replicas, None to cancel."""


class ListReassignmentsReceived(RequestReceived, frozen=True):
    """What is being reassigned is requested: partitions, or None for all."""
