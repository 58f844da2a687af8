"""Eligibility: who may lead besides the ISR, since it has every acknowledged record (R13, KIP-966).

A decider. Invariants (adr/0007):
- below min.insync.replicas the high watermark stands still, so a replica that leaves the ISR there,
  or has left it there before, has all below it; an ISR that is large enough again makes no other
  replica eligible, since the high watermark moves on without the others
- a replica that may have lost records in a crash never counts, and what cannot be found out makes
  no replica eligible
- which min.insync.replicas counts is for the leader to say, whatever was read here: before it moves
  its high watermark without an eligible replica it deletes the record, and a record is noted only
  under a leader that does so
- a record is written after the state it belongs to, and before any leader is sent that state; it
  names the state's version, so that one that was not written, or not any more, counts for nothing;
  one that a leader deleted is not written again
Kafka has this only in KRaft mode: `PartitionChangeBuilder.populateTargetElr`, `isValidNewLeader`.
"""

import logging
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ottla.controller.cluster_state import ClusterState
from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind
from ottla.controller.found import States
from ottla.controller.leadership import BeyondIsr
from ottla.model.cluster import RECOVERING, Eligible, LeaderAndIsr
from ottla.model.ids import NO_LEADER, ZERO_UUID, TopicPartition
from ottla.model.protocol import UNKNOWN_BROKER_EPOCH

logger = logging.getLogger(__name__)

SLICE = 500

Changed = tuple[TopicPartition, LeaderAndIsr | None, LeaderAndIsr]


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


