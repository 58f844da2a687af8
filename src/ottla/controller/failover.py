"""Controller failover: what a new controller does once it has read the cluster.

A decider. Who may call: `handlers`, which has done the first steps: features; watches; old
notifications deleted; the context read. The steps here, in Kafka's order: deletions taken over;
every broker sent who is alive; replica and partition states put where they were found and set in
motion, partitions without a leader first; then what earlier controllers left unfinished.
Invariants: no broker is sent what to lead or follow before it was sent who is alive; a broker that
died and came back while there was no controller does not keep what it led before (R8, F11).
Kafka: `KafkaController.onControllerFailover`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ottla.controller import deletion, reassignment
from ottla.controller.broker_epochs import note_former_lives, restarted_unseen
from ottla.controller.context import Context
from ottla.controller.effects import YIELD, Logger, Record, Steps
from ottla.controller.elections import ElectionKind
from ottla.controller.state_changes import SLICE, WRITE_SLICE, StateChanges, slices
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.model import journal_schema as journaled
from ottla.model.ids import TopicPartition

_log = Logger("failover")

READ_SLICE = 1000
FIND_SLICE = 1000


@dataclass(frozen=True, slots=True)
class _Replicas:
    """Replicas, by whether they are online."""

    online: list[PartitionReplica]
    offline: list[PartitionReplica]


def on_controller_failover(
    changes: StateChanges,
    written_at: Mapping[TopicPartition, int],
    deletions: Sequence[str],
) -> Steps[None]:
    """Do the above; `written_at`: the zxid each state was last written at.

    `deletions` are the topics whose deletion is requested.
    """
    context = changes.context
    changes.states_just_read = True
    yield from deletion.on_controller_failover(changes, deletions)
    yield from changes.metadata(context.live_or_shutting_down)
    restarted: list[PartitionReplica] = []
    for written in _slices_of(written_at.items(), READ_SLICE):
        restarted += restarted_unseen(context, dict(written))
        note_former_lives(context, dict(written))
        yield YIELD
    yield from _hide(changes, restarted)
    yield from _start(changes)
    yield from _show_again(changes, restarted)
    yield _log.info(
        "controller failover completed controller_epoch=%d brokers=%d topics=%d partitions=%d "
        "without_leader=%d",
        context.epoch,
        len(context.brokers),
        len(context.assignments),
        len(context.partition_states),
        len(context.partition_states.all_in(PartitionState.OFFLINE, PartitionState.NEW)),
    )
    yield from reassignment.on_controller_failover(changes)
    yield from deletion.proceed(changes)


def _slices_of(
    items: Iterable[tuple[TopicPartition, int]], size: int
) -> Iterator[list[tuple[TopicPartition, int]]]:
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some


def _hide(changes: StateChanges, replicas: Sequence[PartitionReplica]) -> Steps[None]:
    """Count replicas as offline while leaders are elected."""
    if replicas:
        brokers = sorted({replica.broker for replica in replicas})
        yield _log.info(
            "restarts that no controller saw brokers=%s replicas=%d", brokers, len(replicas)
        )
        named = tuple((str(replica.partition), replica.broker) for replica in replicas)
        yield Record(journaled.RestartedUnseen(replicas=named))
    for replica in replicas:
        changes.context.offline_dirs.setdefault(replica.broker, set()).add(replica.partition)


def _show_again(changes: StateChanges, replicas: Sequence[PartitionReplica]) -> Steps[None]:
    """Let the hidden replicas follow the current leader."""
    if not replicas:
        return
    for replica in replicas:
        changes.context.offline_dirs[replica.broker].discard(replica.partition)
    yield from changes.replicas(replicas, ReplicaState.ONLINE)
    yield from changes.online_where_possible()


def _start(changes: StateChanges) -> Steps[None]:
    """Put partitions and replicas where they were found, then set them in motion.

    First come the partitions that clients wait for; Kafka takes all replicas before all partitions.
    What is written of each partition, and in which order, is the same.
    """
    context = changes.context
    # 1. The states of partitions.
    for few in context.partitions_in_slices(SLICE):
        for tp in few:
            context.partition_states.begin(tp, _state_of(context, tp), changes.cause)
        yield YIELD
    # 2. All replicas of JVM brokers: one that has just started writes its file of high watermarks
    # anew at its first LeaderAndIsr, with the partitions of this alone.
    leaderless = context.waiting_for_leader()
    unsent = [tp for tp in context.leadership if _is_sent(context, tp)]
    if context.unstated:
        batch = changes.batch()
        theirs = context.replicas_on(sorted(context.brokers.keys() & context.unstated))
        live = yield from _find(changes, theirs)
        yield from changes.replicas(live.online, ReplicaState.ONLINE, batch)
        batch.metadata(context.brokers, unsent)
        yield from changes.send(batch)
        unsent = []
    # 3. Partitions without a leader: their offline replicas leave the ISRs, then elections. With
    # them every broker is sent the metadata of all partitions: one that has just started knows
    # none, and would take the first ones it is sent for all that there are.
    online: list[PartitionReplica] = []
    for some in slices(leaderless, WRITE_SLICE):
        batch = changes.batch()
        replicas = yield from _find(changes, context.replicas_of(some))
        online += replicas.online
        yield from changes.replicas(replicas.offline, ReplicaState.OFFLINE, batch)
        yield from changes.write_eligible()
        yield from changes.partitions(some, PartitionState.ONLINE, ElectionKind.OFFLINE, batch)
        batch.metadata(context.brokers, unsent)
        yield from changes.send(batch)
        unsent = []
    # 4. The offline replicas of the others, 5. and the live replicas of all.
    offline: list[PartitionReplica] = []
    waited = set(leaderless)
    for few in context.partitions_in_slices(SLICE):
        others = context.replicas_of(tp for tp in few if tp not in waited)
        replicas = yield from _find(changes, others)
        online += replicas.online
        offline += replicas.offline
    batch = changes.batch()
    yield from changes.replicas(offline, ReplicaState.OFFLINE, batch)
    if offline:
        batch.metadata(context.brokers, unsent)
        yield from changes.send(batch)
        unsent = []
    batch = changes.batch()
    rest = [r for r in online if r.broker not in context.unstated]
    yield from changes.replicas(rest, ReplicaState.ONLINE, batch)
    if not unsent:
        batch.leave_out_metadata()
    yield from changes.send(batch)


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


def _find(changes: StateChanges, replicas: Sequence[PartitionReplica]) -> Steps[_Replicas]:
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
        yield YIELD
    return found
