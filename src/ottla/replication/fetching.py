"""Serving fetches: reading the dirty partitions of a session, parking, answering.

Invariants:
- a follower's position is noted once per request, before the read, and never again when a parked
  fetch is tried once more
- of the first partition with data at least one batch is sent, whatever the limits (KIP-74)
- what a session says it has sent changes only when a response really leaves, not with one that
  stays parked
- an entry that a fetch leaves clean is watched; a parked fetch has every entry watched
- nothing waits for a disk: what is not in memory is brought there by a worker, and the fetch is
  answered without it if there is anything else to say (`DiskReads`)
- a fetch that `withholds` its response leaves empty and changes nothing in its session: what it
  would have read is read again by the next one

Kafka: `ReplicaManager.fetchMessages`/`readFromLog` and `DelayedFetch`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.log.log import Log
from ottla.log.results import LogRead, NotInMemoryError
from ottla.log.segment import MOST_AT_ONCE
from ottla.model.errors import ErrorCode, NotLeaderError, OffsetOutOfRangeError, OttlaError
from ottla.model.ids import ZERO_UUID
from ottla.model.ports import Buffer
from ottla.model.protocol import READ_COMMITTED, READ_UNCOMMITTED, UNKNOWN_OFFSET
from ottla.net.connection import Pending
from ottla.replication.fetch_session import (
    FINAL_EPOCH,
    INVALID_SESSION_ID,
    FetchEntry,
    FetchSession,
    SessionCache,
)
from ottla.replication.partition import Host, Partition
from ottla.replication.purgatory import Purgatory
from ottla.replication.topic_counts import EXPECTED_OF_FETCH
from ottla.replication.truncation import divergence
from ottla.wire.messages.records import FetchResponse

if TYPE_CHECKING:
    from ottla.net.connection import Connection

READ_LOG_END = 2
"""Isolation of followers and of the debugging consumer: all there is."""

LONGEST_EXPECTED_MS = 1_000
"""A follower that has not fetched by then has not got its LeaderAndIsr yet, or is down."""

EXPEDITED_WAIT_MS = 20
"""The fetches of followers that have partitions to ask for are parked only this long."""

DISK_WAIT_MS = 5000.0
"""How long a fetch waits for a disk before it is read in the loop's own thread."""
NOTHING = LogRead([], 0, 0, first_batch_incomplete=False)

Reader = tuple[str, str]
"""A consumer's rack (empty: none) and the name of the listener that it came by."""

Response = tuple[FetchEntry, FetchResponse.PartitionData]

UNKNOWN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


class FetchHost(Host, Protocol):
    """The replica manager, as it serves consumers too."""

    def preferred_replica(self, partition: Partition, reader: Reader, offset: int) -> int | None:
        """Return the broker that a consumer had better read a partition from, None to stay."""
        ...


class FetchParameters(NamedTuple):
    """The parameters of a fetch besides the partitions in its session. Kafka: `FetchParams`."""

    version: int
    replica_id: int
    """the broker that follows; -1 for consumers"""
    replica_epoch: int
    """the broker epoch of the follower, -1 if it names none"""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    reader: Reader | None = None
    """who may be sent to another replica (KIP-392)"""
    queries_completeness: bool = False
    """whether the response names the logs that cannot have lost anything (R18)"""

    @property
    def leader_only(self) -> bool:
        """Whether only the leader may serve it: all but consumers from version 11 on (KIP-392)."""
        return self.replica_id >= 0 or self.version < 11


@dataclass(slots=True, eq=False)
class ReadResult:
    """The result of one attempt to serve a fetch. Kafka: `LogReadResult`."""

    responses: list[Response] = field(default_factory=list)
    size: int = 0
    """bytes of records"""
    last_size: int = 0
    """bytes of records of the partition that was read last"""
    throttled: int = 0
    """bytes of records that count against the leader's throttle"""
    from_files: int = 0
    """bytes that were read from files, or would have been"""
    not_in_memory: list[NotInMemoryError] = field(default_factory=list)
    """what would have been read had it been in memory"""
    urgent: bool = False
    """whether there is something to send that is not records"""


