"""State changes of partitions and replicas: read, decide, write, settle, send.

A decider. The five steps of every change of state: 1. *read* the states of the partitions concerned
(a new controller has just read all of them); 2. *decide* by `leadership` over the context and what
was read; 3. *write* the new states, compared and swapped; a partition whose state had changed
meanwhile is read and decided once more, alone; 4. *settle* in the context only what was written; 5.
*send* the brokers one batch of requests, then write the journal. AlterPartition takes the same way
from step 3 on: it is decided from the context. Invariants: nothing is sent before it is written; an
illegal change of one subject is refused and logged with its history and takes none of the others
with it; no step works on more than a slice before it lets the loop go on; `cause` is the id of the
event that all of it belongs to. Kafka: `ZkPartitionStateMachine` and `ZkReplicaStateMachine`.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from ottla.controller.batch import RequestBatch
from ottla.controller.cluster_state import ClusterState
from ottla.controller.context import Context, Settings
from ottla.controller.elections import ElectionKind
from ottla.controller.eligibility import Eligibility, record_behind
from ottla.controller.found import States
from ottla.controller.journal import CHANGES_A_LINE, Change
from ottla.controller.leadership import (
    needs_unclean_config,
    plan_election,
    plan_epoch_bump,
    plan_isr_removal,
    plan_new,
)
from ottla.controller.outbox import Outbox
from ottla.controller.plan import Decision, Failure, Plan
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.model import journal_schema as journaled
from ottla.model.cluster import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.rules import Rule
from ottla.model.steps import SLICE, slices, yield_to_loop
from ottla.model.transitions import Machine, State, Subject

logger = logging.getLogger(__name__)
T = TypeVar("T")

WRITE_SLICE = 2000
"""Partitions that are read, decided, written and sent together.

