"""Questions: what brokers are asked about the cluster, from any thread, in bounded time.

Invariants: one thread with one event loop per cluster, which serves any number of callers, also
those in which a loop runs; a connection is kept until it fails; nothing is asked twice here:
the caller knows what may be repeated.
"""

import asyncio
import concurrent.futures
import threading
from typing import cast

from ottla.model.errors import ConnectionLostError
from ottla.model.ports import Files, World
from ottla.net.peer import PeerConnection
from ottla.net.runtime import real_world
from ottla.wire.schema import R, Request

CLIENT_ID = "ottla-testing"
GRACE_S = 1.0
END_S = 5.0

__tracebackhide__ = True


class Questions:
    """See the module. Close it once; it may not be used afterwards."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._world: World | None = None
        self._peers: dict[int, PeerConnection] = {}
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="ottla-questions", daemon=True
        )
        self._thread.start()

    def ask(self, port: int, message: Request[R], timeout_s: float) -> R:
        """Send one request to the broker at a port; return its response.

        ConnectionLostError if it cannot be reached or does not respond within `timeout_s`.
        """
        future = asyncio.run_coroutine_threadsafe(self._ask(port, message, timeout_s), self._loop)
        try:
            return future.result(timeout_s + GRACE_S)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise ConnectionLostError(f"no response within {timeout_s:g} s") from None

    async def _ask(self, port: int, message: Request[R], timeout_s: float) -> R:
        if self._world is None:
            self._world = real_world(cast("Files", None))
        peer = self._peers.get(port)
        if peer is None or peer.closed:
            peer = await PeerConnection.open(
                self._world, "127.0.0.1", port, CLIENT_ID, timeout_s=timeout_s
            )
            self._peers[port] = peer
        return await peer.send(message, int(message.MAX_VERSION), timeout_s)

    def close(self) -> None:
        """Close all connections and end the thread."""

        def end() -> None:
            for peer in self._peers.values():
                peer.close()
            self._loop.call_soon(self._loop.call_soon, self._loop.stop)

        self._loop.call_soon_threadsafe(end)
        self._thread.join(END_S)
        if not self._thread.is_alive():
            self._loop.close()
