"""One client's connection to our server: frames in, replies and notifications out, in order.

Invariants: what a connection is sent waits, in its order, until the transactions before it are
durable (`emit`); requests are done in their order, in turns with those of others; a client that
does not read is not read from, and is closed once too much waits for it. ZooKeeper:
`NIOServerCnxn`.
"""

import asyncio
import logging
import math
import struct
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.model.errors import WireError
from ottla.model.ports import World
from ottla.zookeeper import jute
from ottla.zookeeper.watches import WatchEvent
from ottla.zookeeper.znode_acls import SASL, Identities, Identity

if TYPE_CHECKING:
    from ottla.security.sasl.digest_md5 import DigestMd5Server

from ottla.model.ports import Clock

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 0xFFFFF
MAX_FIRST_FRAME_BYTES = 1024
"""Before a client has a session and, where SASL is required, before it authenticated."""
LINES = 10
LINES_S = 10.0
LARGE_OUTPUT_BYTES = 256 << 10


TURN_S = 0.010
SLICE_S = 0.002


class Worker(Protocol):
    """What has requests."""

    def work(self, until_s: float) -> bool:
        """Carry out requests until then; return whether none is left that it can do."""


class Turns:
    """Whose requests a server carries out next: each connection has short slices of the time.

    Invariants: requests take `TURN_S` of one round of the loop at most, plus the request in hand; a
    connection that sent more than a slice's worth comes after those that did not. ZooKeeper: a
    thread per core (the workers of `CommitProcessor`) does this there.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: float | None = None
        """When this round's time is up; None while there is nothing to do."""
        self._fresh: deque[Worker] = deque()
        self._continuing: deque[Worker] = deque()

    def add(self, worker: Worker) -> None:
        """Let it work now if this round has time left, else in a later one."""
        now_s = self._clock.monotonic()
        if self._until_s is None:
            self._until_s = now_s + TURN_S
            asyncio.get_running_loop().call_soon(self._next_round)
        if self._fresh or now_s >= self._until_s:
            self._fresh.append(worker)
        else:
            self._slice(worker, now_s)

    def _slice(self, worker: Worker, now_s: float) -> None:
        if not worker.work(now_s + SLICE_S):
            self._continuing.append(worker)

    def _next_round(self) -> None:
        if not self._fresh and not self._continuing:
            self._until_s = None
            return
        now_s = self._clock.monotonic()
        self._until_s = until_s = now_s + TURN_S
        asyncio.get_running_loop().call_soon(self._next_round)
        for _ in range(len(self._continuing)):
            self._slice(self._continuing.popleft(), now_s)  # at least one, so that none starves
            now_s = self._clock.monotonic()
            if self._fresh or now_s >= until_s:
                break
        while self._fresh and now_s < until_s:
            self._slice(self._fresh.popleft(), now_s)
            now_s = self._clock.monotonic()


class Limits(NamedTuple):
    """What clients may use of a server."""

    connections: int = 5000
    sessions: int = 20_000
    hello_s: float = 10.0
    """How long a connection may be open without a session."""
    waiting: int = 256
    """Connections of one address without a session of their own: beyond it the oldest gives way."""
    input_bytes: int = 32 << 20
    """Requests of all clients that came in part, or wait for their turn."""
    outstanding_requests: int = 1000
    """Replies that wait for the disk, of all clients; beyond it no client is read from."""
    outstanding_bytes: int = 16 << 20
    output_bytes: int = 16 << 20
    """What may wait for a client to read it."""
    total_output_bytes: int = 64 << 20
    """The same of all clients."""


class Lines:
    """How many lines clients may cause in the log: `LINES` in `LINES_S`; then those are counted."""

    def __init__(self, world: World) -> None:
        self._clock = world.clock
        self._since_s = -math.inf
        self._written = self._left_out = 0

    def allowed(self) -> bool:
        """Return whether a line may be written now."""
        now_s = self._clock.monotonic()
        if now_s - self._since_s >= LINES_S:
            if self._left_out:
                log.warning("lines about clients left out count=%d", self._left_out)
            self._since_s, self._written, self._left_out = now_s, 0, 0
        self._written += 1
        self._left_out += self._written > LINES
        return self._written <= LINES


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

    __slots__ = ("connection", "expires_s", "id", "owner", "password", "timeout_ms")

    def __init__(self, session_id: int, password: bytes, timeout_ms: int) -> None:
        self.id = session_id
        self.password = password
        self.timeout_ms = timeout_ms
        self.expires_s = 0.0
        self.owner: Identity | None = None
        """Who authenticated by SASL with it: no other identity continues it."""
        self.connection: Connection | None = None


class ConnectionOwner(Protocol):
    """What a connection needs of its server."""

    limits: Limits | None
    world: World
    turns: Turns
    lines: Lines
    input_bytes: int

    def on_connected(self, connection: "Connection") -> bool: ...

    def on_disconnected(self, connection: "Connection") -> None: ...

    def open_session(self, connection: "Connection", hello: jute.ConnectRequest) -> None: ...

    def on_request(self, connection: "Connection", frame: bytes) -> Iterator[None] | None: ...

    def takes_requests(self, connection: "Connection") -> bool: ...

    def make_room(self) -> None: ...

    def on_output(self) -> None: ...

    def on_word(self, connection: "Connection", word: bytes) -> bool: ...

    def emit(self, connection: "Connection", frame: bytes | None) -> None: ...


