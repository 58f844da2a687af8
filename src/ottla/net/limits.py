"""Limits: what one server grants its clients, and the counts that are held against it.

Who may call: `net.server` and whoever builds one. Invariants: every limit is finite; a census or
a budget may be shared by several servers of one broker. Answers to Kafka's `ConnectionQuotas`
and `SimpleMemoryPool`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from ottla.net.framing import DEFAULT_MAX_FRAME_BYTES


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """A listener's bounds, each beside its Kafka key; finite where Kafka's are not."""

    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES  # socket.request.max.bytes
    max_connections: int = 10_000  # max.connections
    max_connections_per_ip: int = 1_000  # max.connections.per.ip
    max_connection_rate: float = 200.0  # max.connection.creation.rate, per second
    idle_ms: int = 600_000  # connections.max.idle.ms
    request_read_deadline_ms: int = 30_000  # ours (fault F29): a byte trickle is no request
    slowest_bytes_per_s: int = 16_384  # ours: a large frame may take longer, at this pace at least
    max_pipelined: int = 5  # Kafka's idempotent producers keep five in flight
    outbound_high_bytes: int = 1_048_576  # ours (fault F30): beyond it nothing more is dispatched
    outbound_stall_ms: int = 60_000  # ours: a peer that drains nothing for so long is closed
    queued_bytes: int = 67_108_864  # queued.max.request.bytes


class Census:
    """Counts open connections, in all and per address."""

    def __init__(self, max_connections: int, max_per_ip: int) -> None:
        self.max_connections = max_connections
        self.max_per_ip = max_per_ip
        self.total = 0
        self.per_ip: dict[str, int] = {}
        self.rate_of: Callable[[str], float] | None = None
        """new connections per second that an address may make (KIP-612)"""
        self._paces: dict[str, tuple[float, Pace]] = {}

    def admit(self, ip: str) -> str | None:
        """Count a connection in and return None, or return why it is refused."""
        if self.total >= self.max_connections:
            return f"max.connections={self.max_connections} reached"
        count = self.per_ip.get(ip, 0)
        if count >= self.max_per_ip:
            return f"max.connections.per.ip={self.max_per_ip} reached"
        self.total += 1
        self.per_ip[ip] = count + 1
        return None

    def delay_s(self, ip: str, now: float) -> float:
        """Return how long a new connection waits for its address's turn."""
        rate = inf if self.rate_of is None else self.rate_of(ip)
        if rate == inf:
            return 0.0
        known = self._paces.get(ip)
        if known is None or known[0] != rate:
            if len(self._paces) >= self.max_connections:
                self._paces.clear()
            # A rate of nothing would never let anybody in: one an hour comes as near as it gets.
            known = self._paces[ip] = rate, Pace(max(rate, 1 / 3600))
        return known[1].delay_s(now)

    def leave(self, ip: str) -> None:
        self.total -= 1
        count = self.per_ip[ip] - 1
        if count:
            self.per_ip[ip] = count
        else:
            del self.per_ip[ip]


class Budget:
    """Bytes of requests still being read. Over the cap, new large frames wait their turn.

    As in Kafka's pool, a frame is let in while anything is free, so the cap may be passed by one
    frame, and a frame larger than the whole cap can still come in.
    """

    def __init__(self, cap_bytes: int) -> None:
        self.cap_bytes = cap_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], bool]]] = deque()

    def take(self, size: int, resume: Callable[[], bool]) -> bool:
        """Take `size` bytes now, or queue: `resume` is called once they were taken.

        `resume` returns False if nobody needs them any more; they are given back then.
        """
        if self.used_bytes < self.cap_bytes and not self._waiting:
            self.used_bytes += size
            return True
        self._waiting.append((size, resume))
        return False

    def give_back(self, size: int) -> None:
        self.used_bytes -= size
        assert self.used_bytes >= 0
        while self._waiting and self.used_bytes < self.cap_bytes:
            wanted, resume = self._waiting.popleft()
            self.used_bytes += wanted
            if not resume():
                self.used_bytes -= wanted

    @property
    def waiting(self) -> int:
        return len(self._waiting)


class Pace:
    """Spaces out new connections: at most `rate` per second after a burst of one second's worth."""

    def __init__(self, rate: float) -> None:
        self._gap_s = 1.0 / rate if rate > 0 else 0.0
        self._next = float("-inf")

    def delay_s(self, now: float) -> float:
        """Take the next slot; return how long its owner has to wait for it."""
        slot = max(self._next, now - 1.0)
        self._next = slot + self._gap_s
        return max(0.0, slot - now)
