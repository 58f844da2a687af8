"""The transaction coordinator: the shell around transactions, with their log, markers and clock.

Invariants: a request reaches a transactional id only if its partition is led and loaded here;
effects are carried out in the order in which the decider returned them. It knows which requests
wait behind the decider's numbers. Kafka: `TransactionCoordinator`, and the log part of
`TransactionStateManager`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

from ottla.coordinators.coordinator_log import AppendSettings, CoordinatorLog, DelayedAppend
from ottla.coordinators.results import AwaitsResult
from ottla.coordinators.timers import Now
from ottla.coordinators.transaction import Transaction, TransactionState
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
from ottla.coordinators.transaction_markers import DeletedOf, Leaders, TransactionMarkers
from ottla.coordinators.transaction_records import (
    TransactionRecordReader,
    transaction_key,
    transaction_value,
)
from ottla.coordinators.transactions import Shard, Transactions
from ottla.model.config import BrokerConfig
from ottla.model.effects import LogLine
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.model.ports import World
from ottla.model.retention_clock import RetentionClock
from ottla.replication.replica_manager import ReplicaManager
from ottla.security.client import ClientSecurity
from ottla.wire.batch_header import BatchHeader
from ottla.wire.records import Record

logger = logging.getLogger(__name__)

RETRY_S = 0.1
"""Before the second attempt to write a record; each further one waits twice as long."""

MAX_RETRY_S = 1.6

IN_DOUBT_TIMEOUT_MS = 5_000
"""Each further attempt of a write in doubt waits at least this long for the in-sync replicas."""

_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The client's error for a failed append, without those of a partition that is not the client's."""


class ProducerIdSource(Protocol):
    """Where new producer ids come from: the controller's blocks."""

    def take(self) -> int | None: ...

    async def next(self) -> int: ...


class _TransactionAppend(DelayedAppend):
    """The append of a transaction's record: its outcome is an event for the decider."""

    __slots__ = ("_coordinator", "_store")

    def __init__(self, coordinator: "TransactionCoordinator", store: StoreTransaction) -> None:
        super().__init__()
        self._coordinator = coordinator
        self._store = store

    def completed(self, code: ErrorCode) -> None:
        store, error = self._store, _ERRORS.get(code, code)
        if error is not ErrorCode.NONE:
            logger.info(
                "transaction not stored transactional_id=%s state=%s error=%s offset=%d "
                "attempts=%d",
                store.transactional_id, store.to.state.label, code.name, self.base_offset,
                store.attempts + 1,
            )  # fmt: skip
        self._coordinator.on_stored(store.token, error, self.base_offset)


class _TombstonesAppend(DelayedAppend):
    """The append of tombstones for expired transactional ids."""

    __slots__ = ("_coordinator", "_token")

    def __init__(self, coordinator: "TransactionCoordinator", token: int) -> None:
        super().__init__()
        self._coordinator = coordinator
        self._token = token

    def completed(self, code: ErrorCode) -> None:
        self._coordinator.on_stored(self._token, code, self.base_offset)


class _TransactionLoader:
    """Loads the transactional ids of one partition."""

    def __init__(self, coordinator: "TransactionCoordinator", shard: Shard) -> None:
        self._coordinator = coordinator
        self._shard = shard
        self._records = TransactionRecordReader()

    def load_batch(self, header: BatchHeader, records: Iterator[Record]) -> Iterator[None]:
        return self._records.read_batch(header, records)

    def finish(self) -> Iterator[None]:
        known = self._shard.transactions
        for key, raw in self._records.found.items():
            decoded = self._records.decode(key, raw)
            if isinstance(decoded, LogLine):
                logger.log(decoded.level, "%s", decoded.text)
            else:
                known[decoded.transactional_id] = decoded
            yield
        # In the next turn: only then is the partition served, so that it can be appended to.
        asyncio.get_running_loop().call_soon(self._coordinator.on_loaded, self._shard)


