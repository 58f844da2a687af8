"""Draw the controller's state machines from their tables.

    python docs/draw_states.py

writes docs/STATES.md; a unit test keeps the committed file equal to what the tables say.
"""

from enum import Enum
from pathlib import Path

from ottla.controller.states import PARTITION_MOVES, REPLICA_MOVES, PartitionState, ReplicaState

HEAD = """\
# The controller's two state machines

Drawn by `docs/draw_states.py` from the tables in `src/ottla/controller/states.py`; do not edit.
A move that is not drawn is refused with the history of its subject.
"""

WHAT = {
    PartitionState.NON_EXISTENT: "no topic names it, or its topic has been deleted",
    PartitionState.NEW: "it has replicas and never had a leader",
    PartitionState.ONLINE: "a live broker leads it",
    PartitionState.OFFLINE: "its leader is dead and nobody could be elected",
    ReplicaState.NON_EXISTENT: "not assigned, or deleted",
    ReplicaState.NEW: "assigned, not yet told who leads; can only follow",
    ReplicaState.ONLINE: "leads or follows",
    ReplicaState.OFFLINE: "its broker or its folder is dead, or it was told to stop",
    ReplicaState.DELETION_STARTED: "its broker was told to delete it",
    ReplicaState.DELETION_SUCCESSFUL: "its broker has deleted it",
    ReplicaState.DELETION_INELIGIBLE: "it cannot be deleted now; the topic waits",
}


def draw(title: str, moves: dict[Enum, frozenset[Enum]]) -> str:
    lines = [f"\n## {title}\n", "| state | meaning |", "|---|---|"]
    lines += [f"| `{state.value}` | {WHAT[state]} |" for state in type(next(iter(moves)))]
    lines += ["", "```mermaid", "stateDiagram-v2"]
    for target, sources in moves.items():
        for source in sorted(sources, key=lambda s: s.value):
            lines.append(f"    {source.value} --> {target.value}")
    return "\n".join([*lines, "```", ""])


def page() -> str:
    return HEAD + draw("Partitions", PARTITION_MOVES) + draw("Replicas", REPLICA_MOVES)


if __name__ == "__main__":
    Path(__file__).with_name("STATES.md").write_text(page(), encoding="utf-8")
