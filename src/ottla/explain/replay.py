"""Replay: the installed deciders, run over a journal's inputs; what would be decided differently.

A decider. What is run again, line by line: the elections of every kind, first leaders, removals
from the ISR, new leader epochs, the responses to AlterPartition, which brokers came and went, which
of them restarted unseen, whether a reassignment was complete or its target acceptable, whether
leadership was out of balance, and whether each state change was legal; event by event, whole
procedures (see `procedures`). Invariants: a decision is made again from its own line alone; a
difference names the line, what stands there and what would be decided now; a decider that fails is
a difference too. Which replicas restarted unseen depends on a whole snapshot: it is not checked
where lines are missing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.controller.broker_epochs import compare, restarted_unseen
from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind
from ottla.controller.isr_changes import EPOCHS_FROM, rule_of, validate
from ottla.controller.leadership import (
    BeyondIsr,
    plan_election,
    plan_epoch_bump,
    plan_isr_removal,
    plan_new,
)
from ottla.controller.plan import Plan
from ottla.controller.reassignment import caught_up, goal_of, problem_with
from ottla.controller.requested_elections import too_much_elsewhere
from ottla.controller.states import (
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    PartitionReplica,
    PartitionState,
    ReplicaState,
)
from ottla.explain.lines import Entry
from ottla.explain.procedures import Difference, Procedures
from ottla.explain.replayed_term import failure
from ottla.explain.rules import REQUESTED
from ottla.explain.starts import partition_data, topic_data
from ottla.model.cluster import (
    BrokerInfo,
    Eligible,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.journal_schema import (
    BrokersChanged,
    ClusterFacts,
    DecisionLine,
    LeaderBalanceDue,
    ReassignmentRefused,
    ReassignmentStep,
    Registration,
    RestartedUnseen,
    StateChangeLine,
    TopicDeletionsRequested,
    TopicFacts,
    partition_of,
)
from ottla.model.rules import Rule, words_of
from ottla.wire.messages.control import AlterPartitionRequest

_KINDS = {kind.value for kind in ElectionKind}
_TOPIC_ID = b"explain-explain!"
_FORMER_EPOCH = 1
"""Not the epoch of the brokers that a line is decided with: those have none."""


@dataclass(slots=True)
class Replay:
    """Takes a journal's lines; counts what was decided again, keeps what came out differently."""

    checked: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    """Decisions this version has no decider for."""
    differences: list[Difference] = field(default_factory=list)
    _found: "_Found | None" = None
    _procedures: Procedures = field(default_factory=Procedures)

    def take(self, entry: Entry) -> None:
        """Decide one line again."""
        line, facts = entry.line, entry.facts
        self._term_began(entry)
        self._procedures.take(entry)
        if isinstance(line, DecisionLine):
            self._decision(entry, line)
        elif isinstance(line, StateChangeLine):
            self._compare(
                entry, "states", ", ".join(line.subjects[:3]), "a legal state change", _legality
            )
        elif isinstance(facts, BrokersChanged) and facts.known is not None:
            journaled = _change(facts.new, facts.bounced, facts.dead)
            self._compare(entry, "broker changes", "brokers", journaled, _broker_change)
        elif isinstance(facts, ReassignmentStep) and facts.step in {"wait", "complete"}:
            self._compare(entry, "reassignments", facts.partition, facts.step, _step)
        elif isinstance(facts, ReassignmentRefused):
            self._compare(entry, "reassignments", facts.partition, facts.reason, _refusal)
        elif isinstance(facts, LeaderBalanceDue):
            journaled = "out of balance" if facts.due else "in balance"
            self._compare(entry, "balance", f"broker {facts.broker}", journaled, _balance)

    def _decision(self, entry: Entry, line: DecisionLine) -> None:
        if line.election == "alter-partition":
            self._compare(entry, "ISR changes", line.partition, _journaled_answer(line), _respond)
            return
        if line.election not in {*_KINDS, "new", "isr-removal", "epoch"}:
            self.unknown[line.election] = self.unknown.get(line.election, 0) + 1
            return
        journaled = _outcome(line.rule, line.after, line.rejected)
        self._compare(entry, f"election: {line.election}", line.partition, journaled, _elected)

    def _term_began(self, entry: Entry) -> None:
        """Gather a failover's snapshot; check who restarted unseen once it is acted upon."""
        line, facts, found = entry.line, entry.facts, self._found
        if isinstance(facts, ClusterFacts):
            self._found = _Found(line.epoch) if facts.reason == "elected" else None
            if self._found is not None:
                self._found.take_brokers(facts)
        elif found is None:
            return
        elif line.epoch != found.epoch:
            self._found = None
        elif isinstance(facts, TopicFacts):
            found.take_topic(facts)
        elif isinstance(facts, TopicDeletionsRequested):
            found.context.deleting.update(dict.fromkeys(facts.topics))
        elif isinstance(line, StateChangeLine) or isinstance(facts, RestartedUnseen):
            self._found = None
            journaled: tuple[tuple[str, int], ...] = ()
            if isinstance(facts, RestartedUnseen):
                journaled = facts.replicas
            names = [PartitionReplica(partition_of(tp), broker) for tp, broker in journaled]
            self._compare(
                entry,
                "unseen restarts",
                "replicas",
                _named(names),
                lambda _entry: _named(restarted_unseen(found.context, found.written_at)),
            )

    def lines_missing(self) -> None:
        """Take note that the journal has a gap here."""
        self._found = None
        self._procedures.lines_missing()

    def finish(self) -> None:
        """Take note that the journal ends here, and add what its procedures came to."""
        self._procedures.finish()
        if self._procedures.checked:
            self.checked["procedures"] = self._procedures.checked
        self.differences += self._procedures.differences

    def _compare(
        self,
        entry: Entry,
        decider: str,
        subject: str,
        journaled: str,
        decide: Callable[[Entry], str],
    ) -> None:
        self.checked[decider] = self.checked.get(decider, 0) + 1
        try:
            now = decide(entry)
        except Exception as error:  # noqa: BLE001 - a rule that fails is what is looked for
            now = failure(error)
        if now != journaled:
            self.differences.append(Difference.at(entry, decider, subject, journaled, now))


