"""An in-memory ZooKeeper server with the real one's protocol.

Who may call: tests, the simulator. It is a server: our own `Session` (and kazoo) run unchanged on
it, over any Network. Its faults are those of the real one: watches fire once, replies get lost with
their connection, sessions expire with a reply in flight and outlive their connections, failed
multis roll back and use up a zxid, too large frames end the connection. Single server, no disk:
what it acknowledged it keeps, also over `stop` and `start`. ZooKeeper: `ZooKeeperServer`,
`SessionTrackerImpl`.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ottla.model.errors import WireError
from ottla.model.ports import Listener, World
from ottla.zookeeper import jute
from ottla.zookeeper.errors import (
    MarshallingError,
    MultiError,
    NoNodeError,
    RuntimeInconsistencyError,
    UnimplementedError,
    ZooKeeperError,
)
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.memory_tree import Done, Outcome, Tree
from ottla.zookeeper.operations import Check, Create, Delete, Op, Set
from ottla.zookeeper.watches import WatchEvent, WatchType

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 0xFFFFF
FIRST_SESSION_ID = 0x0100_0000_0000_0000
LOGGED_WRITES = 1_000_000


class LoggedWrite(NamedTuple):
    """One change, in zxid order; the changes of a multi share their zxid.

    `op` is create, set or delete; a session's end deletes its ephemerals. `version` is the one
    the znode has afterwards (-1 once deleted).
    """

    zxid: int
    session: int
    op: str
    path: str
    data: bytes | None
    version: int


class ServerSession:
    """A session as the server sees it."""

    __slots__ = ("connection", "expires_s", "id", "password", "timeout_ms")

    def __init__(self, session_id: int, password: bytes, timeout_ms: int) -> None:
        self.id = session_id
        self.password = password
        self.timeout_ms = timeout_ms
        self.expires_s = 0.0
        self.connection: _Connection | None = None


class MemoryZooKeeper:
    """See the module. Times in milliseconds; `tick_ms` bounds the session timeouts as usual."""

    def __init__(
        self,
        world: World,
        *,
        tick_ms: int = 2000,
        min_session_timeout_ms: int | None = None,
        max_session_timeout_ms: int | None = None,
    ) -> None:
        self.world = world
        self.tick_ms = tick_ms
        self.min_session_timeout_ms = min_session_timeout_ms or 2 * tick_ms
        self.max_session_timeout_ms = max_session_timeout_ms or 20 * tick_ms
        self.tree = Tree()
        self.sessions: dict[int, ServerSession] = {}
        self.writes: deque[LoggedWrite] = deque(maxlen=LOGGED_WRITES)
        self.port = 0
        self._host = ""
        self._listener: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connections: dict[_Connection, None] = {}
        self._data_watches: dict[str, dict[_Connection, None]] = {}
        self._child_watches: dict[str, dict[_Connection, None]] = {}
        self._next_session_id = FIRST_SESSION_ID
        self._lose_reply: Callable[[int, str], bool] | None = None
        self._lose_request: Callable[[int, str], bool] | None = None

    # --- life -------------------------------------------------------------------------------

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> "MemoryZooKeeper":
        """Listen; every session known from before gets its whole timeout again."""
        self._host = host
        self._listener = await self.world.network.listen(
            host, port or self.port, lambda: _Connection(self)
        )
        self.port = self._listener.port
        for session in self.sessions.values():
            self._touch(session)
        self._timer = asyncio.get_running_loop().call_later(self.tick_ms / 1000, self._tick)
        return self

    def stop(self) -> None:
        """Stop listening and drop all connections; tree and sessions stay for a `start`."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self._connections):
            connection.drop()

    @property
    def connect_string(self) -> str:
        return f"{self._host}:{self.port}"

    # --- hooks for tests and the simulator --------------------------------------------------

    def expire(self, session_id: int) -> None:
        """End a session now, as if its time were up."""
        session = self.sessions.get(session_id)
        if session is not None:
            log.info("in-memory ZooKeeper expired session=%#x", session_id)
            self._end(session)

    def disconnect(self, session_id: int) -> None:
        """Drop a session's connection; replies on their way are lost."""
        session = self.sessions.get(session_id)
        if session is not None and session.connection is not None:
            session.connection.drop()

    def transport_of(self, session_id: int) -> asyncio.Transport | None:
        """Return the connection that a session has now, None if it has none."""
        session = self.sessions.get(session_id)
        connection = None if session is None else session.connection
        return None if connection is None else connection.transport

    def lose_reply(self, matches: Callable[[int, str], bool]) -> None:
        """Do the next request for which `matches(op, path)`, then drop its connection."""
        self._lose_reply = matches

    def lose_request(self, matches: Callable[[int, str], bool]) -> None:
        """Drop the connection of the next matching request instead of doing it."""
        self._lose_request = matches

    def dump(self) -> dict[str, tuple[bytes | None, Stat]]:
        """Return the whole tree by path, sorted."""
        return {path: (n.data, n.stat()) for path, n in sorted(self.tree.nodes.items())}

    def statistics(self) -> dict[str, int]:
        return {
            "zxid": self.tree.zxid,
            "znodes": len(self.tree.nodes),
            "sessions": len(self.sessions),
            "connections": len(self._connections),
            "watched_paths": len(self._data_watches) + len(self._child_watches),
        }

    # --- sessions ---------------------------------------------------------------------------

    def _tick(self) -> None:
        now_s = self.world.clock.monotonic()
        late = [s for s in self.sessions.values() if s.expires_s <= now_s]
        for session in sorted(late, key=lambda s: (s.expires_s, s.id)):
            self.expire(session.id)
        self._timer = asyncio.get_running_loop().call_later(self.tick_ms / 1000, self._tick)

    def _touch(self, session: ServerSession) -> None:
        # ZooKeeper rounds up to its next tick: a session may live a little longer, never less.
        tick_s = self.tick_ms / 1000
        due_s = self.world.clock.monotonic() + session.timeout_ms / 1000
        session.expires_s = (due_s // tick_s + 1) * tick_s

    def _end(self, session: ServerSession) -> None:
        owned = sorted(self.tree.ephemerals.get(session.id, ()))
        events = self.tree.close_session(session.id)
        for path in owned:
            self.writes.append(LoggedWrite(self.tree.zxid, session.id, "delete", path, None, -1))
        self.sessions.pop(session.id, None)
        self._fire(events)
        if session.connection is not None:
            session.connection.close()

    def open_session(self, connection: "_Connection", hello: jute.ConnectRequest) -> None:
        if hello.last_zxid > self.tree.zxid:
            connection.drop()  # this client has seen a future we do not know
            return
        if hello.session_id:
            session = self.sessions.get(hello.session_id)
            if session is None or session.password != hello.password:
                connection.send(jute.ConnectResponse(0, 0, bytes(16)).encode())
                connection.close()
                return
            if session.connection is not None:
                session.connection.drop()
        else:
            session = ServerSession(self._next_session_id, self.world.random.randbytes(16), 0)
            self._next_session_id += 1
            self.sessions[session.id] = session
            self.tree.zxid += 1
        session.timeout_ms = max(
            self.min_session_timeout_ms, min(self.max_session_timeout_ms, hello.timeout_ms)
        )
        session.connection = connection
        connection.session = session
        self._touch(session)
        reply = jute.ConnectResponse(session.timeout_ms, session.id, session.password)
        connection.send(reply.encode())

    # --- requests ---------------------------------------------------------------------------

    def on_request(self, connection: "_Connection", frame: bytes) -> None:
        session = connection.session
        assert session is not None, "a request before the session"
        xid, op = jute.XID_OP.unpack_from(frame, 0)
        self._touch(session)
        hooked = self._lose_request is not None or self._lose_reply is not None
        path = _path_of(op, frame) if hooked else ""
        if self._lose_request is not None and self._lose_request(op, path):
            self._lose_request = None
            connection.drop()
            return
        err, body = 0, b""
        try:
            body = self._respond(connection, session, op, frame)
        except ZooKeeperError as error:
            err = error.zk_code
        except (WireError, struct.error):
            err = MarshallingError.zk_code
        if self._lose_reply is not None and self._lose_reply(op, path):
            self._lose_reply = None
            connection.drop()
            return
        connection.send(jute.reply(xid, self.tree.zxid, err, body))
        if op == jute.CLOSE:
            connection.close()

    def _respond(
        self, connection: "_Connection", session: ServerSession, op: int, frame: bytes
    ) -> bytes:
        if op == jute.PING:
            return b""
        if op in (jute.GET_DATA, jute.EXISTS, jute.GET_CHILDREN, jute.GET_CHILDREN2):
            return self._read(connection, op, frame)
        if op in (jute.CREATE, jute.CREATE2, jute.DELETE, jute.SET_DATA, jute.CHECK):
            found, _ = _decode_op(op, frame, 8)
            try:
                (done,) = self._write([found], session)
            except MultiError as error:
                raise error.error from None
            return _result(op, done)
        if op == jute.MULTI:
            return self._multi(session, frame)
        if op == jute.MULTI_READ:
            return self._multi_read(frame)
        if op == jute.SYNC:
            return frame[8:]
        if op == jute.SET_WATCHES:
            self._set_watches(connection, frame)
            return b""
        if op == jute.CLOSE:
            self._end_quietly(session)
            return b""
        if op in (jute.GET_ACL, jute.SET_ACL):
            return self._acl(op, frame)
        raise UnimplementedError

    def _read(self, connection: "_Connection", op: int, frame: bytes) -> bytes:
        path, pos = jute.read_string(frame, 8)
        watch = frame[pos : pos + 1] == b"\x01"
        node = self.tree.nodes.get(path)
        if watch and (node is not None or op == jute.EXISTS):
            table = self._data_watches
            if op in (jute.GET_CHILDREN, jute.GET_CHILDREN2):
                table = self._child_watches
            table.setdefault(path, {})[connection] = None
        if node is None:
            raise NoNodeError(path=path)
        stat = jute.write_stat(node.stat())
        if op == jute.EXISTS:
            return stat
        if op == jute.GET_DATA:
            return jute.buffer(node.data) + stat
        names = jute.strings(list(node.children))
        return names if op == jute.GET_CHILDREN else names + stat

    def _multi_read(self, frame: bytes) -> bytes:
        parts = []
        for path in _paths_of(frame):
            node = self.tree.nodes.get(path)
            if node is None:
                code = NoNodeError.zk_code
                parts.append(jute.MULTI_HEADER.pack(jute.ERROR, False, code) + jute.INT.pack(code))
            else:
                parts.append(jute.MULTI_HEADER.pack(jute.GET_DATA, False, 0))
                parts.append(jute.buffer(node.data) + jute.write_stat(node.stat()))
        return b"".join(parts) + jute.MULTI_END

    def _multi(self, session: ServerSession, frame: bytes) -> bytes:
        ops, kinds = [], []
        pos = 8
        while True:
            kind, done, _ = jute.MULTI_HEADER.unpack_from(frame, pos)
            pos += jute.MULTI_HEADER.size
            if done:
                break
            op, pos = _decode_op(kind, frame, pos)
            ops.append(op)
            kinds.append(kind)
        parts = []
        try:
            for kind, result in zip(kinds, self._write(ops, session), strict=True):
                parts.append(jute.MULTI_HEADER.pack(kind, False, 0) + _result(kind, result))
        except MultiError as error:
            later = RuntimeInconsistencyError.zk_code
            for index in range(len(ops)):
                code = later if index > error.index else 0
                code = error.error.zk_code if index == error.index else code
                parts.append(jute.MULTI_HEADER.pack(jute.ERROR, False, code) + jute.INT.pack(code))
        return b"".join(parts) + jute.MULTI_END

    def _write(self, ops: list[Op], session: ServerSession) -> list[Done]:
        outcome: Outcome = self.tree.transact(ops, session.id, self.world.clock.wall_ms())
        for done in outcome.done:
            if isinstance(done.op, Check):
                continue
            kind = type(done.op).__name__.lower()
            data = done.op.data if isinstance(done.op, Create | Set) else None
            version = -1 if done.stat is None else done.stat.version
            self.writes.append(
                LoggedWrite(self.tree.zxid, session.id, kind, done.path, data, version)
            )
        self._fire(outcome.events)
        return outcome.done

    def _acl(self, op: int, frame: bytes) -> bytes:
        path, pos = jute.read_string(frame, 8)
        if op == jute.GET_ACL:
            node = self.tree.node(path)
            return node.acl + jute.write_stat(node.stat())
        (version,) = jute.INT.unpack_from(frame, len(frame) - 4)
        return jute.write_stat(self.tree.set_acl(path, frame[pos:-4], version))

    def _end_quietly(self, session: ServerSession) -> None:
        session.connection = None  # so that the reply still goes out
        self._end(session)

    # --- watches ----------------------------------------------------------------------------

    def _fire(self, events: list[WatchEvent]) -> None:
        for event in events:
            connections: dict[_Connection, None] = {}
            if event.type != WatchType.CHILDREN_CHANGED:
                connections.update(self._data_watches.pop(event.path, {}))
            if event.type in (WatchType.CHILDREN_CHANGED, WatchType.DELETED):
                connections.update(self._child_watches.pop(event.path, {}))
            for connection in connections:
                connection.notify(event)

    def _set_watches(self, connection: "_Connection", frame: bytes) -> None:
        (seen,) = jute.LONG.unpack_from(frame, 8)
        data, pos = jute.read_strings(frame, 16)
        absent, pos = jute.read_strings(frame, pos)
        children, pos = jute.read_strings(frame, pos)
        for path in data:
            node = self.tree.nodes.get(path)
            if node is None:
                connection.notify(WatchEvent(WatchType.DELETED, path))
            elif node.mzxid > seen:
                connection.notify(WatchEvent(WatchType.DATA_CHANGED, path))
            else:
                self._data_watches.setdefault(path, {})[connection] = None
        for path in absent:
            if path in self.tree.nodes:
                connection.notify(WatchEvent(WatchType.CREATED, path))
            else:
                self._data_watches.setdefault(path, {})[connection] = None
        for path in children:
            node = self.tree.nodes.get(path)
            if node is None:
                connection.notify(WatchEvent(WatchType.DELETED, path))
            elif node.pzxid > seen:
                connection.notify(WatchEvent(WatchType.CHILDREN_CHANGED, path))
            else:
                self._child_watches.setdefault(path, {})[connection] = None

    # --- connections ------------------------------------------------------------------------

    def on_connected(self, connection: "_Connection") -> None:
        self._connections[connection] = None

    def on_disconnected(self, connection: "_Connection") -> None:
        self._connections.pop(connection, None)
        for table in (self._data_watches, self._child_watches):
            for path in [p for p, watchers in table.items() if connection in watchers]:
                del table[path][connection]
                if not table[path]:
                    del table[path]
        session = connection.session
        if session is not None and session.connection is connection:
            session.connection = None


class _Connection(asyncio.Protocol):
    """One client's connection: frames in, replies and notifications out, in order."""

    def __init__(self, server: MemoryZooKeeper) -> None:
        self._server: MemoryZooKeeper | None = server
        self._frames = jute.Frames(MAX_FRAME_BYTES)
        self.transport: asyncio.Transport | None = None
        self.session: ServerSession | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        if self._server is not None:
            self._server.on_connected(self)

    def data_received(self, data: bytes) -> None:
        try:
            buf, spans = self._frames.feed(data)
            for start, end in spans:
                if self._server is None:
                    return
                if self.session is None:
                    self._server.open_session(self, jute.ConnectRequest.decode(buf[start:end]))
                else:
                    self._server.on_request(self, buf[start:end])
        except (WireError, struct.error) as error:
            log.info("in-memory ZooKeeper dropped a connection error=%s", error)
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        self._forget()

    def send(self, frame: bytes) -> None:
        if self._server is not None and self.transport is not None:
            self.transport.write(frame)

    def notify(self, event: WatchEvent) -> None:
        body = jute.XID_OP.pack(event.type, jute.SYNC_CONNECTED) + jute.string(event.path)
        self.send(jute.reply(jute.XID_NOTIFICATION, -1, 0, body))

    def close(self) -> None:
        """Close after what was sent has gone out."""
        if self.transport is not None:
            self.transport.close()
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


def _path_of(op: int, frame: bytes) -> str:
    """Return the path a request is about, that of its last operation for a multi, or ""."""
    try:
        if op == jute.MULTI:
            pos, path = 8, ""
            while True:
                kind, done, _ = jute.MULTI_HEADER.unpack_from(frame, pos)
                if done:
                    return path
                found, pos = _decode_op(kind, frame, pos + jute.MULTI_HEADER.size)
                path = found.path
        if op == jute.MULTI_READ:
            return _paths_of(frame)[-1]
        if op in (jute.PING, jute.CLOSE, jute.SET_WATCHES):
            return ""
        return jute.read_string(frame, 8)[0]
    except (WireError, ZooKeeperError, struct.error):
        return ""


def _paths_of(frame: bytes) -> list[str]:
    """Return the paths whose data a multiRead gets."""
    pos = 8
    paths: list[str] = []
    while True:
        kind, done, _ = jute.MULTI_HEADER.unpack_from(frame, pos)
        if done:
            return paths
        if kind != jute.GET_DATA:
            raise UnimplementedError
        path, pos = jute.read_string(frame, pos + jute.MULTI_HEADER.size)
        pos += 1  # no watches
        paths.append(path)


def _decode_op(kind: int, frame: bytes, pos: int) -> tuple[Op, int]:
    path, pos = jute.read_string(frame, pos)
    if kind in (jute.CREATE, jute.CREATE2):
        data, pos = jute.read_buffer(frame, pos)
        (acls,) = jute.INT.unpack_from(frame, pos)
        pos += 4
        for _ in range(acls):
            _, pos = jute.read_string(frame, pos + 4)
            _, pos = jute.read_string(frame, pos)
        (flags,) = jute.INT.unpack_from(frame, pos)
        if flags & ~(jute.EPHEMERAL | jute.SEQUENCE):
            raise UnimplementedError  # containers and time-limited znodes
        ephemeral, sequence = bool(flags & jute.EPHEMERAL), bool(flags & jute.SEQUENCE)
        return Create(path, data, ephemeral, sequence), pos + 4
    if kind == jute.SET_DATA:
        data, pos = jute.read_buffer(frame, pos)
        (version,) = jute.INT.unpack_from(frame, pos)
        return Set(path, data, version), pos + 4
    (version,) = jute.INT.unpack_from(frame, pos)
    if kind == jute.DELETE:
        return Delete(path, version), pos + 4
    if kind == jute.CHECK:
        return Check(path, version), pos + 4
    raise UnimplementedError


def _result(kind: int, done: Done) -> bytes:
    if kind == jute.CREATE:
        return jute.string(done.path)
    if kind == jute.CREATE2:
        assert done.stat is not None, "a created znode has a stat"
        return jute.string(done.path) + jute.write_stat(done.stat)
    if kind == jute.SET_DATA:
        assert done.stat is not None, "a set znode has a stat"
        return jute.write_stat(done.stat)
    return b""
