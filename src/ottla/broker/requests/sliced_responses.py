"""Sliced responses: one that may be far larger than its request is built in slices, and bounded.

Invariants: what counts is what is returned, not what was sent; one that takes a moment is given at
once, any other lets everything else run every few milliseconds; of all clients together one large
one is built at a time, none while responses that no client reads fill their memory, and none beyond
`MOST_RESPONSE_BYTES`: the connection is closed while it is built. Kafka builds in one of several
threads, without a bound.
"""

import asyncio
from collections.abc import Generator
from typing import Any

from ottla.broker.requests.api import Later, Parts
from ottla.broker.requests.responses import respond, respond_in_slices
from ottla.broker.services import BrokerServices
from ottla.model.ports import Buffer
from ottla.model.time_slices import SLICE_S, TimeSlice, yield_to_loop
from ottla.net.connection import CloseConnection, Connection
from ottla.wire.headers import RequestHeader

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


def _encoded(conn: Connection, header: RequestHeader, response: Any, size: int) -> Parts:
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
