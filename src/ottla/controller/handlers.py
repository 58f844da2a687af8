"""Handlers: which procedure an event is handled by.

Invariants: an event from a watch is handled by what is read now, and the watch is left again by the
same read; what is read and written, and in which order, is the procedures' (`brokers`, `topics`,
`deletion`, `reassignment`, `requested_elections`, `requests`, `failover`). Only the responses of
brokers are taken apart here: most of them hold no news. Kafka: the `process*` methods of
`KafkaController`.
"""

import contextlib
import logging
from collections.abc import Collection, Iterator
from typing import Any

from ottla.controller import (
    brokers,
    deletion,
    failover,
    reassignment,
    requested_elections,
    requests,
    snapshot,
    topics,
)
from ottla.controller import events as happened
from ottla.controller.cluster_state import ClusterState
from ottla.controller.eligibility import Eligibility
from ottla.controller.events import Event
from ottla.controller.outbox import Outbox
from ottla.controller.state_changes import StateChanges
from ottla.controller.term import ControllerTerm
from ottla.model.errors import ControllerMovedError, ErrorCode
from ottla.model.ids import TopicPartition

logger = logging.getLogger(__name__)

RESYNC_DELAY_S = 30.0
"""Until a broker that failed at a request gets a full resync."""
FIRST_BALANCE_DELAY_S = 5.0


class Handlers:
    """What one term handles events with."""

    def __init__(self, term: ControllerTerm) -> None:
        self.cluster = ClusterState(term)
        self.outbox = Outbox(term)
        self._term = term
        self._eligibility = Eligibility(
            term.context, self.cluster, enabled=term.settings.eligible_replicas
        )

    async def handle(self, cause: int, event: Event) -> Any:
        """Handle one event; `cause` is its id. Return the response of a request."""
        with self._changes(cause) as changes:
            return await _handle(self._term, changes, event)

    async def on_controller_failover(self, cause: int) -> None:
        """Take over the cluster. A failure anywhere is the caller's to handle."""
        with self._changes(cause) as changes:
            await failover.on_controller_failover(changes)
        if self._term.config.flag("auto.leader.rebalance.enable"):
            self._term.start_timer(FIRST_BALANCE_DELAY_S, happened.LeaderBalanceDue())

    @contextlib.contextmanager
    def _changes(self, cause: int) -> Iterator[StateChanges]:
        """Begin an event: all that is recorded has its id, also what was done before a failure."""
        term = self._term
        term.journal.cause = cause
        changes = StateChanges(
            term.context, term.settings, self.cluster, self.outbox, self._eligibility, cause
        )
        try:
            yield changes
        except Exception:
            changes.record_at_once()
            raise


async def _handle(term: ControllerTerm, changes: StateChanges, event: Event) -> Any:
    match event:
        case happened.BrokersChanged():
            await brokers.on_brokers_changed(changes)
        case happened.ProcessGone() as gone:
            await brokers.on_process_gone(changes, gone)
        case happened.BrokerModified(broker):
            await brokers.on_broker_modified(changes, broker)
        case happened.TopicsChanged():
            await topics.on_topics_changed(changes)
        case happened.PartitionsModified(topic):
            await topics.on_partitions_modified(changes, topic)
        case happened.LeaderAndIsrResponseReceived(broker, response):
            await leader_and_isr_response(term, changes, broker, response)
        case happened.UpdateMetadataResponseReceived(broker, response):
            update_metadata_response(term, broker, response)
        case happened.StopReplicaResponseReceived(broker, response, deletes):
            await stop_replica_response(changes, broker, response, deletes)
        case happened.AlterPartitionReceived(request) as received:
            await requests.alter_partition(changes, request, received.answer)
        case happened.AllocateProducerIdsReceived(request):
            return await requests.allocate_producer_ids(changes, request)
        case happened.ControlledShutdownReceived(request):
            return await requests.controlled_shutdown(changes, request)
        case happened.IsrChangesNotified():
            await requests.on_isr_changes(changes)
        case happened.LogDirsFailed():
            await brokers.on_log_dirs_failed(changes)
        case happened.TopicDeletionsRequested():
            await deletion.on_requests(changes)
        case happened.ReassignmentRequested():
            await reassignment.on_znode_changed(changes)
        case happened.AlterReassignmentsReceived(wanted):
            return await reassignment.on_request(changes, wanted)
        case happened.ListReassignmentsReceived(partitions):
            return reassignment.list_reassignments(term.context, partitions)
        case happened.PreferredElectionRequested():
            await requested_elections.on_znode(changes)
        case happened.ElectLeadersReceived((kind, partitions)):
            return await requested_elections.on_request(changes, kind, partitions)
        case happened.LeaderBalanceDue():
            await _leader_balance_due(term, changes)
        case happened.UncleanElectionEnabled(topic_or_all):
            await brokers.on_unclean_elections_enabled(changes, topic_or_all)
        case happened.FullResyncDue(broker):
            term.resync_scheduled.discard(broker)
            if broker in term.context.brokers:
                await brokers.full_resync(changes, broker)
        case happened.JournalRotated():
            await snapshot.take(changes, snapshot.ROTATED)
        case _:
            logger.warning("event without a handler event=%s", type(event).__name__)
    return None