class DelayedFetch(Pending):
    """One fetch request between its arrival and its response. Kafka: `DelayedFetch`."""

    __slots__ = (
        "disk_was_read",
        "expedited",
        "found",
        "full",
        "may_wait",
        "min_bytes",
        "parameters",
        "path",
        "session",
        "session_epoch",
        "withheld",
    )

    def __init__(
        self,
        connection: "Connection",
        path: "FetchPath",
        session: FetchSession,
        parameters: FetchParameters,
    ) -> None:
        super().__init__(connection, pipelined=False)
        self.path = path
        self.session = session
        self.session_epoch = session.epoch
        self.full = session.id == INVALID_SESSION_ID
        self.parameters = parameters
        self.found = ReadResult()
        self.min_bytes = min(parameters.min_bytes, parameters.max_bytes)
        """less than was requested where the response may not have that much"""
        self.expedited = False
        self.disk_was_read = False
        self.may_wait = False
        """whether to read from the disk in the loop's own thread: the last resort"""
        self.withheld = False

    # What the broker's handler knows.

    def respond(self) -> Sequence[Buffer]:
        """Return the encoded response; `found` is final."""
        raise NotImplementedError

    def room(self) -> int | None:
        """Return how many bytes the response may have now, None for any number."""
        return None

    def withholds(self) -> bool:
        """Count the response for the client's quota; True if an empty one is sent instead."""
        return False

    @property
    def session_id(self) -> int:
        return self.session.id

    @property
    def overtaken(self) -> bool:
        """Whether another request moved the session on while this one was parked."""
        return not self.full and self.session.epoch != self.session_epoch

    def reconsider(self) -> None:
        """Have this attempted at the end of this iteration of the loop."""
        self.path.purgatory.enqueue(self)

    def attempt(self) -> None:
        path = self.path
        if not self.overtaken:
            path.read(self, observe=False)
            if self.disk_was_read and self.found.not_in_memory and not self.found.size:
                self.may_wait = True  # gone again already
                path.read(self, observe=False)
            content = min(self.min_bytes, 1) if self.disk_was_read else self.min_bytes
            if self.found.size < content and not self.found.urgent and not self.expedited:
                path.watch(self)
                self.found.responses = []
                return
        self._leave()

    def note_disk_was_read(self) -> None:
        """Try again: what was only on disk is in memory now. It is sent then, whatever its size."""
        self.disk_was_read = True
        self.reconsider()

    def expire(self) -> None:
        self.may_wait = True
        if not self.overtaken:
            self.path.read(self, observe=False)
        self._leave()

    def _leave(self) -> None:
        self.path.conclude(self)
        self.complete(self.respond())
        # The purgatory's heap holds this until its time is over: the records are not to wait there.
        self.found.responses = []

    def drop(self) -> None:
        if not self.done:
            self.done = True
            self.path.forget(self)

    def fail(self, reason: str) -> None:
        if not self.done:
            self.path.forget(self)
        super().fail(reason)

    def __repr__(self) -> str:
        return (
            f"Fetch(replica={self.parameters.replica_id} {self.session!r} size={self.found.size})"
        )


def _count_bytes_out(fetch: DelayedFetch) -> None:
    """Count the records that a response sends, for their topics."""
    follows = fetch.parameters.replica_id >= 0
    for entry, data in fetch.found.responses:
        source, records = entry.source, data.records
        if records and isinstance(source, Partition):
            size = sum(map(len, records)) if isinstance(records, list) else len(records)
            if follows:
                source.counts.replication_bytes_out += size
            else:
                source.counts.bytes_out += size


@dataclass(slots=True, eq=False)
class _Expected:
    until_ms: float = 0.0
    partitions: dict[Partition, None] = field(default_factory=dict)


