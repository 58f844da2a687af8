"""Failover: how a newly elected controller takes office.

Who may call: `loop`. The steps, in Kafka's order: features; watches; old notifications deleted;
the context read (pipelined, with watches left by the same reads); deletions taken over; every
broker told who lives; replica states, then partition states, put where they were found and set in
motion; then what earlier controllers left unfinished. Invariants: no broker is told to lead or
follow before it was told who lives; a broker that died and came back while nobody was in office
does not keep what it led before (R8, F11); a term that fails here ends and another election
follows.
Kafka: `KafkaController.onControllerFailover` and `initializeControllerContext`.
"""

import logging
from collections.abc import Sequence

from ottla.controller import brokers, deletion, preferred, reassignment, snapshot, topics
from ottla.controller.broker_epochs import note_former_lives, restarted_unseen
from ottla.controller.eligible import note_first_lives
from ottla.controller.events import (
    BrokersChanged,
    IsrChangesNotified,
    LeaderBalanceDue,
    LogDirsFailed,
    TopicsChanged,
)
from ottla.controller.journal import replicas_facts
from ottla.controller.moves import SLICE, slices, yield_to_loop
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.controller.term import ControllerTerm
from ottla.model.ids import TopicPartition
from ottla.zookeeper.errors import MalformedZnodeError
from ottla.zookeeper.znodes import Features

logger = logging.getLogger(__name__)

FIRST_BALANCE_DELAY_S = 5.0
READ_SLICE = 1000


async def on_controller_failover(term: ControllerTerm) -> None:
    """Do all of the above; a failure anywhere is the caller's to handle."""
    store = term.store
    await _set_up_features(term)
    isr_changes = await store.get_all_isr_change_notifications(term.watcher(IsrChangesNotified()))
    log_dirs = await store.get_all_log_dir_event_notifications(term.watcher(LogDirsFailed()))
    await store.delete_log_dir_event_notifications(term.fence, log_dirs)
    await store.delete_isr_change_notifications(term.fence, isr_changes)
    written_at = await _read_context(term)
    await deletion.begin(term)
    await term.moves.metadata(term.context.live_or_shutting_down)
    restarted: list[PartitionReplica] = []
    for written in slices(list(written_at.items()), READ_SLICE):
        restarted += restarted_unseen(term.context, dict(written))
        note_former_lives(term.context, dict(written))
        await yield_to_loop()
    _hide(term, restarted)
    await _start_replicas(term)
    await _start_partitions(term)
    await _show_again(term, restarted)
    context = term.context
    logger.info(
        "controller failover completed epoch=%d brokers=%d topics=%d partitions=%d "
        "without_leader=%d",
        context.epoch,
        len(context.brokers),
        len(context.assignments),
        len(context.partition_states),
        len(context.partition_states.all_in(PartitionState.OFFLINE, PartitionState.NEW)),
    )
    await reassignment.begin(term)
    await deletion.proceed(term)
    await preferred.requested(term)
    if term.config.flag("auto.leader.rebalance.enable"):
        term.later(FIRST_BALANCE_DELAY_S, LeaderBalanceDue())


async def _set_up_features(term: ControllerTerm) -> None:
    """Make /feature say that features are versioned (KIP-584), as from 2.7 on.

    One that cannot be read stays for a person to look at: the office needs nothing from it (F41).
    """
    initial = Features(enabled=True, levels={})
    try:
        features, version = await term.store.get_or_create_feature(initial)
    except MalformedZnodeError as error:
        term.store.ignore(error)
        return
    if not features.enabled or features.version != Features(enabled=True, levels={}).version:
        levels = features.levels if features.enabled else {}
        await term.store.update_feature(Features(enabled=True, levels=levels), version)


def _hide(term: ControllerTerm, replicas: Sequence[PartitionReplica]) -> None:
    """Count replicas as offline for as long as leaders are sought."""
    if replicas:
        brokers_concerned = sorted({replica.broker for replica in replicas})
        logger.info("restarted unseen brokers=%s replicas=%d", brokers_concerned, len(replicas))
        facts = {"replicas": replicas_facts(replicas)}
        term.journal.event(term.cause, "RestartedUnseen", facts)
    for replica in replicas:
        term.context.offline_dirs.setdefault(replica.broker, set()).add(replica.partition)


async def _show_again(term: ControllerTerm, replicas: Sequence[PartitionReplica]) -> None:
    """Let the hidden replicas follow whoever leads now."""
    if not replicas:
        return
    for replica in replicas:
        term.context.offline_dirs[replica.broker].discard(replica.partition)
    await term.moves.replicas(replicas, ReplicaState.ONLINE)
    await term.moves.online_where_possible()


async def _read_context(term: ControllerTerm) -> dict[TopicPartition, int]:
    """Read brokers, topics and states; return the zxid at which each state was last written."""
    written_at: dict[TopicPartition, int] = {}
    context, store = term.context, term.store
    present = await store.get_all_brokers_in_cluster(term.watcher(BrokersChanged()))
    context.set_brokers(present)
    names = await store.get_all_topics_in_cluster(term.watcher(TopicsChanged()))
    for info in await topics.read_and_watch(term, names):
        context.add_topic(info)
        for partition, assignment in info.assignment.items():
            if assignment.being_reassigned:
                context.reassigning[TopicPartition(info.name, partition)] = None
        await yield_to_loop()
    await brokers.watch_registrations(term, context.brokers)
    for some in context.partitions_in_slices(READ_SLICE * 10):
        created_at: dict[TopicPartition, int] = {}
        read = await store.get_topic_partition_states(some, written_at, created_at)
        context.leadership.update(read)
        note_first_lives(context, created_at)
        await yield_to_loop()
    await term.moves.eligibility.load()
    for broker in context.brokers.values():
        term.channels.add(broker)
    await snapshot.take(term, "elected", written_at)
    return written_at


async def _start_replicas(term: ControllerTerm) -> None:
    """Put every replica where it was found, then set the live and the dead in motion."""
    context = term.context
    online: list[PartitionReplica] = []
    offline: list[PartitionReplica] = []
    for some in context.partitions_in_slices(SLICE):
        for replica in context.replicas_of(some):
            if context.is_online(replica.broker, replica.partition):
                online.append(replica)
                context.replica_states.begin(replica, ReplicaState.ONLINE, term.cause)
            else:
                # Whether its topic's deletion had begun is unknown: the careful assumption.
                offline.append(replica)
                state = ReplicaState.DELETION_INELIGIBLE
                context.replica_states.begin(replica, state, term.cause)
        await yield_to_loop()
    await term.moves.replicas(online, ReplicaState.ONLINE)
    await term.moves.replicas(offline, ReplicaState.OFFLINE)


async def _start_partitions(term: ControllerTerm) -> None:
    """Put every partition where it was found, then elect where a leader is missing."""
    context = term.context
    for some in context.partitions_in_slices(SLICE):
        for tp in some:
            leader = context.leader(tp)
            if leader is None:
                state = PartitionState.NEW
            elif context.is_online(leader, tp):
                state = PartitionState.ONLINE
            else:
                state = PartitionState.OFFLINE
            context.partition_states.begin(tp, state, term.cause)
        await yield_to_loop()
    await term.moves.online_where_possible()
