"""Draw the state machines of controller, broker, groups and transactions from their tables.

    python docs/draw_states.py

writes docs/STATES.md; a unit test keeps the committed file equal to what the tables say.
"""

from enum import Enum
from pathlib import Path

from ottla.broker.services import BROKER_TRANSITIONS, BrokerState
from ottla.controller.states import (
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    PartitionState,
    ReplicaState,
)
from ottla.coordinators.group import GROUP_TRANSITIONS, GroupState
from ottla.coordinators.transaction import TRANSACTION_TRANSITIONS, TransactionState

HEAD = """\
# The controller's two state machines, the broker's, a group's and a transactional id's

Drawn by `docs/draw_states.py` from the tables in `src/ottla/controller/states.py`,
`src/ottla/broker/services.py`, `src/ottla/coordinators/group.py` and `transaction.py`
beside it; do not edit. A move that is not drawn is refused, in the controller with the history of
its subject.
"""

WHAT = {
    PartitionState.NON_EXISTENT: "no topic names it, or its topic has been deleted",
    PartitionState.NEW: "it has replicas and never had a leader",
    PartitionState.ONLINE: "a live broker leads it",
    PartitionState.OFFLINE: "its leader is dead and no one could be elected",
    ReplicaState.NON_EXISTENT: "not assigned, or deleted",
    ReplicaState.NEW: "assigned, has not received a LeaderAndIsr yet; can only follow",
    ReplicaState.ONLINE: "leads or follows",
    ReplicaState.OFFLINE: "its broker or its folder is dead, or it received a StopReplica",
    ReplicaState.DELETION_STARTED: "its broker received a StopReplica that deletes it",
    ReplicaState.DELETION_SUCCESSFUL: "its broker has deleted it",
    ReplicaState.DELETION_INELIGIBLE: "it cannot be deleted now; the topic waits",
    BrokerState.NOT_RUNNING: "before the start, after the end",
    BrokerState.STARTING: "ZooKeeper session, cluster id, topic settings",
    BrokerState.RECOVERY: "folders are locked and loaded, recovered where the end was not clean; "
    "then listeners and registration",
    BrokerState.RUNNING: "registered: leads and follows what the controller says",
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: "asks the controller to move leadership away",
    BrokerState.SHUTTING_DOWN: "closes everything, also after a start that failed",
    BrokerState.UNKNOWN: "never entered; Kafka's number for what a reader does not know",
    GroupState.EMPTY: "no member; it may hold offsets",
    GroupState.PREPARING_REBALANCE: "members are asked to join; those who did wait",
    GroupState.COMPLETING_REBALANCE: "a generation has begun; the leader's assignment is awaited",
    GroupState.STABLE: "every member may have its assignment",
    GroupState.DEAD: "deleted, or moved to another coordinator",
}

# Apart from the others: numbers of the log, which are equal to those of a broker's states.
WHAT_TRANSACTION = {
    TransactionState.EMPTY: "no transaction yet with this producer epoch",
    TransactionState.ONGOING: "partitions were added",
    TransactionState.PREPARE_COMMIT: "decided: to be committed; markers are on their way",
    TransactionState.PREPARE_ABORT: "decided: to be aborted; markers are on their way",
    TransactionState.COMPLETE_COMMIT: "every partition has its commit marker",
    TransactionState.COMPLETE_ABORT: "every partition has its abort marker",
    TransactionState.DEAD: "expired; its tombstone is on its way",
    TransactionState.PREPARE_EPOCH_FENCE: "the epoch is raised to shut the producer out; never "
    "written, it passes into PrepareAbort at once",
}


def draw(title: str, moves: dict[Enum, frozenset[Enum]]) -> str:
    lines = [f"\n## {title}\n", "| state | meaning |", "|---|---|"]
    what = WHAT_TRANSACTION if moves is TRANSACTION_TRANSITIONS else WHAT
    lines += [f"| `{name(state)}` | {what[state]} |" for state in type(next(iter(moves)))]
    lines += ["", "```mermaid", "stateDiagram-v2"]
    for target, sources in moves.items():
        for source in sorted(sources, key=lambda s: s.value):
            lines.append(f"    {plain(source)} --> {plain(target)}")
    return "\n".join([*lines, "```", ""])


def name(state: Enum) -> str:
    """Return a state's name; a broker's with the number that Kafka's metric shows."""
    if isinstance(state, TransactionState):
        return state.label
    return f"{state.name} = {state.value}" if isinstance(state, BrokerState) else state.value


def plain(state: Enum) -> str:
    if isinstance(state, TransactionState):
        return state.label
    return state.name if isinstance(state, BrokerState) else state.value


def page() -> str:
    parts = (
        ("Partitions", PARTITION_TRANSITIONS),
        ("Replicas", REPLICA_TRANSITIONS),
        ("Brokers", BROKER_TRANSITIONS),
        ("Consumer groups", GROUP_TRANSITIONS),
        ("Transactional ids", TRANSACTION_TRANSITIONS),
    )
    return HEAD + "".join(draw(title, moves) for title, moves in parts)


if __name__ == "__main__":
    Path(__file__).with_name("STATES.md").write_text(page(), encoding="utf-8")
