"""Tail recovery: before a broker that crashed leads again, others give back what it lost.

Who may call: `replica_manager` owns it, `control` hands partitions over. A power loss takes from a
log what was not yet on disk, acknowledged records among it, and ZooKeeper's ISR does not know. If
such a broker is made leader before it was in sync once in this life (everyone died, or it came
back so fast that nobody noticed), it would make the others truncate what only they still have.
Kafka does that in ZooKeeper mode (KIP-966 says why); here it asks first.

Invariants:
- only a partition whose log was recovered after an unclean stop, and that has not been in sync
  since, waits; nobody else's leadership is delayed by a single message
- while it waits the partition neither leads nor follows: clients and followers are told
  NOT_LEADER_OR_FOLLOWER and come back
- what is taken over continues our log by the epochs' own test (`truncation.divergence` at the other
  end); only a history with a later epoch than all of ours makes us cut what it does not hold
- every other replica is waited for, at most replica.lag.time.max.ms: the ISR does not say whom, for
  a controller that starts while the others are still down has taken them out. Who did not answer
  by then is named in a warning

The question is a Fetch of the "debugging replica" (-2), which followers answer up to their log end;
a JVM broker answers it just as well.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from ottla.log.log import Log
from ottla.model.cluster import Endpoint
from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError, StorageError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import World
from ottla.net.peer import PeerConnection
from ottla.replication.inter_broker import (
    FetcherSettings,
    fetch_version,
    list_offsets_version,
)
from ottla.replication.leader_session import (
    FIRST_VERSION_WITH_REPLICA_STATE,
    LAST_VERSION_WITHOUT_IDS,
)
from ottla.replication.partition import Partition
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.records import parse_batch_header

logger = logging.getLogger(__name__)

DEBUGGING_REPLICA = -2
EARLIEST = -2
SESSIONLESS = -1
RETRY_S = 0.1
ASK_S = 2.0
"""One question waits no longer than this: they are asked in turn, and who hangs is asked again."""


class RecoveryHost(Protocol):
    """What asking needs of the replica manager."""

    lag_ms: float

    def now_ms(self) -> float: ...

    def endpoint(self, broker_id: int) -> Endpoint | None: ...


class Recovering:
    """A partition that waits: whom it still has to hear, and what happens then."""

    __slots__ = ("deadline_ms", "finish", "log", "partition", "taken", "unheard")

    def __init__(
        self,
        partition: Partition,
        log: Log,
        unheard: set[int],
        deadline_ms: float,
        finish: Callable[[], None],
    ) -> None:
        self.partition = partition
        self.log = log
        self.unheard = unheard
        self.deadline_ms = deadline_ms
        self.finish = finish
        self.taken = 0


class TailRecovery:
    """Asks other replicas for the ends of logs that may have lost theirs."""

    def __init__(self, world: World, host: RecoveryHost, settings: FetcherSettings) -> None:
        self._world = world
        self._host = host
        self._settings = settings
        self._ask_s = min(settings.request_timeout_s, ASK_S)
        self._pending: dict[TopicPartition, Recovering] = {}
        self._peers: dict[int, PeerConnection] = {}
        self._task: asyncio.Task[None] | None = None
        self.asked_total = 0
        self.taken_over_total = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(
        self,
        partition: Partition,
        log: Log,
        replicas: Iterable[int],
        finish: Callable[[], None],
    ) -> None:
        """Ask for a partition; `finish` is called once, unless it is cancelled before."""
        others = set(replicas) - {self._settings.broker_id}
        deadline_ms = self._host.now_ms() + self._host.lag_ms
        self._pending[partition.tp] = Recovering(partition, log, others, deadline_ms, finish)
        self.asked_total += 1
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="tail-recovery")

    def cancel(self, tp: TopicPartition) -> None:
        """Forget a partition: the controller has decided otherwise."""
        self._pending.pop(tp, None)

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._pending.clear()
        self._close_peers()

    def _close_peers(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    async def _run(self) -> None:
        while self._pending:
            members = set[int]()
            for one in self._pending.values():
                members |= one.unheard
            moved = False
            for broker in sorted(members):
                try:
                    moved = await self._ask(broker) or moved
                except ConnectionLostError as error:
                    self._unreachable(broker, error)
                except Exception:
                    logger.exception("recovery of log ends failed broker=%d", broker)
            self._finish_those_who_may()
            if self._pending and not moved:
                await asyncio.sleep(RETRY_S)
        self._close_peers()

    def _unreachable(self, broker: int, error: ConnectionLostError) -> None:
        logger.debug("no log end of broker=%d error=%s", broker, error)
        peer = self._peers.pop(broker, None)
        if peer is not None:
            peer.close()

    def _finish_those_who_may(self) -> None:
        now_ms = self._host.now_ms()
        for tp, one in list(self._pending.items()):
            if one.unheard and now_ms < one.deadline_ms:
                continue
            del self._pending[tp]
            if one.unheard:
                logger.warning(
                    "leading without having heard partition=%s brokers=%s end=%d: records that "
                    "only they have will be lost",
                    tp, sorted(one.unheard), one.log.log_end_offset,
                )  # fmt: skip
            elif one.taken:
                logger.warning(
                    "log end recovered from other replicas partition=%s taken=%d end=%d",
                    tp, one.taken, one.log.log_end_offset,
                )  # fmt: skip
            one.finish()

    # --- one broker -----------------------------------------------------------------------------

    async def _peer(self, broker: int) -> PeerConnection:
        peer = self._peers.get(broker)
        if peer is None or peer.closed:
            endpoint = self._host.endpoint(broker)
            if endpoint is None:
                raise ConnectionLostError(f"no address of broker {broker} is known")
            peer = self._peers[broker] = await PeerConnection.open(
                self._world,
                endpoint.host,
                endpoint.port,
                f"broker-{self._settings.broker_id}-recovery",
                timeout_s=min(self._settings.connect_timeout_s, ASK_S),
            )
        return peer

    async def _ask(self, broker: int) -> bool:
        """Fetch once from a broker for all who want to hear it; True if anything came of it."""
        peer = await self._peer(broker)
        wanting = [o for o in self._pending.values() if broker in o.unheard]
        request, version = self._request(
            [(o, o.log.log_end_offset, o.log.latest_epoch) for o in wanting]
        )
        response = await peer.send(request, version, self._ask_s)
        by_key: dict[tuple[bytes | str, int], Recovering] = {}
        for one in wanting:
            tp = one.partition.tp
            by_key[tp.topic, tp.partition] = one
            by_key[one.partition.topic_id, tp.partition] = one
        moved = False
        for topic in response.responses:
            for data in topic.partitions:
                found = by_key.get((topic.topic or bytes(topic.topic_id), data.partition_index))
                if found is not None and self._pending.get(found.partition.tp) is found:
                    moved = await self._take(peer, broker, found, data) or moved
        return moved

    def _request(self, wanted: list[tuple[Recovering, int, int]]) -> tuple[FetchRequest, int]:
        """Return a fetch from offsets with the epochs that lead to them, and its version."""
        settings = self._settings
        version = fetch_version(settings.level)
        if any(one.partition.topic_id == ZERO_UUID for one, _, _ in wanted):
            version = min(version, LAST_VERSION_WITHOUT_IDS)
        request = FetchRequest(
            session_epoch=SESSIONLESS, min_bytes=0, max_wait_ms=0, max_bytes=settings.max_bytes
        )
        if version >= FIRST_VERSION_WITH_REPLICA_STATE:
            request.replica_state = FetchRequest.ReplicaState(replica_id=DEBUGGING_REPLICA)
        else:
            request.replica_id = DEBUGGING_REPLICA
        for one, offset, epoch in wanted:
            tp = one.partition.tp
            item = FetchRequest.FetchPartition(
                partition=tp.partition,
                fetch_offset=offset,
                last_fetched_epoch=epoch if version >= LAST_VERSION_WITHOUT_IDS else -1,
                log_start_offset=one.log.log_start_offset,
                partition_max_bytes=settings.partition_max_bytes,
            )
            request.topics.append(
                FetchRequest.FetchTopic(
                    topic=tp.topic, topic_id=one.partition.topic_id, partitions=[item]
                )
            )
        return request, version

    async def _take(
        self, peer: PeerConnection, broker: int, one: Recovering, data: FetchResponse.PartitionData
    ) -> bool:
        """Take over what a replica has beyond our end; True if it has been heard out, or gave."""
        tp = one.partition.tp
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._start_over_if_behind(peer, broker, one)
                return True
            if data.error_code:
                # Mostly NOT_LEADER_OR_FOLLOWER: it has not been told of its partition yet.
                return False
            if data.diverging_epoch.epoch >= 0:
                return await self._diverged(peer, broker, one, data)
            if data.records:
                end = one.log.log_end_offset
                one.log.append_as_follower(data.records)
                one.taken += one.log.log_end_offset - end
                self.taken_over_total += one.log.log_end_offset - end
                # Not through the partition: about to lead, it gives its log to nobody.
                one.log.set_high_watermark(max(one.log.high_watermark, data.high_watermark))
                if one.log.log_end_offset > end:
                    return True  # there may be more
            one.unheard.discard(broker)
        except StorageError:
            self._pending.pop(tp, None)  # offline by now
        except OttlaError as error:
            logger.warning("log end not recovered partition=%s broker=%d %s", tp, broker, error)
            one.unheard.discard(broker)
        return True

    async def _diverged(
        self, peer: PeerConnection, broker: int, one: Recovering, data: FetchResponse.PartitionData
    ) -> bool:
        """Cut our end if the other replica went on from there in a later epoch than all of ours.

        Else it only has less than we have, or something older; the leader's log stands.
        """
        there = data.diverging_epoch
        request, version = self._request([(one, there.end_offset, there.epoch)])
        response = await peer.send(request, version, self._ask_s)
        probe = response.responses[0].partitions[0] if response.responses else None
        if self._pending.get(one.partition.tp) is not one:
            return True
        records = probe.records if probe is not None and not probe.error_code else None
        if records:
            later = parse_batch_header(memoryview(records), 0).partition_leader_epoch
            if later > one.log.latest_epoch:
                logger.warning(
                    "cut before leading partition=%s to=%d end=%d: broker %d has epoch %d",
                    one.partition.tp, there.end_offset, one.log.log_end_offset, broker, later,
                )  # fmt: skip
                one.log.truncate_to(there.end_offset)
                return True
        one.unheard.discard(broker)
        return True

    async def _start_over_if_behind(
        self, peer: PeerConnection, broker: int, one: Recovering
    ) -> None:
        """Begin anew where a replica's log begins, if ours ends before that (an empty disk)."""
        request = ListOffsetsRequest(
            replica_id=DEBUGGING_REPLICA,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=one.partition.tp.topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=one.partition.tp.partition, timestamp=EARLIEST
                        )
                    ],
                )
            ],
        )
        version = list_offsets_version(self._settings.level)
        response = await peer.send(request, version, self._ask_s)
        answer = response.topics[0].partitions[0]
        if self._pending.get(one.partition.tp) is not one:
            return
        if not answer.error_code and answer.offset > one.log.log_end_offset:
            one.log.truncate_fully_and_start_at(answer.offset)
        else:
            one.unheard.discard(broker)  # it has nothing that continues our log

    def statistics(self) -> dict[str, int]:
        return {
            "waiting": len(self._pending),
            "asked_total": self.asked_total,
            "records_taken_over_total": self.taken_over_total,
        }
