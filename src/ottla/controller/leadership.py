"""Leadership: plans for many partitions from the context and the states just read.

A decider. Invariants: what is written is decided from the state read from ZooKeeper for the same
event, never from what an earlier one left in the context; a state that a newer controller wrote is
left alone. Kafka: the deciding halves of `ZkPartitionStateMachine`
(`initializeLeaderAndIsrForPartitions`, `doElectLeaderForPartitions`) and `ZkReplicaStateMachine`
(`doRemoveReplicasFromIsr`).
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from ottla.controller.context import Context
from ottla.controller.elections import Election, ElectionKind, LogEnd, elect, initial
from ottla.controller.found import States
from ottla.controller.plan import Decision, Failure, Plan
from ottla.model.cluster import LeaderAndIsr, ReplicaAssignment
from ottla.model.ids import NO_LEADER, TopicPartition
from ottla.model.rules import Rule


class BeyondIsr(msgspec.Struct, frozen=True):
    """What is known of a partition's replicas besides the ISR; see `elections.elect`."""

    eligible: tuple[int, ...] = ()
    crashed: tuple[int, ...] = ()
    ends: Mapping[int, LogEnd] = msgspec.field(default_factory=dict)


NO_OTHERS = BeyondIsr()
NOTHING_KNOWN: Mapping[TopicPartition, BeyondIsr] = {}


def plan_new(context: Context, partitions: Iterable[TopicPartition]) -> Plan:
    """Plan the first leader and ISR of new partitions."""
    plan = Plan()
    for tp in partitions:
        assignment = context.assignment(tp)
        online = _online(context, tp, assignment)
        outcome = initial(assignment, online.__contains__)
        _note(plan, tp, "new", None, assignment, outcome, online, _shutting_down(context))
    return plan


def plan_election(
    context: Context,
    kind: ElectionKind,
    partitions: Iterable[TopicPartition],
    read: States,
    unclean_allowed: Mapping[str, bool],
    beyond: Mapping[TopicPartition, BeyondIsr] = NOTHING_KNOWN,
) -> Plan:
    """Plan elections of one kind. `unclean_allowed` says of a topic whether ISR may be left.

    `beyond` is what is known of replicas outside the ISR, where it matters.
    """
    plan = Plan()
    shutting_down = kind is ElectionKind.CONTROLLED_SHUTDOWN
    for tp in partitions:
        state = _usable(context, tp, read, plan)
        if state is None:
            continue
        this = kind
        if kind is ElectionKind.OFFLINE and unclean_allowed.get(tp.topic, False):
            this = ElectionKind.UNCLEAN
        assignment = context.assignment(tp)
        online = _online(context, tp, assignment, state, or_shutting_down=shutting_down)
        others = beyond.get(tp, NO_OTHERS)
        outcome = elect(
            this,
            assignment,
            state,
            online.__contains__,
            shutting_down=context.shutting_down.__contains__,
            eligible=others.eligible,
            crashed=others.crashed,
            ends=others.ends,
        )
        _note(
            plan,
            tp,
            this.value,
            state,
            assignment,
            outcome,
            online,
            _shutting_down(context),
            others,
        )
    return plan


def needs_unclean_config(
    context: Context, partitions: Iterable[TopicPartition], read: States
) -> list[str]:
    """Return the topics whose configuration decides: those with a partition without live ISR."""
    topics: dict[str, None] = {}
    for tp in partitions:
        state = read.get(tp)
        if state is not None and not any(
            context.is_online(r, tp) for r in state.leader_and_isr.isr
        ):
            topics[tp.topic] = None
    return list(topics)