class ExpectedFollowers:
    """For each follower the partitions that a LeaderAndIsr has given it and it has not fetched yet.

    It can name a new partition only in its next fetch, and what waits with acks=all waits for that;
    so its fetches are parked briefly until it has asked for all of them, for `LONGEST_EXPECTED_MS`
    after the last LeaderAndIsr at most. Kafka lets it wait for replica.fetch.wait.max.ms.
    """

    def __init__(self) -> None:
        self._expected: dict[int, _Expected] = {}

    def expect(self, partitions: Iterable[Partition], now_ms: float) -> list[int]:
        """Wait for the followers of partitions that are led in a new epoch; return their ids."""
        found: dict[int, list[Partition]] = {}
        for partition in partitions:
            for replica in partition.state.followers:
                found.setdefault(replica, []).append(partition)
        for replica, theirs in found.items():
            expected = self._expected.get(replica)
            if expected is None or now_ms >= expected.until_ms:
                expected = self._expected[replica] = _Expected()
            expected.until_ms = now_ms + LONGEST_EXPECTED_MS
            expected.partitions.update(dict.fromkeys(theirs))
        return sorted(found)

    def awaits(self, replica: int, now_ms: float) -> bool:
        """Return whether a follower has partitions left to ask for."""
        expected = self._expected.get(replica)
        if expected is None:
            return False
        partitions = expected.partitions
        if now_ms < expected.until_ms:
            while partitions:
                partition = next(reversed(partitions))
                follower = partition.state.followers.get(replica)
                if follower is not None and follower.log_end_offset == UNKNOWN_OFFSET:
                    return True
                del partitions[partition]
        del self._expected[replica]
        return False


