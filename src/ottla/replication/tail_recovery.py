"""Tail recovery: before a broker that crashed leads again, it copies what it lost from others.

A power loss removes from a log what was not yet on disk, acknowledged records among it, and
ZooKeeper's ISR does not show that. If such a broker became leader before its log was verified (all
replicas died, or it restarted before the controller noticed), it would make the others truncate
records that only they still have. Kafka does that in ZooKeeper mode; KIP-966 describes it as the
last replica standing problem. Here the broker queries the other replicas first (R18,
docs/adr/0005).

Invariants:
- only a partition whose log may have lost its tail waits; the leadership of no other partition is
  delayed
- while it waits the partition neither leads nor follows: clients and followers get
  NOT_LEADER_OR_FOLLOWER and try again
- records are taken over only if they continue our log by the comparison of epochs
  (`truncation.divergence` at the other replica); only a replica with a later epoch than all of ours
  makes us truncate what it does not have
- after such a truncation, records are taken over only from a replica that knows the epoch which
  caused it. Else two replicas could give and truncate the same records forever. If the replica
  that caused the truncation fails before we have all its records, the truncation is forgotten
- a replica is pending until it found our log to continue its own and then returned a log end that
  ours has reached, or until it responded that our offset is out of its range. A response without
  records, an error or a lost connection changes nothing
- the partition leads when no other replica is pending, or one was confirmed that is in the ISR and
  whose own log cannot have lost anything. Else it waits without a limit, and logs for which brokers
  every replica.lag.time.max.ms; only where an unclean election would be allowed too, it then leads

The query is a Fetch with replica id -3, which followers serve up to their log end, JVM brokers too,
and ListOffsets with -2, to which they respond with that end. Our own brokers also report whether
their log is complete (`COMPLETE_LOG_QUERY`).
"""

import asyncio
import logging
from collections.abc import Callable

from ottla.log.log import Log
from ottla.model.cluster import RECOVERING, LeadershipUpdate
from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError, StorageError
from ottla.model.ids import NO_EPOCH, ZERO_UUID, TopicPartition
from ottla.model.ports import World
from ottla.model.protocol import DEBUGGING_CONSUMER, EARLIEST, FUTURE_LOCAL_REPLICA, LATEST
from ottla.model.time_slices import InTimeSlices, TimeSlice, end_tasks, wait_at_most
from ottla.net.peer import PeerConnection
from ottla.replication.inter_broker import (
    COMPLETE_LOG_QUERY,
    BrokerConnection,
    FetcherSettings,
    OffsetResults,
    fetch_version,
    list_offsets_version,
    query_offsets,
)
from ottla.replication.leader_session import (
    FIRST_VERSION_WITH_REPLICA_STATE,
    LAST_VERSION_WITHOUT_IDS,
)
from ottla.replication.partition import Host, Partition
from ottla.replication.truncation import EpochEnd, truncation_point
from ottla.wire.messages.records import FetchRequest, FetchResponse

logger = logging.getLogger(__name__)

SESSIONLESS = -1
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 1.0
NO_BROKER = -1
MAX_PARTITIONS = 500
"""Partitions in one request: the other broker reads them all in one step."""
NO_RESULT = ErrorCode.UNKNOWN_SERVER_ERROR, -1
MAX_REQUEST_S = 2.0
"""One request waits no longer than this: brokers are queried in turn, each again and again."""


