"""Consume: records of topics as they are, read straight from the leaders.

Invariants: each partition in offset order; one Fetch is open per leader, so that a broker that
holds a fetch back holds nothing else back; a dead leader is waited out, nothing is skipped but what
retention removed (and that is said). Kafka: `ConsoleConsumer` with `--partition`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence

from ottla.client.client import Client
from ottla.client.coordinators import by_leader
from ottla.client.fetching import fetch, responded
from ottla.client.offsets import Place, all_offsets
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import Buffer
from ottla.model.protocol import EARLIEST, LATEST, READ_UNCOMMITTED, UNKNOWN_OFFSET
from ottla.wire.records import Aborted, Record, iter_batches, iter_records

MAX_WAIT_MS = 500
MAX_BYTES = 16 * 1024 * 1024
PARTITION_MAX_BYTES = 1024 * 1024
TURN_RECORDS = 64
"""The clock is read after this many records, if other tasks are to get a turn."""
WORK_TO_REST = 10
"""Other tasks get a tenth of the time: a page takes many small steps of the event loop."""
RETRY_WAIT_S = 0.2
PATIENCE_S = 10.0
"""How long `offsets` waits for the leader of a partition."""
IDLE_S = 2.0
"""A wait for records is reported after this time without one."""
CALL_TIMEOUT_S = 30.0

Sink = Callable[[TopicPartition, Record], bool]
"""Takes a record of a partition; False ends the reading."""


class Consumer:
    """Reads partitions of some topics from given offsets on.

    `topic_ids` are those of the topics, zeros where the cluster has none.
    """

    def __init__(
        self,
        client: Client,
        topic_ids: Mapping[str, bytes],
        *,
        isolation: int = READ_UNCOMMITTED,
        settled: Callable[[], None] = lambda: None,
        turn_s: float | None = None,
    ) -> None:
        """`settled` is called after the records of each response were given to the sink.

        With `turn_s`, other tasks get a turn within a response after that time, `settled` first.
        """
        self._client = client
        self._now_s = client.world.clock.monotonic
        self._topic_ids = topic_ids
        self._isolation = isolation
        self._settled = settled
        self._turn_s = turn_s
        self._turn_due_s = float("inf")
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._refresh = False
        self._waits_for = ""
        self._enough = False
        self._last_record_s = self._answered_s = 0.0

    async def start_at(self, partitions: Sequence[TopicPartition], timestamp: int) -> None:
        """Begin at EARLIEST, LATEST, or the first record of a time (milliseconds since 1970)."""
        self._positions |= await self.offsets(partitions, timestamp)

    def start_at_offset(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset

    def stop_at_offset(self, partition: TopicPartition, offset: int) -> None:
        """Give no record of this offset, or of a later one, to the sink."""
        self._ends[partition] = offset

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition: all before it has been given to the sink."""
        return self._positions

    async def offsets(
        self, partitions: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Return the offset for a time of each partition; one without a leader is waited for."""
        patience = self._client.patience(PATIENCE_S)
        asked = dict.fromkeys(partitions, timestamp)
        told = await all_offsets(self._client, asked, patience, self._isolation)
        found = {tp: told[tp].offset for tp in partitions}
        late = [tp for tp, offset in found.items() if offset == UNKNOWN_OFFSET]
        return found | await self.offsets(late, LATEST) if late and timestamp >= 0 else found

    async def offsets_at(
        self, partitions: Sequence[TopicPartition], place: Place
    ) -> dict[TopicPartition, int]:
        """Return the offset of a place in each partition."""
        if place.timestamp is not None:
            return await self.offsets(partitions, place.timestamp)
        if place.before_end is not None:
            starts = await self.offsets(partitions, EARLIEST)
            ends = await self.offsets(partitions, LATEST)
            return {tp: max(starts[tp], ends[tp] - place.before_end) for tp in partitions}
        assert place.offset is not None
        return dict.fromkeys(partitions, place.offset)

    def _finished(self, tp: TopicPartition) -> bool:
        return tp in self._ends and self._positions[tp] >= self._ends[tp]

    async def read(self, sink: Sink, idle_s: float | None) -> None:
        """Read until the sink has enough, all ends are reached, or nothing came for `idle_s`."""
        self._last_record_s = self._answered_s = self._now_s()
        with self._client.waiting(self._idle), contextlib.suppress(_EnoughError):
            await self._read(sink, idle_s)

    def _idle(self) -> str:
        now_s = self._now_s()
        idle = now_s - self._last_record_s >= IDLE_S > now_s - self._answered_s
        return f"new records of {', '.join(sorted(self._topic_ids))}" if idle else ""

    async def _read(self, sink: Sink, idle_s: float | None) -> None:
        fetches: dict[asyncio.Task[bool], list[TopicPartition]] = {}
        try:
            while not (self._ends and all(map(self._finished, self._positions))):
                busy = {p for partitions in fetches.values() for p in partitions}
                for leader, partitions in (await self._by_leader(busy)).items():
                    fetches[asyncio.create_task(self._fetch(leader, partitions, sink))] = partitions
                done: set[asyncio.Task[bool]] = set()
                if fetches:
                    done, _ = await asyncio.wait(
                        fetches, timeout=RETRY_WAIT_S, return_when=asyncio.FIRST_COMPLETED
                    )
                now = self._now_s()
                for task in done:
                    del fetches[task]
                    self._answered_s = now
                    if task.result():
                        self._last_record_s = now
                if idle_s is not None and now - self._last_record_s >= idle_s:
                    return
        finally:
            for task in fetches:
                task.cancel()

    async def _by_leader(self, busy: set[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return partitions without an open fetch, by leader; wait a little if there is none."""
        refresh, self._refresh = self._refresh, False
        found: dict[int, list[TopicPartition]] = {}
        try:
            if refresh:
                await asyncio.sleep(RETRY_WAIT_S)
                await self._client.metadata(list(self._topic_ids))
        except OttlaError as error:
            self._try_again(str(error), error.retriable)
        else:
            idle = [tp for tp in self._positions if tp not in busy and not self._finished(tp)]
            found, without = await by_leader(self._client, idle)
            for reason in without.values():
                self._try_again(str(reason), reason.retriable)
        if not found and not busy:
            await asyncio.sleep(RETRY_WAIT_S)
        return found

    def _try_again(self, reason: str, retriable: bool) -> None:
        if not retriable:
            raise OttlaError(reason)
        self._refresh = True
        if reason != self._waits_for:
            self._client.say(f"waiting: {reason}")
            self._waits_for = reason

    async def _fetch(self, leader: int, partitions: list[TopicPartition], sink: Sink) -> bool:
        """Fetch once; return whether any record came."""
        try:
            found = await fetch(
                self._client,
                leader,
                {tp: self._positions[tp] for tp in partitions},
                partition_bytes=PARTITION_MAX_BYTES,
                max_bytes=MAX_BYTES,
                max_wait_ms=MAX_WAIT_MS,
                topic_ids=self._topic_ids,
                isolation=self._isolation,
                timeout_s=CALL_TIMEOUT_S,
            )
        except OttlaError as error:
            self._try_again(str(error), error.retriable)
            return False
        came = False
        self._begin_turn()
        try:
            for tp, item in found:
                if item.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._jump(tp)
                elif item.error_code:
                    refused = responded(tp, item.error_code)
                    self._try_again(str(refused), refused.retriable)
                elif item.records:
                    self._waits_for = ""
                    # There are none where records that are not committed are read, too.
                    listed = item.aborted_transactions or ()
                    aborted = Aborted((a.producer_id, a.first_offset) for a in listed)
                    came |= await self._pass_on(tp, item.records, aborted, sink)
        finally:
            self._settled()
        return came

    async def _jump(self, tp: TopicPartition) -> None:
        start = (await self.offsets([tp], EARLIEST))[tp]
        end = (await self.offsets([tp], LATEST))[tp]
        position = self._positions[tp]
        self._positions[tp] = start if position < start else end
        self._client.say(
            f"{tp}: offset {position} is outside {start}..{end}, going on at {self._positions[tp]}"
        )

    def _begin_turn(self) -> None:
        if self._turn_s is not None:
            self._turn_due_s = self._now_s() + self._turn_s

    async def _give_turn(self) -> bool:
        """Let other tasks run if it is time to; return whether enough was read meanwhile."""
        if self._turn_s is not None and self._now_s() >= self._turn_due_s:
            self._settled()
            await asyncio.sleep(self._turn_s / WORK_TO_REST)
            self._begin_turn()
        return self._enough

    async def _pass_on(
        self, tp: TopicPartition, records: Buffer, aborted: Aborted, sink: Sink
    ) -> bool:
        """Give what is new to the sink; a batch may begin before the offset asked for."""
        if self._enough:  # another leader's response brought the last record that was wanted
            return False
        came = False
        end = self._ends.get(tp)
        for position, batch in iter_batches(records, allow_partial=True):
            if await self._give_turn():
                return came
            if not aborted.covers(records, position, batch) and not batch.is_control:
                for number, record in enumerate(iter_records(records, position), 1):
                    if number % TURN_RECORDS == 0 and await self._give_turn():
                        return came
                    if end is not None and record.offset >= end:
                        self._positions[tp] = end
                        return came
                    if record.offset >= self._positions[tp]:
                        came = True
                        self._positions[tp] = record.offset + 1
                        if not sink(tp, record):
                            self._enough = True
                            raise _EnoughError
            self._positions[tp] = max(self._positions[tp], batch.next_offset)
        return came


class _EnoughError(Exception):
    """The sink wants no more."""
