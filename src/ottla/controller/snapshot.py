"""Snapshot: the context, written into the journal slice by slice.

A decider. Invariants: it runs inside one event, so the context stands still meanwhile, and what
follows in the journal is what changed it; a line holds at most a slice of partitions, so that no
step takes long; the context is iterated in the snapshot's order from then on, so that a
reader that begins here iterates everything in the same order.
"""

from collections.abc import Mapping, Sequence

from ottla.controller.brokers import registrations
from ottla.controller.found import Zxids
from ottla.controller.state_changes import StateChanges
from ottla.controller.states import PartitionReplica, ReplicaState
from ottla.model.ids import TopicPartition, uuid_to_text
from ottla.model.journal_schema import ClusterFacts, PartitionFacts, TopicFacts
from ottla.model.steps import slices, yield_to_loop

ELECTED = "elected"
ROTATED = "the journal goes on from here"


async def take(changes: StateChanges, reason: str, zxids: Zxids | None = None) -> None:
    """Write down all that is known. `zxids`: when the states were written, if just read."""
    context, settings = changes.context, changes.settings
    offline = {b: [str(tp) for tp in tps] for b, tps in context.offline_dirs.items() if tps}
    size = changes.outbox.record_snapshot(
        "cluster",
        ClusterFacts(
            brokers=registrations(context.brokers.values()),
            registered=list(context.brokers.values()),
            reason=reason,
            shutting_down=tuple(sorted(context.shutting_down)),
            offline_dirs=offline,
            deleting=list(context.deleting),
            whole=tuple(sorted(context.clean_brokers)),
            voiding=tuple(sorted(context.voiding_brokers)),
            unstated=tuple(sorted(context.unstated)),
            deletion_started=sorted(context.deletion_started),
            deletion_ineligible=sorted(context.deletion_ineligible),
            reassigning=[str(tp) for tp in context.reassigning],
            broker_epochs=dict(context.broker_epochs),
            delete_topics=settings.delete_topics,
            eligible_replicas=settings.eligible_replicas,
        ),
    )
    former = _former_lives(changes)
    for topic in context.topics:
        topic_id = uuid_to_text(context.topic_id(topic))
        # A topic without partitions is one all the same.
        partitions: Sequence[Sequence[TopicPartition]]
        partitions = list(slices(context.partitions_of(topic))) or [()]
        for some in partitions:
            facts = {tp.partition: _partition_facts(changes, tp, zxids, former) for tp in some}
            for tp in some:
                context.reorder(tp)
            size += changes.outbox.record_snapshot(
                "topic",
                TopicFacts(
                    topic=topic,
                    id=topic_id,
                    partitions=facts,
                    note=context.topic_id_notes.get(topic),
                ),
            )
            await yield_to_loop()
    changes.outbox.end_snapshot(size)


def _former_lives(changes: StateChanges) -> dict[TopicPartition, dict[int, int]]:
    found: dict[TopicPartition, dict[int, int]] = {}
    for broker, partitions in changes.context.former_lives.items():
        for tp, epoch in partitions.items():
            found.setdefault(tp, {})[broker] = epoch
    return found


def _partition_facts(
    changes: StateChanges,
    tp: TopicPartition,
    zxids: Zxids | None,
    former: Mapping[TopicPartition, Mapping[int, int]],
) -> PartitionFacts:
    context = changes.context
    assignment = context.assignment(tp)
    known = context.leadership.get(tp)
    state = None if known is None else known.leader_and_isr
    eligible = context.eligible.get(tp)
    found = zxids is None
    leaderless = state is not None and state.leader not in context.brokers
    return PartitionFacts(
        replicas=assignment.replicas,
        adding=assignment.adding,
        removing=assignment.removing,
        leader=None if state is None else state.leader,
        leader_epoch=0 if state is None else state.leader_epoch,
        isr=() if state is None else state.isr,
        partition_epoch=0 if state is None else state.partition_epoch,
        controller_epoch=0 if known is None else known.controller_epoch,
        recovery_state=0 if state is None else state.recovery_state,
        eligible=() if eligible is None else eligible.broker_epochs,
        eligible_at=-1 if eligible is None else eligible.partition_epoch,
        eligible_by=None if eligible is None else (eligible.min_isr, eligible.znode_version),
        state=context.partition_states[tp].value if found else None,
        zxid=None if zxids is None else zxids.written.get(tp),
        created=zxids.created.get(tp) if zxids is not None and leaderless else None,
        joined=tuple(sorted(context.joined.get(tp, ()))),
        former_lives=dict(former.get(tp, {})),
        replica_states=_replica_states(changes, tp) if found else {},
    )


def _replica_states(changes: StateChanges, tp: TopicPartition) -> dict[int, str]:
    """Return the states of replicas that are not simply online."""
    states = changes.context.replica_states
    return {
        replica.broker: state.value
        for replica in changes.context.replicas_of([tp])
        if (state := states[PartitionReplica(*replica)]) is not ReplicaState.ONLINE
    }
