"""Deletion: a topic's way out of the cluster, in five steps.

Who may call: `loop`, `brokers`, `reassignment`, `failover`. The steps: (1) a name appears under
/admin/delete_topics and the topic is queued; (2) its partitions go Offline, then NonExistent, and
every broker is told that its leader is -2; (3) its live replicas go Offline (StopReplica without
deletion) and ReplicaDeletionStarted (StopReplica with deletion, leader epoch -2), dead ones wait
as ReplicaDeletionIneligible; (4) answers move replicas to ReplicaDeletionSuccessful or back to
Ineligible; (5) when all are successful the znodes of topic, configuration and request are deleted
and the context forgets the topic. Invariants: a topic with a dead replica or a running
reassignment waits (R15); only the last step touches ZooKeeper, so that a new controller starts
over from the request. Kafka: `TopicDeletionManager`.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from ottla.controller.events import TopicDeletionsRequested
from ottla.controller.reign import Reign
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

logger = logging.getLogger(__name__)


def enabled(reign: Reign) -> bool:
    return reign.config.flag("delete.topic.enable")


async def begin(reign: Reign) -> None:
    """At failover: take over what is asked for, without acting on it yet."""
    context = reign.context
    asked = await reign.store.get_topic_deletions(reign.watcher(TopicDeletionsRequested()))
    if asked and not enabled(reign):
        await reign.store.delete_topic_deletions(asked, reign.fence)
        return
    if asked:
        reign.journal.event(reign.cause, "TopicDeletionsRequested", {"topics": asked})
    reassigning = {tp.topic for tp in context.reassigning}
    for topic in asked:
        context.deleting[topic] = None
        offline = [
            r for r in context.replicas_of_topic(topic) if not context.is_online(r.broker, r[0])
        ]
        if offline or topic in reassigning:
            context.deletion_ineligible.add(topic)


async def requested(reign: Reign) -> None:
    """Step 1: queue the topics that are asked for."""
    store, context = reign.store, reign.context
    asked = await store.get_topic_deletions(reign.watcher(TopicDeletionsRequested()))
    reign.journal.event(reign.cause, "TopicDeletionsRequested", {"topics": asked})
    unknown = [topic for topic in asked if topic not in context.assignments]
    if unknown:
        logger.warning("deletion of unknown topics ignored topics=%s", unknown)
        await store.delete_topic_deletions(unknown, reign.fence)
    known = [topic for topic in asked if topic in context.assignments]
    if not known:
        return
    if not enabled(reign):
        logger.info("topic deletion is disabled: requests removed topics=%s", known)
        await store.delete_topic_deletions(known, reign.fence)
        return
    being_reassigned = {tp.topic for tp in context.reassigning}
    for topic in known:
        if topic not in context.deleting:
            logger.info("deletion queued topic=%s", topic)
        context.deleting[topic] = None
    make_ineligible(reign, being_reassigned.intersection(known), "topic reassignment in progress")
    await proceed(reign)


def make_ineligible(reign: Reign, topics: Iterable[str], reason: str) -> None:
    """Halt the deletion of topics for the time being."""
    halted = [topic for topic in sorted(topics) if topic in reign.context.deleting]
    for topic in halted:
        logger.info("deletion halted topic=%s reason=%s", topic, reason)
        reign.context.deletion_ineligible.add(topic)
    if halted:
        inputs = {"topics": halted, "reason": reason}
        reign.journal.event(reign.cause, "DeletionHalted", inputs)


async def resume(reign: Reign, topics: Iterable[str]) -> None:
    """Something that halted these deletions may be over: try again."""
    halted = [topic for topic in sorted(topics) if topic in reign.context.deleting]
    if halted:
        reign.context.deletion_ineligible.difference_update(halted)
        await proceed(reign)


async def fail(reign: Reign, replicas: Sequence[PartitionReplica]) -> None:
    """Replicas could not be deleted: their topics wait."""
    going = [r for r in replicas if r.partition.topic in reign.context.deleting]
    if not going or not enabled(reign):
        return
    may = reign.context.replica_states.may
    await reign.moves.replicas(
        [r for r in going if may(r, ReplicaState.DELETION_INELIGIBLE)],
        ReplicaState.DELETION_INELIGIBLE,
    )
    topics = {r.partition.topic for r in going}
    make_ineligible(reign, topics, "replica deletion failure")
    await proceed(reign)


async def replicas_stopped(
    reign: Reign, broker: int, response: Any, deletes: frozenset[TopicPartition]
) -> None:
    """Step 4: a broker answered which replicas it deleted."""
    if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
        # Meant for its earlier life. Its bounce halts the deletion and its start resumes it: if
        # this answer comes after both, a deletion it halted would stay halted.
        logger.info("deletion refused broker=%d: for an earlier life of it", broker)
        return
    context = reign.context
    errors = {
        TopicPartition(e.topic_name, e.partition_index): e.error_code
        for e in response.partition_errors
    }
    if response.error_code != ErrorCode.NONE:
        # A refused request names no partitions: everything it asked for failed.
        errors = dict.fromkeys(deletes, response.error_code)
    concerned = [tp for tp in sorted(deletes) if tp.topic in context.deletion_started]
    failed = [
        PartitionReplica(tp, broker)
        for tp in concerned
        if tp in errors and errors[tp] != ErrorCode.NONE
    ]
    done = [
        PartitionReplica(tp, broker)
        for tp in concerned
        if errors.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR) == ErrorCode.NONE
    ]
    if failed:
        logger.warning("deletion failed broker=%d replicas=%d", broker, len(failed))
        inputs = {"broker": broker, "partitions": [str(r.partition) for r in failed]}
        reign.journal.event(reign.cause, "ReplicaDeletionFailed", inputs)
        await fail(reign, failed)
    if done:
        started = context.replica_states.among(done, ReplicaState.DELETION_STARTED)
        await reign.moves.replicas(started, ReplicaState.DELETION_SUCCESSFUL)
        await proceed(reign)


async def proceed(reign: Reign) -> None:
    """Take every queued deletion as far as it goes."""
    if not enabled(reign):
        return
    context = reign.context
    retry: list[str] = []
    start: list[str] = []
    moving = {tp.topic for tp in context.reassigning} - context.deletion_ineligible
    make_ineligible(reign, moving, "topic reassignment in progress")
    for topic in list(context.deleting):
        replicas = context.replicas_of_topic(topic)
        started = context.replicas_in(topic, ReplicaState.DELETION_STARTED)
        done = context.replicas_in(topic, ReplicaState.DELETION_SUCCESSFUL)
        if len(done) == len(replicas):
            await _complete(reign, topic)
            continue
        if not started and context.replicas_in(topic, ReplicaState.DELETION_INELIGIBLE):
            retry.append(topic)
        if not started and topic not in context.deletion_ineligible:
            start.append(topic)
    for topic in retry:
        waiting = context.replicas_in(topic, ReplicaState.DELETION_INELIGIBLE)
        await reign.moves.replicas(waiting, ReplicaState.OFFLINE)
    if start:
        await _delete(reign, start)


async def _delete(reign: Reign, topics: Sequence[str]) -> None:
    """Do steps 2 and 3."""
    context, moves = reign.context, reign.moves
    fresh = [topic for topic in topics if topic not in context.deletion_started]
    partitions = [tp for topic in fresh for tp in context.partitions_of(topic)]
    await moves.partitions(partitions, PartitionState.OFFLINE)
    await moves.partitions(partitions, PartitionState.NON_EXISTENT)
    context.deletion_started.update(fresh)
    everywhere = [tp for topic in topics for tp in context.partitions_of(topic)]
    await moves.metadata(context.live_or_shutting_down, everywhere)
    dead: list[PartitionReplica] = []
    alive: list[PartitionReplica] = []
    halted = set()
    for topic in topics:
        for replica in context.replicas_of_topic(topic):
            if not context.is_online(replica.broker, replica.partition):
                dead.append(replica)
                halted.add(topic)
            elif context.replica_states[replica] is not ReplicaState.DELETION_SUCCESSFUL:
                alive.append(replica)
    await moves.replicas(
        [r for r in dead if context.replica_states.may(r, ReplicaState.DELETION_INELIGIBLE)],
        ReplicaState.DELETION_INELIGIBLE,
    )
    await moves.replicas(alive, ReplicaState.OFFLINE)
    await moves.replicas(alive, ReplicaState.DELETION_STARTED)
    make_ineligible(reign, halted, "offline replicas")


async def _complete(reign: Reign, topic: str) -> None:
    """Step 5: nothing of the topic is left but its znodes."""
    context, store = reign.context, reign.store
    done = context.replicas_in(topic, ReplicaState.DELETION_SUCCESSFUL)
    await reign.moves.replicas(done, ReplicaState.NON_EXISTENT)
    await store.delete_topic_znode(topic, reign.fence)
    await store.delete_topic_configs([topic], reign.fence)
    await store.delete_topic_deletions([topic], reign.fence)
    await reign.moves.eligibility.forget_topic(topic)
    context.remove_topic(topic)
    reign.journal.event(reign.cause, "TopicDeleted", {"topic": topic})
    logger.info("deleted topic=%s", topic)
