"""Journal schema: what each line of the controller's journal holds, for its writer and its readers.

A decider's vocabulary. Formats: one JSON object per line, tagged by `kind`; partitions are written
`topic-number`; times are milliseconds since 1970. Invariants: a line is valid only as a whole: the
facts of known events are checked together with the line; a reader ignores unknown events and
unknown keys, so keys may be added and none may change its meaning; a key that is left out has its
default.

An event's class carries the event's name. The procedures' inputs are the events together with the
`EffectPerformed` records: what was read or written (`controller.cluster_state`) and what came of
it. From these `ottla history replay --diff` runs whole terms again.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ottla.model.cluster import BrokerInfo, LeaderAndIsr, ReplicaAssignment, TopicIdNote
from ottla.model.ids import TopicPartition
from ottla.model.rules import Rule, rule_named

JOURNAL_NAME = "ottla-controller-journal.jsonl"
"""The file's name, in the first log directory of each broker."""
GZIP = ".gz"
SET_ASIDE = re.compile(r"\.(\d{1,17})(\.gz)?$")
"""What follows the name of a log file that was set aside: its moment in UTC to the millisecond
(`.20261124113000123`; the first group, a number that grows with time) and `.gz` if compressed.
Before there were several, the one file set aside was called `.1`."""

EVERY_TOPIC = "every topic"

Replicas = tuple[int, ...]
Registration = tuple[int, int, str | None]
"""A broker's id, epoch (czxid) and rack."""


def _none() -> Any:
    """Return an empty default that is written all the same."""
    return ()


# --- lines ------------------------------------------------------------------------------------


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """What every line says: wall clock, controller id, controller epoch, id of the event."""

    ts: int = -1
    controller: int = -1
    epoch: int = -1
    cause: int = 0


class EventLine(Line, frozen=True, kw_only=True, tag="event", omit_defaults=True):
    """An event is handled; `inputs` are the facts that were read for it (a Struct below)."""

    event: str
    inputs: Any = None


class SnapshotLine(Line, frozen=True, kw_only=True, tag="snapshot", omit_defaults=True):
    """A part of the context; `facts` is a `ClusterFacts` or a `TopicFacts`."""

    part: str
    facts: Any


class StateChangeLine(Line, frozen=True, kw_only=True, tag="states", omit_defaults=True):
    """Partitions, or replicas (`topic-number on broker`), went from state to state."""

    before: str
    after: str
    subjects: list[str]


class DecisionLine(Line, frozen=True, kw_only=True, tag="decision", omit_defaults=True):
    """One partition's decision with its inputs, see `plan.Decision`; `outcome`: what became of it.

    `election` is the decision's kind. `outcome` is `written`, `decided again` (the state had
    changed meanwhile), `failed: REASON` or `refused: ERROR`.
    """

    partition: str
    election: str
    rule: str
    """The value of a `Rule`, or why a leader's proposal was refused."""
    before: LeaderAndIsr | None
    after: LeaderAndIsr | None
    replicas: Replicas
    adding: Replicas = msgspec.field(default_factory=_none)
    removing: Replicas = msgspec.field(default_factory=_none)
    online: Replicas = msgspec.field(default_factory=_none)
    shutting_down: Replicas = msgspec.field(default_factory=_none)
    rejected: tuple[tuple[int, str], ...] = msgspec.field(default_factory=_none)
    eligible: Replicas = ()
    crashed: Replicas = ()
    ends: tuple[tuple[int, int, int], ...] = ()
    broker: int | None = None
    asked: LeaderAndIsr | None = None
    version: int | None = None
    stale: Replicas = ()
    unsure: Replicas = ()
    outcome: str

    @property
    def assignment(self) -> ReplicaAssignment:
        return ReplicaAssignment(self.replicas, self.adding, self.removing)

    @property
    def decided_by(self) -> Rule | None:
        return rule_named(self.rule)

    @property
    def written(self) -> bool:
        return self.outcome == "written" and self.after is not None


class RequestLine(Line, frozen=True, kw_only=True, tag="told", omit_defaults=True):
    """A request was queued for a broker; `what` sums it up."""

    broker: int
    api: int
    what: str


class DroppedLine(Line, frozen=True, kw_only=True, tag="dropped", omit_defaults=True):
    """So many lines are missing here: the controller decided faster than the disk wrote."""

    lines: int


AnyLine = EventLine | SnapshotLine | StateChangeLine | DecisionLine | RequestLine | DroppedLine


# --- events -----------------------------------------------------------------------------------


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The inputs of an event line; the class is the event's name."""

    @property
    def inputs(self) -> Any:
        """Return what the line's `inputs` hold."""
        return self

    @classmethod
    def read(cls, inputs: Any) -> "Event":
        """Return a line's inputs; msgspec.ValidationError if they do not fit."""
        return msgspec.convert(inputs, cls, str_keys=True)


