"""Transaction channels: one connection to each broker, for markers and for verification.

Invariants: a connection is opened when it is first needed, and again when the broker has another
address; a request is answered or fails within a bounded time. Kafka: the two
`InterBrokerSendThread`s of the coordinators.
"""

import asyncio
from typing import Any

from ottla.model.cluster import Endpoint
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConnectionLostError
from ottla.model.ports import World
from ottla.net.peer import PeerConnection
from ottla.security.client import ClientSecurity


class Channel:
    """The connection to one broker."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        name: str,
        security: ClientSecurity | None = None,
    ) -> None:
        self._security = security
        self._world = world
        self._client_id = f"broker-{config.broker_id}-{name}"
        self._connect_timeout_s = config.integer("socket.connection.setup.timeout.ms") / 1000
        self._timeout_s = config.integer("request.timeout.ms") / 1000
        self._peer: PeerConnection | None = None
        self._target: Endpoint | None = None
        self._lock = asyncio.Lock()

    async def send(self, endpoint: Endpoint | None, request: Any, version: int) -> Any:
        """Send one request and return its response; ConnectionLostError if there is none."""
        if endpoint is None:
            raise ConnectionLostError("the broker is not alive in the metadata cache")
        async with self._lock:
            peer = self._peer
            if peer is None or peer.closed or endpoint != self._target:
                self.close()
                peer = self._peer = await PeerConnection.open(
                    self._world,
                    endpoint.host,
                    endpoint.port,
                    self._client_id,
                    timeout_s=self._connect_timeout_s,
                    security=self._security,
                )
                self._target = endpoint
        return await peer.send(request, version, self._timeout_s)

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None
