"""The five states of a consumer group, and where each may lead.

A decider. Who may call: this room; documentation draws its diagram from the table. Kafka:
`GroupState`.
"""

from collections.abc import Mapping
from enum import Enum


class GroupState(Enum):
    """Where a group stands; the value is its name on the wire."""

    EMPTY = "Empty"
    """no member; it may hold offsets"""

    PREPARING_REBALANCE = "PreparingRebalance"
    """members are asked to join; their JoinGroup waits"""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """a generation has begun; its members' SyncGroup waits for the leader's assignment"""

    STABLE = "Stable"
    """every member may have its assignment"""

    DEAD = "Dead"
    """deleted here, or moved to another coordinator"""


# Target state -> the states it may be entered from.
GROUP_MOVES: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class InvalidGroupMove(Exception):  # noqa: N818 - a name for the fact, as with InvalidTransition
    """A group was asked to go where its state does not lead: our bug."""


def check_move(group_id: str, before: GroupState, after: GroupState) -> None:
    """Raise InvalidGroupMove unless the table has the move."""
    if before not in GROUP_MOVES[after]:
        raise InvalidGroupMove(f"group {group_id}: {before.value} -> {after.value}")
