"""Responses: from a response message to the parts that leave, and back to a response in waiting.

Invariants: a response is encoded exactly once, with the version its request came in. One that may
be far larger than its request is built in slices and has a limit: what counts is what is returned,
not what was sent; one that takes a moment is given at once, any other lets everything else run
every few milliseconds; of all clients together one large one is built at a time, none while
responses that no client reads fill their memory, and none beyond `MOST_RESPONSE_BYTES`: the
connection is closed while it is built. Kafka (`RequestHandlerHelper`) builds in one of several
threads, without a limit.
"""

import asyncio
import logging
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Generic, TypeVar

from ottla.broker.requests.api import AnyApi, Later, Parts
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import Buffer, Clock
from ottla.model.steps import Driven
from ottla.model.time_slices import SLICE_S, InTimeSlices, TimeSlice, yield_to_loop
from ottla.net.connection import CloseConnection, Connection, Pending
from ottla.wire.codec import encode_in_slices, encode_response
from ottla.wire.headers import RequestHeader, response_header
from ottla.wire.schema import Message

logger = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


MOST_RESPONSE_BYTES = 32 << 20
"""What a response may take in memory; encoding it takes as much again at most."""

ELEMENT_BYTES = 100
"""What an element of a response takes, besides its texts."""

AT_ONCE_BYTES = 1 << 18
"""A larger one is no matter of a moment."""

STEP = 64
"""elements between two looks at the clock"""

LOOK_AGAIN_S = 0.02

Steps = Generator[int, None, Any]
"""Yields what was added to a response, in bytes; returns the response, or its encoded parts."""


class Unencoded(list[Buffer]):
    """In the place of encoded parts: a response that becomes part of another."""

    def __init__(self, message: Any, size: int) -> None:
        super().__init__()
        self.message = message
        self.size = size


def too_large() -> CloseConnection:
    """Return why the connection is closed."""
    return CloseConnection(
        f"a response of more than {MOST_RESPONSE_BYTES >> 20} MiB: ask for less at once"
    )


def respond_in_steps(
    server: BrokerServices, conn: Connection, header: RequestHeader, steps: Steps
) -> "Parts | Later":
    """Respond with what the steps return: at once if that takes a moment, or else in slices."""
    clock = server.world.clock
    until = clock.monotonic() + SLICE_S / 2
    size = 0
    while size <= AT_ONCE_BYTES and clock.monotonic() < until:
        try:
            size += next(steps)
        except StopIteration as end:
            return _encoded(conn, header, end.value, size)
    return _in_slices(server, conn, header, steps, size)


def _encoded(conn: Connection, header: RequestHeader, response: Message, size: int) -> Parts:
    if isinstance(response, list):
        return response
    if getattr(conn, "joins_responses", False):
        return Unencoded(response, size)
    return respond(header, response)


async def _in_slices(
    server: BrokerServices, conn: Connection, header: RequestHeader, steps: Steps, size: int
) -> Parts:
    if getattr(conn, "builds", False):  # what this is a portion of has the turn
        return await _built(server, conn, header, steps, size)
    async with conn.response_memory.building:
        while conn.response_memory.full and not conn.closed:  # noqa: ASYNC110 - seldom, and not for long
            await asyncio.sleep(LOOK_AGAIN_S)  # slow readers are closed within seconds
        return await _built(server, conn, header, steps, size)


async def _built(
    server: BrokerServices, conn: Connection, header: RequestHeader, steps: Steps, size: int
) -> Parts:
    time_slice = TimeSlice(server.world.clock)
    while True:
        if conn.closed:
            raise CloseConnection("the client is gone")
        if size > MOST_RESPONSE_BYTES:
            raise too_large()
        try:
            size += next(steps)
        except StopIteration as end:
            response = end.value
            break
        await time_slice.checkpoint()
    await yield_to_loop()
    if isinstance(response, list) or getattr(conn, "joins_responses", False):
        return _encoded(conn, header, response, size)
    return await respond_in_slices(header, response, server.world.clock)


def respond(header: RequestHeader, response: Message) -> list[Buffer]:
    """Return header and body of a response; the server adds the size."""
    return [_head(header, response), *encode_response(response, header.api_version)]


