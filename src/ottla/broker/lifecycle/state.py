"""State: the seven states of a server, with Kafka's numbers, and where each may lead.

A decider. Kafka: `BrokerState`; the numbers are those its metric shows. `RECOVERY` is what the
documents call RecoveringFromUncleanShutdown and `RUNNING` their RunningAsBroker: as in Kafka since
2.8, folders are loaded in RECOVERY whether they need recovery or not, and being the controller is
no state of its own.
"""

from enum import IntEnum

from ottla.model.transitions import TransitionTable, check_transition


class BrokerState(IntEnum):
    """What a server does, from before its start to after its end."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7
    UNKNOWN = 127


# Target state -> the states it may be entered from.
BROKER_TRANSITIONS: TransitionTable[BrokerState] = {
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


def check_broker_transition(before: BrokerState, after: BrokerState) -> None:
    """Raise IllegalTransitionError unless the table has the transition."""
    check_transition(BROKER_TRANSITIONS, "broker", before, after)
