"""The group coordinator: the shell around groups, with their log, their timers and the event loop.

Invariants: a request reaches a group only if its partition is led and loaded here; one timer of the
event loop for all deadlines; effects are carried out in the order in which the decider returned
them. It knows which requests wait behind the decider's numbers, and when timers are due. Kafka:
`GroupCoordinatorAdapter`, `GroupCoordinator.validateGroupStatus`, and the appends and the cleaning
of `GroupMetadataManager`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ottla.coordinators.coordinator_log import (
    COMMITTED,
    NO_PRODUCER,
    AppendSettings,
    CoordinatorLog,
    DelayedAppend,
    Producer,
)
from ottla.coordinators.group import CLASSIC, CONSUMER, Group, GroupState
from ottla.coordinators.group_events import (
    Effect,
    Event,
    GroupDeleted,
    GroupLoaded,
    GroupSettings,
    GroupUnloaded,
    HeartbeatReceived,
    Join,
    JoinRequested,
    JoinResult,
    LeaveRequested,
    LeaveResult,
    LeavingMember,
    OffsetCommitRequested,
    RecordsStored,
    Reply,
    StoreGroup,
    Sync,
    SyncRequested,
    SyncResult,
    TimerExpired,
    TimerKey,
)
from ottla.coordinators.group_memory import text_bytes
from ottla.coordinators.group_records import GroupRecordReader, group_key, offset_key, offset_value
from ottla.coordinators.groups import Groups
from ottla.coordinators.offsets import Commit
from ottla.coordinators.results import (
    COMMIT_ERRORS,
    STORE_ERRORS,
    AwaitsResult,
    FetchedOffset,
    GroupDescription,
    GroupOverview,
    PartitionErrors,
)
from ottla.coordinators.timers import CancelTimer, Now, SetTimer, Timers
from ottla.log.producers import TRUSTED
from ottla.model.config import BrokerConfig
from ottla.model.effects import LogLine
from ottla.model.errors import ErrorCode
from ottla.model.ids import GROUP_METADATA_TOPIC, TopicPartition
from ottla.model.ports import World
from ottla.model.retention_clock import RetentionClock
from ottla.model.time_slices import InTimeSlices, wait_at_most
from ottla.replication.replica_manager import ReplicaManager
from ottla.wire.batch_header import BatchHeader
from ottla.wire.records import Record

logger = logging.getLogger(__name__)

MAX_EXPIRED_PER_TURN = 256
"""Timers that expire in one turn of the event loop."""

TIMER_ROUNDING_MS = 0.1
"""A timer that is due within this has expired: the event loop cannot tell the difference."""


class _GroupAppend(DelayedAppend):
    """The append of a group's record: its outcome is an event for the decider."""

    __slots__ = ("_coordinator", "_store")

    def __init__(self, coordinator: "GroupCoordinator", store: StoreGroup) -> None:
        super().__init__()
        self._coordinator = coordinator
        self._store = store

    def completed(self, code: ErrorCode) -> None:
        store = self._store
        if code is not ErrorCode.NONE:
            logger.info("group not stored group=%s error=%s", store.group_id, code.name)
        self._coordinator.on_group_stored(store.token, STORE_ERRORS.get(code, code))


class _OffsetsAppend(DelayedAppend):
    """The append of a commit's offsets, which must be known even if the client's time is over."""

    __slots__ = ("_coordinator", "_request", "_results", "commits", "group", "producer")

    settles_late = True

    def __init__(
        self,
        coordinator: "GroupCoordinator",
        group: Group,
        commits: Mapping[TopicPartition, Commit],
        producer: Producer,
        results: dict[TopicPartition, ErrorCode],
        request: AwaitsResult[PartitionErrors],
    ) -> None:
        super().__init__()
        self._coordinator = coordinator
        self.group = group
        self.commits = commits
        self.producer = producer
        self._results = results
        self._request = request

    def completed(self, code: ErrorCode) -> None:
        if self.base_offset < 0 or code in COMMITTED:
            self.settled(code)
        error = GroupCoordinator.as_commit_error(code)
        self._results.update(dict.fromkeys(self.commits, error))
        self._request.on_result(self._results)

    def settled(self, code: ErrorCode) -> None:
        self._coordinator.on_offsets_stored(self, code)