def _head(header: RequestHeader, response: Message) -> bytes:
    """Put the throttle time into a response, count its errors; return its header."""
    if header.throttle_ms and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = header.throttle_ms
    if header.errors is not None:
        header.errors.count(header, response)
    return response_header(header.api_key, header.api_version, header.correlation_id)


def count_no_error(header: RequestHeader) -> None:
    """Count a response that is written from a template, whose one error code is NONE."""
    if header.errors is not None:
        header.errors.tally(header.api_key)[ErrorCode.NONE] += 1


def respond_steps(
    header: RequestHeader, response: Message
) -> Generator[object, None, list[Buffer]]:
    """Do what `respond` does for a response that may be very large; yields after each slice."""
    head = _head(header, response)
    return [head, *(yield from encode_in_slices(response, header.api_version))]


async def respond_in_slices(header: RequestHeader, response: Message, clock: Clock) -> list[Buffer]:
    """Do what `respond` does for a response that may be very large, and let others run."""
    driven = Driven(respond_steps(header, response))
    async for _ in InTimeSlices(driven, clock):
        pass
    return driven.result


def hold_back(conn: Connection, header: RequestHeader, wait_ms: int) -> None:
    """Tell a client with this response to wait, and read nothing of it for so long (KIP-219).

    Of several reasons to wait the longest one counts.
    """
    if wait_ms > header.throttle_ms:
        header.throttle_ms = wait_ms
        conn.throttle(wait_ms)


def respond_with_body(header: RequestHeader, body: Sequence[Buffer]) -> list[Buffer]:
    """Return header and an already encoded body, whose errors the caller counts."""
    return [response_header(header.api_key, header.api_version, header.correlation_id), *body]


def by_topic(items: Iterable[tuple[TopicPartition, ItemT]]) -> dict[str, list[tuple[int, ItemT]]]:
    """Group what belongs to partitions under their topics, in the order met."""
    topics: dict[str, list[tuple[int, ItemT]]] = {}
    for tp, item in items:
        topics.setdefault(tp.topic, []).append((tp.partition, item))
    return topics


def error_response(
    api: AnyApi, header: RequestHeader, request: Message | None, error: OttlaError
) -> list[Buffer]:
    """Return the response that says why a request failed, in the shape of its API."""
    return respond(header, api.error_response(request, header.api_version, error))


class PendingResult(Pending, Generic[ResultT]):
    """The response to one request, when there is the result that it waits for.

    It is all that a coordinator keeps of a request (`coordinators.requests`).
    """

    __slots__ = ("header",)

    def __init__(self, conn: Connection, header: RequestHeader) -> None:
        super().__init__(conn, pipelined=False)
        self.header = header

    def on_result(self, result: ResultT) -> None:
        try:
            parts = respond(self.header, self.response(result))
        except Exception:  # our bug: others that wait for the same event have no part in it
            logger.exception("response failed api_key=%d", self.header.api_key)
            self.fail("internal error")
        else:
            self.complete(parts)

    def response(self, result: ResultT) -> Message:
        """Return what the result means in this request's version."""
        raise NotImplementedError


def respond_later(
    server: BrokerServices,
    api: AnyApi,
    conn: Connection,
    header: RequestHeader,
    request: Message | None,
    work: Later,
) -> Pending:
    """Respond with what a coroutine returns; an OttlaError it raises becomes the response.

    It runs to its end even if the client goes away: half a topic creation is worse than a response
    that is not read.
    """
    pending = conn.pending(pipelined=False)

    async def run() -> None:
        try:
            pending.complete(await work)
        except CloseConnection as decision:
            pending.fail(str(decision))
        except OttlaError as error:
            pending.complete(error_response(api, header, request, error))
        except asyncio.CancelledError:
            pending.fail("the server is shutting down")
            raise
        except Exception as error:
            logger.exception("request failed api_key=%d peer=%s", header.api_key, conn.peer)
            pending.complete(error_response(api, header, request, OttlaError(str(error))))

    server.tasks.start(run(), f"api-{header.api_key}")
    return pending
