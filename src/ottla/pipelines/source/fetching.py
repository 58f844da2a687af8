"""One partition, read from whoever leads it: fetch after fetch, one ahead of what is decoded.

Invariants: the position only moves forward, over whole record batches; whatever happens to leaders
is tried again with fresh metadata until nothing came for `kafka.default.api.timeout.ms`; what is
gone is skipped only as the policy says, and reported; another topic of the same name is never read.
At most two responses are held. Kafka: `Fetcher`, `OffsetsForLeaderEpochClient` (KIP-320) and
Spark's `KafkaDataConsumer`.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from ottla.client.fetching import fetch, responded
from ottla.model.errors import (
    CorruptRecordError,
    ErrorCode,
    OffsetOutOfRangeError,
    OttlaError,
    UnknownTopicError,
)
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import Buffer
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.ranges import OffsetRange
from ottla.wire.batch_header import HEADER_BYTES, LOG_OVERHEAD, unpack_extent
from ottla.wire.messages.records import FetchResponse

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch brought: whole batches (one may be cut off behind them), and from where on."""

    first: int
    records: Buffer
    aborted: list[tuple[int, int]]


class PartitionFetcher:
    """Reads a range of offsets; iterate over it once."""

    def __init__(self, cluster: Cluster, wanted: OffsetRange) -> None:
        self._cluster = cluster
        self._options = cluster.options
        self._wanted = wanted
        self._tp = TopicPartition(wanted.topic, wanted.partition)
        self._position = wanted.start
        self._end = wanted.end
        self._leader_epoch = -1
        self._last_batch_epoch = -1
        self._known = False
        self._patience = cluster.patience()
        self._replica: int | None = None
        """a follower in our rack, which the leader told to ask instead"""
        self.skipped = 0
        """offsets that were gone"""

    def __iter__(self) -> Iterator[Fetched]:
        """Yield what each fetch brought; a response is on its way while the last one is used."""
        if self._position >= self._end:
            return
        pending = self._cluster.start(self._next())
        try:
            while (fetched := self._cluster.finish(pending)) is not None:
                ahead = self._position < self._end
                if ahead:
                    pending = self._cluster.start(self._next())
                yield fetched
                if not ahead:
                    return
        finally:
            pending.cancel()

    async def _next(self) -> Fetched | None:
        """Return the next batches; None at the end of the range."""
        while self._position < self._end:
            try:
                fetched = await self._fetch()
            except OffsetOutOfRangeError as error:
                if self._replica is None:
                    await self._reset(str(error))
                else:  # a follower may be behind: the leader knows
                    self._replica = None
                    await self._patience.wait(self._error(ErrorCode.OFFSET_NOT_AVAILABLE))
            except OttlaError as error:
                self._known, self._replica = False, None
                await self._patience.wait(error)
            else:
                if fetched is not None:
                    return fetched
        return None

    async def _fetch(self) -> Fetched | None:
        """Fetch once; None if there was nothing."""
        found = await self._ask(committed=self._options.read_committed)
        if self._options.rack and found.preferred_read_replica >= 0:
            self._replica = found.preferred_read_replica
            return None
        first = self._position
        if not found.records:
            await self._nothing(found)
            return None
        self._advance(found.records)
        self._patience.renew()
        aborted = [(a.producer_id, a.first_offset) for a in found.aborted_transactions or ()]
        return Fetched(first, found.records, aborted)

    def _advance(self, records: Buffer) -> None:
        """Move the position behind the last whole batch."""
        at, size = 0, len(records)
        while size - at >= HEADER_BYTES:
            base, length, epoch, delta = unpack_extent(records, at)
            if length < HEADER_BYTES - LOG_OVERHEAD or at + LOG_OVERHEAD + length > size:
                break
            self._position = max(self._position, base + delta + 1)
            self._last_batch_epoch = epoch
            at += LOG_OVERHEAD + length
        if at == 0:  # brokers send the first batch whole, however large it is
            raise CorruptRecordError(f"{self._tp}: no whole batch at offset {self._position}")

    async def _ask(self, *, committed: bool) -> FetchResponse.PartitionData:
        """Return the leader's response for the partition; raise where it is an error."""
        leader = await self._find_leader()
        options = self._options
        answered = await fetch(
            self._cluster.client,
            leader if self._replica is None else self._replica,
            {self._tp: self._position},
            partition_bytes=options.fetch_bytes,
            max_wait_ms=options.fetch_wait_ms,
            topic_ids={self._tp.topic: self._wanted.topic_id},
            leader_epochs={self._tp: self._leader_epoch},
            isolation=int(committed),
            rack=options.rack,
            timeout_s=(options.request_timeout_ms + options.fetch_wait_ms) / 1000,
        )
        if not answered:
            raise self._error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        _, found = answered[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRangeError(f"offset {self._position} of {self._tp} is out of range")
        if found.error_code:
            raise self._error(found.error_code)
        return found

    async def _nothing(self, found: FetchResponse.PartitionData) -> None:
        """Take a response without a batch. Alone it does not show that the range has no more.

        A broker responds so, too, when a quota is exceeded (KIP-219), a disk is slow, or it leads
        but does not know yet what is committed.
        """
        committed = self._options.read_committed
        log_end = found.last_stable_offset if committed else found.high_watermark
        if committed and log_end >= self._end and await self._next_is_beyond():
            self._position = self._end
            return
        self._known = False
        try:
            await self._patience.wait(self._error(ErrorCode.OFFSET_NOT_AVAILABLE))
        except OttlaError:
            raise OffsetOutOfRangeError(
                f"{self._tp} gives no record from offset {self._position} on and ends at offset "
                f"{log_end}, {self._end} was planned"
            ) from None

    async def _next_is_beyond(self) -> bool:
        """Return whether the next batch there is, committed or not, begins at the range's end.

        Then compaction took what was between, and an open transaction hides that batch.
        """
        records = (await self._ask(committed=False)).records
        if not records or len(records) < HEADER_BYTES:
            return False
        base, _, _, _ = unpack_extent(records, 0)
        return bool(base >= self._end)

    async def _find_leader(self) -> int:
        """Return the leader; after a problem also check what changed behind our back."""
        client = self._cluster.client
        if not self._known:
            await self._check_topic()
            await client.leader(*self._tp)
            epoch = client.leader_epoch(*self._tp)
            if epoch > self._leader_epoch >= 0 and self._last_batch_epoch >= 0:
                await self._check_truncation()
            self._leader_epoch = max(epoch, self._leader_epoch)
            self._known = True
        return await client.leader(*self._tp)

    async def _check_topic(self) -> None:
        """Refresh metadata; UnknownTopicError if the topic is another one now."""
        metadata = await self._cluster.client.metadata([self._wanted.topic])
        found = metadata.topics[0]
        if found.error_code:
            raise self._error(found.error_code)
        refuse_another(self._wanted.topic, self._wanted.topic_id, found.topic_id)

    async def _check_truncation(self) -> None:
        """Ask a new leader whether it has all that was read (KIP-320)."""
        end = await self._cluster.epoch_end(self._tp, self._last_batch_epoch)
        if 0 <= end < self._position:
            raise OffsetOutOfRangeError(
                f"{self._tp} was cut to offset {end} by an unclean election; it was read up to "
                f"{self._position}"
            )

    async def _reset(self, why: str) -> None:
        """Go on where the policy says, and tell what is skipped; raise if it says fail."""
        policy = self._options.on_data_loss
        asked = {self._tp: EARLIEST}
        start = (await self._cluster.offsets_of(asked))[self._tp].offset
        end = (await self._cluster.offsets_of({self._tp: LATEST}))[self._tp].offset
        if policy == "fail":
            raise OffsetOutOfRangeError(
                f"{why}; the log holds {start} to {end}, {self._wanted} was asked for: records are "
                "gone (option onDataLoss=earliest or latest goes on without them)"
            )
        goes_on = self._end
        if policy == "earliest":
            if start > self._position:
                goes_on = min(start, self._end)
            elif end > self._position:  # what lies before was read: only the rest is there to read
                goes_on = self._position
        log.warning(
            "%s: skipping %d offsets of %s from %d on (log: %d to %d; policy %s)",
            why, goes_on - self._position, self._tp, self._position, start, end, policy,
        )  # fmt: skip
        self._last_batch_epoch = -1
        if goes_on == self._position:
            await self._patience.wait(self._error(ErrorCode.OFFSET_NOT_AVAILABLE))
        self.skipped += goes_on - self._position
        self._position = goes_on

    def _error(self, code: int) -> OttlaError:
        return responded(f"{self._tp}: the leader", code)


def refuse_another(topic: str, wanted: bytes, found: bytes) -> None:
    """Raise UnknownTopicError, not to be tried again, if a topic's id is not the wanted one."""
    if ZERO_UUID not in (wanted, found) and wanted != found:
        raise TopicReplacedError(
            f"topic {topic} was deleted and created again: its offsets are not those that were "
            "read before; start with a new checkpoint"
        )


class TopicReplacedError(UnknownTopicError):
    """The name belongs to another topic now."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION
