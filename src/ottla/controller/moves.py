"""Moves: read, decide, write, settle, tell.

Who may call: the event handlers. The five beats of every change of state:
1. *read* the state znodes of the partitions concerned, pipelined;
2. *decide* by `leadership` over context and what was read;
3. *write* one fenced multi per chunk; a partition whose znode had another version meanwhile is
   read again and decided again, alone;
4. *settle* in the context only what stood;
5. *tell* the brokers in one batch, then the journal.
Invariants: nothing is told before it is written; an illegal move of one subject is refused and
logged with its history and takes none of the others with it; no step works on more than a slice
before it lets the loop go on. Kafka: `ZkPartitionStateMachine` and
`ZkReplicaStateMachine`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from ottla.controller.batch import Outgoing, RequestBatch
from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind
from ottla.controller.eligibility import Eligibility
from ottla.controller.journal import Journal
from ottla.controller.leadership import (
    FOR_ASSIGNMENT,
    FOR_RETURNED_REPLICA,
    States,
    needs_unclean_config,
    plan_election,
    plan_epoch_bump,
    plan_isr_removal,
    plan_new,
)
from ottla.controller.plan import Decision, Failure, Plan
from ottla.controller.state_log import StateLog
from ottla.controller.states import (
    Machine,
    PartitionReplica,
    PartitionState,
    ReplicaState,
    State,
    Subject,
)
from ottla.model.cluster import (
    RECOVERING,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
)
from ottla.model.ids import TopicPartition
from ottla.zookeeper.store import Store

logger = logging.getLogger(__name__)
T = TypeVar("T")

SLICE = 200
WRITE_SLICE = 1000
MOVES_A_LINE = 1000
MAX_CONFLICTS = 50
"""How often one partition may be decided again because its znode kept changing."""

Outcome = LeaderAndIsr | Failure
UncleanByDefault = Callable[[], bool]


def slices(items: Sequence[T], size: int = SLICE) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def yield_to_loop() -> None:
    """Let the loop do what has become due."""
    await asyncio.sleep(0)


class Moves:
    """See the module. `cause` is the id of the event being handled."""

    def __init__(
        self,
        context: Context,
        store: Store,
        journal: Journal,
        controller_id: int,
        listener: str,
        send: Callable[[Outgoing], None],
        unclean_by_default: UncleanByDefault,
        eligibility: Eligibility | None = None,
    ) -> None:
        self.cause = 0
        self.superseded = False
        """Whether a state was found that a newer controller wrote: find out who rules."""
        self.elections_total = 0
        self.unclean_total = 0
        """Those of them whose leader was not in the ISR: records may be lost."""
        self._context = context
        self._store = store
        self._journal = journal
        self._controller_id = controller_id
        self._listener = listener
        self._send = send
        self._unclean_by_default = unclean_by_default
        self.eligibility = eligibility or Eligibility(context, store)
        self._state_log = StateLog(context, controller_id)
        self._moved: list[tuple[TopicPartition | PartitionReplica, str, str]] = []
        self._noted: list[tuple[Decision, str]] = []

    # --- tell -------------------------------------------------------------------------------

    def batch(self) -> RequestBatch:
        return RequestBatch(self._context, self._controller_id, self._listener)

    async def tell(self, batch: RequestBatch) -> None:
        """Queue a batch's requests, then write down what was decided and told."""
        told = []
        for request in batch.requests():
            if request is not None:
                self._send(request)
                told.append(request)
            await yield_to_loop()
        moved, self._moved = self._moved, []
        for moves in slices(moved, MOVES_A_LINE):
            self._journal.state_changes(self.cause, moves)
            # In slices also where nobody listens: a log level must not change what runs when.
            for few in slices(moves):
                self._state_log.moved(few)
                await yield_to_loop()
        noted, self._noted = self._noted, []
        for some in slices(noted):
            for decision, outcome in some:
                self._journal.decision(self.cause, decision, outcome)
            await yield_to_loop()
        for request in told:
            self._journal.request(self.cause, request.broker, request.api_key, request.summary)
        self._state_log.told(told)
        changed = await self.eligibility.keep()
        if changed:
            facts = {
                str(tp): [] if record is None else [b for b, _ in record.lives]
                for tp, record in changed.items()
            }
            self._journal.event(self.cause, "EligibleChanged", {"partitions": facts})

    async def metadata(
        self, brokers: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Tell brokers who lives, and the state of some partitions."""
        batch = self.batch()
        batch.metadata(brokers, partitions)
        await self.tell(batch)

    # --- partitions -------------------------------------------------------------------------

    async def partitions(
        self,
        partitions: Sequence[TopicPartition],
        target: PartitionState,
        kind: ElectionKind | None = None,
    ) -> dict[TopicPartition, Outcome]:
        """Move partitions; ONLINE holds an election of `kind` for those that had a leader.

        Return the outcome of each election (new partitions have none).
        """
        valid = await self._legal(self._context.partition_states, partitions, target)
        if not valid:
            return {}
        if target is not PartitionState.ONLINE:
            for some in slices(valid):
                for tp in some:
                    self._move_partition(tp, target)
                await yield_to_loop()
            await self.tell(self.batch())
            return {}
        states = self._context.partition_states
        new = states.among(valid, PartitionState.NEW)
        rest = states.among(valid, PartitionState.ONLINE, PartitionState.OFFLINE)
        for some in slices(new, WRITE_SLICE):
            await self._bring_new_online(some)
        if not rest:
            return {}
        assert kind is not None, "an election needs an occasion"
        outcomes: dict[TopicPartition, Outcome] = {}
        for some in slices(rest, WRITE_SLICE):
            outcomes.update(await self._elect(some, kind))
        return outcomes

    async def online_where_possible(
        self, topic: str | None = None
    ) -> dict[TopicPartition, Outcome]:
        """Try to give every new or offline partition a leader."""
        waiting = self._context.waiting_for_leader(topic)
        return await self.partitions(waiting, PartitionState.ONLINE, ElectionKind.OFFLINE)

    async def _bring_new_online(self, partitions: Sequence[TopicPartition]) -> None:
        context = self._context
        plan = Plan()
        for some in slices(partitions):
            plan.merge(plan_new(context, some))
            await yield_to_loop()
        batch = self.batch()
        results = await self._store.create_topic_partition_states(
            {
                tp: LeaderIsrAndControllerEpoch(state, context.epoch)
                for tp, state in plan.writes.items()
            },
            context.epoch_zk_version,
        )
        for some in slices(list(results)):
            for tp in some:
                error = results[tp]
                if error is not None:
                    plan.failures[tp] = Failure(str(error))
                    continue
                state = LeaderIsrAndControllerEpoch(plan.writes[tp], context.epoch)
                context.leadership[tp] = state
                self.eligibility.wrote(tp, None, state.leader_and_isr)
                assignment = context.assignment(tp)
                batch.lead_or_follow(state.leader_and_isr.isr, tp, state, assignment, is_new=True)
                self._move_partition(tp, PartitionState.ONLINE)
            await yield_to_loop()
        self._note(plan)
        await self.tell(batch)

    async def _elect(
        self, partitions: Sequence[TopicPartition], kind: ElectionKind
    ) -> dict[TopicPartition, Outcome]:
        batch = self.batch()

        reads: list[States] = []

        async def decide(remaining: Sequence[TopicPartition], read: States) -> Plan:
            reads.append(read)
            unclean = await self._unclean_topics(remaining, read, kind)
            beyond = await self.eligibility.look(remaining, read, kind, unclean)
            plan = Plan()
            for some in slices(remaining):
                plan.merge(plan_election(self._context, kind, some, read, unclean, beyond))
                await yield_to_loop()
            return plan

        outcomes, recipients = await self._read_decide_write(partitions, decide)
        for some in slices(list(outcomes)):
            for tp in some:
                outcome = outcomes[tp]
                if isinstance(outcome, Failure):
                    continue
                before = next(r[tp] for r in reversed(reads) if tp in r).leader_and_isr
                if outcome.leader_epoch != before.leader_epoch:
                    self.elections_total += 1
                    self.unclean_total += (
                        outcome.recovery_state == RECOVERING and outcome.leader not in before.isr
                    )
                self._move_partition(tp, PartitionState.ONLINE)
                batch.lead_or_follow(
                    recipients.get(tp, ()),
                    tp,
                    self._context.leadership[tp],
                    self._context.assignment(tp),
                    is_new=False,
                )
            await yield_to_loop()
        await self.tell(batch)
        return outcomes

    async def _unclean_topics(
        self, partitions: Sequence[TopicPartition], read: States, kind: ElectionKind
    ) -> dict[str, bool]:
        """Read which topics allow to leave the ISR, but only where it matters."""
        if kind is not ElectionKind.OFFLINE:
            return {}
        topics = needs_unclean_config(self._context, partitions, read)
        if not topics:
            return {}
        configs = await self._store.get_entities_configs("topics", topics)
        default = "true" if self._unclean_by_default() else "false"
        return {
            topic: configs[topic].get("unclean.leader.election.enable", default).lower() == "true"
            for topic in topics
        }

    async def bump_leader_epochs(
        self, assignments: Mapping[TopicPartition, ReplicaAssignment]
    ) -> None:
        """Raise partitions' leader epochs and tell their replicas of new assignments."""
        outcomes = await self._bump(list(assignments), FOR_ASSIGNMENT)
        batch = self.batch()
        for some in slices(list(assignments)):
            for tp in some:
                if isinstance(outcomes[tp], Failure):
                    continue
                assignment, state = assignments[tp], self._context.leadership[tp]
                batch.lead_or_follow(assignment.original, tp, state, assignment, is_new=False)
                batch.lead_or_follow(assignment.adding, tp, state, assignment, is_new=True)
            await yield_to_loop()
        await self.tell(batch)

    async def renew_leader_epochs(self, partitions: Sequence[TopicPartition]) -> None:
        """Raise leader epochs, so that nothing counts which leaders learned in the old ones."""
        outcomes = await self._bump(partitions, FOR_RETURNED_REPLICA)
        batch = self.batch()
        for tp, outcome in outcomes.items():
            if not isinstance(outcome, Failure):
                assignment, state = self._context.assignment(tp), self._context.leadership[tp]
                batch.lead_or_follow(assignment.replicas, tp, state, assignment, is_new=False)
        await self.tell(batch)

    async def _bump(
        self, partitions: Sequence[TopicPartition], rule: str
    ) -> dict[TopicPartition, Outcome]:
        """Raise partitions' leader epochs; nobody is told yet."""
        if not partitions:
            return {}

        async def decide(remaining: Sequence[TopicPartition], read: States) -> Plan:
            plan = Plan()
            for some in slices(remaining):
                plan.merge(plan_epoch_bump(self._context, some, read, rule))
                await yield_to_loop()
            return plan

        outcomes, _ = await self._read_decide_write(partitions, decide)
        return outcomes

    # --- replicas ---------------------------------------------------------------------------

    async def replicas(self, replicas: Sequence[PartitionReplica], target: ReplicaState) -> None:
        """Move replicas, broker by broker, in one batch."""
        valid = await self._legal(self._context.replica_states, replicas, target)
        if not valid:
            return
        batch = self.batch()
        by_broker: dict[int, list[PartitionReplica]] = {}
        for some in slices(valid, MOVES_A_LINE):
            for replica in some:
                by_broker.setdefault(replica.broker, []).append(replica)
            await yield_to_loop()
        for broker, group in by_broker.items():
            if target is ReplicaState.OFFLINE:
                for part in slices(group, WRITE_SLICE):
                    await self._replicas_offline(broker, part, batch)
                continue
            for some in slices(group):
                if target is ReplicaState.ONLINE:
                    self._replicas_online(broker, some, batch)
                else:
                    for replica in some:
                        self._move_one(replica, target, batch)
                await yield_to_loop()
        await self.tell(batch)

    def _replicas_online(
        self, broker: int, replicas: Sequence[PartitionReplica], batch: RequestBatch
    ) -> None:
        """Bring one broker's replicas online: what a failover does most."""
        context, machine, cause = self._context, self._context.replica_states, self.cause
        online = ReplicaState.ONLINE
        told = []
        for replica in replicas:
            tp = replica.partition
            before = machine.move(replica, online, cause)
            self._moved.append((replica, before._value_, online._value_))
            assignment = context.assignment(tp)
            if before is ReplicaState.NEW:
                if broker not in assignment.replicas:
                    logger.error("replica %s is not in the assignment %s", replica, assignment)
            elif (known := context.leadership.get(tp)) is not None:
                told.append((tp, known, assignment))
        if told:
            batch.follow(broker, told)

    async def tell_new(self, replicas: Sequence[PartitionReplica]) -> None:
        """Tell brokers once more what their new replicas are to follow; these stay new."""
        context, batch = self._context, self.batch()
        for some in slices(replicas):
            for tp, broker in some:
                known = context.leadership.get(tp)
                if known is not None:
                    batch.lead_or_follow([broker], tp, known, context.assignment(tp), is_new=True)
            await yield_to_loop()
        await self.tell(batch)

    def _move_one(
        self, replica: PartitionReplica, target: ReplicaState, batch: RequestBatch
    ) -> None:
        context = self._context
        tp, broker = replica
        known = context.leadership.get(tp)
        if target is ReplicaState.NEW and known is not None:
            if known.leader_and_isr.leader == broker:
                logger.error("replica %s leads its partition and cannot be new", replica)
                return
            batch.lead_or_follow([broker], tp, known, context.assignment(tp), is_new=True)
        elif target is ReplicaState.DELETION_STARTED:
            batch.stop([broker], tp, delete=True)
        self._move_replica(replica, target)
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
        context = self._context
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
                    self._move_replica(replica, ReplicaState.OFFLINE)
                elif isinstance(outcome, LeaderAndIsr):
                    if tp.topic not in context.deleting:
                        assignment = context.assignment(tp)
                        others = [r for r in assignment.replicas if r != broker]
                        batch.lead_or_follow(
                            others, tp, context.leadership[tp], assignment, is_new=False
                        )
                    self._move_replica(replica, ReplicaState.OFFLINE)
            await yield_to_loop()

    # --- read, decide, write, settle --------------------------------------------------------

    async def _read_decide_write(
        self,
        partitions: Sequence[TopicPartition],
        decide: Callable[[Sequence[TopicPartition], States], Awaitable[Plan]],
    ) -> tuple[dict[TopicPartition, Outcome], dict[TopicPartition, tuple[int, ...]]]:
        """Return each partition's outcome and who is to hear of it; the context is settled."""
        context = self._context
        outcomes: dict[TopicPartition, Outcome] = {}
        recipients: dict[TopicPartition, tuple[int, ...]] = {}
        remaining = list(partitions)
        for _ in range(MAX_CONFLICTS):
            if not remaining:
                break
            read = await self._store.get_topic_partition_states(remaining)
            plan = await decide(remaining, read)
            recipients.update(plan.recipients)
            result = await self._store.update_leader_and_isr(
                plan.writes, context.epoch, context.epoch_zk_version
            )
            for tp, state in [*plan.unchanged.items(), *result.finished.items()]:
                if isinstance(state, LeaderAndIsr):
                    context.leadership[tp] = LeaderIsrAndControllerEpoch(state, context.epoch)
                    outcomes[tp] = state
                    if tp in plan.writes:
                        self.eligibility.wrote(tp, read[tp].leader_and_isr, state)
                else:
                    plan.failures[tp] = Failure(str(state))
            self._note(plan, again=result.retry)
            outcomes.update(plan.failures)
            remaining = result.retry
            if remaining:
                logger.info("decide again partitions=%d: their states changed", len(remaining))
        for tp in remaining:
            outcomes[tp] = Failure(f"its state changed {MAX_CONFLICTS} times while being decided")
        return outcomes, recipients

    def _note(self, plan: Plan, again: Iterable[TopicPartition] = ()) -> None:
        """Keep decisions for the journal and say what failed."""
        repeated = set(again)
        for tp, decision in plan.decisions.items():
            failure = plan.failures.get(tp)
            outcome = "decided again" if tp in repeated else "written"
            self._noted.append((decision, outcome if failure is None else f"failed: {failure}"))
        if not plan.failures:
            return
        undecided = {str(tp): str(f) for tp, f in plan.failures.items() if tp not in plan.decisions}
        if undecided:
            self._journal.event(self.cause, "Undecided", undecided)
        self.superseded = self.superseded or any(f.superseded for f in plan.failures.values())
        some = [f"{tp} ({failure})" for tp, failure in list(plan.failures.items())[:5]]
        logger.warning(
            "epoch=%d failed partitions=%d: %s%s",
            self._context.epoch,
            len(plan.failures),
            "; ".join(some),
            " ..." if len(plan.failures) > len(some) else "",
        )

    # --- states -----------------------------------------------------------------------------

    async def _legal(
        self, machine: "Machine[Subject, State]", subjects: Sequence[Subject], target: State
    ) -> list[Subject]:
        """Return those whose move is legal; say why the others' is not."""
        legal: list[Subject] = []
        for some in slices(subjects, MOVES_A_LINE):
            good, refusals = machine.legal(some, target)
            legal += good
            for refused in refusals:
                logger.error("epoch=%d refused %s", self._context.epoch, refused)
            self._state_log.refused(refusals)
            await yield_to_loop()
        return legal

    def _move_partition(self, tp: TopicPartition, target: PartitionState) -> None:
        before = self._context.partition_states.move(tp, target, self.cause)
        self._moved.append((tp, before._value_, target._value_))

    def _move_replica(self, replica: PartitionReplica, target: ReplicaState) -> None:
        before = self._context.replica_states.move(replica, target, self.cause)
        self._moved.append((replica, before._value_, target._value_))
