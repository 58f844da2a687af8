"""Reassignment: moving a partition's replicas to other brokers (KIP-455).

Who may call: `brokers`, `requests`, `failover`, `loop`. With OAR the original, TAR the target
replicas, adding = TAR - OAR and removing = OAR - TAR, one call of `proceed` does what can be done,
each step for a whole chunk of partitions at once:
- update: the topic's znode gets OAR + TAR, adding, removing, then the context; replicas of an
  earlier target that are in neither are stopped and deleted;
- while TAR is not within the ISR: raise the leader epoch and tell all replicas (A1), start the new
  ones (A2), wait for the leader to ask for an ISR that holds them;
- once it is: new replicas Online (B1), target alone in the context (B2), a leader within it (B3),
  removed replicas Offline (B4) and NonExistent (B5), the znode gets the target alone (B6), the
  request is cleared (B7), everybody told (B8), a halted deletion resumed.
Invariants: the znode is written before the context; the target is written last, so that a new
controller goes on from any step (R14); each partition takes the steps in this order, and one that
fails stops none of the others; a topic being reassigned is not deleted meanwhile.
Kafka: `KafkaController.onPartitionReassignment`, which takes one partition at a time.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ottla.controller import deletion
from ottla.controller.elections import ElectionKind
from ottla.controller.events import ReassignmentRequested
from ottla.controller.moves import slices, yield_to_loop
from ottla.controller.reassignment_arithmetic import caught_up, goal_of, problem_with, reassign_to
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.controller.term import ControllerTerm
from ottla.model.cluster import ReplicaAssignment, TopicInfo
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_LEADER, TopicPartition
from ottla.zookeeper.errors import BadVersionError, NoNodeError

logger = logging.getLogger(__name__)

CHUNK = 500
"""Partitions that take a step together: a multi of their states is a quarter of what may be."""

Goals = Mapping[TopicPartition, ReplicaAssignment]
Isrs = Mapping[TopicPartition, tuple[int, ...]]
Answer = tuple[ErrorCode, str | None]
DONE: Answer = (ErrorCode.NONE, None)
UNKNOWN: Answer = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


# --- who asks ---------------------------------------------------------------------------------


async def begin(term: ControllerTerm) -> None:
    """At failover: take up what the znode asks for, and go on with what was begun."""
    taken = await requested(term)
    left = [tp for tp in term.context.reassigning if tp not in taken]
    await proceed(term, {tp: term.context.assignment(tp) for tp in left})


async def requested(term: ControllerTerm) -> set[TopicPartition]:
    """Take up what /admin/reassign_partitions asks for; return what was accepted."""
    watch = term.watcher(ReassignmentRequested())
    if not await term.store.reassign_partitions_in_progress(watch):
        return set()
    wanted = await term.store.get_partition_reassignment()
    context = term.context
    news: dict[TopicPartition, tuple[int, ...] | None] = {}
    for tp, target in wanted.items():
        assignment = context.assignment(tp)
        if tp not in context.reassigning or reassign_to(assignment, target) != assignment:
            news[tp] = target
    if not news and wanted:
        return set()
    term.journal.event(
        term.cause,
        "ReassignmentRequested",
        {str(tp): target for tp, target in news.items()},
    )
    answers = _refusals(term, news, lambda _broker: True)
    answers |= await _start(term, {tp: t for tp, t in news.items() if tp not in answers})
    refused = {tp for tp, (code, _) in answers.items() if code != ErrorCode.NONE}
    for tp in sorted(refused):
        logger.warning("reassignment refused %s: %s", tp, answers[tp][1])
    await _clear_requests(term, lambda tp, _target: tp in refused)
    return {tp for tp in answers if tp not in refused}


async def asked(
    term: ControllerTerm, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[TopicPartition, Answer]:
    """Take up what AlterPartitionReassignments asks for; None cancels."""
    term.journal.event(
        term.cause, "ReassignmentsAsked", {str(tp): target for tp, target in wanted.items()}
    )
    answers = _refusals(term, wanted, term.context.is_live)
    accepted = {tp: target for tp, target in wanted.items() if tp not in answers}
    # What is asked last counts: the znode no longer asks for these.
    await _clear_requests(term, lambda tp, _target: tp in accepted)
    answers.update(await _start(term, accepted))
    return {tp: answers[tp] for tp in wanted}


def _refusals(
    term: ControllerTerm,
    wanted: Mapping[TopicPartition, tuple[int, ...] | None],
    is_live: Callable[[int], bool],
) -> dict[TopicPartition, Answer]:
    """Return what is wrong with targets in themselves (F42).

    Kafka asks this of requests only: by znode, an empty list of replicas deletes all there are.
    Brokers that are dead may be asked for by znode, though: it waits for them, as in Kafka.
    """
    context = term.context
    answers: dict[TopicPartition, Answer] = {}
    for tp, target in wanted.items():
        if target is None:
            continue
        problem = problem_with(context.assignment(tp), target, is_live)
        if problem is not None:
            answers[tp] = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
            _journal_refusal(term, tp, target, problem)
    return answers


def listed(
    term: ControllerTerm, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, ReplicaAssignment]:
    """Return what is being reassigned."""
    context = term.context
    chosen = context.reassigning if partitions is None else partitions
    return {tp: a for tp in chosen if (a := context.assignment(tp)).being_reassigned}


async def _start(
    term: ControllerTerm, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[TopicPartition, Answer]:
    context = term.context
    answers: dict[TopicPartition, Answer] = {}
    goals: dict[TopicPartition, ReplicaAssignment] = {}
    for tp, target in wanted.items():
        assignment = context.assignment(tp)
        if target is None and not assignment.being_reassigned:
            answers[tp] = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
        elif tp.topic in context.deleting or not assignment.replicas:
            answers[tp] = UNKNOWN
        else:
            known = context.leadership.get(tp)
            goal = goal_of(assignment, target, known.leader_and_isr.isr if known else ())
            if isinstance(goal, str):
                answers[tp] = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, goal)
                _journal_refusal(term, tp, target, goal)
                continue
            goals[tp] = goal
    unwritten = await proceed(term, goals)
    answers.update({tp: UNKNOWN if tp in unwritten else DONE for tp in goals})
    return answers


async def resume(term: ControllerTerm, wanted: Callable[[ReplicaAssignment], bool]) -> None:
    """Go on with the reassignments that `wanted` picks."""
    known = {tp: term.context.assignment(tp) for tp in term.context.reassigning}
    await proceed(term, {tp: a for tp, a in known.items() if wanted(a)})


async def complete_if_caught_up(term: ControllerTerm, partitions: Sequence[TopicPartition]) -> None:
    """Finish those reassignments whose target replicas are all in the ISR."""
    isrs = await _read_isrs(term, partitions)
    known = {tp: term.context.assignment(tp) for tp in partitions}
    ready = {tp: a for tp, a in known.items() if caught_up(a, isrs.get(tp))}
    for some in slices(list(ready)):
        for tp in some:
            logger.info("reassignment caught up %s target=%s", tp, ready[tp].target)
        await yield_to_loop()
    await proceed(term, ready)


# --- the work ---------------------------------------------------------------------------------


async def proceed(term: ControllerTerm, goals: Goals) -> set[TopicPartition]:
    """Take reassignments as far as they go; return those whose goal could not be written."""
    unwritten: set[TopicPartition] = set()
    for some in slices(list(goals), CHUNK):
        unwritten |= await _proceed_together(term, {tp: goals[tp] for tp in some})
    return unwritten


async def _proceed_together(term: ControllerTerm, goals: Goals) -> set[TopicPartition]:
    deletion.make_ineligible(term, {tp.topic for tp in goals}, "topic reassignment in progress")
    unwritten = await _update(term, goals)
    written = {tp: goal for tp, goal in goals.items() if tp not in unwritten}
    isrs = await _read_isrs(term, list(written))
    waiting: dict[TopicPartition, ReplicaAssignment] = {}
    ready: dict[TopicPartition, ReplicaAssignment] = {}
    for some in slices(list(written)):
        for tp in some:
            goal, isr = written[tp], isrs.get(tp)
            done = caught_up(goal, isr)
            (ready if done else waiting)[tp] = goal
            _journal_step(term, tp, "complete" if done else "wait", goal, isr)
        await yield_to_loop()
    await _start_new_replicas(term, waiting)
    await _complete(term, ready, isrs)
    return unwritten


async def _start_new_replicas(term: ControllerTerm, goals: Goals) -> None:
    await term.moves.bump_leader_epochs(goals)
    adding = [PartitionReplica(tp, r) for tp, goal in goals.items() for r in goal.adding]
    fresh = term.context.replica_states.among(adding, ReplicaState.NON_EXISTENT)
    await term.moves.replicas(fresh, ReplicaState.NEW)


async def _complete(term: ControllerTerm, goals: Goals, isrs: Isrs) -> None:
    """Let the targets alone be the replicas."""
    if not goals:
        return
    context, moves = term.context, term.moves
    adding = [PartitionReplica(tp, r) for tp, goal in goals.items() for r in goal.adding]
    await moves.replicas(adding, ReplicaState.ONLINE)
    targets = {tp: ReplicaAssignment(goal.target) for tp, goal in goals.items()}
    for tp, target in targets.items():
        context.set_assignment(tp, target)
    await _settle_leaders(term, targets)
    removing = [PartitionReplica(tp, r) for tp, goal in goals.items() for r in goal.removing]
    await _remove_replicas(term, removing)
    done: dict[TopicPartition, ReplicaAssignment] = {}
    for topic, assignments in _by_topic(targets).items():
        if await _write_assignments(term, topic, assignments):
            done.update(assignments)
    for tp in done:
        context.reassigning.pop(tp, None)
    await _clear_requests(term, lambda tp, target: tp in done and target == done[tp].replicas)
    await moves.metadata(context.live_or_shutting_down, done)
    for some in slices(list(done)):
        for tp in some:
            _journal_step(term, tp, "done", done[tp], isrs.get(tp))
            logger.info("reassignment done %s replicas=%s", tp, done[tp].replicas)
        await yield_to_loop()
    await deletion.resume(term, {tp.topic for tp in done})


async def _update(term: ControllerTerm, goals: Goals) -> set[TopicPartition]:
    """Write new targets, and stop what only the last ones wanted; return what was not written."""
    context = term.context
    before = {tp: context.assignment(tp) for tp in goals}
    changed = {tp: goal for tp, goal in goals.items() if goal != before[tp]}
    unwritten: set[TopicPartition] = set()
    unneeded: list[PartitionReplica] = []
    for topic, assignments in _by_topic(changed).items():
        if not await _write_assignments(term, topic, assignments):
            unwritten.update(assignments)
            continue
        for tp, goal in assignments.items():
            context.set_assignment(tp, goal)
        for some in slices(list(assignments)):
            for tp in some:
                _journal_begin(term, tp, before[tp], changed[tp])
                dropped = [r for r in before[tp].replicas if r not in changed[tp].replicas]
                unneeded += [PartitionReplica(tp, r) for r in dropped]
            await yield_to_loop()
    context.reassigning.update(dict.fromkeys(tp for tp in goals if tp not in unwritten))
    await _remove_replicas(term, unneeded)
    await _lead_again(term, {tp for tp, _ in unneeded})
    return unwritten


async def _lead_again(term: ControllerTerm, partitions: Collection[TopicPartition]) -> None:
    """Elect leaders where a replica led that only the last target wanted.

    Kafka, by its source, leaves such partitions without a leader until the next controller.
    """
    leaderless = sorted(tp for tp in partitions if term.context.leader(tp) == NO_LEADER)
    await term.moves.partitions(leaderless, PartitionState.OFFLINE)
    await term.moves.partitions(leaderless, PartitionState.ONLINE, ElectionKind.OFFLINE)


def _by_topic(goals: Goals) -> dict[str, dict[TopicPartition, ReplicaAssignment]]:
    topics: dict[str, dict[TopicPartition, ReplicaAssignment]] = {}
    for tp, goal in goals.items():
        topics.setdefault(tp.topic, {})[tp] = goal
    return topics


async def _write_assignments(term: ControllerTerm, topic: str, goals: Goals) -> bool:
    """Write partitions of one topic into its znode; False if it is gone or never holds still."""
    # Partitions that were added to the topic and are not known yet stay in its znode.
    known = term.context.topic_info(topic)
    news = {tp.partition: goal for tp, goal in goals.items()}

    def change(found: TopicInfo | None) -> TopicInfo:
        info = found or known
        return replace(info, assignment={**info.assignment, **news})

    try:
        await term.store.update_topic_assignment(topic, change, term.fence)
    except (NoNodeError, BadVersionError) as error:
        logger.warning("reassignment not written topic=%s: %s", topic, error)
        return False
    return True


async def _read_isrs(
    term: ControllerTerm, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Read who is in sync; partitions without a state are left out."""
    states = await term.store.get_topic_partition_states(partitions)
    return {tp: state.leader_and_isr.isr for tp, state in states.items()}


