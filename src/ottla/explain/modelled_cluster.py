"""ModelledCluster: a snapshot of a cluster, changed as a controller would change it.

A decider. Every leader and every ISR comes from the controller's own functions (`leadership`,
`elections`, `reassignment`) over a `Context`, in the order of Kafka's procedures
(`onBrokerFailure`, `onBrokerStartup`, `doControlledShutdown`, `onPartitionReassignment`).
Partitions that are alike in all that these functions look at are decided once: what is decided of
one depends on no other. Assumed: a live follower catches up and joins the ISR; no broker fails
meanwhile; no record is written. Not modelled: log dirs, the eligible replicas of adr/0007.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind
from ottla.controller.leadership import (
    BeyondIsr,
    plan_election,
    plan_epoch_bump,
    plan_isr_removal,
)
from ottla.controller.plan import Plan
from ottla.controller.reassignment import reassign_to
from ottla.model.cluster import (
    BrokerInfo,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
)
from ottla.model.ids import TopicPartition
from ottla.model.rules import rule_named
from ottla.placement.snapshot_file import Broker, Snapshot


class Facts(NamedTuple):
    """One partition as it stands."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


class ModelledCluster:
    """The brokers, assignments and leaderships; each method is one event."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._context = Context(epoch=1)
        self.racks = {broker.id: broker.rack for broker in snapshot.brokers}
        self._longest_log = snapshot.ottla
        self.min_isr = {name: topic.min_isr for name, topic in snapshot.topics.items()}
        self.unclean = {name: topic.unclean for name, topic in snapshot.topics.items()}
        self.sizes: dict[TopicPartition, dict[int, int]] = {}
        self._ends: dict[TopicPartition, dict[int, tuple[int, int]]] = {}
        self._unclean: list[tuple[TopicPartition, tuple[int, ...], int]] = []
        self._first: dict[TopicPartition, TopicPartition] = {}
        """Of every partition the one that stands in the context for all that are like it."""
        self._alike: dict[TopicPartition, list[TopicPartition]] = {}
        """Of each that stands in the context those it stands for, itself included."""
        for broker in snapshot.brokers:
            self._context.add_broker(BrokerInfo(broker.id, (), broker.rack))
        firsts: dict[Hashable, TopicPartition] = {}
        for tp, partition in snapshot.partitions():
            isr = tuple(partition.isr)
            assignment = (
                tuple(partition.replicas),
                tuple(partition.adding),
                tuple(partition.removing),
            )
            state = partition.leader, partition.leader_epoch, isr
            ends = tuple(sorted(partition.ends.items()))
            first = firsts.setdefault((assignment, state, ends, self.unclean[tp.topic]), tp)
            if first is tp:
                self._context.set_assignment(tp, ReplicaAssignment(*assignment))
                self._set(tp, LeaderAndIsr(*state))
                self._alike[tp] = []
            self._first[tp] = first
            self._alike[first].append(tp)
            self.sizes[tp] = partition.sizes
            self._ends[tp] = partition.ends

    # --- looking ----------------------------------------------------------------------------

    @property
    def live(self) -> list[int]:
        return self._context.live_or_shutting_down

    def partitions(self) -> Iterator[tuple[TopicPartition, Facts]]:
        """Yield every partition; those that are alike share one `Facts`."""
        facts = {first: self._facts(first) for first in self._alike}
        for tp, first in self._first.items():
            yield tp, facts[first]

    def _facts(self, first: TopicPartition) -> Facts:
        state = self._state(first)
        replicas = self._context.assignment(first).replicas
        return Facts(replicas, state.leader, state.leader_epoch, state.isr)

    def knows(self, tp: TopicPartition) -> bool:
        return tp in self._first

    def ends(self, tp: TopicPartition) -> Mapping[int, tuple[int, int]]:
        """Return where logs end, as far as the snapshot has it: leader epoch and end offset."""
        return self._ends[tp]

    def take_unclean(self) -> list[tuple[TopicPartition, tuple[int, ...], int]]:
        """Return the unclean elections since the last call: partition, ISR before, leader."""
        found, self._unclean = self._unclean, []
        return sorted(found, key=lambda election: election[0])

    # --- events -----------------------------------------------------------------------------

    def kill(self, brokers: Collection[int]) -> None:
        """Take brokers away at one moment, as `onBrokerFailure` handles it."""
        context = self._context
        hosted = {b: context.partitions_on(b) for b in brokers}
        for broker in brokers:
            context.remove_broker(broker)
            context.shutting_down.discard(broker)
        self._elect(ElectionKind.OFFLINE, self._leaderless())
        for broker, partitions in hosted.items():
            self._write(plan_isr_removal(context, broker, partitions, context.leadership))

    def shut_down(self, broker: int) -> list[TopicPartition]:
        """Stop a broker by a controlled shutdown; return what it led until its end."""
        context = self._context
        hosted = [
            tp for tp in context.partitions_on(broker) if len(context.assignment(tp).replicas) > 1
        ]
        led = [tp for tp in hosted if self._state(tp).leader == broker]
        context.shutting_down.add(broker)
        self._elect(ElectionKind.CONTROLLED_SHUTDOWN, led)
        # The last member of an ISR stays in it (`plan_isr_removal`).
        followed = [tp for tp in hosted if self._state(tp).leader != broker]
        self._write(plan_isr_removal(context, broker, followed, context.leadership))
        left = [tp for tp in context.partitions_on(broker) if self._state(tp).leader == broker]
        self.kill([broker])
        return [tp for first in left for tp in self._alike[first]]

    def start(self, brokers: Iterable[Broker]) -> None:
        """Bring brokers up; their replicas catch up where there is a leader."""
        new = list(brokers)
        for broker in new:
            self.racks[broker.id] = broker.rack
            self._context.add_broker(BrokerInfo(broker.id, (), broker.rack))
        self._elect(ElectionKind.OFFLINE, self._leaderless())
        self.catch_up(broker.id for broker in new)

    def catch_up(self, brokers: Iterable[int]) -> None:
        """Let all replicas of these brokers join the ISR of a partition that is led."""
        context = self._context
        for broker in brokers:
            for tp in context.partitions_on(broker):
                self._join(tp, [broker])

    def reassign(self, plan: Mapping[TopicPartition, tuple[int, ...]]) -> list[TopicPartition]:
        """Move partitions; return those whose move cannot end: a target replica is not alive."""
        context = self._context
        self._tell_apart(plan.get)
        moves = {self._first[tp]: target for tp, target in plan.items()}
        stuck = set()
        for tp, target in moves.items():
            assignment = reassign_to(context.assignment(tp), target)
            context.set_assignment(tp, assignment)
            if not set(target) <= set(self._state(tp).isr):
                self._write(plan_epoch_bump(context, [tp], context.leadership))
                self._join(tp, assignment.target)
            if not set(target) <= set(self._state(tp).isr):
                stuck.add(tp)
                continue
            context.set_assignment(tp, ReplicaAssignment(target))
            if self._state(tp).leader not in target:
                self._elect(ElectionKind.REASSIGNMENT, [tp])
            else:
                self._write(plan_epoch_bump(context, [tp], context.leadership))
            for broker in assignment.removing:
                self._write(plan_isr_removal(context, broker, [tp], context.leadership))
        return [tp for tp in plan if self._first[tp] in stuck]

    def elect_unclean(self, partitions: Iterable[TopicPartition]) -> None:
        """Hold unclean elections of partitions that have no leader."""
        chosen = set(partitions)
        self._tell_apart(chosen.__contains__)
        self._elect(ElectionKind.UNCLEAN, [tp for tp in self._leaderless() if tp in chosen])

    def allow_unclean(self, topics: Iterable[str], allowed: bool) -> None:
        """Set unclean.leader.election.enable; the controller elects at once where it may now."""
        self.unclean.update(dict.fromkeys(topics, allowed))
        self._tell_apart(lambda tp: self.unclean[tp.topic])
        self._elect(ElectionKind.OFFLINE, self._leaderless())

    # --- inside -----------------------------------------------------------------------------

    def _tell_apart(self, by: Callable[[TopicPartition], Hashable]) -> None:
        """Let partitions be alike only where they have this value in common, too."""
        context = self._context
        for first, members in list(self._alike.items()):
            parts: dict[Hashable, list[TopicPartition]] = {}
            for tp in members:
                parts.setdefault(by(tp), []).append(tp)
            for part in parts.values():
                self._alike[part[0]] = part
                if part[0] != first:
                    context.set_assignment(part[0], context.assignment(first))
                    self._set(part[0], self._state(first))
                    self._first.update(dict.fromkeys(part, part[0]))

    def _join(self, tp: TopicPartition, brokers: Iterable[int]) -> None:
        state = self._state(tp)
        new = [b for b in brokers if b not in state.isr and self._context.is_live(b)]
        if state.has_leader and new:
            self._set(tp, replace(state, isr=(*state.isr, *new)))

    def _leaderless(self) -> list[TopicPartition]:
        """Return partitions without a live leader; those whose leader died lose it first."""
        context = self._context
        return [tp for tp in context.partitions() if not context.is_live(self._state(tp).leader)]

    def _elect(self, kind: ElectionKind, partitions: Iterable[TopicPartition]) -> None:
        context = self._context
        chosen = list(partitions)
        beyond = {
            tp: BeyondIsr(ends=self._ends[tp])
            for tp in chosen
            if self._longest_log and self._ends[tp]
        }
        self._write(plan_election(context, kind, chosen, context.leadership, self.unclean, beyond))

    def _state(self, tp: TopicPartition) -> LeaderAndIsr:
        return self._context.leadership[tp].leader_and_isr

    def _set(self, tp: TopicPartition, state: LeaderAndIsr) -> None:
        self._context.leadership[tp] = LeaderIsrAndControllerEpoch(state, 1)

    def _write(self, plan: Plan) -> None:
        for tp, decision in plan.decisions.items():
            rule = rule_named(decision.rule)
            if rule is not None and rule.unclean and decision.before and decision.after:
                isr, leader = decision.before.isr, decision.after.leader
                self._unclean += [(alike, isr, leader) for alike in self._alike[tp]]
        for tp, state in plan.writes.items():
            self._set(tp, state)
