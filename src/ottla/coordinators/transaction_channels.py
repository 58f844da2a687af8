"""Transaction channels: one connection to each broker, for markers and for verification.

Invariants: one task sends to a broker, and one request at a time; a request is answered or fails
within a bounded time. Kafka: the two `InterBrokerSendThread`s of the coordinators.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ottla.model.cluster import Endpoint
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConnectionLostError
from ottla.model.ports import World
from ottla.model.time_slices import end_tasks
from ottla.replication.inter_broker import BrokerConnection
from ottla.security.client import ClientSecurity
from ottla.wire.schema import R, Request


class PartitionLeader(Protocol):
    """A partition as the metadata cache knows it."""

    @property
    def leader(self) -> int: ...


class Leaders(Protocol):
    """The leaders of partitions: the broker's metadata cache."""

    def partition(self, topic: str, partition: int) -> PartitionLeader | None: ...

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None: ...


class TransactionChannels:
    """The connections, and the tasks that send: `work` sends to a broker until nothing is left."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        leaders: Leaders,
        name: str,
        work: Callable[[int], Coroutine[Any, Any, None]],
        security: ClientSecurity | None,
    ) -> None:
        self._world = world
        self._leaders = leaders
        self._listener = config.inter_broker_listener
        self._client_id = f"broker-{config.broker_id}-{name}"
        self._connect_timeout_s = config.integer("socket.connection.setup.timeout.ms") / 1000
        self._timeout_s = config.integer("request.timeout.ms") / 1000
        self._work = work
        self._security = security
        self._connections: dict[int, BrokerConnection] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}

    def start(self, broker_id: int) -> None:
        """Have a task send to a broker, unless one does."""
        if broker_id not in self._senders:
            task = asyncio.get_running_loop().create_task(
                self._work(broker_id), name=f"{self._client_id}-{broker_id}"
            )
            self._senders[broker_id] = task

    def ended(self, broker_id: int) -> None:
        """Note that the task of a broker has nothing left to send."""
        del self._senders[broker_id]

    async def send(self, broker_id: int, request: Request[R], version: int) -> R:
        """Send one request and return its response; ConnectionLostError if there is none."""
        endpoint = self._leaders.endpoint(broker_id, self._listener)
        if endpoint is None:
            raise ConnectionLostError("the broker is not alive in the metadata cache")
        connection = self._connections.get(broker_id)
        if connection is None:
            connection = self._connections[broker_id] = BrokerConnection(
                self._world, self._client_id, self._connect_timeout_s, self._security
            )
        peer = await connection.peer(endpoint)
        return await peer.send(request, version, self._timeout_s)

    async def close(self) -> None:
        """Stop sending."""
        await end_tasks(*self._senders.values())
        for connection in self._connections.values():
            connection.close()
