"""What-if: the consequences of an event, computed on a snapshot of a cluster.

A decider. Invariants: what leads and is in sync after an event is `modelled_cluster`'s; a partition
that was without a leader, or below min.insync.replicas, before the event is no harm of the event;
equal input gives an equal report.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from ottla.explain.modelled_cluster import Facts, ModelledCluster
from ottla.model.errors import OttlaError
from ottla.model.ids import Partition, TopicPartition
from ottla.placement import election_losses
from ottla.placement.election_losses import Candidate, LogEnd, Loss
from ottla.placement.snapshot_file import MIN_ISR, UNCLEAN, Broker, Snapshot
from ottla.placement.spread import drained, propose

T = TypeVar("T")
Plan = Mapping[TopicPartition, tuple[int, ...]]
_Change = tuple[int | None, int | None, list[int], list[int], list[int], list[int]]


class BrokerLoad(msgspec.Struct, frozen=True):
    """What one broker leads and keeps; bytes of replicas whose size is known."""

    broker: int
    rack: str | None
    alive: bool
    leaders: int
    replicas: int
    bytes: int


class State(msgspec.Struct, frozen=True):
    """How many partitions there are, and what is wrong with some; the brokers' loads."""

    partitions: int
    without_leader: int
    under_replicated: int
    under_min_isr: int
    brokers: list[BrokerLoad]


class Change(Partition, frozen=True):
    """A partition that is not as it was."""

    leader_before: int | None
    leader_after: int | None
    isr_before: list[int]
    isr_after: list[int]
    replicas_before: list[int]
    replicas_after: list[int]


class Lost(Partition, frozen=True):
    """Records that one replica has and an uncleanly elected leader has not."""

    leader: int
    text: str


class Step(msgspec.Struct, frozen=True):
    """One moment of a scenario: what is wrong then that was not wrong before it."""

    what: str
    without_leader: list[Partition]
    under_min_isr: list[Partition]


class Report(msgspec.Struct, frozen=True):
    """A scenario's outcome. `harm`: whether a step has harmed, or records would be lost."""

    scenario: str
    before: State
    after: State
    changes: list[Change]
    steps: list[Step]
    lost: list[Lost]
    notes: list[str]

    @property
    def harm(self) -> bool:
        return bool(self.lost) or any(s.without_leader or s.under_min_isr for s in self.steps)


class JudgedReport(Report, frozen=True, kw_only=True):
    """A report as it is printed: with what it amounts to."""

    harm: bool


def with_verdict(report: Report) -> JudgedReport:
    return JudgedReport(**msgspec.structs.asdict(report), harm=report.harm)


