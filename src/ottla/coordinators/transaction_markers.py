"""Transaction markers: a queue of commit and abort markers for each broker.

Invariants: one request at a time to each broker, with all that is queued for it; what fails is sent
again, to the leader of that time, until it is done or another broker coordinates the transaction. A
deleted partition counts as done; ZooKeeper, never the metadata cache, says that it is deleted.
Kafka: `TransactionMarkerChannelManager` and `TransactionMarkerRequestCompletionHandler`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any, NamedTuple, Protocol

from ottla.coordinators.transactions import Markers
from ottla.model.cluster import Endpoint
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError
from ottla.model.ids import NO_LEADER, TopicPartition
from ottla.model.ports import World
from ottla.model.time_slices import end_tasks
from ottla.replication.inter_broker import BrokerConnection
from ottla.security.client import ClientSecurity
from ottla.wire.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.wire.schema import R, Request

logger = logging.getLogger(__name__)

RETRY_S = 0.05
"""Between two attempts; an election takes longer."""

CHECK_S = 1.0
"""Between two reads of ZooKeeper about partitions that exist but are not in the metadata cache."""

FLEXIBLE_LEVEL = (2, 8)

DONE = frozenset(
    {
        ErrorCode.NONE,
        # No data of the transaction can be in such a partition.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Another broker coordinates this transactional id: ours must not send these markers again."""


DeletedOf = Callable[[Collection[TopicPartition]], Awaitable[Collection[TopicPartition]]]
"""Returns which partitions are deleted or being deleted, from ZooKeeper; may raise OttlaError."""


class PartitionLeader(Protocol):
    """A partition as the metadata cache knows it."""

    @property
    def leader(self) -> int: ...


class Leaders(Protocol):
    """The leaders of partitions: the broker's metadata cache."""

    def partition(self, topic: str, partition: int) -> PartitionLeader | None: ...

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None: ...


class TransactionChannels:
    """The connections, and the tasks that send: `work` sends to a broker until nothing is left.

    One connection to each broker, for markers and for verification: one task sends to a broker, and
    one request at a time; a request is answered or fails within a limited time. Kafka: the two
    `InterBrokerSendThread`s of the coordinators.
    """

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


class _QueuedMarkers(NamedTuple):
    """The partitions of one transaction that one broker leads."""

    markers: Markers
    partitions: list[TopicPartition]


