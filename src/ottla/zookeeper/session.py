"""One ZooKeeper session on the event loop: connects, pings, reconnects, fences itself in time.

Invariants:
- One object per session; once DEAD it stays dead and every operation fails.
- Nothing is retried here. When the connection is lost each waiting operation fails with
  ConnectionLossError: the caller decides whether a retry is safe.
- The session never assumes that it is alive for longer than the server does (fault F9): `deadline`
  is the moment the last *answered* request was sent plus the timeout, on the monotonic clock. Every
  entrance (bytes, timers, operations, `state`) looks at it first, so after a stall of the loop the
  first thing that happens is DEAD.
- Callbacks run in the order of the wire, a watch event before the reply that already shows the
  change; they only queue events.
Kafka: `ZooKeeperClient` and ZooKeeper's `ClientCnxn`.

States: CONNECTED -> SUSPENDED (connection lost) -> CONNECTED (same session, watches registered
again) and from either -> DEAD (expired, fenced by the deadline, or closed).
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from ottla.model.errors import WireError
from ottla.model.ports import World
from ottla.model.recent_times import RecentTimes
from ottla.zookeeper import jute
from ottla.zookeeper.addresses import ConnectString, check_path
from ottla.zookeeper.errors import (
    AuthFailedError,
    ConnectionLossError,
    NoNodeError,
    OperationTimeoutError,
    RequestTooLargeError,
    SessionExpiredError,
    TooManyRequestsError,
    ZooKeeperError,
    by_code,
)
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.operations import (
    Op,
    encode_multi,
    encode_multi_read,
    read_multi,
    read_multi_read,
)
from ottla.zookeeper.security import OPEN, ZooKeeperSecurity, authenticate
from ottla.zookeeper.watches import WatchCallback, Watches, WatchEvent, WatchType

MAX_REPLY_BYTES = 4 * 1024 * 1024
"""As Kafka sets its client's jute.maxbuffer: a long list of topics is larger than 1 MiB."""


