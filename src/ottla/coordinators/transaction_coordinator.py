"""The transaction coordinator: the shell that joins transactions, their log, markers and the clock.

Who may call: the broker's handlers, and the broker to start and end it and to tell of leadership.
Invariants: a request touches a transactional id only if its partition is led and loaded here;
effects of the decider are carried out in the order it left them, never while it is at work.
Tickets are functions that take a result. Kafka: `TransactionCoordinator` and to the
log part of `TransactionStateManager`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from ottla.coordinators.coordinator_log import AppendSettings, CoordinatorLog
from ottla.coordinators.timers import Now
from ottla.coordinators.transaction import Transaction
from ottla.coordinators.transaction_markers import DeletedOf, Leaders, TransactionMarkers
from ottla.coordinators.transaction_records import (
    TransactionRecordReader,
    transaction_key,
    transaction_value,
)
from ottla.coordinators.transaction_states import TransactionState
from ottla.coordinators.transactions import (
    Again,
    Append,
    Forget,
    InitResult,
    ProducerIdAndEpoch,
    Reply,
    Send,
    Shard,
    Transactions,
)
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.model.ports import World
from ottla.model.retention_clock import RetentionClock
from ottla.replication.replica_manager import ReplicaManager
from ottla.wire.records import BatchHeader, Record

logger = logging.getLogger(__name__)

AGAIN_S = 0.1
"""Before the second try to write what must be written; each further one waits twice as long."""

AGAIN_AT_MOST_S = 1.6

IN_DOUBT_TIMEOUT_MS = 5_000
"""Each further try of an append in doubt waits at least so long for the in-sync replicas."""

TOMBSTONES_AT_ONCE = 200

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
"""What a client is told of an append that failed: never the errors of a partition not its own."""

InitTicket = Callable[[InitResult], None]
Ticket = Callable[[ErrorCode], None]


class ProducerIdSource(Protocol):
    """Where new producer ids come from: the controller's blocks."""

    def take(self) -> int | None: ...

    async def next(self) -> int: ...


