"""State: the seven states of a server, with Kafka's numbers.

Who may call: everyone in this room. Answers to Kafka's `BrokerState`; the numbers are those its
metric shows.
"""

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