class Recovering:
    """A partition that waits: for which replicas, and what is called then."""

    def __init__(
        self,
        partition: Partition,
        log: Log,
        update: LeadershipUpdate,
        deadline_ms: float,
        finish: Callable[[], None],
    ) -> None:
        ours = partition.host.broker_id
        self.partition = partition
        self.log = log
        self.pending_replicas = {r for r in update.replicas if r != ours}
        self.isr = frozenset(update.isr)
        self.leader_epoch = update.leader_epoch
        self.truncated_by = NO_BROKER
        self.truncated_by_epoch = NO_EPOCH
        """The replica that made us truncate, or gave records after a truncation, and its newest
        epoch. Our log may never get that epoch: without records only its leader's log has it."""
        self.may_lose = update.recovery_state == RECOVERING
        """Whether it was elected uncleanly: losing records was accepted then."""
        self.confirmed = False
        """Whether a member of the ISR that cannot have lost anything was confirmed."""
        self.deadline_ms = self.next_warning_ms = deadline_ms
        self.finish = finish
        self.taken = 0

    @property
    def verified(self) -> bool:
        """Whether our log has every acknowledged record that any replica has."""
        return self.confirmed or not self.pending_replicas

    @property
    def was_truncated(self) -> bool:
        """Whether we truncated because of an epoch that our log has not got since."""
        return self.truncated_by_epoch > self.log.epochs.latest

    def replica_lost(self, broker: int) -> None:
        """Forget the truncation if this replica caused it and failed before it gave its records.

        Another replica that has the truncated records may still confirm our log (`confirmed`).
        """
        if broker == self.truncated_by and broker in self.pending_replicas:
            self.truncated_by, self.truncated_by_epoch = NO_BROKER, NO_EPOCH

    @property
    def unclean_allowed(self) -> bool:
        return self.may_lose or self.log.config.unclean_leader_election_enable


