"""State-change log: which partitions this broker leads or follows, from which offset on.

Invariants: lines are built only if the logger is enabled, and logged one time slice's worth at
once. Kafka: the log statements of `Partition.makeLeader`, `makeFollower` and of
`ReplicaManager.becomeLeaderOrFollower`.
"""

import logging

from ottla.log.log import Log
from ottla.model.ids import ZERO_UUID, uuid_to_text
from ottla.model.state_changes import leader_text, list_text, log_lines, logger
from ottla.replication.partition import Partition


class StateChangeLog:
    """The lines of one request, until they are logged."""

    def __init__(self, broker: int) -> None:
        self._head = f"[Broker id={broker}] "
        self._lines: list[str] | None = [] if logger.isEnabledFor(logging.INFO) else None

    def handling(self, what: str, correlation_id: int, controller: int, partitions: int) -> None:
        """Note the begin of a request's handling."""
        if self._lines is not None:
            self._lines.append(
                f"{self._head}Handling {what} request correlationId {correlation_id} from "
                f"controller {controller} for {partitions} partitions"
            )

    def finished(
        self, took_s: float, correlation_id: int, controller: int, partitions: int
    ) -> None:
        """Note the end of a LeaderAndIsr."""
        if self._lines is not None:
            self._lines.append(
                f"{self._head}Finished LeaderAndIsr request in {took_s * 1000:.0f}ms correlationId "
                f"{correlation_id} from controller {controller} for {partitions} partitions"
            )

    def became_leader(
        self, partition: Partition, log: Log, leader_before: int, epoch_before: int
    ) -> None:
        """Note that this broker leads a partition in a new epoch."""
        if self._lines is None:
            return
        known = partition.topic_id != ZERO_UUID
        topic_id = f"Some({uuid_to_text(partition.topic_id)})" if known else "None"
        self._lines.append(
            f"{self._head}Leader {partition.tp} with topic id {topic_id} starts at leader epoch "
            f"{partition.leader_epoch} from offset {partition.epoch_start} with partition epoch "
            f"{partition.partition_epoch}, high watermark {log.high_watermark}, ISR "
            f"{list_text(partition.isr.committed)}, adding replicas {list_text(partition.adding)} "
            f"and removing replicas {list_text(partition.removing)} . Previous leader "
            f"{leader_text(leader_before)} and previous leader epoch was {epoch_before}."
        )

    def became_follower(
        self, partition: Partition, log: Log, leader_before: int, epoch_before: int
    ) -> None:
        """Note that this broker follows in a new epoch."""
        if self._lines is None:
            return
        self._lines.append(
            f"{self._head}Follower {partition.tp} starts at leader epoch {partition.leader_epoch} "
            f"from offset {log.log_end_offset} with partition epoch {partition.partition_epoch} "
            f"and high watermark {log.high_watermark}. Current leader is {partition.leader}. "
            f"Previous leader {leader_text(leader_before)} and previous leader epoch was "
            f"{epoch_before}."
        )

    def flush(self) -> None:
        """Log the lines noted so far."""
        if self._lines:
            log_lines(self._lines)
            self._lines = []
