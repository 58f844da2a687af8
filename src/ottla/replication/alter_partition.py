"""ISR changes on their way to the controller: gathered, one request in flight, sent until answered.

Invariants:
- at most one open change per partition, at most one request in flight
- a change stays queued until the controller answered for that very partition; a request that is
  lost is sent again, since the controller recognises a change that it already made (R6)
- a response goes to the partition, which knows whether its proposal is still the one it waits for

Version 3 while all topics have ids, else 1, bounded by what the controller lists. Version 3 names
each member's broker epoch as it was when the change was proposed, so that a controller can refuse a
member that has died since (KIP-903); Kafka's leaders in ZooKeeper mode send -1, its controller does
not look. Kafka: `DefaultAlterPartitionManager`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ottla.model.cluster import LeaderAndIsr
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import Clock
from ottla.model.time_slices import TimeSlice, end_tasks
from ottla.net.peer import PeerConnection
from ottla.replication.isr import IsrState
from ottla.replication.partition import Partition
from ottla.replication.partition_state import IsrChange
from ottla.wire.messages.cluster import ApiVersionsRequest
from ottla.wire.messages.control import AlterPartitionRequest, AlterPartitionResponse

logger = logging.getLogger(__name__)

RETRY_S = 0.05
MAX_RETRY_S = 1.0
RESPONSE_S = 30.0
WITH_TOPIC_IDS = 3
WITHOUT_TOPIC_IDS = 1
LISTED_VERSIONS = 4
"""The ApiVersions version the first request of a controller connection uses."""


@dataclass(slots=True)
class Change:
    """One partition's open ISR change. `broker_epochs` pairs each member with its own."""

    partition: Partition
    proposal: IsrState
    wanted: LeaderAndIsr
    broker_epochs: tuple[tuple[int, int], ...]


