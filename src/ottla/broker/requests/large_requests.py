"""Large requests: what holds very many elements is read, handled and answered in slices (F46).

Invariants: of all large requests together one works on the event loop at a time, a few
milliseconds; then everything else has its turn. A request that can be cut is handled by its usual
handler, a portion at a time, each as large as a few milliseconds bear; one that cannot holds so few
elements that it is handled at once. Work for a client that is gone stops. Kafka handles a request
in one of several threads and needs nothing like it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar, cast

from ottla.broker.requests.api import AnyApi, Response
from ottla.broker.requests.responses import (
    AT_ONCE_BYTES,
    MOST_RESPONSE_BYTES,
    Unencoded,
    respond_later,
    respond_steps,
    too_large,
)
from ottla.broker.services import BrokerServices
from ottla.model.errors import WireError
from ottla.model.ports import Buffer
from ottla.model.steps import Driven
from ottla.model.time_slices import SLICE_S, yield_to_loop
from ottla.net.connection import CloseConnection, Connection, Pending
from ottla.wire.codec import (
    MAX_ELEMENTS,
    decode_request_in_slices,
    decode_response,
)
from ottla.wire.headers import RequestHeader, decode_response_header
from ottla.wire.portions import Joined, Shape, cut, forget, is_to_be_cut
from ottla.wire.schema import Message

T = TypeVar("T")
Serve = Callable[[Connection, RequestHeader, Message], Response]
"""Handles a request for a connection, errors included."""

NOTICEABLE_BYTES = 1024
"""Smaller frames are never looked at: what they hold is handled at once."""

LEAST, MOST = 1, 256
"""elements in a portion"""

FIRST = 16

MOST_IN_TASKS = 128
"""elements in a portion that a task handles: how long it works is not measured"""

PATIENCE_S = 0.02
"""A portion that is waiting for longer lets other large requests go on."""


class LargeRequests:
    """The large requests of one server."""

    def __init__(self, server: BrokerServices, monotonic: Callable[[], float]) -> None:
        self._server = server
        self._monotonic = monotonic
        self._lane = asyncio.Semaphore(1)
        self.total = 0

    def handle(
        self,
        api: AnyApi,
        conn: Connection,
        header: RequestHeader,
        request: Message,
        shape: Shape,
        serve: Serve,
    ) -> Pending:
        """Handle a request in portions."""
        work = self._in_portions(api, conn, header, request, shape, serve)
        return respond_later(self._server, api, conn, header, request, work)

    def read_and_handle(
        self,
        api: AnyApi,
        conn: Connection,
        header: RequestHeader,
        frame: memoryview,
        pos: int,
        shape: Shape,
        serve: Serve,
    ) -> Pending:
        """Read a large frame in slices, then handle its request in portions or as a whole."""

        async def work() -> Sequence[Buffer]:
            try:
                request = await self._read(header, frame, pos)
            except WireError as error:
                raise CloseConnection(str(error)) from error
            if is_to_be_cut(request, shape):
                return await self._in_portions(api, conn, header, request, shape, serve)
            aside = Aside(conn)
            async with self._lane:
                outcome = serve(cast("Connection", aside), header, request)
                await yield_to_loop()
            parts = await aside.parts(outcome)
            if isinstance(parts, Unencoded):
                return await self._in_slices(respond_steps(header, parts.message))
            return parts

        return respond_later(self._server, api, conn, header, None, work())

    def read_and_serve(
        self, conn: Connection, header: RequestHeader, frame: memoryview, pos: int, serve: Serve
    ) -> Pending:
        """Read a large Fetch in slices, then serve it as a whole: its session cannot be cut.

        What its handler keeps until there is a response ends when the client goes.
        """
        pending = Deferred(conn)

        async def work() -> None:
            try:
                request = await self._read(header, frame, pos)
                async with self._lane:
                    if not pending.done:
                        pending.serve(serve(cast("Connection", pending), header, request))
                    await yield_to_loop()
            except (CloseConnection, WireError) as error:
                pending.fail(str(error))
            except asyncio.CancelledError:
                pending.fail("the server is shutting down")
                raise

        self._server.tasks.start(work(), f"api-{header.api_key}")
        return pending

    async def _read(self, header: RequestHeader, frame: memoryview, pos: int) -> Any:
        """Read a request in slices; WireError where it is none."""
        return await self._in_slices(
            decode_request_in_slices(
                header.api_key, header.api_version, frame, pos, rest_ok=True, most=MAX_ELEMENTS
            )
        )

    async def _in_slices(self, steps: Generator[object, None, T]) -> T:
        """Do work that may be long, a few milliseconds of it at a time."""
        driven = Driven(steps)
        rest = iter(driven)
        while True:
            async with self._lane:
                until = self._monotonic() + SLICE_S / 2
                for _ in rest:
                    if self._monotonic() >= until:
                        break
                else:
                    return driven.result
                await yield_to_loop()

    async def _in_portions(
        self,
        api: AnyApi,
        conn: Connection,
        header: RequestHeader,
        request: Message,
        shape: Shape,
        serve: Serve,
    ) -> Sequence[Buffer]:
        self.total += 1
        joined = Joined(shape)
        try:
            async with contextlib.AsyncExitStack() as builds:
                await self._join(joined, api, conn, header, request, shape, serve, builds)
                written = await self._in_slices(respond_steps(header, joined.response))
            await self._in_slices(forget(request, shape.asked))
        finally:
            await self._in_slices(joined.forget())
        return written

    async def _join(
        self,
        joined: Joined,
        api: AnyApi,
        conn: Connection,
        header: RequestHeader,
        request: Message,
        shape: Shape,
        serve: Serve,
        builds: contextlib.AsyncExitStack,
    ) -> None:
        """Do so; once the response is a large one, no other is built meanwhile."""
        size = [FIRST]
        responded, alone = 0, False
        reads = api.large_response  # what else there is may wait long for others
        portions = cut(request, shape, size)
        ends = self._monotonic() + max(getattr(request, "timeout_ms", 0), 0) / 1000
        while (portion := await self._next(portions)) is not None:
            if conn.closed:
                raise CloseConnection("the client is gone")
            if getattr(portion, "timeout_ms", 0) > 0:  # all portions together have that long
                portion.timeout_ms = max(int((ends - self._monotonic()) * 1000), 1)
            if responded > AT_ONCE_BYTES and reads and not alone:
                alone = True
                await builds.enter_async_context(conn.response_memory.building)
            aside = Aside(conn, builds=alone)
            async with self._lane:
                began = self._monotonic()
                outcome = serve(cast("Connection", aside), header, portion)
                took = self._monotonic() - began
                if isinstance(outcome, Pending):
                    await asyncio.wait({aside.responded}, timeout=PATIENCE_S)
                await yield_to_loop()
            parts = await aside.parts(outcome)
            responded += parts.size if isinstance(parts, Unencoded) else sum(map(len, parts))
            if responded > MOST_RESPONSE_BYTES:
                raise too_large()
            async with self._lane:
                began = self._monotonic()
                joined.add(decoded(header, parts))
                took += self._monotonic() - began
                await yield_to_loop()
            if took < SLICE_S / 4:
                most = MOST_IN_TASKS if isinstance(outcome, Pending) else MOST
                size[0] = min(size[0] * 2, most)
            elif took > SLICE_S / 2:
                size[0] = max(size[0] // 2, LEAST)

    async def _next(self, portions: Generator[Any, None, None]) -> Any:
        """Return the next portion, None after the last."""

        def steps() -> Generator[None, None, Any]:
            for portion in portions:
                if portion is not None:
                    return portion
                yield
            return None

        try:
            return await self._in_slices(steps())
        except WireError as error:
            raise CloseConnection(str(error)) from error


def decoded(header: RequestHeader, parts: Sequence[Buffer]) -> Any:
    """Return a handler's response, which is to be part of another: its errors count with that."""
    if isinstance(parts, Unencoded):
        return parts.message
    whole = memoryview(b"".join(parts))
    try:
        _, at = decode_response_header(header.api_key, header.api_version, whole)
        response = decode_response(header.api_key, header.api_version, whole, at)
    except WireError as error:
        raise CloseConnection(f"our error: {error}") from error
    if header.errors is not None:
        header.errors.count(header, response, -1)
    return response


