"""One client's connection to our server: frames in, replies and notifications out, in order.

Who may call: `memory`. Invariants: what a connection is sent waits, in its order, until the
transactions before it are durable (`emit`); a client that does not read is not read from, and is
closed once too much waits for it. ZooKeeper: `NIOServerCnxn`.
"""

import asyncio
import logging
import struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.model.errors import WireError
from ottla.model.ports import World
from ottla.zookeeper import jute
from ottla.zookeeper.watches import WatchEvent
from ottla.zookeeper.znode_acls import Identities, Identity

if TYPE_CHECKING:
    from ottla.security.sasl.digest_md5 import DigestMd5Server

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 0xFFFFF


class Limits(NamedTuple):
    """What clients may use of a server."""

    connections: int = 5000
    sessions: int = 20_000
    hello_s: float = 10.0
    """How long a connection may be open without a session."""
    outstanding_requests: int = 1000
    """Replies that wait for the disk, of all clients; beyond it no client is read from."""
    outstanding_bytes: int = 16 << 20
    output_bytes: int = 16 << 20
    """What may wait for a client to read it."""


class Totals:
    """What a server has counted since it was made."""

    __slots__ = ("auth_failed", "last_reply", "least_reply", "most_reply", "received", "sent")

    def __init__(self) -> None:
        self.received = self.sent = 0
        """Of connections that are gone."""
        self.auth_failed = 0
        self.last_reply = self.least_reply = self.most_reply = -1
        """Bytes of replies; -1 before the first one, as in ZooKeeper."""

    def replied(self, size: int) -> None:
        self.last_reply = size
        self.most_reply = max(self.most_reply, size)
        self.least_reply = min(self.least_reply, size) if self.least_reply >= 0 else size


class ServerSession:
    """A session as the server sees it."""

    __slots__ = ("connection", "expires_s", "id", "password", "timeout_ms")

    def __init__(self, session_id: int, password: bytes, timeout_ms: int) -> None:
        self.id = session_id
        self.password = password
        self.timeout_ms = timeout_ms
        self.expires_s = 0.0
        self.connection: Connection | None = None


class ConnectionOwner(Protocol):
    """What a connection needs of its server."""

    limits: Limits | None
    world: World

    def on_connected(self, connection: "Connection") -> bool: ...

    def on_disconnected(self, connection: "Connection") -> None: ...

    def open_session(self, connection: "Connection", hello: jute.ConnectRequest) -> None: ...

    def on_request(self, connection: "Connection", frame: bytes) -> None: ...

    def on_word(self, connection: "Connection", word: bytes) -> bool: ...

    def emit(self, connection: "Connection", frame: bytes | None) -> None: ...


class Connection(asyncio.Protocol):
    """See the module."""

    def __init__(self, server: ConnectionOwner) -> None:
        self._server: ConnectionOwner | None = server
        self._frames = jute.Frames(MAX_FRAME_BYTES)
        self.limits = server.limits
        self.transport: asyncio.Transport | None = None
        self.session: ServerSession | None = None
        self.identities: Identities = frozenset()
        self.sasl: DigestMd5Server | None = None
        """Its authentication, once it began one."""
        self.peer = ""
        self.opened_s = server.world.clock.monotonic()
        self.received = self.sent = 0
        self.last = (jute.CREATE_SESSION, 0, 0)
        """Operation, xid and zxid of the last reply."""
        self._full = False
        """Whether the client reads too slowly for now."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        if peer:
            self.peer = f"{peer[0]}:{peer[1]}"
            self.identities = frozenset([Identity("ip", str(peer[0]))])
        if self._server is not None and not self._server.on_connected(self):
            log.warning("connection refused, too many are open peer=%s", self.peer)
            self.drop()

    def data_received(self, data: bytes) -> None:
        server = self._server
        if server is None:
            return
        try:
            if self.session is None and server.on_word(self, data[:4]):
                return
            buf, spans = self._frames.feed(data)
            for start, end in spans:
                if self._server is None:
                    return
                self.received += 1
                if self.session is None:
                    server.open_session(self, jute.ConnectRequest.decode(buf[start:end]))
                else:
                    server.on_request(self, buf[start:end])
        except (WireError, struct.error) as error:
            log.info("connection dropped peer=%s error=%s", self.peer, error)
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        self._forget()

    def pause_writing(self) -> None:
        if self.limits is not None and self.transport is not None:
            self._full = True
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        self.resume()

    def pause(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.transport is not None and not self._full and not self.transport.is_closing():
            self.transport.resume_reading()

    def send(self, frame: bytes) -> None:
        if self._server is not None:
            self._server.emit(self, frame)

    def write(self, data: bytes) -> None:
        """Hand bytes to the transport; for the server's `emit`."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if self.limits is not None and transport.get_write_buffer_size() > self.limits.output_bytes:
            log.warning("connection dropped, its client does not read peer=%s", self.peer)
            self.drop()

    def notify(self, event: WatchEvent) -> None:
        body = jute.XID_OP.pack(event.type, jute.SYNC_CONNECTED) + jute.string(event.path)
        self.send(jute.reply(jute.XID_NOTIFICATION, -1, 0, body))

    def close(self) -> None:
        """Close after what was sent has gone out."""
        if self._server is not None:
            self._server.emit(self, None)
        self._forget()

    def drop(self) -> None:
        """Close at once; what is on its way may be lost."""
        if self.transport is not None:
            self.transport.abort()
        self._forget()

    def _forget(self) -> None:
        if self._server is not None:
            self._server.on_disconnected(self)
            self._server = None
