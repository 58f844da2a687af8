"""A listener: accepts, admits, sweeps and closes connections, all of them bounded.

Invariants: one sweep timer per server checks all deadlines; responses completed in one iteration of
the loop leave in one write per connection; a refusal costs at most one log line a second. Kafka:
`SocketServer`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import islice

from ottla.model.ports import Buffer, Listener, World
from ottla.net import runtime
from ottla.net.connection import CloseConnection, Connection, Pending
from ottla.net.connection_host import OnSent, Unread
from ottla.net.frame_memory import FrameMemory
from ottla.net.handshakes import Handshakes, ListenerTls
from ottla.net.limits import (
    ConnectionQuotas,
    DispatchTimeSlice,
    FrameRules,
    RateLimiter,
    ServerLimits,
)
from ottla.net.response_memory import ResponseMemory
from ottla.net.tls import TlsTransport
from ottla.security.principals import ANONYMOUS
from ottla.security.sasl.authentication import Authentication

logger = logging.getLogger(__name__)

__all__ = ["CloseConnection", "Connection", "Dispatch", "Pending", "Server", "ServerLimits"]

Dispatch = Callable[[Connection, memoryview], "Sequence[Buffer] | Pending | None"]
"""Called for each frame in order. Returns the whole response without its size, or a Pending, or
None for "no response"; raises CloseConnection or WireError to close this connection."""

SWEEP_S, LEAST_SWEEP_S = 1.0, 0.01
REFUSED_LOG_INTERVAL_S = 60.0
MEMORY_SWEEP_S = 0.3
CLOSE_GRACE_S = 1.0
SILENT_S, NEWCOMER_S = 0.2, 2.0
"""A client that sends nothing, or no whole request, for so long (or is not authenticated) may lose
its place to one that comes later."""
MOST_LOOKS = 32
"""At newcomers, to find one that gives way."""


class SharedBounds:
    """What all listeners of a broker share: memory for requests and responses, and their turn."""

    def __init__(self, limits: ServerLimits, monotonic: Callable[[], float]) -> None:
        self.budget = FrameMemory(limits.queued_bytes)
        self.responses = ResponseMemory(limits.queued_response_bytes)
        self.broker_responses = ResponseMemory(limits.queued_response_bytes)
        self.turn = DispatchTimeSlice(monotonic)


class Server:
    """One listening socket and its connections."""

    def __init__(
        self,
        world: World,
        host: str,
        port: int,
        dispatch: Dispatch,
        limits: ServerLimits | None = None,
        *,
        rules: FrameRules | None = None,
        listener: str = "PLAINTEXT",
        connection_quotas: ConnectionQuotas | None = None,
        is_of_broker: Callable[[Connection, memoryview], bool | None] = lambda *_: False,
        bounds: SharedBounds | None = None,
        sent: OnSent[Connection] = lambda *_: None,
        between_brokers: bool = False,
        held: bool = False,
        tls: ListenerTls | None = None,
        authentication: Callable[[float], Authentication] | None = None,
    ) -> None:
        """Prepare to listen. `between_brokers`: no client is given this listener's address.

        `is_of_broker` tells whether a broker sent a frame, None where that is not known yet: then
        it may have a place above the limits. `tls`: its connections are encrypted; None: in the
        clear. `authentication` begins that of a connection, by SASL; None: there is none.
        """
        self.authentication = authentication
        self.limits = limits or ServerLimits()
        self.rules = rules or FrameRules()
        self.dispatch = dispatch
        self.sent = sent
        self.monotonic = world.clock.monotonic
        self.listener = listener
        self.unread: Unread = runtime.unread_bytes
        self.held = held
        self.between_brokers = between_brokers
        bounds = bounds or SharedBounds(self.limits, world.clock.monotonic)
        self.budget, self.turn = bounds.budget, bounds.turn
        self.responses, self.broker_responses = bounds.responses, bounds.broker_responses
        self.connections: dict[int, Connection] = {}
        self.now = world.clock.monotonic()
        self.accepted_count = 0
        self.refused_count = 0
        self._is_of_broker = is_of_broker
        self._world = world
        self._host = host
        self._wanted_port = port
        self._connection_quotas = connection_quotas or ConnectionQuotas(
            self.limits.max_connections, self.limits.max_connections_per_ip
        )
        self._paces: dict[str, RateLimiter] = {}
        """by address: a flood delays no other one's"""
        self._newcomers: dict[Connection, float] = {}
        """connections that are not established yet, and since when: the oldest first"""
        self._newcomers_of: dict[str, dict[Connection, float]] = {}
        """the same by address"""
        self._listener: Listener | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweep_s = max(
            LEAST_SWEEP_S,
            min(SWEEP_S, self.limits.idle_ms / 2000, self.limits.request_read_deadline_ms / 2000),
        )
        self._memory_timer: asyncio.TimerHandle | None = None
        self._touched: list[Connection] = []
        self._drained: asyncio.Event | None = None
        self._quiet_until = 0.0
        self._unlogged = 0
        self._turned_away = 0
        self._handshakes = None if tls is None else Handshakes(tls, world.clock.monotonic)
        self._turned_away_quiet_until = 0.0

    @property
    def port(self) -> int:
        """The bound port, also when 0 was asked for."""
        assert self._listener is not None, "not started"
        return self._listener.port

    async def start(self) -> None:
        """Listen. OSError (EADDRINUSE) if the address is taken."""
        self._listener = await self._world.network.listen(
            self._host, self._wanted_port, self._new_connection
        )
        self._sweep()

    def release(self) -> None:
        """Serve requests from now on. Until then a held server only accepts connections."""
        if self.held:
            self.held = False
            for connection in self.connections.values():
                if connection.authentication is not None:
                    connection.authentication.since_s = self.now
                connection.release()

    async def close(self) -> None:
        """Stop listening, send what is answered, then close every connection."""
        if self._listener is not None:
            self._listener.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        if self._memory_timer is not None:
            self._memory_timer.cancel()
            self._memory_timer = None
        for connection in list(self.connections.values()):
            connection.close()
        if not self.connections:
            return
        self._drained = asyncio.Event()
        try:
            async with asyncio.timeout(CLOSE_GRACE_S):
                await self._drained.wait()
        except TimeoutError:
            for connection in list(self.connections.values()):
                connection.abort()

    def _new_connection(self) -> Connection | TlsTransport:
        self.accepted_count += 1
        connection = Connection(self, self.accepted_count)
        return connection if self._handshakes is None else self._handshakes.transport(connection)

    def admit(self, connection: Connection) -> bool:
        """Admit or refuse a new connection. Connections call it."""
        ip = connection.peer[0]
        now = self._world.clock.monotonic()
        quota = self._connection_quotas.rate_limiter(ip)
        if quota is not None and quota.full(now):
            # Kafka, too, closes what is above an address's quota.
            self._log_refused_connection(connection, "connection_creation_rate of the address")
            return False
        refusal = self._connection_quotas.admit(ip)
        if refusal is not None and self._make_room(ip, now):
            refusal = self._connection_quotas.admit(ip)
        if refusal is not None:
            if self._connection_quotas.admit_on_trial(connection):
                connection.kept_place, connection.on_trial = True, refusal
                self.connections[connection.id] = connection
                return True
            self._log_refused_connection(connection, refusal)
            return False
        self.connections[connection.id] = connection
        self._newcomers[connection] = now
        self._newcomers_of.setdefault(ip, {})[connection] = now
        delay_s = 0.0 if quota is None else quota.delay_s(now)
        if not self.between_brokers:
            delay_s = max(delay_s, self._pace(ip).delay_s(now))
        if delay_s > 0:
            # Accepted, but not read until its turn: a storm costs sockets, no work.
            asyncio.get_running_loop().call_soon(connection.throttle, round(delay_s * 1000) + 1)
            if connection.authentication is not None:
                connection.authentication.since_s = now + delay_s
        return True

    def _pace(self, ip: str) -> RateLimiter:
        pace = self._paces.get(ip)
        if pace is None:
            if len(self._paces) >= self.limits.max_connections:
                self._paces.clear()
            pace = self._paces[ip] = RateLimiter(self.limits.max_connection_rate)
        return pace

    def _make_room(self, ip: str, now: float) -> bool:
        """Close a connection that has shown nothing for a while; return whether there was one.

        Where all places of an address are taken, it is one of that address.
        """
        crowded = self._connection_quotas.is_full_for(ip)
        newcomers = self._newcomers_of.get(ip, {}) if crowded else self._newcomers
        for newcomer, since in islice(newcomers.items(), MOST_LOOKS):
            if now - since < SILENT_S:
                return False
            if now - since >= NEWCOMER_S or newcomer.is_silent:
                self.note_refusal(newcomer, "nothing came of it, and others need its place")
                self._abandon(newcomer)
                return True
        return False

    def _abandon(self, connection: Connection) -> None:
        """Close a connection whose place another one gets."""
        connection.abort()
        self.dismiss(connection)  # a transport tells later that it is gone

    def judge(self, connection: Connection, frame: memoryview) -> None:
        """Let a connection on trial keep its place if a broker sent a frame. It calls this.

        CloseConnection if anybody else did, WireError for what is no request.
        """
        if connection.authentication is not None and connection.principal is ANONYMOUS:
            return
        found = self._is_of_broker(connection, frame)
        if found:
            connection.on_trial = ""
            self._connection_quotas.passed(connection)
        elif found is False:
            raise CloseConnection(f"{connection.on_trial}; only brokers are let in")

    def end_trial(self, connection: Connection) -> None:
        """Close a connection on trial. It calls this."""
        self._log_refused_connection(connection, connection.on_trial)
        self._abandon(connection)

    def began(self, connection: Connection) -> None:
        """Note that a request of it came, or that it was authenticated. It calls this."""
        if connection.authentication is None or connection.principal is not ANONYMOUS:
            connection.established = True
            self._forget_newcomer(connection)

    def _forget_newcomer(self, connection: Connection) -> None:
        if self._newcomers.pop(connection, None) is not None:
            ip = connection.peer[0]
            of_address = self._newcomers_of[ip]
            del of_address[connection]
            if not of_address:
                del self._newcomers_of[ip]

    def dismiss(self, connection: Connection) -> None:
        """Remove a connection. Connections call it when they are lost."""
        if self.connections.pop(connection.id, None) is None:
            return
        self._forget_newcomer(connection)
        ip = connection.peer[0]
        if connection.kept_place:
            self._connection_quotas.leave_kept(connection)
        else:
            self._connection_quotas.leave(ip)
        if (
            not (connection.began or connection.kept_place)
            and (pace := self._paces.get(ip)) is not None
        ):
            pace.give_back()
        if not self.connections and self._drained is not None:
            self._drained.set()

    def touch(self, connection: Connection) -> None:
        """Write and read for this connection at the end of the loop's iteration."""
        if connection.dirty:
            return
        connection.dirty = True
        if not self._touched:
            asyncio.get_running_loop().call_soon(self._pump_touched)
        self._touched.append(connection)

    def _pump_touched(self) -> None:
        touched, self._touched = self._touched, []
        for connection in touched:
            connection.dirty = False
            connection.pump()

    def _sweep(self) -> None:
        now = self.now = self._world.clock.monotonic()
        overdue = [(c, why) for c in self.connections.values() if (why := c.overdue(now))]
        if self._handshakes is not None:
            overdue += self._handshakes.overdue(now)
        for connection, why in overdue:
            self.note_refusal(connection, why)
            connection.abort()
        self.responses.sweep(now)
        self.broker_responses.sweep(now)
        self._sweep_timer = asyncio.get_running_loop().call_later(self._sweep_s, self._sweep)

    def watch_memory(self) -> None:
        """Check for slow frames regularly, as long as others wait for their memory."""
        if self._memory_timer is None:
            loop = asyncio.get_running_loop()
            self._memory_timer = loop.call_later(MEMORY_SWEEP_S, self._sweep_memory)

    def _sweep_memory(self) -> None:
        self._memory_timer = None
        self.budget.sweep(self._world.clock.monotonic())
        if self.budget.waiting:
            self.watch_memory()

    def _log_refused_connection(self, connection: Connection, reason: str) -> None:
        """Count and log a connection above a limit: one line a minute at most."""
        self.refused_count += 1
        self._turned_away += 1
        now = self._world.clock.monotonic()
        if now < self._turned_away_quiet_until:
            return
        self._turned_away_quiet_until = now + REFUSED_LOG_INTERVAL_S
        count, self._turned_away = self._turned_away, 0
        logger.warning(
            "connections refused count=%d peer=%s:%d listener=%s reason=%r",
            count,
            *connection.peer,
            self.listener,
            reason,
        )

    def note_refusal(self, connection: Connection, reason: str) -> None:
        """Count and log why a connection was closed: one line a second at most."""
        self.refused_count += 1
        now = self._world.clock.monotonic()
        if now < self._quiet_until:
            self._unlogged += 1
            return
        self._quiet_until = now + 1.0
        unlogged, self._unlogged = self._unlogged, 0
        logger.warning(
            "connection closed peer=%s:%d listener=%s reason=%r unlogged=%d",
            *connection.peer,
            self.listener,
            reason,
            unlogged,
        )

    def handshakes(self) -> tuple[int, int]:
        """Return how many handshakes of TLS succeeded and how many failed."""
        made = self._handshakes
        return (0, 0) if made is None else (made.established_count, made.failed_count)

    def queued(self) -> tuple[int, int]:
        """Return how many requests and how many responses wait in all connections."""
        counts = [c.queued() for c in self.connections.values()]
        return sum(requests for requests, _ in counts), sum(responses for _, responses in counts)

    def statistics(self) -> dict[str, object]:
        """Return the counts an operator wants to see."""
        return {
            "listener": self.listener,
            "connections": len(self.connections),
            "accepted": self.accepted_count,
            "refused": self.refused_count,
            "queued_bytes": self.budget.used_bytes,
            "waiting_for_bytes": self.budget.waiting,
            "response_bytes": self.responses.used_bytes,
            "handshakes": 0 if self._handshakes is None else len(self._handshakes),
        }
