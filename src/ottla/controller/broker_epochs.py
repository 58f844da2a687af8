"""Broker epoch changes: which brokers came, went, or restarted.

A decider. Invariants: a registration's czxid is the broker's epoch, so a higher one means that the
broker died in between, even if no one saw it gone (R8, F11). Kafka: the comparisons in
`KafkaController.processBrokerChange`; there is no counterpart
there for restarts without a controller.
"""

from collections.abc import Iterable, Mapping

import msgspec

from ottla.controller.context import Context
from ottla.controller.eligibility import eligible_for
from ottla.controller.states import PartitionReplica
from ottla.model.cluster import BrokerInfo
from ottla.model.ids import TopicPartition


class BrokerChange(msgspec.Struct, frozen=True):
    """How the brokers there are differ from those known."""

    new: tuple[BrokerInfo, ...]
    bounced: tuple[BrokerInfo, ...]
    dead: tuple[int, ...]


def compare(context: Context, present: Iterable[BrokerInfo]) -> BrokerChange:
    """Tell new, bounced (a higher epoch than the one known) and dead brokers."""
    by_id = {b.id: b for b in present}
    known = context.brokers
    return BrokerChange(
        tuple(b for i, b in sorted(by_id.items()) if i not in known),
        tuple(b for i, b in sorted(by_id.items()) if i in known and b.epoch > known[i].epoch),
        tuple(i for i in sorted(known) if i not in by_id),
    )


def note_former_lives(context: Context, written_at: Mapping[TopicPartition, int]) -> None:
    """Note live replicas outside the ISR that registered after their state was last written.

    It is not known whether they had another registration since then, which a leader may still name.
    """
    for tp, zxid in written_at.items():
        state = context.leadership[tp].leader_and_isr
        for replica in context.assignment(tp).replicas:
            broker = context.brokers.get(replica)
            if broker is not None and replica not in state.isr and broker.epoch > zxid:
                context.former_lives.setdefault(replica, {})[tp] = state.partition_epoch


def restarted_unseen(
    context: Context, written_at: Mapping[TopicPartition, int]
) -> list[PartitionReplica]:
    """Return the in-sync replicas whose broker registered after their state was last written.

    No controller has handled the end of their earlier registration: they may lack records that were
    acknowledged, and one that leads would lead on in the same leader epoch. Where no member of the
    ISR is known to have lived on, and no other replica has all that was acknowledged (adr/0007), no
    replica is better than another, and none is returned.
    """
    found = []
    for tp, zxid in written_at.items():
        if tp.topic in context.deleting:
            continue
        isr = context.leadership[tp].leader_and_isr.isr
        live = [b for b in isr if context.is_online(b, tp)]
        restarted = [b for b in live if context.brokers[b].epoch > zxid]
        if len(restarted) < len(live):
            found += [PartitionReplica(tp, b) for b in restarted]
        elif restarted and any(
            context.is_online(b, tp)
            for b in eligible_for(context, tp, context.leadership[tp].leader_and_isr)
        ):
            found += [PartitionReplica(tp, b) for b in restarted if b not in context.clean_brokers]
    return found
