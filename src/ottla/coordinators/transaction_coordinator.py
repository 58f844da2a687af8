"""The transaction coordinator: the shell around transactions, with their log, markers and clock.

Invariants: a request reaches a transactional id only if its partition is led and loaded here. It is
the port of `transactions`. Kafka: `TransactionCoordinator`, and the log part of
`TransactionStateManager`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from ottla.coordinators.coordinator_log import (
    APPEND_ERRORS,
    AppendSettings,
    CoordinatorLog,
    StateListener,
)
from ottla.coordinators.loop_timers import now_of
from ottla.coordinators.requests import AwaitsResult, InitProducerId, InitResult, ProducerIdAndEpoch
from ottla.coordinators.timers import Now
from ottla.coordinators.transaction import Transaction, TransactionState
from ottla.coordinators.transaction_markers import DeletedOf, Leaders, TransactionMarkers
from ottla.coordinators.transaction_records import (
    TransactionRecordReader,
    transaction_key,
    transaction_value,
)
from ottla.coordinators.transactions import Markers, Pending, PendingTombstones, Transactions
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.model.ports import World
from ottla.model.retention_clock import RetentionClock
from ottla.model.time_slices import end_tasks
from ottla.replication.replica_manager import ReplicaManager
from ottla.security.client import ClientSecurity
from ottla.wire.records import Record

logger = logging.getLogger(__name__)

RETRY_S = 0.1
"""Before the second attempt to write a record; each further one waits twice as long."""

MAX_RETRY_S = 1.6

IN_DOUBT_TIMEOUT_MS = 5_000
"""Each further attempt of a write in doubt waits at least this long for the in-sync replicas."""

STORE_ERRORS = APPEND_ERRORS | {ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE}
"""The client's error for a transaction whose record was not written."""


class ProducerIdSource(Protocol):
    """Where new producer ids come from: the controller's blocks."""

    def take(self) -> int | None: ...

    async def next(self) -> int: ...


class TransactionCoordinator(StateListener):
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
            number("transaction.max.timeout.ms"), number("transactional.id.expiration.ms"), self
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
            self.transactions.markers_written,
            deleted_of,
            security,
        )
        self._loops: list[asyncio.Task[None]] = []
        self._initializing: dict[asyncio.Task[None], None] = {}
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
        await end_tasks(*self._loops, *self._initializing)
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
        self.transactions.abort_timed_out(self._now())

    def _expire(self) -> None:
        self.transactions.expire(self._ages.now_ms())

    def _now(self) -> Now:
        return now_of(self._clock)

    # --- StateListener of the CoordinatorLog ------------------------------------------------------

    def start_loading(self, index: int) -> TransactionRecordReader:
        partition = self._replicas.hosted(TRANSACTION_STATE_TOPIC, index)
        shard = self.transactions.start_loading(index, partition.state.leader_epoch)
        return TransactionRecordReader(shard.transactions)

    def on_loaded(self, index: int) -> None:
        """Go on with the transactions of a partition that has just been read."""
        if not self._closed:
            self.transactions.loaded(index, self._now())

    def on_resigned(self, index: int) -> None:
        self.transactions.resign(index)

    # --- the port of the transactions -------------------------------------------------------------

    def store(self, pending: Pending) -> None:
        timestamp = self._clock.wall_ms()
        timeout_ms = None
        if isinstance(pending, PendingTombstones):
            records = [
                Record(timestamp=timestamp, key=transaction_key(t.transactional_id))
                for t in pending.transactions
            ]
        else:
            to = pending.to
            key = transaction_key(pending.transaction.transactional_id)
            records = [Record(timestamp=timestamp, key=key, value=transaction_value(to))]
            # For as long as the transaction may last: our response COORDINATOR_NOT_AVAILABLE would
            # leave open whether a decision that is in the log already becomes committed.
            timeout_ms = max(to.timeout_ms, IN_DOUBT_TIMEOUT_MS if pending.in_doubt else 1)
        self.log.append(
            pending.shard.partition, records, partial(self._stored, pending), timeout_ms=timeout_ms
        )

    def _stored(self, pending: Pending, code: ErrorCode, base_offset: int) -> None:
        """Pass on the outcome of an append; with an offset an error is in doubt."""
        if code is not ErrorCode.NONE and not isinstance(pending, PendingTombstones):
            logger.info(
                "transaction not stored transactional_id=%s state=%s error=%s offset=%d "
                "attempts=%d",
                pending.transaction.transactional_id,
                pending.to.state.label,
                code.name,
                base_offset,
                pending.attempts + 1,
            )
        error = STORE_ERRORS.get(code, code)
        self.transactions.stored(pending, error, self._now(), in_doubt=base_offset >= 0)

    def retry_later(self, pending: Pending) -> None:
        delay_s = min(RETRY_S * 2 ** (min(pending.attempts, 8) - 1), MAX_RETRY_S)
        asyncio.get_running_loop().call_later(delay_s, self._retry, pending)

    def _retry(self, pending: Pending) -> None:
        if not self._closed:
            self.transactions.retry(pending)

    def send_markers(self, markers: Markers) -> None:
        self.markers.send(markers)

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
        init = InitProducerId(transactional_id, timeout_ms, expected, request)
        if not self._init(init):
            self._init_with_new_id(init)

    def _init(self, init: InitProducerId, new_id: int | None = None) -> bool:
        """Return whether there is, or will be, a result; False if a new producer id is needed."""
        error, partition = self._validate(init.transactional_id)
        if error is ErrorCode.NONE:
            return self.transactions.init_producer_id(partition, init, new_id, self._now())
        init.request.on_result(InitResult(error))
        return True

    def _init_with_new_id(self, init: InitProducerId) -> None:
        producer_id = self._producer_ids.take()
        if producer_id is not None:
            self._init(init, producer_id)
            return

        async def wait() -> None:
            try:
                found = await self._producer_ids.next()
            except OttlaError as error:
                init.request.on_result(InitResult(error.code))
            else:
                self._init(init, found)

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
        self.transactions.add_partitions(
            partition, transactional_id, producer, partitions, request, self._now()
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
        return self.transactions.verify_partitions(
            partition, transactional_id, producer, partitions
        )

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
        self.transactions.end(
            partition, transactional_id, producer, request, self._now(), committed=committed
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
