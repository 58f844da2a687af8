"""Snapshot: the context, written into the journal slice by slice.

Who may call: `failover`, once everything is read; `loop`, when the journal goes on in a new file.
Invariants: it runs inside one event, so the context stands still meanwhile, and what follows in
the journal is what changed it; a line holds at most a slice of partitions, so that no step takes
long.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.controller.moves import slices, yield_to_loop
from ottla.controller.term import ControllerTerm
from ottla.model.cluster import BrokerInfo
from ottla.model.ids import TopicPartition, uuid_to_text


async def take(
    term: ControllerTerm, reason: str, written_at: Mapping[TopicPartition, int] | None = None
) -> None:
    """Write down all that is known. `written_at`: the zxid each state was last written at."""
    context, journal, cause = term.context, term.journal, term.cause
    offline = {str(b): [str(tp) for tp in tps] for b, tps in context.offline_dirs.items() if tps}
    size = journal.snapshot(
        cause,
        "cluster",
        {
            "reason": reason,
            "brokers": broker_facts(context.brokers.values()),
            "shutting_down": sorted(context.shutting_down),
            "offline_dirs": offline,
            "deleting": list(context.deleting),
            "whole": sorted(context.whole),
        },
    )
    for topic in context.topics:
        topic_id = uuid_to_text(context.topic_id(topic))
        # A topic without partitions is one all the same.
        for some in list(slices(context.partitions_of(topic))) or [()]:
            facts = {str(tp.partition): _partition_facts(term, tp, written_at) for tp in some}
            size += journal.snapshot(
                cause, "topic", {"topic": topic, "id": topic_id, "partitions": facts}
            )
            await yield_to_loop()
    journal.snapshot_ended(size)


def broker_facts(brokers: Any) -> list[tuple[int, int, str | None]]:
    """Return registrations as journal lines hold them: [id, epoch, rack] each."""
    found: Sequence[BrokerInfo] = list(brokers)
    return [(b.id, b.epoch, b.rack) for b in found]


def _partition_facts(
    term: ControllerTerm, tp: TopicPartition, written_at: Mapping[TopicPartition, int] | None
) -> dict[str, Any]:
    context = term.context
    assignment = context.assignment(tp)
    known = context.leadership.get(tp)
    facts: dict[str, Any] = {"replicas": assignment.replicas}
    if assignment.being_reassigned:
        facts["adding"], facts["removing"] = assignment.adding, assignment.removing
    if known is not None:
        state = known.leader_and_isr
        facts["leader"] = state.leader
        facts["leader_epoch"] = state.leader_epoch
        facts["isr"] = state.isr
        facts["partition_epoch"] = state.partition_epoch
        facts["controller_epoch"] = known.controller_epoch
        if state.recovery_state:
            facts["recovery_state"] = state.recovery_state
    eligible = context.eligible.get(tp)
    if eligible is not None:
        facts["eligible"] = eligible.lives
        facts["eligible_at"] = eligible.partition_epoch
    if written_at is None:
        facts["state"] = context.partition_states[tp].value
    elif tp in written_at:
        facts["zxid"] = written_at[tp]
    return facts