class _TombstonesAppend(DelayedAppend):
    """The append of tombstones, of which nothing waits for the outcome."""

    __slots__ = ("_group_id",)

    def __init__(self, group_id: str) -> None:
        super().__init__()
        self._group_id = group_id

    def completed(self, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            logger.warning("tombstones not written group=%s error=%s", self._group_id, code.name)


class _GroupLoader:
    """Loads the groups of one partition."""

    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._records = GroupRecordReader()

    def load_batch(self, header: BatchHeader, records: Iterator[Record]) -> Iterator[None]:
        return _logged(self._records.read_batch(header, records))

    def finish(self) -> Iterator[None]:
        found: dict[str, Group] = {}
        coordinator = self._coordinator
        yield from _logged(self._records.build(found, coordinator.now().wall_ms))
        for group in found.values():
            coordinator.on_group_loaded(group)
            yield


def _logged(steps: Iterator[LogLine | None]) -> Iterator[None]:
    """Write the warnings of a reader to the log."""
    for log in steps:
        if log is not None:
            logger.log(log.level, "%s", log.text)
        yield


class GroupCoordinator:
    """All groups whose partition of `__consumer_offsets` this broker leads."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        replicas: ReplicaManager,
        partitions: Callable[[], int],
    ) -> None:
        number = config.integer
        self._world = world
        self._clock = world.clock
        self._ages = RetentionClock(world.clock)
        self._metadata_max = number("offset.metadata.max.bytes")
        self._retention_ms = number("offsets.retention.minutes") * 60_000
        self._retention_check_s = config.interval_s("offsets.retention.check.interval.ms")
        self.groups = Groups(
            GroupSettings(
                min_session_timeout_ms=number("group.min.session.timeout.ms"),
                max_session_timeout_ms=number("group.max.session.timeout.ms"),
                initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
                max_size=number("group.max.size"),
            )
        )
        self.log = CoordinatorLog(
            world,
            replicas,
            GROUP_METADATA_TOPIC,
            self,
            partitions,
            AppendSettings(
                acks=number("offsets.commit.required.acks"),
                timeout_ms=number("offsets.commit.timeout.ms"),
                codec=number("offsets.topic.compression.codec"),
            ),
        )
        self._producers: dict[int, dict[str, None]] = {}
        """producer id -> groups with offsets in its open transaction"""
        self._effects: deque[Effect] = deque()
        self._running = False
        self._waiting: dict[int, AwaitsResult[Any]] = {}
        self._last_request = 0
        self._timers: Timers[TimerKey] = Timers()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0.0
        self._closed = False
        self._cleaner: asyncio.Task[None] | None = None
        self._deleted: list[TopicPartition] = []
        self._wake_cleaner = asyncio.Event()
        self._commits = 0
        self._expired = 0

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to remove expired offsets and offsets of deleted topics; inside the event loop."""
        loop = asyncio.get_running_loop()
        self._cleaner = loop.create_task(self._clean(), name="group-cleaner")

    async def close(self) -> None:
        """Stop serving. The next leaders of the partitions load the groups."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._cleaner is not None:
            self._cleaner.cancel()
            await asyncio.gather(self._cleaner, return_exceptions=True)
            self._cleaner = None
        await self.log.close()

    def now(self) -> Now:
        return Now(self._clock.monotonic() * 1000, self._clock.wall_ms())

    # --- StateListener of the CoordinatorLog ------------------------------------------------------

    def start_loading(self, index: int) -> _GroupLoader:
        del index
        return _GroupLoader(self)

    def on_group_loaded(self, group: Group) -> None:
        """Serve a group that was read from the log."""
        for producer_id in group.offsets.in_transactions:
            self._producers.setdefault(producer_id, {})[group.group_id] = None
        self._handle(GroupLoaded(group))

    def on_resigned(self, index: int) -> None:
        """Nothing yet: no request reaches the groups any more; `remove_state` removes them."""

    def remove_state(self, indexes: Collection[int]) -> Iterator[None]:
        """Unload groups; requests that wait are answered with NOT_COORDINATOR."""
        partition_for = self.log.partition_for
        for group in list(self.groups.groups.values()):
            if partition_for(group.group_id) in indexes and group.state is not GroupState.DEAD:
                for producer_id in group.offsets.in_transactions:
                    self._forget_producer(producer_id, group.group_id)
                self._handle(GroupUnloaded(group.group_id))
            yield

    # --- effects ----------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        """Pass an event to the decider and carry out the effects."""
        effects = self.groups.handle(event, self.now())
        if effects:
            self._run(effects)

    def _run(self, effects: Iterable[Effect]) -> None:
        """Carry out effects in their order; those that follow from one come after all before."""
        if self._running:
            self._effects.extend(effects)
        else:
            self._carry_out_all(effects)
            self._schedule_timer()

    def _carry_out_all(self, effects: Iterable[Effect]) -> None:
        self._effects.extend(effects)
        self._running = True
        try:
            while self._effects:
                self._carry_out(self._effects.popleft())
        finally:
            self._running = False

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Reply():
                self._waiting.pop(effect.request_id).on_result(effect.result)
            case SetTimer():
                self._timers.set(effect.key, effect.due_ms)
            case CancelTimer():
                self._timers.cancel(effect.key)
            case StoreGroup():
                self._write(effect)
            case LogLine(level, text, values):
                logger.log(level, text, *values)

    def _number(self, request: AwaitsResult[Any]) -> int:
        """Return the number by which the decider knows a new request."""
        self._last_request += 1
        self._waiting[self._last_request] = request
        return self._last_request

    def _write(self, store: StoreGroup) -> None:
        group_id = store.group_id
        record = Record(timestamp=self._clock.wall_ms(), key=group_key(group_id), value=store.value)
        self.log.append(self.log.partition_for(group_id), [record], _GroupAppend(self, store))

    def on_group_stored(self, token: int, error: ErrorCode) -> None:
        """Pass the outcome of a group's append to the decider."""
        self._handle(RecordsStored(token, error))

    # --- timers -----------------------------------------------------------------------------------

    def _schedule_timer(self) -> None:
        due_ms = self._timers.next_ms
        if due_ms is None or self._closed:
            return
        if self._timer is not None:
            if self._timer_at_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = due_ms
        delay_s = max(0.0, due_ms / 1000 - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        """Let timers expire that are due. A loop root."""
        self._timer = None
        now = self.now()
        if 0 < self._timer_at_ms - now.mono_ms < TIMER_ROUNDING_MS:
            # The deadline is kept in milliseconds, the loop's clock counts seconds: rounded, it can
            # be just before the deadline, and the delay that is left too small to move it.
            now = now._replace(mono_ms=self._timer_at_ms)
        try:
            for _ in range(MAX_EXPIRED_PER_TURN):
                key = self._timers.pop(now.mono_ms)
                if key is None:
                    break
                self._carry_out_all(self.groups.handle(TimerExpired(key), now))
        except Exception:
            logger.exception("a group's timer failed")
        self._schedule_timer()

    # --- membership -------------------------------------------------------------------------------

    def validate_group_status(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Return NONE if this broker serves the group, else the error for the client."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        return self.log.check_status(self.log.partition_for(group_id))

    def join(self, join: Join, request: AwaitsResult[JoinResult]) -> None:
        """Join a group; the result is there when the rebalance ends, an error at once."""
        error = self.validate_group_status(join.group_id)
        if error is not ErrorCode.NONE:
            request.on_result(JoinResult(error, join.member_id))
            return
        self._handle(JoinRequested(self._number(request), join))

    def sync(self, sync: Sync, request: AwaitsResult[SyncResult]) -> None:
        """Ask for an assignment; the result is there when the leader's is in the log."""
        error = self.validate_group_status(sync.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance that was under way is lost anyway; old clients do not know the code.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            request.on_result(SyncResult(error))
            return
        self._handle(SyncRequested(self._number(request), sync))

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None
    ) -> ErrorCode:
        error = self.validate_group_status(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # its member is being loaded; no reason to join again
        if error is not ErrorCode.NONE:
            return error
        event = HeartbeatReceived(group_id, generation, member_id, instance_id)
        error, effects = self.groups.respond(event, self.now())
        if effects:
            self._run(effects)
        return error

    def leave(self, group_id: str, members: Iterable[LeavingMember]) -> LeaveResult:
        error = self.validate_group_status(group_id)
        if error is not ErrorCode.NONE:
            return LeaveResult(error)
        event = LeaveRequested(group_id, tuple(members))
        result, effects = self.groups.respond(event, self.now())
        self._run(effects)
        return result

    # --- offsets ----------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        commits: Mapping[TopicPartition, Commit],
        request: AwaitsResult[PartitionErrors],
        *,
        producer: Producer = NO_PRODUCER,
        guard: object = TRUSTED,
    ) -> None:
        """Write offsets; the result is a code for each partition, when they are in the log.

        With a `producer` they belong to its transaction, verified under `guard`, and are visible
        only after `complete_transaction`.
        """
        transactional = producer.transactional
        # Older clients commit for the group without a name.
        error = self.validate_group_status(group_id, may_be_empty=not transactional)
        if error is ErrorCode.NONE:
            event = OffsetCommitRequested(
                group_id, generation, member_id, instance_id, transactional
            )
            error, effects = self.groups.respond(event, self.now())
            self._run(effects)
        if error is not ErrorCode.NONE:
            request.on_result(dict.fromkeys(commits, error))
            return
        group = self.groups.groups[group_id]
        texts = text_bytes(sum(len(c.metadata) for c in commits.values()))
        most = self._metadata_max if self.groups.memory.has_room_for_texts(texts) else 0
        kept = {tp: c for tp, c in commits.items() if len(c.metadata) <= most}
        results = dict.fromkeys(commits, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        if not kept:
            request.on_result(results)
            return
        timestamp = self._clock.wall_ms()
        records = [
            Record(timestamp=timestamp, key=offset_key(group_id, tp), value=offset_value(c))
            for tp, c in kept.items()
        ]
        offsets = group.offsets
        if transactional:
            self._producers.setdefault(producer.producer_id, {})[group_id] = None
            offsets.prepare_in_transaction(producer.producer_id, kept)
        else:
            offsets.prepare(kept)
        self.log.append(
            self.log.partition_for(group_id),
            records,
            _OffsetsAppend(self, group, kept, producer, results, request),
            producer=producer,
            guard=guard,
        )

    @staticmethod
    def as_commit_error(failure: ErrorCode) -> ErrorCode:
        """Return the client's error for offsets that could not be written."""
        return COMMIT_ERRORS.get(failure, failure)

    def on_offsets_stored(self, append: _OffsetsAppend, code: ErrorCode) -> None:
        """Keep a commit's offsets if they are committed in the log, else forget them."""
        group, commits, producer = append.group, append.commits, append.producer
        if group.state is GroupState.DEAD:
            return  # the next coordinator loads them from the log
        offsets, producer_id = group.offsets, producer.producer_id
        if code in COMMITTED:
            self._commits += len(commits)
            if producer.transactional:
                offsets.appended_in_transaction(producer_id, commits, append.base_offset)
            else:
                offsets.appended(commits, append.base_offset)
        elif producer.transactional:
            offsets.failed_in_transaction(producer_id, commits)
            if producer_id not in offsets.in_transactions:
                self._forget_producer(producer_id, group.group_id)
        else:
            offsets.failed(commits)

    def complete_transaction(
        self, producer_id: int, indexes: Iterable[int], *, committed: bool
    ) -> None:
        """Make a transaction's offsets visible, or drop them: these partitions have its marker."""
        ended = set(indexes)
        for group_id in list(self._producers.get(producer_id, ())):
            if self.log.partition_for(group_id) in ended:
                group = self.groups.groups.get(group_id)
                if group is not None:
                    group.offsets.complete_transaction(producer_id, committed=committed)
                self._forget_producer(producer_id, group_id)

    def _forget_producer(self, producer_id: int, group_id: str) -> None:
        groups = self._producers.get(producer_id)
        if groups is not None:
            groups.pop(group_id, None)
            if not groups:
                del self._producers[producer_id]

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool
    ) -> tuple[ErrorCode, Iterator[FetchedOffset]]:
        """Return the offsets of these partitions; with None, of all that have one.

        They are looked up one by one as they are taken: a group may have very many.
        """
        error = self.validate_group_status(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error, iter(())
        group = self.groups.groups.get(group_id)
        if group is None:
            return ErrorCode.NONE, (FetchedOffset(tp, None) for tp in partitions or ())
        offsets = group.offsets
        wanted = list(offsets.committed) if partitions is None else partitions
        unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
        return ErrorCode.NONE, (
            FetchedOffset(tp, None, unstable)
            if require_stable and offsets.unstable(tp)
            else FetchedOffset(tp, offsets.get(tp))
            for tp in wanted
        )

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        """Delete offsets of partitions that no member reads (KIP-496)."""
        error = self.validate_group_status(group_id)
        if error is not ErrorCode.NONE:
            return error, {}
        group = self.groups.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
            return ErrorCode.NON_EMPTY_GROUP, {}
        in_use = [
            tp
            for tp in partitions
            if group.state is not GroupState.EMPTY and group.is_subscribed_to(tp.topic)
        ]
        free = [tp for tp in partitions if tp not in in_use]
        if free:
            self._remove_offsets(group, free)
        return ErrorCode.NONE, {
            **dict.fromkeys(in_use, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
            **dict.fromkeys(free, ErrorCode.NONE),
        }

    # --- administration ---------------------------------------------------------------------------

    def list_groups(
        self, states: Iterable[str], types: Iterable[str]
    ) -> tuple[ErrorCode, Iterator[GroupOverview]]:
        """Return the groups here; filters are names in any case, empty ones let all through."""
        if self._closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, iter(())
        wanted = {state.lower() for state in states}
        kinds = {kind.lower() for kind in types}
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.log.loading else ErrorCode.NONE
        if kinds and CLASSIC not in kinds:
            return error, iter(())
        return error, (
            GroupOverview(g.group_id, g.protocol_type or "", g.state.value)
            for g in list(self.groups.groups.values())
            if (not wanted or g.state.value.lower() in wanted) and self._is_served(g)
        )

    def _is_served(self, group: Group) -> bool:
        """Return whether a group in memory is not about to be unloaded."""
        if not self.log.unloading:
            return True
        return self.validate_group_status(group.group_id, may_be_empty=True) is ErrorCode.NONE

    def describe(self, group_id: str) -> GroupDescription:
        error = self.validate_group_status(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return GroupDescription(error, group_id)
        group = self.groups.groups.get(group_id)
        if group is None:
            return GroupDescription(ErrorCode.NONE, group_id, GroupState.DEAD.value)
        stable = group.state is GroupState.STABLE
        return GroupDescription(
            ErrorCode.NONE,
            group_id,
            group.state.value,
            group.protocol_type or "",
            (group.protocol or "") if stable else "",
            group.summaries(),
        )

    def delete(self, group_id: str) -> ErrorCode:
        """Delete an empty group and all its offsets."""
        error = self.validate_group_status(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error
        group = self.groups.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        for producer_id in group.offsets.in_transactions:
            self._forget_producer(producer_id, group_id)
        removed = group.offsets.remove(list(group.offsets.committed))
        self._handle(GroupDeleted(group_id))
        self._write_tombstones(group, removed)
        logger.info("group deleted group=%s offsets=%d", group_id, len(removed))
        return ErrorCode.NONE

    # --- cleaning ---------------------------------------------------------------------------------

    def partitions_deleted(self, deleted: Iterable[TopicPartition]) -> None:
        """Have offsets of deleted partitions removed."""
        self._deleted.extend(deleted)
        if self._deleted:
            self._wake_cleaner.set()

    async def _clean(self) -> None:
        """Remove expired offsets from time to time, and those of deleted topics. A loop root."""
        while True:
            await wait_at_most(self._wake_cleaner, self._retention_check_s)
            self._wake_cleaner.clear()
            deleted, self._deleted = self._deleted, []
            try:
                await self._clean_once(deleted)
            except Exception:
                logger.exception("cleaning groups failed")

    async def _clean_once(self, deleted: Sequence[TopicPartition]) -> None:
        async for group in InTimeSlices(list(self.groups.groups.values()), self._clock):
            if self.groups.groups.get(group.group_id) is not group:
                continue
            removed = group.expired_offsets(self._ages.now_ms(), self._retention_ms)
            if deleted:
                removed += deleted
            else:
                self._expired += len(removed)
            self._remove_offsets(group, removed)

    def _remove_offsets(self, group: Group, partitions: Iterable[TopicPartition]) -> None:
        """Remove offsets, and the group too if nothing else is left of it."""
        removed = group.offsets.remove(partitions)
        empty = group.state is GroupState.EMPTY and not group.pending_members
        if empty and not group.offsets.any:
            self._handle(GroupDeleted(group.group_id))
            logger.info("group removed group=%s generation=%d", group.group_id, group.generation)
        self._write_tombstones(group, removed)

    def _write_tombstones(self, group: Group, removed: Iterable[TopicPartition]) -> None:
        timestamp = self._clock.wall_ms()
        group_id = group.group_id
        records = [Record(timestamp=timestamp, key=offset_key(group_id, tp)) for tp in removed]
        if group.state is GroupState.DEAD and group.generation > 0:
            records.append(Record(timestamp=timestamp, key=group_key(group_id)))
        if not records:
            return
        # With acks=0: if they are lost, the next coordinator removes the offsets again.
        append = _TombstonesAppend(group_id)
        self.log.append(self.log.partition_for(group_id), records, append, acks=0)

    def statistics(self) -> dict[str, object]:
        states = dict.fromkeys((s.value for s in GroupState if s is not GroupState.DEAD), 0)
        for group in self.groups.groups.values():
            states[group.state.value] += 1
        return {
            "groups": len(self.groups.groups),
            "states": states,
            "offsets": sum(len(g.offsets) for g in self.groups.groups.values()),
            "timers": len(self._timers),
            "commits_total": self._commits,
            "expired_total": self._expired,
            "log": self.log.statistics(),
        }
