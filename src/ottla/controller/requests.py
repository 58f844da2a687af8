"""Requests: what brokers request of the controller.

A decider. Invariants: a response is given after what it says stands in ZooKeeper and after the
brokers were sent it; a broker with the epoch of an earlier registration is refused (R8). Kafka:
`processAlterPartition`, `doControlledShutdown` and `processIsrChangeNotification`.
"""

import logging
from collections.abc import Callable, Sequence

from ottla.controller import reassignment
from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind
from ottla.controller.isr_changes import (
    Result,
    Validation,
    for_version,
    respond,
    rule_of,
    validate,
    version_of,
)
from ottla.controller.plan import Decision, Plan
from ottla.controller.state_changes import StateChanges
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.model import journal_schema as journaled
from ottla.model.cluster import LeaderAndIsr
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.protocol import is_stale_broker_epoch
from ottla.wire.messages.control import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

logger = logging.getLogger(__name__)


async def alter_partition(
    changes: StateChanges,
    request: AlterPartitionRequest,
    answer: Callable[[AlterPartitionResponse], None],
) -> None:
    """Write the ISRs a leader proposes, as far as the rules and the znodes' versions allow.

    `answer` takes the response, before a reassignment that now is complete is finished.
    """
    context = changes.context
    version = version_of(request)
    found = validate(context, request, version)
    # 1. A request of a broker that is not alive, or with the epoch of an earlier registration, is
    # refused.
    if found.error != ErrorCode.NONE:
        _refuse(changes, request, found.error)
        answer(respond(context, {}, version, found))
        return
    # 2. So are proposals against the rules.
    if found.writes or found.renew:
        changes.outbox.record(_received(request, version, found))
    for tp, reason in found.reasons.items():
        logger.info(
            "AlterPartition refused broker=%d partition=%s reason=%s", request.broker_id, tp, reason
        )
        result = found.results[tp]
        code = result.name if isinstance(result, ErrorCode) else "NONE"
        decision = _decision(context, tp, found, version)
        changes.decisions.append((decision, f"refused: {code}"))
    # 3. The others are written and settled.
    decisions = {tp: _decision(context, tp, found, version) for tp in found.writes}
    results: dict[TopicPartition, Result] = dict(found.results)
    # Who registers again meanwhile is not let in: we may hear of it only after the write.
    newcomers = {tp: _newcomers(context, tp, asked) for tp, asked in found.writes.items()}
    plan = Plan(writes=found.writes, decisions=decisions, newcomers=newcomers)
    outcomes = await changes.write_proposals(plan)
    results.update({tp: for_version(result, version) for tp, result in outcomes.items()})
    # 4. Every broker is sent UpdateMetadata, then the leader its response.
    await changes.metadata(context.live_or_shutting_down, found.requested)
    given = {tp: results[tp] for tp in found.requested}
    answer(respond(context, given, version, found))
    # 5. What follows from the new ISRs.
    if found.renew:
        await changes.renew_leader_epochs(found.renew)
    moving = [tp for tp in found.requested if tp in context.reassigning]
    written = [tp for tp in moving if isinstance(results[tp], LeaderAndIsr)]
    await reassignment.complete_if_caught_up(changes, written)


def _newcomers(context: Context, tp: TopicPartition, proposed: LeaderAndIsr) -> dict[int, int]:
    """Return the broker epochs of those whom a proposal lets in."""
    members = context.leadership[tp].leader_and_isr.isr
    return {b: context.brokers[b].epoch for b in proposed.isr if b not in members}


def _refuse(changes: StateChanges, request: AlterPartitionRequest, error: ErrorCode) -> None:
    known = changes.context.brokers.get(request.broker_id)
    logger.info(
        "AlterPartition refused broker=%d broker_epoch=%d error=%s",
        request.broker_id,
        request.broker_epoch,
        error.name,
    )
    changes.outbox.record(
        journaled.PartitionChangeRefused(
            broker=request.broker_id,
            broker_epoch=request.broker_epoch,
            known_epoch=None if known is None else known.epoch,
            error=error.name,
        )
    )


def _received(
    request: AlterPartitionRequest, version: int, found: Validation
) -> journaled.PartitionChangeAsked:
    """Return a request as a whole for the journal: what follows can be decided again."""
    return journaled.PartitionChangeAsked(
        broker=request.broker_id,
        broker_epoch=request.broker_epoch,
        version=version,
        partitions={str(tp): found.proposals[tp] for tp in found.requested},
        epochs={str(tp): given for tp, given in found.epochs.items()},
    )


