"""Reassignment arithmetic (KIP-455).

A decider. Who may call: `reassignment`, `explain`, tools. Invariants: while a reassignment runs
the replicas are the target first, in its order, then those being removed; the original replicas
can be had back by a target that names them. Kafka: `ReplicaAssignment.reassignTo` and
`KafkaController.validateReplicas`.
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
    assignment: ReplicaAssignment, target: tuple[int, ...] | None, isr: Collection[int]
) -> ReplicaAssignment | str:
    """Return the assignment on the way to `target` (None: back to the original), or why not."""
    goal = reassign_to(assignment, assignment.original if target is None else target)
    if not strands(goal, isr):
        return goal
    return (
        f"No replica in sync {list(isr)} would be left among {list(goal.replicas)}: "
        "it would take an unclean leader election."
    )


def caught_up(assignment: ReplicaAssignment, isr: Collection[int] | None) -> bool:
    """Return whether a reassignment can be finished: the whole target is in sync."""
    if not assignment.being_reassigned:
        return True
    return isr is not None and set(assignment.target) <= set(isr)


def strands(assignment: ReplicaAssignment, isr: Collection[int]) -> bool:
    """Return whether no replica in sync would be left: their records would be deleted.

    A cancelled or replaced reassignment drops the replicas it was adding at once, and one of them
    may be the last of the ISR by then. Kafka does that in ZooKeeper mode; we refuse, as its newer
    controllers refuse to cancel where that takes an unclean election.
    """
    return bool(isr) and not set(isr) & set(assignment.replicas)


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
