"""Deletion: a topic's way out of the cluster, in five steps.

A decider. The steps: 1. a name appears under /admin/delete_topics and the topic is queued; 2. its
partitions go Offline, then NonExistent, and every broker is sent -2 as their leader; 3. its live
replicas go Offline (StopReplica without deletion) and ReplicaDeletionStarted (StopReplica with
deletion, leader epoch -2), dead ones wait as ReplicaDeletionIneligible; 4. responses move replicas
to ReplicaDeletionSuccessful or back to Ineligible; 5. when all are successful the znodes of topic,
configuration and request are deleted and the context forgets the topic. Invariants: a topic with a
dead replica or a running reassignment waits (R15); only the last step touches ZooKeeper, so that a
new controller starts over from the request. Kafka: `TopicDeletionManager`.
"""

import logging
from collections.abc import Collection, Iterable, Sequence

from ottla.controller.state_changes import StateChanges
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.model import journal_schema as journaled
from ottla.model.ids import TopicPartition

logger = logging.getLogger(__name__)


# --- step 1 -------------------------------------------------------------------------------------


async def on_controller_failover(changes: StateChanges) -> None:
    """Take over what is requested, without acting on it yet."""
    context = changes.context
    requested = await changes.cluster.read_topic_deletions()
    if requested and not changes.settings.delete_topics:
        await changes.cluster.delete_topic_deletions(requested)
        return
    if requested:
        changes.outbox.record(journaled.TopicDeletionsRequested(topics=list(requested)))
    reassigning = {tp.topic for tp in context.reassigning}
    for topic in requested:
        context.deleting[topic] = None
        offline = [
            r for r in context.replicas_of_topic(topic) if not context.is_online(r.broker, r[0])
        ]
        if offline or topic in reassigning:
            context.deletion_ineligible.add(topic)


async def on_requests(changes: StateChanges) -> None:
    """Queue the topics whose deletion is requested."""
    context = changes.context
    requested = await changes.cluster.read_topic_deletions()
    changes.outbox.record(journaled.TopicDeletionsRequested(topics=list(requested)))
    unknown = [topic for topic in requested if topic not in context.assignments]
    if unknown:
        logger.warning("deletion of unknown topics ignored topics=%s", unknown)
        await changes.cluster.delete_topic_deletions(unknown)
    known = [topic for topic in requested if topic in context.assignments]
    if not known:
        return
    if not changes.settings.delete_topics:
        logger.info("deletions removed topics=%s reason=topic deletion is disabled", known)
        await changes.cluster.delete_topic_deletions(known)
        return
    being_reassigned = {tp.topic for tp in context.reassigning}
    for topic in known:
        if topic not in context.deleting:
            logger.info("deletion queued topic=%s", topic)
        context.deleting[topic] = None
    halted = being_reassigned.intersection(known)
    make_ineligible(changes, halted, "topic reassignment in progress")
    await proceed(changes)


# --- the procedure ------------------------------------------------------------------------------


async def proceed(changes: StateChanges) -> None:
    """Take every queued deletion as far as it goes."""
    if not changes.settings.delete_topics:
        return
    context = changes.context
    reassigning = {tp.topic for tp in context.reassigning} - context.deletion_ineligible
    make_ineligible(changes, reassigning, "topic reassignment in progress")
    retry: list[str] = []
    start: list[str] = []
    for topic in list(context.deleting):
        started = context.replicas_in(topic, ReplicaState.DELETION_STARTED)
        deleted = context.replicas_in(topic, ReplicaState.DELETION_SUCCESSFUL)
        if len(deleted) == len(context.replicas_of_topic(topic)):
            await _complete(changes, topic, deleted)
            continue
        if not started and context.replicas_in(topic, ReplicaState.DELETION_INELIGIBLE):
            retry.append(topic)
        if not started and topic not in context.deletion_ineligible:
            start.append(topic)
    for topic in retry:
        waiting = context.replicas_in(topic, ReplicaState.DELETION_INELIGIBLE)
        await changes.replicas(waiting, ReplicaState.OFFLINE)
    if start:
        await _remove_partitions(changes, start)
        await _remove_replicas(changes, start)


async def _remove_partitions(changes: StateChanges, topics: Sequence[str]) -> None:
    """Step 2: the partitions go, and every broker is sent that they do."""
    context = changes.context
    fresh = [topic for topic in topics if topic not in context.deletion_started]
    partitions = [tp for topic in fresh for tp in context.partitions_of(topic)]
    await changes.partitions(partitions, PartitionState.OFFLINE)
    await changes.partitions(partitions, PartitionState.NON_EXISTENT)
    context.deletion_started.update(fresh)
    everywhere = [tp for topic in topics for tp in context.partitions_of(topic)]
    await changes.metadata(context.live_or_shutting_down, everywhere)


