"""Controller failover: a new controller reads the cluster and sets it in motion.

A decider. The steps, in Kafka's order: features; everything read, with watches; old notifications
deleted; deletions taken over; every broker sent who is alive; replica and partition states put
where they were found and set in motion, partitions without a leader first; then what earlier
controllers left unfinished.
Invariants: no broker is sent what to lead or follow before it was sent who is alive; a broker that
died and came back while there was no controller does not keep what it led before (R8, F11).
Kafka: `KafkaController.onControllerFailover` and `initializeControllerContext`.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ottla.controller import (
    deletion,
    reassignment,
    requested_elections,
    snapshot,
    topics,
)
from ottla.controller.broker_epochs import note_former_lives, restarted_unseen
from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind
from ottla.controller.eligibility import note_first_broker_epochs
from ottla.controller.found import Zxids
from ottla.controller.state_changes import WRITE_SLICE, StateChanges
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.model import journal_schema as journaled
from ottla.model.ids import TopicPartition
from ottla.model.steps import SLICE, slices, yield_to_loop
from ottla.zookeeper.znodes import Features

logger = logging.getLogger(__name__)

READ_SLICE = 10_000
NOTE_SLICE = 1000
FIND_SLICE = 1000


@dataclass(frozen=True, slots=True)
class _Replicas:
    """Replicas, by whether they are online."""

    online: list[PartitionReplica]
    offline: list[PartitionReplica]


async def on_controller_failover(changes: StateChanges) -> None:
    """Take over the cluster: read all of it, then do what the module says.

    A failure anywhere is the caller's to handle.
    """
    await _set_up_features(changes)
    zxids = await _read_cluster(changes)
    changes.states_just_read = True
    await take_over(changes, zxids.written)
    changes.states_just_read = False
    await topics.write_notes(changes)
    await requested_elections.on_znode(changes)


async def _set_up_features(changes: StateChanges) -> None:
    """Make /feature say that features are versioned (KIP-584), as from 2.7 on."""
    read = await changes.cluster.read_features()
    if read is None:
        return
    features, version = read
    if not features.enabled or features.version != Features(enabled=True, levels={}).version:
        levels = features.levels if features.enabled else {}
        await changes.cluster.write_features(Features(enabled=True, levels=levels), version)


async def _read_cluster(changes: StateChanges) -> Zxids:
    """Fill the context, ending with a snapshot; return when each state was last written."""
    context, cluster = changes.context, changes.cluster
    found = await cluster.find_cluster()
    await cluster.delete_log_dir_events(found.log_dir_events)
    await cluster.delete_isr_changes(found.isr_changes)
    context.set_brokers(found.brokers)
    for info in await topics.read(changes, found.topics, elected=True):
        context.add_topic(info)
        for partition, assignment in info.assignment.items():
            if assignment.being_reassigned:
                context.reassigning[TopicPartition(info.name, partition)] = None
        await yield_to_loop()
    await cluster.watch_registrations(list(context.brokers))
    zxids = Zxids()
    for some in context.partitions_in_slices(READ_SLICE):
        of_these = Zxids()
        context.leadership.update(await cluster.read_all_states(some, of_these))
        note_first_broker_epochs(context, of_these.created)
        zxids.written.update(of_these.written)
        zxids.created.update(of_these.created)
        await yield_to_loop()
    await _read_eligible(changes)
    for broker in context.brokers.values():
        changes.outbox.open(broker)
    await snapshot.take(changes, snapshot.ELECTED, zxids)
    return zxids


async def _read_eligible(changes: StateChanges) -> None:
    """Read who may lead besides the ISR, and what brokers say of their logs."""
    context, cluster = changes.context, changes.cluster
    live = list(context.brokers.values())
    found = await cluster.find_statements(live)
    context.clean_brokers, context.voiding_brokers = set(found.whole), set(found.voiding)
    context.unstated = set(found.unstated)
    if not changes.settings.eligible_replicas:
        return
    for topic in found.eligible_topics:
        if topic not in context.assignments:
            await cluster.delete_eligible_of_topic(topic)
    context.eligible = dict(await cluster.read_all_eligible(context.topic_ids))


async def take_over(changes: StateChanges, written_at: Mapping[TopicPartition, int]) -> None:
    """Act on what was read; `written_at`: the zxid each state was last written at."""
    context = changes.context
    await deletion.on_controller_failover(changes)
    await changes.metadata(context.live_or_shutting_down)
    restarted: list[PartitionReplica] = []
    for written in _slices_of(written_at.items(), NOTE_SLICE):
        restarted += restarted_unseen(context, dict(written))
        note_former_lives(context, dict(written))
        await yield_to_loop()
    _hide(changes, restarted)
    await _start(changes)
    await _show_again(changes, restarted)
    logger.info(
        "controller failover completed controller_epoch=%d brokers=%d topics=%d partitions=%d "
        "without_leader=%d",
        context.epoch,
        len(context.brokers),
        len(context.assignments),
        len(context.partition_states),
        len(context.partition_states.all_in(PartitionState.OFFLINE, PartitionState.NEW)),
    )
    await reassignment.on_controller_failover(changes)
    await deletion.proceed(changes)


def _slices_of(
    items: Iterable[tuple[TopicPartition, int]], size: int
) -> Iterator[list[tuple[TopicPartition, int]]]:
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some


def _hide(changes: StateChanges, replicas: Sequence[PartitionReplica]) -> None:
    """Count replicas as offline while leaders are elected."""
    if replicas:
        brokers = sorted({replica.broker for replica in replicas})
        logger.info(
            "restarts that no controller saw brokers=%s replicas=%d", brokers, len(replicas)
        )
        named = tuple((str(replica.partition), replica.broker) for replica in replicas)
        changes.outbox.record(journaled.RestartedUnseen(replicas=named))
    for replica in replicas:
        changes.context.offline_dirs.setdefault(replica.broker, set()).add(replica.partition)


async def _show_again(changes: StateChanges, replicas: Sequence[PartitionReplica]) -> None:
    """Let the hidden replicas follow the current leader."""
    if not replicas:
        return
    for replica in replicas:
        changes.context.offline_dirs[replica.broker].discard(replica.partition)
    await changes.replicas(replicas, ReplicaState.ONLINE)
    await changes.online_where_possible()


async def _start(changes: StateChanges) -> None:
    """Put partitions and replicas where they were found, then set them in motion.

    First come the partitions that clients wait for; Kafka takes all replicas before all partitions.
    What is written of each partition, and in which order, is the same.
    """
    context = changes.context
    # 1. The states of partitions.
    for few in context.partitions_in_slices(SLICE):
        for tp in few:
            context.partition_states.begin(tp, _state_of(context, tp), changes.cause)
        await yield_to_loop()
    # 2. All replicas of JVM brokers: one that has just started writes its file of high watermarks
    # again at its first LeaderAndIsr, with the partitions of this alone.
    leaderless = context.waiting_for_leader()
    unsent = [tp for tp in context.leadership if _is_sent(context, tp)]
    if context.unstated:
        batch = changes.batch()
        live: list[PartitionReplica] = []
        theirs = context.brokers.keys() & context.unstated
        for few in context.partitions_in_slices(SLICE):
            some = [r for r in context.replicas_of(few) if r.broker in theirs]
            live += (await _find(changes, some)).online
        await changes.replicas(live, ReplicaState.ONLINE, batch)
        batch.metadata(context.brokers, unsent)
        await changes.send(batch)
        unsent = []
    # 3. Partitions without a leader: their offline replicas leave the ISRs, then elections. With
    # them every broker is sent the metadata of all partitions: one that has just started knows
    # none, and would take the first ones it is sent for all that there are.
    online: list[PartitionReplica] = []
    for waiting in slices(leaderless, WRITE_SLICE):
        batch = changes.batch()
        replicas = await _find(changes, context.replicas_of(waiting))
        online += replicas.online
        await changes.replicas(replicas.offline, ReplicaState.OFFLINE, batch)
        await changes.write_eligible()
        await changes.partitions(waiting, PartitionState.ONLINE, ElectionKind.OFFLINE, batch)
        batch.metadata(context.brokers, unsent)
        await changes.send(batch)
        unsent = []
    # 4. The offline replicas of the others, 5. and the live replicas of all.
    offline: list[PartitionReplica] = []
    waited = set(leaderless)
    for few in context.partitions_in_slices(SLICE):
        others = context.replicas_of(tp for tp in few if tp not in waited)
        replicas = await _find(changes, others)
        online += replicas.online
        offline += replicas.offline
    batch = changes.batch()
    await changes.replicas(offline, ReplicaState.OFFLINE, batch)
    if offline:
        batch.metadata(context.brokers, unsent)
        await changes.send(batch)
        unsent = []
    batch = changes.batch()
    rest = [r for r in online if r.broker not in context.unstated]
    await changes.replicas(rest, ReplicaState.ONLINE, batch)
    if not unsent:
        batch.leave_out_metadata()
    await changes.send(batch)


def _is_sent(context: Context, tp: TopicPartition) -> bool:
    """Return whether brokers are sent metadata of a partition.

    They are not sent that one is to be deleted whose replicas are all offline: its deletion waits.
    """
    return tp.topic not in context.deleting or any(
        context.is_online(r, tp) for r in context.assignment(tp).replicas
    )


def _state_of(context: Context, tp: TopicPartition) -> PartitionState:
    leader = context.leader(tp)
    if leader is None:
        return PartitionState.NEW
    return PartitionState.ONLINE if context.is_online(leader, tp) else PartitionState.OFFLINE


async def _find(changes: StateChanges, replicas: Sequence[PartitionReplica]) -> _Replicas:
    """Put replicas where they were found; return which are online."""
    context, cause = changes.context, changes.cause
    found = _Replicas([], [])
    for some in slices(replicas, FIND_SLICE):
        for replica in some:
            if context.is_online(replica.broker, replica.partition):
                found.online.append(replica)
                context.replica_states.begin(replica, ReplicaState.ONLINE, cause)
            else:
                # Whether its topic's deletion had begun is unknown: the careful assumption.
                found.offline.append(replica)
                state = ReplicaState.DELETION_INELIGIBLE
                context.replica_states.begin(replica, state, cause)
        await yield_to_loop()
    return found
