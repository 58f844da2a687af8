"""What goes into and comes out of `transactions`: events, results, effects. Values only.

A request is known to the decider by a number, its `request_id`, which comes back with its `Reply`.
What is written or sent is known by a `token`, which comes back with `RecordsStored`, `RetryDue` or
`MarkersWritten`.
"""

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from ottla.coordinators.transaction import Transition
from ottla.model.effects import LogLine
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition


class ProducerIdAndEpoch(NamedTuple):
    """The id and epoch that a producer sends."""

    producer_id: int
    epoch: int


# --- events -----------------------------------------------------------------------------------
# `partition` is the partition of `__transaction_state` that the transactional id belongs to.


class InitProducerIdRequested(NamedTuple):
    """`expected` is what the producer has already (KIP-360), None for one that starts.

    `new_producer_id` is there after `AllocateProducerId`.
    """

    request_id: int
    partition: int
    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None
    new_producer_id: int | None = None


class AddPartitionsRequested(NamedTuple):
    request_id: int
    partition: int
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Collection[TopicPartition]


class EndTransactionRequested(NamedTuple):
    request_id: int
    partition: int
    transactional_id: str
    producer: ProducerIdAndEpoch
    committed: bool


class RecordsStored(NamedTuple):
    """Records are committed in the log, or not; `error` is for clients.

    `in_doubt`: there is an error, but the records were written and may still become committed.
    """

    token: int
    error: ErrorCode
    in_doubt: bool = False


class RetryDue(NamedTuple):
    token: int


class MarkersWritten(NamedTuple):
    """These partitions have their marker, or are deleted."""

    token: int
    partitions: Collection[TopicPartition]


class PartitionLoaded(NamedTuple):
    """A partition of `__transaction_state` was read; `epoch` is the leader epoch."""

    partition: int
    epoch: int


class PartitionResigned(NamedTuple):
    partition: int


class TimeoutCheckDue(NamedTuple):
    """Abort transactions that are open for longer than their timeout."""


class ExpirationCheckDue(NamedTuple):
    """Remove transactional ids that were last used too long before `wall_ms`."""

    wall_ms: int


Event = (
    InitProducerIdRequested
    | AddPartitionsRequested
    | EndTransactionRequested
    | RecordsStored
    | RetryDue
    | MarkersWritten
    | PartitionLoaded
    | PartitionResigned
    | TimeoutCheckDue
    | ExpirationCheckDue
)


# --- results and effects ----------------------------------------------------------------------


class InitResult(NamedTuple):
    """The response to InitProducerId."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1


class Reply(NamedTuple):
    """Effect: respond to the request with this number."""

    request_id: int
    result: InitResult | ErrorCode


class AllocateProducerId(NamedTuple):
    """Effect: pass in `request` again with a new producer id, or respond with an error."""

    request: InitProducerIdRequested


class StoreTransaction(NamedTuple):
    """Effect: write `to` as the id's record; `RecordsStored` must follow.

    `in_doubt`: an earlier attempt may be in the log. `attempts` counts the earlier ones.
    """

    token: int
    partition: int
    transactional_id: str
    to: Transition
    in_doubt: bool = False
    attempts: int = 0


class StoreTombstones(NamedTuple):
    """Effect: write a tombstone for each of these ids; `RecordsStored` must follow."""

    token: int
    partition: int
    transactional_ids: tuple[str, ...]


class RetryLater(NamedTuple):
    """Effect: pass in `RetryDue` after a backoff, which grows with `attempts`."""

    token: int
    attempts: int


class SendMarkers(msgspec.Struct, frozen=True):
    """Effect: have markers written to `partitions`; `MarkersWritten` follows, once or more often.

    The markers carry the producer id and epoch, and the coordinator's epoch.
    """

    token: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: frozenset[TopicPartition]


Effect = (
    Reply
    | AllocateProducerId
    | StoreTransaction
    | StoreTombstones
    | RetryLater
    | SendMarkers
    | LogLine
)