class Deferred(Pending):
    """A response that is awaited before its handler was called, and the handler's connection.

    `inner` is what the handler returned if its response, too, comes later.
    """

    __slots__ = ("inner",)

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, pipelined=False)
        self.inner: Pending | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def serve(self, outcome: Response) -> None:
        """Respond with what the handler returned."""
        if isinstance(outcome, Pending):
            self.inner = outcome
        else:
            self.complete(outcome)

    def completed(self, inner: Pending) -> None:
        """Pass the handler's response on. `Pending.complete` calls it, as that of a connection."""
        self.complete(inner.parts)

    def drop(self) -> None:
        super().drop()
        if self.inner is not None:
            self.inner.drop()


class Aside:
    """Stands for a connection where a handler's response is not yet what the client is sent."""

    joins_responses = True

    def __init__(self, conn: Connection, *, builds: bool = False) -> None:
        """Stand in for `conn`; `builds`: its request has the turn to build a large response."""
        self._conn = conn
        self.builds = builds or getattr(conn, "builds", False)
        self.responded: asyncio.Future[Sequence[Buffer]] = (
            asyncio.get_running_loop().create_future()
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    async def parts(self, outcome: Response) -> Sequence[Buffer]:
        """Return the response, which may be still to come."""
        if isinstance(outcome, Pending):
            return await self.responded
        if outcome is None:
            raise CloseConnection("a handler without a response")
        return outcome

    def pending(self, pipelined: bool) -> Pending:  # noqa: ARG002 - as a connection has it
        return Pending(cast("Connection", self), pipelined=True)

    def completed(self, pending: Pending) -> None:
        if not self.responded.done():
            self.responded.set_result([] if pending.parts is None else pending.parts)

    def refuse(self, reason: str) -> None:
        if not self.responded.done():
            self.responded.set_exception(CloseConnection(reason))

    def unblock_next(self) -> None:
        """Nothing waits for this: the client's next request waits for the whole response."""
