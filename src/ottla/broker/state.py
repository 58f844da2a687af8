"""State: the seven states of a server, with Kafka's numbers, and where each may lead.

A decider. Who may call: everyone in this room; documentation draws its diagram from the table.
Kafka: `BrokerState`; the numbers are those its metric shows. `RECOVERY` is what the
documents call RecoveringFromUncleanShutdown and `RUNNING` their RunningAsBroker: as in Kafka
since 2.8, folders are loaded in RECOVERY whether they need recovery or not, and being the
controller is no state of its own.
"""

from collections.abc import Mapping
from enum import IntEnum


class BrokerState(IntEnum):
    """Where a server stands between nothing and nothing."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7
    UNKNOWN = 127


# Target state -> the states it may be entered from.
BROKER_MOVES: Mapping[BrokerState, frozenset[BrokerState]] = {
    BrokerState.STARTING: frozenset({BrokerState.NOT_RUNNING}),
    BrokerState.RECOVERY: frozenset({BrokerState.STARTING}),
    BrokerState.RUNNING: frozenset({BrokerState.RECOVERY}),
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: frozenset({BrokerState.RUNNING}),
    BrokerState.SHUTTING_DOWN: frozenset(
        {
            BrokerState.STARTING,
            BrokerState.RECOVERY,
            BrokerState.RUNNING,
            BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        }
    ),
    BrokerState.NOT_RUNNING: frozenset({BrokerState.SHUTTING_DOWN}),
}


class InvalidBrokerMove(Exception):  # noqa: N818 - a name for the fact, as with InvalidTransition
    """A server was asked to go where its state does not lead: our bug."""


def check_move(before: BrokerState, after: BrokerState) -> None:
    """Raise InvalidBrokerMove unless the table has the move."""
    if before not in BROKER_MOVES.get(after, frozenset()):
        raise InvalidBrokerMove(f"{before.name} -> {after.name} is no legal move")
