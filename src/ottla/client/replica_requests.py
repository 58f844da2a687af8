"""What many readers of replicas want of a broker at a time, in one request.

Invariants: one request of each kind is under way to a broker, and what is wanted meanwhile goes
with the next one; a partition is asked for once at a time; a response is bounded by
`RESPONSE_BYTES` (or by one batch, where that is larger), and who got nothing of it stands first in
the next; every reader gets a result or an OttlaError. Read with the replica id of the debugging
consumer, to which followers respond, those of Apache Kafka too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar

from ottla.client.client import Client
from ottla.client.error_texts import failure
from ottla.client.fetching import fetch
from ottla.client.offsets import offsets_at
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import CONSUMER, DEBUGGING_CONSUMER

MOST_PARTITIONS = 1000
RESPONSE_BYTES = 8 << 20

W = TypeVar("W")
R = TypeVar("R")


class _Wanted(NamedTuple, Generic[W, R]):
    what: W
    future: "asyncio.Future[R]"


class _Pending(Generic[W, R]):
    """What is wanted of one broker in requests of one kind."""

    def __init__(
        self, send: "Callable[[dict[TopicPartition, _Wanted[W, R]]], Awaitable[None]]"
    ) -> None:
        self._send = send
        self._waiting: dict[TopicPartition, _Wanted[W, R]] = {}
        self.task: asyncio.Task[None] | None = None

    def ask(self, tp: TopicPartition, what: W) -> "asyncio.Future[R]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting[tp] = _Wanted(what, future)
        if self.task is None or self.task.done():
            # It runs after all that is ready to run, so whoever asks in this turn goes along.
            self.task = loop.create_task(self._run())
        return future

    async def _run(self) -> None:
        while self._waiting:
            some = dict(list(self._waiting.items())[:MOST_PARTITIONS])
            for tp in some:
                del self._waiting[tp]
            try:
                await self._send(some)
            except OttlaError as error:
                for wanted in some.values():
                    if not wanted.future.done():
                        wanted.future.set_exception(error)
            again = {tp: wanted for tp, wanted in some.items() if not wanted.future.done()}
            self._waiting = again | self._waiting


class ReplicaRequests:
    """Reads the replicas of one cluster; use it as a context manager, in the loop that reads."""

    def __init__(self, client: Client, fetch_size: int, max_wait_ms: int) -> None:
        self._client = client
        self._fetch_size = fetch_size
        self._max_wait_ms = max_wait_ms
        self._fetches: dict[int, _Pending[int, memoryview]] = {}
        self._offsets: dict[tuple[int, int, bool], _Pending[None, int]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        tasks = [p.task for p in self._fetches.values() if p.task is not None]
        tasks += [p.task for p in self._offsets.values() if p.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def batches(self, tp: TopicPartition, broker: int, offset: int) -> memoryview:
        """Return batches that a replica has, from the one that holds an offset on.

        The last one may be cut off, the first is whole. Empty where the broker sent nothing at all.
        """
        if broker not in self._fetches:
            self._fetches[broker] = _Pending(lambda wanted: self._fetch(broker, wanted))
        return await self._fetches[broker].ask(tp, offset)

    async def offset(
        self, tp: TopicPartition, broker: int, timestamp: int, *, of_consumer: bool = False
    ) -> int:
        """Return a replica's offset for a time, EARLIEST or LATEST.

        LATEST is the end of its log; `of_consumer`: of a leader, and LATEST the high watermark.
        """
        key = broker, timestamp, of_consumer
        if key not in self._offsets:
            self._offsets[key] = _Pending(lambda wanted: self._list(key, wanted))
        return await self._offsets[key].ask(tp, None)

    # --- requests ---------------------------------------------------------------------------

    async def _fetch(
        self, broker: int, wanted: dict[TopicPartition, _Wanted[int, memoryview]]
    ) -> None:
        answered = await fetch(
            self._client,
            broker,
            {tp: one.what for tp, one in wanted.items()},
            partition_bytes=self._fetch_size,
            max_bytes=max(RESPONSE_BYTES, self._fetch_size),
            max_wait_ms=self._max_wait_ms,
            replica_id=DEBUGGING_CONSUMER,
        )
        empty = []
        for tp, found in answered:
            one = wanted[tp]
            if found.error_code:
                error = failure(f"offset {one.what} was not read", found.error_code)
                _set_error(one.future, error)
            elif found.records:
                _set_result(one.future, found.records)
            else:
                empty.append(one)
        if len(empty) == len(wanted):  # otherwise the others filled the response: they come again
            for one in empty:
                _set_result(one.future, memoryview(b""))

    async def _list(
        self, key: tuple[int, int, bool], wanted: dict[TopicPartition, _Wanted[None, int]]
    ) -> None:
        broker, timestamp, of_consumer = key
        told, refused = await offsets_at(
            self._client,
            broker,
            dict.fromkeys(wanted, timestamp),
            replica_id=CONSUMER if of_consumer else DEBUGGING_CONSUMER,
        )
        for tp, found in told.items():
            _set_result(wanted[tp].future, found.offset)
        for tp, error in refused.items():
            _set_error(wanted[tp].future, error)
        for tp, one in wanted.items():
            _set_error(one.future, OttlaError(f"{tp}: broker {broker} responded without an offset"))


def _set_result(future: "asyncio.Future[R]", value: R) -> None:
    if not future.done():
        future.set_result(value)


def _set_error(future: "asyncio.Future[Any]", error: OttlaError) -> None:
    if not future.done():
        future.set_exception(error)


async def all_of(readings: Sequence[Awaitable[R]]) -> list[R | OttlaError]:
    """Return what readers were given, or the error of each."""
    found: list[R | OttlaError] = []
    for each in await asyncio.gather(*readings, return_exceptions=True):
        if isinstance(each, BaseException) and not isinstance(each, OttlaError):
            raise each
        found.append(each)
    return found