class Connection(asyncio.Protocol):
    """See the module."""

    def __init__(self, server: ConnectionOwner) -> None:
        self._server: ConnectionOwner | None = server
        self._frames = jute.Frames(MAX_FIRST_FRAME_BYTES)
        self.limits = server.limits
        self.transport: asyncio.Transport | None = None
        self.session: ServerSession | None = None
        self.is_trusted = False
        """Whether it may act for its session: it shows first whose that is, where it must."""
        self.continues = False
        """Whether it asked for a session that there was."""
        self.timeout_ms = 0
        self.identities: Identities = frozenset()
        self.sasl: DigestMd5Server | None = None
        """Its authentication, once it began one."""
        self.peer = self.address = ""
        self.opened_s = server.world.clock.monotonic()
        self.received = self.sent = 0
        self.last = (jute.CREATE_SESSION, 0, 0)
        """Operation, xid and zxid of the last reply."""
        self._todo: deque[bytes] = deque()
        self._todo_bytes = 0
        self._task: Iterator[None] | None = None
        """A request that takes several steps."""
        self._is_queued = False
        self.input_bytes = 0
        self._full = False
        """Whether the client reads too slowly for now."""
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        if peer:
            self.peer, self.address = f"{peer[0]}:{peer[1]}", str(peer[0])
            self.identities = frozenset([Identity("ip", self.address)])
        server = self._server
        if server is not None and not server.on_connected(self):
            if server.lines.allowed():
                log.warning("connection refused, too many are open peer=%s", self.peer)
            self.drop()

    @property
    def sasl_identity(self) -> Identity | None:
        """Who it is by SASL."""
        user = None if self.sasl is None else self.sasl.user
        return None if user is None else Identity(SASL, user)

    def may_log(self) -> bool:
        """Return whether a line about it may be written now."""
        return self._server is None or self._server.lines.allowed()

    @property
    def output_bytes(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def trust(self) -> None:
        """Take whole requests from now on."""
        self.is_trusted = True
        self._frames.limit = MAX_FRAME_BYTES

    def data_received(self, data: bytes) -> None:
        server = self._server
        if server is None:
            return
        try:
            if self.session is None and server.on_word(self, data[:4]):
                return
            buf, spans = self._frames.feed(data)
            for start, end in spans:
                self._todo.append(buf[start:end])
                self._todo_bytes += end - start
        except WireError as error:
            self._drop_for(error)
            return
        self._count_input()
        if self.limits is None:
            self.work(math.inf)
        elif self._todo and not self._is_queued:
            self._is_queued = True
            server.turns.add(self)
            if self._is_queued and self.transport is not None:
                self.transport.pause_reading()

    def work(self, until_s: float) -> bool:
        """Carry out requests until then; return whether none is left that it can do."""
        server = self._server
        clock = None if self.limits is None or server is None else server.world.clock
        try:
            while self._server is not None and not self._full and not self._paused:
                if self._task is not None:
                    if next(self._task, self) is self:
                        self._task = None
                elif self._todo and self._server.takes_requests(self):
                    self._begin(self._server, self._todo.popleft())
                else:
                    break
                if clock is not None and clock.monotonic() >= until_s:
                    break
        except (WireError, struct.error) as error:
            self._drop_for(error)
        self._count_input()
        waits = self._full or self._paused or self._server is None
        if waits or not (self._todo or self._task is not None):
            self._is_queued = False
            self._read_on()
            return True
        return False

    def _begin(self, server: ConnectionOwner, frame: bytes) -> None:
        self._todo_bytes -= len(frame)
        self.received += 1
        if self.session is None:
            server.open_session(self, jute.ConnectRequest.decode(frame))
        else:
            self._task = server.on_request(self, frame)

    def _count_input(self) -> None:
        server = self._server
        if server is None:
            return
        now = self._frames.pending + self._todo_bytes
        server.input_bytes += now - self.input_bytes
        self.input_bytes = now
        if self.limits is not None and server.input_bytes > self.limits.input_bytes:
            server.make_room()

    def _drop_for(self, error: Exception) -> None:
        if self._server is not None and self._server.lines.allowed():
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
        self._go_on()

    def pause(self) -> None:
        self._paused = True
        if self.transport is not None:
            self.transport.pause_reading()

    def resume(self) -> None:
        self._paused = False
        self._go_on()

    def _go_on(self) -> None:
        """Do what waited, then read on."""
        server = self._server
        if (self._todo or self._task is not None) and server is not None:
            if not self._is_queued:
                self._is_queued = True
                server.turns.add(self)
        else:
            self._read_on()

    def _read_on(self) -> None:
        transport = self.transport
        if transport is None or self._full or self._paused or self._todo or transport.is_closing():
            return
        if self.limits is not None:
            transport.resume_reading()

    def send(self, frame: bytes) -> None:
        if self._server is not None:
            self._server.emit(self, frame)

    def write(self, data: bytes) -> None:
        """Hand bytes to the transport; for the server's `emit`."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if self.limits is not None:
            waiting = transport.get_write_buffer_size()
            if waiting > self.limits.output_bytes:
                self.drop_unread()
            elif waiting > LARGE_OUTPUT_BYTES and self._server is not None:
                self._server.on_output()

    def drop_unread(self) -> None:
        if self._server is not None and self._server.lines.allowed():
            log.warning("connection dropped, its client does not read peer=%s", self.peer)
        self.drop()

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
        server, self._server = self._server, None
        if server is not None:
            server.input_bytes -= self.input_bytes
            self._todo.clear()
            self._task = None
            server.on_disconnected(self)


def notification(event: WatchEvent) -> bytes:
    """Return the frame that tells of an event."""
    body = jute.XID_OP.pack(event.type, jute.SYNC_CONNECTED) + jute.string(event.path)
    return jute.reply(jute.XID_NOTIFICATION, -1, 0, body)