class TransactionCoordinator:
    """All transactional ids whose partition of `__transaction_state` this broker leads."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        replicas: ReplicaManager,
        partitions: Callable[[], int],
        leaders: Leaders,
        producer_ids: ProducerIdSource,
        deleted_of: DeletedOf,
        security: ClientSecurity | None = None,
    ) -> None:
        number = config.integer
        self._world = world
        self._clock = world.clock
        self._ages = RetentionClock(world.clock)
        self._replicas = replicas
        self._producer_ids = producer_ids
        self._abort_every_s = config.interval_s(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        )
        self._expire_every_s = config.interval_s(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        )
        self.transactions = Transactions(
            number("transaction.max.timeout.ms"), number("transactional.id.expiration.ms")
        )
        self.log = CoordinatorLog(
            world,
            replicas,
            TRANSACTION_STATE_TOPIC,
            self,
            partitions,
            AppendSettings(),
        )
        self.markers = TransactionMarkers(
            world,
            config,
            leaders,
            self._markers_written,
            self.transactions.awaits_markers,
            deleted_of,
            security,
        )
        self._loops: list[asyncio.Task[None]] = []
        self._initializing: dict[asyncio.Task[None], None] = {}
        self._effects: deque[Effect] = deque()
        self._running = False
        self._waiting: dict[int, AwaitsResult[Any]] = {}
        self._last_request = 0
        self._closed = False

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to abort timed out transactions and to remove unused ids; inside the event loop."""
        loop = asyncio.get_running_loop()
        self._loops = [
            loop.create_task(
                self._every(self._abort_every_s, self._abort_timed_out), name="txn-abort"
            ),
            loop.create_task(self._every(self._expire_every_s, self._expire), name="txn-expire"),
        ]

    async def close(self) -> None:
        """Stop serving. The next leaders of the partitions load the transactions and go on."""
        self._closed = True
        tasks = [*self._loops, *self._initializing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loops = []
        await self.markers.close()
        await self.log.close()

    async def _every(self, interval_s: float, step: Callable[[], None]) -> None:
        """Call `step` from time to time. A loop root."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                step()
            except Exception:
                logger.exception("checking transactions failed")

    def _abort_timed_out(self) -> None:
        self._handle(TimeoutCheckDue())

    def _expire(self) -> None:
        self._handle(ExpirationCheckDue(self._ages.now_ms()))

    def _now(self) -> Now:
        return Now(self._clock.monotonic() * 1000, self._clock.wall_ms())

    # --- StateListener of the CoordinatorLog ------------------------------------------------------

    def start_loading(self, index: int) -> _TransactionLoader:
        partition = self._replicas.hosted(TRANSACTION_STATE_TOPIC, index)
        return _TransactionLoader(
            self, self.transactions.start_loading(index, partition.leader_epoch)
        )

    def on_loaded(self, shard: Shard) -> None:
        """Go on with the transactions of a partition that has just been read."""
        if not self._closed:
            self._handle(PartitionLoaded(shard.partition, shard.epoch))

    def on_resigned(self, index: int) -> None:
        self._handle(PartitionResigned(index))

    def remove_state(self, indexes: Collection[int]) -> Iterator[None]:
        """Nothing is left to do: the transactions were removed with their shard."""
        del indexes
        return iter(())

    # --- effects ----------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        """Pass an event to the decider and carry out the effects.

        They are carried out in their order; those that follow from one come after all before.
        """
        self._effects.extend(self.transactions.handle(event, self._now()))
        if self._running:
            return
        self._running = True
        try:
            while self._effects:
                self._carry_out(self._effects.popleft())
        finally:
            self._running = False

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Reply(request_id, result):
                self._waiting.pop(request_id).on_result(result)
            case AllocateProducerId(request):
                self._allocate_producer_id(request)
            case StoreTransaction():
                self._write(effect)
            case StoreTombstones():
                self._write_tombstones(effect)
            case RetryLater(token, attempts):
                delay_s = RETRY_S * 2 ** (min(attempts, 8) - 1)
                loop = asyncio.get_running_loop()
                loop.call_later(min(delay_s, MAX_RETRY_S), self._retry, token)
            case SendMarkers():
                self.markers.send(effect)
            case LogLine(level, text, values):
                logger.log(level, text, *values)

    def _number(self, request: AwaitsResult[Any]) -> int:
        """Return the number by which the decider knows a new request."""
        self._last_request += 1
        self._waiting[self._last_request] = request
        return self._last_request

    def _write(self, store: StoreTransaction) -> None:
        record = Record(
            timestamp=self._clock.wall_ms(),
            key=transaction_key(store.transactional_id),
            value=transaction_value(store.to),
        )
        # For as long as the transaction may last: our response COORDINATOR_NOT_AVAILABLE would
        # leave open whether a decision that is in the log already becomes committed.
        timeout_ms = max(store.to.timeout_ms, IN_DOUBT_TIMEOUT_MS if store.in_doubt else 1)
        append = _TransactionAppend(self, store)
        self.log.append(store.partition, [record], append, timeout_ms=timeout_ms)

    def _write_tombstones(self, store: StoreTombstones) -> None:
        timestamp = self._clock.wall_ms()
        records = [
            Record(timestamp=timestamp, key=transaction_key(name))
            for name in store.transactional_ids
        ]
        self.log.append(store.partition, records, _TombstonesAppend(self, store.token))

    def on_stored(self, token: int, error: ErrorCode, base_offset: int) -> None:
        """Pass the outcome of an append to the decider; with an offset an error is in doubt."""
        self._handle(RecordsStored(token, error, in_doubt=base_offset >= 0))

    def _retry(self, token: int) -> None:
        if not self._closed:
            self._handle(RetryDue(token))

    def _markers_written(self, send: SendMarkers, partitions: Iterable[TopicPartition]) -> None:
        self._handle(MarkersWritten(send.token, tuple(partitions)))

    # --- requests ---------------------------------------------------------------------------------

    def _validate(self, transactional_id: str) -> tuple[ErrorCode, int]:
        """Return NONE and the partition of an id if this broker serves it, else an error."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, -1
        partition = self.log.partition_for(transactional_id)
        return self.log.check_status(partition), partition

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        request: AwaitsResult[InitResult],
    ) -> None:
        """Give a transactional producer its id and epoch, and fence the one that had it before."""
        if transactional_id and not self.transactions.allows_timeout(timeout_ms):
            request.on_result(InitResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return
        self._init(
            InitProducerIdRequested(
                self._number(request), -1, transactional_id, timeout_ms, expected
            )
        )

    def _init(self, request: InitProducerIdRequested) -> None:
        error, partition = self._validate(request.transactional_id)
        if error is not ErrorCode.NONE:
            self._waiting.pop(request.request_id).on_result(InitResult(error))
            return
        self._handle(request._replace(partition=partition))

    def _allocate_producer_id(self, request: InitProducerIdRequested) -> None:
        producer_id = self._producer_ids.take()
        if producer_id is not None:
            self._init(request._replace(new_producer_id=producer_id))
            return

        async def wait() -> None:
            try:
                found = await self._producer_ids.next()
            except OttlaError as error:
                self._waiting.pop(request.request_id).on_result(InitResult(error.code))
            else:
                self._init(request._replace(new_producer_id=found))

        task = asyncio.get_running_loop().create_task(wait(), name="init-producer-id")
        self._initializing[task] = None
        task.add_done_callback(lambda done: self._initializing.pop(done, None))

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        request: AwaitsResult[ErrorCode],
    ) -> None:
        """Make partitions part of the transaction; the result is there when that is in the log."""
        error, partition = self._validate(transactional_id)
        if error is not ErrorCode.NONE:
            request.on_result(error)
            return
        self._handle(
            AddPartitionsRequested(
                self._number(request), partition, transactional_id, producer, partitions
            )
        )

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Return which partitions are part of the open transaction (KIP-890)."""
        error, partition = self._validate(transactional_id)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        shard = self.transactions.shards[partition]
        return self.transactions.verify_partitions(shard, transactional_id, producer, partitions)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        request: AwaitsResult[ErrorCode],
        *,
        committed: bool,
    ) -> None:
        """Commit or abort; the result is there when the decision is in the log."""
        error, partition = self._validate(transactional_id)
        if error is not ErrorCode.NONE:
            request.on_result(error)
            return
        self._handle(
            EndTransactionRequested(
                self._number(request), partition, transactional_id, producer, committed
            )
        )

    # --- queries ----------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        if self._closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        error, partition = self._validate(transactional_id)
        if error is not ErrorCode.NONE:
            return error, None
        found = self.transactions.shards[partition].transactions.get(transactional_id)
        if found is None or found.state is TransactionState.DEAD:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return ErrorCode.NONE, found

    def select(
        self, producer_ids: Collection[int], states: Collection[str], min_duration_ms: int
    ) -> tuple[ErrorCode, list[Transaction], list[str]]:
        """Return the ids that pass all filters; empty ones, and -1, do not filter."""
        if self._closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, [], []
        if self.log.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], []
        now_ms = self._clock.wall_ms()
        found, unknown = self.transactions.select(producer_ids, states, min_duration_ms, now_ms)
        return ErrorCode.NONE, found, unknown

    def statistics(self) -> dict[str, object]:
        states = dict.fromkeys((state.label for state in TransactionState), 0)
        for transaction in self.transactions:
            states[transaction.state.label] += 1
        return {
            "transactional_ids": sum(states.values()),
            "states": states,
            "timed_out_total": self.transactions.timed_out_total,
            "expired_total": self.transactions.expired_total,
            "markers_waiting": self.markers.waiting,
            "markers_sent_total": self.markers.sent_total,
            "markers_retried_total": self.markers.retried_total,
            "log": self.log.statistics(),
        }
