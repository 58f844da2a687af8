"""Followers at work: one task per leader and fetcher number copies what that leader has.

Who may call: `replica_manager` adds and removes partitions. Invariants:
- whatever a response says counts only for the very state that asked: a partition that was removed,
  or got a new leader epoch meanwhile, ignores it
- R1/R11: no append and no high watermark before the leader found our epochs matching; an answer
  that says "diverged" only truncates
- R3: a fenced partition is dropped until the next LeaderAndIsr; an epoch the leader does not know
  yet is tried again
- one bad partition delays or fails itself, never the others (R14, KAFKA-10371)

Between an answer and the end of its application nothing else runs. Answers to Kafka's
`AbstractFetcherThread`, `ReplicaFetcherThread`, `RemoteLeaderEndPoint`, `ReplicaFetcherManager`.
"""

import asyncio
import heapq
import itertools
import logging
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from ottla.model.cluster import Endpoint
from ottla.model.errors import (
    ConnectionLostError,
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    OttlaError,
)
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.net.peer import PeerConnection
from ottla.replication.leader_session import (
    FIRST_VERSION_WITH_REPLICA_STATE,
    LeaderSession,
    Wanted,
)
from ottla.replication.partition import Partition
from ottla.replication.truncation import EpochEnd, restart_point, truncation_point
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.list_offsets import ListOffsetsRequest

logger = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2

# Replicas do not negotiate: versions follow from inter.broker.protocol.version (PROTOCOL 6.1).
_FETCH_VERSIONS = (
    ((3, 9), 17),
    ((3, 7), 16),
    ((3, 5), 15),
    ((3, 1), 13),
    ((2, 7), 12),
    ((2, 3), 11),
)
_LIST_OFFSETS_VERSIONS = (((3, 9), 9), ((3, 5), 8), ((3, 1), 7), ((2, 8), 6))


def protocol_level(text: str) -> tuple[int, int]:
    """Return (major, minor) of an inter.broker.protocol.version such as `3.9-IV0`."""
    major, minor = text.split("-", maxsplit=1)[0].split(".")[:2]
    return int(major), int(minor)


def fetch_version(protocol: str) -> int:
    """Return the Fetch version replicas speak under an inter.broker.protocol.version."""
    return _version_at(protocol_level(protocol), _FETCH_VERSIONS)


def list_offsets_version(protocol: str) -> int:
    """Return the ListOffsets version replicas speak under an inter.broker.protocol.version."""
    return _version_at(protocol_level(protocol), _LIST_OFFSETS_VERSIONS)


def _version_at(level: tuple[int, int], table: tuple[tuple[tuple[int, int], int], ...]) -> int:
    for lowest, version in table:
        if level >= lowest:
            return version
    return table[-1][1]


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """What a fetcher needs of the configuration."""

    broker_id: int
    version: int
    list_offsets_version: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    backoff_s: float
    request_timeout_s: float
    connect_timeout_s: float


