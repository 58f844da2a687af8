"""Transactions: who may begin, join and end one, decided for all transactional ids of a broker.

A decider: a method for each event, with the time as an argument (`Now`: how long a transaction is
open is measured by the monotonic clock); it acts through its port (`TransactionPort`, which is
`TransactionCoordinator`) and the requests that wait. Invariants:
- while a record of an id is being written no request changes that id (CONCURRENT_TRANSACTIONS)
- a write in doubt (in the leader's log, not known to be committed) stays pending: it is repeated
  until it is known to be committed. So memory never differs from the log where nothing is pending;
  Kafka's goes back to the state before, which the log may not have any more
- a decision to commit or abort is final once it is in the log: the next coordinator sends the
  markers again, with its own, higher coordinator epoch
- unfinished work of an older leadership (`Shard`) has no effect any more
- to write a record is the last thing done to an id: it may be committed before the call returns

Kafka: `TransactionCoordinator`, and the cache of `TransactionStateManager`.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Protocol

from ottla.coordinators.requests import AwaitsResult, InitProducerId, InitResult, ProducerIdAndEpoch
from ottla.coordinators.timers import Now
from ottla.coordinators.transaction import (
    ENDING,
    MAY_EXPIRE,
    Transaction,
    TransactionState,
    Transition,
    is_exhausted,
)
from ottla.model.errors import ErrorCode, ProducerFencedError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import NO_PRODUCER_EPOCH

logger = logging.getLogger(__name__)

TOMBSTONES_PER_BATCH = 200

S = TransactionState


class StoreReason(Enum):
    """Why a record is written, and so what follows when it is committed."""

    INIT = auto()
    ADD = auto()
    END = auto()
    FENCE = auto()
    """to end the open transaction of an older producer with the same transactional id"""
    TIMEOUT = auto()
    COMPLETE = auto()


FENCING = frozenset({StoreReason.FENCE, StoreReason.TIMEOUT})


MOST_ID_BYTES = 256 << 20
"""What all transactional ids may take: they stay for transactional.id.expiration.ms. Beyond it no
new one is taken."""


def id_bytes(transactional_id: str) -> int:
    """Return what an id takes at most: Python has up to four bytes for a character."""
    return 4 * len(transactional_id)


@dataclass(slots=True, eq=False)
class Shard:
    """The transactional ids of one partition in one leadership; `epoch` is the coordinator's.

    Kafka: `TxnMetadataCacheEntry`.
    """

    partition: int
    epoch: int
    transactions: dict[str, Transaction] = field(default_factory=dict)
    resigned: bool = False
    id_bytes: int = 0
    """about what the ids take, once they are loaded"""


@dataclass(frozen=True, slots=True, eq=False)
class PendingStore:
    """A record that is written, or waits for another attempt. No `request`: no response.

    `in_doubt`: an earlier attempt may be in the log. `attempts` counts the earlier ones.
    """

    shard: Shard
    transaction: Transaction
    to: Transition
    reason: StoreReason
    request: AwaitsResult[Any] | None = None
    in_doubt: bool = False
    attempts: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PendingTombstones:
    """Tombstones of ids that are being written, or wait for another attempt."""

    shard: Shard
    transactions: tuple[Transaction, ...]
    in_doubt: bool = False
    attempts: int = 0


Pending = PendingStore | PendingTombstones


@dataclass(slots=True, eq=False)
class Markers:
    """The markers that end a transaction, one for each of `partitions`, and what follows.

    They carry the producer id and epoch of `completion`, and the epoch of the shard.
    """

    shard: Shard
    transaction: Transaction
    completion: Transition
    partitions: frozenset[TopicPartition]
    written: bool = False
    """whether every partition has its marker"""

    @property
    def committed(self) -> bool:
        return self.completion.state is S.COMPLETE_COMMIT

    @property
    def needed(self) -> bool:
        """Whether they still have to be sent: this broker coordinates the transaction."""
        return not (self.written or self.shard.resigned)


class TransactionPort(Protocol):
    """What the decider acts through. `TransactionCoordinator` implements it."""

    def store(self, pending: Pending) -> None:
        """Write records; `Transactions.stored` follows, maybe before this returns."""
        ...

    def retry_later(self, pending: Pending) -> None:
        """Call `Transactions.retry` after a backoff, which grows with `pending.attempts`."""
        ...

    def send_markers(self, markers: Markers) -> None:
        """Have them written; `Transactions.markers_written` follows, once or more often."""
        ...


class Transactions:
    """All transactional ids whose partition of `__transaction_state` this broker leads."""

    def __init__(self, max_timeout_ms: int, id_expiration_ms: int, port: TransactionPort) -> None:
        self.shards: dict[int, Shard] = {}
        self.timed_out_total = 0
        self.expired_total = 0
        self._max_timeout_ms = max_timeout_ms
        self._id_expiration_ms = id_expiration_ms
        self._port = port

    def __iter__(self) -> Iterator[Transaction]:
        for shard in self.shards.values():
            yield from shard.transactions.values()

    @staticmethod
    def _respond(pending: PendingStore, error: ErrorCode) -> None:
        request, to = pending.request, pending.to
        if request is None:
            return
        if pending.reason is StoreReason.FENCE:
            # The producer has to ask again: then the old transaction is over, and its epoch rises.
            if error is ErrorCode.NONE:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
            request.on_result(InitResult(error))
        elif pending.reason is not StoreReason.INIT:
            request.on_result(error)
        elif error is ErrorCode.NONE:
            request.on_result(InitResult(error, to.producer_id, to.epoch))
        else:
            request.on_result(InitResult(error))

    # --- leadership -------------------------------------------------------------------------------

    def start_loading(self, partition: int, epoch: int) -> Shard:
        """Return an empty shard for a partition that is being read; `loaded` follows."""
        shard = self.shards[partition] = Shard(partition, epoch)
        return shard

    def loaded(self, partition: int, now: Now) -> None:
        """Finish what the last coordinator had decided but not finished.

        An open transaction gets its whole timeout again: only the other broker's wall clock knows
        when it began, and one that is wrong must not abort what began a second ago.
        """
        shard = self.shards[partition]
        shard.id_bytes = sum(map(id_bytes, shard.transactions))
        for transaction in list(shard.transactions.values()):
            if transaction.state in ENDING and transaction.pending is None:
                self._send_markers(shard, transaction, now)
            elif transaction.state is S.ONGOING:
                transaction.start_mono_ms = now.mono_ms

    def resign(self, partition: int) -> None:
        """Remove a partition's ids: another broker coordinates them now."""
        shard = self.shards.pop(partition, None)
        if shard is not None:
            shard.resigned = True

    # --- InitProducerId ---------------------------------------------------------------------------

    def allows_timeout(self, timeout_ms: int) -> bool:
        """Return whether a producer may ask for this transaction.timeout.ms."""
        return 0 < timeout_ms <= self._max_timeout_ms

    def init_producer_id(
        self, partition: int, init: InitProducerId, new_id: int | None, now: Now
    ) -> bool:
        """Give a producer its id and epoch, and fence the one that had them before.

        False, and nothing done, if that takes a producer id which nobody had, and `new_id` is None.
        """
        shard, (name, timeout_ms, expected, request) = self.shards[partition], init
        transaction = shard.transactions.get(name)
        if transaction is None:
            if new_id is None:
                return False
            more = id_bytes(name)
            if sum(s.id_bytes for s in self.shards.values()) + more > MOST_ID_BYTES:
                request.on_result(InitResult(ErrorCode.POLICY_VIOLATION))
                return True
            transaction = Transaction(name, new_id, update_ms=now.wall_ms)
            shard.transactions[name] = transaction
            shard.id_bytes += more
        error = self._validate_init(transaction, expected)
        if error is not ErrorCode.NONE:
            request.on_result(InitResult(error))
        elif transaction.state is S.ONGOING:
            self._fence(shard, transaction, StoreReason.FENCE, request, now)
        elif transaction.exhausted and (expected is None or expected.epoch == transaction.epoch):
            if new_id is None:
                return False
            to = transaction.prepare_next_producer_id(
                new_id, timeout_ms, now.wall_ms, keep_last_epoch=expected is not None
            )
            self._port.store(PendingStore(shard, transaction, to, StoreReason.INIT, request))
        else:
            try:
                to = transaction.prepare_next_epoch(
                    timeout_ms, None if expected is None else expected.epoch, now.wall_ms
                )
            except ProducerFencedError as fenced:
                logger.info("producer fenced transactional_id=%s reason=%s", name, fenced)
                request.on_result(InitResult(ErrorCode.PRODUCER_FENCED))
            else:
                self._port.store(PendingStore(shard, transaction, to, StoreReason.INIT, request))
        return True

    @staticmethod
    def _validate_init(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> ErrorCode:
        if transaction.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if expected is not None and transaction.epoch != NO_PRODUCER_EPOCH:
            renewed = expected.producer_id == transaction.last_producer_id and is_exhausted(
                expected.epoch
            )
            if expected.producer_id != transaction.producer_id and not renewed:
                return ErrorCode.PRODUCER_FENCED
            # A producer that was fenced with the last epoch of an id gets no new id.
            if transaction.exhausted and expected.epoch != transaction.epoch:
                return ErrorCode.PRODUCER_FENCED
        if transaction.state in ENDING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    # --- partitions -------------------------------------------------------------------------------

    def add_partitions(
        self,
        partition: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        request: AwaitsResult[ErrorCode],
        now: Now,
    ) -> None:
        """Make partitions part of the transaction, which begins with the first of them.

        `partition` is the one of `__transaction_state` that the id belongs to.
        """
        shard = self.shards[partition]
        transaction, error = self._find(shard, transactional_id, producer)
        if transaction is not None and error is ErrorCode.NONE:
            if transaction.pending is not None or transaction.state in ENDING:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
            elif transaction.state is not S.ONGOING or not transaction.partitions.issuperset(
                partitions
            ):
                to = transaction.prepare_add_partitions(partitions, now)
                self._port.store(PendingStore(shard, transaction, to, StoreReason.ADD, request))
                return
        request.on_result(error)

    def verify_partitions(
        self,
        partition: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Return which partitions are part of the open transaction (KIP-890).

        A record that is being written does not matter: the partition's log checks once more.
        """
        transaction, error = self._find(self.shards[partition], transactional_id, producer)
        if transaction is not None and error is ErrorCode.NONE and transaction.state in ENDING:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if transaction is None or error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        known = transaction.partitions
        return {
            tp: ErrorCode.NONE if tp in known else ErrorCode.TRANSACTION_ABORTABLE
            for tp in partitions
        }

    @staticmethod
    def _find(
        shard: Shard, transactional_id: str, producer: ProducerIdAndEpoch
    ) -> tuple[Transaction | None, ErrorCode]:
        transaction = shard.transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != producer.producer_id:
            return transaction, ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction.epoch != producer.epoch:
            return transaction, ErrorCode.PRODUCER_FENCED
        return transaction, ErrorCode.NONE

    # --- end of a transaction ---------------------------------------------------------------------

    def end(
        self,
        partition: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        request: AwaitsResult[ErrorCode],
        now: Now,
        *,
        committed: bool,
    ) -> None:
        """Commit or abort; the response is sent when the decision is in the log."""
        shard = self.shards[partition]
        transaction, error = self._find(shard, transactional_id, producer)
        if transaction is not None and error is ErrorCode.NONE:
            if transaction.pending is not None:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
            elif transaction.state is S.ONGOING:
                to = transaction.prepare_end(committed=committed, now_ms=now.wall_ms)
                self._port.store(PendingStore(shard, transaction, to, StoreReason.END, request))
                return
            else:
                error = self._validate_repeated_end(transaction, committed=committed)
        request.on_result(error)

    @staticmethod
    def _validate_repeated_end(transaction: Transaction, *, committed: bool) -> ErrorCode:
        """Return the result of an EndTxn without an open transaction: it may be a repeated one."""
        if transaction.state is (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT):
            return ErrorCode.NONE
        if transaction.state is (S.PREPARE_COMMIT if committed else S.PREPARE_ABORT):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.INVALID_TXN_STATE

    def _fence(
        self,
        shard: Shard,
        transaction: Transaction,
        reason: StoreReason,
        request: AwaitsResult[InitResult] | None,
        now: Now,
    ) -> None:
        """Abort the open transaction with a new epoch, higher than that of its producer."""
        fenced = transaction.prepare_fence()
        transaction.pending = None
        transaction.epoch, transaction.last_epoch = fenced.epoch, NO_PRODUCER_EPOCH
        to = transaction.prepare_end(committed=False, now_ms=now.wall_ms)
        self._port.store(PendingStore(shard, transaction, to, reason, request))

    def abort_timed_out(self, now: Now) -> None:
        """Abort transactions that are open for longer than their producer allowed."""
        for shard in self.shards.values():
            for transaction in shard.transactions.values():
                if (
                    transaction.state is S.ONGOING
                    and transaction.pending is None
                    and now.mono_ms - transaction.start_mono_ms > transaction.timeout_ms
                ):
                    self.timed_out_total += 1
                    logger.info(
                        "transaction timed out transactional_id=%s producer_id=%d "
                        "producer_epoch=%d timeout_ms=%d",
                        transaction.transactional_id,
                        transaction.producer_id,
                        transaction.epoch,
                        transaction.timeout_ms,
                    )
                    self._fence(shard, transaction, StoreReason.TIMEOUT, None, now)

    # --- records ----------------------------------------------------------------------------------

    def retry(self, pending: Pending) -> None:
        """Write again, unless another broker coordinates the id by now."""
        if not pending.shard.resigned:
            self._port.store(pending)

    def stored(self, pending: Pending, error: ErrorCode, now: Now, *, in_doubt: bool) -> None:
        """Go on: records are committed in the log, or not; `error` is for clients.

        `in_doubt`: there is an error, but they were written and may still become committed.
        """
        in_doubt = in_doubt or pending.in_doubt
        if isinstance(pending, PendingTombstones):
            self._tombstones_stored(pending, error, in_doubt=in_doubt)
            return
        shard, transaction = pending.shard, pending.transaction
        if shard.resigned:
            failed = error is not ErrorCode.NONE
            self._respond(pending, error if failed else ErrorCode.NOT_COORDINATOR)
        elif error is not ErrorCode.NONE:
            self._respond(pending, error)
            if in_doubt or pending.reason is StoreReason.COMPLETE:
                # In doubt: the client may ask again, and has to wait until the log is known.
                # Complete: the markers are written; there is no other way to go on.
                self._retry_later(replace(pending, request=None), in_doubt=in_doubt)
                return
            transaction.pending = None
            if pending.reason in FENCING:
                transaction.fence_failed = True
        else:
            transaction.complete(pending.to)
            self._respond(pending, ErrorCode.NONE)
            if pending.to.state in ENDING:
                self._send_markers(shard, transaction, now)

    def _retry_later(self, pending: Pending, *, in_doubt: bool) -> None:
        attempts = pending.attempts + 1
        self._port.retry_later(replace(pending, in_doubt=in_doubt, attempts=attempts))

    # --- markers ----------------------------------------------------------------------------------

    def _send_markers(self, shard: Shard, transaction: Transaction, now: Now) -> None:
        completion = transaction.prepare_complete(now.wall_ms)
        markers = Markers(shard, transaction, completion, frozenset(transaction.partitions))
        if markers.partitions:
            self._port.send_markers(markers)
        else:
            self._complete(markers)

    def markers_written(self, markers: Markers, partitions: Iterable[TopicPartition]) -> None:
        """Note that these partitions have their marker, or are deleted."""
        if markers.needed:
            markers.transaction.partitions.difference_update(partitions)
            if not markers.transaction.partitions:
                self._complete(markers)

    def _complete(self, markers: Markers) -> None:
        markers.written = True
        self._port.store(
            PendingStore(
                markers.shard, markers.transaction, markers.completion, StoreReason.COMPLETE
            )
        )

    # --- unused ids -------------------------------------------------------------------------------

    def expire(self, wall_ms: int) -> None:
        """Remove ids without a transaction that were last used too long before `wall_ms`."""
        oldest_ms = wall_ms - self._id_expiration_ms
        for shard in self.shards.values():
            expired = [
                t
                for t in shard.transactions.values()
                if t.pending is None and t.state in MAY_EXPIRE and t.update_ms <= oldest_ms
            ]
            for transaction in expired:
                transaction.prepare_dead()
            self.expired_total += len(expired)
            for first in range(0, len(expired), TOMBSTONES_PER_BATCH):
                batch = tuple(expired[first : first + TOMBSTONES_PER_BATCH])
                self._port.store(PendingTombstones(shard, batch))

    def _tombstones_stored(
        self, pending: PendingTombstones, error: ErrorCode, *, in_doubt: bool
    ) -> None:
        shard = pending.shard
        if shard.resigned:
            return
        if error is not ErrorCode.NONE and in_doubt:
            self._retry_later(pending, in_doubt=in_doubt)
            return
        for transaction in pending.transactions:
            if error is ErrorCode.NONE:
                if shard.transactions.pop(transaction.transactional_id, None) is not None:
                    shard.id_bytes -= id_bytes(transaction.transactional_id)
            else:
                transaction.pending = None

    # --- queries ----------------------------------------------------------------------------------

    def select(
        self,
        producer_ids: Collection[int],
        states: Collection[str],
        min_duration_ms: int,
        now_ms: int,
    ) -> tuple[list[Transaction], list[str]]:
        """Return the ids that pass all filters, and the names in `states` that are no states."""
        known: Mapping[str, TransactionState] = {state.label: state for state in TransactionState}
        wanted = {known[name] for name in states if name in known}
        found = [
            t
            for t in self
            if (not producer_ids or t.producer_id in producer_ids)
            and (not states or t.state in wanted)
            and (min_duration_ms < 0 or now_ms - t.start_ms > min_duration_ms)
        ]
        return found, [name for name in states if name not in known]
