"""Requests: what brokers ask of the controller.

Who may call: `loop`. Invariants: an answer is given after what it says stands in ZooKeeper and
after the brokers were told; a broker of an earlier incarnation is refused (R8). Kafka:
`processAlterPartition`, `processAllocateProducerIds`, `doControlledShutdown` and
`processIsrChangeNotification`.
"""

import logging
from collections.abc import Callable

from ottla.controller import reassignment
from ottla.controller.elections import ElectionKind
from ottla.controller.events import IsrChangesNotified
from ottla.controller.isr_changes import (
    Answer,
    Judgement,
    judge,
    respond,
    rule_of,
    version_of,
)
from ottla.controller.plan import Decision
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.controller.term import ControllerTerm
from ottla.model.cluster import LeaderAndIsr, LeaderIsrAndControllerEpoch
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

logger = logging.getLogger(__name__)

UNKNOWN_BROKER_EPOCH = -1


async def alter_partition(
    term: ControllerTerm,
    request: AlterPartitionRequest,
    answer: Callable[[AlterPartitionResponse], None],
) -> None:
    """Write the ISRs a leader asks for, as far as the rules and the znodes' versions allow.

    The leader is answered before a reassignment that now is complete is finished.
    """
    context = term.context
    version = version_of(request)
    judgement = judge(context, request, version)
    if judgement.error != ErrorCode.NONE:
        logger.info(
            "AlterPartition refused broker=%d epoch=%d error=%s",
            request.broker_id,
            request.broker_epoch,
            judgement.error.name,
        )
        known = context.brokers.get(request.broker_id)
        term.journal.event(
            term.cause,
            "PartitionChangeRefused",
            {
                "broker": request.broker_id,
                "broker_epoch": request.broker_epoch,
                "known_epoch": None if known is None else known.epoch,
                "error": judgement.error.name,
            },
        )
        answer(respond(context, {}, version, judgement))
        return
    for tp, reason in judgement.reasons.items():
        logger.info("AlterPartition refused broker=%d %s: %s", request.broker_id, tp, reason)
        _journal_isr(term, tp, judgement, version, judgement.answers[tp])
    answers: dict[TopicPartition, Answer] = dict(judgement.answers)
    result = await term.store.update_leader_and_isr(
        judgement.writes, context.epoch, context.epoch_zk_version
    )
    for tp, outcome in result.finished.items():
        if not isinstance(outcome, LeaderAndIsr):
            logger.error("AlterPartition not written %s error=%s", tp, outcome)
            _journal_isr(term, tp, judgement, version, outcome.code)
            answers[tp] = outcome.code
            continue
        _journal_isr(term, tp, judgement, version, outcome)
        before = context.leadership[tp].leader_and_isr
        term.moves.eligibility.wrote(tp, before, outcome)
        context.leadership[tp] = LeaderIsrAndControllerEpoch(outcome, context.epoch)
        answers[tp] = outcome
    for tp in result.retry:
        logger.info("AlterPartition refused %s: its znode has another version", tp)
        _journal_isr(term, tp, judgement, version, ErrorCode.INVALID_UPDATE_VERSION)
        answers[tp] = ErrorCode.INVALID_UPDATE_VERSION
    await term.moves.metadata(context.live_or_shutting_down, judgement.asked)
    answer(respond(context, {tp: answers[tp] for tp in judgement.asked}, version, judgement))
    if judgement.renew:
        await term.moves.renew_leader_epochs(judgement.renew)
    moving = [tp for tp in judgement.asked if tp in context.reassigning]
    written = [tp for tp in moving if isinstance(answers[tp], LeaderAndIsr)]
    await reassignment.complete_if_caught_up(term, written)