# --- responses of brokers -------------------------------------------------------------------------


async def leader_and_isr_response(
    term: ControllerTerm, changes: StateChanges, broker: int, response: Any
) -> None:
    """Learn which replicas a broker could not host."""
    if response.error_code != ErrorCode.NONE:
        logger.error("LeaderAndIsr refused broker=%d error=%d", broker, response.error_code)
        raise_if_fenced(response.error_code, broker)
        _resync_if_failed(term, broker, response.error_code)
        return
    context = term.context
    before = context.offline_dirs.get(broker, set())
    after = set(before)
    failed = []
    for topic in response.topics:
        name = context.topic_names.get(bytes(topic.topic_id))
        if name is None:
            continue
        for partition in topic.partition_errors:
            if not before and partition.error_code == ErrorCode.NONE:
                continue  # as thousands of responses say
            tp = TopicPartition(name, partition.partition_index)
            if partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                after.add(tp)
                if tp not in before:
                    failed.append(tp)
            elif partition.error_code == ErrorCode.NONE:
                after.discard(tp)
            else:
                _resync_if_failed(term, broker, partition.error_code)
    returned = sorted(before - after)
    if broker in context.brokers and (failed or returned):
        await brokers.on_replicas_hosted(changes, broker, failed, returned)


def update_metadata_response(term: ControllerTerm, broker: int, response: Any) -> None:
    if response.error_code != ErrorCode.NONE:
        logger.error("UpdateMetadata refused broker=%d error=%d", broker, response.error_code)
        raise_if_fenced(response.error_code, broker)
        _resync_if_failed(term, broker, response.error_code)


def _resync_if_failed(term: ControllerTerm, broker: int, error_code: int) -> None:
    """Schedule a full resync of a broker whose handler failed: it lacks what was sent."""
    if error_code == ErrorCode.UNKNOWN_SERVER_ERROR and broker not in term.resync_scheduled:
        term.resync_scheduled.add(broker)
        term.start_timer(RESYNC_DELAY_S, happened.FullResyncDue(broker))


def raise_if_fenced(error_code: int, broker: int) -> None:
    """Raise ControllerMovedError if a broker has seen a higher controller epoch than ours."""
    if error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
        raise ControllerMovedError(f"broker {broker} has seen a newer controller")


async def stop_replica_response(
    changes: StateChanges,
    broker: int,
    response: Any,
    deletes: Collection[TopicPartition],
) -> None:
    """Learn which replicas a broker deleted of those it was to delete."""
    raise_if_fenced(response.error_code, broker)
    if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
        # Meant for its earlier registration. Its bounce halts the deletion and its start resumes
        # it: if this response comes after both, a deletion it halted would stay halted.
        logger.info("deletion refused broker=%d reason=stale broker epoch", broker)
        return
    errors = {
        TopicPartition(e.topic_name, e.partition_index): e.error_code
        for e in response.partition_errors
    }
    if response.error_code != ErrorCode.NONE:
        # A refused request names no partitions: everything it was to do failed.
        errors = dict.fromkeys(deletes, response.error_code)
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    deleted = [tp for tp in sorted(deletes) if errors.get(tp, unknown) == ErrorCode.NONE]
    failed = [tp for tp in sorted(deletes) if errors.get(tp, ErrorCode.NONE) != ErrorCode.NONE]
    await deletion.on_replicas_deleted(changes, broker, deleted, failed)


# --- timers ---------------------------------------------------------------------------------------


async def _leader_balance_due(term: ControllerTerm, changes: StateChanges) -> None:
    config = term.config
    try:
        limit = config.integer("leader.imbalance.per.broker.percentage") / 100
        await requested_elections.on_balance_due(changes, limit)
    finally:
        term.start_timer(
            config.integer("leader.imbalance.check.interval.seconds"), happened.LeaderBalanceDue()
        )
