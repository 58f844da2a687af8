"""Limits of a server: frame sizes, connections, rates, memory; and which requests are special.

Invariants: every limit is finite; several servers of one broker may share `ConnectionQuotas`.
Kafka: `ConnectionQuotas`.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Protocol

import msgspec

from ottla.net.framing import DEFAULT_MAX_FRAME_BYTES

DISPATCH_SLICE_S = 0.008
"""Requests dispatched in one iteration of the loop take twice this at most, and the last one."""


class ServerLimits(msgspec.Struct, frozen=True):
    """A listener's bounds, each beside its Kafka key; finite where Kafka's are not."""

    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES  # socket.request.max.bytes
    max_unauthenticated_bytes: int = 524_288  # sasl.server.max.receive.size
    max_connections: int = 10_000  # max.connections
    max_connections_per_ip: int = 1_000  # max.connections.per.ip
    max_connection_rate: float = 200.0  # max.connection.creation.rate, per second and address
    idle_ms: int = 600_000  # connections.max.idle.ms
    request_read_deadline_ms: int = 30_000  # ours (fault F29): a byte trickle is no request
    slowest_bytes_per_s: int = 16_384  # ours: a large frame may take longer, at this pace at least
    max_pipelined: int = 5  # Kafka's idempotent producers keep five in flight
    outbound_high_bytes: int = 1_048_576  # ours (fault F30): beyond it nothing more is dispatched
    outbound_stall_ms: int = 60_000  # ours: a peer that drains nothing for so long is closed
    queued_bytes: int = 67_108_864  # queued.max.request.bytes
    queued_response_bytes: int = 67_108_864  # ottla.queued.max.response.bytes


class FrameRules(msgspec.Struct, frozen=True):
    """What is known of a request before it is read: by its API key, the first two bytes."""

    pipelined: bytes = b""
    """the one kind that is dispatched behind others of its kind that are not answered yet"""
    control_plane: frozenset[bytes] = frozenset()
    """from the controller: these never wait for memory that clients hold"""
    large_responses: frozenset[bytes] = frozenset()
    """not begun while responses that no client reads fill their memory"""


class DispatchTimeSlice:
    """How long requests may be dispatched before everything else on the loop runs.

    One for all listeners of a broker. When dispatching began, a callback is scheduled for the
    loop's next iteration; after `DISPATCH_SLICE_S` requests wait for that.
    """

    __slots__ = ("_ends_s", "_monotonic", "_noticed")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ends_s = 0.0
        self._noticed = False

    @property
    def over(self) -> bool:
        """Return whether the next request must wait for the loop's next iteration."""
        now = self._monotonic()
        if now < self._ends_s:
            return False
        if self._noticed:
            return True
        self._noticed = True
        self._ends_s = now + DISPATCH_SLICE_S
        asyncio.get_running_loop().call_soon(self._next)
        return False

    def _next(self) -> None:
        self._noticed = False
        self._ends_s = self._monotonic() + DISPATCH_SLICE_S


class Trial(Protocol):
    """A connection in a place that is kept for brokers."""

    def end_trial(self) -> None:
        """Close it, and free its place at once."""


