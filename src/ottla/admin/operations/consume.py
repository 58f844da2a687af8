"""Consume: records of topics as they are, read straight from the leaders.

Invariants: each partition in offset order; one Fetch is open per leader, so that a broker that
holds a fetch back holds nothing else back; a dead leader is waited out, nothing is skipped but what
retention removed (and that is said). Kafka: `ConsoleConsumer` with `--partition`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.admin.error_texts import explained
from ottla.admin.operations.offsets import by_leader, list_offsets_request, log_offsets
from ottla.admin.operations.places import Place
from ottla.admin.waits import LONG_S, waiting
from ottla.cli.output import say
from ottla.model.errors import RETRIABLE, ErrorCode, OttlaError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import World
from ottla.model.protocol import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    UNKNOWN_OFFSET,
)
from ottla.net.client import Client
from ottla.wire.aborted import Aborted
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.records import Record, iter_batches, iter_records

MAX_WAIT_MS = 500
MAX_BYTES = 16 * 1024 * 1024
PARTITION_MAX_BYTES = 1024 * 1024
LAST_VERSION_WITH_NAMES = 12
TURN_RECORDS = 64
"""After so many the time is looked at, where other tasks are to get a turn."""
WORK_TO_REST = 10
"""A turn of others is so many times shorter: a page takes many, small steps of the event loop."""
RETRY_WAIT_S = 0.2
CALL_TIMEOUT_S = 30.0

Sink = Callable[[TopicPartition, Record], bool]
"""Takes a record of a partition; False ends the reading."""


class Reader:
    """Reads partitions of some topics from given offsets on.

    `topic_ids` are those of the topics, zeros where the cluster has none.
    """

    def __init__(
        self,
        client: Client,
        world: World,
        topic_ids: Mapping[str, bytes],
        *,
        isolation: int = READ_UNCOMMITTED,
        settled: Callable[[], None] = lambda: None,
        turn_s: float | None = None,
    ) -> None:
        """`settled` is called after the records of each response were given to the sink.

        With `turn_s`, other tasks get a turn amid a response after that time, `settled` first.
        """
        self._client = client
        self._world = world
        self._topic_ids = topic_ids
        self._names = {topic_id: name for name, topic_id in topic_ids.items()}
        self._have_ids = ZERO_UUID not in self._names
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
        try:
            found = await log_offsets(
                self._client, partitions, timestamp, isolation=self._isolation
            )
        except OttlaError as error:
            if not error.retriable:
                raise
            found = {}
        for tp in partitions:
            if tp not in found:
                found[tp] = await self._offset(tp, timestamp)
        return found

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

    async def _offset(self, tp: TopicPartition, timestamp: int) -> int:
        request = list_offsets_request([tp], timestamp, self._isolation)
        with waiting() as wait:
            for attempt in range(50):
                try:
                    leader = await self._client.leader(*tp, refresh=attempt > 0)
                    response = await self._client.call(request, leader, timeout_s=CALL_TIMEOUT_S)
                except OttlaError as error:
                    if not error.retriable:
                        raise
                    code = int(error.code)
                else:
                    item = response.topics[0].partitions[0]
                    code = item.error_code
                    if code == 0 and item.offset == UNKNOWN_OFFSET and timestamp >= 0:
                        return await self._offset(tp, LATEST)
                    if code == 0:
                        return int(item.offset)
                if code not in RETRIABLE:
                    break
                wait.text = f"offsets of {tp}: {explained(code)}"
                await asyncio.sleep(RETRY_WAIT_S)
        raise OttlaError(f"offsets of {tp}: {explained(code)}")

    def _finished(self, tp: TopicPartition) -> bool:
        return tp in self._ends and self._positions[tp] >= self._ends[tp]

    async def read(self, sink: Sink, idle_s: float | None) -> None:
        """Read until the sink has enough, all ends are reached, or nothing came for `idle_s`."""
        self._last_record_s = self._answered_s = self._world.clock.monotonic()
        with waiting(self._idle), contextlib.suppress(_EnoughError):
            await self._read(sink, idle_s)

    def _idle(self) -> str:
        now_s = self._world.clock.monotonic()
        idle = now_s - self._last_record_s >= LONG_S > now_s - self._answered_s
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
                now = self._world.clock.monotonic()
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
            say(f"waiting: {reason}")
            self._waits_for = reason

    async def _fetch(self, leader: int, partitions: list[TopicPartition], sink: Sink) -> bool:
        """Fetch once; return whether any record came."""
        version = None if self._have_ids else LAST_VERSION_WITH_NAMES
        try:
            request = self._request(partitions)
            response = await self._client.call(
                request, leader, version=version, timeout_s=CALL_TIMEOUT_S
            )
        except OttlaError as error:
            self._try_again(str(error), error.retriable)
            return False
        if response.error_code:
            self._responded(response.error_code, f"broker {leader}")
        came = False
        self._begin_turn()
        try:
            for topic in response.responses:
                name = topic.topic or self._names[topic.topic_id]
                for item in topic.partitions:
                    tp = TopicPartition(name, item.partition_index)
                    if item.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        await self._jump(tp)
                    elif item.error_code:
                        self._responded(item.error_code, str(tp))
                    elif item.records:
                        self._waits_for = ""
                        came |= await self._pass_on(tp, item, sink)
        finally:
            self._settled()
        return came

    def _responded(self, code: int, who: str) -> None:
        self._try_again(f"{who} responds with {explained(code)}", code in RETRIABLE)

    async def _jump(self, tp: TopicPartition) -> None:
        start = await self._offset(tp, EARLIEST)
        end = await self._offset(tp, LATEST)
        position = self._positions[tp]
        self._positions[tp] = start if position < start else end
        say(f"{tp}: offset {position} is outside {start}..{end}, going on at {self._positions[tp]}")

    def _request(self, partitions: list[TopicPartition]) -> Any:
        topics: dict[str, list[Any]] = {}
        for tp in partitions:
            one = FetchRequest.FetchPartition(
                partition=tp.partition,
                fetch_offset=self._positions[tp],
                partition_max_bytes=PARTITION_MAX_BYTES,
            )
            topics.setdefault(tp.topic, []).append(one)
        return FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=self._isolation,
            topics=[
                FetchRequest.FetchTopic(
                    topic=name, topic_id=self._topic_ids[name], partitions=asked
                )
                for name, asked in topics.items()
            ],
        )

    def _begin_turn(self) -> None:
        if self._turn_s is not None:
            self._turn_due_s = self._world.clock.monotonic() + self._turn_s

    async def _give_turn(self) -> bool:
        """Let other tasks run if it is time to; return whether enough was read meanwhile."""
        if self._turn_s is not None and self._world.clock.monotonic() >= self._turn_due_s:
            self._settled()
            await asyncio.sleep(self._turn_s / WORK_TO_REST)
            self._begin_turn()
        return self._enough

    async def _pass_on(self, tp: TopicPartition, response: Any, sink: Sink) -> bool:
        """Give what is new to the sink; a batch may begin before the offset asked for."""
        if self._enough:  # another leader's response brought the last record that was wanted
            return False
        came = False
        aborted = None
        if self._isolation == READ_COMMITTED:
            listed = response.aborted_transactions or ()
            aborted = Aborted((a.producer_id, a.first_offset) for a in listed)
        records = response.records
        end = self._ends.get(tp)
        for position, batch in iter_batches(records, allow_partial=True):
            if await self._give_turn():
                return came
            given = not (aborted is not None and aborted.covers(records, position, batch))
            if given and not batch.is_control:
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