class TransactionMarkers:
    """The queues. `written` is called with the partitions that have their marker."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        leaders: Leaders,
        written: Callable[[Markers, Collection[TopicPartition]], None],
        deleted_of: DeletedOf,
        security: ClientSecurity | None = None,
    ) -> None:
        self._channels = TransactionChannels(
            world, config, leaders, "transaction-markers", self._deliver, security
        )
        self._leaders = leaders
        self._written = written
        self._deleted_of = deleted_of
        self._version = 1 if config.protocol_level >= FLEXIBLE_LEVEL else 0
        self._queues: dict[int, list[_QueuedMarkers]] = {}
        self._without_leader: list[_QueuedMarkers] = []
        self._unknown: list[_QueuedMarkers] = []
        """Partitions that are not in the metadata cache, until ZooKeeper is asked about them."""
        self._check: asyncio.Task[None] | None = None
        self._next_check_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.sent_total = 0
        self.retried_total = 0

    def send(self, markers: Markers) -> None:
        """Have markers written to every partition of a transaction."""
        self._route(markers, markers.partitions)
        self._start()

    def _route(self, markers: Markers, partitions: Iterable[TopicPartition]) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        unknown = []
        for tp in sorted(partitions):
            found = self._leaders.partition(*tp)
            if found is None:
                unknown.append(tp)
            else:
                by_leader.setdefault(found.leader, []).append(tp)
        for leader, led in by_leader.items():
            item = _QueuedMarkers(markers, led)
            if leader == NO_LEADER:
                self._retry_later([item])
            else:
                self._queues.setdefault(leader, []).append(item)
        if unknown and asyncio.get_running_loop().time() < self._next_check_s:
            self._retry_later([_QueuedMarkers(markers, unknown)])
        elif unknown:
            self._unknown.append(_QueuedMarkers(markers, unknown))

    def _retry_later(self, items: list[_QueuedMarkers]) -> None:
        """Look up the leaders of these again after a while."""
        self._without_leader += items
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._retry)

    def _start(self) -> None:
        if self._closed:
            return
        for broker_id, queue in self._queues.items():
            if queue:
                self._channels.start(broker_id)
        if self._unknown and self._check is None:
            loop = asyncio.get_running_loop()
            self._check = loop.create_task(self._check_unknown(), name="markers-unknown")

    async def _check_unknown(self) -> None:
        """Count deleted partitions as done; look up the leaders of the others again.

        A coordinator that has just started knows no partition before it gets the first
        UpdateMetadata, which may come after the LeaderAndIsr that made it a coordinator. A loop
        root.
        """
        try:
            while self._unknown:
                items = [i for i in self._unknown if i.markers.needed]
                self._unknown = []
                if not items:
                    break
                deleted: Collection[TopicPartition] = ()
                try:
                    deleted = await self._deleted_of({tp for i in items for tp in i.partitions})
                except OttlaError as error:
                    logger.info("unknown partitions not looked up error=%s", error)
                except Exception:
                    logger.exception("unknown partitions not looked up")
                left = [rest for item in items if (rest := self._without(item, deleted))]
                if left:
                    self._next_check_s = asyncio.get_running_loop().time() + CHECK_S
                    self._retry_later(left)
        finally:
            self._check = None

    def _without(
        self, item: _QueuedMarkers, deleted: Collection[TopicPartition]
    ) -> _QueuedMarkers | None:
        """Count deleted partitions as done; return the others, None if there are none."""
        done = [tp for tp in item.partitions if tp in deleted]
        if done:
            logger.info(
                "no marker for deleted partitions transactional_id=%s partitions=%s",
                item.markers.transaction.transactional_id,
                ",".join(map(str, done)),
            )
            self._written(item.markers, done)
        left = [tp for tp in item.partitions if tp not in deleted]
        return _QueuedMarkers(item.markers, left) if left else None

    async def _deliver(self, broker_id: int) -> None:
        """Send what is queued for one broker until nothing is. A loop root."""
        try:
            while items := [i for i in self._queues.pop(broker_id, ()) if i.markers.needed]:
                try:
                    again = await self._request(broker_id, items)
                except OttlaError as error:
                    logger.info("markers not sent broker=%d error=%s", broker_id, error)
                    again = items
                except Exception:
                    logger.exception("markers not sent broker=%d", broker_id)
                    again = items
                if again:
                    self.retried_total += len(again)
                    self._retry_later(again)
        finally:
            self._channels.ended(broker_id)
        self._start()

    async def _request(self, broker_id: int, items: list[_QueuedMarkers]) -> list[_QueuedMarkers]:
        """Send one request; return what has to be sent again."""
        request = WriteTxnMarkersRequest(markers=[_marker(item) for item in items])
        self.sent_total += len(items)
        response = await self._channels.send(broker_id, request, self._version)
        found = _errors(response)
        again = []
        for item in items:
            left = self._handle_response(item, found.get(item.markers.completion.producer_id, {}))
            if left:
                again.append(_QueuedMarkers(item.markers, left))
        return again

    def _handle_response(
        self, item: _QueuedMarkers, errors: dict[TopicPartition, ErrorCode]
    ) -> list[TopicPartition]:
        """Handle the response for one transaction; return the partitions to send to again."""
        codes = {tp: errors.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR) for tp in item.partitions}
        done = [tp for tp, code in codes.items() if code in DONE]
        if done:
            self._written(item.markers, done)
        if any(code in FENCED for code in codes.values()):
            logger.warning(
                "markers given up transactional_id=%s coordinator_epoch=%d errors=%s",
                item.markers.transaction.transactional_id,
                item.markers.shard.epoch,
                {str(tp): code.name for tp, code in codes.items() if code not in DONE},
            )
            return []
        return [tp for tp, code in codes.items() if code not in DONE]

    def _retry(self) -> None:
        """Look up again the leaders of what has none or failed. A loop root."""
        self._timer = None
        without_leader, self._without_leader = self._without_leader, []
        for item in without_leader:
            if item.markers.needed:
                self._route(item.markers, item.partitions)
        self._start()

    @property
    def waiting(self) -> int:
        """How many requests' worth of markers wait to be sent."""
        waiting = len(self._without_leader) + len(self._unknown)
        return waiting + sum(map(len, self._queues.values()))

    async def close(self) -> None:
        """Stop sending. The next coordinator sends the markers again."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await end_tasks(self._check)
        await self._channels.close()


def _marker(item: _QueuedMarkers) -> WriteTxnMarkersRequest.WritableTxnMarker:
    markers = item.markers
    by_topic: dict[str, list[int]] = {}
    for topic, index in item.partitions:
        by_topic.setdefault(topic, []).append(index)
    one = WriteTxnMarkersRequest.WritableTxnMarkerTopic
    return WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=markers.completion.producer_id,
        producer_epoch=markers.completion.epoch,
        transaction_result=markers.committed,
        topics=[one(name=t, partition_indexes=indexes) for t, indexes in by_topic.items()],
        coordinator_epoch=markers.shard.epoch,
    )


def _errors(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, ErrorCode]]:
    """Return a response's errors by producer id, which may be in it more than once."""
    found: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in response.markers:
        codes = found.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for p in topic.partitions:
                codes[TopicPartition(topic.name, p.partition_index)] = ErrorCode(p.error_code)
    return found
