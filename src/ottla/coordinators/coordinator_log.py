"""Coordinator log: the internal topic in which a coordinator keeps its state.

Generic: it knows partitions, records and leadership, not what they mean. Invariants:
- a partition is served only after all its records, written by whichever broker led before, have
  been read: until then `check_status` says so
- with acks=all it is served only once all that was read is committed: a response from a record that
  may still be lost with its leader would become wrong
- loading begins on election and stops on resignation; each election makes a new `Leadership`, so
  that unfinished work of an older one has no effect
- an append is one token (`DelayedAppend`), which completes once: when the batch is committed as
  `acks` asks, has failed, or is in doubt
- the state of a partition is removed, in slices, before the same partition is loaded again
- loading goes in slices of a few milliseconds; workers wait for disks and decompress large batches

Kafka: the log part of `GroupMetadataManager` and `TransactionStateManager`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec

from ottla.log.log import Log
from ottla.log.producers import TRUSTED
from ottla.log.results import AppendInfo, LogRead, NotInMemoryError
from ottla.log.validate import COORDINATOR
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ports import World
from ottla.model.protocol import ACKS_ALL, NO_PRODUCER_ID
from ottla.model.time_slices import TimeSlice, end_tasks
from ottla.replication.delayed_produce import code_at_timeout
from ottla.replication.partition import Host, Partition
from ottla.replication.replica_manager import ReplicaManager
from ottla.wire.batch_header import BatchHeader
from ottla.wire.compression import NONE as UNCOMPRESSED
from ottla.wire.message_sets import iter_all_formats
from ottla.wire.records import Record, build_batch, iter_payload, read_payload

logger = logging.getLogger(__name__)

READ_BYTES = 262_144
"""Read at once, whatever `offsets.load.buffer.size` allows: the event loop waits meanwhile."""

LARGE_BYTES = 16_384
"""A compressed batch from this size on is decompressed by a worker."""

TRIES_IN_MEMORY = 3

RETRY_S = 2.0
"""A partition that cannot be read is not served; loading is tried again after this time."""


class StateLoader(Protocol):
    """Builds the state of one partition from its records. Kafka: `CoordinatorPlayback`."""

    def load_batch(self, header: BatchHeader, records: Iterator[Record]) -> Iterator[None]:
        """Replay the next batch in steps; other tasks may run after each step."""
        ...

    def finish(self) -> Iterator[None]:
        """Make the result the state that is served, in steps; other tasks may run after each."""
        ...


class StateListener(Protocol):
    """The coordinator that knows what the records mean."""

    def start_loading(self, index: int) -> StateLoader:
        """Return a loader for the records of a partition. Kafka: `onElection`."""
        ...

    def on_loaded(self, index: int) -> None:
        """Go on with what was loaded: the partition is served now, and can be appended to."""
        del index

    def on_resigned(self, index: int) -> None:
        """Stop serving a partition: another broker leads it now. Kafka: `onResignation`."""
        del index

    def remove_state(self, indexes: Collection[int]) -> Iterator[None]:
        """Remove the state of resigned partitions, in steps, before they are loaded again."""
        del indexes
        return iter(())


class Leadership(msgspec.Struct, eq=False):
    """One partition, for as long as this broker leads it in one leader epoch."""

    index: int
    epoch: int
    loaded: bool = False
    ended: bool = False
    reading: "_Reading | None" = None


class _Reading(msgspec.Struct, frozen=True):
    """A partition that has been read up to offset `end` and is not served yet."""

    loader: StateLoader
    records: int
    end: int
    started_s: float


class AppendSettings(msgspec.Struct, frozen=True):
    """How records are written; time in milliseconds."""

    acks: int = ACKS_ALL
    timeout_ms: int = 5_000
    codec: int = UNCOMPRESSED


class Producer(msgspec.Struct, frozen=True):
    """The producer whose transaction records belong to; by default none."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1

    @property
    def transactional(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


NO_PRODUCER = Producer()


class _Counts(msgspec.Struct):
    loaded: int = 0
    unloaded: int = 0
    records: int = 0
    last_load_ms: float = 0.0


APPEND_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The client's error for a failed append, without those of a partition that is not the client's."""

COMMITTED = frozenset({ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""Codes of a batch that is committed: every reader of the log finds it, whatever the client gets.

With NOT_ENOUGH_REPLICAS_AFTER_APPEND it is on fewer replicas than min.insync.replicas.
"""


Outcome = Callable[[ErrorCode, int], None]
"""Called with how an append ended and the base offset of its batch, -1 if nothing was written.

An error with an offset means that the batch is in doubt, unless the code is in `COMMITTED`: it is
in this broker's log and will be committed if this broker stays leader.
"""


class DelayedAppend:
    """One append, from its call to its outcome: a token of the purgatory and of its partition.

    `completed` is called once: committed as `acks` asks, failed, or in doubt. `settled` is called
    once before it, or after it where the time was over first: with the outcome. Kafka: the
    `responseCallback` of `appendForGroup`.
    """

    __slots__ = ("_code", "_completed", "_host", "_settled", "_timed_out", "base_offset", "done")

    def __init__(self, completed: Outcome, settled: Outcome | None, host: Host) -> None:
        self._completed = completed
        self._settled = settled
        self._host = host
        self._code: ErrorCode | None = None
        self._timed_out = False
        self.base_offset = -1
        self.done = False

    def complete(self, code: ErrorCode) -> None:
        """End the wait."""
        self.done = True
        if self._settled is not None:
            self._settled(code, self.base_offset)
        if not self._timed_out:
            self._completed(code, self.base_offset)

    def wait(self, partition: Partition, info: AppendInfo, wait_ms: int) -> None:
        """Wait until the in-sync replicas have the batch, for at most this long."""
        partition.await_high_watermark(info.last_offset + 1, self)
        self._host.purgatory.park(self, wait_ms)

    def partition_done(self, slot: int, code: ErrorCode) -> None:
        del slot
        if not self.done and self._code is None:
            self._code = code
            self._host.purgatory.enqueue(self)

    def attempt(self) -> None:
        if self._code is not None:
            self.complete(self._code)

    def expire(self) -> None:
        if self._code is not None:
            self.complete(self._code)
        elif self._settled is None:
            self.complete(code_at_timeout(self._host))
        else:
            # It keeps waiting for the high watermark of its partition, without a time limit.
            self._timed_out = True
            self._completed(code_at_timeout(self._host), self.base_offset)

    def fail(self, reason: str) -> None:
        del reason
        self.done = True


class _CommittedWaiter:
    """Waits until all records that were loaded are committed, or the leadership ends."""

    __slots__ = ("_leadership", "_on_done", "done")

    def __init__(self, leadership: Leadership, on_done: Callable[[Leadership], None]) -> None:
        self._leadership = leadership
        self._on_done = on_done
        self.done = False  # until the partition drops it: at the latest when its leadership ends

    def partition_done(self, slot: int, code: ErrorCode) -> None:
        del slot, code
        self._on_done(self._leadership)


class CoordinatorLog:
    """The partitions of one internal topic that this broker leads."""

    def __init__(
        self,
        world: World,
        replicas: ReplicaManager,
        topic: str,
        listener: StateListener,
        partitions: Callable[[], int],
        settings: AppendSettings,
    ) -> None:
        self.topic = topic
        self._world = world
        self._replicas = replicas
        self._listener = listener
        self._partitions = partitions
        self._settings = settings
        self._leaderships: dict[int, Leadership] = {}
        self._loader: asyncio.Task[None] | None = None
        self._unloader: asyncio.Task[None] | None = None
        self._closed = False
        self._counts = _Counts()
        self._waiting: list[Leadership] = []
        self._unloading: dict[int, None] = {}

    # --- lookups ----------------------------------------------------------------------------------

    def partition_for(self, key: str) -> int:
        """Return the partition of a group or transactional id."""
        return partition_for(key, self._partitions())

    def check_status(self, index: int) -> ErrorCode:
        """Return NONE if a partition is loaded here, else the error for a client that needs it."""
        if self._closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        leadership = self._leaderships.get(index)
        if leadership is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if leadership.loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def epoch(self, index: int) -> int | None:
        """Return the leader epoch in which a partition was loaded, None if it is not loaded."""
        leadership = self._leaderships.get(index)
        return leadership.epoch if leadership is not None and leadership.loaded else None

    @property
    def loading(self) -> bool:
        """Whether any partition is being loaded."""
        return any(not leadership.loaded for leadership in self._leaderships.values())

    @property
    def unloading(self) -> bool:
        """Whether state of resigned partitions may still be in memory."""
        return bool(self._unloading)

    # --- leadership -------------------------------------------------------------------------------

    def on_elected(self, partition: Partition) -> None:
        """Begin to load a partition: this broker was elected its leader."""
        index = partition.tp.partition
        self.on_resigned(partition)
        leadership = self._leaderships[index] = Leadership(index, partition.state.leader_epoch)
        logger.debug("loading partition=%s leader_epoch=%d", partition.tp, leadership.epoch)
        self._waiting.append(leadership)
        self._start()

    def _start(self) -> None:
        if self._loader is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._loader = loop.create_task(self._load_waiting(), name=f"load-{self.topic}")

    def on_resigned(self, partition: Partition) -> None:
        """Unload a partition that this broker does not lead any more, if it ever did."""
        index = partition.tp.partition
        leadership = self._leaderships.pop(index, None)
        if leadership is not None:
            leadership.ended = True
            self._counts.unloaded += 1
            self._unload(index)
            logger.debug(
                "unloaded partition=%s leader_epoch=%d loaded=%s",
                partition.tp,
                partition.state.leader_epoch,
                leadership.loaded,
            )

    async def _load_waiting(self) -> None:
        """Load the waiting partitions, one after the other. A loop root."""
        waiting = self._waiting
        try:
            while waiting:
                while self._unloader is not None:
                    await asyncio.wait((self._unloader,))  # it would remove the new state too
                leadership = waiting.pop(0)
                if leadership.ended:
                    continue
                try:
                    await self._load(leadership)
                except OttlaError as error:
                    self._schedule_retry(leadership, error)
                except Exception as error:
                    logger.exception("load failed partition=%s-%d", self.topic, leadership.index)
                    self._schedule_retry(leadership, error)
        finally:
            self._loader = None

    def _unload(self, index: int) -> None:
        """Stop serving a partition at once; its state is removed in slices."""
        self._listener.on_resigned(index)
        self._unloading[index] = None
        if self._unloader is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._unloader = loop.create_task(self._unload_all(), name=f"unload-{self.topic}")

    async def _unload_all(self) -> None:
        """Remove the state of resigned partitions. A loop root."""
        time_slice = TimeSlice(self._world.clock)
        unloading = self._unloading
        try:
            while unloading:
                indexes = tuple(unloading)
                try:
                    for _ in self._listener.remove_state(indexes):
                        if time_slice.over:
                            await time_slice.next()
                except Exception:
                    logger.exception("unload failed topic=%s partitions=%s", self.topic, indexes)
                for index in indexes:
                    del unloading[index]
        finally:
            self._unloader = None

    def _schedule_retry(self, leadership: Leadership, error: Exception) -> None:
        # With only a part of the records, consumers would get no offsets, or old ones.
        if leadership.ended or self._closed:
            return
        logger.error(
            "partition not served, trying again partition=%s-%d error=%s",
            self.topic,
            leadership.index,
            error,
        )
        leadership.reading = None
        self._unload(leadership.index)
        loop = asyncio.get_running_loop()
        loop.call_later(RETRY_S, self._retry_load, leadership)

    def _retry_load(self, leadership: Leadership) -> None:
        if leadership.ended or self._closed:
            return
        self._waiting.append(leadership)
        self._start()

    async def _load(self, leadership: Leadership) -> None:
        """Load a partition; if records must be committed first, `_retry_load` is called later."""
        clock = self._world.clock
        if leadership.reading is None:
            leadership.reading = await self._read_all(leadership)
        reading = leadership.reading
        if reading is None or self._uncommitted(leadership, reading.end):
            return
        time_slice = TimeSlice(clock)
        for _ in reading.loader.finish():
            if time_slice.over:
                await time_slice.next()
                if leadership.ended:
                    return
        leadership.loaded, leadership.reading = True, None
        self._listener.on_loaded(leadership.index)
        self._counts.loaded += 1
        self._counts.records += reading.records
        self._counts.last_load_ms = (clock.monotonic() - reading.started_s) * 1000
        logger.log(
            logging.INFO if reading.records else logging.DEBUG,
            "loaded partition=%s-%d leader_epoch=%d records=%d took_ms=%.0f",
            self.topic,
            leadership.index,
            leadership.epoch,
            reading.records,
            self._counts.last_load_ms,
        )

    def _uncommitted(self, leadership: Leadership, end: int) -> bool:
        """Return whether records before `end` are uncommitted; then `_retry_load` is called later.

        The next leader may not have them. A client that got a response from one, such as that a
        partition is in its transaction already, would rely on state that is lost. Kafka does not
        wait.
        """
        if self._settings.acks != ACKS_ALL:
            return False
        partition = self._replicas.hosted(self.topic, leadership.index)
        if partition.local_log(leader_only=True).high_watermark >= end:
            return False
        partition.await_high_watermark(end, _CommittedWaiter(leadership, self._retry_load))
        return True

    async def _read_all(self, leadership: Leadership) -> _Reading | None:
        """Read a partition to its end; None if the leadership ends meanwhile."""
        clock = self._world.clock
        started_s = clock.monotonic()
        partition = self._replicas.hosted(self.topic, leadership.index)
        log = partition.local_log(leader_only=True)
        loader = self._listener.start_loading(leadership.index)
        time_slice = TimeSlice(clock)
        offset = log.log_start_offset
        records = 0
        # The whole log, not only its committed part: the leader will commit all of it.
        while offset < log.log_end_offset:
            log = partition.local_log(leader_only=True)  # it may move to another log dir meanwhile
            read = await self._read(log, offset)
            if not read.size:
                break
            for part in read.parts:
                view = memoryview(part)
                for header, batch in iter_all_formats(view):
                    found = await self._records(header, batch)
                    for _ in loader.load_batch(header, found):
                        if time_slice.over:
                            await time_slice.next()
                        if leadership.ended:
                            return None
                    records += header.count
                    offset = header.next_offset
                    if time_slice.over:
                        await time_slice.next()
                    if leadership.ended:
                        return None
        return _Reading(loader, records, offset, started_s)

    async def _read(self, log: Log, offset: int) -> LogRead:
        """Read the next batches; a worker reads into memory what is not there."""
        for _ in range(TRIES_IN_MEMORY):
            try:
                return log.read(offset, READ_BYTES, log.log_end_offset, now=True)
            except NotInMemoryError as place:
                with contextlib.suppress(OSError):  # the next read raises it again
                    await self._world.workers.run(place.file.prefetch, place.size, place.position)
        # It is evicted from memory as fast as it is read: wait for the disk.
        return log.read(offset, READ_BYTES, log.log_end_offset)

    async def _records(self, header: BatchHeader, batch: memoryview) -> Iterator[Record]:
        """Return a batch's records; a large one is decompressed by a worker."""
        if header.codec == UNCOMPRESSED or len(batch) < LARGE_BYTES:
            payload = read_payload(header, batch)
        else:
            payload = await self._world.workers.run(read_payload, header, batch)
        return iter_payload(header, payload)

    # --- appending --------------------------------------------------------------------------------

    def append(
        self,
        index: int,
        records: Sequence[Record],
        completed: Outcome,
        *,
        settled: Outcome | None = None,
        producer: Producer = NO_PRODUCER,
        acks: int | None = None,
        timeout_ms: int | None = None,
        guard: object = TRUSTED,
    ) -> None:
        """Append records as one batch; `completed` is called at once, or when they are committed.

        After `timeout_ms` it is called with REQUEST_TIMED_OUT; `settled` waits for the outcome.
        Records of a transaction need the `guard` with which their partition was verified.
        """
        replicas, settings = self._replicas, self._settings
        append = DelayedAppend(completed, settled, replicas)
        acks = settings.acks if acks is None else acks
        error = self.check_status(index)
        if error is not ErrorCode.NONE:
            append.complete(error)
            return
        try:
            partition = replicas.hosted(self.topic, index)
            batch = bytearray(
                build_batch(
                    records,
                    codec=settings.codec,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    base_sequence=0 if producer.transactional else -1,
                    is_transactional=producer.transactional,
                )
            )
            wall_ms = replicas.clock.wall_ms()
            info = partition.append_as_leader(memoryview(batch), acks, wall_ms, COORDINATOR, guard)
        except OttlaError as failure:
            logger.info("append failed partition=%s-%d error=%s", self.topic, index, failure)
            append.complete(failure.code)
            return
        append.base_offset = info.first_offset
        log = partition.log
        if acks != ACKS_ALL or log is None or log.high_watermark > info.last_offset:
            append.complete(ErrorCode.NONE)
            return
        append.wait(partition, info, timeout_ms or settings.timeout_ms)

    # --- shutdown ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop serving and loading. All state in memory is in the log too."""
        self._closed = True
        await end_tasks(self._loader, self._unloader)

    def statistics(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "served": sum(t.loaded for t in self._leaderships.values()),
            "loading": sum(not t.loaded for t in self._leaderships.values()),
            "loaded_total": self._counts.loaded,
            "unloaded_total": self._counts.unloaded,
            "records_loaded_total": self._counts.records,
            "last_load_ms": self._counts.last_load_ms,
        }


@lru_cache(maxsize=16_384)
def java_hash(text: str) -> int:
    """Return what Java's `String.hashCode` does: a signed 32-bit number, over UTF-16 units."""
    hashed = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed


def partition_for(key: str, count: int) -> int:
    """Return the partition of a key, as Kafka's `Utils.abs(hash) % count` does."""
    hashed = java_hash(key)
    return 0 if hashed == -(2**31) else abs(hashed) % count