STEPS = frozenset(
    {
        "ReassignmentStep", "ReassignmentRefused", "Undecided", "TopicDeleted", "EffectPerformed",
        "StatesRead", "EligibleChanged",
    }
)  # fmt: skip
"""Events that are steps of what another event led to: no reason for a decision."""
IN_WORDS: Mapping[str, str] = {
    "Resigned": "",
    "ProcessGone": "",
    "BrokersChanged": "brokers came or went",
    "BrokerModified": "a broker registered other endpoints",
    "TopicsChanged": "the topic was created",
    "PartitionsModified": "the topic grew",
    "TopicDeletionsRequested": "a client requested the deletion of topics",
    "DeletionHalted": "",
    "ReplicaDeletionFailed": "a broker could not delete replicas",
    "StopReplicaResponse": "a broker reported which replicas it deleted",
    "ShutdownRefused": "a controlled shutdown was refused",
    "ReassignmentRequested": "a client requested a reassignment (znode)",
    "ReassignmentsAsked": "a client requested a reassignment",
    "RestartedUnseen": "a broker had restarted while there was no controller",
    "IsrChangesNotified": "leaders wrote ISRs by themselves",
    "PartitionChangeAsked": "a leader changed its ISR (AlterPartition)",
    "PartitionChangeRefused": "an AlterPartition was refused",
    "LeaderBalanceDue": "leaderships were out of balance",
    "LeaderAndIsrAnswered": "a broker could not host replicas",
    "ReplicasReturned": "a broker hosts replicas again that it could not host",
    "LogDirsFailed": "a broker said that a log directory failed",
    "BrokerFellBehind": "a broker was sent everything anew",
    "UncleanElectionEnabled": "unclean elections were allowed",
}
"""Events as reasons, without what they hold; "" where another event of the same cause says it."""


