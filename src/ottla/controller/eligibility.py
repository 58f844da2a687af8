"""Eligibility: keeps who may lead besides the ISR, and asks for it where an election needs it.

Who may call: `moves`, `failover`, `brokers`, `deletion`. The shell around `eligible`: reads the
settings that count, writes the records, asks replicas where their logs end. Invariants: a record is
written after the state it belongs to, and names that state's version, so that one that was not
written, or not any more, counts for nothing (adr/0007); what cannot be found out makes nobody
eligible. Kafka in ZooKeeper mode has nothing of this.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from ottla.controller import eligible
from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind, LogEnd
from ottla.controller.leadership import BeyondIsr, States
from ottla.model.cluster import Eligible, LeaderAndIsr
from ottla.model.ids import TopicPartition
from ottla.zookeeper.eligible import MinIsr
from ottla.zookeeper.store import Store

logger = logging.getLogger(__name__)

SLICE = 500

LogEnds = Mapping[TopicPartition, Mapping[int, LogEnd]]
AskLogEnds = Callable[[Mapping[int, Sequence[TopicPartition]]], Awaitable[LogEnds]]
"""Asks brokers where their logs of partitions end; who does not answer in time is left out."""
Changed = tuple[TopicPartition, LeaderAndIsr | None, LeaderAndIsr]


class Eligibility:
    """One controller's. Without `min_isr_by_default` nobody is ever eligible."""

    def __init__(
        self,
        context: Context,
        store: Store,
        min_isr_by_default: Callable[[], int] | None = None,
        ask_log_ends: AskLogEnds | None = None,
    ) -> None:
        self._context = context
        self._store = store
        self._default = min_isr_by_default
        self._ask = ask_log_ends
        self._changed: list[Changed] = []

    # --- keeping ----------------------------------------------------------------------------

    def wrote(self, tp: TopicPartition, before: LeaderAndIsr | None, after: LeaderAndIsr) -> None:
        """Take note of a state that was written over another; None: the first one."""
        if self._default is None:
            return
        if before is None or before.isr != after.isr or tp in self._context.eligible:
            self._changed.append((tp, before, after))

    async def keep(self) -> dict[TopicPartition, Eligible | None]:
        """Write down who is eligible by what was written since; return what changed."""
        outcome: dict[TopicPartition, Eligible | None] = {}
        while self._changed:
            some, self._changed = self._changed[:SLICE], self._changed[SLICE:]
            outcome |= await self._keep(some)
        return outcome

    async def _keep(self, changed: Sequence[Changed]) -> dict[TopicPartition, Eligible | None]:
        context = self._context
        changed = [
            c
            for c in changed
            if c[0].topic in context.assignments and c[0].topic not in context.deleting
        ]
        smaller = {
            tp.topic: None for tp, before, after in changed if self._may_be(tp, before, after)
        }
        configs = await self._store.get_min_isr(list(smaller)) if smaller else {}
        records: dict[TopicPartition, Eligible] = {}
        gone: dict[TopicPartition, None] = {}
        for tp, before, after in changed:
            found = None
            if before is not None and self._may_be(tp, before, after):
                config = configs[tp.topic]
                min_isr = self._min_isr(config)
                found = eligible.next_eligible(context, tp, before, after, min_isr, config)
            eligible.note_isr(context, tp, () if before is None else before.isr, after.isr)
            records.pop(tp, None)
            gone.pop(tp, None)
            if found is not None:
                # Not written yet; what is decided over it in this very slice may rest on it.
                context.eligible[tp] = replace(found, zxid=configs[tp.topic].zxid + 1)
                records[tp] = found
            elif context.eligible.pop(tp, None) is not None:
                gone[tp] = None
        for tp in records:
            context.eligible.pop(tp, None)
        fence = context.epoch_zk_version
        written = await self._store.set_eligible(records, fence) if records else {}
        context.eligible.update(written)
        if gone:
            await self._store.delete_eligible(gone, fence)
        if len(written) < len(records):
            logger.warning(
                "eligible replicas not written partitions=%d", len(records) - len(written)
            )
        return {**written, **dict.fromkeys(gone)}

    def _may_be(self, tp: TopicPartition, before: LeaderAndIsr | None, after: LeaderAndIsr) -> bool:
        """Tell whether anybody may be eligible, before settings are read."""
        return (
            before is not None
            and len(after.isr) < len(self._context.assignment(tp).replicas)
            and (tp in self._context.eligible or not set(before.isr) <= set(after.isr))
        )

    def _min_isr(self, config: MinIsr) -> int:
        if config.value is not None:
            return config.value
        return 1 if self._default is None else self._default()

    async def lost(self, broker: int, partitions: Sequence[TopicPartition]) -> None:
        """Take note that a broker's logs of partitions are not to be had, or begin anew."""
        context, fence = self._context, self._context.epoch_zk_version
        left: dict[TopicPartition, Eligible] = {}
        gone = []
        for tp in partitions:
            record = context.eligible.get(tp)
            if record is None or all(b != broker for b, _ in record.lives):
                continue
            lives = tuple(life for life in record.lives if life[0] != broker)
            context.eligible.pop(tp)
            if lives:
                left[tp] = replace(record, lives=lives)
            else:
                gone.append(tp)
        if left:
            context.eligible.update(await self._store.set_eligible(left, fence))
        if gone:
            await self._store.delete_eligible(gone, fence)

    async def forget_topic(self, topic: str) -> None:
        """Delete what is kept of a topic that is deleted."""
        if any(tp.topic == topic for tp in self._context.eligible):
            await self._store.delete_eligible_of_topic(topic, self._context.epoch_zk_version)

    async def load(self) -> None:
        """Read what earlier controllers kept, and what brokers say of their logs."""
        context, store = self._context, self._store
        context.whole = await store.get_whole_brokers(context.brokers.values())
        if self._default is None:
            return
        for topic in await store.get_eligible_topics():
            if topic not in context.assignments:
                await store.delete_eligible_of_topic(topic, context.epoch_zk_version)
        context.eligible = await store.get_eligible(context.topic_ids)

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
        if self._ask is None:
            return found
        asked: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            allowed = kind is ElectionKind.UNCLEAN or unclean.get(tp.topic, False)
            online = self._online(tp)
            # Of one alone nothing needs to be known.
            if allowed and len(online) > 1 and tp in read and not self._cleanly(tp, read, found):
                for replica in online:
                    asked.setdefault(replica, []).append(tp)
        if asked:
            for tp, ends in (await self._ask(asked)).items():
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
        configs = await self._store.get_min_isr(list({tp.topic: None for tp in found}))
        for tp in list(found):
            config = configs[tp.topic]
            if not eligible.stands(context.eligible[tp], self._min_isr(config), config):
                del found[tp]
        return found

    def _online(self, tp: TopicPartition) -> list[int]:
        context = self._context
        return [b for b in context.assignment(tp).replicas if context.is_online(b, tp)]

    def _cleanly(
        self, tp: TopicPartition, read: States, found: Mapping[TopicPartition, BeyondIsr]
    ) -> bool:
        """Tell whether somebody can be elected cleanly."""
        isr = read[tp].leader_and_isr.isr
        others = found.get(tp)
        online = self._online(tp)
        if others is None:
            return any(b in isr for b in online)
        return any(b in others.eligible or (b in isr and b not in others.crashed) for b in online)
