"""What Kafka's reassignment tool prints, line by line, as the documents show it.

Invariants: plain values in, text out; the texts of Kafka 3.9.1's `ReassignPartitionsCommand`, which
scripts of users search.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from ottla.client.reassignments import Progress, State
from ottla.model.ids import TopicPartition
from ottla.placement.plans import Assignment, Move, format_plan

_STATUS = {
    State.DONE: "Reassignment of partition {tp} is completed.",
    State.MOVING: "Reassignment of partition {tp} is still in progress.",
}
_ELSEWHERE = (
    "There is no active reassignment of partition {tp}, "
    "but replica set is {now} rather than {then}."
)


def generated(current: Assignment, proposed: Assignment) -> str:
    """Return what --generate prints."""
    return (
        f"Current partition replica assignment\n{format_plan(current)}\n\n"
        f"Proposed partition reassignment configuration\n{format_plan(proposed)}\n"
    )


def current_assignment(current: Assignment) -> str:
    """Return what --execute prints first."""
    return (
        f"Current partition replica assignment\n\n{format_plan(current)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback\n"
    )


def started(
    partitions: Collection[TopicPartition], throttle: int | None, log_dirs_throttle: int | None
) -> str:
    """Return what --execute prints once it began."""
    lines = []
    if throttle is not None or log_dirs_throttle is not None:
        lines.append(
            "Warning: You must run --verify periodically, until the reassignment completes, to "
            "ensure the throttle is removed."
        )
    if throttle is not None:
        lines.append(f"The inter-broker throttle limit was set to {throttle} B/s")
    if log_dirs_throttle is not None:
        lines.append(f"The replica-alter-dir throttle limit was set to {log_dirs_throttle} B/s")
    lines.append(f"Successfully started partition reassignment{_named(partitions, ' for')}")
    return "\n".join(lines) + "\n"


def status(found: Sequence[Progress]) -> str:
    """Return what --verify prints about each partition."""
    lines = ["Status of partition reassignment:"]
    for one in found:
        text = _STATUS.get(one.state, _ELSEWHERE)
        now, then = _ids(one.replicas), _ids(one.target)
        lines.append(text.format(tp=one.partition, now=now, then=then))
    return "\n".join(lines) + "\n\n"


def cleared(brokers: Iterable[int], topics: Iterable[str]) -> str:
    """Return what is printed when throttles are removed."""
    ids, names = sorted(brokers), sorted(topics)
    return (
        f"Clearing broker-level throttles on broker{'s' * (len(ids) != 1)} {_ids(ids)}\n"
        f"Clearing topic-level throttles on topic{'s' * (len(names) != 1)} {','.join(names)}\n"
    )


def cancelled(partitions: Collection[TopicPartition]) -> str:
    """Return what --cancel prints; replicas on their way to a log dir are none of ours to stop."""
    first = "None of the specified partition reassignments are active."
    if partitions:
        first = f"Successfully cancelled partition reassignment{_named(partitions, ' for:')}"
    return f"{first}\nNone of the specified partition moves are active.\n"


def listed(moves: Mapping[TopicPartition, Move]) -> str:
    """Return what --list prints."""
    if not moves:
        return "No partition reassignments found.\n"
    lines = ["Current partition reassignments:"]
    for tp, move in sorted(moves.items()):
        adding = f" adding: {_ids(move.adding)}." if move.adding else ""
        removing = f" removing: {_ids(move.removing)}." if move.removing else ""
        lines.append(f"{tp}: replicas: {_ids(move.replicas)}.{adding}{removing}")
    return "\n".join(lines) + "\n"


def _named(partitions: Collection[TopicPartition], before: str) -> str:
    names = ",".join(str(tp) for tp in sorted(partitions))
    return f"{'s' * (len(partitions) != 1)}{before} {names}"


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
