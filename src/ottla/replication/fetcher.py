"""Replica fetcher: one task per leader and fetcher number copies partitions from that leader.

Invariants:
- a response applies only to the fetch state that was sent: a partition that was removed, or got a
  new leader epoch meanwhile, ignores it
- R1/R11: no append and no high watermark before the leader found our epochs matching; a response
  with a diverging epoch only truncates
- R3: a fenced partition is removed until the next LeaderAndIsr; an epoch that the leader does not
  know yet is tried again
- an error of one partition delays or fails that partition, never the others (R14, KAFKA-10371)
- R18: a log that may have lost its tail is verified as complete by the leader's log end. It is
  requested in this epoch (ListOffsets). Our log must have reached it, and the leader must have
  found our log to be a prefix of its own. A response without records verifies nothing: limits,
  throttles and cold disks cut responses short

Each partition's data is applied in one step; other tasks may run between two of them. Kafka:
`AbstractFetcherThread`, `ReplicaFetcherThread` and `RemoteLeaderEndPoint`.
"""

import asyncio
import heapq
import itertools
import logging
import math
from collections.abc import Callable

from ottla.model.errors import (
    ErrorCode,
    NotLeaderError,
    OttlaError,
    StorageError,
    UnsupportedFormatError,
)
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.model.protocol import EARLIEST, LATEST, UNDEFINED
from ottla.model.time_slices import TimeSlice, end_tasks, wait_at_most
from ottla.net.peer import PeerConnection
from ottla.replication.inter_broker import (
    LEAST_WAIT_MS,
    MOST_AT_ONCE,
    BrokerConnection,
    FetcherSettings,
    OffsetResults,
    fetch_version,
    list_offsets_version,
    offset_or_raise,
    query_offsets,
)
from ottla.replication.leader_session import (
    FIRST_VERSION_WITH_REPLICA_STATE,
    FetchPosition,
    LeaderSession,
)
from ottla.replication.partition import Host, Partition
from ottla.replication.truncation import EpochEnd, Restart, restart_point, truncation_point
from ottla.wire.messages.records import FetchRequest, FetchResponse

logger = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.05
"""A partition with an error waits this long, then twice as long, up to replica.fetch.backoff.ms.

Most errors only mean that one broker got the controller's request a moment before the other. Kafka
waits the full second each time, and so do the producers with acks=all.
"""

MAX_THROTTLE_DELAY_S = 1.0
"""The quota is checked again after this time at most: the throttle may have been removed."""

UNREAD_FORMAT_BACKOFF_S = 60.0
"""A partition whose leader sends records of a format that is not read here is tried so seldom."""

SESSION_ENDED = (
    ErrorCode.NONE,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
)
"""After these errors a full request follows at once; after any other one, after a backoff."""

SETTLING_S = 0.1
"""Fetches sent so soon after a partition was added wait for LEAST_WAIT_MS at the leader.

A LeaderAndIsr of thousands of partitions is applied in time slices. A fetch that is sent between
two of them names the first ones only; while it waited for records, up to replica.fetch.wait.max.ms,
the others were not fetched. A new leader expects its followers (`ExpectedFollowers`), but when a
broker starts again its leaders hear of nothing. Kafka adds all partitions of a request at once.
"""

LOG_ENDS_RETRY_S = 0.5
"""After an error for some log end, log ends are requested again after this time."""


class PartitionFetchState(FetchPosition):
    """A partition in a fetcher: its fetch position, and whether it is delayed.

    `continues`: the leader found our log up to `offset` to be a prefix of its own.
    `leader_end`: the leader's log end, requested in this epoch; only where it is needed (R18).
    `lag`: offsets behind the leader's high watermark; None before the first response.
    Kafka: `PartitionFetchState`.
    """

    __slots__ = (
        "backoff_s",
        "continues",
        "delayed",
        "lag",
        "leader_end",
        "partition",
    )

    def __init__(self, partition: Partition) -> None:
        super().__init__(partition.tp, partition.state.topic_id, partition.state.leader_epoch)
        self.partition = partition
        self.delayed = False
        self.backoff_s = FIRST_BACKOFF_S
        self.continues = False
        self.lag: int | None = None
        self.leader_end: int | None = None