def _journal_begin(
    term: ControllerTerm, tp: TopicPartition, before: ReplicaAssignment, goal: ReplicaAssignment
) -> None:
    logger.info("reassignment %s from=%s to=%s", tp, before.replicas, goal.target)
    facts = {"from": before.replicas, **_assignment_facts(goal)}
    term.journal.event(
        term.cause, "ReassignmentStep", {"partition": str(tp), "step": "begin", **facts}
    )


def _journal_step(
    term: ControllerTerm,
    tp: TopicPartition,
    step: str,
    assignment: ReplicaAssignment,
    isr: tuple[int, ...] | None,
) -> None:
    facts = {**_assignment_facts(assignment), "isr": isr}
    term.journal.event(
        term.cause, "ReassignmentStep", {"partition": str(tp), "step": step, **facts}
    )


def _journal_refusal(
    term: ControllerTerm, tp: TopicPartition, target: tuple[int, ...] | None, reason: str
) -> None:
    """Record why a target was not acceptable, with all that was looked at."""
    context = term.context
    known = context.leadership.get(tp)
    facts = {
        "partition": str(tp),
        "target": target,
        **_assignment_facts(context.assignment(tp)),
        "isr": known.leader_and_isr.isr if known else (),
        "live": context.live,
        "reason": reason,
    }
    term.journal.event(term.cause, "ReassignmentRefused", facts)