class ConnectionQuotas:
    """Counts open connections, in all and per address (F45: also against the descriptors)."""

    def __init__(
        self,
        max_connections: int,
        max_per_ip: int,
        sockets: int | None = None,
        broker_places: int = 0,
    ) -> None:
        """Begin to count. `broker_places`: kept above the limits, for other brokers alone."""
        self._broker_places = broker_places
        self._brokers = 0
        self._on_trial: dict[Trial, None] = {}
        self.sockets = sockets
        """descriptors for connections; None: not limited"""
        self.max_connections = self.max_per_ip = 0
        self.name = self.ip_name = ""
        """the settings that the two limits come from"""
        self.limit(max_connections, max_per_ip)
        self.total = 0
        self.per_ip: dict[str, int] = {}
        self.rate_of: Callable[[str], float] | None = None
        """new connections per second that an address may make (KIP-612)"""
        self._limiters: dict[str, tuple[float, RateLimiter]] = {}

    def limit(self, max_connections: int, max_per_ip: int) -> None:
        """Set the limits: those of the settings, bounded by the descriptors."""
        self.max_connections, self.max_per_ip = max_connections, max_per_ip
        self.name, self.ip_name = "max.connections", "max.connections.per.ip"
        if self.sockets is not None and self.sockets < max_connections:
            self.max_connections, self.name = self.sockets, "open files limit: connections"
            # One address is not to take them all: brokers may come to the same listener.
            if max_per_ip > self.sockets * 3 // 4:
                self.max_per_ip = self.sockets * 3 // 4
                self.ip_name = "open files limit: connections per address"

    def admit(self, ip: str) -> str | None:
        """Count a connection and return None, or return why it is refused."""
        if self.total >= self.max_connections:
            return f"{self.name}={self.max_connections} reached"
        count = self.per_ip.get(ip, 0)
        if count >= self.max_per_ip:
            return f"{self.ip_name}={self.max_per_ip} reached"
        self.total += 1
        self.per_ip[ip] = count + 1
        return None

    def admit_on_trial(self, connection: "Trial") -> bool:
        """Give a connection above the limits a place kept for brokers; return whether it has one.

        Who it is, its first request tells. Until then it is the first to give way to a later one.
        """
        if self._brokers + len(self._on_trial) >= self._broker_places:
            if not self._on_trial:
                return False
            next(iter(self._on_trial)).end_trial()
        self._on_trial[connection] = None
        return True

    def passed(self, connection: "Trial") -> None:
        """Note that a connection on trial is a broker's: it keeps its place."""
        del self._on_trial[connection]
        self._brokers += 1

    def leave_kept(self, connection: "Trial") -> None:
        """Free the place of a connection that was on trial, or is."""
        if connection in self._on_trial:
            del self._on_trial[connection]
        else:
            self._brokers -= 1

    def is_full_for(self, ip: str) -> bool:
        """Return whether an address has all the connections that it may have."""
        return self.per_ip.get(ip, 0) >= self.max_per_ip

    def rate_limiter(self, ip: str) -> "RateLimiter | None":
        """Return what counts an address's new connections against its quota; None: it has none."""
        rate = inf if self.rate_of is None else self.rate_of(ip)
        if rate == inf:
            return None
        known = self._limiters.get(ip)
        if known is None or known[0] != rate:
            if len(self._limiters) >= self.max_connections:
                self._limiters.clear()
            # A rate of nothing would never let anybody in: one an hour comes as near as it gets.
            known = self._limiters[ip] = rate, RateLimiter(max(rate, 1 / 3600))
        return known[1]

    def leave(self, ip: str) -> None:
        self.total -= 1
        count = self.per_ip[ip] - 1
        if count:
            self.per_ip[ip] = count
        else:
            del self.per_ip[ip]


MOST_AHEAD_S = 1.0
"""No place is booked further ahead, however many connections come."""


class RateLimiter:
    """Spaces out new connections: at most `rate` per second after a burst of one second's worth.

    What is booked is bounded by `MOST_AHEAD_S`: those who come when that is full wait as long and
    no longer, so that a flood never decides when a later client is served.
    """

    __slots__ = ("_gap_s", "_next")

    def __init__(self, rate: float) -> None:
        self._gap_s = 1.0 / rate if rate > 0 else 0.0
        self._next = float("-inf")

    def full(self, now: float) -> bool:
        """Return whether the next place would be beyond what may be booked."""
        return self._next - now > MOST_AHEAD_S

    def delay_s(self, now: float) -> float:
        """Take the next place; return how long its owner has to wait for it."""
        slot = min(max(self._next, now - 1.0), now + MOST_AHEAD_S)
        self._next = slot + self._gap_s
        return max(0.0, slot - now)

    def give_back(self) -> None:
        """Take a place back: its connection is gone, and nothing of it was read."""
        self._next -= self._gap_s
