"""Facts about a cluster that rules judge, and the findings that they yield (`rules.toml`).

A decider's values. Invariants: plain values; what was not asked, or not answered, is None or
absent, never 0.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field

from ottla.model.ids import TopicPartition

SHOWN = 5

View = dict[TopicPartition, tuple[int, int]]
"""Leader and leader epoch of partitions, as one broker has them."""


class Severity(StrEnum):
    """How bad a finding is.

    error: clients are refused or wait now; warning: something has failed or is stuck, clients do
    not notice yet; risk: nothing has failed, but the set-up does not survive a likely failure.
    """

    error = "error"
    warning = "warning"
    risk = "risk"


class Finding(Struct, frozen=True):
    """One thing that is wrong or unsafe. `commands` carry out `fix`, where commands alone can."""

    name: str = field(name="finding")
    severity: Severity
    subjects: list[str]
    evidence: str
    rule: str
    fix: str
    commands: list[str]


class Diagnosis(Struct):
    """All findings, and what could not be asked."""

    findings: list[Finding]
    not_asked: list[str]


class PartitionFacts(NamedTuple):
    """A partition as metadata has it; `leader` is -1 where there is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicSettings(NamedTuple):
    """What counts of a topic's settings, as they are in force."""

    min_isr: int
    unclean: bool


class Registration(NamedTuple):
    """When a broker registered: by its own clock, and by ZooKeeper's (ms since 1970)."""

    broker_ms: int
    zookeeper_ms: int


class LogDirFacts(NamedTuple):
    """A log dir of a broker; sizes in bytes, -1 where the broker does not tell."""

    broker: int
    path: str
    problem: str
    total: int
    usable: int
    largest_replica: int = 0
    shortage: str = ""
    """Why nothing can be written there, of a broker of this machine: no request tells of inodes."""


class Stray(NamedTuple):
    """A `-stray` folder of a broker of this machine; times as text, "" if not known.

    `removed`: when the broker will remove it, "" if never.
    """

    broker: int
    folder: str
    partition: str
    topic_id: str
    bytes: int
    since: str = ""
    removed: str = ""


class Descriptors(NamedTuple):
    """File descriptors of a broker's process on this machine."""

    open: int
    limit: int


class GroupFacts(NamedTuple):
    """A consumer group. By partition: committed offset, log start and log end."""

    states: tuple[str, ...]
    """One for each look."""
    members: int
    offsets: Mapping[TopicPartition, tuple[int, int, int]]
    moved: bool
    """Whether a committed offset changed between the first look and the last."""
    watched_s: float


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition and that no coordinator will end."""

    partition: TopicPartition
    producer_id: int
    start_offset: int
    age_s: float


class Throttle(NamedTuple):
    """Settings of replication throttles of a broker or topic that no reassignment needs."""

    kind: str
    name: str
    settings: Mapping[str, str]


@dataclass(slots=True)
class Facts:
    """All that was asked."""

    controller: int
    brokers: dict[int, str | None]
    """Live brokers with their racks."""
    partitions: dict[TopicPartition, PartitionFacts] = dataclasses.field(default_factory=dict)
    settings: dict[str, TopicSettings] = dataclasses.field(default_factory=dict)
    views: dict[int, dict[TopicPartition, tuple[int, int]]] = dataclasses.field(
        default_factory=dict
    )
    """By broker that was asked: leader and leader epoch in its metadata, where it differed from
    the first broker's in the first look and in the last."""
    isr_changes: dict[TopicPartition, int] = dataclasses.field(default_factory=dict)
    watched_s: float = 0.0
    moves: dict[TopicPartition, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """Replicas that reassignments are adding."""
    deleting: dict[str, tuple[int, ...]] | None = None
    """Topics that wait for their deletion, with the brokers that have replicas; None: not asked.
    Metadata does not name them any more."""
    registrations: dict[int, Registration] = dataclasses.field(default_factory=dict)
    went_back: dict[int, str] = dataclasses.field(default_factory=dict)
    """By broker: how ZooKeeper was found to be older than what the broker knew of it."""
    zookeepers: dict[int, str] = dataclasses.field(default_factory=dict)
    """zookeeper.connect by broker."""
    kraft: bool = False
    """Whether a broker keeps its metadata in KRaft: then there is no ZooKeeper to ask."""
    refusing_zookeeper: str = ""
    """The connect string of a ZooKeeper of which every server refuses connections."""
    throttles: list[Throttle] = dataclasses.field(default_factory=list)
    log_dirs: list[LogDirFacts] = dataclasses.field(default_factory=list)
    strays: list[Stray] = dataclasses.field(default_factory=list)
    """Of brokers of this machine: no request tells of them."""
    moving_log_dirs: set[int] | None = None
    """Brokers with a replica on its way to another log dir; None: not asked."""
    descriptors: dict[int, Descriptors] = dataclasses.field(default_factory=dict)
    groups: dict[str, GroupFacts] = dataclasses.field(default_factory=dict)
    hanging: list[OpenTransaction] = dataclasses.field(default_factory=list)
    silent: list[int] = dataclasses.field(default_factory=list)
    """Brokers that metadata names as alive and that answered neither at the start nor at the end.
    Metadata names a dead one until its session ends, and as long as there is no controller."""
    not_asked: list[str] = dataclasses.field(default_factory=list)
    """What could not be found out, and why."""
    disk: str = ""
    """Why the processes of a folder of `ottla up` cannot write, whether they run or not."""
    made_here: bool = False
    """Whether `ottla up` made the cluster on one machine, for trying it."""


def some(subjects: Sequence[object]) -> str:
    """Return the first few of many, and how many more there are."""
    named = ", ".join(map(str, subjects[:SHOWN]))
    more = len(subjects) - SHOWN
    return f"{named} and {more:,} more" if more > 0 else named


class Found(NamedTuple):
    """What a rule found: its finding by name, before its texts (`rules.toml`) are filled in."""

    name: str
    subjects: list[object]
    commands: Sequence[Sequence[str]]
    values: Mapping[str, object]
    """What stands in the texts."""
    found: str
    fix: str
    """Texts in place of the rule's own, if there are any."""


def finding(
    name: str,
    subjects: Iterable[object],
    commands: Sequence[Sequence[str]] = (),
    /,
    *,
    found: str = "",
    fix: str = "",
    **values: object,
) -> Found:
    """Return what a rule found; `commands` carry out its fix."""
    return Found(name, list(subjects), commands, values, found, fix)


def brokers(ids: Iterable[int]) -> list[str]:
    """Return brokers as the subjects of a finding."""
    return [f"broker {broker}" for broker in ids]


def ids(brokers: Iterable[int]) -> str:
    """Return brokers as a sentence names them."""
    return ", ".join(map(str, brokers))