A broker that led more is replaced in several steps, one after the other: with 1000 the last one of
1,001 partitions was led 0.1 s after the others.
"""
MAX_CONFLICTS = 50
"""How often one partition may be decided once more because its znode kept changing."""

Outcome = LeaderAndIsr | Failure
Recipients = Mapping[TopicPartition, tuple[int, ...]]


class StateChanges:
    """The state changes of one event. See the module."""

    def __init__(
        self,
        context: Context,
        settings: Settings,
        cluster: ClusterState,
        outbox: Outbox,
        eligibility: Eligibility,
        cause: int,
    ) -> None:
        self.context = context
        self.settings = settings
        self.cluster = cluster
        self.outbox = outbox
        self.eligibility = eligibility
        self.cause = cause
        self.states_just_read = False
        """Whether the context's states were read for this very event: what is decided from them is
        written if they still have the same versions, and otherwise read and decided once more."""
        self.small_requests = False
        """Whether brokers are sent a slice of partitions at a time."""
        self.changes: list[Change] = []
        """Made, and not in the journal yet."""
        self.decisions: list[tuple[Decision, str]] = []
        """Made, with what became of each, and not in the journal yet."""

    # --- send -------------------------------------------------------------------------------

    def batch(self) -> RequestBatch:
        return RequestBatch(self.context, self.settings.controller_id, self.settings.listener)

    async def send(self, batch: RequestBatch) -> None:
        """Queue a batch's requests; then write down what changed and was decided.

        Before, the eligible replicas: a leader that is sent a state looks for the state's record.
        """
        await self.write_eligible()
        await self.outbox.send(batch, *self.take_unrecorded())

    async def metadata(
        self, brokers: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Send brokers UpdateMetadata: the live brokers, and the state of some partitions."""
        batch = self.batch()
        batch.metadata(brokers, partitions)
        await self.send(batch)

    def take_unrecorded(self) -> tuple[list[Change], list[tuple[Decision, str]]]:
        """Return what the journal does not have yet, and forget it."""
        unrecorded = self.changes, self.decisions
        self.changes, self.decisions = [], []
        return unrecorded

    def record_at_once(self) -> None:
        """Write down what the journal does not have yet: the procedure failed."""
        self.outbox.record_at_once(*self.take_unrecorded())

    async def write_eligible(self) -> None:
        """Write who may lead besides the ISR, by the states written since."""
        changed = await self.eligibility.write()
        if changed:
            partitions = {
                str(tp): [] if record is None else [b for b, _ in record.broker_epochs]
                for tp, record in changed.items()
            }
            self.outbox.record(journaled.EligibleChanged(partitions=partitions))

    # --- partitions -------------------------------------------------------------------------

    async def partitions(
        self,
        partitions: Sequence[TopicPartition],
        target: PartitionState,
        kind: ElectionKind | None = None,
        to_send: RequestBatch | None = None,
    ) -> dict[TopicPartition, Outcome]:
        """Change partitions' states; ONLINE elects by `kind` where there was a leader before.

        `to_send` takes what brokers are to be sent, and the caller sends it; without one it is
        sent here. Return the outcome of each election (new partitions have none).
        """
        states = self.context.partition_states
        legal = await self._legal(states, partitions, target)
        if not legal:
            return {}
        if target is not PartitionState.ONLINE:
            for some in slices(legal):
                for tp in some:
                    self._change_partition(tp, target)
                await yield_to_loop()
            await self.outbox.record_changes(*self.take_unrecorded())
            return {}
        new = states.among(legal, PartitionState.NEW)
        rest = states.among(legal, PartitionState.ONLINE, PartitionState.OFFLINE)
        for some in slices(new, WRITE_SLICE):
            await self._new_online(some, to_send)
        if not rest:
            return {}
        assert kind is not None, "an election is of a kind"
        outcomes: dict[TopicPartition, Outcome] = {}
        for some in slices(rest, WRITE_SLICE):
            outcomes.update(await self._elect(some, kind, to_send))
        return outcomes

    async def online_where_possible(
        self, topic: str | None = None
    ) -> dict[TopicPartition, Outcome]:
        """Try to give every new or offline partition a leader."""
        waiting = self.context.waiting_for_leader(topic)
        return await self.partitions(waiting, PartitionState.ONLINE, ElectionKind.OFFLINE)

    async def _new_online(
        self, partitions: Sequence[TopicPartition], to_send: RequestBatch | None
    ) -> None:
        """Give new partitions their first leader and ISR."""
        context = self.context
        plan = Plan()
        for some in slices(partitions):
            plan.merge(plan_new(context, some))
            await yield_to_loop()
        batch = to_send or self.batch()
        results = await self.cluster.create_states(
            {
                tp: LeaderIsrAndControllerEpoch(state, context.epoch)
                for tp, state in plan.writes.items()
            }
        )
        for some in slices(list(results)):
            for tp in some:
                error = results[tp]
                if error is not None:
                    plan.failures[tp] = Failure(str(error))
                    continue
                state = self._settle(tp, None, plan.writes[tp])
                assignment = context.assignment(tp)
                batch.lead_or_follow(state.leader_and_isr.isr, tp, state, assignment, is_new=True)
                self._change_partition(tp, PartitionState.ONLINE)
            await yield_to_loop()
        self._note(plan)
        if to_send is None:
            await self.send(batch)

    async def _elect(
        self,
        partitions: Sequence[TopicPartition],
        kind: ElectionKind,
        to_send: RequestBatch | None,
    ) -> dict[TopicPartition, Outcome]:
        batch = to_send or self.batch()

        async def decide(remaining: Sequence[TopicPartition], read: States) -> Plan:
            unclean = await self._unclean_topics(remaining, read, kind)
            beyond = await self.eligibility.look(remaining, read, kind, unclean)
            plan = Plan()
            for some in slices(remaining):
                plan.merge(plan_election(self.context, kind, some, read, unclean, beyond))
                await yield_to_loop()
            return plan

        outcomes, recipients = await self._read_decide_write(partitions, decide)
        for some in slices(list(outcomes)):
            for tp in some:
                if isinstance(outcomes[tp], Failure):
                    continue
                self._change_partition(tp, PartitionState.ONLINE)
                batch.lead_or_follow(
                    recipients.get(tp, ()),
                    tp,
                    self.context.leadership[tp],
                    self.context.assignment(tp),
                    is_new=False,
                )
            await yield_to_loop()
            if self.small_requests and to_send is None:
                await self.send(batch)
        if to_send is None:
            await self.send(batch)
        return outcomes

    async def _unclean_topics(
        self, partitions: Sequence[TopicPartition], read: States, kind: ElectionKind
    ) -> Mapping[str, bool]:
        """Read which topics allow to leave the ISR, but only where it matters."""
        if kind is not ElectionKind.OFFLINE:
            return {}
        topics = needs_unclean_config(self.context, partitions, read)
        if not topics:
            return {}
        return await self.cluster.read_unclean_topics(topics)

    async def bump_leader_epochs(
        self, assignments: Mapping[TopicPartition, ReplicaAssignment]
    ) -> None:
        """Raise partitions' leader epochs and send their replicas the new assignments."""
        outcomes = await self._bump(list(assignments), Rule.EPOCH_FOR_ASSIGNMENT)
        batch = self.batch()
        for some in slices(list(assignments)):
            for tp in some:
                if isinstance(outcomes[tp], Failure):
                    continue
                assignment, state = assignments[tp], self.context.leadership[tp]
                batch.lead_or_follow(assignment.original, tp, state, assignment, is_new=False)
                batch.lead_or_follow(assignment.adding, tp, state, assignment, is_new=True)
            await yield_to_loop()
        await self.send(batch)

    async def renew_leader_epochs(self, partitions: Sequence[TopicPartition]) -> None:
        """Raise leader epochs, so that nothing counts which leaders learned in the old ones."""
        outcomes = await self._bump(partitions, Rule.EPOCH_FOR_RETURNED_REPLICA)
        batch = self.batch()
        for tp, outcome in outcomes.items():
            if not isinstance(outcome, Failure):
                assignment, state = self.context.assignment(tp), self.context.leadership[tp]
                batch.lead_or_follow(assignment.replicas, tp, state, assignment, is_new=False)
        await self.send(batch)

    async def _bump(
        self, partitions: Sequence[TopicPartition], rule: Rule
    ) -> dict[TopicPartition, Outcome]:
        """Raise partitions' leader epochs; nothing is sent yet."""
        if not partitions:
            return {}

        async def decide(remaining: Sequence[TopicPartition], read: States) -> Plan:
            plan = Plan()
            for some in slices(remaining):
                plan.merge(plan_epoch_bump(self.context, some, read, rule))
                await yield_to_loop()
            return plan

        outcomes, _ = await self._read_decide_write(partitions, decide)
        return outcomes

    # --- replicas ---------------------------------------------------------------------------

    async def replicas(
        self,
        replicas: Sequence[PartitionReplica],
        target: ReplicaState,
        to_send: RequestBatch | None = None,
    ) -> None:
        """Change replicas' states, broker by broker, with one batch of requests.

        `to_send` takes these, and the caller sends it; without one they are sent here.
        """
        legal = await self._legal(self.context.replica_states, replicas, target)
        if not legal:
            return
        batch = to_send or self.batch()
        by_broker: dict[int, list[PartitionReplica]] = {}
        for some in slices(legal, CHANGES_A_LINE):
            for replica in some:
                by_broker.setdefault(replica.broker, []).append(replica)
            await yield_to_loop()
        for broker, group in by_broker.items():
            if target is ReplicaState.OFFLINE:
                for part in slices(group, SLICE if self.small_requests else WRITE_SLICE):
                    await self._replicas_offline(broker, part, batch)
                    if self.small_requests:
                        await self.send(batch)
                continue
            for some in slices(group):
                if target is ReplicaState.ONLINE:
                    self._replicas_online(broker, some, batch)
                else:
                    for replica in some:
                        self._change_one(replica, target, batch)
                await yield_to_loop()
        if to_send is None:
            await self.send(batch)

    def _replicas_online(
        self, broker: int, replicas: Sequence[PartitionReplica], batch: RequestBatch
    ) -> None:
        """Bring one broker's replicas online: what a failover does most."""
        context, machine, cause = self.context, self.context.replica_states, self.cause
        online = ReplicaState.ONLINE
        sent = []
        for replica in replicas:
            tp = replica.partition
            before = machine.change(replica, online, cause)
            self.changes.append((replica, before._value_, online._value_))
            assignment = context.assignment(tp)
            if before is ReplicaState.NEW:
                if broker not in assignment.replicas:
                    logger.error("replica %s is not in the assignment %s", replica, assignment)
            elif (known := context.leadership.get(tp)) is not None:
                sent.append((tp, known, assignment))
        if sent:
            batch.follow(broker, sent)

    async def send_new(self, replicas: Sequence[PartitionReplica]) -> None:
        """Send brokers once more what their new replicas are to follow; these stay new."""
        context, batch = self.context, self.batch()
        for some in slices(replicas):
            for tp, broker in some:
                known = context.leadership.get(tp)
                if known is not None:
                    batch.lead_or_follow([broker], tp, known, context.assignment(tp), is_new=True)
            await yield_to_loop()
        await self.send(batch)

    def _change_one(
        self, replica: PartitionReplica, target: ReplicaState, batch: RequestBatch
    ) -> None:
        context = self.context
        tp, broker = replica
        known = context.leadership.get(tp)
        if target is ReplicaState.NEW and known is not None:
            if known.leader_and_isr.leader == broker:
                logger.error("replica %s leads its partition and cannot be new", replica)
                return
            batch.lead_or_follow([broker], tp, known, context.assignment(tp), is_new=True)
        elif target is ReplicaState.DELETION_STARTED:
            batch.stop([broker], tp, delete=True)
        self._change_replica(replica, target)
        if target is ReplicaState.NON_EXISTENT:
            assignment = context.assignment(tp)
            context.set_assignment(
                tp,
                ReplicaAssignment(
                    *(
                        tuple(r for r in part if r != broker)
                        for part in (assignment.replicas, assignment.adding, assignment.removing)
                    )
                ),
            )
            context.replica_states.forget(replica)

    async def _replicas_offline(
        self, broker: int, replicas: Sequence[PartitionReplica], batch: RequestBatch
    ) -> None:
        """Stop one broker's replicas and take them out of the ISRs."""
        context = self.context
        for replica in replicas:
            batch.stop([broker], replica.partition, delete=False)
        known = [r.partition for r in replicas if r.partition in context.leadership]

        async def decide(remaining: Sequence[TopicPartition], read: States) -> Plan:
            plan = Plan()
            for some in slices(remaining):
                plan.merge(plan_isr_removal(context, broker, some, read))
                await yield_to_loop()
            return plan

        outcomes, _ = await self._read_decide_write(known, decide)
        for some in slices(replicas):
            for replica in some:
                tp = replica.partition
                outcome = outcomes.get(tp)
                if tp not in context.leadership:
                    batch.metadata(context.brokers, [tp])
                    self._change_replica(replica, ReplicaState.OFFLINE)
                elif isinstance(outcome, LeaderAndIsr):
                    if tp.topic not in context.deleting:
                        assignment = context.assignment(tp)
                        others = [r for r in assignment.replicas if r != broker]
                        batch.lead_or_follow(
                            others, tp, context.leadership[tp], assignment, is_new=False
                        )
                    self._change_replica(replica, ReplicaState.OFFLINE)
            await yield_to_loop()

    # --- read, decide, write, settle --------------------------------------------------------

    async def _read_decide_write(
        self,
        partitions: Sequence[TopicPartition],
        decide: Callable[[Sequence[TopicPartition], States], Awaitable[Plan]],
    ) -> tuple[dict[TopicPartition, Outcome], Recipients]:
        """Return each partition's outcome and the brokers to send it to; update the context."""
        outcomes: dict[TopicPartition, Outcome] = {}
        recipients: dict[TopicPartition, tuple[int, ...]] = {}
        remaining = list(partitions)
        for attempt in range(MAX_CONFLICTS):
            if not remaining:
                break
            known = self.states_just_read and not attempt
            read = self._known(remaining) if known else await self.cluster.read_states(remaining)
            plan = await decide(remaining, read)
            recipients.update(plan.recipients)
            if not known:
                self._record_read(remaining, read, plan)
            for tp, state in plan.unchanged.items():
                self.context.leadership[tp] = LeaderIsrAndControllerEpoch(state, self.context.epoch)
                outcomes[tp] = state
            before = {tp: read[tp].leader_and_isr for tp in plan.writes}
            written, remaining = await self._write(plan, before)
            outcomes.update(written)
            self._note(plan, once_more=remaining)
            outcomes.update(plan.failures)
            if remaining:
                logger.info(
                    "elections repeated partitions=%d reason=their states changed", len(remaining)
                )
        for tp in remaining:
            outcomes[tp] = Failure(f"its state changed {MAX_CONFLICTS} times while being decided")
        return outcomes, recipients

    def _known(self, partitions: Sequence[TopicPartition]) -> States:
        """Return the context's states of partitions, those that are known."""
        leadership = self.context.leadership
        return {tp: leadership[tp] for tp in partitions if tp in leadership}

    def _record_read(self, partitions: Sequence[TopicPartition], read: States, plan: Plan) -> None:
        """Record what was read and is neither in a decision nor what was known."""
        states: dict[str, tuple[int, LeaderAndIsr] | None] = {}
        for tp in partitions:
            if tp in plan.decisions:
                continue
            found, known = read.get(tp), self.context.leadership.get(tp)
            if found is None:
                states[str(tp)] = None
            elif (
                known is None
                or found.leader_and_isr != known.leader_and_isr
                or found.controller_epoch > self.context.epoch
            ):
                states[str(tp)] = (found.controller_epoch, found.leader_and_isr)
        if states:
            self.outbox.record(journaled.StatesRead(states=states))

    async def _write(
        self, plan: Plan, before: Mapping[TopicPartition, LeaderAndIsr]
    ) -> tuple[dict[TopicPartition, LeaderAndIsr], list[TopicPartition]]:
        """Write a plan and settle what was written; return that, and what is to be tried again.

        What cannot be written becomes a failure of the plan.
        """
        records = {}
        for tp, planned in plan.writes.items():
            version = record_behind(self.context, tp, before[tp], planned)
            if version is not None:
                records[tp] = version
        result = await self.cluster.update_states(plan.writes, plan.newcomers, records)
        written: dict[TopicPartition, LeaderAndIsr] = {}
        for some in slices(list(result.finished.items())):
            if written:
                await yield_to_loop()
            for tp, state in some:
                if isinstance(state, LeaderAndIsr):
                    written[tp] = state
                    self._settle(tp, before[tp], state)
                else:
                    plan.failures[tp] = Failure(str(state), error=state.code)
        return written, result.retry

    async def write_proposals(self, plan: Plan) -> dict[TopicPartition, LeaderAndIsr | ErrorCode]:
        """Write what leaders propose, as decided from the context; return the new state or why not.

        A proposal is not tried again: its leader has to see the state that changed meanwhile.
        """
        before = {tp: self.context.leadership[tp].leader_and_isr for tp in plan.writes}
        written, changed = await self._write(plan, before)
        results: dict[TopicPartition, LeaderAndIsr | ErrorCode] = {}
        for tp in [*(tp for tp in plan.writes if tp not in changed), *changed]:
            decision = plan.decisions[tp]
            if tp in written:
                results[tp] = written[tp]
                self.decisions.append((replace(decision, after=written[tp]), "written"))
                continue
            if tp in changed:
                code = ErrorCode.INVALID_UPDATE_VERSION
                logger.info(
                    "AlterPartition refused partition=%s reason=its znode has another version", tp
                )
            elif plan.failures[tp].error is ErrorCode.INELIGIBLE_REPLICA:
                code = ErrorCode.INELIGIBLE_REPLICA
                logger.info("AlterPartition refused partition=%s reason=%s", tp, plan.failures[tp])
            else:
                code = plan.failures[tp].error or ErrorCode.UNKNOWN_SERVER_ERROR
                logger.error(
                    "AlterPartition not written partition=%s error=%s", tp, plan.failures[tp]
                )
            results[tp] = code
            self.decisions.append((decision, f"refused: {code.name}"))
        return results

    def _settle(
        self, tp: TopicPartition, before: LeaderAndIsr | None, after: LeaderAndIsr
    ) -> LeaderIsrAndControllerEpoch:
        """Take into the context what was written over `before`."""
        state = LeaderIsrAndControllerEpoch(after, self.context.epoch)
        self.eligibility.wrote(tp, before, after)
        self.context.leadership[tp] = state
        return state

    def _note(self, plan: Plan, once_more: Iterable[TopicPartition] = ()) -> None:
        """Keep decisions for the journal and log what failed."""
        repeated = set(once_more)
        for tp, decision in plan.decisions.items():
            failure = plan.failures.get(tp)
            outcome = "decided again" if tp in repeated else "written"
            self.decisions.append((decision, outcome if failure is None else f"failed: {failure}"))
        if not plan.failures:
            return
        undecided = {str(tp): str(f) for tp, f in plan.failures.items() if tp not in plan.decisions}
        if undecided:
            self.outbox.record(journaled.Undecided(reasons=undecided))
        some = [f"{tp} ({failure})" for tp, failure in list(plan.failures.items())[:5]]
        logger.warning(
            "elections failed controller_epoch=%d partitions=%d reasons=%s%s",
            self.context.epoch,
            len(plan.failures),
            "; ".join(some),
            " ..." if len(plan.failures) > len(some) else "",
        )
        if any(f.superseded for f in plan.failures.values()):
            self.outbox.check_controller()

    # --- states -----------------------------------------------------------------------------

    async def _legal(
        self, machine: Machine[Subject, State], subjects: Sequence[Subject], target: State
    ) -> list[Subject]:
        """Return those whose change is legal; log why the others' is not."""
        legal: list[Subject] = []
        for some in slices(subjects, CHANGES_A_LINE):
            good, refusals = machine.legal(some, target)
            legal += good
            if refusals:
                self.outbox.log_refusals(refusals)
            await yield_to_loop()
        return legal

    def _change_partition(self, tp: TopicPartition, target: PartitionState) -> None:
        before = self.context.partition_states.change(tp, target, self.cause)
        self.changes.append((tp, before._value_, target._value_))

    def _change_replica(self, replica: PartitionReplica, target: ReplicaState) -> None:
        before = self.context.replica_states.change(replica, target, self.cause)
        self.changes.append((replica, before._value_, target._value_))