class Elected(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A term begins; `removed`: why brokers' registrations had been removed, by broker."""

    epoch: int = -1
    controller: int = -1
    removed: dict[int, str] = {}


class Resigned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A term ends."""

    reason: str


class BrokersChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Registrations came or went; `known` are those of before."""

    present: tuple[Registration, ...]
    known: tuple[Registration, ...] | None = None
    shutting_down: Replicas = msgspec.field(default_factory=_none)
    new: Replicas = msgspec.field(default_factory=_none)
    bounced: Replicas = msgspec.field(default_factory=_none)
    dead: Replicas = msgspec.field(default_factory=_none)


class ProcessGone(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A broker's process is gone, by this evidence: its registration is to be removed."""

    broker: int
    broker_epoch: int
    evidence: str


class BrokerModified(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A registration has other endpoints."""

    broker: int
    endpoints: list[str]


class TopicsChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Topics came (with the replicas of each partition, and their ids) or went."""

    new: dict[str, dict[int, Replicas]]
    gone: list[str]
    ids: dict[str, str] = msgspec.field(default_factory=dict)


class PartitionsModified(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A topic has more partitions."""

    topic: str
    added: dict[int, Replicas]


class TopicDeletionsRequested(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Topics whose deletion is requested, known or not."""

    topics: list[str]


class DeletionHalted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Topics whose deletion waits."""

    topics: list[str]
    reason: str = ""


class TopicDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Nothing is left of a topic."""

    topic: str


class ReplicaDeletionFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A broker could not delete replicas."""

    broker: int
    partitions: list[str]


class StopReplicaResponse(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A broker answered a StopReplica that was to delete replicas: which are deleted, which not."""

    broker: int
    deleted: list[str]
    failed: list[str]


class ShutdownAsked(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A broker requests its controlled shutdown."""

    broker: int


class ShutdownRefused(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A controlled shutdown was requested with the broker epoch of an earlier registration."""

    broker: int
    broker_epoch: int
    known_epoch: int


class ReassignmentRequested(Event, frozen=True, kw_only=True, omit_defaults=True):
    """/admin/reassign_partitions requests these targets (None: back to the original replicas)."""

    targets: dict[str, Replicas | None]

    @property
    def inputs(self) -> Any:
        return self.targets

    @classmethod
    def read(cls, inputs: Any) -> "ReassignmentRequested":
        return cls(targets=msgspec.convert(inputs, dict[str, Replicas | None]))


class ReassignmentsAsked(Event, frozen=True, kw_only=True, omit_defaults=True):
    """AlterPartitionReassignments requests these targets (None: back to the original replicas)."""

    targets: dict[str, Replicas | None]

    @property
    def inputs(self) -> Any:
        return self.targets

    @classmethod
    def read(cls, inputs: Any) -> "ReassignmentsAsked":
        return cls(targets=msgspec.convert(inputs, dict[str, Replicas | None]))


class ReassignmentStep(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A reassignment begins, waits, completes or is done."""

    partition: str
    step: str
    original: Replicas | None = msgspec.field(default=None, name="from")
    """The replicas before it begins."""
    replicas: Replicas
    adding: Replicas
    removing: Replicas
    isr: Replicas | msgspec.UnsetType | None = msgspec.UNSET
    """As it was read; None: there was no state; unset where it begins."""

    @property
    def assignment(self) -> ReplicaAssignment:
        return ReplicaAssignment(self.replicas, self.adding, self.removing)


class ReassignmentRefused(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A target was not acceptable."""

    partition: str
    target: Replicas | None
    replicas: Replicas
    adding: Replicas
    removing: Replicas
    isr: Replicas
    live: Replicas
    reason: str
    min_isr: int = 1
    """min.insync.replicas, where a replica in sync would have been dropped"""

    @property
    def assignment(self) -> ReplicaAssignment:
        return ReplicaAssignment(self.replicas, self.adding, self.removing)


class RestartedUnseen(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Replicas (partition, broker) whose broker restarted while there was no controller."""

    replicas: tuple[tuple[str, int], ...]


class IsrChangesNotified(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Leaders of older versions wrote ISRs by themselves; `states` are those read."""

    partitions: list[str]
    states: dict[str, LeaderAndIsr] = msgspec.field(default_factory=dict)


class PartitionChangeAsked(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A leader requests ISRs (AlterPartition); refused ones alone have no such line."""

    broker: int
    broker_epoch: int
    version: int
    partitions: dict[str, LeaderAndIsr]
    """What the leader wants written; `partition_epoch` is the one it knows."""
    epochs: dict[str, dict[int, int]] = {}
    """The broker epochs of the ISR's members, of versions that name them."""


class PartitionChangeRefused(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An AlterPartition was refused as a whole."""

    broker: int
    broker_epoch: int
    known_epoch: int | None
    error: str


class LeaderBalanceDue(Event, frozen=True, kw_only=True, omit_defaults=True):
    """How much of a broker's share is led by others; `able` of them can be led by it."""

    broker: int
    elsewhere: int
    of: int
    limit: float
    due: bool
    able: int = msgspec.field(default_factory=lambda: 0)


class LeaderAndIsrAnswered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A broker answered that it cannot host replicas (`offline`); `online` are there again."""

    broker: int
    offline: list[str]
    online: list[str] = []


class ReplicasReturned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A broker answered that it hosts replicas again that it could not host."""

    broker: int
    online: list[str]


class LogDirsFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Brokers report a failed log directory."""

    brokers: list[int]


class BrokerFellBehind(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A broker is sent everything again: requests to it were dropped, or failed there."""

    broker: int


class UncleanElectionEnabled(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Unclean elections are allowed now for a topic, or for `every topic`."""

    topic: str


class PreferredElectionRequested(Event, frozen=True, kw_only=True, omit_defaults=True):
    """/admin/preferred_replica_election requests elections."""

    partitions: list[str]


class ElectionsAsked(Event, frozen=True, kw_only=True, omit_defaults=True):
    """ElectLeaders requests elections of one kind."""

    kind: str = msgspec.field(default_factory=lambda: "preferred")
    partitions: list[str]


class Undecided(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Why nothing could be decided of partitions."""

    reasons: dict[str, str]

    @property
    def inputs(self) -> Any:
        return self.reasons

    @classmethod
    def read(cls, inputs: Any) -> "Undecided":
        return cls(reasons=msgspec.convert(inputs, dict[str, str]))


class EffectPerformed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A read or write of the controller (`controller.cluster_state`), its result or its error.

    Those whose results are in other lines are recorded only where they failed.
    """

    effect: str
    arguments: Any = None
    result: Any = msgspec.field(default=None, name="answer")
    error: str | None = None
    """The class of the error, a colon, its text."""


class StatesRead(Event, frozen=True, kw_only=True, omit_defaults=True):
    """States that were read, are not what was known, and led to no decision.

    Each is (controller epoch, state), or None where there was none.
    """

    states: dict[str, tuple[int, LeaderAndIsr] | None]


class EligibleChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Who may lead besides the ISR changed: partition -> brokers."""

    partitions: dict[str, list[int]]


# --- parts of a snapshot ----------------------------------------------------------------------


class ClusterFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A snapshot's part about brokers. `reason` is `elected` at the beginning of a term."""

    brokers: tuple[Registration, ...]
    reason: str = ""
    shutting_down: Replicas = msgspec.field(default_factory=_none)
    offline_dirs: dict[int, list[str]] = msgspec.field(default_factory=dict)
    deleting: list[str] = msgspec.field(default_factory=list)
    whole: Replicas = msgspec.field(default_factory=_none)
    voiding: Replicas = ()
    unstated: Replicas = msgspec.field(default_factory=_none)
    deletion_started: list[str] = []
    deletion_ineligible: list[str] = []
    reassigning: list[str] = []
    broker_epochs: dict[int, int] = msgspec.field(default_factory=dict, name="lives")
    """The broker epoch each broker was last seen alive with, dead ones included."""
    delete_topics: bool | None = None
    """Settings of the procedures; None in journals that do not hold the procedures' inputs."""
    eligible_replicas: bool = False
    registered: list[BrokerInfo] | None = None
    """The registrations as a whole; None in journals in which only procedures are recorded and not
    all that their callers read and write."""


class PartitionFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A partition in a snapshot. `zxid`: of the last write of its state, as a failover read it."""

    replicas: Replicas
    adding: Replicas = ()
    removing: Replicas = ()
    leader: int | None = None
    leader_epoch: int = msgspec.field(default_factory=lambda: 0)
    isr: Replicas = msgspec.field(default_factory=_none)
    partition_epoch: int = msgspec.field(default_factory=lambda: 0)
    controller_epoch: int = msgspec.field(default_factory=lambda: 0)
    recovery_state: int = 0
    state: str | None = None
    zxid: int | None = None
    created: int | None = None
    """The zxid at which the state was created, as a failover read it, where the leader is gone."""
    eligible: tuple[tuple[int, int], ...] = ()
    eligible_at: int = -1
    eligible_by: tuple[int, ...] | None = None
    """The record's min.insync.replicas and the version of its znode."""
    joined: Replicas = ()
    """Who joined the ISR under this controller and has not registered since."""
    former_lives: dict[int, int] = {}
    """Broker -> the partition epoch in which a registration of it ended outside the ISR."""
    replica_states: dict[int, str] = {}
    """The states of replicas that are not OnlineReplica."""

    @property
    def assignment(self) -> ReplicaAssignment:
        return ReplicaAssignment(self.replicas, self.adding, self.removing)

    @property
    def leadership(self) -> LeaderAndIsr | None:
        if self.leader is None:
            return None
        return LeaderAndIsr(
            self.leader, self.leader_epoch, self.isr, self.partition_epoch, self.recovery_state
        )


class TopicFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A snapshot's part about a topic (`id` as text), or a slice of its partitions."""

    topic: str
    id: str
    partitions: dict[int, PartitionFacts]
    note: TopicIdNote | None = None
    """What /ottla/topic_ids says of the topic, or is to say."""


EVENTS: Mapping[str, type[Event]] = {kind.__name__: kind for kind in Event.__subclasses__()}
PARTS: Mapping[str, type[ClusterFacts] | type[TopicFacts]] = {
    "cluster": ClusterFacts,
    "topic": TopicFacts,
}


class DamagedLineError(Exception):
    """A line does not fit the schema; the text says why."""


_decoder = msgspec.json.Decoder(AnyLine)


def read_line(raw: bytes | str) -> tuple[AnyLine, Any]:
    """Return a line and its facts; DamagedLineError if it does not fit.

    The facts are the `Event` of an event line, the `ClusterFacts` or `TopicFacts` of a snapshot;
    None for unknown events and parts, and for other lines.
    """
    try:
        line = _decoder.decode(raw)
        facts: Any = None
        if isinstance(line, EventLine):
            if not isinstance(line.inputs, dict | None):
                raise DamagedLineError(f"the inputs of {line.event} are no object")
            if line.event in EVENTS:
                facts = EVENTS[line.event].read(line.inputs or {})
            for text in _partitions_of(facts):
                partition_of(text)
        elif isinstance(line, DecisionLine):
            partition_of(line.partition)
        elif isinstance(line, SnapshotLine) and line.part in PARTS:
            facts = msgspec.convert(line.facts, PARTS[line.part], str_keys=True)
            for text in _partitions_of(facts):
                partition_of(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DamagedLineError(str(error) or type(error).__name__) from error
    return line, facts


def _partitions_of(facts: Any) -> list[str]:
    """Return the partitions that facts name, where readers rely on them."""
    if isinstance(facts, ReassignmentStep | ReassignmentRefused):
        return [facts.partition]
    if isinstance(facts, RestartedUnseen):
        return [text for text, _ in facts.replicas]
    if isinstance(facts, IsrChangesNotified):
        return [*facts.partitions, *facts.states]
    if isinstance(facts, LeaderAndIsrAnswered):
        return [*facts.offline, *facts.online]
    if isinstance(facts, ClusterFacts):
        return [*facts.reassigning, *(tp for tps in facts.offline_dirs.values() for tp in tps)]
    return []


def partition_of(text: str) -> TopicPartition:
    """Read `flights-0`; the topic may hold dashes. ValueError if it is no such name."""
    topic, dash, number = text.rpartition("-")
    if not (dash and topic and number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is no TOPIC-PARTITION such as flights-0")
    return TopicPartition(topic, int(number))
