"""Controller channel: this broker's one connection to the current controller.

Invariants: the controller is the one the metadata cache names; a connection to another one is
closed, never reused. Kafka: `NodeToControllerChannelManager`; requests take the network also when
this broker is the controller, as the JVM's do.
"""

import asyncio
import logging

from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.model.cluster import Endpoint
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConnectionLostError
from ottla.model.ports import World
from ottla.net.peer import PeerConnection
from ottla.security.client import ClientSecurity
from ottla.wire.schema import R, Request

logger = logging.getLogger(__name__)


class ControllerChannel:
    """Opens on demand, follows the controller."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        metadata: MetadataCache,
        security: ClientSecurity | None = None,
    ) -> None:
        self._security = security
        self._world = world
        self._config = config
        self._metadata = metadata
        self._lock = asyncio.Lock()
        self._peer: PeerConnection | None = None
        self._target: Endpoint | None = None

    def _endpoint(self) -> Endpoint:
        controller = self._metadata.controller_id
        endpoint = self._metadata.endpoint(controller, self._config.inter_broker_listener)
        if endpoint is None:
            raise ConnectionLostError(f"no address of a controller is known (id {controller})")
        return endpoint

    async def peer(self) -> PeerConnection:
        """Return an open connection to the current controller; ConnectionLostError if none."""
        async with self._lock:
            endpoint = self._endpoint()
            peer = self._peer
            if peer is not None and not peer.closed and endpoint == self._target:
                return peer
            self.close()
            timeout_s = self._config.integer("socket.connection.setup.timeout.ms") / 1000
            self._peer = await PeerConnection.open(
                self._world,
                endpoint.host,
                endpoint.port,
                f"broker-{self._config.broker_id}-controller",
                timeout_s=timeout_s,
                security=self._security,
            )
            self._target = endpoint
            logger.info("controller connected host=%s port=%d", endpoint.host, endpoint.port)
            return self._peer

    async def send(self, request: Request[R], version: int, timeout_s: float) -> R:
        """Send one request to the controller and return its response."""
        peer = await self.peer()
        return await peer.send(request, version, timeout_s)

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None
