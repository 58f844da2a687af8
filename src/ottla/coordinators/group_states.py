"""The five states of a consumer group, and where each may lead.

A decider. Who may call: this room; documentation draws its diagram from the table. Kafka:
`GroupState`.
"""

from enum import Enum

from ottla.model.transitions import TransitionTable, check_transition


class GroupState(Enum):
    """The value is the name on the wire."""

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
GROUP_TRANSITIONS: TransitionTable[GroupState] = {
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


def check_group_transition(group_id: str, before: GroupState, after: GroupState) -> None:
    """Raise IllegalTransitionError unless the table has the transition."""
    check_transition(GROUP_TRANSITIONS, f"group {group_id}", before, after)
