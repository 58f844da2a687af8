"""Eligible: who besides the ISR has every record that was acknowledged (R13, KIP-966, adr/0007).

A decider. Invariants: below min.insync.replicas the high watermark stands still, so a replica that
leaves the ISR there, or has left it there before, has all below it; an ISR that is large enough
again makes no other replica eligible, since the high watermark moves on without the others; a
replica that may have lost records in a crash never counts. Which min.insync.replicas counts is for
the leader to say, whatever was read here: before it moves its high watermark without an eligible
replica it deletes the record, and a record is noted only under a leader that does so (adr/0007).
Kafka: `PartitionChangeBuilder.populateTargetElr` and `isValidNewLeader` of KRaft's controller.
"""

from collections.abc import Mapping

from ottla.controller.context import Context
from ottla.model.cluster import RECOVERING, Eligible, LeaderAndIsr
from ottla.model.ids import NO_LEADER, ZERO_UUID, TopicPartition
from ottla.model.protocol import UNKNOWN_BROKER_EPOCH


def has_complete_log(context: Context, broker: int, tp: TopicPartition) -> bool:
    """Return whether a member of the ISR has what it had when it joined, by all we know."""
    return broker in context.clean_brokers or broker in context.joined.get(tp, ())


def note_isr(
    context: Context, tp: TopicPartition, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    """Take note of who joined and left an ISR."""
    new = {b for b in after if b not in before and b not in context.clean_brokers}
    joined = context.joined.get(tp)
    if joined is not None:
        joined.intersection_update(after)
        joined |= new
    elif new:
        context.joined[tp] = new


def note_first_broker_epochs(context: Context, created_at: Mapping[TopicPartition, int]) -> None:
    """Take note of ISR members that registered before the partition's state was created.

    They have had one registration only since the partition exists and lost nothing of it, whatever
    they said of their logs when they registered. `created_at`: the zxid of each. Noted where the
    leader is gone, since only there it is asked for.
    """
    for tp, zxid in created_at.items():
        state = context.leadership[tp].leader_and_isr
        if state.leader not in context.brokers:
            first = {b for b in state.isr if context.broker_epochs.get(b, zxid) < zxid}
            if first:
                context.joined[tp] = first


def next_eligible(
    context: Context,
    tp: TopicPartition,
    before: LeaderAndIsr,
    after: LeaderAndIsr,
    min_isr: int,
) -> Eligible | None:
    """Return the eligible replicas after a state was written over another; None if none.

    `min_isr` is what we take for the topic's; the leader may know better.
    """
    replicas = context.assignment(tp).replicas
    topic_id = context.topic_id(tp.topic)
    enough = min(min_isr, len(replicas))
    if len(after.isr) >= enough or after.recovery_state == RECOVERING or topic_id == ZERO_UUID:
        return None
    if not (_voids(context, before.leader) and _voids(context, after.leader)):
        return None
    epochs: dict[int, int] = {}
    znode_version = -1
    was = context.eligible.get(tp)
    if was is not None and was.partition_epoch == before.partition_epoch:
        epochs.update(was.broker_epochs)
        znode_version = was.znode_version
    for broker in before.isr:
        if broker in context.brokers and not context.is_online(broker, tp, or_shutting_down=True):
            continue  # its log dir failed, or it restarted unseen
        if broker in context.brokers and before.leader == NO_LEADER:
            if broker in context.clean_brokers:  # it was away when this state was written
                epochs[broker] = context.broker_epochs[broker]
        elif broker not in context.brokers or has_complete_log(context, broker, tp):
            epochs[broker] = context.broker_epochs.get(broker, UNKNOWN_BROKER_EPOCH)
    left = tuple((b, epochs[b]) for b in replicas if b in epochs and b not in after.isr)
    if not left:
        return None
    return Eligible(topic_id, after.partition_epoch, min_isr, left, znode_version)


def _voids(context: Context, leader: int) -> bool:
    """Return whether a live leader voids records that it does not keep to; JVM brokers do not."""
    return leader not in context.brokers or leader in context.voiding_brokers


def record_behind(
    context: Context, tp: TopicPartition, before: LeaderAndIsr, after: LeaderAndIsr
) -> int | None:
    """Return the znode version of the record that an election rests on; None without one."""
    if after.leader in before.isr or after.leader not in eligible_for(context, tp, before):
        return None
    return context.eligible[tp].znode_version


def eligible_for(context: Context, tp: TopicPartition, state: LeaderAndIsr) -> tuple[int, ...]:
    """Return the eligible replicas of the record, dead ones too, without any that crashed since."""
    record = context.eligible.get(tp)
    if record is None or record.partition_epoch != state.partition_epoch:
        return ()
    replicas = context.assignment(tp).replicas
    return tuple(
        b
        for b, epoch in record.broker_epochs
        if b in replicas
        and b not in state.isr
        and (
            (known := context.brokers.get(b)) is None
            or known.epoch == epoch
            or b in context.clean_brokers
        )
    )


def crashed(context: Context, tp: TopicPartition, state: LeaderAndIsr) -> tuple[int, ...]:
    """Return the live ISR members of a leaderless partition that may have lost what they had.

    No replica joins an ISR without a leader: who has not lived on since was in it before it died.
    """
    if state.leader != NO_LEADER:
        return ()
    return tuple(
        b for b in state.isr if b in context.brokers and not has_complete_log(context, b, tp)
    )