class _Found:
    """A failover's snapshot as a context."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.context = Context(epoch)
        self.written_at: dict[TopicPartition, int] = {}

    def take_brokers(self, facts: ClusterFacts) -> None:
        self.context.set_brokers(map(_broker, facts.brokers))
        self.context.clean_brokers = set(facts.whole)

    def take_topic(self, facts: TopicFacts) -> None:
        assignment = {number: found.assignment for number, found in facts.partitions.items()}
        self.context.add_topic(TopicInfo(facts.topic, None, assignment))
        for number, found in facts.partitions.items():
            state = found.leadership
            if state is not None and found.zxid is not None:
                tp = TopicPartition(facts.topic, number)
                self.context.leadership[tp] = _stored(state, found.controller_epoch)
                self.written_at[tp] = found.zxid
                if found.eligible:
                    self.context.eligible[tp] = Eligible(
                        ZERO_UUID, found.eligible_at, 1, found.eligible
                    )


# --- the deciders, one line each --------------------------------------------------------------


def _elected(entry: Entry) -> str:
    line: Any = entry.line
    tp = partition_of(line.partition)
    context = _context(line)
    read = {} if line.before is None else {tp: _stored(line.before, line.epoch)}
    plan: Plan
    if line.election == "new":
        plan = plan_new(context, [tp])
    elif line.election == "isr-removal":
        plan = plan_isr_removal(context, -1 if line.broker is None else line.broker, [tp], read)
    elif line.election == "epoch":
        rule = line.decided_by or Rule.EPOCH_FOR_ASSIGNMENT
        plan = plan_epoch_bump(context, [tp], read, rule)
    else:
        kind = ElectionKind(line.election)
        unclean = kind is ElectionKind.UNCLEAN
        ends = {broker: (epoch, end) for broker, epoch, end in line.ends}
        beyond = {tp: BeyondIsr(line.eligible, line.crashed, ends)}
        plan = plan_election(context, kind, [tp], read, {tp.topic: unclean}, beyond)
    decision = plan.decisions.get(tp)
    if decision is None:
        failure = plan.failures.get(tp)
        return "nothing to decide" if failure is None else str(failure)
    return _outcome(decision.rule, decision.after, decision.rejected)


def _outcome(rule: str, after: LeaderAndIsr | None, rejected: tuple[tuple[int, str], ...]) -> str:
    others = "; ".join(f"not {broker} ({why})" for broker, why in rejected)
    state = "no leader" if after is None else _state(after)
    return f"{words_of(rule)}: {state}" + (f"; {others}" if others else "")


def _state(state: LeaderAndIsr) -> str:
    recovering = ", recovering" if state.recovery_state else ""
    return (
        f"leader {state.leader}, leader epoch {state.leader_epoch}, ISR {list(state.isr)}"
        f"{recovering}"
    )


def _journaled_answer(line: DecisionLine) -> str:
    """Return what the rules said, apart from what became of the write."""
    if line.written or line.decided_by in REQUESTED:
        return f"{words_of(line.rule)}: written"
    return f"{line.rule}: {line.outcome.removeprefix('refused: ')}"


def _respond(entry: Entry) -> str:
    line: Any = entry.line
    tp = partition_of(line.partition)
    context = _context(line)
    if line.before is not None:
        context.leadership[tp] = _stored(line.before, line.epoch)
    context.topic_names[_TOPIC_ID] = tp.topic
    broker = -1 if line.broker is None else line.broker
    context.add_broker(BrokerInfo(broker, ()))
    version = EPOCHS_FROM if line.version is None else line.version
    for doubtful in line.unsure:
        context.former_lives[doubtful] = {tp: line.asked.partition_epoch}
    verdict = validate(context, _request(line, broker, tp, version), version)
    if verdict.error is not ErrorCode.NONE:
        return verdict.error.name
    if tp in verdict.writes:
        rule = rule_of(line.before, verdict.writes[tp])
        return f"{words_of(rule)}: written"
    response = verdict.results[tp]
    name = response.name if isinstance(response, ErrorCode) else "as it is"
    return f"{verdict.reasons.get(tp, 'asked before')}: {name}"


def _request(line: Any, broker: int, tp: TopicPartition, version: int) -> AlterPartitionRequest:
    epochs = dict.fromkeys(line.stale, _FORMER_EPOCH)
    topic = topic_data(tp.topic, _TOPIC_ID, version)
    topic.partitions.append(partition_data(tp.partition, line.asked, epochs, version))
    return AlterPartitionRequest(broker_id=broker, broker_epoch=-1, topics=[topic])


def _broker_change(entry: Entry) -> str:
    facts: Any = entry.facts
    context = Context()
    context.set_brokers(map(_broker, facts.known))
    change = compare(context, map(_broker, facts.present))
    return _change(
        tuple(b.id for b in change.new), tuple(b.id for b in change.bounced), change.dead
    )


def _change(new: tuple[int, ...], bounced: tuple[int, ...], dead: tuple[int, ...]) -> str:
    return f"new {list(new)}, bounced {list(bounced)}, dead {list(dead)}"


def _step(entry: Entry) -> str:
    facts: Any = entry.facts
    return "complete" if caught_up(facts.assignment, facts.isr) else "wait"


def _refusal(entry: Entry) -> str:
    facts: Any = entry.facts
    assignment: ReplicaAssignment = facts.assignment
    if facts.target is not None:
        problem = problem_with(assignment, facts.target, set(facts.live).__contains__)
        if problem is not None:
            return problem
    goal = goal_of(assignment, facts.target, facts.isr, facts.min_isr)
    return goal if isinstance(goal, str) else f"accepted: {list(goal.replicas)}"


def _balance(entry: Entry) -> str:
    facts: Any = entry.facts
    due = too_much_elsewhere(facts.elsewhere, facts.of, facts.limit)
    return "out of balance" if due else "in balance"


def _legality(entry: Entry) -> str:
    line: Any = entry.line
    try:
        before = PartitionState(line.before)
        legal = before in PARTITION_TRANSITIONS[PartitionState(line.after)]
    except ValueError:
        legal = ReplicaState(line.before) in REPLICA_TRANSITIONS[ReplicaState(line.after)]
    return (
        "a legal state change"
        if legal
        else f"{line.before} -> {line.after} is not a legal state change"
    )


def _named(replicas: list[PartitionReplica]) -> str:
    return ", ".join(map(str, sorted(replicas))) or "none"


# --- a line as a context ------------------------------------------------------------------------


def _context(line: DecisionLine) -> Context:
    tp = partition_of(line.partition)
    context = Context(line.epoch)
    context.set_brokers(BrokerInfo(broker, ()) for broker in line.online)
    context.shutting_down = set(line.shutting_down)
    context.set_assignment(tp, line.assignment)
    return context


def _stored(state: LeaderAndIsr, controller_epoch: int) -> LeaderIsrAndControllerEpoch:
    return LeaderIsrAndControllerEpoch(state, controller_epoch)


def _broker(registration: Registration) -> BrokerInfo:
    broker, epoch, rack = registration
    return BrokerInfo(broker, (), rack, epoch)
