"""State log: the internal topic in which a coordinator keeps what it must not forget.

Generic: it knows partitions, records and leadership, not what they mean. Who may call: the
coordinators, and the broker to tell them of leadership. Invariants:
- a partition is served only after all its records, written by whichever broker led before, have
  been read: until then `standing` says so
- with acks of all it is served only once all that was read is committed, too: an answer from a
  record that may still be lost with its leader would be a promise that is not kept
- reading begins when leadership comes and is given up when it goes; each leadership is a `Tenure`
  of its own, so what an older one still has under way changes nothing any more
- an append is reported once, when it is committed as `acks` asks, has failed, or is in doubt; what
  became of one in doubt is reported too to whoever wants to know
- what was served is forgotten in slices too, before the same partition is read anew
- reading goes in slices of a few milliseconds; disks and large codecs are waited for by workers

Kafka: the log part of `GroupMetadataManager` and `TransactionStateManager`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from ottla.log.log import Log
from ottla.log.producers import TRUSTED
from ottla.log.results import LogRead, NotInMemoryError
from ottla.log.validate import COORDINATOR
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ports import World
from ottla.replication.partition import Partition
from ottla.replication.producing import ParkedProduce, PartitionResult
from ottla.replication.purgatory import Purgatory
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.time_slices import TimeSlice
from ottla.wire.compression import NONE as UNCOMPRESSED
from ottla.wire.records import (
    NO_PRODUCER_ID,
    BatchHeader,
    Record,
    build_batch,
    iter_batches,
    iter_payload,
    read_payload,
)

logger = logging.getLogger(__name__)

READ_BYTES = 262_144
"""Read in one go, whatever `offsets.load.buffer.size` allows: others wait meanwhile."""

LARGE_BYTES = 16_384
"""A compressed batch from this size on is decompressed by a worker."""

TRIES_IN_MEMORY = 3

RETRY_S = 2.0
"""A partition that cannot be read is not served; it is tried again after this."""

ACKS_ALL = -1

Then = Callable[[ErrorCode, int], None]
"""Hears of an append's end: the error, and the base offset of the batch.

An error with an offset of -1: nothing was written. An error with an offset: in doubt. The batch
stands in this broker's log and will be committed if this broker goes on to lead; or it is
(NOT_ENOUGH_REPLICAS_AFTER_APPEND), but on fewer replicas than was asked for.
"""


class Replay(Protocol):
    """What the records of one partition add up to, while they are read."""

    def batch(self, header: BatchHeader, records: Iterator[Record]) -> Iterator[None]:
        """Take in the next batch, in steps: others may run after each."""
        ...

    def finish(self) -> Iterator[None]:
        """Make it the state that is served, in steps: others may run after each."""
        ...


class Keeper(Protocol):
    """Who knows what the records mean."""

    def begin(self, index: int) -> Replay:
        """Return what a partition's records are to be replayed into."""
        ...

    def unload(self, index: int) -> None:
        """Serve a partition no more: another broker keeps its state now."""
        ...

    def forget(self, indexes: Collection[int]) -> Iterator[None]:
        """Forget all state of unloaded partitions, in steps, before they are read anew."""
        ...


@dataclass(slots=True, eq=False)
class Tenure:
    """One leadership of one partition by this broker."""

    index: int
    epoch: int
    loaded: bool = False
    over: bool = False
    reading: "_Reading | None" = None


@dataclass(frozen=True, slots=True)
class _Reading:
    """A partition that has been read up to `end`, and is not served yet."""

    replay: Replay
    records: int
    end: int
    started_s: float


@dataclass(frozen=True, slots=True)
class AppendSettings:
    """How records are written; time in milliseconds."""

    acks: int = ACKS_ALL
    timeout_ms: int = 5_000
    codec: int = UNCOMPRESSED