class TailRecovery:
    """Recovers the tails of logs from the other replicas."""

    def __init__(self, world: World, host: Host, settings: FetcherSettings) -> None:
        self._world = world
        self._host = host
        self._settings = settings
        self._request_timeout_s = min(settings.request_timeout_s, MAX_REQUEST_S)
        self._pending: dict[TopicPartition, Recovering] = {}
        self._connections: dict[int, BrokerConnection] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.asked_total = 0
        self.taken_over_total = 0
        self.truncated_total = 0
        """records cut off before leading, each perhaps acknowledged"""
        self.unverified_total = 0
        """Partitions that lead unverified, where unclean elections are allowed."""

    def __len__(self) -> int:
        return len(self._pending)

    def add(
        self,
        partition: Partition,
        log: Log,
        update: LeadershipUpdate,
        finish: Callable[[], None],
    ) -> None:
        """Query the other replicas of a partition that LeaderAndIsr makes us lead.

        `finish` is called once, unless it is cancelled before.
        """
        deadline_ms = self._host.now_ms() + self._host.lag_ms
        self._pending[partition.tp] = Recovering(partition, log, update, deadline_ms, finish)
        self.asked_total += 1
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="tail-recovery")

    def cancel(self, tp: TopicPartition) -> None:
        """Forget a partition: the controller has decided otherwise."""
        self._pending.pop(tp, None)

    async def close(self) -> None:
        await end_tasks(self._task)
        self._pending.clear()
        self._close_connections()

    def _close_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _run(self) -> None:
        while self._pending:
            self._wake.clear()
            members = set[int]()
            for one in self._pending.values():
                members |= one.pending_replicas
            progress = False
            for broker in sorted(members):
                try:
                    progress = await self._query_broker(broker) or progress
                except ConnectionLostError as error:
                    self._unreachable(broker, error)
                except Exception:
                    logger.exception("recovery of log ends failed broker=%d", broker)
                    self._forget_truncations(broker)
            await self._finish_verified()
            if self._pending and not progress:
                await self._pause()
        self._close_connections()

    async def _pause(self) -> None:
        """Wait before the next queries: longer once all deadlines are over."""
        now_ms = self._host.now_ms()
        soon = any(now_ms < one.deadline_ms for one in self._pending.values())
        await wait_at_most(self._wake, FIRST_RETRY_S if soon else LONGEST_RETRY_S)

    def _unreachable(self, broker: int, error: ConnectionLostError) -> None:
        logger.debug("log ends not read broker=%d error=%s", broker, error)
        self._forget_truncations(broker)
        connection = self._connections.pop(broker, None)
        if connection is not None:
            connection.close()

    def _forget_truncations(self, broker: int) -> None:
        for one in self._pending.values():
            one.replica_lost(broker)

    async def _finish_verified(self) -> None:
        now_ms = self._host.now_ms()
        async for tp, one in InTimeSlices(list(self._pending.items()), self._world.clock):
            if self._pending.get(tp) is not one:
                continue  # cancelled, or added again
            if not one.verified and (now_ms < one.deadline_ms or not self._late(one, now_ms)):
                continue
            del self._pending[tp]
            if one.taken:
                logger.warning(
                    "log end recovered from other replicas partition=%s records=%d "
                    "log_end_offset=%d",
                    tp,
                    one.taken,
                    one.log.log_end_offset,
                )
            try:
                one.finish()
            except Exception:  # the others go on
                logger.exception("log end recovered, and not leading partition=%s", tp)

    def _late(self, one: Recovering, now_ms: float) -> bool:
        """Log which brokers are missing; True if the partition is to lead all the same."""
        tp, missing, end = one.partition.tp, sorted(one.pending_replicas), one.log.log_end_offset
        if one.unclean_allowed:
            self.unverified_total += 1
            logger.warning(
                "leads although not all replicas were compared partition=%s brokers=%s "
                "log_end_offset=%d: records that only these brokers have will be lost; unclean "
                "leader election is allowed for this topic",
                tp,
                missing,
                end,
            )
            return True
        if now_ms >= one.next_warning_ms:
            one.next_warning_ms = now_ms + self._host.lag_ms
            logger.error(
                "not leading partition=%s log_end_offset=%d: after a crash its log may lack "
                "acknowledged "
                "records, and brokers %s did not respond. Start them, or accept the loss with "
                "unclean.leader.election.enable=true",
                tp,
                end,
                missing,
            )
        return False

    # --- one broker -----------------------------------------------------------------------------

    async def _peer(self, broker: int) -> PeerConnection:
        connection = self._connections.get(broker)
        if connection is None:
            settings = self._settings
            connection = self._connections[broker] = BrokerConnection(
                self._world,
                f"broker-{settings.broker_id}-recovery",
                min(settings.connect_timeout_s, MAX_REQUEST_S),
                settings.security,
            )
        return await connection.peer(self._host.endpoint(broker))

    async def _query_broker(self, broker: int) -> bool:
        """Query a broker for all partitions that wait for it; True if any made progress."""
        peer = await self._peer(broker)
        waiting = [o for o in self._pending.values() if broker in o.pending_replicas]
        progress = False
        for first in range(0, len(waiting), MAX_PARTITIONS):
            await self._host.make_truncations_durable()
            some = [o for o in waiting[first : first + MAX_PARTITIONS] if self._is_pending(o)]
            if some:
                progress = await self._fetch_from(peer, broker, some) or progress
        return progress

    def _is_pending(self, one: Recovering) -> bool:
        return self._pending.get(one.partition.tp) is one

    async def _fetch_from(self, peer: PeerConnection, broker: int, some: list[Recovering]) -> bool:
        request, version = self._request(
            [(o, o.log.log_end_offset, o.log.epochs.latest) for o in some]
        )
        response = await peer.send(request, version, self._request_timeout_s)
        by_key: dict[tuple[bytes | str, int], Recovering] = {}
        for one in some:
            tp = one.partition.tp
            by_key[tp.topic, tp.partition] = one
            by_key[one.partition.state.topic_id, tp.partition] = one
        progress = False
        empty: list[tuple[Recovering, bool]] = []
        time_slice = TimeSlice(self._world.clock)
        for topic in response.responses:
            for data in topic.partitions:
                if time_slice.over:
                    await time_slice.next()
                found = by_key.get((topic.topic or bytes(topic.topic_id), data.partition_index))
                if found is None or not self._is_pending(found):
                    continue
                if _is_empty(data):
                    empty.append((found, data.preferred_read_replica == broker))
                else:
                    progress = await self._apply(peer, broker, found, data) or progress
        if empty:
            progress = await self._compare_log_ends(peer, broker, empty) or progress
        return progress

    async def _compare_log_ends(
        self, peer: PeerConnection, broker: int, empty: list[tuple[Recovering, bool]]
    ) -> bool:
        """Confirm the replicas that have no records to give: their logs end where ours do.

        A response without records may have been cut short by any limit of the other broker.
        """
        results = await self._query(peer, [one for one, _ in empty], LATEST)
        responded = False
        for one, complete in empty:
            code, end = results.get(one.partition.tp, NO_RESULT)
            if self._is_pending(one) and not code and 0 <= end <= one.log.log_end_offset:
                self._confirm(broker, one, complete=complete)
                responded = True
        return responded

    def _confirm(self, broker: int, one: Recovering, *, complete: bool) -> bool:
        """Note that our log has every record of this replica that may be needed; return True."""
        one.pending_replicas.discard(broker)
        if complete and broker in one.isr:
            one.confirmed = True
        return True

    async def _query(
        self, peer: PeerConnection, wanted: list[Recovering], timestamp: int
    ) -> OffsetResults:
        version = list_offsets_version(self._settings.level)
        pairs = [(one.partition.tp, NO_EPOCH) for one in wanted]
        return await query_offsets(
            peer, version, self._request_timeout_s, DEBUGGING_CONSUMER, pairs, timestamp
        )

    def _request(self, wanted: list[tuple[Recovering, int, int]]) -> tuple[FetchRequest, int]:
        """Return a Fetch from offsets with their last fetched epochs, and its version."""
        settings = self._settings
        version = fetch_version(settings.level)
        if any(one.partition.state.topic_id == ZERO_UUID for one, _, _ in wanted):
            version = min(version, LAST_VERSION_WITHOUT_IDS)
        request = FetchRequest(
            session_epoch=SESSIONLESS,
            min_bytes=0,
            max_wait_ms=0,
            max_bytes=settings.max_bytes,
            rack_id=COMPLETE_LOG_QUERY,
        )
        if version >= FIRST_VERSION_WITH_REPLICA_STATE:
            request.replica_state = FetchRequest.ReplicaState(replica_id=FUTURE_LOCAL_REPLICA)
        else:
            request.replica_id = FUTURE_LOCAL_REPLICA
        for one, offset, epoch in wanted:
            tp = one.partition.tp
            item = FetchRequest.FetchPartition(
                partition=tp.partition,
                fetch_offset=offset,
                last_fetched_epoch=epoch,
                log_start_offset=one.log.log_start_offset,
                partition_max_bytes=settings.partition_max_bytes,
            )
            request.topics.append(
                FetchRequest.FetchTopic(
                    topic=tp.topic, topic_id=one.partition.state.topic_id, partitions=[item]
                )
            )
        return request, version

    async def _apply(
        self, peer: PeerConnection, broker: int, one: Recovering, data: FetchResponse.PartitionData
    ) -> bool:
        """Append a replica's records beyond our end; True if it gave any, or was confirmed."""
        tp = one.partition.tp
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return await self._start_over_if_behind(peer, broker, one)
            if data.error_code:
                # Mostly NOT_LEADER_OR_FOLLOWER: it has not got LeaderAndIsr for the partition yet.
                one.replica_lost(broker)
                return False
            if data.diverging_epoch.epoch >= 0:
                return await self._diverged(peer, broker, one, data)
            end = one.log.log_end_offset
            if one.was_truncated and not await self._knows_later_epoch(peer, broker, one, end):
                return broker not in one.pending_replicas
            assert data.records  # else `_is_empty`
            one.log.append_as_follower(data.records)
            one.taken += one.log.log_end_offset - end
            self.taken_over_total += one.log.log_end_offset - end
            # Not through the partition: it is about to lead, and gives its log to no caller.
            one.log.set_high_watermark(max(one.log.high_watermark, data.high_watermark))
        except StorageError:
            self._pending.pop(tp, None)  # offline by now
            return True
        except ConnectionLostError:
            raise
        except OttlaError as error:
            # It may have records that cannot be read there: it is not confirmed.
            logger.warning(
                "log end not recovered partition=%s broker=%d error=%s", tp, broker, error
            )
            return False
        return one.log.log_end_offset > end

    async def _diverged(
        self, peer: PeerConnection, broker: int, one: Recovering, data: FetchResponse.PartitionData
    ) -> bool:
        """Truncate our log if the other replica knows a later epoch than all of ours.

        Else it has only less of our last epoch, and our log stays. The leader of a later epoch had
        every record acknowledged before, even if it wrote nothing in that epoch.
        """
        there, log = data.diverging_epoch, one.log
        latest = log.epochs.latest
        if not await self._knows_later_epoch(peer, broker, one, there.end_offset):
            return broker not in one.pending_replicas
        point = truncation_point(
            EpochEnd(there.epoch, there.end_offset),
            EpochEnd(*log.end_offset_for_epoch(there.epoch)),
            log.log_end_offset,
            log.high_watermark,
        )
        before = log.log_end_offset, latest
        logger.warning(
            "truncated before leading partition=%s to_offset=%d log_end_offset=%d: the log of "
            "broker %d has a later leader epoch than %d",
            one.partition.tp,
            point.offset,
            log.log_end_offset,
            broker,
            latest,
        )
        self.truncated_total += max(0, log.log_end_offset - point.offset)
        log.truncate_to(point.offset)
        return (log.log_end_offset, log.epochs.latest) != before

    async def _start_over_if_behind(
        self, peer: PeerConnection, broker: int, one: Recovering
    ) -> bool:
        """Start over where a replica's log begins, if ours ends before that (an empty disk)."""
        code, start = (await self._query(peer, [one], EARLIEST)).get(one.partition.tp, NO_RESULT)
        if not self._is_pending(one) or code or start < 0:
            return False
        if start > one.log.log_end_offset:
            if one.was_truncated and not await self._knows_later_epoch(peer, broker, one, start):
                return broker not in one.pending_replicas
            one.log.truncate_fully_and_start_at(start)
            return True
        # It has nothing that continues our log: no epoch as late as ours, or less of it.
        complete = await self._is_complete(peer, broker, one, start)
        return self._is_pending(one) and self._confirm(broker, one, complete=complete)

    async def _knows_later_epoch(
        self, peer: PeerConnection, broker: int, one: Recovering, offset: int
    ) -> bool:
        """Return whether a replica knows a later epoch than our log, and the one that truncated it.

        If so, its newest epoch becomes `truncated_by_epoch`: no replica that does not know it may
        give records or make us truncate. If not, the replica is confirmed, except in two cases: it
        did not respond, or the replica that made us truncate has not given all its records yet.
        `offset` lies in its log, so that it refuses only epochs later than all it knows.
        """
        first = max(one.log.epochs.latest + 1, one.truncated_by_epoch)
        newest, last = first - 1, max(first, one.leader_epoch)
        epoch = first
        while newest < last:
            probe = await self._probe(peer, one, offset, epoch)
            if probe is None or probe.error_code not in (0, ErrorCode.OFFSET_OUT_OF_RANGE):
                return False
            if not probe.error_code:
                newest = epoch
            elif epoch > first:
                last = epoch - 1
            else:
                await self._confirm_older(peer, broker, one, offset)
                return False
            epoch = (newest + last + 1) // 2
        one.truncated_by, one.truncated_by_epoch = broker, newest
        return True

    async def _confirm_older(
        self, peer: PeerConnection, broker: int, one: Recovering, offset: int
    ) -> None:
        """Confirm a replica that has less of our last epoch, or records that we truncated.

        In the latter case our log need not have all its records: it is no proof for our log.
        """
        probe = await self._probe(peer, one, offset, NO_EPOCH)
        if probe is None or probe.error_code:
            return  # its log may begin after `offset` by now
        one.replica_lost(broker)  # if it caused the truncation: it has changed since
        if not one.was_truncated:
            self._confirm(broker, one, complete=probe.preferred_read_replica == broker)
        elif one.truncated_by not in one.pending_replicas:
            self._confirm(broker, one, complete=False)

    async def _probe(
        self, peer: PeerConnection, one: Recovering, offset: int, epoch: int
    ) -> FetchResponse.PartitionData | None:
        """Fetch one partition from an offset, with `epoch` as the last fetched epoch."""
        request, version = self._request([(one, offset, epoch)])
        response = await peer.send(request, version, self._request_timeout_s)
        if (
            not self._is_pending(one)
            or not response.responses
            or not response.responses[0].partitions
        ):
            return None
        found: FetchResponse.PartitionData = response.responses[0].partitions[0]
        return found

    async def _is_complete(
        self, peer: PeerConnection, broker: int, one: Recovering, offset: int
    ) -> bool:
        """Query whether a replica's log cannot have lost anything, at an offset that it has."""
        probe = await self._probe(peer, one, offset, NO_EPOCH)
        return probe is not None and not probe.error_code and probe.preferred_read_replica == broker

    def statistics(self) -> dict[str, int]:
        return {
            "waiting": len(self._pending),
            "asked_total": self.asked_total,
            "records_taken_over_total": self.taken_over_total,
            "led_unverified_total": self.unverified_total,
        }


def _is_empty(data: FetchResponse.PartitionData) -> bool:
    return not data.error_code and data.diverging_epoch.epoch < 0 and not data.records
