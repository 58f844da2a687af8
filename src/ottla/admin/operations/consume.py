"""Consume: records of a topic as they are, read straight from the leaders.

Who may call: the command line, and `group_consumer` for what its group assigns. Invariants: each
partition in offset order; one Fetch is open per leader, so that a broker that holds a fetch back
holds nothing else back; a dead leader is waited out, nothing is skipped but what retention removed
(and that is said). Kafka: `ConsoleConsumer` with `--partition`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ottla.admin.error_texts import explained
from ottla.admin.output import say
from ottla.model.errors import RETRIABLE, ErrorCode, OttlaError
from ottla.model.ids import ZERO_UUID
from ottla.model.ports import World
from ottla.model.protocol import EARLIEST, LATEST
from ottla.net.client import Client
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.records import Record, iter_batches, iter_records

MAX_WAIT_MS = 500
MAX_BYTES = 16 * 1024 * 1024
PARTITION_MAX_BYTES = 1024 * 1024
LAST_VERSION_WITH_NAMES = 12
RETRY_WAIT_S = 0.2
CALL_TIMEOUT_S = 30.0

Sink = Callable[[int, Record], bool]
"""Takes a record of a partition; False ends the reading."""


class Reader:
    """Reads some partitions of one topic from given offsets on."""

    def __init__(self, client: Client, world: World, topic: str, topic_id: bytes) -> None:
        self._client = client
        self._world = world
        self._topic = topic
        self._topic_id = topic_id
        self._positions: dict[int, int] = {}
        self._refresh = False
        self._waits_for = ""

    async def start_at(self, partitions: Sequence[int], timestamp: int) -> None:
        """Begin at EARLIEST or LATEST."""
        for partition in partitions:
            self._positions[partition] = await self._offset(partition, timestamp)

    def start_at_offset(self, partition: int, offset: int) -> None:
        self._positions[partition] = offset

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each partition: all before it has been given to the sink."""
        return self._positions

    async def _offset(self, partition: int, timestamp: int) -> int:
        topic = ListOffsetsRequest.ListOffsetsTopic(
            name=self._topic,
            partitions=[
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=partition, timestamp=timestamp
                )
            ],
        )
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        for attempt in range(50):
            try:
                leader = await self._client.leader(self._topic, partition, refresh=attempt > 0)
                response = await self._client.call(request, leader, timeout_s=CALL_TIMEOUT_S)
            except OttlaError as error:
                if not error.retriable:
                    raise
                code = int(error.code)
            else:
                answer = response.topics[0].partitions[0]
                code = answer.error_code
                if code == 0:
                    return int(answer.offset)
            if code not in RETRIABLE:
                break
            await asyncio.sleep(RETRY_WAIT_S)
        raise OttlaError(f"offsets of {self._topic}-{partition}: {explained(code)}")

    async def read(self, sink: Sink, idle_s: float | None) -> None:
        """Read until the sink has enough, or nothing came for `idle_s`."""
        fetches: dict[asyncio.Task[bool], list[int]] = {}
        last_record = self._world.clock.monotonic()
        try:
            while True:
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
                    if task.result():
                        last_record = now
                if idle_s is not None and now - last_record >= idle_s:
                    return
        except _EnoughError:
            return
        finally:
            for task in fetches:
                task.cancel()

    async def _by_leader(self, busy: set[int]) -> dict[int, list[int]]:
        """Return the partitions nobody fetches now, by leader; wait a little if there is none."""
        refresh, self._refresh = self._refresh, False
        found: dict[int, list[int]] = {}
        try:
            if refresh:
                await asyncio.sleep(RETRY_WAIT_S)
                await self._client.metadata([self._topic])
            for partition in self._positions:
                if partition not in busy:
                    leader = await self._client.leader(self._topic, partition)
                    found.setdefault(leader, []).append(partition)
        except OttlaError as error:
            self._try_again(str(error), error.retriable)
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

    async def _fetch(self, leader: int, partitions: list[int], sink: Sink) -> bool:
        """Fetch once; return whether any record came."""
        version = None if self._topic_id != ZERO_UUID else LAST_VERSION_WITH_NAMES
        try:
            request = self._request(partitions)
            response = await self._client.call(
                request, leader, version=version, timeout_s=CALL_TIMEOUT_S
            )
        except OttlaError as error:
            self._try_again(str(error), error.retriable)
            return False
        if response.error_code:
            self._answered(response.error_code, f"broker {leader}")
        came = False
        for topic in response.responses:
            for answer in topic.partitions:
                partition = answer.partition_index
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._jump(partition)
                elif answer.error_code:
                    self._answered(answer.error_code, f"{self._topic}-{partition}")
                elif answer.records:
                    self._waits_for = ""
                    came |= self._pass_on(partition, answer.records, sink)
        return came

    def _answered(self, code: int, who: str) -> None:
        self._try_again(f"{who} answers {explained(code)}", code in RETRIABLE)

    async def _jump(self, partition: int) -> None:
        start = await self._offset(partition, EARLIEST)
        end = await self._offset(partition, LATEST)
        position = self._positions[partition]
        self._positions[partition] = start if position < start else end
        say(
            f"{self._topic}-{partition}: offset {position} is outside {start}..{end}, "
            f"going on at {self._positions[partition]}"
        )

    def _request(self, partitions: list[int]) -> Any:
        topic = FetchRequest.FetchTopic(
            topic=self._topic,
            topic_id=self._topic_id,
            partitions=[
                FetchRequest.FetchPartition(
                    partition=p,
                    fetch_offset=self._positions[p],
                    partition_max_bytes=PARTITION_MAX_BYTES,
                )
                for p in partitions
            ],
        )
        return FetchRequest(
            max_wait_ms=MAX_WAIT_MS, min_bytes=1, max_bytes=MAX_BYTES, topics=[topic]
        )

    def _pass_on(self, partition: int, records: memoryview, sink: Sink) -> bool:
        """Give what is new to the sink; a batch may begin before the offset asked for."""
        came = False
        for position, batch in iter_batches(records, allow_partial=True):
            if not batch.is_control:
                for record in iter_records(records, position):
                    if record.offset >= self._positions[partition]:
                        came = True
                        self._positions[partition] = record.offset + 1
                        if not sink(partition, record):
                            raise _EnoughError
            self._positions[partition] = max(self._positions[partition], batch.next_offset)
        return came


class _EnoughError(Exception):
    """The sink wants no more."""