class FetcherHost(Protocol):
    """What fetchers ask of the replica manager."""

    @property
    def broker_epoch(self) -> int: ...

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Return where a live broker listens for its peers."""
        ...


class Followed(Wanted):
    """A partition in a fetcher: how far it is, and whether it must wait."""

    __slots__ = ("delayed", "lag", "partition")

    def __init__(self, partition: Partition) -> None:
        super().__init__(partition.tp, partition.topic_id, partition.leader_epoch)
        self.partition = partition
        self.delayed = False
        self.lag: int | None = None


class LeaderFetcher:
    """Copies partitions from one leader."""

    def __init__(
        self,
        world: World,
        host: FetcherHost,
        settings: FetcherSettings,
        leader: int,
        number: int,
        on_failed: Callable[[Followed], None],
    ) -> None:
        self._world = world
        self._host = host
        self._settings = settings
        self.leader = leader
        self.number = number
        self._on_failed = on_failed
        self.states: dict[TopicPartition, Followed] = {}
        self._session = LeaderSession(settings.version)
        self._delayed: list[tuple[float, int, Followed]] = []
        self._order = itertools.count()
        self._wake = asyncio.Event()
        self._peer: PeerConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self.fetches_total = 0
        self.bytes_total = 0
        self.errors_total = 0

    # --- what the manager does ------------------------------------------------------------------

    def start(self) -> None:
        name = f"fetcher-{self.number}-{self.leader}"
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    def add(self, partition: Partition) -> None:
        """Follow from the log's end, or go on if this leader epoch is already being followed."""
        known = self.states.get(partition.tp)
        if (
            known is not None
            and known.partition is partition
            and known.leader_epoch == partition.leader_epoch
        ):
            return
        state = Followed(partition)
        self.states[partition.tp] = state
        self._read_position(state)
        if state.last_fetched_epoch < 0:
            self._truncate_to_high_watermark(state)
        self._session.add(state)
        self._wake.set()

    def remove(self, tp: TopicPartition) -> None:
        if self.states.pop(tp, None) is not None:
            self._session.remove(tp)

    def topic_id_changed(self, partition: Partition) -> None:
        """Fetch a topic by the id it has got, or lost."""
        state = self.states.get(partition.tp)
        if state is not None and state.topic_id != partition.topic_id:
            self._session.remove(partition.tp)
            state.topic_id = partition.topic_id
            if not state.delayed:
                self._session.add(state)
            self._wake.set()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    # --- the loop -------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._readmit_due()
            self._wake.clear()
            built = self._session.build()
            if built is None:
                await self._idle()
                continue
            try:
                response = await self._fetch(*built)
            except OttlaError as error:
                self._lost(error)
                continue
            except Exception:
                logger.exception("fetcher failed leader=%d", self.leader)
                self._lost(None)
                continue
            try:
                await self._apply(response)
            except Exception:
                logger.exception("fetch answer not applied leader=%d", self.leader)
                self._lost(None)

    async def _idle(self) -> None:
        timeout_s = None
        if self._delayed:
            timeout_s = max(0.0, self._delayed[0][0] - self._world.clock.monotonic())
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        settings = self._settings
        peer = self._peer
        if peer is None or peer.closed:
            peer = await self._connect()
        if version >= FIRST_VERSION_WITH_REPLICA_STATE:
            request.replica_state = FetchRequest.ReplicaState(
                replica_id=settings.broker_id, replica_epoch=self._host.broker_epoch
            )
        else:
            request.replica_id = settings.broker_id
        request.max_wait_ms = settings.max_wait_ms
        request.min_bytes = settings.min_bytes
        request.max_bytes = settings.max_bytes
        for topic in request.topics:
            for partition in topic.partitions:
                partition.partition_max_bytes = settings.partition_max_bytes
        self.fetches_total += 1
        response: FetchResponse = await peer.send(request, version, settings.request_timeout_s)
        return response

    async def _connect(self) -> PeerConnection:
        endpoint = self._host.endpoint(self.leader)
        if endpoint is None:
            raise ConnectionLostError(f"no address of broker {self.leader} is known")
        self._peer = await PeerConnection.open(
            self._world,
            endpoint.host,
            endpoint.port,
            f"broker-{self._settings.broker_id}-fetcher-{self.number}",
            timeout_s=self._settings.connect_timeout_s,
        )
        logger.info(
            "fetcher connected leader=%d host=%s port=%d",
            self.leader, endpoint.host, endpoint.port,
        )  # fmt: skip
        return self._peer

    def _lost(self, error: OttlaError | None) -> None:
        """Let everything wait a while and start the session over: the request came to nothing."""
        self.errors_total += 1
        if error is not None:
            logger.info("fetch failed leader=%d error=%s", self.leader, error)
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        self._session.start_over()
        for state in list(self.states.values()):
            self._delay(state)

    def _delay(self, state: Followed) -> None:
        if state.delayed or self.states.get(state.tp) is not state:
            return
        state.delayed = True
        self._session.remove(state.tp)
        due_s = self._world.clock.monotonic() + self._settings.backoff_s
        heapq.heappush(self._delayed, (due_s, next(self._order), state))

    def _readmit_due(self) -> None:
        now_s = self._world.clock.monotonic()
        while self._delayed and self._delayed[0][0] <= now_s:
            state = heapq.heappop(self._delayed)[2]
            state.delayed = False
            if self.states.get(state.tp) is state:
                self._session.add(state)

    def _fail(self, state: Followed, why: object) -> None:
        """Give a partition up until the next LeaderAndIsr."""
        logger.warning("partition fails to follow partition=%s why=%s", state.tp, why)
        self.remove(state.tp)
        self._on_failed(state)

    # --- answers --------------------------------------------------------------------------------

    async def _apply(self, response: FetchResponse) -> None:
        code = ErrorCode(response.error_code)
        by_key = self._session.by_key
        if not self._session.accept(response.session_id, code):
            logger.info("fetch session ended leader=%d error=%s", self.leader, code.name)
            if code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
                for state in list(self.states.values()):
                    self._delay(state)
            return
        out_of_range: list[Followed] = []
        for topic in response.responses:
            for data in topic.partitions:
                # By id from version 13 on, by name below; the other field is at its default.
                found = by_key.get((topic.topic or bytes(topic.topic_id), data.partition_index))
                if not isinstance(found, Followed):
                    continue
                if self.states.get(found.tp) is not found or found.delayed:
                    continue
                if found.sent_offset != found.offset:
                    continue
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(found)
                else:
                    self._apply_one(found, data)
        for state in out_of_range:
            await self._restart(state)

    def _apply_one(self, state: Followed, data: FetchResponse.PartitionData) -> None:
        """Apply one partition's answer: append and adopt, truncate, or wait."""
        if data.error_code:
            self._refused(state, ErrorCode(data.error_code))
            return
        try:
            if data.diverging_epoch.epoch >= 0:
                self._diverged(state, EpochEnd(
                    data.diverging_epoch.epoch, data.diverging_epoch.end_offset
                ))  # fmt: skip
            else:
                self._append(state, data)
        except (CorruptRecordError, InvalidRecordError) as error:
            # Transient if the leader is truncating; otherwise it repeats, slowly.
            logger.error("bad records partition=%s offset=%d %s", state.tp, state.offset, error)  # noqa: TRY400
            self._delay(state)
        except OttlaError as error:
            self._fail(state, error)

    def _append(self, state: Followed, data: FetchResponse.PartitionData) -> None:
        partition = state.partition
        log = partition.local_log(leader_only=False)
        records = data.records
        if records:
            if state.offset != log.log_end_offset:
                self._fail(state, f"asked for {state.offset}, log ends at {log.log_end_offset}")
                return
            partition.append_as_follower(records)
            self.bytes_total += len(records)
        partition.adopt(data.high_watermark, data.log_start_offset)
        end = log.log_end_offset
        state.lag = max(0, data.high_watermark - end)
        if end != state.offset or log.log_start_offset != state.log_start_offset:
            self._read_position(state)
            self._session.changed(state)

    def _read_position(self, state: Followed) -> None:
        log = state.partition.local_log(leader_only=False)
        state.offset = log.log_end_offset
        state.log_start_offset = log.log_start_offset
        state.last_fetched_epoch = log.latest_epoch

    def _truncate_to_high_watermark(self, state: Followed) -> None:
        """Without any epoch in the log the leader cannot compare: only committed records stay."""
        log = state.partition.local_log(leader_only=False)
        if log.high_watermark < log.log_end_offset:
            self._truncate(state, log.high_watermark, "no epochs")
        self._read_position(state)

    def _diverged(self, state: Followed, leader: EpochEnd) -> None:
        log = state.partition.local_log(leader_only=False)
        epoch, end = log.end_offset_for_epoch(leader.epoch)
        point = truncation_point(
            leader, EpochEnd(epoch, end), log.log_end_offset, log.high_watermark
        )
        self._truncate(state, point.offset, f"leader's epoch {leader.epoch} ended there")
        self._read_position(state)
        self._session.changed(state)

    def _truncate(self, state: Followed, offset: int, why: str) -> None:
        log = state.partition.local_log(leader_only=False)
        level = logging.WARNING if offset < log.high_watermark else logging.INFO
        logger.log(
            level, "truncate partition=%s to=%d end=%d hw=%d why=%s",
            state.tp, offset, log.log_end_offset, log.high_watermark, why,
        )  # fmt: skip
        log.truncate_to(offset)

    def _refused(self, state: Followed, code: ErrorCode) -> None:
        self.errors_total += 1
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            # The state that asked is still the current one, so it is we who are behind.
            self._fail(state, "the leader has a newer epoch")
            return
        logger.info("fetch refused partition=%s error=%s", state.tp, code.name)
        self._delay(state)

    async def _restart(self, state: Followed) -> None:
        """Find out where to go on: the leader has nothing at our offset."""
        try:
            end = await self._leader_offset(state, LATEST)
            start = await self._leader_offset(state, EARLIEST)
        except OttlaError as error:
            if self.states.get(state.tp) is state:
                if error.code is ErrorCode.FENCED_LEADER_EPOCH:
                    self._fail(state, error)
                else:
                    logger.info("offsets not known partition=%s error=%s", state.tp, error)
                    self._delay(state)
            return
        if self.states.get(state.tp) is not state:
            return
        try:
            log = state.partition.local_log(leader_only=False)
            what, offset = restart_point(log.log_end_offset, start, end)
            logger.warning(
                "offset out of range partition=%s offset=%d leader=%d..%d then=%s at=%d",
                state.tp, state.offset, start, end, what, offset,
            )  # fmt: skip
            if what == "truncate":
                self._truncate(state, offset, "the leader ends there")
            elif what == "start over":
                log.truncate_fully_and_start_at(offset)
            self._read_position(state)
            self._session.changed(state)
            if what == "resume":
                self._delay(state)
        except OttlaError as error:
            self._fail(state, error)

    async def _leader_offset(self, state: Followed, timestamp: int) -> int:
        peer = self._peer
        if peer is None or peer.closed:
            peer = await self._connect()
        request = ListOffsetsRequest(
            replica_id=self._settings.broker_id,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=state.tp.topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=state.tp.partition,
                            current_leader_epoch=state.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        response = await peer.send(
            request, self._settings.list_offsets_version, self._settings.request_timeout_s
        )
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code:
                    code = ErrorCode(answer.error_code)
                    raise OttlaError(f"{state.tp}: {code.name}", code)
                return int(answer.offset)
        raise OttlaError(f"{state.tp}: no offset in the answer")

    def statistics(self) -> dict[str, object]:
        return {
            "leader": self.leader,
            "partitions": len(self.states),
            "delayed": sum(s.delayed for s in self.states.values()),
            "max_lag": max((s.lag or 0 for s in self.states.values()), default=0),
            "fetches_total": self.fetches_total,
            "bytes_total": self.bytes_total,
            "errors_total": self.errors_total,
        }


class FetcherManager:
    """All fetchers of a broker: which partition is in which."""

    def __init__(
        self, world: World, host: FetcherHost, settings: FetcherSettings, fetchers_per_leader: int
    ) -> None:
        self._world = world
        self._host = host
        self._settings = settings
        self._per_leader = fetchers_per_leader
        self._fetchers: dict[tuple[int, int], LeaderFetcher] = {}
        self._where: dict[TopicPartition, LeaderFetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.failed: dict[TopicPartition, int] = {}

    def add(self, partition: Partition) -> None:
        """Follow `partition.leader`; leaves whatever fetcher it was in before."""
        tp = partition.tp
        number = (zlib.crc32(tp.topic.encode()) + tp.partition) % self._per_leader
        key = (partition.leader, number)
        fetcher = self._fetchers.get(key)
        previous = self._where.get(tp)
        if previous is not None and previous is not fetcher:
            previous.remove(tp)
        if fetcher is None:
            fetcher = self._fetchers[key] = LeaderFetcher(
                self._world, self._host, self._settings, *key, self._failed
            )
            fetcher.start()
        self.failed.pop(tp, None)
        self._where[tp] = fetcher
        fetcher.add(partition)

    def remove(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            fetcher = self._where.pop(tp, None)
            if fetcher is not None:
                fetcher.remove(tp)
            self.failed.pop(tp, None)

    def topic_id_changed(self, partition: Partition) -> None:
        fetcher = self._where.get(partition.tp)
        if fetcher is not None:
            fetcher.topic_id_changed(partition)

    def _failed(self, state: Followed) -> None:
        self._where.pop(state.tp, None)
        self.failed[state.tp] = state.leader_epoch

    def close_idle(self) -> None:
        """End fetchers that have nothing to follow."""
        for key, fetcher in list(self._fetchers.items()):
            if not fetcher.states:
                del self._fetchers[key]
                task = asyncio.get_running_loop().create_task(fetcher.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._where.clear()
        await asyncio.gather(*(f.close() for f in fetchers), *self._closing)

    def statistics(self) -> dict[str, object]:
        return {
            "fetchers": [f.statistics() for f in self._fetchers.values()],
            "failed": len(self.failed),
        }
