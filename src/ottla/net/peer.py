"""A connection to one broker: requests are pipelined, responses matched in order.

Invariants: a response whose correlation id is not the oldest open one's ends the connection; so
does a request that is not answered in time, as in Kafka's `NetworkClient`, since everything behind
it is late too; one timer serves all deadlines; when the connection ends every open future fails
with ConnectionLostError, and nothing is sent again here.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError, WireError
from ottla.model.ports import Buffer, World, address_text
from ottla.net.framing import JOIN_BYTES, FrameReader, scratch_of
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import decode_response_header, encode_request_header, frame
from ottla.wire.schema import Message, R, Request

if TYPE_CHECKING:
    from ottla.security.client import ClientSecurity
    from ottla.security.sasl.exchange import SaslClient

API_VERSIONS_KEY = 18
SASL_KEYS = frozenset({17, 36})
"""SaslHandshake and SaslAuthenticate: sent while others are held."""
CLOSED = "closed by the peer"
"""Why a connection was lost that the other side closed."""
MAX_IN_FLIGHT = 10_000
MAX_RESPONSE_BYTES = 1_073_741_824
"""A fetch response holds at least one batch per partition: far above a request's bound."""

NEVER = float("inf")


class _Open(msgspec.Struct, eq=False):
    """A request that waits for its response."""

    correlation_id: int
    api_key: int
    version: int
    deadline: float
    timeout_s: float
    future: asyncio.Future[Any]


def _response_version(request: _Open, received: memoryview, position: int) -> int:
    """Return a response's version: an unknown version of ApiVersions is refused in version 0."""
    if request.api_key == API_VERSIONS_KEY:
        code = int.from_bytes(received[position : position + 2], "big")
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return 0
    return request.version