@dataclass(frozen=True, slots=True)
class Producer:
    """Whose transaction records belong to; the default is nobody's."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1

    @property
    def transactional(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


NOBODY = Producer()


@dataclass(slots=True)
class _Counts:
    loaded: int = 0
    unloaded: int = 0
    records: int = 0
    last_load_ms: float = 0.0
    waiting: list[Tenure] = field(default_factory=list)
    unloading: dict[int, None] = field(default_factory=dict)


class _ParkedAppend(ParkedProduce):
    """An append that waits for the in-sync replicas, also beyond its time if `settled` is there."""

    __slots__ = ("_first_offset", "_settled", "_then")

    def __init__(
        self,
        purgatory: Purgatory,
        result: PartitionResult,
        first_offset: int,
        then: Then,
        settled: Then | None,
    ) -> None:
        super().__init__(purgatory, [result], _report)
        self._first_offset = first_offset
        self._then = then
        self._settled = settled

    def report(self, code: ErrorCode) -> None:
        self._then(code, self._first_offset)

    def expire(self) -> None:
        result, settled = self.results[0], self._settled
        if settled is None or not result.open:
            super().expire()
            return
        # It stays a waiter of its partition, without a time limit.
        self._settled = None
        self.report(result.too_late())
        self._then = settled


class _CommittedWaiter:
    """Waits for all that a tenure has read to be committed; then, or if it will not be, `then`."""

    __slots__ = ("_tenure", "_then", "open", "required_offset")

    def __init__(
        self, tenure: Tenure, required_offset: int, then: Callable[[Tenure], None]
    ) -> None:
        self._tenure = tenure
        self._then = then
        self.required_offset = required_offset
        self.open = True  # until the partition lets go of it: at the latest as its leadership ends

    def reached(self, partition: Partition) -> None:
        del partition
        self._then(self._tenure)

    def lost(self, code: ErrorCode) -> None:
        del code
        self._then(self._tenure)


def _report(operation: ParkedProduce) -> None:
    assert isinstance(operation, _ParkedAppend)
    operation.report(operation.results[0].code)


class StateLog:
    """One internal topic, as far as this broker leads it."""

    def __init__(
        self,
        world: World,
        replicas: ReplicaManager,
        topic: str,
        keeper: Keeper,
        partitions: Callable[[], int],
        settings: AppendSettings,
    ) -> None:
        self.topic = topic
        self._world = world
        self._replicas = replicas
        self._keeper = keeper
        self._partitions = partitions
        self._settings = settings
        self._tenures: dict[int, Tenure] = {}
        self._loader: asyncio.Task[None] | None = None
        self._forgetter: asyncio.Task[None] | None = None
        self._closed = False
        self._counts = _Counts()

    # --- where a key lives ------------------------------------------------------------------------

    def partition_for(self, key: str) -> int:
        """Return the partition of a group or transactional id."""
        return partition_for(key, self._partitions())

    def standing(self, index: int) -> ErrorCode:
        """Return NONE if a partition is served here, else what to tell who asks for it."""
        if self._closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        tenure = self._tenures.get(index)
        if tenure is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if tenure.loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def epoch(self, index: int) -> int | None:
        """Return the leader epoch in which a partition came to be served, None if it is not."""
        tenure = self._tenures.get(index)
        return tenure.epoch if tenure is not None and tenure.loaded else None

    @property
    def loading(self) -> bool:
        """Whether any partition is being read."""
        return any(not tenure.loaded for tenure in self._tenures.values())

    @property
    def unloading(self) -> bool:
        """Whether there may still be state of partitions that are not served any more."""
        return bool(self._counts.unloading)

    # --- leadership -------------------------------------------------------------------------------

    def gained(self, partition: Partition) -> None:
        """Begin to read a partition that this broker leads from now on."""
        index = partition.tp.partition
        self.lost(partition)
        tenure = self._tenures[index] = Tenure(index, partition.leader_epoch)
        logger.debug("loading partition=%s epoch=%d", partition.tp, tenure.epoch)
        self._counts.waiting.append(tenure)
        self._start()

    def _start(self) -> None:
        if self._loader is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._loader = loop.create_task(self._load_all(), name=f"load-{self.topic}")

    def lost(self, partition: Partition) -> None:
        """Forget a partition that this broker does not lead any more; fine if it never did."""
        index = partition.tp.partition
        tenure = self._tenures.pop(index, None)
        if tenure is not None:
            tenure.over = True
            self._counts.unloaded += 1
            self._unload(index)
            logger.debug(
                "unloaded partition=%s epoch=%d loaded=%s",
                partition.tp, partition.leader_epoch, tenure.loaded,
            )  # fmt: skip

    async def _load_all(self) -> None:
        """Read what waits to be read, one partition after the other. A loop root."""
        waiting = self._counts.waiting
        try:
            while waiting:
                while self._forgetter is not None:
                    await asyncio.wait((self._forgetter,))  # or what is read would be forgotten
                tenure = waiting.pop(0)
                if tenure.over:
                    continue
                try:
                    await self._load(tenure)
                except OttlaError as error:
                    self._retry(tenure, error)
                except Exception as error:
                    logger.exception("load failed topic=%s partition=%d", self.topic, tenure.index)
                    self._retry(tenure, error)
        finally:
            self._loader = None

    def _unload(self, index: int) -> None:
        """Serve a partition no more at once, and forget its state in slices."""
        self._keeper.unload(index)
        self._counts.unloading[index] = None
        if self._forgetter is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._forgetter = loop.create_task(self._forget_all(), name=f"unload-{self.topic}")

    async def _forget_all(self) -> None:
        """Forget the state of what was unloaded. A loop root."""
        turn = TimeSlice(self._world.clock)
        unloading = self._counts.unloading
        try:
            while unloading:
                indexes = tuple(unloading)
                try:
                    for _ in self._keeper.forget(indexes):
                        if turn.over:
                            await turn.next()
                except Exception:
                    logger.exception("unload failed topic=%s partitions=%s", self.topic, indexes)
                for index in indexes:
                    del unloading[index]
        finally:
            self._forgetter = None

    def _retry(self, tenure: Tenure, error: Exception) -> None:
        # Serving a part of it would tell consumers that their offsets do not exist.
        if tenure.over or self._closed:
            return
        logger.error(
            "partition not served topic=%s partition=%d error=%s; trying again",
            self.topic, tenure.index, error,
        )  # fmt: skip
        tenure.reading = None
        self._unload(tenure.index)
        loop = asyncio.get_running_loop()
        loop.call_later(RETRY_S, self._again, tenure)

    def _again(self, tenure: Tenure) -> None:
        if tenure.over or self._closed:
            return
        self._counts.waiting.append(tenure)
        self._start()

    async def _load(self, tenure: Tenure) -> None:
        """Read a partition and serve it; what has to be committed first is left to `_again`."""
        clock = self._world.clock
        if tenure.reading is None:
            tenure.reading = await self._read_all(tenure)
        reading = tenure.reading
        if reading is None or self._uncommitted(tenure, reading.end):
            return
        turn = TimeSlice(clock)
        for _ in reading.replay.finish():
            if turn.over:
                await turn.next()
                if tenure.over:
                    return
        tenure.loaded, tenure.reading = True, None
        self._counts.loaded += 1
        self._counts.records += reading.records
        self._counts.last_load_ms = (clock.monotonic() - reading.started_s) * 1000
        logger.log(
            logging.INFO if reading.records else logging.DEBUG,
            "loaded partition=%s-%d epoch=%d records=%d took_ms=%.0f",
            self.topic, tenure.index, tenure.epoch, reading.records, self._counts.last_load_ms,
        )  # fmt: skip

    def _uncommitted(self, tenure: Tenure, end: int) -> bool:
        """Whether records before `end` have to be committed first; then `_again` comes later.

        The next leader may lack them: whoever is told of one, such as that a partition is in its
        transaction already, or assigned to it in a generation, would go on with what nobody
        remembers. Kafka does not wait.
        """
        if self._settings.acks != ACKS_ALL:
            return False
        partition = self._replicas.hosted(self.topic, tenure.index)
        if partition.local_log(leader_only=True).high_watermark >= end:
            return False
        partition.await_high_watermark(_CommittedWaiter(tenure, end, self._again))
        return True

    async def _read_all(self, tenure: Tenure) -> _Reading | None:
        """Read a partition to its end; None if its tenure is over meanwhile."""
        clock = self._world.clock
        started_s = clock.monotonic()
        partition = self._replicas.hosted(self.topic, tenure.index)
        log = partition.local_log(leader_only=True)
        replay = self._keeper.begin(tenure.index)
        turn = TimeSlice(clock)
        offset = log.log_start_offset
        records = 0
        # The whole log, not only what is committed: as leader we shall commit all of it.
        while offset < log.log_end_offset:
            log = partition.local_log(leader_only=True)  # it may move to another log dir meanwhile
            read = await self._read(log, offset)
            if not read.size:
                break
            for part in read.parts:
                view = memoryview(part)
                for pos, header in iter_batches(view):
                    found = await self._records(header, view[pos : pos + header.size])
                    for _ in replay.batch(header, found):
                        if turn.over:
                            await turn.next()
                        if tenure.over:
                            return None
                    records += header.count
                    offset = header.next_offset
                    if turn.over:
                        await turn.next()
                    if tenure.over:
                        return None
        return _Reading(replay, records, offset, started_s)

    async def _read(self, log: Log, offset: int) -> LogRead:
        """Read the next batches; what is not in memory is brought there by a worker."""
        for _ in range(TRIES_IN_MEMORY):
            try:
                return log.read(offset, READ_BYTES, log.log_end_offset, now=True)
            except NotInMemoryError as place:
                with contextlib.suppress(OSError):  # the next read is told
                    await self._world.workers.run(place.file.bring, place.size, place.position)
        # It goes out of memory as fast as it is brought there: wait for it.
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
        then: Then,
        *,
        producer: Producer = NOBODY,
        acks: int | None = None,
        timeout_ms: int | None = None,
        guard: object = TRUSTED,
        settled: Then | None = None,
    ) -> None:
        """Append records as one batch; `then` is called at once, or when they are committed.

        If the time is over first, `then` hears that, and `settled` hears later of what became of
        the batch: committed, or its leadership lost. A transaction's records need the `guard`
        under which their partition was verified.
        """
        replicas, settings = self._replicas, self._settings
        acks = settings.acks if acks is None else acks
        error = self.standing(index)
        if error is not ErrorCode.NONE:
            then(error, -1)
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
            logger.info("append failed topic=%s partition=%d error=%s", self.topic, index, failure)
            then(failure.code, -1)
            return
        log = partition.log
        if acks != ACKS_ALL or log is None or log.high_watermark > info.last_offset:
            then(ErrorCode.NONE, info.first_offset)
            return
        operation = _ParkedAppend(
            replicas.purgatory,
            PartitionResult(self.topic, index),
            info.first_offset,
            then,
            settled,
        )
        operation.wait(operation.results[0], partition, info.last_offset + 1)
        replicas.purgatory.park(operation, timeout_ms or settings.timeout_ms)

    # --- the end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Serve nothing any more and stop reading. What is in memory is in the log too."""
        self._closed = True
        tasks = [task for task in (self._loader, self._forgetter) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def statistics(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "served": sum(t.loaded for t in self._tenures.values()),
            "loading": sum(not t.loaded for t in self._tenures.values()),
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
    """Return the partition of a key; the one number without a positive twin counts as 0."""
    hashed = java_hash(key)
    return 0 if hashed == -(2**31) else abs(hashed) % count
