"""A client of a cluster: finds brokers, negotiates versions, sends to controller or leader.

Invariants: every wait has a bound; one connection per broker; a version is used only if both sides
list it; only failures to connect, and NOT_CONTROLLER responses, are retried here: the caller knows
what else may be repeated; the address of a broker that could not be reached is asked for again.
Kafka: `NetworkClient` and `AdminMetadataManager`.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

import msgspec

from ottla.model import waits
from ottla.model.errors import (
    BrokerNotAliveError,
    ConnectionLostError,
    ErrorCode,
    NotABrokerError,
    OttlaError,
    ServerRefusedError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from ottla.model.ids import TopicPartition
from ottla.model.ports import World, address_text
from ottla.net.framing import LOOKS_LIKE
from ottla.net.peer import API_VERSIONS_KEY, CLOSED, PeerConnection
from ottla.wire.messages.cluster import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataResponse,
)
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.schema import Message, R, Request

if TYPE_CHECKING:
    from ottla.security.client import ClientSecurity

RETRIES = 5
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 0.5
CONTROLLER = "controller"
VERSION_OF_ONE_KEY = 2
"""FindCoordinator of one key, which every broker since 1.1 understands."""

Text = str | Callable[[], str]
"""What a wait is for, or what returns it."""


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """Parse `host:port,host:port`; raise ValueError naming the part that is not an address."""
    found: list[tuple[str, int]] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        if "://" in part:
            scheme, _, rest = part.partition("://")
            raise ValueError(
                f"{part!r}: {scheme}:// does not belong there; write {rest or 'host:port'}"
            )
        host, colon, port = part.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is not an address; write host:port")
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not found:
        raise ValueError("no bootstrap address given; write host:port[,host:port]")
    return found


class Patience:
    """When what failed is tried again: waits between attempts until the time granted is over.

    Every wait is a little longer than the one before, up to a bound, and differs by chance, so that
    clients do not come back all at once; an error that lasts is raised as it is.
    """

    def __init__(
        self,
        now_s: Callable[[], float],
        chance: random.Random,
        granted_s: float,
        longest_s: float = LONGEST_WAIT_S,
    ) -> None:
        """`now_s`: a monotonic clock. `longest_s`: no wait is longer than twice this."""
        self._now_s = now_s
        self._chance = chance
        self._granted_s = granted_s
        self._longest_s = longest_s
        self._ends_s = now_s() + granted_s
        self._attempts = 0

    def renew(self) -> None:
        """Grant the time again: something succeeded."""
        self._ends_s = self._now_s() + self._granted_s
        self._attempts = 0

    async def pause(self) -> None:
        """Wait before the next attempt, however long that is."""
        await asyncio.sleep(self._next_s())

    async def wait(self, error: OttlaError) -> None:
        """Wait before the next attempt; raise the error if it lasts or no time is left."""
        left_s = self._ends_s - self._now_s()
        if not error.retriable or left_s <= 0:
            raise error
        await asyncio.sleep(min(self._next_s(), left_s))

    def _next_s(self) -> float:
        self._attempts += 1
        wait_s = min(FIRST_WAIT_S * self._attempts, self._longest_s)
        return wait_s * (1 + self._chance.random())


class Waiting(Protocol):
    """A wait, from `with` to its end; `text` says for what, and may change meanwhile."""

    text: Text

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


class _Leader(msgspec.Struct, frozen=True):
    """A partition's leader, with the leader epoch and the topic id."""

    broker_id: int
    epoch: int
    topic_id: bytes


class _Broker:
    """A connection with the versions its broker listed."""

    __slots__ = ("peer", "ranges")

    def __init__(self, peer: PeerConnection, ranges: dict[int, tuple[int, int]]) -> None:
        self.peer = peer
        self.ranges = ranges

    def version(self, message: Message) -> int:
        """Return the highest version of a message's API that both sides know."""
        low, high = self.ranges.get(message.API_KEY, (0, -1))
        version = min(high, int(message.MAX_VERSION))
        if version < max(low, int(message.MIN_VERSION)):
            raise UnsupportedVersionError(
                f"{self.peer.address} serves api {message.API_KEY} in versions "
                f"{low}-{high}, we support {message.MIN_VERSION}-{message.MAX_VERSION}"
            )
        return version


