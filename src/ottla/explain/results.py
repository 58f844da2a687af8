"""What `why`, `replay` and `timeline` print as JSON, and what the console shows of it.

Times are milliseconds since 1970.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct
from msgspec.structs import asdict

from ottla.explain.cluster_state import ClusterState, Part
from ottla.explain.findings import Finding
from ottla.explain.history import HistoryEntry, PartitionHistory
from ottla.explain.journals import Damage
from ottla.explain.spans import Timeline, gaps
from ottla.explain.timestamps import time_text
from ottla.model.cluster import LeaderAndIsr
from ottla.model.ids import Partition

if TYPE_CHECKING:  # it brings the controller's rules, which only a replay needs
    from ottla.explain.replay import Replay


class DamagedLine(Struct):
    file: str
    line: int
    problem: str


class Skipped(Struct, kw_only=True):
    """What was skipped of the journals."""

    damaged_lines: int
    damaged: list[DamagedLine]
    dropped_lines: int


def _skipped(damage: Damage) -> dict[str, Any]:
    return {
        "damaged_lines": damage.count,
        "damaged": [DamagedLine(*line) for line in damage.named],
        "dropped_lines": damage.missing,
    }


class Leadership(Struct):
    leader: int | None
    leader_epoch: int
    isr: list[int]
    partition_epoch: int
    recovery_state: int

    @classmethod
    def of(cls, state: LeaderAndIsr | None) -> Self | None:
        if state is None:
            return None
        leader = state.leader if state.leader >= 0 else None
        epochs = (state.partition_epoch, state.recovery_state)
        return cls(leader, state.leader_epoch, list(state.isr), *epochs)


class PartState(Struct):
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    leadership: Leadership | None
    state: str

    @classmethod
    def of(cls, part: Part) -> Self:
        assigned = part.assignment
        return cls(
            list(assigned.replicas), list(assigned.adding), list(assigned.removing),
            Leadership.of(part.leadership), part.state,
        )  # fmt: skip


# --- why --------------------------------------------------------------------------------------


class Rejected(Struct):
    replica: int
    reason: str


class Decision(Struct):
    """One thing that happened to a partition, and why."""

    time_ms: int
    controller: int
    controller_epoch: int
    cause: int
    what: str
    before: Leadership | None
    after: Leadership | None
    because: str
    how: str
    election: str
    rule: str
    rejected: list[Rejected]
    outcome: str
    line: str

    @classmethod
    def of(cls, entry: HistoryEntry) -> Self:
        return cls(
            entry.ts, entry.controller, entry.epoch, entry.cause, entry.what,
            Leadership.of(entry.before), Leadership.of(entry.after), entry.because, entry.how,
            entry.election, entry.rule, [Rejected(*one) for one in entry.rejected],
            entry.outcome, entry.where,
        )  # fmt: skip

    @property
    def time(self) -> str:
        return time_text(self.time_ms)


class History(Skipped, kw_only=True):
    """A partition's history: the state at the end, and all entries."""

    topic: str
    partition: int
    topic_id: str | None
    at_ms: int | None
    now: PartState | None
    entries: list[Decision]


def history_of(history: PartitionHistory, damage: Damage, at_ms: int | None = None) -> History:
    part = history.cluster.part(history.tp)
    topic = history.cluster.topics.get(history.tp.topic)
    return History(
        topic=history.tp.topic,
        partition=history.tp.partition,
        topic_id=topic.id if part is not None and topic is not None else None,
        at_ms=at_ms,
        now=None if part is None else PartState.of(part),
        entries=[Decision.of(entry) for entry in history.entries],
        **_skipped(damage),
    )


# --- replay -----------------------------------------------------------------------------------


class NumberedPart(PartState, kw_only=True):
    partition: int


class TopicState(Struct):
    topic: str
    topic_id: str
    partitions: list[NumberedPart]


