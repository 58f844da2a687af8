"""Transaction markers: a queue per broker of commits and aborts that its partitions must hear of.

Who may call: `transaction_coordinator`. Invariants: one request at a time to each broker, with all
that is queued for it; what fails is sent again, to whoever leads by then, until it is done or the
coordination has moved. A deleted partition counts as done; that it is deleted says ZooKeeper, never
the metadata cache. Kafka: `TransactionMarkerChannelManager` and
`TransactionMarkerRequestCompletionHandler`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Protocol

from ottla.coordinators.transaction_channels import Channel
from ottla.coordinators.transactions import Send
from ottla.model.cluster import Endpoint
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import NO_LEADER, TopicPartition
from ottla.model.ports import World
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

logger = logging.getLogger(__name__)

RETRY_S = 0.05
"""Between two tries of what failed: an election takes longer, and a busy loop helps nobody."""

CHECK_S = 1.0
"""Between two questions to ZooKeeper about partitions that exist and the metadata does not know."""

FLEXIBLE_LEVEL = (2, 8)

DONE = frozenset(
    {
        ErrorCode.NONE,
        # No data of the transaction can be in such a partition.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
OVERTAKEN = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Another coordinator has gone on with this transactional id: ours is to be silent."""


DeletedOf = Callable[[Collection[TopicPartition]], Awaitable[Collection[TopicPartition]]]
"""Asks ZooKeeper which partitions are deleted or being deleted; OttlaError where it cannot tell."""


class Led(Protocol):
    """A partition as the metadata cache knows it."""

    @property
    def leader(self) -> int: ...


class Leaders(Protocol):
    """Where partitions are led: the broker's metadata cache."""

    def partition(self, topic: str, partition: int) -> Led | None: ...

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None: ...


class _Item:
    """Some partitions of one transaction, on their way to one broker."""

    __slots__ = ("partitions", "send")

    def __init__(self, send: Send, partitions: list[TopicPartition]) -> None:
        self.send = send
        self.partitions = partitions


