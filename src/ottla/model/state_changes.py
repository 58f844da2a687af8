"""State changes: the texts of Kafka's state-change.log, for all who write to it.

Invariants: texts are those of Kafka 3.9, so that what reads its logs reads ours; one call may carry
many lines, a slice's worth, and costs little where no logger is enabled. Lines of single replicas
and metadata are at TRACE, as in Kafka. Kafka: `StateChangeLogger` and the `toString` of what it
logs.
"""

import logging
from collections.abc import Iterable

from ottla.model.cluster import RECOVERING, LeaderAndIsr
from ottla.model.ids import NO_LEADER

LOGGER_NAME = "state.change.logger"
TRACE = 5
"""Below DEBUG, as log4j has it."""

logger = logging.getLogger(LOGGER_NAME)


def log_lines(lines: Iterable[str], level: int = logging.INFO) -> None:
    """Log many lines in one record."""
    text = "\n".join(lines)
    if text:
        logger.log(level, "%s", text)


def state_text(state: LeaderAndIsr) -> str:
    isr = ", ".join(f"BrokerState(brokerId={b}, brokerEpoch=-1)" for b in state.isr)
    recovery = "RECOVERING" if state.recovery_state == RECOVERING else "RECOVERED"
    return (
        f"LeaderAndIsr(leader={state.leader}, leaderEpoch={state.leader_epoch}, "
        f"isrWithBrokerEpoch=List({isr}), leaderRecoveryState={recovery}, "
        f"partitionEpoch={state.partition_epoch})"
    )


def leader_text(leader: int) -> str:
    """Return a leader that may be none."""
    return "None" if leader == NO_LEADER else f"Some({leader})"


def list_text(brokers: Iterable[int]) -> str:
    return "[" + ",".join(map(str, brokers)) + "]"
