"""What changed from one look at a cluster to the next: rates, leaders that moved, ISR changes.

A decider. Invariants: looks in, rows and events out; a rate is None before the second look; events
are those of the cluster, in the order of partitions.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.admin.top.group_progress import Progress
from ottla.model.ids import NO_LEADER, TopicPartition
from ottla.placement.copy_estimate import Estimate

EVENTS_KEPT = 1000


class Partition(NamedTuple):
    """A partition at one moment; `end` is its high watermark, None if not known."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    end: int | None


class Broker(NamedTuple):
    """A broker; requests per second, p99 in ms and idle are known of those of --dir only."""

    address: str
    rack: str | None
    requests: float | None = None
    p99_ms: float | None = None
    idle: float | None = None


class Group(NamedTuple):
    """A consumer group: its state and how many records it is behind."""

    state: str
    members: int
    lag: int


class Look(NamedTuple):
    """A cluster at one moment. `time_s` is monotonic, `clock` as people read it."""

    time_s: float
    clock: str
    cluster: str
    controller: int
    brokers: Mapping[int, Broker]
    partitions: Mapping[TopicPartition, Partition]
    moves: Mapping[TopicPartition, tuple[int, ...]]
    """Replicas that reassignments are adding."""
    estimate: Estimate | None = None
    """How far reassignments are; None while there are none, or nothing is known yet."""
    groups: Mapping[str, Group] | None = None
    problem: str = ""
    progress: Mapping[str, Progress] | None = None
    """Of those groups of which any lag is known."""


class BrokerRow(NamedTuple):
    """A broker in the list; `written`: records per second that it takes as leader."""

    broker: int
    facts: Broker | None
    controller: bool
    leaders: int
    replicas: int
    out_of_sync: int
    written: float | None


class TopicRow(NamedTuple):
    """A topic in the list."""

    topic: str
    partitions: int
    without_leader: int
    under_replicated: int
    moving: int
    written: float | None
    end: int


@dataclass(slots=True)
class Changes:
    """Takes looks; keeps what the newest one is, and what happened before."""

    look: Look | None = None
    events: deque[str] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    _rates: dict[TopicPartition, float] = field(default_factory=dict)

    def take(self, look: Look) -> list[str]:
        """Take a look; return what has happened since the one before."""
        before, self.look = self.look, look
        if look.problem and before is not None:
            # What was known stays on the screen, with the problem.
            self.look = before._replace(problem=look.problem, clock=look.clock)
            return self._say(look, [] if before.problem else [look.problem])
        if before is None:
            return []
        self._rates = _rates(before, look)
        return self._say(look, list(_events(before, look)))

    def _say(self, look: Look, found: list[str]) -> list[str]:
        lines = [f"{look.clock}  {text}" for text in found]
        self.events.extend(lines)
        return lines

    def brokers(self) -> list[BrokerRow]:
        """Return the brokers, the dead ones of which there are replicas included."""
        look = self.look
        if look is None:
            return []
        leaders: Counter[int] = Counter()
        replicas: Counter[int] = Counter()
        behind: Counter[int] = Counter()
        written: Counter[int] = Counter()
        for tp, p in look.partitions.items():
            leaders[p.leader] += 1
            replicas.update(p.replicas)
            behind.update(set(p.replicas) - set(p.isr))
            written[p.leader] += round(self._rates.get(tp, 0.0))
        return [
            BrokerRow(
                b,
                look.brokers.get(b),
                b == look.controller,
                leaders[b],
                replicas[b],
                behind[b],
                float(written[b]) if self._rates else None,
            )
            for b in sorted({*look.brokers, *replicas})
        ]

    def topics(self) -> list[TopicRow]:
        """Return the topics, those that are wrong first, then by what is written."""
        look = self.look
        if look is None:
            return []
        by_topic: dict[str, list[TopicPartition]] = {}
        for tp in look.partitions:
            by_topic.setdefault(tp.topic, []).append(tp)
        rows = []
        for topic, tps in by_topic.items():
            facts = [look.partitions[tp] for tp in tps]
            rows.append(
                TopicRow(
                    topic,
                    len(tps),
                    sum(p.leader == NO_LEADER for p in facts),
                    sum(len(p.isr) < len(p.replicas) for p in facts),
                    sum(tp in look.moves for tp in tps),
                    sum(self._rates.get(tp, 0.0) for tp in tps) if self._rates else None,
                    sum(p.end or 0 for p in facts),
                )
            )
        return sorted(
            rows, key=lambda r: (-r.without_leader, -r.under_replicated, -(r.written or 0), r.topic)
        )

    def seen(self, tp: TopicPartition) -> list[str]:
        """Return what happened to a partition since the first look, as far as it is kept."""
        names = (f"  {tp}: ", f"  {tp} ")
        return [line for line in self.events if any(name in line for name in names)]

    def rate(self, tp: TopicPartition) -> float | None:
        """Return how many records per second are written to a partition."""
        return self._rates.get(tp)


def _rates(before: Look, now: Look) -> dict[TopicPartition, float]:
    seconds = now.time_s - before.time_s
    found: dict[TopicPartition, float] = {}
    if seconds <= 0:
        return found
    for tp, partition in now.partitions.items():
        old = before.partitions.get(tp)
        if old is not None and old.end is not None and partition.end is not None:
            found[tp] = max(0, partition.end - old.end) / seconds
    return found


def _events(before: Look, now: Look) -> Iterator[str]:
    for broker in sorted(before.brokers.keys() - now.brokers.keys()):
        yield f"broker {broker} is gone"
    for broker in sorted(now.brokers.keys() - before.brokers.keys()):
        yield f"broker {broker} is here"
    if before.controller != now.controller:
        yield f"controller {_leader(before.controller)} → {_leader(now.controller)}"
    for tp in sorted(now.partitions.keys() | before.partitions.keys()):
        old, new = before.partitions.get(tp), now.partitions.get(tp)
        if old is None:
            yield f"{tp} was created"
        elif new is None:
            yield f"{tp} is gone"
        else:
            yield from _partition_events(tp, old, new)
    for tp in sorted(now.moves.keys() - before.moves.keys()):
        yield f"{tp} is being reassigned"
    for tp in sorted(before.moves.keys() - now.moves.keys()):
        if tp in now.partitions:
            yield f"{tp} is not being reassigned any more"


def _partition_events(tp: TopicPartition, old: Partition, new: Partition) -> Iterator[str]:
    parts = []
    if old.leader != new.leader:
        parts.append(f"leader {_leader(old.leader)} → {_leader(new.leader)}")
    if set(old.isr) != set(new.isr):
        parts.append(f"in sync {_ids(old.isr)} → {_ids(new.isr)}")
    if old.replicas != new.replicas:
        parts.append(f"replicas {_ids(old.replicas)} → {_ids(new.replicas)}")
    if parts:
        yield f"{tp}: {', '.join(parts)}"


def _leader(broker: int) -> str:
    return "none" if broker < 0 else str(broker)


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers)) or "none"
