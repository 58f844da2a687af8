"""Produces that wait for the in-sync replicas (acks=all).

Invariants: one object is the place in the connection's order of responses, the operation in the
purgatory and the waiter of every partition; a partition's result is final once its high watermark
was reached, its leadership lost, or the time is over; the response leaves once, when all partitions
have a final result; a partition that reached its offset while fewer than min.insync.replicas are in
sync says so (NOT_ENOUGH_REPLICAS_AFTER_APPEND): the records are there, but not as safe as was
asked.

Kafka: `DelayedProduce` and `ProducePartitionStatus`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.log.log import AppendInfo
from ottla.model.errors import ErrorCode
from ottla.model.ports import Buffer
from ottla.net.connection import Pending
from ottla.replication.partition import Host, Partition

if TYPE_CHECKING:
    from ottla.net.connection import Connection


def code_at_timeout(host: Host) -> ErrorCode:
    """Return a partition's error when the time is over.

    Without a ZooKeeper session this broker may have been fenced and not know it (fault F14). After
    REQUEST_TIMED_OUT librdkafka sends to the same broker again; after NOT_LEADER_OR_FOLLOWER it
    requests metadata.
    """
    return ErrorCode.REQUEST_TIMED_OUT if host.may_propose else ErrorCode.NOT_LEADER_OR_FOLLOWER


@dataclass(slots=True, eq=False)
class PartitionResult:
    """What became of one partition's batch. `waits` until its records are replicated."""

    topic: str
    index: int
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()
    info: AppendInfo | None = None
    waits: bool = False
    unverified: bool = False
    """whether the transaction coordinator did not confirm the partition: no log was asked"""

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

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}:{self.code.name}"


class DelayedProduce(Pending):
    """The response to a produce with partitions that are not replicated yet. See `respond`."""

    __slots__ = ("_host", "_remaining", "results")

    def __init__(
        self,
        connection: "Connection",
        host: Host,
        results: Sequence[PartitionResult] = (),
        *,
        pipelined: bool,
    ) -> None:
        super().__init__(connection, pipelined)
        self.results = results
        self._host = host
        self._remaining = 0

    def respond(self) -> Sequence[Buffer]:
        """Return the encoded response; every result is final."""
        raise NotImplementedError

    def wait(self, waiting: Sequence[tuple[int, Partition]], timeout_ms: int) -> None:
        """Wait at most so long for partitions, each given with its place in `results`."""
        if self.done:
            return  # the client is gone; what was appended stays
        self._remaining = len(waiting)
        for slot, partition in waiting:
            result = self.results[slot]
            assert result.info is not None
            result.waits = True
            partition.await_high_watermark(result.info.last_offset + 1, self, slot)
        self._host.purgatory.park(self, max(timeout_ms, 0))

    def partition_done(self, slot: int, code: ErrorCode) -> None:
        result = self.results[slot]
        if self.done or not result.waits:
            return
        result.waits = False
        result.code = code
        self._remaining -= 1
        if not self._remaining:
            self._host.purgatory.enqueue(self)

    def attempt(self) -> None:
        if not self._remaining:
            self.complete(self.respond())

    def expire(self) -> None:
        for result in self.results:
            if result.waits:
                result.waits = False
                result.code = code_at_timeout(self._host)
        self._remaining = 0
        self.complete(self.respond())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.results)})"