class LeaderFetcher:
    """Copies partitions from one leader. Kafka: `ReplicaFetcherThread`."""

    def __init__(
        self,
        world: World,
        host: Host,
        settings: FetcherSettings,
        leader: int,
        number: int,
        on_failed: Callable[[PartitionFetchState], None],
    ) -> None:
        self._world = world
        self._host = host
        self._settings = settings
        self.leader = leader
        self.number = number
        self._on_failed = on_failed
        self.states: dict[TopicPartition, PartitionFetchState] = {}
        self._session = LeaderSession(fetch_version(settings.level))
        self._delayed: list[tuple[float, int, PartitionFetchState]] = []
        self._sequence = itertools.count()
        self._wake = asyncio.Event()
        name = f"broker-{settings.broker_id}-fetcher-{number}"
        self._connection = BrokerConnection(
            world, name, settings.connect_timeout_s, settings.security
        )
        self._peer: PeerConnection | None = None
        """the one that was logged"""
        self._task: asyncio.Task[None] | None = None
        self._unverified: dict[TopicPartition, PartitionFetchState] = {}
        """partitions whose logs are still to be verified as complete (R18)"""
        self._log_ends_due_s = 0.0
        self._log_ends_left = False
        """more log ends are to be requested at once"""
        self._added_s = -math.inf
        self.fetches_total = 0
        self.bytes_total = 0
        self.errors_total = 0
        self.records_lost_total = 0
        self.records_doubtful_total = 0

    # --- called by the manager -------------------------------------------------------------------

    def start(self) -> None:
        name = f"fetcher-{self.number}-{self.leader}"
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    def add(self, partition: Partition) -> None:
        """Follow from the log's end, or go on if this leader epoch is already being followed."""
        known = self.states.get(partition.tp)
        if (
            known is not None
            and known.partition is partition
            and known.leader_epoch == partition.state.leader_epoch
        ):
            return
        state = PartitionFetchState(partition)
        self.states[partition.tp] = state
        self._read_position(state)
        if state.partition.local_log(leader_only=False).epochs.latest < 0:
            self._truncate_to_high_watermark(state)
        if self._host.is_unclean(partition.tp):
            self._unverified[partition.tp] = state
            self._log_ends_due_s = 0.0
        self._session.add(state)
        self._added_s = self._world.clock.monotonic()
        self._wake.set()

    def remove(self, tp: TopicPartition) -> None:
        if self.states.pop(tp, None) is not None:
            self._session.remove(tp)
            self._unverified.pop(tp, None)

    def topic_id_changed(self, partition: Partition) -> None:
        """Fetch a topic by the id it has got, or lost."""
        state = self.states.get(partition.tp)
        if state is not None and state.topic_id != partition.state.topic_id:
            self._session.remove(partition.tp)
            state.topic_id = partition.state.topic_id
            if not state.delayed:
                self._session.add(state)
            self._wake.set()

    async def close(self) -> None:
        await end_tasks(self._task)
        self._connection.close()

    # --- the loop -------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Fetch until closed. A loop root: an error delays all partitions and ends nothing."""
        while True:
            try:
                await self._fetch_once()
            except OttlaError as error:
                self._request_failed(error)
            except Exception:
                logger.exception("fetcher failed leader=%d", self.leader)
                self._request_failed(None)
                await asyncio.sleep(FIRST_BACKOFF_S)

    async def _fetch_once(self) -> None:
        self._resume_due()
        self._wake.clear()
        self._log_ends_left = False
        if self._unverified:
            await self._fetch_log_ends()
        self._delay_throttled()
        await self._host.make_truncations_durable()
        built = self._session.build()
        if built is None:
            await self._wait_for_partitions()
        else:
            await self._apply_response(await self._fetch(*built))

    def _delay_throttled(self) -> None:
        """Delay throttled partitions while the follower quota is exceeded (KIP-73)."""
        quota = self._host.follower_quota
        if not quota.topics:
            return
        now_s = self._world.clock.monotonic()
        wait_s = min(quota.until_ms(now_s * 1000) / 1000, MAX_THROTTLE_DELAY_S)
        if wait_s <= 0:
            return
        for state in self.states.values():
            # A replica without lag is in sync; as in Kafka it is not throttled.
            if state.lag != 0 and state.tp in self._session and quota.throttles(*state.tp):
                self._delay_until(state, now_s + wait_s)

    async def _wait_for_partitions(self) -> None:
        timeout_s = None
        if self._delayed:
            timeout_s = max(0.0, self._delayed[0][0] - self._world.clock.monotonic())
        await wait_at_most(self._wake, timeout_s)

    async def _fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        settings = self._settings
        peer = await self._connected()
        if version >= FIRST_VERSION_WITH_REPLICA_STATE:
            request.replica_state = FetchRequest.ReplicaState(
                replica_id=settings.broker_id, replica_epoch=self._host.broker_epoch
            )
        else:
            request.replica_id = settings.broker_id
        request.max_wait_ms = self._next_wait_ms()
        request.min_bytes = settings.min_bytes
        request.max_bytes = settings.max_bytes
        for topic in request.topics:
            for partition in topic.partitions:
                partition.partition_max_bytes = settings.partition_max_bytes
        self.fetches_total += 1
        return await peer.send(request, version, settings.request_timeout_s)

    def _next_wait_ms(self) -> int:
        """Return how long the next fetch may wait at the leader for records."""
        now_s = self._world.clock.monotonic()
        if self._log_ends_left or now_s - self._added_s < SETTLING_S:
            return LEAST_WAIT_MS
        longest_ms = self._settings.max_wait_ms
        if not self._delayed:
            return longest_ms
        until_due_ms = math.ceil((self._delayed[0][0] - now_s) * 1000)
        return min(longest_ms, max(LEAST_WAIT_MS, until_due_ms))

    async def _connected(self) -> PeerConnection:
        """Return a connection to where the leader is now."""
        peer = await self._connection.peer(self._host.endpoint(self.leader))
        if peer is not self._peer:
            self._peer = peer
            logger.info(
                "fetcher connected leader=%d host=%s port=%d", self.leader, peer.host, peer.port
            )
        return peer

    def _request_failed(self, error: OttlaError | None) -> None:
        """Delay all partitions and close the session: the request got no response."""
        self.errors_total += 1
        if error is not None:
            logger.info("fetch failed leader=%d error=%s", self.leader, error)
        self._connection.close()
        self._session.start_over()
        for state in list(self.states.values()):
            self._back_off(state)

    def _back_off(self, state: PartitionFetchState) -> None:
        if state.delayed or self.states.get(state.tp) is not state:
            return
        due_s = self._world.clock.monotonic() + min(state.backoff_s, self._settings.backoff_s)
        state.backoff_s *= 2
        self._delay_until(state, due_s)

    def _delay_until(self, state: PartitionFetchState, due_s: float) -> None:
        state.delayed = True
        self._session.remove(state.tp)
        heapq.heappush(self._delayed, (due_s, next(self._sequence), state))

    def _resume_due(self) -> None:
        now_s = self._world.clock.monotonic()
        while self._delayed and self._delayed[0][0] <= now_s:
            state = heapq.heappop(self._delayed)[2]
            state.delayed = False
            if self.states.get(state.tp) is state:
                self._session.add(state)

    def _mark_failed(self, state: PartitionFetchState, reason: object) -> None:
        """Stop fetching a partition until the next LeaderAndIsr. Kafka: `markPartitionFailed`."""
        logger.warning("partition failed partition=%s reason=%s", state.tp, reason)
        self.remove(state.tp)
        self._on_failed(state)

    # --- responses ------------------------------------------------------------------------------

    async def _apply_response(self, response: FetchResponse) -> None:
        code = ErrorCode(response.error_code)
        by_key = self._session.by_key
        if not self._session.accept(response.session_id, code):
            logger.info("fetch session ended leader=%d error=%s", self.leader, code.name)
            if code not in SESSION_ENDED:
                for state in list(self.states.values()):
                    self._back_off(state)
            return
        out_of_range: list[PartitionFetchState] = []
        failed: dict[ErrorCode, list[PartitionFetchState]] = {}
        time_slice = TimeSlice(self._world.clock)
        for topic in response.responses:
            for data in topic.partitions:
                if time_slice.over:
                    await time_slice.next()  # after an election thousands may need truncation
                # By id from version 13 on, by name below; the other field is at its default.
                found = by_key.get((topic.topic or bytes(topic.topic_id), data.partition_index))
                if not isinstance(found, PartitionFetchState):
                    continue
                if self.states.get(found.tp) is not found or found.delayed:
                    continue
                if found.sent_offset != found.offset:
                    continue
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(found)
                elif data.error_code:
                    failed.setdefault(ErrorCode(data.error_code), []).append(found)
                else:
                    self._apply_partition(found, data)
        for error, states in failed.items():
            self._on_partition_errors(states, error)
        for state in out_of_range:
            await self._on_offset_out_of_range(state)

    def _apply_partition(
        self, state: PartitionFetchState, data: FetchResponse.PartitionData
    ) -> None:
        """Append one partition's records, or truncate. Kafka: `processPartitionData`."""
        try:
            if data.diverging_epoch.epoch >= 0:
                there = data.diverging_epoch
                self._truncate_diverging(state, EpochEnd(there.epoch, there.end_offset))
                self._session.changed(state)
            else:
                self._append(state, data)
        except (StorageError, NotLeaderError) as error:
            self._mark_failed(state, error)
        except OttlaError as error:
            self._retry_after_error(state, error)
        except Exception as error:
            # A loop root of its own: an error of one partition does not stop the others.
            logger.exception("fetch response not applied partition=%s", state.tp)
            self._retry_after_error(state, error)

    def _retry_after_error(self, state: PartitionFetchState, reason: object) -> None:
        """Back off, then fetch from the log's end: the leader compares epoch and offset again (R1).

        Bad records may come from a leader that is just truncating. A permanent error is retried
        with the longest backoff. Kafka stops fetching such a partition until the next LeaderAndIsr.
        """
        logger.warning(
            "fetched records not appended partition=%s offset=%d reason=%s",
            state.tp,
            state.offset,
            reason,
        )
        self.errors_total += 1
        if state.partition.log is None:
            self._mark_failed(state, "it has no log any more")
            return
        state.continues = False
        self._read_position(state)
        if isinstance(reason, UnsupportedFormatError):  # only its retention frees the leader of it
            due_s = self._world.clock.monotonic() + UNREAD_FORMAT_BACKOFF_S
            self._delay_until(state, due_s)
        else:
            self._back_off(state)

    def _append(self, state: PartitionFetchState, data: FetchResponse.PartitionData) -> None:
        partition = state.partition
        log = partition.local_log(leader_only=False)
        records = data.records
        if records:
            if state.offset != log.log_end_offset:
                self._retry_after_error(state, f"the log ends at {log.log_end_offset}")
                return
            partition.append_as_follower(records)
            self.bytes_total += len(records)
            quota = self._host.follower_quota
            if quota.topics and quota.throttles(*state.tp):
                quota.record(len(records), self._world.clock.monotonic() * 1000)
        partition.adopt(data.high_watermark, data.log_start_offset)
        state.backoff_s = FIRST_BACKOFF_S
        end = log.log_end_offset
        state.lag = max(0, data.high_watermark - end)
        state.continues = True
        partition.state.own_from = None  # from here on the leader may count what we have
        if end != state.offset or log.log_start_offset != state.log_start_offset:
            self._read_position(state)
            self._session.changed(state)
        if state.leader_end is not None:
            self._verify_complete(state)

    def _verify_complete(self, state: PartitionFetchState) -> None:
        """Note that a log is complete if it has reached the leader's log end (R18).

        The leader has every record that was acknowledged before its epoch, and those that it
        acknowledged itself lie below its log end. A record that it acknowledges after its
        ListOffsets response has been fetched by each member of the ISR before.
        """
        if state.continues and state.leader_end is not None and state.offset >= state.leader_end:
            state.leader_end = None
            if self._unverified.pop(state.tp, None) is not None:
                self._host.in_sync(state.tp)

    async def _fetch_log_ends(self) -> None:
        """Request the leader's log ends, which logs that may have lost their tails must reach."""
        now_s = self._world.clock.monotonic()
        if now_s < self._log_ends_due_s:
            return
        wanted = [
            state
            for state in self._unverified.values()
            if state.leader_end is None and not state.delayed
        ]
        self._log_ends_left = len(wanted) > MOST_AT_ONCE
        del wanted[MOST_AT_ONCE:]
        if not wanted:
            return
        results = await self._query([(s.tp, s.leader_epoch) for s in wanted], LATEST)
        for state in wanted:
            code, offset = results.get(state.tp, (ErrorCode.UNKNOWN_SERVER_ERROR, -1))
            # Another state is in there if it was removed, or is fetched in a later epoch by now.
            if self._unverified.get(state.tp) is not state:
                continue
            if not code and offset >= 0:
                state.leader_end = offset
                self._verify_complete(state)
            else:
                self._unverified[state.tp] = self._unverified.pop(state.tp)  # the others come first
                self._log_ends_due_s = now_s + LOG_ENDS_RETRY_S

    def _read_position(self, state: PartitionFetchState) -> None:
        log = state.partition.local_log(leader_only=False)
        state.offset = log.log_end_offset
        state.log_start_offset = log.log_start_offset
        state.last_fetched_epoch = log.epochs.latest

    def _truncate_to_high_watermark(self, state: PartitionFetchState) -> None:
        """Keep only committed records: without any epoch in the log the leader cannot compare."""
        log = state.partition.local_log(leader_only=False)
        if log.high_watermark < log.log_end_offset:
            self._truncate(state, log.high_watermark, "no epochs")
        self._read_position(state)

    def _truncate_diverging(self, state: PartitionFetchState, leader: EpochEnd) -> None:
        """Truncate where the leader's epochs diverge from ours; the next fetch compares again."""
        if leader.end_offset < UNDEFINED:
            raise OttlaError(f"an epoch that ends at offset {leader.end_offset}")
        log = state.partition.local_log(leader_only=False)
        epoch, end = log.end_offset_for_epoch(leader.epoch)
        point = truncation_point(
            leader, EpochEnd(epoch, end), log.log_end_offset, log.high_watermark
        )
        self._truncate(state, point.offset, f"leader's epoch {leader.epoch} ended there")
        state.continues = False
        self._read_position(state)

    def _truncate(self, state: PartitionFetchState, offset: int, reason: str) -> None:
        log = state.partition.local_log(leader_only=False)
        # At the log end only an epoch without records is removed.
        level = logging.INFO if offset < log.log_end_offset else logging.DEBUG
        logger.log(
            level,
            "truncate partition=%s to_offset=%d log_end_offset=%d high_watermark=%d reason=%s",
            state.tp,
            offset,
            log.log_end_offset,
            log.high_watermark,
            reason,
        )
        self._report_loss(state, offset)
        log.truncate_to(offset)

    def _report_loss(self, state: PartitionFetchState, offset: int) -> None:
        """Report the records from `offset` on that were committed, then those that may have been.

        The high watermark of a log is far behind after a crash (F43).
        """
        log = state.partition.local_log(leader_only=False)
        first = max(offset, log.log_start_offset)
        doubtful, end = max(first, log.high_watermark), state.partition.acknowledged_below
        if doubtful < end:
            self.records_doubtful_total += end - doubtful
            logger.warning(
                "truncated records may have been acknowledged partition=%s offsets=%d..%d "
                "leader=%d leader_epoch=%d: the leader does not have them",
                state.tp,
                doubtful,
                end - 1,
                self.leader,
                state.leader_epoch,
            )
        if first < log.high_watermark:
            self.records_lost_total += log.high_watermark - first
            logger.warning(
                "lost records partition=%s offsets=%d..%d leader=%d leader_epoch=%d: they were "
                "committed, "
                "the leader does not have them",
                state.tp,
                first,
                log.high_watermark - 1,
                self.leader,
                state.leader_epoch,
            )

    def _on_partition_errors(self, states: list[PartitionFetchState], code: ErrorCode) -> None:
        """Delay partitions with an error; a fenced one waits for the next LeaderAndIsr.

        Other tasks ran since the response was read: a partition that is fetched in a later epoch
        by now is left alone.
        """
        states = [state for state in states if self.states.get(state.tp) is state]
        if not states:
            return
        self.errors_total += len(states)
        logger.info(
            "fetch refused leader=%d error=%s partitions=%d partition=%s",
            self.leader,
            code.name,
            len(states),
            states[0].tp,
        )
        for state in states:
            if code is ErrorCode.FENCED_LEADER_EPOCH:
                # This state is still the current one: LeaderAndIsr is on its way.
                self.remove(state.tp)
                self._on_failed(state)
            else:
                self._back_off(state)

    async def _on_offset_out_of_range(self, state: PartitionFetchState) -> None:
        """Request the leader's offsets and restart between them. Kafka: `handleOutOfRangeError`."""
        try:
            end = await self._leader_offset(state, LATEST)
            start = await self._leader_offset(state, EARLIEST)
        except OttlaError as error:
            if self.states.get(state.tp) is state:
                if error.code is ErrorCode.FENCED_LEADER_EPOCH:
                    self._mark_failed(state, error)
                else:
                    logger.info("leader offsets not known partition=%s error=%s", state.tp, error)
                    self._back_off(state)
            return
        if self.states.get(state.tp) is not state:
            return
        try:
            log = state.partition.local_log(leader_only=False)
            what, offset = restart_point(log.log_end_offset, start, end)
            logger.warning(
                "offset out of range partition=%s offset=%d leader_offsets=%d..%d action=%s "
                "to_offset=%d",
                state.tp,
                state.offset,
                start,
                end,
                what,
                offset,
            )
            if what is Restart.TRUNCATE:
                self._truncate(state, offset, "the leader ends there")
            elif what is Restart.START_OVER:
                log.truncate_fully_and_start_at(offset)
            state.continues = False
            self._read_position(state)
            self._session.changed(state)
            if what is Restart.RESUME:
                self._back_off(state)
        except OttlaError as error:
            self._mark_failed(state, error)

    async def _query(
        self, wanted: list[tuple[TopicPartition, int]], timestamp: int
    ) -> OffsetResults:
        peer = await self._connected()
        settings = self._settings
        version = list_offsets_version(settings.level)
        timeout_s = settings.request_timeout_s
        return await query_offsets(peer, version, timeout_s, settings.broker_id, wanted, timestamp)

    async def _leader_offset(self, state: PartitionFetchState, timestamp: int) -> int:
        results = await self._query([(state.tp, state.leader_epoch)], timestamp)
        return offset_or_raise(results, state.tp)

    def statistics(self) -> dict[str, object]:
        return {
            "leader": self.leader,
            "partitions": len(self.states),
            "delayed": sum(s.delayed for s in self.states.values()),
            "max_lag": max((s.lag or 0 for s in self.states.values()), default=0),
            "fetches_total": self.fetches_total,
            "bytes_total": self.bytes_total,
            "errors_total": self.errors_total,
            "records_lost_total": self.records_lost_total,
            "records_doubtful_total": self.records_doubtful_total,
        }