class TransactionMarkers:
    """The queues. `marked` hears which partitions have their marker."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        leaders: Leaders,
        marked: Callable[[Send, Iterable[TopicPartition]], None],
        deleted_of: DeletedOf,
    ) -> None:
        self._world = world
        self._config = config
        self._leaders = leaders
        self._marked = marked
        self._deleted_of = deleted_of
        self._version = 1 if config.protocol_level >= FLEXIBLE_LEVEL else 0
        self._queues: dict[int, list[_Item]] = {}
        self._channels: dict[int, Channel] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._homeless: list[_Item] = []
        self._unknown: list[_Item] = []
        """Partitions that the metadata does not know, until ZooKeeper is asked about them."""
        self._check: asyncio.Task[None] | None = None
        self._next_check_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.sent_total = 0
        self.retried_total = 0

    def send(self, send: Send) -> None:
        """Have every partition of a transaction marked."""
        self._route(send, send.partitions)
        self._start()

    def _route(self, send: Send, partitions: Iterable[TopicPartition]) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        unknown = []
        for tp in sorted(partitions):
            found = self._leaders.partition(*tp)
            if found is None:
                unknown.append(tp)
            else:
                by_leader.setdefault(found.leader, []).append(tp)
        for leader, led in by_leader.items():
            item = _Item(send, led)
            if leader == NO_LEADER:
                self._later([item])
            else:
                self._queues.setdefault(leader, []).append(item)
        if unknown and asyncio.get_running_loop().time() < self._next_check_s:
            self._later([_Item(send, unknown)])
        elif unknown:
            self._unknown.append(_Item(send, unknown))

    def _later(self, items: list[_Item]) -> None:
        """Look anew for the leaders of these in a moment."""
        self._homeless += items
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._retry)

    def _start(self) -> None:
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        for broker_id, queue in self._queues.items():
            if queue and broker_id not in self._senders:
                work = self._deliver(broker_id)
                task = loop.create_task(work, name=f"markers-{broker_id}")
                self._senders[broker_id] = task
        if self._unknown and self._check is None:
            self._check = loop.create_task(self._check_unknown(), name="markers-unknown")

    async def _check_unknown(self) -> None:
        """Count partitions as done that are deleted; look for the others' leaders again.

        A coordinator that has just started knows no partition before the controller's metadata
        comes, and that may come after the LeaderAndIsr that made it a coordinator. A loop root.
        """
        try:
            while self._unknown:
                items = [i for i in self._unknown if not i.send.shard.over]
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
                    self._later(left)
        finally:
            self._check = None

    def _without(self, item: _Item, deleted: Collection[TopicPartition]) -> _Item | None:
        """Count deleted partitions as done; return the others, if there are any."""
        done = [tp for tp in item.partitions if tp in deleted]
        if done:
            logger.info(
                "no marker for deleted partitions id=%s partitions=%s",
                item.send.transaction.transactional_id, ",".join(map(str, done)),
            )  # fmt: skip
            self._marked(item.send, done)
        left = [tp for tp in item.partitions if tp not in deleted]
        return _Item(item.send, left) if left else None

    async def _deliver(self, broker_id: int) -> None:
        """Send what is queued for one broker until nothing is. A loop root."""
        try:
            while items := [i for i in self._queues.pop(broker_id, ()) if not i.send.shard.over]:
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
                    self._later(again)
        finally:
            self._senders.pop(broker_id, None)
        self._start()

    async def _request(self, broker_id: int, items: list[_Item]) -> list[_Item]:
        """Send one request; return what is to be sent again."""
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = Channel(
                self._world, self._config, "transaction-markers"
            )
        endpoint = self._leaders.endpoint(broker_id, self._config.inter_broker_listener)
        request = WriteTxnMarkersRequest(markers=[_marker(item) for item in items])
        self.sent_total += len(items)
        response = await channel.send(endpoint, request, self._version)
        found = _errors(response)
        again = []
        for item in items:
            left = self._conclude(item, found.get(item.send.transaction.producer_id, {}))
            if left:
                again.append(_Item(item.send, left))
        return again

    def _conclude(
        self, item: _Item, errors: dict[TopicPartition, ErrorCode]
    ) -> list[TopicPartition]:
        """Take in an answer; return the partitions to be tried again."""
        codes = {tp: errors.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR) for tp in item.partitions}
        done = [tp for tp, code in codes.items() if code in DONE]
        if done:
            self._marked(item.send, done)
        if any(code in OVERTAKEN for code in codes.values()):
            logger.warning(
                "markers given up id=%s coordinator_epoch=%d errors=%s",
                item.send.transaction.transactional_id, item.send.shard.epoch,
                {str(tp): code.name for tp, code in codes.items() if code not in DONE},
            )  # fmt: skip
            return []
        return [tp for tp, code in codes.items() if code not in DONE]

    def _retry(self) -> None:
        """Look anew for the leaders of what has none or failed. A loop root."""
        self._timer = None
        homeless, self._homeless = self._homeless, []
        for item in homeless:
            if not item.send.shard.over:
                self._route(item.send, item.partitions)
        self._start()

    @property
    def waiting(self) -> int:
        """How many pieces of transactions are not marked yet, and not on their way."""
        waiting = len(self._homeless) + len(self._unknown)
        return waiting + sum(map(len, self._queues.values()))

    async def close(self) -> None:
        """Send nothing any more. Whoever coordinates next sends the markers again."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = [*self._senders.values(), *([self._check] if self._check else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in self._channels.values():
            channel.close()


def _marker(item: _Item) -> WriteTxnMarkersRequest.WritableTxnMarker:
    send = item.send
    by_topic: dict[str, list[int]] = {}
    for topic, index in item.partitions:
        by_topic.setdefault(topic, []).append(index)
    one = WriteTxnMarkersRequest.WritableTxnMarkerTopic
    return WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=send.then.producer_id,
        producer_epoch=send.then.epoch,
        transaction_result=send.committed,
        topics=[one(name=t, partition_indexes=indexes) for t, indexes in by_topic.items()],
        coordinator_epoch=send.shard.epoch,
    )


def _errors(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, ErrorCode]]:
    """Return an answer's errors by producer id, which may stand in it more than once."""
    found: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in response.markers:
        codes = found.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for p in topic.partitions:
                codes[TopicPartition(topic.name, p.partition_index)] = ErrorCode(p.error_code)
    return found
