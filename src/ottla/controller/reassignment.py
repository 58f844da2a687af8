"""Reassignment: moving a partition's replicas to other brokers (KIP-455).

Who may call: `brokers`, `requests`, `failover`, `loop`. With OAR the original, TAR the target
replicas, adding = TAR - OAR and removing = OAR - TAR, one call of `proceed` does what can be done:
- update: the topic's znode gets OAR + TAR, adding, removing, then the context; replicas of an
  earlier target that are in neither are stopped and deleted;
- while TAR is not within the ISR: raise the leader epoch and tell all replicas (A1), start the new
  ones (A2), wait for the leader to ask for an ISR that holds them;
- once it is: new replicas Online (B1), target alone in the context (B2), a leader within it (B3),
  removed replicas Offline (B4) and NonExistent (B5), the znode gets the target alone (B6), the
  request is cleared (B7), everybody told (B8), a halted deletion resumed.
Invariants: the znode is written before the context; the target is written last, so that a new
controller goes on from any step (R14); a topic being reassigned is not deleted meanwhile.
Answers to `KafkaController.onPartitionReassignment`.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ottla.controller import deletion
from ottla.controller.elections import ElectionKind
from ottla.controller.events import ReassignmentRequested
from ottla.controller.reign import Reign
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.controller.targets import caught_up, goal_of, problem_with, reassign_to
from ottla.model.cluster import ReplicaAssignment, TopicInfo
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.zookeeper.errors import NoNodeError

logger = logging.getLogger(__name__)

Answer = tuple[ErrorCode, str | None]
DONE: Answer = (ErrorCode.NONE, None)
UNKNOWN: Answer = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


# --- who asks ---------------------------------------------------------------------------------


async def begin(reign: Reign) -> None:
    """At failover: take up what the znode asks for, and go on with what was begun."""
    taken = await requested(reign)
    for tp in list(reign.context.reassigning):
        if tp not in taken:
            await proceed(reign, tp, reign.context.assignment(tp))


async def requested(reign: Reign) -> set[TopicPartition]:
    """Take up what /admin/reassign_partitions asks for; return what was accepted."""
    watch = reign.watcher(ReassignmentRequested())
    if not await reign.store.reassign_partitions_in_progress(watch):
        return set()
    wanted = await reign.store.get_partition_reassignment()
    context = reign.context
    news: dict[TopicPartition, tuple[int, ...] | None] = {}
    for tp, target in wanted.items():
        assignment = context.assignment(tp)
        if tp not in context.reassigning or reassign_to(assignment, target) != assignment:
            news[tp] = target
    if not news and wanted:
        return set()
    reign.journal.event(
        reign.cause,
        "ReassignmentRequested",
        {str(tp): target for tp, target in news.items()},
    )
    answers = _refusals(reign, news, lambda _broker: True)
    answers |= await _start(reign, {tp: t for tp, t in news.items() if tp not in answers})
    refused = {tp for tp, (code, _) in answers.items() if code != ErrorCode.NONE}
    for tp in sorted(refused):
        logger.warning("reassignment refused %s: %s", tp, answers[tp][1])
    await _clear_requests(reign, lambda tp, _target: tp in refused)
    return {tp for tp in answers if tp not in refused}


async def asked(
    reign: Reign, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[TopicPartition, Answer]:
    """Take up what AlterPartitionReassignments asks for; None cancels."""
    reign.journal.event(
        reign.cause, "ReassignmentsAsked", {str(tp): target for tp, target in wanted.items()}
    )
    answers = _refusals(reign, wanted, reign.context.is_live)
    accepted = {tp: target for tp, target in wanted.items() if tp not in answers}
    # What is asked last counts: the znode no longer asks for these.
    await _clear_requests(reign, lambda tp, _target: tp in accepted)
    answers.update(await _start(reign, accepted))
    return {tp: answers[tp] for tp in wanted}


def _refusals(
    reign: Reign,
    wanted: Mapping[TopicPartition, tuple[int, ...] | None],
    is_live: Callable[[int], bool],
) -> dict[TopicPartition, Answer]:
    """Return what is wrong with targets in themselves (F42).

    Kafka asks this of requests only: by znode, an empty list of replicas deletes all there are.
    Brokers that are dead may be asked for by znode, though: it waits for them, as in Kafka.
    """
    context = reign.context
    answers: dict[TopicPartition, Answer] = {}
    for tp, target in wanted.items():
        if target is None:
            continue
        problem = problem_with(context.assignment(tp), target, is_live)
        if problem is not None:
            answers[tp] = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
            _journal_refusal(reign, tp, target, problem)
    return answers


def listed(
    reign: Reign, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, ReplicaAssignment]:
    """Return what is being reassigned."""
    context = reign.context
    chosen = context.reassigning if partitions is None else partitions
    return {tp: a for tp in chosen if (a := context.assignment(tp)).being_reassigned}


async def _start(
    reign: Reign, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[TopicPartition, Answer]:
    context = reign.context
    answers: dict[TopicPartition, Answer] = {}
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
                _journal_refusal(reign, tp, target, goal)
                continue
            await proceed(reign, tp, goal)
            answers[tp] = DONE
    return answers


async def resume(reign: Reign, wanted: Callable[[ReplicaAssignment], bool]) -> None:
    """Go on with the reassignments that `wanted` picks."""
    for tp in list(reign.context.reassigning):
        assignment = reign.context.assignment(tp)
        if wanted(assignment):
            await proceed(reign, tp, assignment)


async def complete_if_caught_up(reign: Reign, tp: TopicPartition) -> None:
    """Finish a reassignment if the target replicas are all in the ISR."""
    assignment = reign.context.assignment(tp)
    if caught_up(assignment, await _isr(reign, tp)):
        logger.info("reassignment caught up %s target=%s", tp, assignment.target)
        await proceed(reign, tp, assignment)


# --- the work ---------------------------------------------------------------------------------


async def proceed(reign: Reign, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
    """Take one reassignment as far as it goes."""
    context, moves = reign.context, reign.moves
    deletion.make_ineligible(reign, [tp.topic], "topic reassignment in progress")
    await _update(reign, tp, assignment)
    adding = [PartitionReplica(tp, r) for r in assignment.adding]
    isr = await _isr(reign, tp)
    ready = caught_up(assignment, isr)
    _journal_step(reign, tp, "complete" if ready else "wait", assignment, isr)
    if not ready:
        await moves.bump_leader_epoch(tp, assignment)
        fresh = context.replica_states.among(adding, ReplicaState.NON_EXISTENT)
        await moves.replicas(fresh, ReplicaState.NEW)
        return
    await moves.replicas(adding, ReplicaState.ONLINE)
    done = ReplicaAssignment(assignment.target)
    context.set_assignment(tp, done)
    await _settle_leader(reign, tp, done)
    await _remove_replicas(reign, tp, assignment.removing)
    await _write_assignment(reign, tp, done)
    context.reassigning.pop(tp, None)
    await _clear_requests(reign, lambda other, target: other == tp and target == done.replicas)
    await moves.metadata(context.live_or_shutting_down, [tp])
    _journal_step(reign, tp, "done", done, isr)
    logger.info("reassignment done %s replicas=%s", tp, done.replicas)
    await deletion.resume(reign, [tp.topic])


async def _update(reign: Reign, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
    """Write a new target, and stop what only the last one wanted."""
    context = reign.context
    before = context.assignment(tp)
    if before != assignment:
        logger.info("reassignment %s from=%s to=%s", tp, before.replicas, assignment.target)
        await _write_assignment(reign, tp, assignment)
        context.set_assignment(tp, assignment)
        facts = {"from": before.replicas, **_assignment_facts(assignment)}
        reign.journal.event(
            reign.cause, "ReassignmentStep", {"partition": str(tp), "step": "begin", **facts}
        )
        unneeded = [r for r in before.replicas if r not in assignment.replicas]
        await _remove_replicas(reign, tp, unneeded)
    context.reassigning[tp] = None


async def _write_assignment(
    reign: Reign, tp: TopicPartition, assignment: ReplicaAssignment
) -> None:
    # Partitions that were added to the topic and are not known yet stay in its znode.
    known = reign.context.topic_info(tp.topic)

    def change(found: TopicInfo | None) -> TopicInfo:
        info = found or known
        return replace(info, assignment={**info.assignment, tp.partition: assignment})

    await reign.store.update_topic_assignment(tp.topic, change, reign.fence)


async def _isr(reign: Reign, tp: TopicPartition) -> tuple[int, ...] | None:
    """Read who is in sync; None if there is no state."""
    state = await reign.store.get_topic_partition_state(tp)
    return None if state is None else state.leader_and_isr.isr


def _journal_step(
    reign: Reign,
    tp: TopicPartition,
    step: str,
    assignment: ReplicaAssignment,
    isr: tuple[int, ...] | None,
) -> None:
    facts = {**_assignment_facts(assignment), "isr": isr}
    reign.journal.event(
        reign.cause, "ReassignmentStep", {"partition": str(tp), "step": step, **facts}
    )


def _journal_refusal(
    reign: Reign, tp: TopicPartition, target: tuple[int, ...] | None, reason: str
) -> None:
    """Record why a target was not acceptable, with all that was looked at."""
    context = reign.context
    known = context.leadership.get(tp)
    facts = {
        "partition": str(tp),
        "target": target,
        **_assignment_facts(context.assignment(tp)),
        "isr": known.leader_and_isr.isr if known else (),
        "live": context.live,
        "reason": reason,
    }
    reign.journal.event(reign.cause, "ReassignmentRefused", facts)


def _assignment_facts(assignment: ReplicaAssignment) -> dict[str, tuple[int, ...]]:
    return {
        "replicas": assignment.replicas,
        "adding": assignment.adding,
        "removing": assignment.removing,
    }


async def _settle_leader(reign: Reign, tp: TopicPartition, done: ReplicaAssignment) -> None:
    """See to it that a live member of the target leads, and that all know the new replicas."""
    context = reign.context
    leader = context.leader(tp)
    if leader is not None and leader in done.replicas and context.is_online(leader, tp):
        await reign.moves.bump_leader_epoch(tp, done)
        return
    await reign.moves.partitions([tp], PartitionState.ONLINE, ElectionKind.REASSIGNMENT)


async def _remove_replicas(reign: Reign, tp: TopicPartition, removed: Sequence[int]) -> None:
    """Take replicas out of the ISR, stop them, delete them, forget them."""
    replicas = [PartitionReplica(tp, r) for r in removed]
    for state in (
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_SUCCESSFUL,
        ReplicaState.NON_EXISTENT,
    ):
        await reign.moves.replicas(replicas, state)


async def _clear_requests(
    reign: Reign, finished: Callable[[TopicPartition, tuple[int, ...]], bool]
) -> None:
    """Take requests off /admin/reassign_partitions; delete it with the last one."""
    store = reign.store
    if not await store.reassign_partitions_in_progress():
        return
    there = await store.get_partition_reassignment()
    left = {tp: target for tp, target in there.items() if not finished(tp, target)}
    if not left:
        await store.delete_partition_reassignment(reign.fence)
    elif len(left) != len(there):
        try:
            await store.set_or_create_partition_reassignment(left, reign.fence)
        except NoNodeError:
            logger.info("the requests for reassignment were removed by somebody else")
