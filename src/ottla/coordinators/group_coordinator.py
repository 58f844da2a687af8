"""The group coordinator: the shell around groups, with their log, their timers and the event loop.

Invariants: a request reaches a group only if its partition is led and loaded here. It is the port
of `groups`. Kafka: `GroupCoordinatorAdapter`, `GroupCoordinator.validateGroupStatus`, and the
appends and the cleaning of `GroupMetadataManager`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ottla.coordinators.coordinator_log import (
    APPEND_ERRORS,
    COMMITTED,
    NO_PRODUCER,
    AppendSettings,
    CoordinatorLog,
    Producer,
    StateListener,
)
from ottla.coordinators.group import CONSUMER, Group, GroupState
from ottla.coordinators.group_memory import text_bytes
from ottla.coordinators.group_records import GroupRecordReader, group_key, offset_key, offset_value
from ottla.coordinators.groups import Groups, GroupSettings, PendingStore, TimerKey
from ottla.coordinators.loop_timers import LoopTimers, now_of
from ottla.coordinators.offsets import Commit
from ottla.coordinators.requests import (
    CLASSIC,
    AwaitsResult,
    FetchedOffset,
    GroupDescription,
    GroupOverview,
    Join,
    JoinResult,
    LeaveResult,
    LeavingMember,
    PartitionErrors,
    Sync,
    SyncResult,
)
from ottla.coordinators.timers import Now
from ottla.log.producers import TRUSTED
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.model.ids import GROUP_METADATA_TOPIC, TopicPartition
from ottla.model.ports import World
from ottla.model.retention_clock import RetentionClock
from ottla.model.time_slices import InTimeSlices, end_tasks, wait_at_most
from ottla.replication.replica_manager import ReplicaManager
from ottla.wire.records import Record

logger = logging.getLogger(__name__)

STORE_ERRORS = APPEND_ERRORS | {ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS}
"""The client's error for a group whose record was not written."""

COMMIT_ERRORS = APPEND_ERRORS | {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""The client's error for offsets that were not written."""


class GroupCoordinator(StateListener):
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
            ),
            self,
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
        self._timers = LoopTimers(world.clock, self.groups.expire)
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
        self._timers.close()
        await end_tasks(self._cleaner)
        await self.log.close()

    def _now(self) -> Now:
        return now_of(self._clock)

    # --- StateListener of the CoordinatorLog ------------------------------------------------------

    def start_loading(self, index: int) -> GroupRecordReader:
        del index
        return GroupRecordReader(self._group_loaded, self._clock.wall_ms())

    def _group_loaded(self, group: Group) -> None:
        """Serve a group that was read from the log."""
        for producer_id in group.offsets.in_transactions:
            self._producers.setdefault(producer_id, {})[group.group_id] = None
        self.groups.load(group, self._now())

    def remove_state(self, indexes: Collection[int]) -> Iterator[None]:
        """Unload groups; requests that wait are answered with NOT_COORDINATOR."""
        partition_for = self.log.partition_for
        for group in list(self.groups.groups.values()):
            if partition_for(group.group_id) in indexes and group.state is not GroupState.DEAD:
                for producer_id in group.offsets.in_transactions:
                    self._forget_producer(producer_id, group.group_id)
                self.groups.unload(group, self._now())
            yield

    # --- the port of the groups -------------------------------------------------------------------

    def set_timer(self, key: TimerKey, due_ms: float) -> None:
        self._timers.set(key, due_ms)

    def cancel_timer(self, key: TimerKey) -> None:
        self._timers.cancel(key)

    def store(self, pending: PendingStore) -> None:
        group_id = pending.group.group_id
        record = Record(
            timestamp=self._clock.wall_ms(), key=group_key(group_id), value=pending.value
        )
        self.log.append(
            self.log.partition_for(group_id), [record], partial(self._group_stored, pending)
        )

    def _group_stored(self, pending: PendingStore, code: ErrorCode, base_offset: int) -> None:
        del base_offset
        if code is not ErrorCode.NONE:
            logger.info("group not stored group=%s error=%s", pending.group.group_id, code.name)
        self.groups.stored(pending, STORE_ERRORS.get(code, code), self._now())

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
        self.groups.join(join, request, self._now())

    def sync(self, sync: Sync, request: AwaitsResult[SyncResult]) -> None:
        """Ask for an assignment; the result is there when the leader's is in the log."""
        error = self.validate_group_status(sync.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance that was under way is lost anyway; old clients do not know the code.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            request.on_result(SyncResult(error))
            return
        self.groups.sync(sync, request, self._now())

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None
    ) -> ErrorCode:
        error = self.validate_group_status(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # its member is being loaded; no reason to join again
        if error is not ErrorCode.NONE:
            return error
        return self.groups.heartbeat(group_id, generation, member_id, instance_id, self._now())

    def leave(self, group_id: str, members: Iterable[LeavingMember]) -> LeaveResult:
        error = self.validate_group_status(group_id)
        if error is not ErrorCode.NONE:
            return LeaveResult(error)
        return self.groups.leave(group_id, members, self._now())

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
            error = self.groups.check_commit(
                group_id,
                generation,
                member_id,
                instance_id,
                self._now(),
                transactional=transactional,
            )
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
            partial(self._respond_to_commit, kept, results, request),
            settled=partial(self._offsets_stored, group, kept, producer),
            producer=producer,
            guard=guard,
        )

    @staticmethod
    def _respond_to_commit(
        commits: Mapping[TopicPartition, Commit],
        results: dict[TopicPartition, ErrorCode],
        request: AwaitsResult[PartitionErrors],
        code: ErrorCode,
        base_offset: int,
    ) -> None:
        del base_offset
        request.on_result(results | dict.fromkeys(commits, COMMIT_ERRORS.get(code, code)))

    def _offsets_stored(
        self,
        group: Group,
        commits: Mapping[TopicPartition, Commit],
        producer: Producer,
        code: ErrorCode,
        base_offset: int,
    ) -> None:
        """Keep a commit's offsets if they are committed in the log, else forget them."""
        if group.state is GroupState.DEAD:
            return  # the next coordinator loads them from the log
        offsets, producer_id = group.offsets, producer.producer_id
        if code in COMMITTED:
            self._commits += len(commits)
            if producer.transactional:
                offsets.appended_in_transaction(producer_id, commits, base_offset)
            else:
                offsets.appended(commits, base_offset)
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
        self.groups.delete(group, self._now())
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
            self.groups.delete(group, self._now())
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
        self.log.append(
            self.log.partition_for(group_id),
            records,
            partial(self._tombstones_stored, group_id),
            acks=0,
        )

    @staticmethod
    def _tombstones_stored(group_id: str, code: ErrorCode, base_offset: int) -> None:
        del base_offset
        if code is not ErrorCode.NONE:
            logger.warning("tombstones not written group=%s error=%s", group_id, code.name)

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
