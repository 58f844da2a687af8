"""Lines: what a journal holds, typed; a line that does not fit is damaged, and says how.

A decider: text in, values out. Who may call: this room. Invariants: a line is believed only as a
whole: the facts of the events that the room works with are checked together with the line; unknown
events and unknown keys are let through, so that a later version's journal can still be read. The
writer is `controller.journal`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ottla.model.cluster import LeaderAndIsr, ReplicaAssignment
from ottla.model.ids import TopicPartition

Replicas = tuple[int, ...]
Registration = tuple[int, int, str | None]
"""A broker's id, epoch (czxid) and rack."""


class State(msgspec.Struct, frozen=True):
    """A leadership."""

    leader: int
    leader_epoch: int
    isr: Replicas
    partition_epoch: int = 0
    recovery_state: int = 0

    def value(self) -> LeaderAndIsr:
        return LeaderAndIsr(
            self.leader, self.leader_epoch, self.isr, self.partition_epoch, self.recovery_state
        )


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every line says; -1 where it does not."""

    ts: int = -1
    controller: int = -1
    epoch: int = -1
    cause: int = 0


class Happened(Line, frozen=True, kw_only=True, tag="event"):
    """An event is handled."""

    event: str
    inputs: dict[str, Any] = {}


class SnapshotPart(Line, frozen=True, kw_only=True, tag="snapshot"):
    """A part of the context."""

    part: str
    facts: dict[str, Any]


class Moved(Line, frozen=True, kw_only=True, tag="states"):
    """Partitions or replicas went from state to state."""

    before: str
    after: str
    subjects: list[str]


class Decided(Line, frozen=True, kw_only=True, tag="decision"):
    """One partition's decision, with its inputs."""

    partition: str
    election: str
    rule: str
    before: State | None
    after: State | None
    replicas: Replicas
    outcome: str
    adding: Replicas = ()
    removing: Replicas = ()
    online: Replicas = ()
    shutting_down: Replicas = ()
    rejected: tuple[tuple[int, str], ...] = ()
    broker: int | None = None
    asked: State | None = None
    version: int | None = None
    eligible: Replicas = ()
    crashed: Replicas = ()
    ends: tuple[tuple[int, int, int], ...] = ()
    stale: Replicas = ()
    unsure: Replicas = ()

    @property
    def assignment(self) -> ReplicaAssignment:
        return ReplicaAssignment(self.replicas, self.adding, self.removing)

    @property
    def written(self) -> bool:
        return self.outcome == "written" and self.after is not None


class Told(Line, frozen=True, kw_only=True, tag="told"):
    """A request was queued for a broker."""

    broker: int
    api: int
    what: str


class Dropped(Line, frozen=True, kw_only=True, tag="dropped"):
    """So many lines are missing here: the controller decided faster than the disk wrote."""

    lines: int


# --- the facts of events ------------------------------------------------------------------------


class BrokersChanged(msgspec.Struct, frozen=True):
    """Registrations came or went."""

    present: tuple[Registration, ...]
    new: Replicas
    bounced: Replicas
    dead: Replicas
    known: tuple[Registration, ...] | None = None
    shutting_down: Replicas = ()


class TopicsChanged(msgspec.Struct, frozen=True):
    """Topics came or went."""

    new: dict[str, dict[int, Replicas]]
    gone: list[str]
    ids: dict[str, str] = {}


class PartitionsModified(msgspec.Struct, frozen=True):
    """A topic grew."""

    topic: str
    added: dict[int, Replicas]


class Topics(msgspec.Struct, frozen=True):
    """Topics whose deletion was asked for, or halted (then with the reason)."""

    topics: list[str]
    reason: str = ""


class OneTopic(msgspec.Struct, frozen=True):
    """A topic."""

    topic: str


class OneBroker(msgspec.Struct, frozen=True):
    """A broker."""

    broker: int


class Resigned(msgspec.Struct, frozen=True):
    """The end of a term."""

    reason: str


class ReassignmentStep(msgspec.Struct, frozen=True):
    """A reassignment begins, waits, completes or is done."""

    partition: str
    step: str
    replicas: Replicas
    adding: Replicas
    removing: Replicas
    isr: Replicas | None = None

    @property
    def assignment(self) -> ReplicaAssignment:
        return ReplicaAssignment(self.replicas, self.adding, self.removing)


class ReassignmentRefused(msgspec.Struct, frozen=True):
    """A target was not acceptable."""

    partition: str
    target: Replicas | None
    replicas: Replicas
    adding: Replicas
    removing: Replicas
    isr: Replicas
    live: Replicas
    reason: str

    @property
    def assignment(self) -> ReplicaAssignment:
        return ReplicaAssignment(self.replicas, self.adding, self.removing)


class RestartedUnseen(msgspec.Struct, frozen=True):
    """Replicas whose broker restarted while nobody was in office."""

    replicas: tuple[tuple[str, int], ...]