class AlterPartitionManager:
    """Queue and sender of one broker's ISR changes."""

    def __init__(
        self,
        clock: Clock,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller_peer: Callable[[], Awaitable[PeerConnection]],
    ) -> None:
        self._clock = clock
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller_peer = controller_peer
        self._queue: dict[TopicPartition, Change] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._peer: PeerConnection | None = None
        self._highest = WITHOUT_TOPIC_IDS
        self.sent_total = 0
        self.failed_total = 0
        self.shrinks_total = 0
        self.expands_total = 0

    def __len__(self) -> int:
        return len(self._queue)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="alter-partition")

    async def close(self) -> None:
        await end_tasks(self._task)

    def submit(self, partition: Partition, change: IsrChange) -> None:
        """Queue a change. Another one still open for that partition makes it not attempted."""
        open_one = self._queue.get(partition.tp)
        if open_one is not None and open_one.partition.state.isr is open_one.proposal:
            partition.isr_change_rejected(change.proposal, ErrorCode.OPERATION_NOT_ATTEMPTED)
            return
        # An open change that its partition gave up (a new leader epoch) makes way.
        ours = self._broker_epoch()
        epochs = tuple((b, ours if e is None else e) for b, e in change.broker_epochs)
        self._queue[partition.tp] = Change(partition, change.proposal, change.wanted, epochs)
        self._wake.set()

    async def _run(self) -> None:
        retry_s = RETRY_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._forget_superseded()
            if not self._queue:
                continue
            try:
                settled = await self._send(list(self._queue.values()))
            except OttlaError as error:
                level = logging.INFO if retry_s == RETRY_S else logging.DEBUG
                logger.log(
                    level, "AlterPartition not sent error=%s partitions=%d", error, len(self._queue)
                )
                settled = False
            except Exception:
                logger.exception("AlterPartition failed partitions=%d", len(self._queue))
                settled = False
            if settled:
                retry_s = RETRY_S
            else:
                self.failed_total += 1
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, MAX_RETRY_S)
            if self._queue:
                self._wake.set()

    def _forget_superseded(self) -> None:
        for tp, change in list(self._queue.items()):
            if change.partition.state.isr is not change.proposal:
                del self._queue[tp]

    async def _version(self, peer: PeerConnection, ids: bool) -> int:
        """Return the version to speak; asks a new controller connection what it lists."""
        if peer is not self._peer:
            listed = await peer.send(
                ApiVersionsRequest(client_software_name="ottla", client_software_version="1"),
                LISTED_VERSIONS,
                RESPONSE_S,
            )
            highest = [k.max_version for k in listed.api_keys if k.api_key == 56]
            self._highest = highest[0] if highest else WITHOUT_TOPIC_IDS
            self._peer = peer
        return min(self._highest, WITH_TOPIC_IDS if ids else WITHOUT_TOPIC_IDS)

    async def _send(self, changes: list[Change]) -> bool:
        """Send all `changes` in one request; True if the controller took the request at all."""
        peer = await self._controller_peer()
        ids = all(c.partition.state.topic_id != ZERO_UUID for c in changes)
        version = await self._version(peer, ids)
        request = self._request(changes, version)
        self.sent_total += 1
        response = await peer.send(request, version, RESPONSE_S)
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            logger.info("AlterPartition refused error=%s", code.name)
            return False
        return await self._settle(changes, response, version)

    def _request(self, changes: list[Change], version: int) -> AlterPartitionRequest:
        topics: dict[str, AlterPartitionRequest.TopicData] = {}
        for change in changes:
            tp = change.partition.tp
            topic = topics.get(tp.topic)
            if topic is None:
                topic = topics[tp.topic] = AlterPartitionRequest.TopicData(
                    topic_name=tp.topic, topic_id=change.partition.state.topic_id
                )
            item = AlterPartitionRequest.PartitionData(
                partition_index=tp.partition,
                leader_epoch=change.wanted.leader_epoch,
                partition_epoch=change.wanted.partition_epoch,
                leader_recovery_state=change.wanted.recovery_state,
            )
            if version >= 3:
                item.new_isr_with_epochs = [
                    AlterPartitionRequest.BrokerState(broker_id=b, broker_epoch=epoch)
                    for b, epoch in change.broker_epochs
                ]
            else:
                item.new_isr = list(change.wanted.isr)
            topic.partitions.append(item)
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=list(topics.values()),
        )

    async def _settle(
        self, changes: list[Change], response: AlterPartitionResponse, version: int
    ) -> bool:
        """Hand each response to its partition; False if something has to be sent again."""
        sent = {c.partition.tp: c for c in changes}
        names = {c.partition.state.topic_id: c.partition.tp.topic for c in changes}
        clean = True
        errors: dict[str, int] = {}
        time_slice = TimeSlice(self._clock)
        for topic in response.topics:
            name = names.get(bytes(topic.topic_id)) if version >= 2 else topic.topic_name
            for item in topic.partitions:
                tp = TopicPartition(name or "", item.partition_index)
                change = sent.pop(tp, None)
                if change is None:
                    continue
                if self._queue.get(tp) is change:
                    del self._queue[tp]
                if item.error_code:
                    what = ErrorCode(item.error_code).name
                    errors[what] = errors.get(what, 0) + 1
                clean = self._responded(change, item) and clean
                if time_slice.over:
                    await time_slice.next()
        # One line for all: after a restart there are as many changes as partitions.
        logger.info(
            "AlterPartition sent partitions=%d errors=%s unanswered=%d partition=%s isr=%s",
            len(changes),
            errors or "none",
            len(sent),
            changes[0].partition.tp,
            changes[0].partition.state.isr.committed,
        )
        return clean and not sent

    def _responded(self, change: Change, item: AlterPartitionResponse.PartitionData) -> bool:
        code = ErrorCode(item.error_code)
        if code is ErrorCode.NONE:
            if change.partition.state.isr is change.proposal:
                grew = len(item.isr) - len(change.proposal.committed)
                self.shrinks_total += grew < 0
                self.expands_total += grew > 0
            change.partition.isr_change_accepted(
                change.proposal,
                LeaderAndIsr(
                    leader=item.leader_id,
                    leader_epoch=item.leader_epoch,
                    isr=tuple(item.isr),
                    partition_epoch=item.partition_epoch,
                    recovery_state=item.leader_recovery_state,
                ),
            )
            return True
        if change.partition.isr_change_rejected(change.proposal, code):
            self._queue.setdefault(change.partition.tp, change)
            return False
        return True

    def statistics(self) -> dict[str, int]:
        return {
            "open_changes": len(self._queue),
            "sent_total": self.sent_total,
            "failed_total": self.failed_total,
            "shrinks_total": self.shrinks_total,
            "expands_total": self.expands_total,
        }
