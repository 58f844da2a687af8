"""Coordination: the service that the brokers of a test's cluster register with.

The one place that chooses which server it is: whatever replaces it is started here, on a given port
of 127.0.0.1.
"""

from ottla.model.ports import World
from ottla.zookeeper.memory import MemoryZooKeeper

HOST = "127.0.0.1"
TICK_MS = 100
"""Sessions end up to a tick late; the shortest timeout is two."""
LONGEST_SESSION_MS = 300_000


async def start_coordination(world: World, port: int) -> None:
    """Serve in the running loop until it ends; OSError if the port is taken."""
    server = MemoryZooKeeper(world, tick_ms=TICK_MS, max_session_timeout_ms=LONGEST_SESSION_MS)
    await server.start(HOST, port)
