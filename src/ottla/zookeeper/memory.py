"""A ZooKeeper server for one machine: in memory, or kept in ZooKeeper's own files.

Our own `Session`, kazoo and the Java client run unchanged on it, over any Network. Its faults are
those of the real one: watches fire once, replies get lost with their connection, sessions expire
with a reply in flight and outlive their connections, failed multis roll back and use up a zxid, too
large frames end the connection. With a database nothing leaves the server before the transactions
that it may depend on are durable, so no client sees what a crash could take back. In memory alone,
what it acknowledged it keeps over `stop` and `start`. One server, never an ensemble. ZooKeeper:
`ZooKeeperServer`, `SessionTrackerImpl`.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from ottla.model.errors import WireError
from ottla.model.ports import Listener, World
from ottla.zookeeper import four_letter_words, jute, transactions, znode_acls
from ottla.zookeeper.database import Database
from ottla.zookeeper.errors import (
    AuthFailedError,
    MarshallingError,
    MultiError,
    ThrottledError,
    ZooKeeperError,
)
from ottla.zookeeper.four_letter_words import Latency
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.memory_tree import Outcome, Tree
from ottla.zookeeper.operations import Create, Delete, Set
from ottla.zookeeper.server_authentication import NO_SASL, REQUIRED, SaslUsers
from ottla.zookeeper.server_connection import (
    TURN_S,
    Connection,
    Limits,
    Lines,
    ServerSession,
    Totals,
    Turns,
    notification,
)
from ottla.zookeeper.server_requests import WRITES, Reads, decode_write, path_of, result
from ottla.zookeeper.server_watches import ServerWatches
from ottla.zookeeper.znode_acls import SASL

log = logging.getLogger(__name__)

FIRST_SESSION_ID = 0x0100_0000_0000_0000
LOGGED_WRITES = 1_000_000
CONTAINERS_EVERY_S = 60.0
CONTAINERS_AT_ONCE = 500
SUPER_SECRET = 0xB3415C00
"""ZooKeeper's: by it the server that opens our files knows our sessions' passwords."""


Steps = Generator[None, None, bytes]
"""A request that takes several steps, up to the body of its reply."""


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


class MemoryZooKeeper:
    """See the module. Times in milliseconds; `tick_ms` bounds the session timeouts as usual."""

    def __init__(
        self,
        world: World,
        *,
        tick_ms: int = 2000,
        min_session_timeout_ms: int | None = None,
        max_session_timeout_ms: int | None = None,
        database: Database | None = None,
        limits: Limits | None = None,
        sasl: SaslUsers = NO_SASL,
    ) -> None:
        """`database`: an open one; the server takes its tree and its sessions."""
        self.world = world
        self.tick_ms = tick_ms
        self.min_session_timeout_ms = min_session_timeout_ms or 2 * tick_ms
        self.max_session_timeout_ms = max_session_timeout_ms or 20 * tick_ms
        self.database = database
        self.limits = limits
        self.sasl = sasl
        self.tree = Tree() if database is None else database.tree
        self.sessions: dict[int, ServerSession] = {}
        self.writes: deque[LoggedWrite] = deque(maxlen=LOGGED_WRITES if database is None else 0)
        self.port = 0
        self.latency = Latency()
        self.totals = Totals()
        self.started_s = world.clock.monotonic()
        self.connections: dict[Connection, None] = {}
        self.turns = Turns(world.clock)
        self.lines = Lines(world)
        self.input_bytes = 0
        self._waiting: dict[str, dict[Connection, None]] = {}
        """By address: who has no session of its own yet."""
        self.watches: ServerWatches[Connection] = ServerWatches()
        self.on_failure: Callable[[Exception], None] = lambda _: None
        """Called when it cannot go on; everything has stopped then."""
        self._host = ""
        self._listener: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tick_due_s = 0.0
        self._reads = Reads(self)
        self._next_session_id = FIRST_SESSION_ID
        self._containers_due_s = 0.0
        self._lose_reply: Callable[[int, str], bool] | None = None
        self._lose_request: Callable[[int, str], bool] | None = None
        self._held: deque[tuple[int, float, Connection, bytes | None]] = deque()
        """What waits for the disk: after how many transactions, since when, for whom, what."""
        self._held_bytes = 0
        self._paused: dict[Connection, None] = {}
        if database is not None:
            self._take_sessions(database)

    def _take_sessions(self, database: Database) -> None:
        database.on_durable = self._release
        database.on_failure = self._fail
        for number, timeout_ms in database.sessions.items():
            self.sessions[number] = ServerSession(number, password_of(number), timeout_ms)
        # As ZooKeeper: by the clock, so that no id of an earlier start comes again.
        by_clock = (self.world.clock.wall_ms() << 16) & ((1 << 56) - 1) | FIRST_SESSION_ID
        self._next_session_id = max([by_clock, *(n + 1 for n in self.sessions)])

    # --- life -------------------------------------------------------------------------------

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> "MemoryZooKeeper":
        """Listen; every session known from before gets its whole timeout again."""
        self._host = host
        self._listener = await self.world.network.listen(
            host, port or self.port, lambda: Connection(self)
        )
        self.port = self._listener.port
        for session in self.sessions.values():
            self._touch(session)
        for owner in sorted(set(self.tree.ephemerals) - set(self.sessions)):
            self._close_session(owner, 0)  # it ended when the snapshot was taken
        self._wait_for_tick()
        return self

    async def shut_down(self) -> None:
        """Take no more requests, acknowledge those taken once they are durable, then stop."""
        self._stop_taking()
        self._paused.clear()
        for connection in self.connections:
            connection.pause()
        if self.database is not None:
            await self.database.close()
        for connection in list(self.connections):
            connection.close()
        self.stop()

    def _stop_taking(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Stop listening and drop all connections; tree and sessions stay for a `start`."""
        self._stop_taking()
        for connection in list(self.connections):
            connection.drop()
        self._held.clear()
        self._held_bytes = 0

    def _fail(self, error: Exception) -> None:
        self.stop()
        self.on_failure(error)

    @property
    def connect_string(self) -> str:
        return f"{self._host}:{self.port}"

    # --- hooks for tests and the simulator --------------------------------------------------

    def expire(self, session_id: int) -> None:
        """End a session now, as if its time were up."""
        session = self.sessions.get(session_id)
        if session is not None:
            log.info("session expired session=%#x", session_id)
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
            "connections": len(self.connections),
            "outstanding": len(self._held),
            "watched_paths": len(self.watches),
        }

    # --- sessions ---------------------------------------------------------------------------

    def _wait_for_tick(self) -> None:
        tick_s = self.tick_ms / 1000
        self._tick_due_s = self.world.clock.monotonic() + tick_s
        self._timer = asyncio.get_running_loop().call_later(tick_s, self._tick)

    def _tick(self) -> None:
        try:
            self._expire_and_clean()
        except Exception as error:
            log.critical("server cannot go on error=%s", error, exc_info=True)
            self._fail(error)
        else:
            self._wait_for_tick()

    def _expire_and_clean(self) -> None:
        now_s = self.world.clock.monotonic()
        stood_still_s = now_s - self._tick_due_s
        if stood_still_s > self.tick_ms / 1000:
            # What clients sent meanwhile was not read yet: none of them was silent for so long.
            log.warning("server stood still late_s=%.1f", stood_still_s)
            for session in self.sessions.values():
                session.expires_s += stood_still_s
        else:
            self._drop_waiting(now_s)
        late = [s for s in self.sessions.values() if s.expires_s <= now_s]
        self._expire_all(deque(sorted(late, key=lambda s: (s.expires_s, s.id))))
        if self.tree.containers and self._containers_due_s <= now_s:
            self._containers_due_s = now_s + CONTAINERS_EVERY_S
            self._delete_empty_containers(list(self.tree.containers))

    def _drop_waiting(self, now_s: float) -> None:
        """Drop connections that take too long to open a session, and to show whose it is."""
        if self.limits is None and not self.sasl.required:
            return
        longest_s = Limits().hello_s if self.limits is None else self.limits.hello_s
        if self.sasl.required:
            longest_s = min(longest_s, self.tick_ms / 1000)  # looked at once a tick
        for connection in [c for group in self._waiting.values() for c in group]:
            if connection.opened_s < now_s - longest_s:
                connection.drop()

    def _expire_all(self, late: deque[ServerSession]) -> None:
        """End sessions; many of them in several rounds of the loop."""
        clock = self.world.clock
        until_s = clock.monotonic() + TURN_S
        while late and clock.monotonic() < until_s:
            session = late.popleft()
            if session.expires_s <= clock.monotonic():
                self.expire(session.id)
        if late and self._timer is not None:
            asyncio.get_running_loop().call_soon(self._expire_all, late)

    def _touch(self, session: ServerSession) -> None:
        # ZooKeeper rounds up to its next tick: a session may live a little longer, never less.
        tick_s = self.tick_ms / 1000
        due_s = self.world.clock.monotonic() + session.timeout_ms / 1000
        session.expires_s = (due_s // tick_s + 1) * tick_s

    def _end(self, session: ServerSession, cxid: int = 0) -> None:
        self.sessions.pop(session.id, None)
        self._close_session(session.id, cxid)
        if session.connection is not None:
            session.connection.close()

    def _close_session(self, session_id: int, cxid: int) -> None:
        owned = sorted(self.tree.ephemerals.get(session_id, ()))
        outcome = self.tree.close_session(session_id)
        for path in owned:
            self.writes.append(LoggedWrite(self.tree.zxid, session_id, "delete", path, None, -1))
        if self.database is not None:
            self.database.sessions.pop(session_id, None)
            body = jute.strings(owned)
            self.database.append(session_id, cxid, self.world.clock.wall_ms(), jute.CLOSE, body)
        self._fire(outcome)

    def _delete_empty_containers(self, paths: list[str]) -> None:
        for path in paths[:CONTAINERS_AT_ONCE]:
            node = self.tree.nodes.get(path)
            if path in self.tree.containers and node and node.creations and not node.children:
                outcome = self.tree.delete_container(path)
                if self.database is not None:
                    now_ms, body = self.world.clock.wall_ms(), jute.string(path)
                    self.database.append(0, 0, now_ms, jute.DELETE_CONTAINER, body)
                self._fire(outcome)
        left = paths[CONTAINERS_AT_ONCE:]
        if left and self._timer is not None:
            asyncio.get_running_loop().call_soon(self._delete_empty_containers, left)

    def open_session(self, connection: Connection, hello: jute.ConnectRequest) -> None:
        """Open a session or continue one; where that needs SASL, nothing is done before."""
        if hello.last_zxid > self.tree.zxid:
            if self.lines.allowed():
                log.warning("client refused, its zxid is later peer=%s", connection.peer)
            connection.drop()  # this client has seen a future we do not know
            return
        if hello.session_id:
            known = self.sessions.get(hello.session_id)
            if known is None or known.password != hello.password:
                connection.send(jute.ConnectResponse(0, 0, bytes(16)).encode())
                connection.close()
                return
            session = known
        elif self.limits is not None and len(self.sessions) >= self.limits.sessions:
            if self.lines.allowed():
                log.warning("session refused, too many are open peer=%s", connection.peer)
            connection.drop()
            return
        else:
            session = self._new_session()
        connection.session, connection.continues = session, bool(hello.session_id)
        timeout_ms = max(
            self.min_session_timeout_ms, min(self.max_session_timeout_ms, hello.timeout_ms)
        )
        connection.timeout_ms = timeout_ms
        if self._may_act(connection, session):
            self._begin_session(connection, session)
        reply = jute.ConnectResponse(timeout_ms, session.id, session.password)
        connection.send(reply.encode())
        connection.last = (jute.CREATE_SESSION, 0, self.tree.zxid)

    def _may_act(self, connection: Connection, session: ServerSession) -> bool:
        """Return whether the session is the connection's, as far as it authenticated.

        Whose a session of an earlier start is tell the ACLs of its ephemeral znodes.
        """
        if self.sasl.required and connection.sasl_identity is None:
            return False
        if session.owner is not None:
            return session.owner == connection.sasl_identity
        nodes = self.tree.nodes
        acls = {nodes[path].acl for path in self.tree.ephemerals.get(session.id, ())}
        owners = {i for acl in acls for _, i in znode_acls.entries(acl) if i.scheme == SASL}
        return not owners or connection.sasl_identity in owners

    def _begin_session(self, connection: Connection, session: ServerSession) -> None:
        """Give a session to its connection, and write it down if it is new."""
        if session.connection is not None and session.connection is not connection:
            session.connection.drop()
        session.timeout_ms = connection.timeout_ms
        if session.id not in self.sessions:
            self.sessions[session.id] = session
            self.tree.zxid += 1
        if self.database is not None and session.id not in self.database.sessions:
            self.database.sessions[session.id] = session.timeout_ms
            body = jute.INT.pack(session.timeout_ms)
            now_ms = self.world.clock.wall_ms()
            self.database.append(session.id, 0, now_ms, jute.CREATE_SESSION, body)
        session.connection = connection
        session.owner = session.owner or connection.sasl_identity
        self._no_longer_waits(connection)
        connection.trust()
        self._touch(session)

    def _new_session(self) -> ServerSession:
        number = self._next_session_id
        kept = self.database is not None
        password = password_of(number) if kept else self.world.random.randbytes(16)
        self._next_session_id += 1
        return ServerSession(number, password, 0)

    # --- requests ---------------------------------------------------------------------------

    def takes_requests(self, connection: Connection) -> bool:
        """Return False while too much waits for the disk; the connection goes on afterwards."""
        if self._is_overloaded():
            self._paused[connection] = None
            connection.pause()
            return False
        return True

    def on_request(self, connection: Connection, frame: bytes) -> Iterator[None] | None:
        """Carry a request out; return the steps that are left of one that takes several."""
        session = connection.session
        assert session is not None, "a request before the session"
        xid, op = jute.XID_OP.unpack_from(frame, 0)
        if connection.is_trusted:
            self._touch(session)
        hooked = self._lose_request is not None or self._lose_reply is not None
        path = path_of(op, frame) if hooked else ""
        if self._lose_request is not None and self._lose_request(op, path):
            self._lose_request = None
            connection.drop()
            return None
        err, body = 0, b""
        try:
            done = self._respond(connection, session, xid, op, frame)
            if not isinstance(done, bytes):
                return self._in_steps(connection, xid, op, path, done)
            body = done
        except ZooKeeperError as error:
            err = error.zk_code
        except (WireError, struct.error):
            err = MarshallingError.zk_code
        self._reply(connection, xid, op, path, err, body)
        return None

    def _in_steps(
        self, connection: Connection, xid: int, op: int, path: str, steps: Steps
    ) -> Iterator[None]:
        err, body = 0, b""
        try:
            body = yield from steps
        except ZooKeeperError as error:
            err = error.zk_code
        except (WireError, struct.error):
            err = MarshallingError.zk_code
        self._reply(connection, xid, op, path, err, body)

    def _reply(
        self, connection: Connection, xid: int, op: int, path: str, err: int, body: bytes
    ) -> None:
        if err == ThrottledError.zk_code and self.lines.allowed():
            log.warning("request refused, it costs too much peer=%s", connection.peer)
        if self._lose_reply is not None and self._lose_reply(op, path):
            self._lose_reply = None
            connection.drop()
            return
        zxid = self.tree.zxid
        connection.send(jute.reply(xid, zxid, err, body))
        connection.last = (op, xid, zxid)
        if op != jute.PING:
            self.totals.replied(jute.REPLY_HEADER.size + len(body))
        if op == jute.CLOSE or (err and op in (jute.AUTH, jute.SASL)) or err == REQUIRED:
            self.totals.auth_failed += op in (jute.AUTH, jute.SASL)
            connection.close()

    def _respond(
        self, connection: Connection, session: ServerSession, xid: int, op: int, frame: bytes
    ) -> bytes | Steps:
        if op == jute.SASL:
            body = self.sasl.respond(connection, jute.read_buffer(frame, 8)[0] or b"")
            self._authenticated(connection, session)
            return body
        if not connection.is_trusted and (op != jute.AUTH or self.sasl.required):
            self.sasl.refuse(connection)
        if op == jute.PING:
            return b""
        if op in WRITES:
            return self._write(connection, session, xid, op, frame)
        if op == jute.SYNC:
            return frame[8:]
        if op in (jute.SET_WATCHES, jute.SET_WATCHES2):
            return self._reads.set_watches(connection, connection.identities, op, frame)
        if op == jute.CLOSE:
            session.connection = None  # so that the reply still goes out
            self._end(session, xid)
            return b""
        if op == jute.AUTH:
            scheme, pos = jute.read_string(frame, 12)
            identity = znode_acls.authenticated(scheme, jute.read_buffer(frame, pos)[0] or b"")
            if identity is not None:
                znode_acls.add(connection, identity)
            return b""
        if op == jute.WHO_AM_I:
            found = [(i.scheme, i.id.partition(":")[0]) for i in sorted(connection.identities)]
            pairs = b"".join(jute.string(scheme) + jute.string(name) for scheme, name in found)
            return jute.INT.pack(len(found)) + pairs
        if op == jute.GET_EPHEMERALS:
            return self._reads.ephemerals(session.id, frame)
        return self._reads.read(connection, connection.identities, op, frame)

    def _authenticated(self, connection: Connection, session: ServerSession) -> None:
        """Give a connection that showed who it is its session, if it is its own."""
        if connection.sasl_identity is None:
            return
        gone = connection.continues and session.id not in self.sessions
        if connection.is_trusted and session.owner is None:
            session.owner = connection.sasl_identity
        if gone or not self._may_act(connection, session):
            if self.lines.allowed():
                log.warning("session refused, it belongs to others peer=%s", connection.peer)
            raise AuthFailedError
        if not connection.is_trusted:
            self._begin_session(connection, session)

    def _write(
        self, connection: Connection, session: ServerSession, cxid: int, op: int, frame: bytes
    ) -> bytes:
        ops, kinds, multi = decode_write(op, frame)
        now_ms = self.world.clock.wall_ms()
        database = self.database
        try:
            outcome = self.tree.transact(ops, session.id, now_ms, connection.identities)
        except MultiError as error:
            if database is not None:
                failure = transactions.of_failure(error, len(ops), multi=multi)
                database.append(session.id, cxid, now_ms, *failure)
            if not multi:
                raise error.error from None
            codes = transactions.failure_codes(error, len(ops))
            parts = [jute.MULTI_HEADER.pack(jute.ERROR, False, c) + jute.INT.pack(c) for c in codes]
            return b"".join(parts) + jute.MULTI_END
        if database is not None:
            body = transactions.of_operations(outcome.done, kinds, multi=multi)
            database.append(session.id, cxid, now_ms, *body)
        self._log_writes(outcome, session.id)
        self._fire(outcome)
        results = [result(kind, done) for kind, done in zip(kinds, outcome.done, strict=True)]
        if not multi:
            return results[0]
        heads = [jute.MULTI_HEADER.pack(kind, False, 0) for kind in kinds]
        return b"".join(h + r for h, r in zip(heads, results, strict=True)) + jute.MULTI_END

    def _log_writes(self, outcome: Outcome, session_id: int) -> None:
        if self.writes.maxlen == 0:
            return
        for done in outcome.done:
            if not isinstance(done.op, Create | Set | Delete):
                continue
            kind = type(done.op).__name__.lower()
            data = done.op.data if isinstance(done.op, Create | Set) else None
            version = -1 if done.stat is None else done.stat.version
            self.writes.append(
                LoggedWrite(self.tree.zxid, session_id, kind, done.path, data, version)
            )

    def _fire(self, outcome: Outcome) -> None:
        for event, acl in zip(outcome.events, outcome.acls, strict=True):
            frame = b""
            for connection in self.watches.take(event):
                if znode_acls.allows(acl, znode_acls.READ, connection.identities):
                    frame = frame or notification(event)
                    connection.send(frame)

    # --- what goes out ----------------------------------------------------------------------

    def emit(self, connection: Connection, frame: bytes | None) -> None:
        """Send a frame, or close (None), once all transactions up to now are durable."""
        database = self.database
        if database is not None and not database.is_complete:
            database.fail(RuntimeError("a change did not come into the log"))
            return
        if database is None or database.durable == database.appended:
            _put_out(connection, frame)
            return
        now_s = self.world.clock.monotonic()
        self._held.append((database.appended, now_s, connection, frame))
        self._held_bytes += len(frame or b"")
        if self._is_overloaded():
            self._paused[connection] = None
            connection.pause()

    def _is_overloaded(self) -> bool:
        limits = self.limits
        return limits is not None and (
            len(self._held) > limits.outstanding_requests
            or self._held_bytes > limits.outstanding_bytes
        )

    def _release(self) -> None:
        """Send what waited for the transactions that are durable now."""
        assert self.database is not None, "it calls this"
        durable, held = self.database.durable, self._held
        now_s = self.world.clock.monotonic()
        ready: dict[Connection, list[bytes | None]] = {}
        count, total, least, most = self.latency
        while held and held[0][0] <= durable:
            _, since_s, connection, frame = held.popleft()
            self._held_bytes -= len(frame or b"")
            ready.setdefault(connection, []).append(frame)
            took_ms = (now_s - since_s) * 1000
            count, total, most = count + 1, total + took_ms, max(most, took_ms)
            least = took_ms if count == 1 else min(least, took_ms)
        self.latency = Latency(count, total, least, most)
        for connection, frames in ready.items():
            whole = [f for f in frames if f is not None]
            counted = connection if connection in self.connections else self.totals
            counted.sent += len(whole)
            connection.write(b"".join(whole))
            if frames[-1] is None:
                _put_out(connection, None)
        if self._paused and not held:
            paused, self._paused = self._paused, {}
            for connection in paused:
                connection.resume()

    # --- connections ------------------------------------------------------------------------

    def on_connected(self, connection: Connection) -> bool:
        """Take a connection; False where there are too many."""
        self.connections[connection] = None
        group = self._waiting.setdefault(connection.address, {})
        group[connection] = None
        if self.limits is None:
            return True
        if len(group) > self.limits.waiting:
            next(iter(group)).drop()
        if len(self.connections) > self.limits.connections:
            address = max(self._waiting, key=lambda one: len(self._waiting[one]))
            oldest = next(iter(self._waiting[address]))
            if oldest is connection:
                return False
            oldest.drop()
        return True

    def _no_longer_waits(self, connection: Connection) -> None:
        group = self._waiting.get(connection.address, {})
        group.pop(connection, None)
        if not group:
            self._waiting.pop(connection.address, None)

    def make_room(self) -> None:
        """Drop the connection whose requests wait with the most bytes."""
        largest = max(self.connections, key=lambda c: c.input_bytes)
        if self.lines.allowed():
            log.warning("connection dropped, too much waits to be done peer=%s", largest.peer)
        largest.drop()

    def on_output(self) -> None:
        """Drop the connection with the most unread bytes once all have too many."""
        waiting = {c: c.output_bytes for c in self.connections}
        if self.limits is not None and sum(waiting.values()) > self.limits.total_output_bytes:
            max(waiting, key=waiting.__getitem__).drop_unread()

    def on_disconnected(self, connection: Connection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self.totals.received += connection.received
            self.totals.sent += connection.sent
        self._no_longer_waits(connection)
        self._paused.pop(connection, None)
        self.watches.forget(connection)
        session = connection.session
        if session is not None and session.connection is connection:
            session.connection = None

    def on_word(self, connection: Connection, word: bytes) -> bool:
        """Reply to a four-letter word; False if it is none."""
        connection.received += word in four_letter_words.WORDS
        text = four_letter_words.reply(word, self)
        if text is not None:
            connection.write(text.encode())
            connection.sent += 1
            connection.close()
        return text is not None


def _put_out(connection: Connection, frame: bytes | None) -> None:
    if frame is not None:
        connection.sent += 1
        connection.write(frame)
    elif connection.transport is not None:
        connection.transport.close()


def password_of(session_id: int) -> bytes:
    """Return a session's password as ZooKeeper makes it: 16 bytes of java.util.Random."""
    mask = (1 << 48) - 1
    state = (session_id ^ SUPER_SECRET ^ 0x5DEECE66D) & mask
    parts = []
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & mask
        parts.append((state >> 16).to_bytes(4, "little"))
    return b"".join(parts)