class Wire(asyncio.Protocol):
    """One connection's bytes; after `drop` none reaches the session, so it cannot act for it."""

    def __init__(self, session: "Session") -> None:
        self._session: Session | None = session
        self.transport: asyncio.Transport | None = None
        self.frames = jute.Frames(MAX_REPLY_BYTES)
        self.awaited: asyncio.Future[bytes] | None = None
        """For the next frame, until the session uses the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._session is not None:
            self._session.on_bytes(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.awaited is not None and not self.awaited.done():
            self.awaited.set_exception(ConnectionLossError("the server closed the connection"))
        if self._session is not None:
            why = str(exc) if exc else "the server closed the connection"
            self._session.on_connection_lost(self, why)

    def drop(self) -> None:
        """Close and forget: nothing that still arrives reaches the session."""
        self._session = None
        if self.transport is not None:
            self.transport.abort()


log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_REQUEST_BYTES = 0xFFFFF - 1024
"""A server with the default jute.maxbuffer closes the connection on anything larger."""
MAX_PENDING = 20_000
SET_WATCHES_CHUNK_BYTES = 128 * 1024
CLOSE_WAIT_S = 2.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.2
"""Between attempts to connect for the first time: brokers start beside ZooKeeper, not after it."""
CLOSED = "closed"


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    DEAD = "dead"


class SessionEvent(NamedTuple):
    """The session changed its state. `reason` is one clause for a person."""

    state: SessionState
    reason: str
    session_id: int


class _Pending(NamedTuple):
    xid: int
    future: "asyncio.Future[Any]"
    read: Callable[[bytes, int, int], Any]
    sent_s: float
    path: str | None
    watches: "dict[str, list[WatchCallback]] | None"
    watch: WatchCallback | None


class Session:
    """See the module. Operations are plain functions that return a future; they pipeline."""

    def __init__(
        self,
        world: World,
        connect_string: str,
        session_timeout_ms: int,
        security: ZooKeeperSecurity = OPEN,
    ) -> None:
        """For `connect` alone."""
        target = ConnectString.parse(connect_string)
        self.world = world
        self._loop = asyncio.get_running_loop()
        self._hosts = list(target.hosts)
        world.random.shuffle(self._hosts)
        self._next_host = 0
        self._chroot = target.chroot
        self._on_event: Callable[[SessionEvent], None] | None = None
        self._asked_timeout_ms = session_timeout_ms
        self._security = security
        self._state = SessionState.SUSPENDED
        self.death: str | None = None
        self.session_id = 0
        self._password = bytes(16)
        self.timeout_ms = session_timeout_ms
        self._deadline_s = 0.0
        self._heard_s = 0.0
        self._last_zxid = 0
        self._xid = 0
        self._wire: Wire | None = None
        self._pending: deque[_Pending] = deque()
        self._pings: deque[float] = deque()
        self._out: list[bytes] = []
        self._watches = Watches()
        self._timer: asyncio.TimerHandle | None = None
        self._reattaching: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.latencies = RecentTimes()
        """how long requests took; a caller with one session after the other sets one for all"""
        self.server = ""
        self.has_multi_read = True
        """Whether no server has said yet that it does not know multiRead."""

    # --- life -------------------------------------------------------------------------------

    @classmethod
    async def connect(
        cls,
        world: World,
        connect_string: str,
        session_timeout_ms: int,
        connect_timeout_ms: int,
        on_event: Callable[[SessionEvent], None] | None = None,
        *,
        security: ZooKeeperSecurity = OPEN,
    ) -> "Session":
        """Open a new session; OperationTimeoutError if no server responds in time.

        AuthFailedError, at once, if a server refuses who we are by `security`.

        `on_event` is called for every later change of state, never of this first connection.
        """
        session = cls(world, connect_string, session_timeout_ms, security)
        give_up_s = world.clock.monotonic() + connect_timeout_ms / 1000
        problem = ""
        pause_s = FIRST_PAUSE_S
        while True:
            left_s = give_up_s - world.clock.monotonic()
            if left_s <= 0:
                raise OperationTimeoutError(
                    f"no response from ZooKeeper at {connect_string} in {connect_timeout_ms} ms "
                    f"({problem or 'no attempt'}); is it running, and is zookeeper.connect right?"
                )
            try:
                await session._connect_once(min(left_s, max(1.0, session_timeout_ms / 3000)))
                session._on_event = on_event
                return session
            except SessionExpiredError as error:  # we stalled for longer than the session lives
                problem = str(error)
                session = cls(world, connect_string, session_timeout_ms, security)
            except TimeoutError:  # often our own limit: it must not hide what a server said before
                problem = problem or "TimeoutError"
            except (OSError, ConnectionLossError, WireError) as error:
                problem = str(error) or type(error).__name__
            jitter = 0.5 + world.random.random()
            await asyncio.sleep(min(pause_s * jitter, max(0.0, left_s)))
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)

    async def close(self) -> None:
        """Close the session at the server, too: its ephemeral znodes are deleted at once."""
        if self.state is SessionState.CONNECTED:
            future = self._send(jute.CLOSE, b"", _nothing, None)
            try:
                async with asyncio.timeout(CLOSE_WAIT_S):
                    await future
            except (TimeoutError, ZooKeeperError):
                pass  # the server expires it by itself
        self._become_dead(CLOSED)

    @property
    def state(self) -> SessionState:
        """The state at this moment: looks at the deadline first."""
        self._fence()
        return self._state

    @property
    def alive(self) -> bool:
        """Whether the session is alive: not DEAD, and its deadline has not passed."""
        return self.state is not SessionState.DEAD

    @property
    def last_zxid(self) -> int:
        return self._last_zxid

    @property
    def deadline_s(self) -> float:
        """When the session fences itself unless the server responds before (monotonic)."""
        return self._deadline_s

    async def wait_connected(self) -> None:
        """Return once CONNECTED; SessionExpiredError once DEAD. Bounded by the deadline."""
        while True:
            state = self.state
            if state is SessionState.CONNECTED:
                return
            if state is SessionState.DEAD:
                raise self._expired()
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def statistics(self) -> dict[str, object]:
        return {
            "state": self._state.value,
            "session": f"{self.session_id:#x}",
            "server": self.server,
            "timeout_ms": self.timeout_ms,
            "pending": len(self._pending),
            "watches": len(self._watches),
            "last_zxid": self._last_zxid,
        }

    # --- operations -------------------------------------------------------------------------

    def get(
        self, path: str, watch: WatchCallback | None = None
    ) -> "asyncio.Future[tuple[bytes, Stat]]":
        """Return data (b"" where it is null) and stat; NoNodeError. `watch`: data or deletion."""
        body = jute.path_watch_body(self._full(path), watch is not None)
        return self._send(jute.GET_DATA, body, _read_data, path, self._watches.data, watch)

    def multi_read(
        self, paths: Sequence[str]
    ) -> "asyncio.Future[list[tuple[bytes, Stat] | ZooKeeperError]]":
        """Get many znodes by one request; each result is data and stat, or its own error.

        UnimplementedError from a server before 3.6, which then closes the connection.
        """
        body = encode_multi_read(paths, self._full)

        def read(buf: bytes, pos: int, _end: int) -> list[tuple[bytes, Stat] | ZooKeeperError]:
            return read_multi_read(paths, buf, pos)

        return self._send(jute.MULTI_READ, body, read, None)

    def exists(
        self, path: str, watch: WatchCallback | None = None
    ) -> "asyncio.Future[Stat | None]":
        """Return the stat, or None. `watch`: creation, data or deletion."""
        body = jute.path_watch_body(self._full(path), watch is not None)
        return self._send(jute.EXISTS, body, _read_exists, path, self._watches.data, watch)

    def children(
        self, path: str, watch: WatchCallback | None = None
    ) -> "asyncio.Future[list[str]]":
        """Return the children's names, sorted; NoNodeError. `watch`: children or deletion."""
        body = jute.path_watch_body(self._full(path), watch is not None)
        table = self._watches.children
        return self._send(jute.GET_CHILDREN, body, _read_children, path, table, watch)

    def create(
        self,
        path: str,
        data: bytes | None = b"",
        ephemeral: bool = False,
        sequence: bool = False,
    ) -> "asyncio.Future[tuple[str, Stat]]":
        """Create a znode; return its path (with the sequence number) and stat."""
        flags = (jute.EPHEMERAL if ephemeral else 0) | (jute.SEQUENCE if sequence else 0)
        acl = self._security.acl_of(path)
        body = jute.create_body(self._full(path, sequence=sequence), data, flags, acl)
        return self._send(jute.CREATE2, body, self._read_created, path)

    def set(self, path: str, data: bytes | None, version: int = -1) -> "asyncio.Future[Stat]":
        """Replace a znode's data if it has `version` (-1 any)."""
        body = jute.set_data_body(self._full(path), data, version)
        return self._send(jute.SET_DATA, body, _read_stat, path)

    def delete(self, path: str, version: int = -1) -> "asyncio.Future[None]":
        body = jute.delete_body(self._full(path), version)
        return self._send(jute.DELETE, body, _nothing, path)

    def multi(self, ops: Sequence[Op]) -> "asyncio.Future[list[Any]]":
        """Do all or none. Results in order: Create its path, Set its Stat, others None.

        MultiError names the operation that failed.
        """
        body = encode_multi(ops, self._full, self._security.acl_of)
        chroot = len(self._chroot)

        def read(buf: bytes, pos: int, end: int) -> list[Any]:
            return read_multi(ops, buf[pos:end], chroot)

        return self._send(jute.MULTI, body, read, None)

    def sync(self, path: str = "/") -> "asyncio.Future[None]":
        """Return once this server has seen all that was committed before."""
        return self._send(jute.SYNC, jute.string(self._full(path)), _nothing, path)

    def _full(self, path: str, *, sequence: bool = False) -> str:
        check_path(path + "0" if sequence else path)
        if not self._chroot:
            return path
        return self._chroot if path == "/" else self._chroot + path

    def _read_created(self, buf: bytes, pos: int, _end: int) -> tuple[str, Stat]:
        path, pos = jute.read_string(buf, pos)
        return path[len(self._chroot) :], jute.read_stat(buf, pos)

    def _send(
        self,
        op: int,
        body: bytes,
        read: Callable[[bytes, int, int], T],
        path: str | None,
        watches: "dict[str, list[WatchCallback]] | None" = None,
        watch: WatchCallback | None = None,
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self._loop.create_future()
        now_s = self.world.clock.monotonic()
        if now_s >= self._deadline_s:
            self._fence()
        if self._state is not SessionState.CONNECTED:
            future.set_exception(
                self._expired()
                if self._state is SessionState.DEAD
                else ConnectionLossError("not sent: the connection to ZooKeeper is lost")
            )
            return future
        if len(body) > MAX_REQUEST_BYTES:
            future.set_exception(
                RequestTooLargeError(
                    f"a request of {len(body)} bytes; ZooKeeper takes {MAX_REQUEST_BYTES}"
                    + (f": {path}" if path else ""),
                    path=path,
                )
            )
            return future
        if len(self._pending) >= MAX_PENDING:
            future.set_exception(TooManyRequestsError(f"{MAX_PENDING} requests wait already"))
            return future
        self._xid = xid = self._xid % 0x7FFFFFFF + 1
        self._pending.append(_Pending(xid, future, read, now_s, path, watches, watch))
        self._write(jute.request(xid, op, body))
        return future

    def _write(self, frame: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._wire is not None and self._wire.transport is not None:
            self._wire.transport.write(b"".join(out) if len(out) > 1 else out[0])

    # --- what arrives -----------------------------------------------------------------------

    def on_bytes(self, wire: Wire, data: bytes) -> None:
        """Take what one connection received."""
        if self._fence():
            return
        try:
            buf, spans = wire.frames.feed(data)
            for start, end in spans:
                if wire.awaited is not None and not wire.awaited.done():
                    wire.awaited.set_result(buf[start:end])
                elif wire is self._wire:
                    self._on_frame(buf, start, end)
                else:
                    return  # given up while handling an earlier frame
        except (WireError, struct.error) as error:
            self.on_connection_lost(wire, f"broken response: {error}")

    def _on_frame(self, buf: bytes, start: int, end: int) -> None:
        xid, zxid, err = jute.REPLY_HEADER.unpack_from(buf, start)
        pos = start + 16
        self._heard_s = self.world.clock.monotonic()
        if xid >= 0:
            self._on_reply(xid, zxid, err, buf, pos, end)
        elif xid == jute.XID_NOTIFICATION:
            self._on_notification(buf[pos:end])
        elif xid in (jute.XID_PING, jute.XID_SET_WATCHES):
            if xid == jute.XID_PING and self._pings:
                self._responded(self._pings.popleft())
            if err:
                raise WireError(f"ZooKeeper responded with error {err} to request {xid}")
        else:
            raise WireError(f"a response to request {xid}, which was never sent")

    def _on_reply(self, xid: int, zxid: int, err: int, buf: bytes, pos: int, end: int) -> None:
        if not self._pending or self._pending[0].xid != xid:
            raise WireError(f"a response to request {xid} out of order")
        if zxid > 0:
            self._last_zxid = zxid
        _, future, read, sent_s, path, watches, watch = self._pending.popleft()
        self._responded(sent_s)
        self.latencies.note(self.world.clock.monotonic() - sent_s)
        if err == 0:
            if watch is not None and watches is not None and path is not None:
                watches.setdefault(path, []).append(watch)
            try:
                result = read(buf, pos, end)
            except ZooKeeperError as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)
            return
        if err == SessionExpiredError.zk_code:
            self._become_dead("the server says it is expired")
        if err == NoNodeError.zk_code and read is _read_exists:
            if watch is not None and path is not None:
                self._watches.absent.setdefault(path, []).append(watch)
            if not future.done():
                future.set_result(None)
        elif not future.done():
            future.set_exception(by_code(err, path))

    def _on_notification(self, body: bytes) -> None:
        kind, _state = jute.XID_OP.unpack_from(body, 0)
        path, _ = jute.read_string(body, 8)
        if kind not in WatchType._value2member_map_:
            return  # a session event of another kind of client
        event = WatchEvent(WatchType(kind), path[len(self._chroot) :] or "/")
        for callback in self._watches.take(event):
            self._call(callback, event)

    def _call(self, callback: Callable[[T], None], event: T) -> None:
        try:
            callback(event)
        except Exception as error:  # noqa: BLE001 - the root of other people's callbacks
            context = {"message": f"a callback failed on {event}", "exception": error}
            self._loop.call_exception_handler(context)

    # --- time -------------------------------------------------------------------------------

    def _responded(self, sent_s: float) -> None:
        # What was sent then has been answered: the server counted from then on or later.
        deadline_s = sent_s + self.timeout_ms / 1000
        self._deadline_s = max(self._deadline_s, deadline_s)

    def _fence(self) -> bool:
        """Become DEAD if the deadline has passed; return whether the session is dead."""
        if self._state is SessionState.DEAD:
            return True
        if self.session_id and self.world.clock.monotonic() >= self._deadline_s:
            self._become_dead(f"fenced by its own deadline: no response for {self.timeout_ms} ms")
            return True
        return False

    def _tick(self) -> None:
        """Ping each third of the timeout; drop the connection after two thirds without a reply."""
        self._timer = None
        if self._fence():
            return
        now_s = self.world.clock.monotonic()
        third_s = self.timeout_ms / 3000
        wake_s = self._deadline_s
        if self._state is SessionState.CONNECTED:
            if now_s - self._heard_s >= 2 * third_s and self._wire is not None:
                self.on_connection_lost(self._wire, "no response to a ping")
            else:
                last_ping_s = self._pings[-1] if self._pings else self._heard_s
                if now_s - last_ping_s >= third_s * 0.999:
                    self._pings.append(now_s)
                    self._write(jute.LEN_XID_OP.pack(8, jute.XID_PING, jute.PING))
                    last_ping_s = now_s
                wake_s = min(wake_s, last_ping_s + third_s, self._heard_s + 2 * third_s)
        self._arm(max(wake_s - now_s, 0.001))

    def _arm(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._tick)

    # --- connection -------------------------------------------------------------------------

    async def _connect_once(self, timeout_s: float) -> None:
        """Connect to the next server and open or continue the session.

        OSError or ConnectionLossError if that server does not; SessionExpiredError if it is over;
        AuthFailedError if it refuses who we are.
        """
        host, port = self._hosts[self._next_host % len(self._hosts)]
        self._next_host += 1
        wire = Wire(self)
        try:
            async with asyncio.timeout(timeout_s):
                await self.world.network.connect(host, port, lambda: wire, timeout_s=timeout_s)
                assert wire.transport is not None, "connected without a transport"
                asked_s = self.world.clock.monotonic()
                hello = jute.ConnectRequest(
                    self._last_zxid, self._asked_timeout_ms, self.session_id, self._password
                )
                reply = jute.ConnectResponse.decode(await self._next(wire, hello.encode()))
                if reply.timeout_ms > 0:
                    await authenticate(
                        self._security, f"{host}:{port}", lambda frame: self._next(wire, frame)
                    )
        except BaseException:
            wire.drop()
            raise
        if self._fence():
            wire.drop()
            raise self._expired()
        if reply.timeout_ms <= 0:
            wire.drop()
            self._become_dead("the server says it is expired")
            raise self._expired()
        self._use_connection(wire, reply, asked_s, f"{host}:{port}")

    async def _next(self, wire: Wire, frame: bytes) -> bytes:
        """Send a frame through a connection that is not in use yet; return the one that comes."""
        assert wire.transport is not None, "connected without a transport"
        wire.awaited = self._loop.create_future()
        wire.transport.write(frame)
        return await wire.awaited

    def _use_connection(
        self, wire: Wire, reply: jute.ConnectResponse, asked_s: float, server: str
    ) -> None:
        again = bool(self.session_id)
        self.session_id = reply.session_id
        self._password = reply.password
        self.timeout_ms = reply.timeout_ms
        self.server = server
        self._wire = wire
        self._heard_s = self.world.clock.monotonic()
        self._deadline_s = max(self._deadline_s, asked_s + self.timeout_ms / 1000)
        self._pings.clear()
        self._state = SessionState.CONNECTED
        log.info(
            "session %s session=%#x server=%s timeout_ms=%d",
            "continued" if again else "opened",
            self.session_id,
            server,
            self.timeout_ms,
        )
        if self._fence():
            return  # the greeting waited for the loop longer than the session lives
        self._reregister_watches()
        self._arm(self.timeout_ms / 3000)
        self._wake_waiters()
        if again:
            self._notify_state(SessionState.CONNECTED, "the same session continues")

    def _reregister_watches(self) -> None:
        batches: list[tuple[list[str], list[str], list[str]]] = []
        size = SET_WATCHES_CHUNK_BYTES
        tables = (self._watches.data, self._watches.absent, self._watches.children)
        for index, table in enumerate(tables):
            for path in table:
                if size >= SET_WATCHES_CHUNK_BYTES:
                    batches.append(([], [], []))
                    size = 0
                batches[-1][index].append(self._full(path))
                size += len(path) + len(self._chroot) + 4
        for batch in batches:
            body = jute.LONG.pack(self._last_zxid) + b"".join(map(jute.strings, batch))
            self._write(jute.request(jute.XID_SET_WATCHES, jute.SET_WATCHES, body))

    def on_connection_lost(self, wire: Wire, reason: str) -> None:
        """Fail pending operations and reconnect, if it was the session's connection."""
        wire.drop()
        if wire.awaited is not None and not wire.awaited.done():
            wire.awaited.set_exception(ConnectionLossError(reason))
        if wire is not self._wire:
            return
        self._wire = None
        if self._fence():
            return
        self._state = SessionState.SUSPENDED
        log.warning(
            "session suspended session=%#x server=%s reason=%s",
            self.session_id,
            self.server,
            reason,
        )
        self._out.clear()
        self._pings.clear()
        self._arm(max(self._deadline_s - self.world.clock.monotonic(), 0.001))
        self._reattaching = self._loop.create_task(self._reconnect())
        self._notify_state(SessionState.SUSPENDED, reason)
        self._fail_pending(ConnectionLossError)

    async def _reconnect(self) -> None:
        """Try the servers in turn until one continues the session or the deadline ends it."""
        pause_s = 0.02
        while not self._fence():
            left_s = self._deadline_s - self.world.clock.monotonic()
            try:
                await self._connect_once(min(left_s, max(0.2, self.timeout_ms / 3000)))
                return
            except SessionExpiredError:
                return
            except AuthFailedError as error:
                self._become_dead(str(error))
                return
            except (OSError, ConnectionLossError, WireError) as error:
                log.debug("session not continued session=%#x error=%s", self.session_id, error)
            await asyncio.sleep(pause_s * (0.5 + self.world.random.random()))
            pause_s = min(1.0, pause_s * 2)

    def _fail_pending(self, kind: type[ZooKeeperError]) -> None:
        pending, self._pending = self._pending, deque()
        for entry in pending:
            if not entry.future.done():
                entry.future.set_exception(
                    self._expired() if kind is SessionExpiredError else kind(path=entry.path)
                )
                # A task that waits for many of them may be cancelled for the same reason before it
                # comes to this one: it is not to be reported as an exception that was lost.
                entry.future.exception()

    # --- the end ----------------------------------------------------------------------------

    def _become_dead(self, reason: str) -> None:
        if self._state is SessionState.DEAD:
            return
        self._state = SessionState.DEAD
        self.death = reason
        level = logging.INFO if reason == CLOSED else logging.WARNING
        log.log(level, "session dead session=%#x reason=%s", self.session_id, reason)
        if self._timer is not None:
            self._timer.cancel()
        if self._reattaching is not None and self._reattaching is not asyncio.current_task():
            self._reattaching.cancel()
        if self._wire is not None:
            self._wire.drop()
            self._wire = None
        self._out.clear()
        self._watches.clear()
        self._notify_state(SessionState.DEAD, reason)
        self._fail_pending(SessionExpiredError)
        self._wake_waiters()

    def _expired(self) -> SessionExpiredError:
        return SessionExpiredError(f"session {self.session_id:#x} is over: {self.death}")

    def _notify_state(self, state: SessionState, reason: str) -> None:
        if self._on_event is not None:
            self._call(self._on_event, SessionEvent(state, reason, self.session_id))

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _nothing(_buf: bytes, _pos: int, _end: int) -> None:
    return None


def _read_data(buf: bytes, pos: int, _end: int) -> tuple[bytes, Stat]:
    (size,) = jute.INT.unpack_from(buf, pos)
    pos += 4
    stop = pos + size if size > 0 else pos
    return buf[pos:stop], jute.read_stat(buf, stop)


def _read_exists(buf: bytes, pos: int, _end: int) -> Stat | None:
    return jute.read_stat(buf, pos)


def _read_stat(buf: bytes, pos: int, _end: int) -> Stat:
    return jute.read_stat(buf, pos)


def _read_children(buf: bytes, pos: int, _end: int) -> list[str]:
    names, _ = jute.read_strings(buf, pos)
    names.sort()
    return names
