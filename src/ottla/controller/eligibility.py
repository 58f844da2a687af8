"""Eligibility: keeps who may lead besides the ISR, and asks for it where an election needs it.

A decider. The procedures around `eligible`: read the settings that count, write the records, ask
replicas where their logs end. Invariants: a record is written after the state it belongs to, and
names that state's version, so that one that was not written, or not any more, counts for nothing
(adr/0007); what cannot be found out makes no replica eligible; a record is written before any
leader is sent the state it belongs to, and one that a leader deleted is not written again. Kafka
has this only in KRaft mode (KIP-966).
"""

import logging
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ottla.controller import eligible
from ottla.controller.cluster_state import ClusterState
from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind
from ottla.controller.found import States
from ottla.controller.leadership import BeyondIsr
from ottla.model.cluster import Eligible, LeaderAndIsr
from ottla.model.ids import TopicPartition

logger = logging.getLogger(__name__)

SLICE = 500

Changed = tuple[TopicPartition, LeaderAndIsr | None, LeaderAndIsr]


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
                found = eligible.next_eligible(context, tp, before, after, settings[tp.topic])
            eligible.note_isr(context, tp, () if before is None else before.isr, after.isr)
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
        """Make a broker ineligible whose logs of partitions cannot be read, or begin anew."""
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
            crashed = eligible.crashed(context, tp, state)
            if any(context.is_online(b, tp) for b in state.isr if b not in crashed):
                continue
            others = eligible.eligible_for(context, tp, state)
            if others:
                found[tp] = BeyondIsr(others, crashed)
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
