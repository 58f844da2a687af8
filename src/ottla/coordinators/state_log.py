"""State log: the internal topic in which a coordinator keeps what it must not forget.

Generic: it knows partitions, records and leadership, not what they mean. Who may call: the
coordinators, and the broker to tell them of leadership. Invariants:
- a partition is served only after all its records, written by whichever broker led before, have
  been read: until then `standing` says so
- reading begins when leadership comes and is given up when it goes; each leadership is a `Tenure`
  of its own, so what an older one still has under way changes nothing any more
- an append is reported once, when it is committed as `acks` asks, or has failed
- reading goes in slices of a few milliseconds

Answers to the log part of Kafka's `GroupMetadataManager` and `TransactionStateManager`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from ottla.log.producers import TRUSTED
from ottla.log.validate import COORDINATOR
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ports import World
from ottla.replication.partition import Partition
from ottla.replication.producing import ParkedProduce, PartitionResult
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.turns import Turn
from ottla.wire.compression import NONE as UNCOMPRESSED
from ottla.wire.records import (
    NO_PRODUCER_ID,
    BatchHeader,
    Record,
    build_batch,
    iter_batches,
)

logger = logging.getLogger(__name__)

READ_BYTES = 262_144
"""Read in one go, whatever `offsets.load.buffer.size` allows: others wait meanwhile."""

RETRY_S = 2.0
"""A partition that cannot be read is not served; it is tried again after this."""

ACKS_ALL = -1

Then = Callable[[ErrorCode, int], None]
"""Hears of an append's end: the error, and the base offset (-1 unless NONE)."""


class Replay(Protocol):
    """What the records of one partition add up to, while they are read."""

    def batch(self, header: BatchHeader, batch: memoryview) -> None:
        """Take in the next batch."""
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
        """Forget all state of a partition: another broker keeps it now."""
        ...


@dataclass(slots=True, eq=False)
class Tenure:
    """One leadership of one partition by this broker."""

    index: int
    epoch: int
    loaded: bool = False
    over: bool = False


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

    # --- leadership -------------------------------------------------------------------------------

    def gained(self, partition: Partition) -> None:
        """Begin to read a partition that this broker leads from now on."""
        index = partition.tp.partition
        self.lost(partition)
        tenure = self._tenures[index] = Tenure(index, partition.leader_epoch)
        logger.debug("loading partition=%s epoch=%d", partition.tp, tenure.epoch)
        self._counts.waiting.append(tenure)
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
            self._keeper.unload(index)
            logger.debug(
                "unloaded partition=%s epoch=%d loaded=%s",
                partition.tp, partition.leader_epoch, tenure.loaded,
            )  # fmt: skip

    async def _load_all(self) -> None:
        """Read what waits to be read, one partition after the other. A loop root."""
        waiting = self._counts.waiting
        try:
            while waiting:
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

    def _retry(self, tenure: Tenure, error: Exception) -> None:
        # Serving a part of it would tell consumers that their offsets do not exist.
        if tenure.over or self._closed:
            return
        logger.error(
            "partition not served topic=%s partition=%d error=%s; trying again",
            self.topic, tenure.index, error,
        )  # fmt: skip
        self._keeper.unload(tenure.index)

        def again() -> None:
            if tenure.over or self._closed:
                return
            self._counts.waiting.append(tenure)
            if self._loader is None:
                self._loader = loop.create_task(self._load_all(), name=f"load-{self.topic}")

        loop = asyncio.get_running_loop()
        loop.call_later(RETRY_S, again)

    async def _load(self, tenure: Tenure) -> None:
        clock = self._world.clock
        started_s = clock.monotonic()
        partition = self._replicas.hosted(self.topic, tenure.index)
        log = partition.local_log(leader_only=True)
        replay = self._keeper.begin(tenure.index)
        turn = Turn(clock)
        offset = log.log_start_offset
        records = 0
        # The whole log, not only what is committed: as leader we shall commit all of it.
        while offset < log.log_end_offset:
            log = partition.local_log(leader_only=True)  # it may move to another log dir meanwhile
            read = log.read(offset, READ_BYTES, log.log_end_offset)
            if not read.size:
                break
            for part in read.parts:
                view = memoryview(part)
                for pos, header in iter_batches(view):
                    replay.batch(header, view[pos : pos + header.size])
                    records += header.count
                    offset = header.next_offset
                    if turn.over:
                        await turn.next()
                        if tenure.over:
                            return
        for _ in replay.finish():
            if turn.over:
                await turn.next()
                if tenure.over:
                    self._keeper.unload(tenure.index)
                    return
        tenure.loaded = True
        self._counts.loaded += 1
        self._counts.records += records
        self._counts.last_load_ms = (clock.monotonic() - started_s) * 1000
        logger.log(
            logging.INFO if records else logging.DEBUG,
            "loaded partition=%s epoch=%d records=%d took_ms=%.0f",
            partition.tp, tenure.epoch, records, self._counts.last_load_ms,
        )  # fmt: skip

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
    ) -> None:
        """Append records as one batch; `then` is called at once, or when they are committed.

        A transaction's records need the `guard` under which their partition was verified.
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
        result = PartitionResult(self.topic, index)

        def deliver(_operation: ParkedProduce) -> None:
            ok = result.code is ErrorCode.NONE
            then(result.code, info.first_offset if ok else -1)

        operation = ParkedProduce(replicas.purgatory, [result], deliver)
        operation.wait(result, partition, info.last_offset + 1)
        replicas.purgatory.park(operation, timeout_ms or settings.timeout_ms)

    # --- the end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Serve nothing any more and stop reading. What is in memory is in the log too."""
        self._closed = True
        loader, self._loader = self._loader, None
        if loader is not None:
            loader.cancel()
            await asyncio.gather(loader, return_exceptions=True)

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
