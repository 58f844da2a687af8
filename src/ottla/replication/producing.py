"""Produces that wait for the in-sync replicas (acks=all).

Who may call: the broker's produce handler, and coordinators that append for themselves.
Invariants: a partition's result is final once its watermark was reached, its leadership lost, or
the time is over; the answer leaves once, when all partitions have a final result; a partition that
reached its offset while fewer than min.insync.replicas are in sync says so
(NOT_ENOUGH_REPLICAS_AFTER_APPEND): the records are there, but not as safe as was asked.

Kafka: `DelayedProduce`.
"""

from collections.abc import Callable, Sequence

from ottla.log.log import AppendInfo
from ottla.model.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.replication.purgatory import Parked, Purgatory


class PartitionResult:
    """One partition's part of a produce; a waiter on that partition while it is open."""

    __slots__ = (
        "code",
        "index",
        "info",
        "message",
        "open",
        "operation",
        "partition",
        "record_errors",
        "required_offset",
        "topic",
        "unasked",
    )

    def __init__(self, topic: str, index: int) -> None:
        self.topic = topic
        self.index = index
        self.code: ErrorCode = ErrorCode.NONE
        self.message: str | None = None
        self.record_errors: Sequence[tuple[int, str]] = ()
        self.info: AppendInfo | None = None
        self.required_offset = -1
        self.open = False
        self.operation: ParkedProduce | None = None
        self.partition: Partition | None = None
        self.unasked = False

    def failed(
        self,
        code: ErrorCode,
        message: str | None = None,
        record_errors: Sequence[tuple[int, str]] = (),
    ) -> "PartitionResult":
        """Make this a failure that nothing waits for."""
        self.code = code
        self.message = message
        self.record_errors = record_errors
        self.info = None
        return self

    def reached(self, partition: Partition) -> None:
        """Close with success, or with a warning that the ISR has become too small."""
        enough = partition.min_isr <= len(partition.isr.maximal)
        self._close(ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def lost(self, code: ErrorCode) -> None:
        """Close with failure: this broker leads no more."""
        self._close(code)

    def too_late(self) -> ErrorCode:
        """Return what to answer when the time is over.

        Without a ZooKeeper session this broker may have been deposed without a word (fault F14),
        and librdkafka sends again to whoever timed out: told that we do not lead, it asks who does.
        """
        if self.partition is None or self.partition.host.may_propose:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _close(self, code: ErrorCode) -> None:
        operation = self.operation
        if not self.open or operation is None:
            return
        self.open = False
        self.operation = None  # else each parked produce would be work for the cycle collector
        self.partition = None
        self.code = code
        operation.remaining -= 1
        if not operation.remaining:
            operation.reconsider()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}:{self.code.name}"


class ParkedProduce(Parked):
    """A produce with partitions that are not replicated yet. `deliver` gets it when it ends."""

    __slots__ = ("deliver", "remaining", "results")

    def __init__(
        self,
        purgatory: Purgatory,
        results: list[PartitionResult],
        deliver: Callable[["ParkedProduce"], None],
    ) -> None:
        super().__init__(purgatory)
        self.results = results
        self.deliver = deliver
        self.remaining = 0

    def wait(self, result: PartitionResult, partition: Partition, required_offset: int) -> None:
        """Wait for one partition's high watermark."""
        result.operation = self
        result.partition = partition
        result.required_offset = required_offset
        result.open = True
        self.remaining += 1
        partition.await_high_watermark(result)

    def attempt(self) -> None:
        if not self.remaining:
            self.finish()
            self.deliver(self)

    def expire(self) -> None:
        for result in self.results:
            if result.open:
                result.code = result.too_late()
                result.open = False
                result.operation = None
                result.partition = None
        self.remaining = 0
        self.finish()
        self.deliver(self)

    def drop(self) -> None:
        """Wait no more: the connection is gone. The records stay."""
        if not self.done:
            self.finish()
            for result in self.results:
                result.open = False

    def __repr__(self) -> str:
        return f"ParkedProduce({self.results})"
