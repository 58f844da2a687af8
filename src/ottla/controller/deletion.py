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
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.controller.term import ControllerTerm
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

logger = logging.getLogger(__name__)


def enabled(term: ControllerTerm) -> bool:
    return term.config.flag("delete.topic.enable")


async def begin(term: ControllerTerm) -> None:
    """At failover: take over what is asked for, without acting on it yet."""
    context = term.context
    asked = await term.store.get_topic_deletions(term.watcher(TopicDeletionsRequested()))
    if asked and not enabled(term):
        await term.store.delete_topic_deletions(asked, term.fence)
        return
    if asked:
        term.journal.event(term.cause, "TopicDeletionsRequested", {"topics": asked})
    reassigning = {tp.topic for tp in context.reassigning}
    for topic in asked:
        context.deleting[topic] = None
        offline = [
            r for r in context.replicas_of_topic(topic) if not context.is_online(r.broker, r[0])
        ]
        if offline or topic in reassigning:
            context.deletion_ineligible.add(topic)


async def requested(term: ControllerTerm) -> None:
    """Step 1: queue the topics that are asked for."""
    store, context = term.store, term.context
    asked = await store.get_topic_deletions(term.watcher(TopicDeletionsRequested()))
    term.journal.event(term.cause, "TopicDeletionsRequested", {"topics": asked})
    unknown = [topic for topic in asked if topic not in context.assignments]
    if unknown:
        logger.warning("deletion of unknown topics ignored topics=%s", unknown)
        await store.delete_topic_deletions(unknown, term.fence)
    known = [topic for topic in asked if topic in context.assignments]
    if not known:
        return
    if not enabled(term):
        logger.info("topic deletion is disabled: requests removed topics=%s", known)
        await store.delete_topic_deletions(known, term.fence)
        return
    being_reassigned = {tp.topic for tp in context.reassigning}
    for topic in known:
        if topic not in context.deleting:
            logger.info("deletion queued topic=%s", topic)
        context.deleting[topic] = None
    make_ineligible(term, being_reassigned.intersection(known), "topic reassignment in progress")
    await proceed(term)


def make_ineligible(term: ControllerTerm, topics: Iterable[str], reason: str) -> None:
    """Halt the deletion of topics for the time being."""
    halted = [topic for topic in sorted(topics) if topic in term.context.deleting]
    for topic in halted:
        logger.info("deletion halted topic=%s reason=%s", topic, reason)
        term.context.deletion_ineligible.add(topic)
    if halted:
        inputs = {"topics": halted, "reason": reason}
        term.journal.event(term.cause, "DeletionHalted", inputs)


async def resume(term: ControllerTerm, topics: Iterable[str]) -> None:
    """Something that halted these deletions may be over: try again."""
    halted = [topic for topic in sorted(topics) if topic in term.context.deleting]
    if halted:
        term.context.deletion_ineligible.difference_update(halted)
        await proceed(term)


async def fail(term: ControllerTerm, replicas: Sequence[PartitionReplica]) -> None:
    """Replicas could not be deleted: their topics wait."""
    going = [r for r in replicas if r.partition.topic in term.context.deleting]
    if not going or not enabled(term):
        return
    may = term.context.replica_states.may
    await term.moves.replicas(
        [r for r in going if may(r, ReplicaState.DELETION_INELIGIBLE)],
        ReplicaState.DELETION_INELIGIBLE,
    )
    topics = {r.partition.topic for r in going}
    make_ineligible(term, topics, "replica deletion failure")
    await proceed(term)


async def replicas_stopped(
    term: ControllerTerm, broker: int, response: Any, deletes: frozenset[TopicPartition]
) -> None:
    """Step 4: a broker answered which replicas it deleted."""
    if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
        # Meant for its earlier life. Its bounce halts the deletion and its start resumes it: if
        # this answer comes after both, a deletion it halted would stay halted.
        logger.info("deletion refused broker=%d: for an earlier life of it", broker)
        return
    context = term.context
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
        term.journal.event(term.cause, "ReplicaDeletionFailed", inputs)
        await fail(term, failed)
    if done:
        started = context.replica_states.among(done, ReplicaState.DELETION_STARTED)
        await term.moves.replicas(started, ReplicaState.DELETION_SUCCESSFUL)
        await proceed(term)


async def proceed(term: ControllerTerm) -> None:
    """Take every queued deletion as far as it goes."""
    if not enabled(term):
        return
    context = term.context
    retry: list[str] = []
    start: list[str] = []
    moving = {tp.topic for tp in context.reassigning} - context.deletion_ineligible
    make_ineligible(term, moving, "topic reassignment in progress")
    for topic in list(context.deleting):
        replicas = context.replicas_of_topic(topic)
        started = context.replicas_in(topic, ReplicaState.DELETION_STARTED)
        done = context.replicas_in(topic, ReplicaState.DELETION_SUCCESSFUL)
        if len(done) == len(replicas):
            await _complete(term, topic)
            continue
        if not started and context.replicas_in(topic, ReplicaState.DELETION_INELIGIBLE):
            retry.append(topic)
        if not started and topic not in context.deletion_ineligible:
            start.append(topic)
    for topic in retry:
        waiting = context.replicas_in(topic, ReplicaState.DELETION_INELIGIBLE)
        await term.moves.replicas(waiting, ReplicaState.OFFLINE)
    if start:
        await _delete(term, start)


async def _delete(term: ControllerTerm, topics: Sequence[str]) -> None:
    """Do steps 2 and 3."""
    context, moves = term.context, term.moves
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
    make_ineligible(term, halted, "offline replicas")


async def _complete(term: ControllerTerm, topic: str) -> None:
    """Step 5: nothing of the topic is left but its znodes."""
    context, store = term.context, term.store
    done = context.replicas_in(topic, ReplicaState.DELETION_SUCCESSFUL)
    await term.moves.replicas(done, ReplicaState.NON_EXISTENT)
    await store.delete_topic_znode(topic, term.fence)
    await store.delete_topic_configs([topic], term.fence)
    await store.delete_topic_deletions([topic], term.fence)
    await term.moves.eligibility.forget_topic(topic)
    context.remove_topic(topic)
    term.journal.event(term.cause, "TopicDeleted", {"topic": topic})
    logger.info("deleted topic=%s", topic)