def _journal_isr(
    term: ControllerTerm, tp: TopicPartition, judgement: Judgement, version: int, answer: Answer
) -> None:
    """Record what a leader asked for, and what it was told."""
    context = term.context
    known = context.leadership.get(tp)
    proposed = judgement.proposals[tp]
    assignment = context.assignment(tp)
    before = None if known is None else known.leader_and_isr
    concerned = dict.fromkeys((*assignment.replicas, *proposed.isr, proposed.leader))
    decision = Decision(
        tp,
        "alter-partition",
        judgement.reasons.get(tp) or rule_of(before, proposed),
        before,
        answer if isinstance(answer, LeaderAndIsr) else None,
        assignment.replicas,
        online=tuple(b for b in concerned if b in context.brokers),
        shutting_down=tuple(sorted(context.shutting_down)),
        broker=proposed.leader,
        asked=proposed,
        version=version,
        stale=judgement.stale.get(tp, ()),
        unsure=judgement.unsure.get(tp, ()),
    )
    outcome = "written" if isinstance(answer, LeaderAndIsr) else f"refused: {answer.name}"
    term.journal.decision(term.cause, decision, outcome)


async def allocate_producer_ids(
    term: ControllerTerm, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """Give a broker its next block of producer ids (KIP-730)."""
    broker = term.context.brokers.get(request.broker_id)
    if broker is None:
        return AllocateProducerIdsResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.epoch != request.broker_epoch:
        return AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    block = await term.store.allocate_producer_ids(request.broker_id)
    return AllocateProducerIdsResponse(
        producer_id_start=block.first, producer_id_len=block.last - block.first + 1
    )


async def controlled_shutdown(
    term: ControllerTerm, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """Relieve a broker of what it leads; name what it still leads afterwards."""
    context, moves = term.context, term.moves
    broker_id = request.broker_id
    known = context.brokers.get(broker_id)
    if known is None:
        return ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
    if UNKNOWN_BROKER_EPOCH != request.broker_epoch < known.epoch:
        logger.info("controlled shutdown refused broker=%d: stale epoch", broker_id)
        term.journal.event(
            term.cause,
            "ShutdownRefused",
            {
                "broker": broker_id,
                "broker_epoch": request.broker_epoch,
                "known_epoch": known.epoch,
            },
        )
        return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    logger.info("controlled shutdown broker=%d", broker_id)
    term.journal.event(term.cause, "ShutdownAsked", {"broker": broker_id})
    context.shutting_down.add(broker_id)
    concerned = [
        tp
        for tp in context.partitions_on(broker_id)
        if len(context.assignment(tp).replicas) > 1
        and tp in context.leadership
        and tp.topic not in context.deleting
    ]
    led = [tp for tp in concerned if context.leader(tp) == broker_id]
    followed = [tp for tp in concerned if context.leader(tp) != broker_id]
    await moves.partitions(led, PartitionState.ONLINE, ElectionKind.CONTROLLED_SHUTDOWN)
    batch = moves.batch()
    for tp in followed:
        batch.stop([broker_id], tp, delete=False)
    await moves.tell(batch)
    await moves.replicas([PartitionReplica(tp, broker_id) for tp in followed], ReplicaState.OFFLINE)
    return ControlledShutdownResponse(
        remaining_partitions=[
            ControlledShutdownResponse.RemainingPartition(
                topic_name=tp.topic, partition_index=tp.partition
            )
            for tp in context.led_by(broker_id)
        ]
    )


async def isr_changes_notified(term: ControllerTerm) -> None:
    """Learn of ISRs that leaders of older versions wrote by themselves, and pass it on."""
    store, context = term.store, term.context
    names = await store.get_all_isr_change_notifications(term.watcher(IsrChangesNotified()))
    if not names:
        return
    try:
        changed = await store.get_partitions_from_isr_change_notifications(names)
        partitions = [tp for tp in changed if context.assignment(tp).replicas]
        found = await store.get_topic_partition_states(partitions)
        term.journal.event(
            term.cause,
            "IsrChangesNotified",
            {
                "partitions": [str(tp) for tp in partitions],
                "states": {str(tp): s.leader_and_isr for tp, s in found.items()},
            },
        )
        if partitions:
            context.leadership.update(found)
            await term.moves.metadata(context.live_or_shutting_down, partitions)
            moving = [tp for tp in partitions if tp in context.reassigning]
            await reassignment.complete_if_caught_up(term, moving)
    finally:
        await store.delete_isr_change_notifications(term.fence, names)
