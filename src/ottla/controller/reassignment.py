"""Reassignment: moving a partition's replicas to other brokers (KIP-455).

A decider. The procedure is `_reassign`, its steps are Kafka's: U1-U3, then A1-A2 or B1-B8, each for
a chunk of partitions at once. ORS are the original replicas, TRS the target, RS all replicas while
it runs (ORS + TRS), AR = TRS - ORS those being added, RR = ORS - TRS those being removed.
Invariants: the znode is written before the context; the target is written last, so that a new
controller goes on from any step (R14); each partition takes the steps in this order, and one that
fails stops none of the others; a topic being reassigned is not deleted meanwhile. Kafka:
`KafkaController.onPartitionReassignment`, which takes one partition at a time.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from ottla.controller import deletion
from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind
from ottla.controller.state_changes import StateChanges
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.model import journal_schema as journaled
from ottla.model.cluster import ReplicaAssignment
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_LEADER, TopicPartition
from ottla.model.steps import slices, yield_to_loop


def reassign_to(assignment: ReplicaAssignment, target: tuple[int, ...]) -> ReplicaAssignment:
    """Return the assignment on the way to `target`, whatever it was on the way to before."""
    original = assignment.original
    replicas = tuple(dict.fromkeys(target + original))
    return ReplicaAssignment(
        replicas,
        tuple(r for r in replicas if r not in original),
        tuple(r for r in replicas if r not in target),
    )


def goal_of(
    assignment: ReplicaAssignment,
    target: tuple[int, ...] | None,
    isr: Collection[int],
    min_isr: int,
) -> ReplicaAssignment | str:
    """Return the assignment on the way to `target` (None: back to the original), or why not."""
    goal = reassign_to(assignment, assignment.original if target is None else target)
    problem = drops_too_many(goal, isr, min_isr)
    return goal if problem is None else problem


def drops_too_many(goal: ReplicaAssignment, isr: Collection[int], min_isr: int = 1) -> str | None:
    """Return why replicas in sync may not be dropped for this goal, or None.

    A cancelled or replaced reassignment drops the replicas it was adding at once, with their
    records. Those in sync that stay must be as many as min.insync.replicas asks for: one of them
    may be dead already, its disk lost, and registered until its session ends. Kafka drops them all
    the same in ZooKeeper mode; KRaft controllers refuse to where that takes an unclean election.
    """
    left = [r for r in isr if r in goal.replicas]
    enough = min(min_isr, len(goal.replicas))
    if len(left) == len(isr) or len(left) >= enough:
        return None
    if not left:
        return (
            f"No replica in sync {list(isr)} would be left among {list(goal.replicas)}: "
            "it would take an unclean leader election."
        )
    return (
        f"Of the replicas in sync {list(isr)} only {left} would be left among "
        f"{list(goal.replicas)}, fewer than min.insync.replicas={min_isr}: try again when more of "
        "these are in sync."
    )


def caught_up(assignment: ReplicaAssignment, isr: Collection[int] | None) -> bool:
    """Return whether a reassignment can be finished: the whole target is in sync."""
    if not assignment.being_reassigned:
        return True
    return isr is not None and set(assignment.target) <= set(isr)


def problem_with(
    assignment: ReplicaAssignment, target: tuple[int, ...], is_live: Callable[[int], bool]
) -> str | None:
    """Return why a target is not acceptable, or None. Replicas there already may be dead."""
    if not target:
        return "Empty replica list specified in partition reassignment."
    if len(set(target)) != len(target):
        return f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
    if min(target) < 0:
        return f"Invalid broker id in replica list: {list(target)}"
    dead = [r for r in reassign_to(assignment, target).adding if not is_live(r)]
    if dead:
        return f"Replica assignment has brokers that are not alive. Replica list: {dead}"
    return None


logger = logging.getLogger(__name__)

CHUNK = 500
"""Partitions that take a step together: a multi of their states is a quarter of what may be."""

Goals = Mapping[TopicPartition, ReplicaAssignment]
Isrs = Mapping[TopicPartition, tuple[int, ...]]
Wanted = Mapping[TopicPartition, tuple[int, ...] | None]
"""Partition -> its target replicas; None cancels."""
Result = tuple[ErrorCode, str | None]
DONE: Result = (ErrorCode.NONE, None)
UNKNOWN: Result = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


# --- the procedure ------------------------------------------------------------------------------


async def reassign(changes: StateChanges, goals: Goals) -> set[TopicPartition]:
    """Take reassignments as far as they go; return those whose goal could not be written."""
    unwritten: set[TopicPartition] = set()
    for some in slices(list(goals), CHUNK):
        unwritten |= await _reassign(changes, {tp: goals[tp] for tp in some})
    return unwritten


async def _reassign(changes: StateChanges, goals: Goals) -> set[TopicPartition]:
    """Do the steps for one chunk of partitions."""
    halted = {tp.topic for tp in goals}
    deletion.make_ineligible(changes, halted, "topic reassignment in progress")
    # U1: write RS = ORS + TRS, AR and RR into the topics' znodes.
    # U2: and into the context.
    written, dropped = await _write_goals(changes, goals)
    # U3: a replaced or cancelled reassignment: stop and delete what only that one was adding.
    await _remove(changes, dropped)
    await _elect_where_dropped(changes, dropped)
    waiting, ready, isrs = await _compare_with_isrs(changes, written)
    await _wait(changes, waiting)
    await _complete(changes, ready, isrs)
    return {tp for tp in goals if tp not in written}


async def _wait(changes: StateChanges, goals: Goals) -> None:
    """Phase A, while the ISR does not hold all of TRS: start the new replicas."""
    # A1: raise the leader epochs and send LeaderAndIsr to RS.
    await changes.bump_leader_epochs(goals)
    # A2: move the replicas in AR to NewReplica.
    adding = [PartitionReplica(tp, r) for tp, goal in goals.items() for r in goal.adding]
    fresh = changes.context.replica_states.among(adding, ReplicaState.NON_EXISTENT)
    await changes.replicas(fresh, ReplicaState.NEW)


async def _complete(changes: StateChanges, goals: Goals, isrs: Isrs) -> None:
    """Phase B, once TRS is in sync: the target alone are the replicas."""
    if not goals:
        return
    context = changes.context
    adding = [PartitionReplica(tp, r) for tp, goal in goals.items() for r in goal.adding]
    removing = [PartitionReplica(tp, r) for tp, goal in goals.items() for r in goal.removing]
    targets = {tp: ReplicaAssignment(goal.target) for tp, goal in goals.items()}
    # B1: move the replicas in AR to OnlineReplica.
    await changes.replicas(adding, ReplicaState.ONLINE)
    # B2: RS = TRS, AR = [], RR = [] in the context.
    for tp, target in targets.items():
        context.set_assignment(tp, target)
    # B3: a leader within TRS: elect one, or raise the epoch of one that stays; send LeaderAndIsr.
    await _lead_within(changes, targets)
    # B4: move the replicas in RR to OfflineReplica: out of the ISR, StopReplica.
    # B5: then to NonExistentReplica: StopReplica that deletes.
    await _remove(changes, removing)
    # B6: write RS = TRS, AR = [], RR = [] into the topics' znodes.
    done: dict[TopicPartition, ReplicaAssignment] = {}
    for topic, assignments in _by_topic(targets).items():
        if await _write_assignments(changes, topic, assignments):
            done.update(assignments)
    for tp in done:
        context.reassigning.pop(tp, None)
    # B7: take the requests off /admin/reassign_partitions.
    await _clear_requests(changes, lambda tp, target: tp in done and target == done[tp].replicas)
    # B8: send UpdateMetadata to every broker.
    await changes.metadata(context.live_or_shutting_down, done)
    for some in slices(list(done)):
        for tp in some:
            changes.outbox.record(_step(tp, "done", done[tp], isrs.get(tp)))
            logger.info("reassignment done partition=%s replicas=%s", tp, done[tp].replicas)
        await yield_to_loop()
    await deletion.resume(changes, {tp.topic for tp in done})


# --- its steps ----------------------------------------------------------------------------------


async def _write_goals(
    changes: StateChanges, goals: Goals
) -> tuple[Goals, Sequence[PartitionReplica]]:
    """U1, U2: return the goals that stand, and the replicas that no longer belong to them."""
    context = changes.context
    before = {tp: context.assignment(tp) for tp in goals}
    changed = {tp: goal for tp, goal in goals.items() if goal != before[tp]}
    unwritten: set[TopicPartition] = set()
    dropped: list[PartitionReplica] = []
    for topic, assignments in _by_topic(changed).items():
        if not (await _write_assignments(changes, topic, assignments)):
            unwritten.update(assignments)
            continue
        for tp, goal in assignments.items():
            context.set_assignment(tp, goal)
        for some in slices(list(assignments)):
            for tp in some:
                logger.info(
                    "reassignment begins partition=%s from=%s to=%s",
                    tp,
                    before[tp].replicas,
                    goals[tp].target,
                )
                changes.outbox.record(_begin(tp, before[tp], goals[tp]))
                gone = [r for r in before[tp].replicas if r not in goals[tp].replicas]
                dropped += [PartitionReplica(tp, r) for r in gone]
            await yield_to_loop()
    written = {tp: goal for tp, goal in goals.items() if tp not in unwritten}
    context.reassigning.update(dict.fromkeys(written))
    return written, dropped


async def _elect_where_dropped(changes: StateChanges, dropped: Sequence[PartitionReplica]) -> None:
    """Elect leaders where a replica led that only the last target wanted.

    Kafka, by its source, leaves such partitions without a leader until the next controller.
    """
    context = changes.context
    leaderless = sorted({tp for tp, _ in dropped if context.leader(tp) == NO_LEADER})
    await changes.partitions(leaderless, PartitionState.OFFLINE)
    await changes.partitions(leaderless, PartitionState.ONLINE, ElectionKind.OFFLINE)


async def _compare_with_isrs(changes: StateChanges, goals: Goals) -> tuple[Goals, Goals, Isrs]:
    """Read the ISRs; return the goals to wait for, those that can be completed, and the ISRs."""
    isrs = await changes.cluster.read_isrs(list(goals))
    waiting: dict[TopicPartition, ReplicaAssignment] = {}
    ready: dict[TopicPartition, ReplicaAssignment] = {}
    for some in slices(list(goals)):
        for tp in some:
            goal, isr = goals[tp], isrs.get(tp)
            done = caught_up(goal, isr)
            (ready if done else waiting)[tp] = goal
            changes.outbox.record(_step(tp, "complete" if done else "wait", goal, isr))
        await yield_to_loop()
    return waiting, ready, isrs


async def _lead_within(changes: StateChanges, targets: Goals) -> None:
    """B3: live members of the targets lead, and all of them are sent the new replicas."""
    context = changes.context
    staying: dict[TopicPartition, ReplicaAssignment] = {}
    for tp, target in targets.items():
        leader = context.leader(tp)
        if leader is not None and leader in target.replicas and context.is_online(leader, tp):
            staying[tp] = target
    await changes.bump_leader_epochs(staying)
    going = [tp for tp in targets if tp not in staying]
    await changes.partitions(going, PartitionState.ONLINE, ElectionKind.REASSIGNMENT)


async def _remove(changes: StateChanges, replicas: Sequence[PartitionReplica]) -> None:
    """U3, B4, B5: take replicas out of the ISRs, stop them, delete them, forget them."""
    for state in (
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_SUCCESSFUL,
        ReplicaState.NON_EXISTENT,
    ):
        await changes.replicas(replicas, state)


def _by_topic(goals: Goals) -> dict[str, dict[TopicPartition, ReplicaAssignment]]:
    topics: dict[str, dict[TopicPartition, ReplicaAssignment]] = {}
    for tp, goal in goals.items():
        topics.setdefault(tp.topic, {})[tp] = goal
    return topics


async def _write_assignments(changes: StateChanges, topic: str, goals: Goals) -> bool:
    """Write partitions of one topic into its znode; False if it is gone or never holds still."""
    # Partitions that were added to the topic and are not known yet stay in its znode.
    news = {tp.partition: goal for tp, goal in goals.items()}
    known = changes.context.topic_info(topic)
    return await changes.cluster.write_assignments(topic, news, known)


async def _clear_requests(
    changes: StateChanges,
    finished: Callable[[TopicPartition, tuple[int, ...]], bool],
) -> None:
    """B7: take requests off /admin/reassign_partitions; the last one takes the znode with it."""
    requested = await changes.cluster.read_reassignments()
    if requested is None:
        return
    left = {tp: target for tp, target in requested.items() if not finished(tp, target)}
    if not left or len(left) != len(requested):
        await changes.cluster.write_reassignments(left)


# --- who requests it ----------------------------------------------------------------------------


async def on_controller_failover(changes: StateChanges) -> None:
    """Take up what the znode requests, and go on with what was begun."""
    accepted = await on_znode_changed(changes)
    left = [tp for tp in changes.context.reassigning if tp not in accepted]
    await reassign(changes, {tp: changes.context.assignment(tp) for tp in left})


async def on_znode_changed(changes: StateChanges) -> set[TopicPartition]:
    """Take up what /admin/reassign_partitions requests; return what was accepted."""
    context = changes.context
    requested = await changes.cluster.read_reassignments(watch=True)
    if requested is None:
        return set()
    wanted: dict[TopicPartition, tuple[int, ...] | None] = {}
    for tp, target in requested.items():
        assignment = context.assignment(tp)
        if tp not in context.reassigning or reassign_to(assignment, target) != assignment:
            wanted[tp] = target
    if not wanted and requested:
        return set()
    targets = {str(tp): target for tp, target in wanted.items()}
    changes.outbox.record(journaled.ReassignmentRequested(targets=targets))
    results = _refuse(changes, wanted, lambda _broker: True)
    accepted = {tp: target for tp, target in wanted.items() if tp not in results}
    results |= await _start(changes, accepted)
    refused = {tp for tp, (code, _) in results.items() if code != ErrorCode.NONE}
    for tp in sorted(refused):
        logger.warning("reassignment refused partition=%s reason=%s", tp, results[tp][1])
    await _clear_requests(changes, lambda tp, _target: tp in refused)
    return {tp for tp in results if tp not in refused}


async def on_request(changes: StateChanges, wanted: Wanted) -> dict[TopicPartition, Result]:
    """Take up what AlterPartitionReassignments requests."""
    targets = {str(tp): target for tp, target in wanted.items()}
    changes.outbox.record(journaled.ReassignmentsAsked(targets=targets))
    results = _refuse(changes, wanted, changes.context.is_live)
    accepted = {tp: target for tp, target in wanted.items() if tp not in results}
    # The last request counts: the znode no longer requests these. A cancel of what has not begun
    # is refused, and what the znode requests meanwhile stands.
    counting = {
        tp
        for tp, target in accepted.items()
        if target is not None or changes.context.assignment(tp).being_reassigned
    }
    await _clear_requests(changes, lambda tp, _target: tp in counting)
    results.update(await _start(changes, accepted))
    return {tp: results[tp] for tp in wanted}


def list_reassignments(
    context: Context, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, ReplicaAssignment]:
    """Return what is being reassigned, of these partitions or of all."""
    chosen = context.reassigning if partitions is None else partitions
    return {tp: a for tp in chosen if (a := context.assignment(tp)).being_reassigned}


async def resume(changes: StateChanges, wanted: Callable[[ReplicaAssignment], bool]) -> None:
    """Go on with the reassignments that `wanted` picks."""
    known = {tp: changes.context.assignment(tp) for tp in changes.context.reassigning}
    await reassign(changes, {tp: a for tp, a in known.items() if wanted(a)})


async def complete_if_caught_up(
    changes: StateChanges, partitions: Sequence[TopicPartition]
) -> None:
    """Complete those reassignments whose target replicas are all in the ISR."""
    isrs = await changes.cluster.read_isrs(partitions)
    known = {tp: changes.context.assignment(tp) for tp in partitions}
    ready = {tp: a for tp, a in known.items() if caught_up(a, isrs.get(tp))}
    for some in slices(list(ready)):
        for tp in some:
            logger.info("reassignment caught up partition=%s target=%s", tp, ready[tp].target)
        await yield_to_loop()
    await reassign(changes, ready)


async def _start(changes: StateChanges, wanted: Wanted) -> dict[TopicPartition, Result]:
    """Begin, replace or cancel reassignments; return the result of each."""
    context = changes.context
    results: dict[TopicPartition, Result] = {}
    goals: dict[TopicPartition, ReplicaAssignment] = {}
    min_isr = await _min_isr_where_dropped(changes, wanted)
    for tp, target in wanted.items():
        assignment = context.assignment(tp)
        if target is None and not assignment.being_reassigned:
            results[tp] = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
        elif tp.topic in context.deleting or not assignment.replicas:
            results[tp] = UNKNOWN
        else:
            enough = min_isr.get(tp.topic, 1)
            goal = goal_of(assignment, target, _isr(context, tp), enough)
            if isinstance(goal, str):
                results[tp] = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, goal)
                _record_refusal(changes, tp, target, goal, enough)
                continue
            goals[tp] = goal
    unwritten = await reassign(changes, goals)
    results.update({tp: UNKNOWN if tp in unwritten else DONE for tp in goals})
    return results


async def _min_isr_where_dropped(changes: StateChanges, wanted: Wanted) -> Mapping[str, int]:
    """Read min.insync.replicas of the topics where a replica in sync would be dropped."""
    context = changes.context
    topics: dict[str, None] = {}
    for tp, target in wanted.items():
        if tp.topic in topics or tp not in context.reassigning:
            continue
        assignment = context.assignment(tp)
        goal = reassign_to(assignment, assignment.original if target is None else target)
        if not set(_isr(context, tp)) <= set(goal.replicas):
            topics[tp.topic] = None
    if not topics:
        return {}
    return await changes.cluster.read_min_isr(list(topics))


def _isr(context: Context, tp: TopicPartition) -> tuple[int, ...]:
    known = context.leadership.get(tp)
    return known.leader_and_isr.isr if known else ()


def _refuse(
    changes: StateChanges, wanted: Wanted, is_live: Callable[[int], bool]
) -> dict[TopicPartition, Result]:
    """Return what is wrong with targets in themselves (F42).

    Kafka checks this of requests only: by znode, an empty list of replicas deletes all there are.
    Brokers that are dead may be requested by znode, though: it waits for them, as in Kafka.
    """
    context = changes.context
    results: dict[TopicPartition, Result] = {}
    for tp, target in wanted.items():
        if target is None:
            continue
        problem = problem_with(context.assignment(tp), target, is_live)
        if problem is not None:
            results[tp] = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
            _record_refusal(changes, tp, target, problem)
    return results


# --- the journal --------------------------------------------------------------------------------


def _begin(
    tp: TopicPartition, before: ReplicaAssignment, goal: ReplicaAssignment
) -> journaled.ReassignmentStep:
    return journaled.ReassignmentStep(
        partition=str(tp),
        step="begin",
        original=before.replicas,
        replicas=goal.replicas,
        adding=goal.adding,
        removing=goal.removing,
    )


def _step(
    tp: TopicPartition, step: str, assignment: ReplicaAssignment, isr: tuple[int, ...] | None
) -> journaled.ReassignmentStep:
    return journaled.ReassignmentStep(
        partition=str(tp),
        step=step,
        replicas=assignment.replicas,
        adding=assignment.adding,
        removing=assignment.removing,
        isr=isr,
    )


def _record_refusal(
    changes: StateChanges,
    tp: TopicPartition,
    target: tuple[int, ...] | None,
    reason: str,
    min_isr: int = 1,
) -> None:
    """Record why a target was not acceptable, with all that was looked at."""
    context = changes.context
    assignment = context.assignment(tp)
    changes.outbox.record(
        journaled.ReassignmentRefused(
            partition=str(tp),
            target=target,
            replicas=assignment.replicas,
            adding=assignment.adding,
            removing=assignment.removing,
            isr=_isr(context, tp),
            min_isr=min_isr,
            live=tuple(context.live),
            reason=reason,
        )
    )
