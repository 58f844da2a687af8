"""Preferred leaders and elections on request: who asks, and what is answered.

Who may call: `failover`, `loop`. Invariants: a preferred replica leads only from within the ISR;
only a person may ask for an unclean election. Three ask: the legacy znode, ElectLeaders, and the
clock, when more than a tenth of a broker's preferred leaderships are elsewhere. Kafka:
`onReplicaElection`, `processReplicaLeaderElection` and `checkAndTriggerAutoLeaderRebalance`.
"""

import logging
from collections.abc import Sequence

from ottla.controller.balance import too_much_elsewhere
from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind, elect
from ottla.controller.events import LeaderBalanceDue, PreferredElectionRequested
from ottla.controller.moves import Outcome, yield_to_loop
from ottla.controller.plan import Failure
from ottla.controller.states import PartitionState
from ottla.controller.term import ControllerTerm
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.zookeeper.znodes import PREFERRED_REPLICA_ELECTION

logger = logging.getLogger(__name__)

BALANCE_SLICE = 2000

Answer = tuple[ErrorCode, str | None]

_REFUSALS = {
    ElectionKind.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ElectionKind.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


async def requested(term: ControllerTerm) -> None:
    """Do what /admin/preferred_replica_election asks for, and delete it."""
    store, context = term.store, term.context
    watch = term.watcher(PreferredElectionRequested())
    if not await store.watch_exists(PREFERRED_REPLICA_ELECTION, watch):
        return
    wanted = await store.get_preferred_replica_election()
    term.journal.event(
        term.cause, "PreferredElectionRequested", {"partitions": [str(tp) for tp in wanted]}
    )
    pending = [
        tp
        for tp in wanted
        if context.assignment(tp).replicas
        and tp.topic not in context.deleting
        and not is_preferred(context, tp)
    ]
    await _elect(term, pending, ElectionKind.PREFERRED)
    await store.delete_preferred_replica_election(term.fence)


async def asked(
    term: ControllerTerm, kind: ElectionKind, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, Answer]:
    """Hold the elections a person asks for; None means all partitions that need one."""
    context = term.context
    chosen = list(context.partitions()) if partitions is None else list(partitions)
    answers: dict[TopicPartition, Answer] = {}
    electable = []
    for tp in chosen:
        if not context.assignment(tp).replicas:
            answers[tp] = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "The partition does not exist.",
            )
        elif tp.topic in context.deleting:
            answers[tp] = (ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
        elif not _needs(context, kind, tp):
            answers[tp] = (ErrorCode.ELECTION_NOT_NEEDED, None)
        else:
            electable.append(tp)
    term.journal.event(
        term.cause,
        "ElectionsAsked",
        {"kind": kind.value, "partitions": [str(tp) for tp in electable]},
    )
    for tp, outcome in (await _elect(term, electable, kind)).items():
        if isinstance(outcome, Failure):
            answers[tp] = (_REFUSALS[kind], f"Failed to elect leader for {tp}: {outcome}")
        else:
            answers[tp] = (ErrorCode.NONE, None)
    for tp in electable:
        answers.setdefault(tp, (_REFUSALS[kind], f"{tp} has no leader to begin with"))
    return {tp: answers[tp] for tp in chosen}


async def balance_due(term: ControllerTerm) -> None:
    """Move leadership back where too much of a broker's share is elsewhere."""
    config, context = term.config, term.context
    try:
        limit = config.integer("leader.imbalance.per.broker.percentage") / 100
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
                term.journal.event(
                    term.cause,
                    "LeaderBalanceDue",
                    {
                        "broker": broker,
                        "elsewhere": len(elsewhere),
                        "of": len(share),
                        "limit": limit,
                        "due": due,
                        "able": len(able),
                    },
                )
            if able:
                logger.info("leaders return broker=%d partitions=%d", broker, len(able))
                await _elect(term, able, ElectionKind.PREFERRED)
    finally:
        term.later(config.integer("leader.imbalance.check.interval.seconds"), LeaderBalanceDue())


def is_preferred(context: Context, tp: TopicPartition) -> bool:
    return context.assignment(tp).replicas[:1] == (context.leader(tp),)


def _needs(context: Context, kind: ElectionKind, tp: TopicPartition) -> bool:
    if kind is ElectionKind.PREFERRED:
        return not is_preferred(context, tp)
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
    term: ControllerTerm, partitions: Sequence[TopicPartition], kind: ElectionKind
) -> dict[TopicPartition, Outcome]:
    return await term.moves.partitions(partitions, PartitionState.ONLINE, kind)