def _assignment_facts(assignment: ReplicaAssignment) -> dict[str, tuple[int, ...]]:
    return {
        "replicas": assignment.replicas,
        "adding": assignment.adding,
        "removing": assignment.removing,
    }


async def _settle_leaders(term: ControllerTerm, targets: Goals) -> None:
    """See to it that live members of the targets lead, and that all know the new replicas."""
    context = term.context
    staying: dict[TopicPartition, ReplicaAssignment] = {}
    for tp, target in targets.items():
        leader = context.leader(tp)
        if leader is not None and leader in target.replicas and context.is_online(leader, tp):
            staying[tp] = target
    await term.moves.bump_leader_epochs(staying)
    going = [tp for tp in targets if tp not in staying]
    await term.moves.partitions(going, PartitionState.ONLINE, ElectionKind.REASSIGNMENT)


async def _remove_replicas(term: ControllerTerm, replicas: Sequence[PartitionReplica]) -> None:
    """Take replicas out of the ISRs, stop them, delete them, forget them."""
    for state in (
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_SUCCESSFUL,
        ReplicaState.NON_EXISTENT,
    ):
        await term.moves.replicas(replicas, state)


async def _clear_requests(
    term: ControllerTerm, finished: Callable[[TopicPartition, tuple[int, ...]], bool]
) -> None:
    """Take requests off /admin/reassign_partitions; delete it with the last one."""
    store = term.store
    if not await store.reassign_partitions_in_progress():
        return
    there = await store.get_partition_reassignment()
    left = {tp: target for tp, target in there.items() if not finished(tp, target)}
    if not left:
        await store.delete_partition_reassignment(term.fence)
    elif len(left) != len(there):
        try:
            await store.set_or_create_partition_reassignment(left, term.fence)
        except NoNodeError:
            logger.info("the requests for reassignment were removed by somebody else")