class Cluster(Skipped, kw_only=True):
    """The cluster as the journals have it."""

    time_ms: int
    controller: int | None
    controller_epoch: int
    in_office: bool
    brokers: list[int]
    shutting_down: list[int]
    deleting: list[str]
    topics: list[TopicState]


def cluster_of(cluster: ClusterState, damage: Damage) -> Cluster:
    return Cluster(
        time_ms=cluster.ts,
        controller=cluster.controller,
        controller_epoch=cluster.epoch,
        in_office=cluster.active,
        brokers=sorted(cluster.brokers),
        shutting_down=sorted(cluster.shutting_down),
        deleting=list(cluster.deleting),
        topics=[
            TopicState(
                name,
                topic.id,
                [
                    NumberedPart(**asdict(PartState.of(part)), partition=number)
                    for number, part in sorted(topic.partitions.items())
                ],
            )
            for name, topic in sorted(cluster.topics.items())
        ],
        **_skipped(damage),
    )


class DecidedOtherwise(Struct):
    """A decision that the installed rules would not make as the journal has it."""

    subject: str
    decider: str
    time_ms: int
    controller_epoch: int
    cause: int
    line: str
    journal: str
    now: str


class Differences(Skipped, kw_only=True):
    """What would be decided otherwise, and how much was decided again, by kind."""

    decided_again: dict[str, int]
    unknown: dict[str, int]
    differences: list[DecidedOtherwise]


def differences_of(replayed: "Replay", damage: Damage) -> Differences:
    return Differences(
        decided_again=dict(replayed.checked),
        unknown=dict(replayed.unknown),
        differences=[
            DecidedOtherwise(
                d.subject, d.decider, d.ts, d.epoch, d.cause, d.where, d.journal, d.now
            )
            for d in replayed.differences
        ],
        **_skipped(damage),
    )


# --- timeline ---------------------------------------------------------------------------------


class ControllerSpan(Struct):
    controller: int
    controller_epoch: int
    from_ms: int
    until_ms: int | None


class BrokerChange(Struct):
    broker: int
    from_ms: int
    state: str


class PartitionChange(Partition, frozen=True):
    from_ms: int
    leader: int | None
    leader_epoch: int | None
    isr: list[int]
    replicas: list[int]
    why: str


class LeaderGap(Partition, frozen=True):
    from_ms: int
    until_ms: int | None
    leader_may_be_dead: bool
    why: str


class TimelineEvent(Struct):
    time_ms: int
    what: str


class DrawnTimeline(Skipped, kw_only=True):
    """What a timeline draws; each change holds until the next of its broker or partition."""

    from_ms: int
    until_ms: int
    controllers: list[ControllerSpan]
    brokers: list[BrokerChange]
    partitions: list[PartitionChange]
    without_leader: list[LeaderGap]
    events: list[TimelineEvent]
    left_out: int
    findings: list[Finding]


def timeline_of(
    drawn: Timeline, timeouts: Mapping[int, int], damage: Damage, found: list[Finding]
) -> DrawnTimeline:
    return DrawnTimeline(
        from_ms=drawn.start,
        until_ms=drawn.end,
        controllers=[ControllerSpan(t.controller, t.epoch, t.start, t.end) for t in drawn.terms],
        brokers=[
            BrokerChange(broker, change.ts, change.state)
            for broker, changes in sorted(drawn.brokers.items())
            for change in changes
        ],
        partitions=[
            PartitionChange(*tp, change.ts, None, None, [], [], change.why)
            if (now := change.now) is None
            else PartitionChange(
                *tp, change.ts, now.leader if now.leader >= 0 else None, now.epoch,
                list(now.isr), list(now.replicas), change.why,
            )
            for tp, changes in sorted(drawn.changes.items())
            for change in changes
        ],
        without_leader=[
            LeaderGap(*gap.tp, gap.start, gap.end, gap.dying, gap.why)
            for gap in gaps(drawn, timeouts)
        ],
        events=[TimelineEvent(event.ts, event.what) for event in drawn.events],
        left_out=drawn.left_out,
        findings=found,
        **_skipped(damage),
    )  # fmt: skip