class WhatIf:
    """One scenario on one snapshot: call one of its events, then `report`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._cluster = ModelledCluster(snapshot)
        self._known = {b.id: b for b in snapshot.brokers}
        self._scenario = ""
        self._now: dict[TopicPartition, Facts] = {}
        self._wrong_now: tuple[dict[TopicPartition, None], dict[TopicPartition, None]] = {}, {}
        """partitions without a leader, and those under min ISR"""
        self._look()
        self._facts, self._wrong = self._now, self._wrong_now
        self._before = self._state()
        self._steps: list[Step] = []
        self._lost: list[Lost] = []
        self._notes: list[str] = []

    # --- events -----------------------------------------------------------------------------

    def kill(self, brokers: Sequence[int], *, in_turn: bool) -> None:
        """Brokers die: at one moment, or each after the cluster has dealt with the one before."""
        self._alive(brokers)
        self._scenario = f"kill {_texts(brokers)}{', one after the other' if in_turn else ''}"
        for some in [[b] for b in brokers] if in_turn else [list(brokers)]:
            self._step(f"{_brokers(some)} killed", partial(self._cluster.kill, some))

    def shut_down(self, brokers: Sequence[int]) -> None:
        """Brokers stop by a controlled shutdown, one after the other."""
        self._alive(brokers)
        self._scenario = f"shutdown {_texts(brokers)}"
        for broker in brokers:
            self._shut_down(broker)

    def rolling_restart(self, brokers: Sequence[int]) -> None:
        """Each broker stops, starts and catches up before the next one stops."""
        chosen = list(brokers) or sorted(self._cluster.live)
        self._alive(chosen)
        self._scenario = f"rolling-restart {_texts(chosen)}"
        for broker in chosen:
            self._shut_down(broker)
            self._start([self._known[broker]])
        self._notes.append(
            "the leaders after it are those before a preferred election; `ottla elect preferred "
            "--all` holds one, and so does the controller with auto.leader.rebalance.enable"
        )

    def drain(self, broker: int) -> None:
        """Move all replicas of a broker to the others."""
        every = {tp: facts.replicas for tp, facts in self._now.items()}
        leaving = {tp: replicas for tp, replicas in every.items() if broker in replicas}
        if not leaving and broker not in self._known:
            raise OttlaError(f"there is no broker {broker}, and no replica on it")
        others = {b: rack for b, rack in self._cluster.racks.items() if b != broker}
        self._move(f"drain {broker}", _planned(lambda: drained(leaving, every, broker, others)))

    def add_brokers(self, brokers: Sequence[Broker]) -> None:
        """Add brokers, and spread all topics over all brokers as `reassign plan --all` does."""
        taken = [b.id for b in brokers if b.id in self._known]
        if taken:
            raise OttlaError(f"there is a broker {taken[0]} already; name new ids")
        self._start(brokers)
        without = [b for b, rack in self._cluster.racks.items() if rack is None]
        racks = self._cluster.racks
        if 0 < len(without) < len(racks):
            raise OttlaError(
                f"broker {without[0]} has no rack while others have one; write ID:RACK"
            )
        every = {tp: facts.replicas for tp, facts in self._now.items()}
        sizes = {tp: max(found.values(), default=0) for tp, found in self._cluster.sizes.items()}
        proposal = _planned(lambda: propose(every, racks, sizes=sizes))
        changed = {tp: new for tp, new in proposal.assignment.items() if new != every[tp]}
        self._move(f"add-brokers {_texts([b.id for b in brokers])}", changed)

    def reassign(self, plan: Plan, name: str) -> None:
        """Move partitions as a plan says."""
        for tp, replicas in plan.items():
            if not self._cluster.knows(tp):
                raise OttlaError(f"{name}: there is no partition {tp} in the snapshot")
            dead = [b for b in replicas if b not in self._cluster.live]
            new = set(replicas) - set(self._facts[tp].replicas)
            if new & set(dead):
                raise OttlaError(f"{name}: {tp} is to move to broker {dead[0]}, which is not alive")
        self._move(f"reassign {name}", plan)

    def elect_unclean(self, partitions: Sequence[TopicPartition]) -> None:
        """Hold unclean elections."""
        for tp in partitions:
            if not self._cluster.knows(tp):
                raise OttlaError(f"there is no partition {tp} in the snapshot")
            if self._facts[tp].leader >= 0:
                self._notes.append(
                    f"{tp} is led by broker {self._facts[tp].leader}: no unclean election is held"
                )
        self._scenario = f"unclean {' '.join(map(str, partitions))}"
        self._step("unclean election held", lambda: self._cluster.elect_unclean(partitions))

    def configure(self, key: str, value: str, topics: Sequence[str]) -> None:
        """Change a setting of topics; none named: of all."""
        unknown = [t for t in topics if t not in self._cluster.min_isr]
        if unknown:
            raise OttlaError(f"there is no topic {unknown[0]} in the snapshot")
        chosen = list(topics) or list(self._cluster.min_isr)
        self._scenario = f"config {key}={value}"
        if key == MIN_ISR:
            if not value.isdigit() or int(value) < 1:
                raise OttlaError(f"{key}={value}: write a number from 1 on")
            new = dict.fromkeys(chosen, int(value))
            self._step(f"{key} set", lambda: self._cluster.min_isr.update(new))
        elif key == UNCLEAN:
            if value not in ("true", "false"):
                raise OttlaError(f"{key}={value}: write true or false")
            allowed = value == "true"
            self._step(f"{key} set", lambda: self._cluster.allow_unclean(chosen, allowed))
        else:
            raise OttlaError(
                f"{key} changes neither leaders nor ISRs on its own; settings to try are "
                f"{MIN_ISR} and {UNCLEAN}"
            )

    # --- outcome ----------------------------------------------------------------------------

    def report(self) -> Report:
        """Return what came of the event."""
        return Report(
            self._scenario,
            self._before,
            self._state(),
            list(self._changes()),
            self._steps,
            self._lost,
            self._notes,
        )

    # --- inside -----------------------------------------------------------------------------

    def _shut_down(self, broker: int) -> None:
        stayed: list[TopicPartition] = []
        self._step(
            f"broker {broker} shut down", lambda: stayed.extend(self._cluster.shut_down(broker))
        )
        if stayed:
            self._notes.append(
                f"leaders that broker {broker} would not hand over before it is gone: "
                f"{len(stayed)}; "
                "no other replica of those is in sync"
            )

    def _move(self, scenario: str, plan: Plan) -> None:
        self._scenario = scenario
        every = {tp: self._facts[tp].replicas for tp in plan}
        copies = {tp: set(new) - set(every[tp]) for tp, new in plan.items()}
        size = sum(
            len(new) * max(self._cluster.sizes[tp].values(), default=0)
            for tp, new in copies.items()
        )
        stuck: list[TopicPartition] = []
        self._step(
            f"partitions moved: {len(plan)}",
            lambda: stuck.extend(self._cluster.reassign(plan)),
        )
        count = sum(map(len, copies.values()))
        self._notes.append(f"replicas to copy: {count:,}, bytes: {size:,}")
        if stuck:
            self._notes.append(
                f"reassignments that could not end: {len(stuck)}, first {stuck[0]}: a target "
                "replica is not alive, or the partition has no leader"
            )

    def _start(self, brokers: Sequence[Broker]) -> None:
        self._cluster.start(brokers)
        self._look()

    def _step(self, what: str, event: Callable[[], object]) -> None:
        """Let something happen; note what is wrong afterwards, and what is lost."""
        event()
        self._look()
        leaderless, under_min_isr = self._wrong_now
        was_leaderless, was_under = self._wrong
        self._steps.append(
            Step(
                what,
                Partition.all(tp for tp in leaderless if tp not in was_leaderless),
                Partition.all(tp for tp in under_min_isr if tp not in was_under),
            )
        )
        for tp, isr, leader in self._cluster.take_unclean():
            self._lost += self._losses(tp, isr, leader)

    def _losses(self, tp: TopicPartition, isr: Sequence[int], leader: int) -> Iterator[Lost]:
        ends = self._cluster.ends(tp)
        candidates = [
            Candidate(b, b in self._cluster.live, b in isr, LogEnd(*ends[b]) if b in ends else None)
            for b in self._facts[tp].replicas
        ]
        losses: list[Loss] = election_losses.losses(candidates, leader)
        for loss in losses:
            yield Lost(*tp, leader, str(loss))

    def _look(self) -> None:
        """Take the cluster as it stands: each partition, those without a leader or min ISR."""
        self._now = dict(self._cluster.partitions())
        leaderless: dict[TopicPartition, None] = {}
        under: dict[TopicPartition, None] = {}
        for tp, facts in self._now.items():
            if facts.leader < 0:
                leaderless[tp] = None
            elif len(facts.isr) < self._least(tp, facts.replicas):
                under[tp] = None
        self._wrong_now = leaderless, under

    def _least(self, tp: TopicPartition, replicas: Sequence[int]) -> int:
        return min(self._cluster.min_isr[tp.topic], len(replicas))

    def _state(self) -> State:
        leaders: Counter[int] = Counter()
        replicas: Counter[int] = Counter()
        held: Counter[int] = Counter()
        without = under_replicated = 0
        for facts, count in Counter(self._now.values()).items():
            without += count * (facts.leader < 0)
            under_replicated += count * (len(facts.isr) < len(facts.replicas))
            leaders[facts.leader] += count
            for broker in facts.replicas:
                replicas[broker] += count
        for tp, facts in self._now.items():
            sizes = self._cluster.sizes[tp]
            for broker in facts.replicas:
                size = sizes.get(broker)
                held[broker] += max(sizes.values(), default=0) if size is None else size
        live = self._cluster.live
        ids = sorted({*live, *replicas, *self._cluster.racks})
        return State(
            len(self._now),
            without,
            under_replicated,
            len(self._wrong_now[1]),
            [
                BrokerLoad(
                    b, self._cluster.racks.get(b), b in live, leaders[b], replicas[b], held[b]
                )
                for b in ids
            ],
        )

    def _changes(self) -> Iterator[Change]:
        known: dict[tuple[Facts, Facts], _Change | None] = {}
        for tp, after in self._now.items():
            both = self._facts[tp], after
            if both not in known:
                known[both] = _changed(*both)
            if (change := known[both]) is not None:
                yield Change(tp.topic, tp.partition, *change)

    def _alive(self, brokers: Sequence[int]) -> None:
        live = sorted(self._cluster.live)
        for broker in brokers:
            if broker not in live:
                raise OttlaError(f"broker {broker} is not alive; alive are {_texts(live)}")
        if len(set(brokers)) != len(brokers):
            raise OttlaError("a broker is named twice; name each once")


def _changed(before: Facts, after: Facts) -> _Change | None:
    """Return what of a `Change` comes after its partition; None if all is as it was."""
    if (before.replicas, before.leader, set(before.isr)) == (
        after.replicas,
        after.leader,
        set(after.isr),
    ):
        return None
    return (
        _or_none(before.leader),
        _or_none(after.leader),
        list(before.isr),
        list(after.isr),
        list(before.replicas),
        list(after.replicas),
    )


def _or_none(leader: int) -> int | None:
    return leader if leader >= 0 else None


def _planned(plan: Callable[[], T]) -> T:
    try:
        return plan()
    except ValueError as error:
        raise OttlaError(f"{error}: there is no such plan") from None


def _texts(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids)) or "none"


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"