class PeerConnection(asyncio.BufferedProtocol):
    """One open connection; dead after the first problem. Make it with `open`."""

    def __init__(self, host: str, port: int, client_id: str | None) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self.closed = False
        self.lost_reason = ""
        self.timed_out = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(MAX_RESPONSE_BYTES, scratch_of(self._loop))
        self._open: deque[_Open] = deque()
        self._next_correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._lost: list[Callable[[], None]] = []
        self._held: list[tuple[_Open | None, list[Buffer]]] | None = None
        self._again: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        world: World,
        host: str,
        port: int,
        client_id: str | None,
        *,
        timeout_s: float,
        security: "ClientSecurity | None" = None,
    ) -> "PeerConnection":
        """Connect as the listener wants it (None: in the clear, unauthenticated).

        Connecting with TLS and authenticating may take `timeout_s` each. ConnectionLostError if
        that fails or takes longer; ServerRefusedError if the server refuses us.
        """
        peer = cls(host, port, client_id)
        try:
            if security is None or security.tls is None:
                await world.network.connect(host, port, lambda: peer, timeout_s=timeout_s)
            else:
                from ottla.net.tls_network import connect_tls  # few clients need it

                await connect_tls(world.network, security.tls, host, port, peer, timeout_s)
        except OSError as error:
            peer.close()
            late = isinstance(error, TimeoutError) and not error.args  # not the system's own
            why = f"no response within {timeout_s:g} s" if late else _reason(error)
            raise ConnectionLostError(f"cannot reach {address_text(host, port)}: {why}") from error
        except BaseException:
            peer.close()
            raise
        if security is not None and security.sasl is not None:
            await peer.authenticate(security.sasl, timeout_s, world.random.random())
        return peer

    async def authenticate(self, sasl: "SaslClient", timeout_s: float, jitter: float) -> None:
        """Authenticate, and see to it that the session does not end before the connection."""
        from ottla.net import peer_authentication as steps  # lazy: few need it

        try:
            async with asyncio.timeout(timeout_s):
                lifetime_s = await steps.authenticate(self, sasl, timeout_s)
        except TimeoutError:
            self.end(f"not authenticated within {timeout_s:g} s")
            raise ConnectionLostError(f"{self.address}: {self.lost_reason}") from None
        except BaseException as error:
            self.end(str(error))
            raise
        if lifetime_s > 0:
            part = steps.FIRST_PART + (steps.LAST_PART - steps.FIRST_PART) * jitter
            self._again = self._loop.create_task(
                steps.authenticate_again(self, sasl, lifetime_s, part, timeout_s)
            )

    @property
    def address(self) -> str:
        return address_text(self.host, self.port)

    @property
    def in_flight(self) -> int:
        return len(self._open)

    def send(self, message: Request[R], version: int, timeout_s: float) -> asyncio.Future[R]:
        """Send a request now; the future holds its decoded response message.

        Cancelling the future gives up the response, not the request. ConnectionLostError is raised
        at once when the connection is already closed, and set on the future when it ends later.
        """
        return self.send_encoded(
            message.API_KEY, version, encode_request(message, version), timeout_s
        )

    def send_encoded(
        self, api_key: int, version: int, body: list[Buffer], timeout_s: float
    ) -> asyncio.Future[Any]:
        """Send a request whose body is encoded already, as when many peers are sent the same."""
        correlation_id, parts = self._framed(api_key, version, body)
        loop = self._loop
        future = loop.create_future()
        deadline = loop.time() + timeout_s
        request = _Open(correlation_id, api_key, version, deadline, timeout_s, future)
        if self._held is not None and api_key not in SASL_KEYS:
            self._held.append((request, parts))
        else:
            self._put(request, parts)
        return future

    def send_without_response(self, message: Message, version: int) -> None:
        """Send a request that has no response: Produce with acks=0."""
        _, parts = self._framed(message.API_KEY, version, encode_request(message, version))
        if self._held is not None:
            self._held.append((None, parts))
        else:
            self._put(None, parts)

    def hold(self) -> None:
        """Hold all requests from now on but those of authentication."""
        self._held = []

    def release(self) -> None:
        """Send what was held, in its order."""
        held, self._held = self._held, None
        for request, parts in held or ():
            if not self.closed:
                self._put(request, parts)

    def end(self, reason: str) -> None:
        """End the connection at once, for a reason of the caller's."""
        self._end(reason)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the connection has ended, whoever ended it."""
        self._lost.append(callback)

    def close(self) -> None:
        """Close once what was sent has left; open requests fail."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        self._end("closed by us")

    def _check_open(self) -> None:
        if self.closed or self._transport is None:
            raise ConnectionLostError(f"{self.address}: {self.lost_reason}")
        if len(self._open) >= MAX_IN_FLIGHT:
            raise ConnectionLostError(f"{self.address}: {MAX_IN_FLIGHT} open requests")

    def _framed(self, api_key: int, version: int, body: list[Buffer]) -> tuple[int, list[Buffer]]:
        """Return a request's correlation id and its bytes."""
        self._check_open()
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(api_key, version, correlation_id, self.client_id)
        return correlation_id, frame(header, body)

    def _put(self, request: _Open | None, parts: list[Buffer]) -> None:
        """Write a request, and wait for its response."""
        transport = self._transport
        assert transport is not None
        if sum(map(len, parts)) <= JOIN_BYTES:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)
        if request is not None:
            self._open.append(request)
            if request.deadline < self._timer_at:
                self._arm(request.deadline)

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, so there is nothing to check.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"connection lost: {exc}" if exc else CLOSED)

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        for received in self._reader.advance(nbytes):
            self._responded(received)
        if self._reader.problem is not None:
            self._end(self._reader.problem)

    def _responded(self, received: memoryview) -> None:
        if self.closed:
            return
        if not self._open:
            self._end("a response without a request")
            return
        first = self._open[0]
        try:
            correlation_id, position = decode_response_header(
                first.api_key, first.version, received
            )
            if correlation_id != first.correlation_id:
                raise WireError(
                    f"response {correlation_id} where {first.correlation_id} was expected"
                )
            version = _response_version(first, received, position)
            response = decode_response(first.api_key, version, received, position)
        except OttlaError as error:
            self._end(f"unreadable response to api {first.api_key} v{first.version}: {error}")
            return
        self._open.popleft()
        if not first.future.done():
            first.future.set_result(response)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        self._timer_at = NEVER
        if not self._open:
            return
        soonest = min(self._open, key=lambda request: request.deadline)
        if soonest.deadline <= self._loop.time():
            self.timed_out = True
            what = f"api {soonest.api_key} v{soonest.version}"
            self._end(f"no response to {what} within {soonest.timeout_s:g} s")
        else:
            self._arm(soonest.deadline)

    def _end(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self.lost_reason = reason
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if self._again is not None and self._again is not asyncio.current_task(self._loop):
            self._again.cancel()
        held, self._held = self._held, None
        without_response, self._open = self._open, deque()
        without_response.extend(request for request, _ in held or () if request is not None)
        for request in without_response:
            if not request.future.done():
                request.future.set_exception(ConnectionLostError(f"{self.address}: {reason}"))
        callbacks, self._lost = self._lost, []
        for callback in callbacks:
            callback()


def _reason(error: OSError) -> str:
    """Return the system's words, without the number where there is one error."""
    if error.errno is None or error.errno < 0:  # several addresses; a name that is not known
        return error.strerror or str(error)
    return os.strerror(error.errno)