def plan_isr_removal(
    context: Context, broker: int, partitions: Iterable[TopicPartition], read: States
) -> Plan:
    """Plan to take a broker out of the ISR, and out of leadership where it leads.

    The last member of an ISR stays in it: it alone holds all that was acknowledged.
    """
    plan = Plan()
    for tp in partitions:
        state = _usable(context, tp, read, plan, quiet_if_absent=tp.topic in context.deleting)
        if state is None:
            continue
        if broker not in state.isr:
            plan.unchanged[tp] = state
            continue
        leader = NO_LEADER if state.leader == broker else state.leader
        last = len(state.isr) == 1
        isr = state.isr if last else tuple(r for r in state.isr if r != broker)
        after = state.with_leader(leader, isr)
        plan.writes[tp] = after
        assignment = context.assignment(tp)
        rule = Rule.LAST_ISR_MEMBER_STAYS if last else Rule.OFFLINE_REPLICA_LEAVES_ISR
        plan.decisions[tp] = Decision(
            tp,
            "isr-removal",
            rule,
            state,
            after,
            assignment.replicas,
            adding=assignment.adding,
            removing=assignment.removing,
            online=_online(context, tp, assignment, state),
            shutting_down=_shutting_down(context),
            broker=broker,
        )
    return plan


def plan_epoch_bump(
    context: Context,
    partitions: Iterable[TopicPartition],
    read: States,
    rule: Rule = Rule.EPOCH_FOR_ASSIGNMENT,
) -> Plan:
    """Plan a new leader epoch under the same leader; `rule` says what for."""
    plan = Plan()
    for tp in partitions:
        state = _usable(context, tp, read, plan)
        if state is None:
            continue
        after = replace(state, leader_epoch=state.leader_epoch + 1)
        plan.writes[tp] = after
        assignment = context.assignment(tp)
        plan.decisions[tp] = Decision(
            tp,
            "epoch",
            rule,
            state,
            after,
            assignment.replicas,
            adding=assignment.adding,
            removing=assignment.removing,
            online=_online(context, tp, assignment),
        )
    return plan


def _usable(
    context: Context,
    tp: TopicPartition,
    read: States,
    plan: Plan,
    *,
    quiet_if_absent: bool = False,
) -> LeaderAndIsr | None:
    found = read.get(tp)
    if found is None:
        if not quiet_if_absent:
            plan.failures[tp] = Failure("its state znode does not exist or cannot be read")
        return None
    if found.controller_epoch > context.epoch:
        plan.failures[tp] = Failure(
            f"its state was written by a controller of epoch {found.controller_epoch}, "
            f"ours is {context.epoch}",
            superseded=True,
        )
        return None
    return found.leader_and_isr


def _online(
    context: Context,
    tp: TopicPartition,
    assignment: ReplicaAssignment,
    state: LeaderAndIsr | None = None,
    *,
    or_shutting_down: bool = False,
) -> tuple[int, ...]:
    """Return who lives of the replicas, and of an ISR that may hold some just unassigned."""
    replicas = assignment.replicas
    if state is not None:
        replicas += tuple(r for r in state.isr if r not in replicas)
    return tuple(r for r in replicas if context.is_online(r, tp, or_shutting_down=or_shutting_down))


def _shutting_down(context: Context) -> tuple[int, ...]:
    return tuple(sorted(context.shutting_down)) if context.shutting_down else ()


def _note(
    plan: Plan,
    tp: TopicPartition,
    kind: str,
    before: LeaderAndIsr | None,
    assignment: ReplicaAssignment,
    outcome: Election,
    online: tuple[int, ...],
    shutting_down: tuple[int, ...],
    others: BeyondIsr = NO_OTHERS,
) -> None:
    plan.decisions[tp] = Decision(
        tp,
        kind,
        outcome.rule,
        before,
        outcome.state,
        assignment.replicas,
        outcome.rejected,
        assignment.adding,
        assignment.removing,
        online,
        shutting_down,
        eligible=others.eligible,
        crashed=others.crashed,
        ends=tuple((b, *end) for b, end in sorted(others.ends.items())),
    )
    if outcome.state is None:
        plan.failures[tp] = Failure(outcome.rule.words)
    else:
        plan.writes[tp] = outcome.state
        plan.recipients[tp] = outcome.recipients
