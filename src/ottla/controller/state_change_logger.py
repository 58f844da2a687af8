"""State change logger: the controller's lines of state-change.log.

Invariants: written after the requests were queued, a slice of lines at a time.
Kafka: the log statements of `ZkPartitionStateMachine`, `ZkReplicaStateMachine` and
`AbstractControllerBrokerRequestBatch`.
"""

import logging
from collections.abc import Iterable, Sequence

from ottla.controller.batch import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Outgoing
from ottla.controller.context import Context
from ottla.controller.journal import Change
from ottla.controller.states import PartitionReplica, PartitionState
from ottla.model.ids import TopicPartition
from ottla.model.state_changes import TRACE, log_lines, logger, state_text

_NEW, _ONLINE = PartitionState.NEW.value, PartitionState.ONLINE.value


class StateChangeLogger:
    """One controller's lines, in one term."""

    def __init__(self, context: Context, controller_id: int) -> None:
        self._context = context
        self._head = f"[Controller id={controller_id} epoch={context.epoch}] "

    @property
    def _listening(self) -> bool:
        return logger.isEnabledFor(logging.INFO)

    def changed(self, changes: Iterable[Change]) -> None:
        """Log state changes."""
        if not self._listening:
            return
        trace = logger.isEnabledFor(TRACE)
        lines = []
        for subject, before, after in changes:
            if not isinstance(subject, TopicPartition):
                if trace:
                    log_lines([self._replica(subject, before, after)], TRACE)
            elif after in {_NEW, _ONLINE}:
                lines.append(self._partition(subject, before, after))
            elif trace:
                text = f"{self._head}Changed partition {subject} state from {before} to {after}"
                log_lines([text], TRACE)
        log_lines(lines)

    def _replica(self, replica: PartitionReplica, before: str, after: str) -> str:
        return (
            f"{self._head}Changed state of replica {replica.broker} for partition "
            f"{replica.partition} from {before} to {after}"
        )

    def _partition(self, tp: TopicPartition, before: str, after: str) -> str:
        if after == _NEW:
            replicas = ",".join(map(str, self._context.assignment(tp).replicas))
            return (
                f"{self._head}Changed partition {tp} state from {before} to {after} with "
                f"assigned replicas {replicas}"
            )
        known = self._context.leadership.get(tp)
        state = "None" if known is None else state_text(known.leader_and_isr)
        return f"{self._head}Changed partition {tp} from {before} to {after} with state {state}"

    def sent(self, requests: Sequence[Outgoing]) -> None:
        """Log requests that were queued."""
        if not self._listening:
            return
        lines = []
        metadata = [r for r in requests if r.api_key == UPDATE_METADATA]
        if metadata:
            brokers = ", ".join(str(r.broker) for r in metadata)
            lines.append(
                f"{self._head}Sending UpdateMetadata request to brokers Set({brokers}) for "
                f"{metadata[0].partitions} partitions"
            )
        for request in requests:
            if request.api_key == LEADER_AND_ISR:
                lines.append(
                    f"{self._head}Sending LeaderAndIsr request to broker {request.broker} with "
                    f"{request.summary} partitions"
                )
            elif request.api_key == STOP_REPLICA:
                deleted = len(request.deletes)
                for delete, count in (("true", deleted), ("false", request.partitions - deleted)):
                    if count:
                        lines.append(
                            f"{self._head}Sending StopReplica request (delete = {delete}) for "
                            f"{count} replicas to broker {request.broker}"
                        )
        log_lines(lines)

    def refused(self, reasons: Iterable[object]) -> None:
        """Log state changes that are not legal."""
        log_lines((f"{self._head}{reason}" for reason in reasons), logging.ERROR)