class FetchPath:
    """Reads and parks fetches, and responds to them, of one broker."""

    def __init__(self, host: FetchHost, purgatory: Purgatory, sessions: SessionCache) -> None:
        self._host = host
        self.purgatory = purgatory
        self.sessions = sessions
        self.consumer_requests: dict[int, int] = {}
        """fetches of consumers so far, by version"""
        self.follower_requests: dict[int, int] = {}
        self._replicas_waiting: dict[int, dict[DelayedFetch, None]] = {}
        self._expected = ExpectedFollowers()

    def start(self, fetch: DelayedFetch) -> bool:
        """Read; True if it may be answered now, False if it waits."""
        session, parameters = fetch.session, fetch.parameters
        counts = self.consumer_requests if parameters.replica_id < 0 else self.follower_requests
        counts[parameters.version] = counts.get(parameters.version, 0) + 1
        self.sessions.settle(session)
        if parameters.replica_epoch != session.replica_epoch:
            session.registered_again(parameters.replica_epoch)
        self.read(fetch, observe=True)
        found = fetch.found
        if found.not_in_memory:
            self._host.read_from_disk(found.not_in_memory, fetch.note_disk_was_read)
        waits_for_disk = bool(found.not_in_memory) and not found.size and not found.urgent
        if (
            (found.size >= fetch.min_bytes and not waits_for_disk)
            or found.urgent
            or (parameters.max_wait_ms <= 0 and not waits_for_disk)
            or not session.entries
        ):
            fetch.done = True
            self.conclude(fetch)
            return True
        previous = session.waiting
        session.waiting = fetch
        if isinstance(previous, DelayedFetch) and not previous.done:
            previous.reconsider()  # the same session from another connection: the old one ends
        self.watch(fetch)
        found.responses = []  # read again when it completes: a fetch that waits holds no records
        replica = parameters.replica_id
        if replica >= 0:
            self._replicas_waiting.setdefault(replica, {})[fetch] = None
        wait_ms: float = parameters.max_wait_ms
        if replica >= 0 and self._expected.awaits(replica, self._host.now_ms()):
            wait_ms = min(wait_ms, EXPEDITED_WAIT_MS)
        if waits_for_disk:
            wait_ms = max(wait_ms, DISK_WAIT_MS)
        self.purgatory.park(fetch, wait_ms)
        return False

    def expect_followers(self, partitions: Iterable[Partition]) -> None:
        """Complete the parked fetches of all who follow these in a new epoch, with data or without.

        In this iteration of the loop: a follower can only fetch them after the response to its
        current fetch.
        """
        for replica in self._expected.expect(partitions, self._host.now_ms()):
            for fetch in self._replicas_waiting.get(replica, ()):
                fetch.expedited = True
                fetch.reconsider()

    def forget(self, fetch: DelayedFetch) -> None:
        """Forget a fetch that gets no response: its connection is gone."""
        self._leave(fetch)
        if fetch.session.id == INVALID_SESSION_ID:
            fetch.session.close()

    def _leave(self, fetch: DelayedFetch) -> None:
        if fetch.session.waiting is fetch:
            fetch.session.waiting = None
        waiting = self._replicas_waiting.get(fetch.parameters.replica_id)
        if waiting is not None:
            waiting.pop(fetch, None)

    # --- reading --------------------------------------------------------------------------------

    def read(self, fetch: DelayedFetch, *, observe: bool) -> None:
        """Read every dirty entry within the limits into a new `fetch.found`."""
        session, parameters = fetch.session, fetch.parameters
        limit = parameters.max_bytes
        room = fetch.room()
        if room is not None:
            limit = min(limit, room)
            fetch.min_bytes = min(fetch.min_bytes, limit)
        min_one = parameters.version > 2
        found = fetch.found = ReadResult()
        quota = self._host.leader_quota if parameters.replica_id >= 0 else None
        now_ms = self._host.now_ms() if observe else 0.0
        for entry in tuple(session.dirty):
            if found.from_files >= MOST_AT_ONCE:
                limit, min_one = 0, False  # the others follow next time: this one is to be short
            try:
                data = self._read_entry(fetch, entry, limit, min_one, observe, now_ms)
            except OttlaError as error:
                data = self._failure(fetch, entry, error)
            if data is None:
                continue
            found.responses.append((entry, data))
            if data.records:
                found.size += found.last_size
                if quota is not None and quota.throttles(entry.topic or "", entry.index):
                    found.throttled += found.last_size  # in sync or not: all of it is to stay near
                limit = max(0, limit - found.last_size)
                min_one = False

    def _read_entry(
        self,
        fetch: DelayedFetch,
        entry: FetchEntry,
        limit: int,
        min_one: bool,
        observe: bool,
        now_ms: float,
    ) -> FetchResponse.PartitionData | None:
        topic = entry.topic
        if entry.denied:
            raise OttlaError("not authorized", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic is None:
            raise OttlaError("topic id not known here", ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._host.hosted(topic, entry.index)
        partition.counts.fetches += 1
        if (
            entry.topic_id not in (partition.state.topic_id, ZERO_UUID)
            and partition.state.topic_id != ZERO_UUID
        ):
            raise OttlaError("another topic of that name", ErrorCode.INCONSISTENT_TOPIC_ID)
        if fetch.parameters.reader is not None:
            preferred = self._host.preferred_replica(
                partition, fetch.parameters.reader, entry.fetch_offset
            )
            if preferred is not None:
                return self._elsewhere(fetch, entry, partition, preferred)
        log = partition.local_log(entry.leader_epoch, leader_only=fetch.parameters.leader_only)
        is_follower = fetch.parameters.replica_id >= 0
        if is_follower:
            follower = partition.follower(fetch.parameters.replica_id, entry.leader_epoch)
        if entry.last_fetched_epoch >= 0:
            diverging = self._diverging(fetch, log, entry)
            if diverging is not None:
                return diverging
        if is_follower:
            if not log.log_start_offset <= entry.fetch_offset <= log.log_end_offset:
                raise OffsetOutOfRangeError(f"{partition.tp}: no offset {entry.fetch_offset}")
            if observe:
                partition.observe_fetch(follower, entry, now_ms, fetch.parameters.replica_epoch)
                if entry.fetch_offset == follower.sent_offset:
                    # It could not use what it was sent: is it what was appended?
                    log.check_memory(entry.fetch_offset, entry.max_bytes)
            bound = log.log_end_offset
        elif fetch.parameters.isolation == READ_UNCOMMITTED:
            bound = log.high_watermark
        elif fetch.parameters.isolation == READ_COMMITTED:
            bound = log.last_stable_offset
        else:
            bound = log.log_end_offset
        self._check_version(fetch, log)
        size = min(limit, entry.max_bytes)
        if is_follower and self._held_back(fetch, partition):
            size, min_one = 0, False
        data = self._read_log(fetch, partition, log, entry, bound, size, min_one)
        if is_follower and data is not None and data.records:
            follower.sent_offset = entry.fetch_offset
        return data

    def _held_back(self, fetch: DelayedFetch, partition: Partition) -> bool:
        """Whether a follower gets no records for now: throttled, and not in sync (KIP-73)."""
        quota = self._host.leader_quota
        return (
            bool(quota.topics)
            and quota.throttles(*partition.tp)
            and fetch.parameters.replica_id not in partition.state.isr.committed
            and quota.exceeded(self._host.now_ms())
        )

    @staticmethod
    def _elsewhere(
        fetch: DelayedFetch, entry: FetchEntry, partition: Partition, broker_id: int
    ) -> FetchResponse.PartitionData:
        """Send a consumer to another replica, at once and without records."""
        log = partition.local_log(entry.leader_epoch, leader_only=False)
        fetch.found.urgent = True
        entry.source = partition
        return FetchResponse.PartitionData(
            partition_index=entry.index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=broker_id,
            records=b"",
        )

    @staticmethod
    def _diverging(
        fetch: DelayedFetch, log: Log, entry: FetchEntry
    ) -> FetchResponse.PartitionData | None:
        """Compare the epoch a fetcher read last with ours; None if it may read on (R1)."""
        last_epoch = entry.last_fetched_epoch
        if last_epoch == log.epochs.latest:
            epoch, end = last_epoch, log.log_end_offset
        else:
            epoch, end = log.end_offset_for_epoch(last_epoch)
        there = divergence(last_epoch, entry.fetch_offset, epoch, end, log.log_start_offset)
        if there is None:
            return None
        fetch.found.urgent = True
        return FetchResponse.PartitionData(
            partition_index=entry.index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            diverging_epoch=FetchResponse.EpochEndOffset(
                epoch=there.epoch, end_offset=there.end_offset
            ),
            aborted_transactions=None,
            records=b"",
        )

    @staticmethod
    def _check_version(fetch: DelayedFetch, log: Log) -> None:
        """Refuse what old fetchers could not read: batches of magic 2 below v4, zstd below v10."""
        version = fetch.parameters.version
        if version >= 10:
            return
        if version < 4:
            raise OttlaError("no down-conversion here", ErrorCode.UNSUPPORTED_VERSION)
        if log.config.compression_type == "zstd":
            raise OttlaError("zstd needs v10", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

    def _read_log(
        self,
        fetch: DelayedFetch,
        partition: Partition,
        log: Log,
        entry: FetchEntry,
        bound: int,
        max_bytes: int,
        min_one: bool,
    ) -> FetchResponse.PartitionData | None:
        offset = entry.fetch_offset
        records: list[Buffer] = []
        aborted: list[FetchResponse.AbortedTransaction] | None = None
        if log.log_start_offset <= offset < bound and (max_bytes > 0 or min_one):
            try:
                got = log.read(offset, max_bytes, bound, min_one, not fetch.may_wait)
            except NotInMemoryError as place:
                # Its traceback leads to this fetch: a circle that only the collector would find.
                fetch.found.not_in_memory.append(place.with_traceback(None))
                fetch.found.from_files += place.size
                got = NOTHING
            records = got.parts
            fetch.found.last_size = got.size
            if got.from_file:
                fetch.found.from_files += got.size
            if fetch.parameters.isolation == READ_COMMITTED:
                # Of what was read, as in Kafka: up to the bound it may be a great deal.
                upper = min(bound, log.local.upper_bound(got)) if got.parts else offset
                aborted = self._aborted(log, offset, upper)
        elif not log.log_start_offset <= offset <= log.log_end_offset:
            raise OffsetOutOfRangeError(f"{partition.tp}: offset {offset} is not in the log")
        elif fetch.parameters.isolation == READ_COMMITTED:
            aborted = []
        entry.source = partition
        high_watermark = log.high_watermark
        log_start = log.log_start_offset
        if (
            not records
            and not fetch.full
            and high_watermark == entry.sent_high_watermark
            and log_start == entry.sent_log_start
        ):
            if offset >= bound and (
                fetch.parameters.replica_id < 0
                or fetch.parameters.replica_id in partition.state.isr.committed
            ):
                del fetch.session.dirty[entry]
                partition.watch(entry)
            return None
        return FetchResponse.PartitionData(
            partition_index=entry.index,
            high_watermark=high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log_start,
            aborted_transactions=aborted,
            preferred_read_replica=(
                self._host.broker_id
                if fetch.parameters.queries_completeness and not self._host.is_unclean(partition.tp)
                else -1
            ),
            records=records,
        )

    @staticmethod
    def _aborted(log: Log, offset: int, bound: int) -> list[FetchResponse.AbortedTransaction]:
        return [
            FetchResponse.AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset)
            for a in log.aborted_transactions(offset, bound)
        ]

    def _failure(
        self, fetch: DelayedFetch, entry: FetchEntry, error: OttlaError
    ) -> FetchResponse.PartitionData:
        code = error.code
        if code is ErrorCode.CORRUPT_MESSAGE and self._host.leaves(entry.topic or "", entry.index):
            # A consumer gives up at a corrupt message; after this it asks who leads, and goes on.
            code = ErrorCode.KAFKA_STORAGE_ERROR
        if code is ErrorCode.KAFKA_STORAGE_ERROR and fetch.parameters.version <= 5:
            code = NotLeaderError.code  # older clients do not know 56
        if isinstance(entry.source, Partition) and code not in EXPECTED_OF_FETCH:
            entry.source.counts.failed_fetches += 1
        entry.detach()
        fetch.found.urgent = True
        return FetchResponse.PartitionData(
            partition_index=entry.index,
            error_code=code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            # Kafka makes one response for what it does not know and another for what it cannot
            # read.
            aborted_transactions=[] if code in UNKNOWN else None,
            records=b"",
        )

    # --- parking and answering ------------------------------------------------------------------

    def watch(self, fetch: DelayedFetch) -> None:
        """Have every dirty entry watched too: each may complete a parked fetch."""
        for entry in fetch.session.dirty:
            source = entry.source
            if source is None and entry.topic is not None:
                source = self._host.hosted(entry.topic, entry.index)
            if isinstance(source, Partition):
                source.watch(entry)

    def conclude(self, fetch: DelayedFetch) -> None:
        """Note in the session what is sent; keep a session that a full request has requested."""
        session = fetch.session
        self._leave(fetch)
        if fetch.withholds():
            fetch.withheld = True
            fetch.found.responses = []
            if fetch.full:
                session.close()
            return
        if fetch.parameters.replica_id >= 0:
            self._host.leader_quota.record_response(fetch.found.throttled, self._host.now_ms())
        if not fetch.overtaken:
            _count_bytes_out(fetch)
        if fetch.full:
            if session.epoch == FINAL_EPOCH or not self.sessions.keep(session, session.created_ms):
                session.close()
                return
        elif fetch.overtaken:
            return
        dirty = session.dirty
        for entry, data in fetch.found.responses:
            if data.error_code:
                entry.sent_high_watermark = -1  # when the error is gone, say it again
                continue
            entry.sent_high_watermark = data.high_watermark
            entry.sent_log_start = data.log_start_offset
            if data.records:
                session.move_to_end(entry)
            elif entry.source is not None and self._has_no_more(fetch, entry, data):
                dirty.pop(entry, None)
                assert isinstance(entry.source, Partition)
                entry.source.watch(entry)

    @staticmethod
    def _has_no_more(
        fetch: DelayedFetch, entry: FetchEntry, data: FetchResponse.PartitionData
    ) -> bool:
        """Whether an entry answered without records can be left alone until its log moves."""
        partition = entry.source
        assert isinstance(partition, Partition)
        log = partition.log
        if log is None or data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
            return False
        if fetch.parameters.replica_id >= 0:
            return (
                entry.fetch_offset >= log.log_end_offset
                and fetch.parameters.replica_id in partition.state.isr.committed
            )
        if fetch.parameters.isolation == READ_COMMITTED:
            return entry.fetch_offset >= log.last_stable_offset
        return entry.fetch_offset >= log.high_watermark
