"""Channels: one ordered queue of requests to each broker.

Invariants: one request in flight per broker; each is sent again until it is answered or the broker
is gone (its registration, not its responses, decides that); a response becomes an event, nothing is
handled here. A broker that cannot be reached while thousands of requests pile up loses them all but
its deletions, and gets a full resync once it responds: the queue has a bound and no request is ever
merely lost. A broker
that takes a request and closes the connection instead of answering gets it again more and more
rarely, so that what it cannot digest does not keep it busy. A connection that ends is opened again
though nothing is queued, so that the end of the broker's process is noticed (`crash_detection`).
Kafka: `ControllerChannelManager` and `RequestSendThread`.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ottla.controller.batch import Outgoing
from ottla.model.cluster import BrokerInfo, Endpoint
from ottla.model.errors import ConnectionLostError
from ottla.model.ports import Buffer
from ottla.model.time_slices import yield_to_loop

logger = logging.getLogger(__name__)

RETRY_BACKOFF_S = 0.1
MAX_RETRY_BACKOFF_S = 5.0
"""The longest pause before a request is sent again that was sent and never answered."""
SUSPICIOUS = 5
"""A request that was sent so often in vain is worth an error in the log, once."""
MAX_QUEUED = 5_000
LARGE_BYTES = 256 * 1024
"""Requests above this are written to one connection at a time: after small ones that all brokers
answer at once, the metadata of 50,000 partitions for 50 brokers would take 130 ms in one go."""
SLOW_RETRIES = 100
"""After so many failures in a row only every so manyth is logged."""


class Peer(Protocol):
    """A connection to one broker; `net.peer.PeerConnection` is one."""

    closed: bool

    def on_lost(self, callback: Callable[[], None]) -> None: ...

    def send_encoded(
        self, api_key: int, version: int, body: list[Buffer], timeout_s: float
    ) -> "asyncio.Future[Any]": ...

    def close(self) -> None: ...


Connect = Callable[[Endpoint], Awaitable[Peer]]
OnResponse = Callable[[Outgoing, Any], None]


class Observer(Protocol):
    """Hears of connections; `crash_detection.CrashDetector` is one."""

    def connected(self, broker: BrokerInfo) -> None:
        """Take a broker that accepted a connection."""

    def suspect(self, broker: BrokerInfo) -> None:
        """Take a broker whose connection ended, or to which none could be made."""


class Channel:
    """The channel to one broker, in one of its epochs."""

    def __init__(
        self,
        broker: BrokerInfo,
        endpoint: Endpoint | None,
        connect: Connect,
        timeout_s: float,
        on_response: OnResponse,
        on_full_resync: Callable[[int], None],
        observer: Observer | None = None,
        writing_large: asyncio.Lock | None = None,
    ) -> None:
        self._writing_large = writing_large or asyncio.Lock()
        self.broker = broker
        self._endpoint = endpoint
        self._connect = connect
        self._timeout_s = timeout_s
        self._on_response = on_response
        self._on_full_resync = on_full_resync
        self._observer = observer
        self._reconnect_due = False
        self._reconnects = 0
        """How often in a row that has failed."""
        self._queue: deque[Outgoing] = deque()
        self._wake = asyncio.Event()
        self._resync_due = False
        self._peer: Peer | None = None
        self._failures = 0
        self._suspected = False
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"controller-to-{broker.id}"
        )

    def send(self, request: Outgoing) -> None:
        if len(self._queue) >= MAX_QUEUED:
            kept = [r for r in self._queue if r.deletes]
            logger.error(
                "requests dropped broker=%d requests=%d reason=it does not respond",
                self.broker.id,
                len(self._queue) - len(kept),
            )
            self._queue = deque(kept[-MAX_QUEUED // 2 :])
            self._resync_due = True
        self._queue.append(request)
        self._wake.set()

    @property
    def queued(self) -> int:
        return len(self._queue)

    async def _run(self) -> None:
        while True:
            while not self._queue and not self._reconnect_due:
                self._wake.clear()
                await self._wake.wait()
            try:
                if self._queue:
                    await self._deliver(self._queue.popleft())
                else:
                    await self._reconnect()
            except Exception:  # a loop root: one bad response must not end the broker's channel
                logger.exception("request dropped broker=%d", self.broker.id)

    async def _deliver(self, request: Outgoing) -> None:
        """Send one request until it is answered. A request that cannot be encoded is our bug."""
        attempts = 0
        while True:
            body = request.encode()
            try:
                peer = await self._connected()
                attempts += 1
                result = await (await self._write(peer, request, body))
            except ConnectionLostError as error:
                await self._failed(request, error, attempts)
                continue
            self._failures = 0
            self._suspected = False
            if self._resync_due:
                self._resync_due = False
                self._on_full_resync(self.broker.id)
            self._on_response(request, result)
            return

    async def _write(
        self, peer: Peer, request: Outgoing, body: list[Buffer]
    ) -> "asyncio.Future[Any]":
        """Write a request, a large one in its turn; return the future of its response."""
        if sum(map(len, body)) <= LARGE_BYTES:
            return peer.send_encoded(request.api_key, request.version, body, self._timeout_s)
        async with self._writing_large:
            response = peer.send_encoded(request.api_key, request.version, body, self._timeout_s)
            try:
                await yield_to_loop()
            except BaseException:
                response.cancel()
                raise
            return response

    async def _connected(self) -> Peer:
        if self._peer is None or self._peer.closed:
            if self._endpoint is None:
                raise ConnectionLostError("it has no listener the controller could use")
            try:
                peer = self._peer = await self._connect(self._endpoint)
            except ConnectionLostError:
                self._suspect()
                raise
            self._reconnect_due = False
            self._reconnects = 0
            if self._observer is not None:
                self._observer.connected(self.broker)
                peer.on_lost(lambda: self._ended(peer))
            logger.info("broker connected broker=%d endpoint=%s", self.broker.id, self._endpoint)
        return self._peer

    def _ended(self, peer: Peer) -> None:
        """Take note that a connection has ended, by either side, unless the channel has."""
        if peer is self._peer:
            self._suspect()
            self._reconnect_due = True
            self._wake.set()

    def _suspect(self) -> None:
        if self._observer is not None:
            self._observer.suspect(self.broker)

    async def _reconnect(self) -> None:
        """Connect again, once; after a failure pause until there is something to send."""
        try:
            await self._connected()
        except ConnectionLostError:
            self._reconnects += 1
            doublings = min(self._reconnects, 10)
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    min(RETRY_BACKOFF_S * 2**doublings, MAX_RETRY_BACKOFF_S)
                ):
                    await self._wake.wait()

    async def _failed(self, request: Outgoing, error: ConnectionLostError, attempts: int) -> None:
        """Pause; `attempts` counts how often this request was sent without a response."""
        self._failures += 1
        if attempts == SUSPICIOUS and not self._suspected:
            self._suspected = True
            logger.error(
                "no response to request broker=%d api_key=%d request=%s retry_s=%.0f",
                self.broker.id,
                request.api_key,
                request.summary,
                MAX_RETRY_BACKOFF_S,
            )
        if self._failures == 1 or self._failures % SLOW_RETRIES == 0:
            logger.warning(
                "request not delivered broker=%d api_key=%d failures=%d error=%s",
                self.broker.id,
                request.api_key,
                self._failures,
                error,
            )
        self._drop_peer()
        doublings = max(0, min(attempts, 10) - 2)
        await asyncio.sleep(min(RETRY_BACKOFF_S * 2**doublings, MAX_RETRY_BACKOFF_S))

    def _drop_peer(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    def close(self) -> None:
        self._task.cancel()
        self._queue.clear()
        self._drop_peer()


class Channels:
    """The channels to all live brokers."""

    def __init__(
        self,
        connect: Connect,
        listener: str,
        timeout_s: float,
        on_response: OnResponse,
        on_full_resync: Callable[[int], None],
        observer: Observer | None = None,
    ) -> None:
        """`observer`: None where no one probes brokers."""
        self._connect = connect
        self._listener = listener
        self._timeout_s = timeout_s
        self._on_response = on_response
        self._on_full_resync = on_full_resync
        self._observer = observer
        self._channels: dict[int, Channel] = {}
        self._writing_large = asyncio.Lock()

    def add(self, broker: BrokerInfo) -> None:
        """Open a channel; what is queued is sent once the broker can be reached."""
        if broker.id in self._channels:
            return
        endpoint = next((e for e in broker.endpoints if e.listener == self._listener), None)
        self._channels[broker.id] = Channel(
            broker,
            endpoint,
            self._connect,
            self._timeout_s,
            self._on_response,
            self._on_full_resync,
            self._observer,
            self._writing_large,
        )

    def remove(self, broker_id: int) -> None:
        """Close a channel and forget what was not delivered."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def send(self, request: Outgoing) -> None:
        channel = self._channels.get(request.broker)
        if channel is None:
            logger.warning("no channel broker=%d api_key=%d", request.broker, request.api_key)
            return
        channel.send(request)

    def close(self) -> None:
        for broker_id in list(self._channels):
            self.remove(broker_id)

    def statistics(self) -> dict[int, int]:
        """Return how many requests wait, by broker."""
        return {broker: channel.queued for broker, channel in self._channels.items()}
