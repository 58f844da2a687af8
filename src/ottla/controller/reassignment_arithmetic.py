"""Reassignment arithmetic (KIP-455).

A decider. Invariants: while a reassignment runs the replicas are the target first, in its order,
then those being removed; the original replicas can be had back by a target that names them. Kafka:
`ReplicaAssignment.reassignTo` and `KafkaController.validateReplicas`.
"""

from collections.abc import Callable, Collection

from ottla.model.cluster import ReplicaAssignment


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
