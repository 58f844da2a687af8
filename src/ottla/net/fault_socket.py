"""Fault socket: a Unix socket by which the user who runs a broker has its connections fail.

A request is one line of JSON, its response another one. Invariants: the socket is its owner's
alone, as the status socket is; faults end by themselves, MOST_S after they were asked for at most;
requests are bounded in number, bytes and time.
"""

import asyncio
import logging
from typing import cast

import msgspec

from ottla.net import status_socket
from ottla.net.faults import FaultyNetwork, Link

logger = logging.getLogger(__name__)

MOST_S = 3600.0
MOST_LINKS = 256
MAX_REQUEST_BYTES = 65_536
MAX_CONNECTIONS = 8
REQUEST_WITHIN_S = 5.0


class FaultRequest(msgspec.Struct):
    """The faults that are to be in force, and no other. `links`: by `host:port`; None: as now."""

    links: dict[str, Link] | None = None
    lasts_s: float = MOST_S


class FaultResponse(msgspec.Struct):
    """The faults that are in force, and for how long. `problem`: why a request was refused."""

    links: dict[str, Link] = {}
    left_s: float = 0.0
    problem: str = ""


class _Connection(asyncio.Protocol):
    """One request and its response."""

    def __init__(self, owner: "FaultSocket") -> None:
        self._owner = owner
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._owner.connections += 1
        if self._owner.connections > MAX_CONNECTIONS:
            self._transport.abort()
            return
        abort = self._transport.abort
        self._timer = asyncio.get_running_loop().call_later(REQUEST_WITHIN_S, abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        line, end, _ = self._received.partition(b"\n")
        if len(line) > MAX_REQUEST_BYTES:
            self._transport.abort()
        elif end:
            self._transport.pause_reading()
            self._transport.write(msgspec.json.encode(self._owner.respond(line)) + b"\n")
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._owner.connections -= 1
        if self._timer is not None:
            self._timer.cancel()


class FaultSocket:
    """The faults of a network, at a path."""

    def __init__(self, path: str, network: FaultyNetwork) -> None:
        self.connections = 0
        self._path = path
        self._network = network
        self._links: dict[str, Link] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Start listening; removes a stale socket. OSError if the path cannot be bound."""
        self._server = await status_socket.listen(self._path, lambda: _Connection(self))

    def close(self) -> None:
        """Stop listening, remove the socket, and end all faults."""
        self._put_into_force({}, 0.0)
        if self._server is not None:
            self._server.close()
            self._server = None
            status_socket.remove_socket(self._path)

    def respond(self, line: bytes) -> FaultResponse:
        """Return what is in force after a request."""
        try:
            request = msgspec.json.decode(line, type=FaultRequest)
        except msgspec.DecodeError as error:
            return self._in_force(f"no request: {error}")
        if request.links is None:
            return self._in_force()
        if not 0 < request.lasts_s <= MOST_S:
            return self._in_force(f"lasts_s={request.lasts_s:g}: more than 0, at most {MOST_S:g}")
        if len(request.links) > MOST_LINKS:
            return self._in_force(f"{len(request.links)} links: at most {MOST_LINKS}")
        self._put_into_force(request.links, request.lasts_s)
        return self._in_force()

    def _in_force(self, problem: str = "") -> FaultResponse:
        left_s = 0.0
        if self._timer is not None:
            left_s = max(0.0, self._timer.when() - asyncio.get_running_loop().time())
        return FaultResponse(self._links, left_s, problem)

    def _put_into_force(self, links: dict[str, Link], lasts_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if links != self._links:
            what = ", ".join(f"{address} ({link.mode})" for address, link in sorted(links.items()))
            logger.warning("connections made to fail endpoints=%s", what or "none")
        self._links = links
        self._network.apply(links)
        if links:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(lasts_s, self._put_into_force, {}, 0.0)


def ask(path: str, request: FaultRequest, timeout_s: float) -> FaultResponse:
    """Put faults into force, or ask for those in force. OSError if no broker listens or answers."""
    encoded = msgspec.json.encode(request) + b"\n"
    response = status_socket.read(path, timeout_s, encoded)
    try:
        return msgspec.json.decode(response, type=FaultResponse)
    except msgspec.DecodeError as error:
        raise OSError(f"{path}: no response: {error}") from error
