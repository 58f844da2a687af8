"""Requested elections: by the legacy znode, by ElectLeaders, and by the balance of leadership.

A decider. Invariants: a preferred replica leads only from within the ISR; only ElectLeaders may
request an unclean election; leadership is balanced where more than a tenth (by default) of a
broker's preferred leaderships are led by others. Kafka: `onReplicaElection`,
`processReplicaLeaderElection` and `checkAndTriggerAutoLeaderRebalance`.
"""

import logging
from collections.abc import Sequence

from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind, elect
from ottla.controller.plan import Failure
from ottla.controller.state_changes import Outcome, StateChanges
from ottla.controller.states import PartitionState
from ottla.model import journal_schema as journaled
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.steps import yield_to_loop


def too_much_elsewhere(elsewhere: int, share: int, limit: float) -> bool:
    """Return whether more than `limit` (a fraction) of a broker's share is led by others."""
    return elsewhere > limit * share


logger = logging.getLogger(__name__)

BALANCE_SLICE = 2000

Result = tuple[ErrorCode, str | None]

_REFUSALS = {
    ElectionKind.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ElectionKind.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


async def on_znode(changes: StateChanges) -> None:
    """Elect what /admin/preferred_replica_election requests, and delete it."""
    context = changes.context
    requested = await changes.cluster.read_preferred_election()
    if requested is None:
        return
    partitions = [str(tp) for tp in requested]
    changes.outbox.record(journaled.PreferredElectionRequested(partitions=partitions))
    pending = [
        tp
        for tp in requested
        if context.assignment(tp).replicas
        and tp.topic not in context.deleting
        and not _is_preferred(context, tp)
    ]
    await _elect(changes, pending, ElectionKind.PREFERRED)
    await changes.cluster.delete_preferred_election()


async def on_request(
    changes: StateChanges, kind: ElectionKind, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, Result]:
    """Elect what ElectLeaders requests; None means all partitions that need an election."""
    context = changes.context
    chosen = list(context.partitions()) if partitions is None else list(partitions)
    results: dict[TopicPartition, Result] = {}
    electable = []
    for tp in chosen:
        if not context.assignment(tp).replicas:
            results[tp] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        elif tp.topic in context.deleting:
            results[tp] = (ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
        elif not _needs_election(context, kind, tp):
            results[tp] = (ErrorCode.ELECTION_NOT_NEEDED, None)
        else:
            electable.append(tp)
    names = [str(tp) for tp in electable]
    changes.outbox.record(journaled.ElectionsAsked(kind=kind.value, partitions=names))
    outcomes = await _elect(changes, electable, kind)
    for tp, outcome in outcomes.items():
        if isinstance(outcome, Failure):
            results[tp] = (_REFUSALS[kind], f"Failed to elect leader for {tp}: {outcome}")
        else:
            results[tp] = (ErrorCode.NONE, None)
    for tp in electable:
        results.setdefault(tp, (_REFUSALS[kind], f"{tp} has no leader to begin with"))
    return {tp: results[tp] for tp in chosen}


async def on_balance_due(changes: StateChanges, limit: float) -> None:
    """Move leadership back where more than `limit` (a fraction) of a share is led by others."""
    context = changes.context
    by_broker: dict[int, list[TopicPartition]] = {}
    for some in context.partitions_in_slices(BALANCE_SLICE):
        for tp in some:
            replicas = context.assignment(tp).replicas
            if tp.topic not in context.deleting and replicas:
                by_broker.setdefault(replicas[0], []).append(tp)
        await yield_to_loop()
    for broker, share in sorted(by_broker.items()):
        await yield_to_loop()
        elsewhere = [
            tp for tp in share if tp in context.leadership and context.leader(tp) != broker
        ]
        due = too_much_elsewhere(len(elsewhere), len(share), limit)
        able = [tp for tp in elsewhere if due and _preferred_could_lead(context, tp)]
        if elsewhere:
            changes.outbox.record(
                journaled.LeaderBalanceDue(
                    broker=broker,
                    elsewhere=len(elsewhere),
                    of=len(share),
                    limit=limit,
                    due=due,
                    able=len(able),
                )
            )
        if able:
            logger.info("leaders return broker=%d partitions=%d", broker, len(able))
            await _elect(changes, able, ElectionKind.PREFERRED)


def _is_preferred(context: Context, tp: TopicPartition) -> bool:
    return context.assignment(tp).replicas[:1] == (context.leader(tp),)


def _needs_election(context: Context, kind: ElectionKind, tp: TopicPartition) -> bool:
    if kind is ElectionKind.PREFERRED:
        return not _is_preferred(context, tp)
    leader = context.leader(tp)
    return leader is None or not context.is_live(leader)


def _preferred_could_lead(context: Context, tp: TopicPartition) -> bool:
    outcome = elect(
        ElectionKind.PREFERRED,
        context.assignment(tp),
        context.leadership[tp].leader_and_isr,
        lambda r: context.is_online(r, tp),
    )
    return outcome.state is not None


async def _elect(
    changes: StateChanges, partitions: Sequence[TopicPartition], kind: ElectionKind
) -> dict[TopicPartition, Outcome]:
    return await changes.partitions(partitions, PartitionState.ONLINE, kind)