class _TransactionLoader:
    """A partition of transactional ids on its way into memory."""

    def __init__(self, coordinator: "TransactionCoordinator", shard: Shard) -> None:
        self._coordinator = coordinator
        self._shard = shard
        self._records = TransactionRecordReader()

    def load_batch(self, header: BatchHeader, records: Iterator[Record]) -> Iterator[None]:
        return self._records.read_batch(header, records)

    def finish(self) -> Iterator[None]:
        known = self._shard.transactions
        for key, raw in self._records.found.items():
            transaction = self._records.read(key, raw)
            if transaction is not None:
                known[transaction.transactional_id] = transaction
            yield
        # In the next turn: only then is the partition served, so that it can be appended to.
        asyncio.get_running_loop().call_soon(self._coordinator.serve, self._shard)


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
        self.markers = TransactionMarkers(world, config, leaders, self._marked, deleted_of)
        self._loops: list[asyncio.Task[None]] = []
        self._initializing: dict[asyncio.Task[None], None] = {}
        self._settling = False
        self._closed = False
        self._timed_out = 0
        self._expired = 0

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look after old transactions and ids; inside the event loop."""
        loop = asyncio.get_running_loop()
        self._loops = [
            loop.create_task(self._every(self._abort_every_s, self._abort), name="txn-abort"),
            loop.create_task(self._every(self._expire_every_s, self._expire), name="txn-expire"),
        ]

    async def close(self) -> None:
        """Serve nothing any more. Transactions go on with whoever leads their partitions next."""
        self._closed = True
        tasks = [*self._loops, *self._initializing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loops = []
        await self.markers.close()
        await self.log.close()

    async def _every(self, interval_s: float, step: Callable[[], None]) -> None:
        """Do something now and then. A loop root."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                step()
                self._settle()
            except Exception:
                logger.exception("looking after transactions failed")

    def _abort(self) -> None:
        self._timed_out += self.transactions.abort_timed_out(self._now())

    def _expire(self) -> None:
        self._expired += self.transactions.expire(self._ages.now_ms())

    def _now(self) -> Now:
        return Now(self._clock.monotonic() * 1000, self._clock.wall_ms())

    # --- StateListener of the CoordinatorLog ------------------------------------------------------

    def start_loading(self, index: int) -> _TransactionLoader:
        partition = self._replicas.hosted(TRANSACTION_STATE_TOPIC, index)
        return _TransactionLoader(self, self.transactions.begin(index, partition.leader_epoch))

    def serve(self, shard: Shard) -> None:
        """Go on with the transactions of a partition that has just been read."""
        if not self._closed:
            self.transactions.serve(shard, self._now())
            self._settle()

    def on_resigned(self, index: int) -> None:
        self.transactions.unload(index)

    def remove_state(self, indexes: Collection[int]) -> Iterator[None]:
        """Nothing is left to be done: the transactions went with their shard."""
        del indexes
        return iter(())

    # --- carrying out -----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Carry out what the decider left."""
        if self._settling:
            return
        self._settling = True
        try:
            while effects := self.transactions.take_effects():
                for effect in effects:
                    if isinstance(effect, Reply):
                        effect.ticket(effect.result)  # type: ignore[operator]
                    elif isinstance(effect, Append):
                        self._append(effect)
                    elif isinstance(effect, Send):
                        self.markers.send(effect)
                    elif isinstance(effect, Again):
                        delay_s = AGAIN_S * 2 ** (min(effect.what.tries, 8) - 1)
                        loop = asyncio.get_running_loop()
                        loop.call_later(min(delay_s, AGAIN_AT_MOST_S), self._again, effect.what)
                    else:
                        self._write_tombstones(effect)
        finally:
            self._settling = False

    def _append(self, append: Append) -> None:
        transactional_id = append.transaction.transactional_id
        record = Record(
            timestamp=self._clock.wall_ms(),
            key=transaction_key(transactional_id),
            value=transaction_value(append.to),
        )

        def written(failure: ErrorCode, at: int) -> None:
            error = _ERRORS.get(failure, failure)
            if error is not ErrorCode.NONE:
                logger.info(
                    "transaction not stored id=%s state=%s error=%s offset=%d tries=%d",
                    transactional_id, append.to.state.label, failure.name, at, append.tries + 1,
                )  # fmt: skip
            self.transactions.appended(append, error, self._now(), in_doubt=at >= 0)
            self._settle()

        # As long as the transaction may last: an answer "not available" of ours would leave open
        # whether a decision that is in the log already will stand.
        timeout_ms = max(append.to.timeout_ms, IN_DOUBT_TIMEOUT_MS if append.in_doubt else 1)
        self.log.append(append.shard.index, [record], written, timeout_ms=timeout_ms)

    def _again(self, what: Append | Forget) -> None:
        if not self._closed:
            self.transactions.again(what)
            self._settle()

    def _write_tombstones(self, forget: Forget) -> None:
        """Write tombstones, a batch for so many."""
        for first in range(0, len(forget.transactions), TOMBSTONES_AT_ONCE):
            chosen = forget.transactions[first : first + TOMBSTONES_AT_ONCE]
            some = replace(forget, transactions=chosen)
            timestamp = self._clock.wall_ms()
            records = [
                Record(timestamp=timestamp, key=transaction_key(t.transactional_id))
                for t in some.transactions
            ]

            def written(failure: ErrorCode, at: int, some: Forget = some) -> None:
                self.transactions.forgotten(some, failure, in_doubt=at >= 0)
                self._settle()

            self.log.append(some.shard.index, records, written)

    def _marked(self, send: Send, partitions: Iterable[TopicPartition]) -> None:
        self.transactions.marked(send, partitions)
        self._settle()

    # --- requests ---------------------------------------------------------------------------------

    def _shard(self, transactional_id: str) -> tuple[ErrorCode, Shard | None]:
        """Return the shard of an id, or what to tell who asks for it."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        index = self.log.partition_for(transactional_id)
        error = self.log.check_status(index)
        if error is not ErrorCode.NONE:
            return error, None
        return ErrorCode.NONE, self.transactions.shards[index]

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        ticket: InitTicket,
    ) -> None:
        """Give a transactional producer its id and epoch, and shut out who had it before."""
        if transactional_id and not self.transactions.allows(timeout_ms):
            ticket(InitResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return
        if self._try_init(transactional_id, timeout_ms, expected, None, ticket):
            return
        new_id = self._producer_ids.take()
        if new_id is not None:
            self._try_init(transactional_id, timeout_ms, expected, new_id, ticket)
            return

        async def wait() -> None:
            try:
                found = await self._producer_ids.next()
            except OttlaError as error:
                ticket(InitResult(error.code))
            else:
                self._try_init(transactional_id, timeout_ms, expected, found, ticket)

        task = asyncio.get_running_loop().create_task(wait(), name="init-producer-id")
        self._initializing[task] = None
        task.add_done_callback(lambda done: self._initializing.pop(done, None))

    def _try_init(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        new_id: int | None,
        ticket: InitTicket,
    ) -> bool:
        error, shard = self._shard(transactional_id)
        if shard is None:
            ticket(InitResult(error))
            return True
        done = self.transactions.init_producer_id(
            shard, transactional_id, timeout_ms, expected, new_id, ticket, self._now()
        )
        self._settle()
        return done

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        ticket: Ticket,
    ) -> None:
        error, shard = self._shard(transactional_id)
        if shard is None:
            ticket(error)
            return
        self.transactions.add_partitions(
            shard, transactional_id, producer, partitions, ticket, self._now()
        )
        self._settle()

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Tell which partitions are part of the transaction under way (KIP-890)."""
        error, shard = self._shard(transactional_id)
        if shard is None:
            return dict.fromkeys(partitions, error)
        return self.transactions.verify_partitions(shard, transactional_id, producer, partitions)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        ticket: Ticket,
        *,
        committed: bool,
    ) -> None:
        error, shard = self._shard(transactional_id)
        if shard is None:
            ticket(error)
            return
        self.transactions.end(
            shard, transactional_id, producer, ticket, self._now(), committed=committed
        )
        self._settle()

    # --- questions --------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        if self._closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        error, shard = self._shard(transactional_id)
        if shard is None:
            return error, None
        found = shard.transactions.get(transactional_id)
        if found is None or found.state is TransactionState.DEAD:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return ErrorCode.NONE, found

    def select(
        self, producer_ids: Collection[int], states: Collection[str], min_duration_ms: int
    ) -> tuple[ErrorCode, list[Transaction], list[str]]:
        """Return the ids that pass all filters (empty ones, and -1, let all pass)."""
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
            "timed_out_total": self._timed_out,
            "expired_total": self._expired,
            "markers_waiting": self.markers.waiting,
            "markers_sent_total": self.markers.sent_total,
            "markers_retried_total": self.markers.retried_total,
            "log": self.log.statistics(),
        }