class Eligibility:
    """One controller's eligible replicas. Where it is not `enabled` there are none."""

    def __init__(self, context: Context, cluster: ClusterState, *, enabled: bool = False) -> None:
        self._context = context
        self._cluster = cluster
        self._enabled = enabled
        self._changed: list[Changed] = []

    # --- keeping ----------------------------------------------------------------------------

    def wrote(self, tp: TopicPartition, before: LeaderAndIsr | None, after: LeaderAndIsr) -> None:
        """Take note of a state that was written over another; None: the first one."""
        if not self._enabled:
            return
        if before is None or before.isr != after.isr or tp in self._context.eligible:
            self._changed.append((tp, before, after))

    async def write(self) -> dict[TopicPartition, Eligible | None]:
        """Write the eligible replicas by the states written since; return what changed."""
        outcome: dict[TopicPartition, Eligible | None] = {}
        while self._changed:
            some, self._changed = self._changed[:SLICE], self._changed[SLICE:]
            outcome |= await self._write(some)
        return outcome

    async def _write(self, changed: Sequence[Changed]) -> dict[TopicPartition, Eligible | None]:
        context = self._context
        changed = [
            c
            for c in changed
            if c[0].topic in context.assignments and c[0].topic not in context.deleting
        ]
        smaller = {
            tp.topic: None for tp, before, after in changed if self._may_be(tp, before, after)
        }
        settings = await self._cluster.read_min_isr(list(smaller)) if smaller else {}
        records: dict[TopicPartition, Eligible] = {}
        gone: dict[TopicPartition, None] = {}
        for tp, before, after in changed:
            found = None
            if before is not None and self._may_be(tp, before, after):
                found = next_eligible(context, tp, before, after, settings[tp.topic])
            note_isr(context, tp, () if before is None else before.isr, after.isr)
            records.pop(tp, None)
            gone.pop(tp, None)
            if found is not None:
                # Not written yet; what is decided over it in this very slice may rest on it.
                context.eligible[tp] = found
                records[tp] = found
            elif context.eligible.pop(tp, None) is not None:
                gone[tp] = None
        for tp in records:
            context.eligible.pop(tp, None)
        written = await self._cluster.write_eligible(records) if records else {}
        context.eligible.update(written)
        if gone:
            await self._cluster.delete_eligible(list(gone))
        if len(written) < len(records):
            logger.warning(
                "eligible replicas not written partitions=%d", len(records) - len(written)
            )
        return {**written, **dict.fromkeys(gone)}

    def _may_be(self, tp: TopicPartition, before: LeaderAndIsr | None, after: LeaderAndIsr) -> bool:
        """Return whether anybody may be eligible, before settings are read."""
        return (
            before is not None
            and len(after.isr) < len(self._context.assignment(tp).replicas)
            and (tp in self._context.eligible or not set(before.isr) <= set(after.isr))
        )

    async def remove(self, broker: int, partitions: Sequence[TopicPartition]) -> None:
        """Make a broker ineligible whose logs of partitions cannot be read, or begin again."""
        context = self._context
        left: dict[TopicPartition, Eligible] = {}
        gone = []
        for tp in partitions:
            record = context.eligible.get(tp)
            if record is None or all(b != broker for b, _ in record.broker_epochs):
                continue
            epochs = tuple(pair for pair in record.broker_epochs if pair[0] != broker)
            context.eligible.pop(tp)
            if epochs:
                left[tp] = replace(record, broker_epochs=epochs)
            else:
                gone.append(tp)
        if left:
            context.eligible.update(await self._cluster.write_eligible(left))
        if gone:
            await self._cluster.delete_eligible(gone)

    async def delete_topic(self, topic: str) -> None:
        """Delete what is kept of a topic that is deleted."""
        if any(tp.topic == topic for tp in self._context.eligible):
            await self._cluster.delete_eligible_of_topic(topic)

    # --- asking -----------------------------------------------------------------------------

    async def look(
        self,
        partitions: Sequence[TopicPartition],
        read: States,
        kind: ElectionKind,
        unclean: Mapping[str, bool],
    ) -> dict[TopicPartition, BeyondIsr]:
        """Find out what an election needs to know of replicas besides a live ISR."""
        if kind not in (ElectionKind.OFFLINE, ElectionKind.UNCLEAN):
            return {}
        found = await self._beyond(partitions, read)
        asked: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            allowed = kind is ElectionKind.UNCLEAN or unclean.get(tp.topic, False)
            online = self._online(tp)
            # Of one alone nothing needs to be known.
            if allowed and len(online) > 1 and tp in read and not self._cleanly(tp, read, found):
                for replica in online:
                    asked.setdefault(replica, []).append(tp)
        if asked:
            ends_of = await self._cluster.read_log_ends(asked)
            for tp, ends in ends_of.items():
                found[tp] = replace(found.get(tp, BeyondIsr()), ends=ends)
        return found

    async def _beyond(
        self, partitions: Sequence[TopicPartition], read: States
    ) -> dict[TopicPartition, BeyondIsr]:
        context = self._context
        found: dict[TopicPartition, BeyondIsr] = {}
        for tp in partitions:
            if tp not in context.eligible or tp not in read:
                continue
            state = read[tp].leader_and_isr
            gone = crashed(context, tp, state)
            if any(context.is_online(b, tp) for b in state.isr if b not in gone):
                continue
            others = eligible_for(context, tp, state)
            if others:
                found[tp] = BeyondIsr(others, gone)
        if not found:
            return found
        standing = await self._cluster.read_standing_eligible(
            {tp: context.eligible[tp] for tp in found}
        )
        for tp in [tp for tp in found if tp not in standing]:
            del found[tp], context.eligible[tp]
        return found

    def _online(self, tp: TopicPartition) -> list[int]:
        context = self._context
        return [b for b in context.assignment(tp).replicas if context.is_online(b, tp)]

    def _cleanly(
        self, tp: TopicPartition, read: States, found: Mapping[TopicPartition, BeyondIsr]
    ) -> bool:
        """Return whether any replica can be elected cleanly."""
        isr = read[tp].leader_and_isr.isr
        others = found.get(tp)
        online = self._online(tp)
        if others is None:
            return any(b in isr for b in online)
        return any(b in others.eligible or (b in isr and b not in others.crashed) for b in online)
