"""HTTP server: answers GET and HEAD with small pages, for monitoring systems and probes.

Invariants: one request per connection, which is closed after its response; a body in a request is
not read; a request's size, the number of connections and the time of each are bounded, so that no
client blocks anything; where all places are taken, who has sent no request or does not read its
response gives way; nothing is logged of what clients send. Bound to a loopback address, it serves
requests for `localhost` and for IP addresses only: a web page whose own host name was pointed at
this machine (DNS rebinding) gets nothing.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from ottla.model.ports import Listener, World
from ottla.net.host_header import is_address, is_allowed

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 16
MAX_REQUEST_BYTES = 8192
REQUEST_WITHIN_S = 5.0
"""From the connection on, until the request is there whole."""
RESPONSE_WITHIN_S = 10.0
"""From the request on, until the response was taken."""
METHODS = ("GET", "HEAD")
PHRASES = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
"""What is answered. Python's own list, and its module for addresses, would take 0.5 MB."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request: its path without the query, and its header fields by their names in lower case."""

    method: str
    path: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response; `body` is sent in one piece after the other."""

    status: int
    content_type: str
    body: Sequence[bytes]


class RefusedRequestError(Exception):
    """A request that is answered with a status of its own."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def plain(status: int, text: str) -> HttpResponse:
    """Return a page of plain text."""
    return HttpResponse(status, "text/plain; charset=utf-8", (text.encode() + b"\n",))


def parse_request(head: bytes) -> HttpRequest:
    """Parse what comes before the empty line; RefusedRequestError for what is not served."""
    line, *rest = head.decode("latin-1").split("\r\n")
    method, space, target = line.partition(" ")
    target, second, version = target.rpartition(" ")
    if not (space and second and target.startswith("/") and version.startswith("HTTP/1.")):
        raise RefusedRequestError(400, "this is no HTTP/1.1 request")
    if method not in METHODS:
        raise RefusedRequestError(405, "only GET and HEAD are served")
    fields = {}
    for field in rest:
        name, colon, value = field.partition(":")
        if not colon or not name or name != name.strip():
            raise RefusedRequestError(400, "a header field is malformed")
        fields[name.lower()] = value.strip()
    return HttpRequest(method, target.partition("?")[0], fields)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host that is listened on."""
    return host in ("localhost", "::1") or (host.startswith("127.") and is_address(host))


class _Connection(asyncio.Protocol):
    """One client's connection, from its request to its response."""

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast("asyncio.Transport", transport)
        connections = self._server.connections
        if len(connections) >= MAX_CONNECTIONS:
            idle = next((c for c in connections if c.asked_nothing), None)
            idle = idle or next((c for c in connections if c.was_answered), None)
            if idle is None:
                stream.abort()
                return
            connections.pop(idle)
            idle.abort()
        connections[self] = None
        self._abort_after(REQUEST_WITHIN_S)

    @property
    def asked_nothing(self) -> bool:
        """Whether no request came yet."""
        return self._task is None

    @property
    def was_answered(self) -> bool:
        """Whether nothing is left but that the client reads its response."""
        return self._task is not None and self._task.done()

    def _abort_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._task is not None or self._transport is None:
            return  # nothing after the request is of interest
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0 and len(self._received) <= MAX_REQUEST_BYTES:
            return
        self._transport.pause_reading()
        self._abort_after(RESPONSE_WITHIN_S)
        head = None if end < 0 or end > MAX_REQUEST_BYTES else bytes(self._received[:end])
        self._task = asyncio.get_running_loop().create_task(self._serve(head), name="http")

    async def _serve(self, head: bytes | None) -> None:
        """Send the response. A loop root."""
        method = "GET"
        try:
            if head is None:
                raise RefusedRequestError(431, f"a request of more than {MAX_REQUEST_BYTES} bytes")
            request = parse_request(head)
            method = request.method
            self._server.check_host(request)
            response = await self._server.respond(request)
        except RefusedRequestError as refused:
            response = plain(refused.status, str(refused))
        except Exception:
            logger.exception("http request failed")
            response = plain(500, "internal error, see the log")
        self._send(method, response)

    def _send(self, method: str, response: HttpResponse) -> None:
        stream = self._transport
        if stream is None:
            return
        lines = [
            f"HTTP/1.1 {response.status} {PHRASES[response.status]}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {sum(map(len, response.body))}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        if response.status == 405:
            lines.append(f"Allow: {', '.join(METHODS)}")
        stream.write("".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1"))
        if method != "HEAD":
            stream.writelines(response.body)
        stream.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self._server.connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


class HttpServer:
    """A listening socket; `respond` makes the response to each request."""

    def __init__(
        self,
        world: World,
        host: str,
        port: int,
        respond: Callable[[HttpRequest], Awaitable[HttpResponse]],
    ) -> None:
        self.respond = respond
        self.connections: dict[_Connection, None] = {}
        """the oldest first"""
        self._world = world
        self._host = host
        self._wanted_port = port
        self._listener: Listener | None = None

    @property
    def port(self) -> int:
        """The bound port, also when 0 was asked for."""
        assert self._listener is not None, "not open"
        return self._listener.port

    async def open(self) -> None:
        """Start to listen; OSError if the address cannot be had."""
        self._listener = await self._world.network.listen(
            self._host, self._wanted_port, lambda: _Connection(self)
        )

    def check_host(self, request: HttpRequest) -> None:
        """Refuse a request for a host name that cannot be meant."""
        named = request.fields.get("host", "")
        if named and is_loopback(self._host) and not is_allowed(named, ()):
            raise RefusedRequestError(
                421, "this address serves requests for localhost and for IP addresses only"
            )

    def close(self) -> None:
        """Stop listening and close all connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            with contextlib.suppress(RuntimeError):  # the loop is closing, too
                connection.abort()