async def _remove_replicas(changes: StateChanges, topics: Sequence[str]) -> None:
    """Step 3: live replicas are stopped and deleted, dead ones wait."""
    context, states = changes.context, changes.context.replica_states
    dead: list[PartitionReplica] = []
    alive: list[PartitionReplica] = []
    for topic in topics:
        for replica in context.replicas_of_topic(topic):
            if not context.is_online(replica.broker, replica.partition):
                dead.append(replica)
            elif states[replica] is not ReplicaState.DELETION_SUCCESSFUL:
                alive.append(replica)
    waiting = [r for r in dead if states.may(r, ReplicaState.DELETION_INELIGIBLE)]
    await changes.replicas(waiting, ReplicaState.DELETION_INELIGIBLE)
    await changes.replicas(alive, ReplicaState.OFFLINE)
    await changes.replicas(alive, ReplicaState.DELETION_STARTED)
    halted = {replica.partition.topic for replica in dead}
    make_ineligible(changes, halted, "offline replicas")


async def on_replicas_deleted(
    changes: StateChanges,
    broker: int,
    deleted: Sequence[TopicPartition],
    failed: Sequence[TopicPartition],
) -> None:
    """Step 4: a broker answered which replicas it deleted, and which it could not delete."""
    context = changes.context
    going = context.deletion_started
    not_deleted = [PartitionReplica(tp, broker) for tp in failed if tp.topic in going]
    done = [PartitionReplica(tp, broker) for tp in deleted if tp.topic in going]
    if not_deleted or done:
        names = [str(r.partition) for r in done], [str(r.partition) for r in not_deleted]
        changes.outbox.record(
            journaled.StopReplicaResponse(broker=broker, deleted=names[0], failed=names[1])
        )
    if not_deleted:
        logger.warning("deletion failed broker=%d replicas=%d", broker, len(not_deleted))
        partitions = [str(r.partition) for r in not_deleted]
        changes.outbox.record(journaled.ReplicaDeletionFailed(broker=broker, partitions=partitions))
        await on_deletion_failed(changes, not_deleted)
    if done:
        started = context.replica_states.among(done, ReplicaState.DELETION_STARTED)
        await changes.replicas(started, ReplicaState.DELETION_SUCCESSFUL)
        await proceed(changes)


async def _complete(changes: StateChanges, topic: str, deleted: Sequence[PartitionReplica]) -> None:
    """Step 5: nothing of the topic is left but its znodes."""
    await changes.replicas(deleted, ReplicaState.NON_EXISTENT)
    await changes.cluster.delete_topic_znode(topic)
    await changes.cluster.delete_topic_config(topic)
    await changes.cluster.delete_topic_deletions([topic])
    await changes.eligibility.delete_topic(topic)
    changes.context.remove_topic(topic)
    changes.outbox.record(journaled.TopicDeleted(topic=topic))
    logger.info("deleted topic=%s", topic)


# --- what halts and resumes it ------------------------------------------------------------------


def make_ineligible(changes: StateChanges, topics: Iterable[str], reason: str) -> None:
    """Halt the deletion of topics for the time being."""
    halted = [topic for topic in sorted(topics) if topic in changes.context.deleting]
    for topic in halted:
        logger.info("deletion halted topic=%s reason=%s", topic, reason)
        changes.context.deletion_ineligible.add(topic)
    if halted:
        changes.outbox.record(journaled.DeletionHalted(topics=halted, reason=reason))


async def resume(changes: StateChanges, topics: Collection[str]) -> None:
    """Something that halted these deletions may be over: try again."""
    halted = [topic for topic in sorted(topics) if topic in changes.context.deleting]
    if halted:
        changes.context.deletion_ineligible.difference_update(halted)
        await proceed(changes)


async def on_deletion_failed(changes: StateChanges, replicas: Sequence[PartitionReplica]) -> None:
    """Replicas could not be deleted: their topics wait."""
    context = changes.context
    going = [r for r in replicas if r.partition.topic in context.deleting]
    if not going or not changes.settings.delete_topics:
        return
    may = context.replica_states.may
    await changes.replicas(
        [r for r in going if may(r, ReplicaState.DELETION_INELIGIBLE)],
        ReplicaState.DELETION_INELIGIBLE,
    )
    topics = {r.partition.topic for r in going}
    make_ineligible(changes, topics, "replica deletion failure")
    await proceed(changes)
