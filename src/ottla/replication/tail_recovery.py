"""Tail recovery: before a broker that crashed leads again, it copies what it lost from others.

Who may call: `replica_manager` owns it, `control` hands partitions over. A power loss takes from a
log what was not yet on disk, acknowledged records among it, and ZooKeeper's ISR does not know. If
such a broker is made leader before its log was shown to be complete (everyone died, or it came
back so fast that nobody noticed), it would make the others truncate what only they still have.
Kafka does that in ZooKeeper mode (KIP-966 says why); here it asks first (R18, docs/adr/0005).

Invariants:
- only a partition whose log may have lost its tail waits; nobody else's leadership is delayed by a
  single message
- while it waits the partition neither leads nor follows: clients and followers are answered
  NOT_LEADER_OR_FOLLOWER and come back
- what is taken over continues our log by the epochs' own test (`truncation.divergence` at the other
  end); only a history with a later epoch than all of ours makes us cut what it does not hold
- who does not know the epoch that made us cut gives nothing back: its history was left at the cut.
  Else two replicas could give and cut the same records for ever. If the replica that made us cut
  is lost before we have all of it, the cut is forgotten
- a replica is pending until it found our log to continue its own and, asked afterwards, answered a
  log end that ours has reached, or answered that our offset lies outside of its log. An answer
  without records, an error or a lost connection changes nothing
- it leads when no other replica is pending, or one has answered that is in the ISR and whose own
  log cannot have lost anything. Else it waits, however long, and logs for whom every
  replica.lag.time.max.ms; only where an unclean election would be allowed too, it then leads

The question is a Fetch with replica id -3, which followers answer up to their log end, JVM brokers
too, and ListOffsets with -2, which they answer with that end. Our own brokers also tell whether
their log is whole (`WHOLE_LOG_QUESTION`).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from ottla.log.log import Log
from ottla.model.cluster import RECOVERING, Endpoint, LeadershipUpdate
from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError, StorageError
from ottla.model.ids import NO_EPOCH, ZERO_UUID, TopicPartition
from ottla.model.ports import World
from ottla.model.protocol import DEBUGGING_CONSUMER, EARLIEST, FUTURE_LOCAL_REPLICA, LATEST
from ottla.model.time_slices import InTimeSlices, TimeSlice, wait_at_most
from ottla.net.peer import PeerConnection
from ottla.replication.inter_broker import (
    WHOLE_LOG_QUESTION,
    FetcherSettings,
    fetch_version,
    list_offsets_version,
)
from ottla.replication.leader_session import (
    FIRST_VERSION_WITH_REPLICA_STATE,
    LAST_VERSION_WITHOUT_IDS,
)
from ottla.replication.offset_queries import OffsetResults, query_offsets
from ottla.replication.partition import Partition
from ottla.replication.truncation import EpochEnd, truncation_point
from ottla.wire.messages.fetch import FetchRequest, FetchResponse

logger = logging.getLogger(__name__)

SESSIONLESS = -1
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 1.0
NOBODY = -1
MOST_ASKED = 500
"""Partitions in one question: the other broker reads them all in one go."""
NO_RESULT = ErrorCode.UNKNOWN_SERVER_ERROR, -1
ASK_S = 2.0
"""One question waits no longer than this: they are asked in turn, and who hangs is asked again."""


class RecoveryHost(Protocol):
    """What asking needs of the replica manager."""

    lag_ms: float

    def now_ms(self) -> float: ...

    def endpoint(self, broker_id: int) -> Endpoint | None: ...

    async def make_truncations_durable(self) -> None:
        """Wait until the truncations so far are durable: then records may be appended there."""
        ...


class Recovering:
    """A partition that waits: for which replicas, and what happens then."""

    __slots__ = (
        "confirmed",
        "cut_by",
        "cut_by_epoch",
        "deadline_ms",
        "finish",
        "isr",
        "leader_epoch",
        "log",
        "may_lose",
        "next_warning_ms",
        "partition",
        "pending_replicas",
        "taken",
    )

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
        self.cut_by = NOBODY
        self.cut_by_epoch = NO_EPOCH
        """the replica that made us cut, or that gave records after a cut, and its newest epoch. Our
        log may never get that: of an epoch without records only its leader's log knows"""
        self.may_lose = update.recovery_state == RECOVERING
        """whether it was elected uncleanly: losing records was accepted then"""
        self.confirmed = False
        """whether a member of the ISR that cannot have lost anything has answered"""
        self.deadline_ms = self.next_warning_ms = deadline_ms
        self.finish = finish
        self.taken = 0

    @property
    def shown(self) -> bool:
        """Whether our log holds all that was acknowledged, as far as anybody kept it."""
        return self.confirmed or not self.pending_replicas

    @property
    def was_cut(self) -> bool:
        """Whether we were cut by an epoch that our log has not got since."""
        return self.cut_by_epoch > self.log.latest_epoch

    def replica_lost(self, broker: int) -> None:
        """Forget the cut if this replica made it and does not tell what it has instead.

        Another whose records were cut may still prove our log complete (`confirmed`).
        """
        if broker == self.cut_by and broker in self.pending_replicas:
            self.cut_by, self.cut_by_epoch = NOBODY, NO_EPOCH

    @property
    def unclean_allowed(self) -> bool:
        return self.may_lose or self.log.config.unclean_leader_election_enable


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
        self._wake = asyncio.Event()
        self.asked_total = 0
        self.taken_over_total = 0
        self.unproven_total = 0
        """partitions led without the proof, where unclean elections are allowed"""

    def __len__(self) -> int:
        return len(self._pending)

    def add(
        self,
        partition: Partition,
        log: Log,
        update: LeadershipUpdate,
        finish: Callable[[], None],
    ) -> None:
        """Ask the other replicas of a partition that LeaderAndIsr makes us lead.

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
            self._wake.clear()
            members = set[int]()
            for one in self._pending.values():
                members |= one.pending_replicas
            moved = False
            for broker in sorted(members):
                try:
                    moved = await self._ask(broker) or moved
                except ConnectionLostError as error:
                    self._unreachable(broker, error)
                except Exception:
                    logger.exception("recovery of log ends failed broker=%d", broker)
                    self._forget_cuts(broker)
            await self._finish_those_who_may()
            if self._pending and not moved:
                await self._pause()
        self._close_peers()

    async def _pause(self) -> None:
        """Wait before asking again: longer for those who have waited in vain for long."""
        now_ms = self._host.now_ms()
        soon = any(now_ms < one.deadline_ms for one in self._pending.values())
        await wait_at_most(self._wake, FIRST_RETRY_S if soon else LONGEST_RETRY_S)

    def _unreachable(self, broker: int, error: ConnectionLostError) -> None:
        logger.debug("log ends not read broker=%d error=%s", broker, error)
        self._forget_cuts(broker)
        peer = self._peers.pop(broker, None)
        if peer is not None:
            peer.close()

    def _forget_cuts(self, broker: int) -> None:
        for one in self._pending.values():
            one.replica_lost(broker)

    async def _finish_those_who_may(self) -> None:
        now_ms = self._host.now_ms()
        async for tp, one in InTimeSlices(list(self._pending.items()), self._world.clock):
            if self._pending.get(tp) is not one:
                continue  # cancelled, or given anew
            if not one.shown and (now_ms < one.deadline_ms or not self._late(one, now_ms)):
                continue
            del self._pending[tp]
            if one.taken:
                logger.warning(
                    "log end recovered from other replicas partition=%s records=%d "
                    "log_end_offset=%d",
                    tp, one.taken, one.log.log_end_offset,
                )  # fmt: skip
            one.finish()

    def _late(self, one: Recovering, now_ms: float) -> bool:
        """Say who is missing; True if the partition is to lead all the same."""
        tp, missing, end = one.partition.tp, sorted(one.pending_replicas), one.log.log_end_offset
        if one.unclean_allowed:
            self.unproven_total += 1
            logger.warning(
                "leading without their log ends partition=%s brokers=%s log_end_offset=%d: "
                "records that only "
                "they have will be lost; unclean leader election is allowed here",
                tp, missing, end,
            )  # fmt: skip
            return True
        if now_ms >= one.next_warning_ms:
            one.next_warning_ms = now_ms + self._host.lag_ms
            logger.error(
                "not leading partition=%s log_end_offset=%d: after a crash its log may lack "
                "acknowledged "
                "records, and brokers %s were not heard. Start them, or accept the loss with "
                "unclean.leader.election.enable=true",
                tp, end, missing,
            )  # fmt: skip
        return False

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
        """Ask a broker for all who want to hear it; True if anything came of it."""
        peer = await self._peer(broker)
        wanting = [o for o in self._pending.values() if broker in o.pending_replicas]
        moved = False
        for first in range(0, len(wanting), MOST_ASKED):
            await self._host.make_truncations_durable()
            some = [o for o in wanting[first : first + MOST_ASKED] if self._waits(o)]
            if some:
                moved = await self._ask_for(peer, broker, some) or moved
        return moved

    def _waits(self, one: Recovering) -> bool:
        return self._pending.get(one.partition.tp) is one

    async def _ask_for(self, peer: PeerConnection, broker: int, some: list[Recovering]) -> bool:
        request, version = self._request(
            [(o, o.log.log_end_offset, o.log.latest_epoch) for o in some]
        )
        response = await peer.send(request, version, self._ask_s)
        by_key: dict[tuple[bytes | str, int], Recovering] = {}
        for one in some:
            tp = one.partition.tp
            by_key[tp.topic, tp.partition] = one
            by_key[one.partition.topic_id, tp.partition] = one
        moved = False
        silent: list[tuple[Recovering, bool]] = []
        time_slice = TimeSlice(self._world.clock)
        for topic in response.responses:
            for data in topic.partitions:
                if time_slice.over:
                    await time_slice.next()
                found = by_key.get((topic.topic or bytes(topic.topic_id), data.partition_index))
                if found is None or not self._waits(found):
                    continue
                if _says_nothing(data):
                    silent.append((found, data.preferred_read_replica == broker))
                else:
                    moved = await self._take(peer, broker, found, data) or moved
        if silent:
            moved = await self._hear_out(peer, broker, silent) or moved
        return moved

    async def _hear_out(
        self, peer: PeerConnection, broker: int, silent: list[tuple[Recovering, bool]]
    ) -> bool:
        """Find out which of those that gave no records have none: their logs end where ours do.

        An answer without records may have been cut short by any limit at the other end.
        """
        results = await self._query(peer, [one for one, _ in silent], LATEST)
        answered = False
        for one, whole in silent:
            code, end = results.get(one.partition.tp, NO_RESULT)
            if self._waits(one) and not code and 0 <= end <= one.log.log_end_offset:
                self._heard(broker, one, whole=whole)
                answered = True
        return answered

    def _heard(self, broker: int, one: Recovering, *, whole: bool) -> bool:
        """Note that our log has what this replica has, as far as it may be needed; return True."""
        one.pending_replicas.discard(broker)
        if whole and broker in one.isr:
            one.confirmed = True
        return True

    async def _query(
        self, peer: PeerConnection, wanted: list[Recovering], timestamp: int
    ) -> OffsetResults:
        version = list_offsets_version(self._settings.level)
        pairs = [(one.partition.tp, NO_EPOCH) for one in wanted]
        return await query_offsets(peer, version, self._ask_s, DEBUGGING_CONSUMER, pairs, timestamp)

    def _request(self, wanted: list[tuple[Recovering, int, int]]) -> tuple[FetchRequest, int]:
        """Return a fetch from offsets with the epochs that lead to them, and its version."""
        settings = self._settings
        version = fetch_version(settings.level)
        if any(one.partition.topic_id == ZERO_UUID for one, _, _ in wanted):
            version = min(version, LAST_VERSION_WITHOUT_IDS)
        request = FetchRequest(
            session_epoch=SESSIONLESS,
            min_bytes=0,
            max_wait_ms=0,
            max_bytes=settings.max_bytes,
            rack_id=WHOLE_LOG_QUESTION,
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
                return await self._start_over_if_behind(peer, broker, one)
            if data.error_code:
                # Mostly NOT_LEADER_OR_FOLLOWER: it has not been told of its partition yet.
                one.replica_lost(broker)
                return False
            if data.diverging_epoch.epoch >= 0:
                return await self._diverged(peer, broker, one, data)
            end = one.log.log_end_offset
            if one.was_cut and not await self._knows_later_epoch(peer, broker, one, end):
                return broker not in one.pending_replicas
            assert data.records  # else it was silent
            one.log.append_as_follower(data.records)
            one.taken += one.log.log_end_offset - end
            self.taken_over_total += one.log.log_end_offset - end
            # Not through the partition: about to lead, it gives its log to nobody.
            one.log.set_high_watermark(max(one.log.high_watermark, data.high_watermark))
        except StorageError:
            self._pending.pop(tp, None)  # offline by now
            return True
        except ConnectionLostError:
            raise
        except OttlaError as error:
            # It may have what cannot be read there: that is no word of having nothing.
            logger.warning(
                "log end not recovered partition=%s broker=%d error=%s", tp, broker, error
            )
            return False
        return one.log.log_end_offset > end

    async def _diverged(
        self, peer: PeerConnection, broker: int, one: Recovering, data: FetchResponse.PartitionData
    ) -> bool:
        """Cut our end if the other replica knows a later epoch than all of ours, which left it out.

        Else it has only less of our last epoch; our log stands. Who led in a later epoch had all
        that was acknowledged before, also if it wrote nothing in that epoch.
        """
        there, log = data.diverging_epoch, one.log
        latest = log.latest_epoch
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
            "truncated before leading partition=%s to_offset=%d log_end_offset=%d: broker %d "
            "knows a later epoch than %d",
            one.partition.tp, point.offset, log.log_end_offset, broker, latest,
        )  # fmt: skip
        log.truncate_to(point.offset)
        return (log.log_end_offset, log.latest_epoch) != before

    async def _start_over_if_behind(
        self, peer: PeerConnection, broker: int, one: Recovering
    ) -> bool:
        """Begin anew where a replica's log begins, if ours ends before that (an empty disk)."""
        code, start = (await self._query(peer, [one], EARLIEST)).get(one.partition.tp, NO_RESULT)
        if not self._waits(one) or code or start < 0:
            return False
        if start > one.log.log_end_offset:
            if one.was_cut and not await self._knows_later_epoch(peer, broker, one, start):
                return broker not in one.pending_replicas
            one.log.truncate_fully_and_start_at(start)
            return True
        # It has nothing that continues our log: no epoch as late as ours, or less of it.
        whole = await self._is_whole(peer, broker, one, start)
        return self._waits(one) and self._heard(broker, one, whole=whole)

    async def _knows_later_epoch(
        self, peer: PeerConnection, broker: int, one: Recovering, offset: int
    ) -> bool:
        """Whether a replica knows a later epoch than our log has, not older than what made us cut.

        If so its newest epoch is from now on what made us cut: nobody who does not know it may
        give or cut. If not, it has been heard, but for two cases: it did not say, or who made us
        cut has not given all yet. `offset` lies in its log, so that it refuses only epochs later
        than all it knows.
        """
        first = max(one.log.latest_epoch + 1, one.cut_by_epoch)
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
                await self._hear_older(peer, broker, one, offset)
                return False
            epoch = (newest + last + 1) // 2
        one.cut_by, one.cut_by_epoch = broker, newest
        return True

    async def _hear_older(
        self, peer: PeerConnection, broker: int, one: Recovering, offset: int
    ) -> None:
        """Hear a replica that has less of our last epoch, or what the epoch that cut us left out.

        In the latter case we need not have all it has: then it does not vouch for us.
        """
        probe = await self._probe(peer, one, offset, NO_EPOCH)
        if probe is None or probe.error_code:
            return  # its log may begin after `offset` by now
        one.replica_lost(broker)  # if it made the cut: it has changed since
        if not one.was_cut:
            self._heard(broker, one, whole=probe.preferred_read_replica == broker)
        elif one.cut_by not in one.pending_replicas:
            self._heard(broker, one, whole=False)

    async def _probe(
        self, peer: PeerConnection, one: Recovering, offset: int, epoch: int
    ) -> FetchResponse.PartitionData | None:
        """Fetch one partition from an offset, as if we had read up to there in `epoch`."""
        request, version = self._request([(one, offset, epoch)])
        response = await peer.send(request, version, self._ask_s)
        if not self._waits(one) or not response.responses or not response.responses[0].partitions:
            return None
        found: FetchResponse.PartitionData = response.responses[0].partitions[0]
        return found

    async def _is_whole(
        self, peer: PeerConnection, broker: int, one: Recovering, offset: int
    ) -> bool:
        """Ask whether a replica's log cannot have lost anything, at an offset that it has."""
        probe = await self._probe(peer, one, offset, NO_EPOCH)
        return probe is not None and not probe.error_code and probe.preferred_read_replica == broker

    def statistics(self) -> dict[str, int]:
        return {
            "waiting": len(self._pending),
            "asked_total": self.asked_total,
            "records_taken_over_total": self.taken_over_total,
            "led_unproven_total": self.unproven_total,
        }


def _says_nothing(data: FetchResponse.PartitionData) -> bool:
    return not data.error_code and data.diverging_epoch.epoch < 0 and not data.records
