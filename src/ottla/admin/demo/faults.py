"""The demo's faults: which broker is killed, and waiting until what must follow has followed.

Invariants: `most_leaders` is pure; kill means SIGKILL, to that process alone; every wait has a
bound and says what it waited for.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable

from ottla.admin.demo.watching import NO_BROKER, Seen
from ottla.local.processes import ProcessId, send_signal, wait_gone
from ottla.model.errors import OttlaError

POLL_S = 0.02


def most_leaders(seen: Seen) -> int:
    """Return the broker that leads most partitions; of several the lowest id."""
    leads = Counter(leader for leader, _ in seen.leaders.values() if leader != NO_BROKER)
    if not leads:
        raise OttlaError("no partition has a leader; nothing to kill")
    return min(leads, key=lambda broker: (-leads[broker], broker))


def led_by(seen: Seen, broker: int) -> list[int]:
    """Return the partitions a broker leads."""
    return sorted(p for p, (leader, _) in seen.leaders.items() if leader == broker)


def kill(process: ProcessId) -> float:
    """Send SIGKILL and wait for the end; return when it was sent."""
    at = time.monotonic()
    send_signal(process, signal.SIGKILL)
    if wait_gone([process], 10):
        raise OttlaError(f"process {process.pid} survived kill -9")
    return at


def wait_for(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Wait until something is true; return the seconds it took. OttlaError after the bound."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise OttlaError(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(POLL_S)
    return time.monotonic() - started