class IsrChangesNotified(msgspec.Struct, frozen=True):
    """Leaders of older versions wrote ISRs by themselves."""

    partitions: list[str]
    states: dict[str, State] = {}


class LeaderBalanceDue(msgspec.Struct, frozen=True):
    """A look at how much of a broker's share is led by others."""

    broker: int
    elsewhere: int
    of: int
    limit: float
    due: bool
    able: int = 0


class ReplicasFailed(msgspec.Struct, frozen=True):
    """A broker answered that it cannot host replicas."""

    broker: int
    offline: list[str]


class ElectionsAsked(msgspec.Struct, frozen=True):
    """Somebody asks for elections."""

    partitions: list[str]
    kind: str = "preferred"


class ClusterFacts(msgspec.Struct, frozen=True):
    """A snapshot's part about brokers."""

    brokers: tuple[Registration, ...]
    reason: str = ""
    shutting_down: Replicas = ()
    offline_dirs: dict[int, list[str]] = {}
    deleting: list[str] = []
    whole: Replicas = ()


class PartitionFacts(msgspec.Struct, frozen=True):
    """A partition in a snapshot."""

    replicas: Replicas
    adding: Replicas = ()
    removing: Replicas = ()
    leader: int | None = None
    leader_epoch: int = 0
    isr: Replicas = ()
    partition_epoch: int = 0
    controller_epoch: int = 0
    recovery_state: int = 0
    state: str | None = None
    zxid: int | None = None
    eligible: tuple[tuple[int, int], ...] = ()
    eligible_at: int = -1

    @property
    def assignment(self) -> ReplicaAssignment:
        return ReplicaAssignment(self.replicas, self.adding, self.removing)

    @property
    def leadership(self) -> State | None:
        if self.leader is None:
            return None
        return State(
            self.leader, self.leader_epoch, self.isr, self.partition_epoch, self.recovery_state
        )


class TopicFacts(msgspec.Struct, frozen=True):
    """A snapshot's part about a topic, or a slice of its partitions."""

    topic: str
    id: str
    partitions: dict[int, PartitionFacts]


_EVENTS: Mapping[str, type[msgspec.Struct]] = {
    "BrokersChanged": BrokersChanged,
    "TopicsChanged": TopicsChanged,
    "PartitionsModified": PartitionsModified,
    "TopicDeletionsRequested": Topics,
    "DeletionHalted": Topics,
    "TopicDeleted": OneTopic,
    "ShutdownAsked": OneBroker,
    "Resigned": Resigned,
    "ReassignmentStep": ReassignmentStep,
    "ReassignmentRefused": ReassignmentRefused,
    "RestartedUnseen": RestartedUnseen,
    "IsrChangesNotified": IsrChangesNotified,
    "LeaderBalanceDue": LeaderBalanceDue,
    "LeaderAndIsrAnswered": ReplicasFailed,
    "ElectionsAsked": ElectionsAsked,
    "PreferredElectionRequested": ElectionsAsked,
}
_PARTS: Mapping[str, type[msgspec.Struct]] = {"cluster": ClusterFacts, "topic": TopicFacts}

AnyLine = Happened | SnapshotPart | Moved | Decided | Told | Dropped
_decoder = msgspec.json.Decoder(AnyLine)


class Entry(NamedTuple):
    """A line, its typed facts if it is an event or snapshot part we know, and where it stands."""

    line: AnyLine
    facts: Any
    file: str
    number: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.number}"


class DamagedError(Exception):
    """A line cannot be believed; the text says why."""


def parse(raw: bytes, file: str, number: int) -> Entry:
    """Return one line as an entry; DamagedError if it does not fit."""
    try:
        line = _decoder.decode(raw)
        facts: Any = None
        if isinstance(line, Happened) and line.event in _EVENTS:
            facts = msgspec.convert(line.inputs, _EVENTS[line.event], str_keys=True)
        elif isinstance(line, SnapshotPart) and line.part in _PARTS:
            facts = msgspec.convert(line.facts, _PARTS[line.part], str_keys=True)
        for text in _partitions_named(line, facts):
            partition_of(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DamagedError(str(error) or type(error).__name__) from error
    return Entry(line, facts, file, number)


def _partitions_named(line: AnyLine, facts: Any) -> list[str]:
    if isinstance(line, Decided):
        return [line.partition]
    if isinstance(facts, ReassignmentStep | ReassignmentRefused):
        return [facts.partition]
    if isinstance(facts, RestartedUnseen):
        return [text for text, _ in facts.replicas]
    if isinstance(facts, IsrChangesNotified):
        return [*facts.partitions, *facts.states]
    if isinstance(facts, ReplicasFailed):
        return facts.offline
    return []


def partition_of(text: str) -> TopicPartition:
    """Read `flights-0`; the topic may hold dashes. ValueError if it is no such name."""
    topic, dash, number = text.rpartition("-")
    if not (dash and topic and number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is no TOPIC-PARTITION such as flights-0")
    return TopicPartition(topic, int(number))