class Client:
    """One cluster, seen from outside."""

    def __init__(
        self,
        world: World,
        bootstrap: str | Sequence[tuple[str, int]],
        client_id: str = "ottla-client",
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        patience_s: float = 0.0,
        security: "ClientSecurity | None" = None,
    ) -> None:
        """`patience_s`: how long to look for a controller while some broker responds.

        `connect_timeout_s`: for a connection and its ApiVersions; by default as for a request.
        `security`: how the listeners want it; None: in the clear.
        """
        self.last_failure: ConnectionLostError | None = None
        """Why a broker could not be reached, the last time."""
        self._connect_timeout_s = connect_timeout_s
        self.world = world
        self._security = security
        self._patience_s = patience_s
        self._security = security
        self._bootstrap = (
            parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
        )
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connections: dict[tuple[str, int], _Broker] = {}
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._not_reached: set[int] = set()
        """Brokers whose address did not work since the last metadata, and may have changed."""
        self._controller_id = -1
        self._leaders: dict[tuple[str, int], _Leader] = {}

    async def call(
        self,
        message: Request[R],
        broker: int | str | None = None,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send to a broker id, "controller" or any broker (None); return the response message.

        The client tries a few times to connect, but only once to a broker given by its id: a
        caller that wants a leader had better refresh the metadata. A request that was sent is
        repeated only if the response is NOT_CONTROLLER. A request to the controller is tried for
        `patience_s` while any broker responds: after a kill -9 Metadata names the dead controller
        until its session ends.
        """
        timeout_s = timeout_s or self._timeout_s
        with self.waiting() as wait:
            return await self._call(message, broker, version, timeout_s, wait)

    async def _call(
        self,
        message: Request[R],
        broker: int | str | None,
        version: int | None,
        timeout_s: float,
        wait: Waiting,
    ) -> R:
        patience = self.patience(self._patience_s if broker == CONTROLLER else 0.0)
        attempts = 1 if isinstance(broker, int) else RETRIES
        while True:
            attempts -= 1
            try:
                target = await self._broker(broker, timeout_s)
            except (NotABrokerError, ServerRefusedError):
                raise
            except ConnectionLostError as error:
                problem: OttlaError = error
            else:
                sent = target.peer.send(
                    message, target.version(message) if version is None else version, timeout_s
                )
                with self.waiting(partial(_response, message, target.peer.address)):
                    response = await sent
                if broker != CONTROLLER or not _says_not_controller(response):
                    return response
                problem = OttlaError("the controller moved", ErrorCode.NOT_CONTROLLER)
            wait.text = str(problem)
            if attempts > 0:
                await patience.pause()
            elif any(not known.peer.closed for known in self._connections.values()):
                await patience.wait(problem)
            else:
                raise problem
            await self._forget_controller(broker)

    def patience(self, granted_s: float, longest_s: float = LONGEST_WAIT_S) -> Patience:
        """Return how long something is tried again for; no wait is longer than twice the second."""
        return Patience(self.world.clock.monotonic, self.world.random, granted_s, longest_s)

    async def refresh(self, topics: Iterable[str]) -> None:
        """Ask who is alive and who leads, before something is tried again.

        If no broker responds, the next attempt reports it.
        """
        try:
            await self.metadata(topics)
        except OttlaError as error:
            if not error.retriable:
                raise

    def waiting(self, text: Text = "") -> Waiting:
        """Return what encloses a wait; a command has long ones printed (`model.waits`)."""
        return waits.waiting(text)

    def say(self, text: str) -> None:
        """Take a message for people; for a subclass that passes it on."""

    async def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Return cluster metadata, of all topics for None, and remember what it says."""
        request = MetadataRequest(
            topics=None
            if topics is None
            else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        response = await self.call(request)
        self._learn(response)
        return response

    async def coordinator(self, key: str, kind: int) -> tuple[int, int]:
        """Ask any broker which one coordinates a group (kind 0) or a transactional id (kind 1).

        Return the error code and the broker id. Calls to that id go to the address in the response,
        as in Java's clients: at the address known before there may be another broker by now.
        """
        request = FindCoordinatorRequest(key=key, key_type=kind)
        response = await self.call(request, version=VERSION_OF_ONE_KEY)
        node, address = response.node_id, (response.host, response.port)
        if not response.error_code and self._addresses.get(node) != address:
            self._addresses[node] = address
            self._not_reached.discard(node)
        return int(response.error_code), int(node)

    async def controller_id(self) -> int:
        """Return the controller's broker id; ConnectionLostError while there is none."""
        if self._controller_id < 0:
            await self.metadata([])
        if self._controller_id < 0:
            raise ConnectionLostError("the cluster has no controller now")
        return self._controller_id

    async def leader(self, topic: str, partition: int, *, refresh: bool = False) -> int:
        """Return the id of a partition's leader; OttlaError while there is none."""
        key = (topic, partition)
        if refresh or key not in self._leaders:
            await self.metadata([topic])
        if key not in self._leaders:
            raise UnknownTopicError(f"{topic}-{partition} is unknown")
        leader = self._leaders[key].broker_id
        if leader < 0:
            raise OttlaError(f"{topic}-{partition} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        return leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the newest leader epoch seen of a partition; -1 if none was."""
        known = self._leaders.get((topic, partition))
        return -1 if known is None else known.epoch

    async def peer(self, broker: int | str | None = None) -> tuple[PeerConnection, "_Broker"]:
        """Return an open connection to a broker, and its version table, for pipelined use."""
        found = await self._broker(broker, self._timeout_s)
        return found.peer, found

    async def broker_ids(self) -> list[int]:
        """Return the ids of the live brokers, sorted."""
        await self.metadata([])
        return sorted(self._addresses)

    async def close(self) -> None:
        """Close every connection; open calls fail."""
        connections, self._connections = self._connections, {}
        for broker in connections.values():
            broker.peer.close()

    async def _forget_controller(self, broker: int | str | None) -> None:
        if broker == CONTROLLER:
            self._controller_id = -1

    def _learn(self, response: MetadataResponse) -> None:
        self._addresses = {b.node_id: (b.host, b.port) for b in response.brokers}
        self._not_reached.clear()
        self._controller_id = response.controller_id
        for topic in response.topics:
            for partition in topic.partitions:
                key = (topic.name or "", partition.partition_index)
                new = _Leader(partition.leader_id, partition.leader_epoch, topic.topic_id)
                known = self._leaders.get(key)
                # A broker that was cut off tells old news: only a new topic may go back.
                if known is None or new.epoch >= known.epoch or new.topic_id != known.topic_id:
                    self._leaders[key] = new

    async def _broker(self, broker: int | str | None, timeout_s: float) -> _Broker:
        if broker == CONTROLLER:
            broker = await self.controller_id()
        if isinstance(broker, int):
            if broker not in self._addresses or broker in self._not_reached:
                await self.metadata([])
            address = self._addresses.get(broker)
            if address is None:
                known = ", ".join(map(str, sorted(self._addresses))) or "none"
                raise BrokerNotAliveError(f"broker {broker} is not alive; alive are {known}")
            try:
                return await self._connected(address, timeout_s)
            except ConnectionLostError:
                self._not_reached.add(broker)
                raise
        assert broker is None, f"no such target: {broker!r}"
        return await self._any_broker(timeout_s)

    async def _any_broker(self, timeout_s: float) -> _Broker:
        for known in self._connections.values():
            if not known.peer.closed:
                return known
        addresses = list(dict.fromkeys([*self._bootstrap, *self._addresses.values()]))
        self.world.random.shuffle(addresses)
        last: ConnectionLostError | None = None
        for address in addresses:
            try:
                return await self._connected(address, timeout_s)
            except ServerRefusedError:
                raise  # the others would say the same
            except ConnectionLostError as error:
                last = self.last_failure = error
        assert last is not None
        raise last

    async def _connected(self, address: tuple[str, int], timeout_s: float) -> _Broker:
        lock = self._opening.setdefault(address, asyncio.Lock())
        async with lock:
            known = self._connections.get(address)
            if known is not None and not known.peer.closed:
                return known
            with self.waiting(f"{address_text(*address)} has not answered"):
                broker = await self._opened(address, self._connect_timeout_s or timeout_s)
            self._connections[address] = broker
            return broker

    async def _opened(self, address: tuple[str, int], timeout_s: float) -> _Broker:
        peer = await PeerConnection.open(
            self.world,
            *address,
            self._client_id,
            timeout_s=timeout_s,
            security=self._security,
        )
        try:
            return _Broker(peer, await _negotiate(peer, timeout_s))
        except ConnectionLostError as error:
            peer.close()
            if peer.timed_out:
                raise NotABrokerError(
                    f"{peer.address} accepts connections but did not respond within "
                    f"{timeout_s:g} s; is it a Kafka broker, is it paused?"
                ) from error
            if LOOKS_LIKE in peer.lost_reason:
                hint = peer.lost_reason[peer.lost_reason.index(LOOKS_LIKE) :]
                raise NotABrokerError(f"{peer.address} is not a Kafka listener: {hint}") from error
            if peer.lost_reason == CLOSED:
                raise ConnectionLostError(
                    f"{peer.address} closed the connection before it answered: it is not a Kafka "
                    "listener, it wants TLS or SASL, or the broker is shutting down"
                ) from error
            raise
        except BaseException:
            peer.close()
            raise


def _response(message: Message, address: str) -> str:
    name = type(message).__name__.removesuffix("Request")
    return f"{address} has not answered {name}"


def partitions_of(
    response: MetadataResponse,
) -> Iterator[tuple[TopicPartition, MetadataResponse.MetadataResponsePartition]]:
    """Yield every partition with what the response says of it, in the response's order."""
    for topic in response.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name or "", partition.partition_index), partition


async def _negotiate(peer: PeerConnection, timeout_s: float) -> dict[int, tuple[int, int]]:
    """Ask for the version table; a broker that knows only older ones says so in a v0 body."""
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version="0.1.0")
    version = int(ApiVersionsRequest.MAX_VERSION)
    response = await peer.send(request, version, timeout_s)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        listed = {k.api_key: k.max_version for k in response.api_keys}
        version = min(version, listed.get(API_VERSIONS_KEY, 0))
        response = await peer.send(request, version, timeout_s)
    if response.error_code != 0:
        raise OttlaError(f"{peer.address} refused ApiVersions: error {response.error_code}")
    return {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}


def _says_not_controller(response: object) -> bool:
    """Return whether a response carries NOT_CONTROLLER, in itself or for a topic or partition."""
    if getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
        return True
    fields = ("topics", "results", "responses", "replica_election_results", "partition_result")
    return any(
        _says_not_controller(item)
        for field in fields
        for item in getattr(response, field, None) or ()
    )