def _decision(context: Context, tp: TopicPartition, found: Validation, version: int) -> Decision:
    """Return what was proposed, with all that was looked at, as it is before the write."""
    known = context.leadership.get(tp)
    proposed = found.proposals[tp]
    assignment = context.assignment(tp)
    before = None if known is None else known.leader_and_isr
    concerned = dict.fromkeys((*assignment.replicas, *proposed.isr, proposed.leader))
    return Decision(
        tp,
        "alter-partition",
        found.reasons.get(tp) or rule_of(before, proposed),
        before,
        None,
        assignment.replicas,
        online=tuple(b for b in concerned if b in context.brokers),
        shutting_down=tuple(sorted(context.shutting_down)),
        broker=proposed.leader,
        asked=proposed,
        version=version,
        stale=found.stale.get(tp, ()),
        unsure=found.unsure.get(tp, ()),
    )


async def controlled_shutdown(
    changes: StateChanges, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """Move leadership away from a broker; name what it still leads afterwards."""
    context = changes.context
    broker_id = request.broker_id
    known = context.brokers.get(broker_id)
    if known is None:
        return ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
    if is_stale_broker_epoch(request.broker_epoch, known.epoch):
        logger.info("controlled shutdown refused broker=%d reason=stale broker epoch", broker_id)
        changes.outbox.record(
            journaled.ShutdownRefused(
                broker=broker_id, broker_epoch=request.broker_epoch, known_epoch=known.epoch
            )
        )
        return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    remaining = await shut_down(changes, broker_id)
    return ControlledShutdownResponse(
        remaining_partitions=[
            ControlledShutdownResponse.RemainingPartition(
                topic_name=tp.topic, partition_index=tp.partition
            )
            for tp in remaining
        ]
    )


async def shut_down(changes: StateChanges, broker_id: int) -> list[TopicPartition]:
    """Elect other leaders, stop the broker's followers; return what it still leads."""
    context = changes.context
    logger.info("controlled shutdown broker=%d", broker_id)
    changes.outbox.record(journaled.ShutdownAsked(broker=broker_id))
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
    # From the first broker's LeaderAndIsr to the last one's UpdateMetadata producers wait for all
    # partitions of a request.
    changes.small_requests = True
    await changes.partitions(led, PartitionState.ONLINE, ElectionKind.CONTROLLED_SHUTDOWN)
    # Kafka sends StopReplica before and again with this. The followers go on here until no ISR
    # names them: else producers would wait for them as long as the ISRs are being written.
    await changes.replicas(
        [PartitionReplica(tp, broker_id) for tp in followed], ReplicaState.OFFLINE
    )
    return context.led_by(broker_id)


async def on_isr_changes(changes: StateChanges) -> None:
    """Take the notifications of changed ISRs, and delete them."""
    names = await changes.cluster.read_isr_changes()
    if not names:
        return
    try:
        await _take_isrs(changes, names)
    finally:
        await changes.cluster.delete_isr_changes(names)


async def _take_isrs(changes: StateChanges, names: Sequence[str]) -> None:
    """Take ISRs that leaders of older versions wrote by themselves, and send them to everybody."""
    context = changes.context
    changed = await changes.cluster.read_changed_partitions(names)
    partitions = [tp for tp in changed if context.assignment(tp).replicas]
    states = await changes.cluster.read_changed_states(partitions)
    changes.outbox.record(
        journaled.IsrChangesNotified(
            partitions=[str(tp) for tp in partitions],
            states={str(tp): s.leader_and_isr for tp, s in states.items()},
        )
    )
    if not partitions:
        return
    context.leadership.update(states)
    await changes.metadata(context.live_or_shutting_down, partitions)
    moving = [tp for tp in partitions if tp in context.reassigning]
    await reassignment.complete_if_caught_up(changes, moving)


async def allocate_producer_ids(
    changes: StateChanges, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """Give a broker its next block of producer ids (KIP-730)."""
    broker = changes.context.brokers.get(request.broker_id)
    if broker is None:
        return AllocateProducerIdsResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.epoch != request.broker_epoch:
        return AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    first, last = await changes.cluster.allocate_producer_ids(request.broker_id)
    return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=last - first + 1)
