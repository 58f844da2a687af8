"""Transactions: who may begin, join and end one, decided for all transactional ids of a broker.

A decider: events go in through `handle`, with the time (`Now`: how long a transaction is open is
measured by the monotonic clock), and effects come out, in the order in which they are to be carried
out; both are values (`transaction_events`). Invariants:
- while a record of an id is being written no request changes that id (CONCURRENT_TRANSACTIONS)
- a write in doubt (in the leader's log, not known to be committed) stays pending: it is repeated
  until it is known to be committed. So memory never differs from the log where nothing is pending;
  Kafka's goes back to the state before, which the log may not have any more
- a decision to commit or abort is final once it is in the log: the next coordinator sends the
  markers again, with its own, higher coordinator epoch
- unfinished work of an older leadership (`Shard`) has no effect any more

Kafka: `TransactionCoordinator`, and the cache of `TransactionStateManager`.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from ottla.coordinators.timers import Now
from ottla.coordinators.transaction import (
    ENDING,
    MAY_EXPIRE,
    Transaction,
    TransactionState,
    Transition,
    is_exhausted,
)
from ottla.coordinators.transaction_events import (
    AddPartitionsRequested,
    AllocateProducerId,
    Effect,
    EndTransactionRequested,
    Event,
    ExpirationCheckDue,
    InitProducerIdRequested,
    InitResult,
    MarkersWritten,
    PartitionLoaded,
    PartitionResigned,
    ProducerIdAndEpoch,
    RecordsStored,
    Reply,
    RetryDue,
    RetryLater,
    SendMarkers,
    StoreTombstones,
    StoreTransaction,
    TimeoutCheckDue,
)
from ottla.model.effects import info
from ottla.model.errors import ErrorCode, ProducerFencedError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import NO_PRODUCER_EPOCH

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
    """A record that is written, or waits for another attempt. No `request_id`: no response."""

    shard: Shard
    transaction: Transaction
    to: Transition
    reason: StoreReason
    request_id: int | None = None
    in_doubt: bool = False
    attempts: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PendingTombstones:
    """Tombstones that are being written, or wait for another attempt."""

    shard: Shard
    transactions: tuple[Transaction, ...]
    in_doubt: bool = False
    attempts: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PendingMarkers:
    """A transaction whose partitions do not have their markers yet, and what follows."""

    shard: Shard
    transaction: Transaction
    completion: Transition


class Transactions:
    """All transactional ids whose partition of `__transaction_state` this broker leads."""

    def __init__(self, max_timeout_ms: int, id_expiration_ms: int) -> None:
        self.shards: dict[int, Shard] = {}
        self.timed_out_total = 0
        self.expired_total = 0
        self.pending_stores: dict[int, PendingStore | PendingTombstones] = {}
        self.pending_markers: dict[int, PendingMarkers] = {}
        self._max_timeout_ms = max_timeout_ms
        self._id_expiration_ms = id_expiration_ms
        self._tokens = itertools.count(1)
        self._effects: list[Effect] = []

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """Take in an event; return what is to be done, in order.

        The partition of a request must be one of `shards`.
        """
        match event:
            case InitProducerIdRequested():
                self._init_producer_id(event, now)
            case AddPartitionsRequested():
                self._add_partitions(event, now)
            case EndTransactionRequested():
                self._end(event, now)
            case RecordsStored():
                self._records_stored(event, now)
            case RetryDue(token):
                self._retry(token)
            case MarkersWritten(token, partitions):
                self._markers_written(token, partitions)
            case PartitionLoaded(partition, epoch):
                self._on_loaded(partition, epoch, now)
            case PartitionResigned(partition):
                self._on_resigned(partition)
            case TimeoutCheckDue():
                self._abort_timed_out(now)
            case ExpirationCheckDue(wall_ms):
                self._expire(wall_ms)
        effects, self._effects = self._effects, []
        return effects

    def __iter__(self) -> Iterator[Transaction]:
        for shard in self.shards.values():
            yield from shard.transactions.values()

    def _reply(self, request_id: int | None, reason: StoreReason, error: ErrorCode) -> None:
        if request_id is None:
            return
        if reason is StoreReason.FENCE:
            # The producer has to ask again: then the old transaction is over, and its epoch rises.
            if error is ErrorCode.NONE:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
            self._effects.append(Reply(request_id, InitResult(error)))
        elif reason is StoreReason.INIT:
            self._effects.append(Reply(request_id, InitResult(error)))
        else:
            self._effects.append(Reply(request_id, error))

    # --- leadership -------------------------------------------------------------------------------

    def start_loading(self, partition: int, epoch: int) -> Shard:
        """Return an empty shard for a partition that is being read; `PartitionLoaded` follows."""
        shard = self.shards[partition] = Shard(partition, epoch)
        return shard

    def _on_loaded(self, partition: int, epoch: int, now: Now) -> None:
        """Finish what the last coordinator had decided but not finished.

        An open transaction gets its whole timeout again: only the other broker's wall clock knows
        when it began, and one that is wrong must not abort what began a second ago.
        """
        shard = self.shards.get(partition)
        if shard is None or shard.epoch != epoch:
            return
        shard.id_bytes = sum(map(id_bytes, shard.transactions))
        for transaction in list(shard.transactions.values()):
            if transaction.state in ENDING and transaction.pending is None:
                self._send_markers(shard, transaction, now)
            elif transaction.state is S.ONGOING:
                transaction.start_mono_ms = now.mono_ms

    def _on_resigned(self, partition: int) -> None:
        """Remove a partition's ids: another broker coordinates them now."""
        shard = self.shards.pop(partition, None)
        if shard is not None:
            shard.resigned = True
            markers = self.pending_markers
            self.pending_markers = {t: m for t, m in markers.items() if m.shard is not shard}

    # --- InitProducerId ---------------------------------------------------------------------------

    def allows_timeout(self, timeout_ms: int) -> bool:
        """Return whether a producer may ask for this transaction.timeout.ms."""
        return 0 < timeout_ms <= self._max_timeout_ms

    def _init_producer_id(self, request: InitProducerIdRequested, now: Now) -> None:
        """Give a producer its id and epoch, and fence the one that had them before."""
        shard, expected = self.shards[request.partition], request.expected
        new_id, request_id = request.new_producer_id, request.request_id
        transaction = shard.transactions.get(request.transactional_id)
        if transaction is None:
            if new_id is None:
                self._effects.append(AllocateProducerId(request))
                return
            more = id_bytes(request.transactional_id)
            if sum(s.id_bytes for s in self.shards.values()) + more > MOST_ID_BYTES:
                self._effects.append(Reply(request_id, InitResult(ErrorCode.POLICY_VIOLATION)))
                return
            transaction = Transaction(request.transactional_id, new_id, update_ms=now.wall_ms)
            shard.transactions[request.transactional_id] = transaction
            shard.id_bytes += more
        error = self._validate_init(transaction, expected)
        if error is not ErrorCode.NONE:
            self._effects.append(Reply(request_id, InitResult(error)))
        elif transaction.state is S.ONGOING:
            self._fence(shard, transaction, StoreReason.FENCE, request_id, now)
        elif transaction.exhausted and (expected is None or expected.epoch == transaction.epoch):
            if new_id is None:
                self._effects.append(AllocateProducerId(request))
                return
            to = transaction.prepare_next_producer_id(
                new_id, request.timeout_ms, now.wall_ms, keep_last_epoch=expected is not None
            )
            self._store(PendingStore(shard, transaction, to, StoreReason.INIT, request_id))
        else:
            try:
                to = transaction.prepare_next_epoch(
                    request.timeout_ms, None if expected is None else expected.epoch, now.wall_ms
                )
            except ProducerFencedError as fenced:
                self._effects.append(
                    info(
                        f"producer fenced transactional_id={request.transactional_id} "
                        f"reason={fenced}"
                    )
                )
                self._effects.append(Reply(request_id, InitResult(ErrorCode.PRODUCER_FENCED)))
            else:
                self._store(PendingStore(shard, transaction, to, StoreReason.INIT, request_id))

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

    def _add_partitions(self, request: AddPartitionsRequested, now: Now) -> None:
        """Make partitions part of the transaction, which begins with the first of them."""
        shard, partitions = self.shards[request.partition], request.partitions
        transaction, error = self._find(shard, request.transactional_id, request.producer)
        if transaction is not None and error is ErrorCode.NONE:
            if transaction.pending is not None or transaction.state in ENDING:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
            elif transaction.state is not S.ONGOING or not transaction.partitions.issuperset(
                partitions
            ):
                to = transaction.prepare_add_partitions(partitions, now)
                self._store(
                    PendingStore(shard, transaction, to, StoreReason.ADD, request.request_id)
                )
                return
        self._reply(request.request_id, StoreReason.ADD, error)

    def verify_partitions(
        self,
        shard: Shard,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Return which partitions are part of the open transaction (KIP-890).

        A record that is being written does not matter: the partition's log checks once more.
        """
        transaction, error = self._find(shard, transactional_id, producer)
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

    def _end(self, request: EndTransactionRequested, now: Now) -> None:
        """Commit or abort; the response is sent when the decision is in the log."""
        shard, committed = self.shards[request.partition], request.committed
        transaction, error = self._find(shard, request.transactional_id, request.producer)
        if transaction is not None and error is ErrorCode.NONE:
            if transaction.pending is not None:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
            elif transaction.state is S.ONGOING:
                to = transaction.prepare_end(committed=committed, now_ms=now.wall_ms)
                self._store(
                    PendingStore(shard, transaction, to, StoreReason.END, request.request_id)
                )
                return
            else:
                error = self._validate_repeated_end(transaction, committed=committed)
        self._reply(request.request_id, StoreReason.END, error)

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
        request_id: int | None,
        now: Now,
    ) -> None:
        """Abort the open transaction with a new epoch, higher than that of its producer."""
        fenced = transaction.prepare_fence()
        transaction.pending = None
        transaction.epoch, transaction.last_epoch = fenced.epoch, NO_PRODUCER_EPOCH
        to = transaction.prepare_end(committed=False, now_ms=now.wall_ms)
        self._store(PendingStore(shard, transaction, to, reason, request_id))

    def _abort_timed_out(self, now: Now) -> None:
        """Abort transactions that are open for longer than their producer allowed."""
        for shard in self.shards.values():
            for transaction in shard.transactions.values():
                if (
                    transaction.state is S.ONGOING
                    and transaction.pending is None
                    and now.mono_ms - transaction.start_mono_ms > transaction.timeout_ms
                ):
                    self.timed_out_total += 1
                    self._effects.append(
                        info(
                            "transaction timed out "
                            f"transactional_id={transaction.transactional_id} "
                            f"producer_id={transaction.producer_id} "
                            f"producer_epoch={transaction.epoch} "
                            f"timeout_ms={transaction.timeout_ms}"
                        )
                    )
                    self._fence(shard, transaction, StoreReason.TIMEOUT, None, now)

    # --- records ----------------------------------------------------------------------------------

    def _store(self, pending: PendingStore) -> None:
        token = next(self._tokens)
        self.pending_stores[token] = pending
        self._write(token, pending)

    def _write(self, token: int, pending: PendingStore | PendingTombstones) -> None:
        partition = pending.shard.partition
        if isinstance(pending, PendingTombstones):
            ids = tuple(t.transactional_id for t in pending.transactions)
            self._effects.append(StoreTombstones(token, partition, ids))
        else:
            transactional_id = pending.transaction.transactional_id
            self._effects.append(
                StoreTransaction(
                    token, partition, transactional_id, pending.to, pending.in_doubt,
                    pending.attempts,
                )
            )  # fmt: skip

    def _retry(self, token: int) -> None:
        """Write again, unless another broker coordinates the id by now."""
        pending = self.pending_stores[token]
        if pending.shard.resigned:
            del self.pending_stores[token]
        else:
            self._write(token, pending)

    def _records_stored(self, event: RecordsStored, now: Now) -> None:
        pending = self.pending_stores.pop(event.token)
        if isinstance(pending, PendingTombstones):
            self._tombstones_stored(pending, event)
            return
        shard, transaction, reason = pending.shard, pending.transaction, pending.reason
        error, request_id = event.error, pending.request_id
        if shard.resigned:
            if error is ErrorCode.NONE:
                error = ErrorCode.NOT_COORDINATOR
            self._reply(request_id, reason, error)
            return
        if error is not ErrorCode.NONE:
            self._reply(request_id, reason, error)
            in_doubt = event.in_doubt or pending.in_doubt
            if in_doubt or reason is StoreReason.COMPLETE:
                # In doubt: the client may ask again, and has to wait until the log is known.
                # Complete: the markers are written; there is no other way to go on.
                self._retry_later(event.token, replace(pending, request_id=None), in_doubt)
                return
            transaction.pending = None
            if reason in FENCING:
                transaction.fence_failed = True
            return
        transaction.complete(pending.to)
        if reason is StoreReason.INIT:
            if request_id is not None:
                result = InitResult(ErrorCode.NONE, pending.to.producer_id, pending.to.epoch)
                self._effects.append(Reply(request_id, result))
            return
        self._reply(request_id, reason, ErrorCode.NONE)
        if pending.to.state in ENDING:
            self._send_markers(shard, transaction, now)

    def _retry_later(
        self, token: int, pending: PendingStore | PendingTombstones, in_doubt: bool
    ) -> None:
        attempts = pending.attempts + 1
        self.pending_stores[token] = replace(pending, in_doubt=in_doubt, attempts=attempts)
        self._effects.append(RetryLater(token, attempts))

    # --- markers ----------------------------------------------------------------------------------

    def _send_markers(self, shard: Shard, transaction: Transaction, now: Now) -> None:
        completion = transaction.prepare_complete(now.wall_ms)
        partitions = frozenset(transaction.partitions)
        if not partitions:
            self._store(PendingStore(shard, transaction, completion, StoreReason.COMPLETE))
            return
        token = next(self._tokens)
        self.pending_markers[token] = PendingMarkers(shard, transaction, completion)
        self._effects.append(
            SendMarkers(
                token,
                transaction.transactional_id,
                completion.producer_id,
                completion.epoch,
                shard.epoch,
                completion.state is S.COMPLETE_COMMIT,
                partitions,
            )
        )

    def awaits_markers(self, token: int) -> bool:
        """Return whether markers still have to be sent: this broker coordinates the transaction."""
        return token in self.pending_markers

    def _markers_written(self, token: int, partitions: Iterable[TopicPartition]) -> None:
        pending = self.pending_markers.get(token)
        if pending is None:
            return
        transaction = pending.transaction
        transaction.partitions.difference_update(partitions)
        if not transaction.partitions:
            del self.pending_markers[token]
            self._store(
                PendingStore(pending.shard, transaction, pending.completion, StoreReason.COMPLETE)
            )

    # --- unused ids -------------------------------------------------------------------------------

    def _expire(self, wall_ms: int) -> None:
        """Remove ids without a transaction that were not used for too long."""
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
                token = next(self._tokens)
                pending = self.pending_stores[token] = PendingTombstones(shard, batch)
                self._write(token, pending)

    def _tombstones_stored(self, pending: PendingTombstones, event: RecordsStored) -> None:
        shard = pending.shard
        if shard.resigned:
            return
        in_doubt = event.in_doubt or pending.in_doubt
        if event.error is not ErrorCode.NONE and in_doubt:
            self._retry_later(event.token, pending, in_doubt)
            return
        for transaction in pending.transactions:
            if event.error is ErrorCode.NONE:
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
