"""The group coordinator: the shell that joins groups, their log and the event loop.

Who may call: the broker's handlers, and the broker to start and end it and to tell of leadership.
Invariants: a request touches a group only if the group's partition is led and loaded here; one
timer for all deadlines; effects of the decider are carried out in the order it left them, never
while it is at work. Tickets are functions that take a result. Kafka:
`GroupCoordinatorAdapter`, to `GroupCoordinator.validateGroupStatus` and to the appends and the
cleaning of `GroupMetadataManager`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ottla.coordinators.group import CLASSIC, CONSUMER, Group, MemberSummary
from ottla.coordinators.group_records import GroupReplay, group_key, offset_key, offset_value
from ottla.coordinators.group_states import GroupState
from ottla.coordinators.group_values import (
    Answer,
    GroupSettings,
    Join,
    JoinResult,
    Store,
    SyncResult,
)
from ottla.coordinators.groups import Groups
from ottla.coordinators.offsets import Commit
from ottla.coordinators.state_log import NOBODY, AppendSettings, Producer, StateLog
from ottla.coordinators.timers import Now
from ottla.log.producers import TRUSTED
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.model.retention_clock import RetentionClock
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.time_slices import InTimeSlices, wait_at_most
from ottla.wire.records import BatchHeader, Record

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"

AT_ONCE = 256
"""Deadlines looked after in one turn of the loop."""

TIMER_ROUNDING_MS = 0.1
"""What is due within this is due: a timer for it could not tell the difference."""

_COMMIT_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What a client is told of an append that failed: never the errors of a partition not its own."""

_IN_THE_LOG = frozenset({ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""An append of which whoever reads the log from now on will know, whatever its client is told."""

_STORE_ERRORS = {
    **_COMMIT_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

Committed = Callable[[dict[TopicPartition, ErrorCode]], None]
JoinTicket = Callable[[JoinResult], None]
SyncTicket = Callable[[SyncResult], None]


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as DescribeGroups shows it."""

    error: ErrorCode
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[MemberSummary] = ()


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """One partition's committed offset; `commit` is None where there is none."""

    tp: TopicPartition
    commit: Commit | None
    error: ErrorCode = ErrorCode.NONE


class _Replay:
    """A partition of groups on its way into memory."""

    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._records = GroupReplay()

    def batch(self, header: BatchHeader, records: Iterator[Record]) -> Iterator[None]:
        return self._records.batch(header, records)

    def finish(self) -> Iterator[None]:
        found: dict[str, Group] = {}
        coordinator = self._coordinator
        yield from self._records.build(found, coordinator.now().wall_ms)
        for group in found.values():
            coordinator.take_over(group)
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
        self.log = StateLog(
            world,
            replicas,
            OFFSETS_TOPIC,
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
        self._settling = False
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
        """Begin to clean up after groups and topics that are gone; inside the event loop."""
        loop = asyncio.get_running_loop()
        self._cleaner = loop.create_task(self._clean(), name="group-cleaner")

    async def close(self) -> None:
        """Serve nothing any more. Groups go on with whoever leads their partitions next."""
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

    # --- what StateLog asks (Keeper) --------------------------------------------------------------

    def begin(self, index: int) -> _Replay:
        del index
        return _Replay(self)

    def take_over(self, group: Group) -> None:
        """Serve a group that was read from the log."""
        for producer_id in group.offsets.in_transactions:
            self._producers.setdefault(producer_id, {})[group.group_id] = None
        self.groups.load(group, self.now())
        self._settle()

    def unload(self, index: int) -> None:
        """Nothing yet: `standing` lets nobody reach the groups, `forget` takes them away."""

    def forget(self, indexes: Collection[int]) -> Iterator[None]:
        """Let groups go to their new coordinators; whoever waits is told to look for those."""
        partition_for = self.log.partition_for
        for group in list(self.groups.groups.values()):
            if partition_for(group.group_id) in indexes and group.state is not GroupState.DEAD:
                for producer_id in group.offsets.in_transactions:
                    self._forget_producer(producer_id, group.group_id)
                self.groups.unload(group, self.now())
                self._settle()
            yield

    # --- carrying out -----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Carry out what the decider left, and set the timer."""
        if self._settling:
            return
        self._settling = True
        try:
            while effects := self.groups.take_effects():
                for effect in effects:
                    if isinstance(effect, Answer):
                        effect.ticket(effect.result)  # type: ignore[operator]
                    else:
                        self._write(effect)
        finally:
            self._settling = False
        self._arm()

    def _write(self, store: Store) -> None:
        group_id = store.group.group_id
        record = Record(timestamp=self._clock.wall_ms(), key=group_key(group_id), value=store.value)

        def written(error: ErrorCode, _at: int) -> None:
            if error is not ErrorCode.NONE:
                logger.info("group not stored group=%s error=%s", group_id, error.name)
            self.groups.stored(store, _STORE_ERRORS.get(error, error), self.now())
            self._settle()

        self.log.append(self.log.partition_for(group_id), [record], written)

    def _arm(self) -> None:
        due_ms = self.groups.timers.next_ms
        if due_ms is None or self._closed:
            return
        if self._timer is not None:
            if self._timer_at_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = due_ms
        delay_s = max(0.0, due_ms / 1000 - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        """Look after what is due. A loop root."""
        self._timer = None
        now = self.now()
        if 0 < self._timer_at_ms - now.mono_ms < TIMER_ROUNDING_MS:
            # The deadline is kept in milliseconds, the loop's clock counts seconds: rounded, it can
            # be a hair before the deadline, and the delay that is left too small to move it.
            now = now._replace(mono_ms=self._timer_at_ms)
        try:
            for _ in range(AT_ONCE):
                if not self.groups.ring(now):
                    break
        except Exception:
            logger.exception("a group's deadline failed")
        self._settle()

    # --- who may ask ------------------------------------------------------------------------------

    def standing(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Return NONE if this broker serves the group, else what to tell the client."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        return self.log.standing(self.log.partition_for(group_id))

    # --- membership -------------------------------------------------------------------------------

    def join(self, request: Join, ticket: JoinTicket) -> None:
        error = self.standing(request.group_id)
        if error is not ErrorCode.NONE:
            ticket(JoinResult(error, request.member_id))
            return
        self.groups.join(request, ticket, self.now())
        self._settle()

    def sync(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        protocol_type: str | None,
        protocol: str | None,
        assignment: Mapping[str, bytes],
        ticket: SyncTicket,
    ) -> None:
        error = self.standing(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance that was under way is lost anyway; old clients do not know the code.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            ticket(SyncResult(error))
            return
        self.groups.sync(
            group_id,
            generation,
            member_id,
            instance_id,
            protocol_type,
            protocol,
            assignment,
            ticket,
            self.now(),
        )
        self._settle()

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None
    ) -> ErrorCode:
        error = self.standing(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # its member is being read; no reason to join anew
        if error is not ErrorCode.NONE:
            return error
        return self.groups.heartbeat(group_id, generation, member_id, instance_id, self.now())

    def leave(
        self, group_id: str, leaving: list[tuple[str, str | None, str | None]]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        error = self.standing(group_id)
        if error is not ErrorCode.NONE:
            return error, []
        result = self.groups.leave(group_id, leaving, self.now())
        self._settle()
        return result

    # --- offsets ----------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        commits: Mapping[TopicPartition, Commit],
        then: Committed,
        *,
        producer: Producer = NOBODY,
        guard: object = TRUSTED,
    ) -> None:
        """Write offsets; `then` gets an error for each partition when they are in the log.

        With a `producer` they belong to its transaction, verified under `guard`, and show only
        after `complete_transaction`.
        """
        transactional = producer.transactional
        # Older clients commit for the group without a name.
        error = self.standing(group_id, may_be_empty=not transactional)
        group = None
        if error is ErrorCode.NONE:
            error, group = self.groups.check_commit(
                group_id, generation, member_id, instance_id, self.now(),
                transactional=transactional,
            )  # fmt: skip
        if group is None:
            then(dict.fromkeys(commits, error))
            return
        kept = {tp: c for tp, c in commits.items() if len(c.metadata) <= self._metadata_max}
        results = dict.fromkeys(commits, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        if not kept:
            then(results)
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

        def written(failure: ErrorCode, at: int) -> None:
            if at < 0 or failure in _IN_THE_LOG:
                settled(failure, at)
            results.update(dict.fromkeys(kept, _COMMIT_ERRORS.get(failure, failure)))
            then(results)

        def settled(failure: ErrorCode, at: int) -> None:
            self._commit_settled(group, kept, failure, at, producer)

        self.log.append(
            self.log.partition_for(group_id),
            records,
            written,
            producer=producer,
            guard=guard,
            settled=settled,
        )

    @staticmethod
    def as_commit_error(failure: ErrorCode) -> ErrorCode:
        """Return what a client is told of offsets that could not be written."""
        return _COMMIT_ERRORS.get(failure, failure)

    def _commit_settled(
        self,
        group: Group,
        commits: Mapping[TopicPartition, Commit],
        failure: ErrorCode,
        at: int,
        producer: Producer,
    ) -> None:
        if group.state is GroupState.DEAD:
            return  # the next coordinator reads it from the log
        offsets, producer_id = group.offsets, producer.producer_id
        if failure in _IN_THE_LOG:
            self._commits += len(commits)
            if producer.transactional:
                offsets.appended_in_transaction(producer_id, commits, at)
            else:
                offsets.appended(commits, at)
        elif producer.transactional:
            offsets.failed_in_transaction(producer_id, commits)
            if producer_id not in offsets.in_transactions:
                self._forget_producer(producer_id, group.group_id)
        else:
            offsets.failed(commits)

    def complete_transaction(
        self, producer_id: int, indexes: Iterable[int], *, committed: bool
    ) -> None:
        """Show a transaction's offsets, or drop them: its marker is in these partitions."""
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
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """Return the offsets of the partitions named, of all that have one if None are."""
        error = self.standing(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error, []
        group = self.groups.groups.get(group_id)
        if group is None:
            return ErrorCode.NONE, [FetchedOffset(tp, None) for tp in partitions or ()]
        offsets = group.offsets
        found = []
        for tp in offsets.committed if partitions is None else partitions:
            if require_stable and offsets.unstable(tp):
                found.append(FetchedOffset(tp, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                found.append(FetchedOffset(tp, offsets.get(tp)))
        return ErrorCode.NONE, found

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        """Forget offsets of partitions that no member reads (KIP-496)."""
        error = self.standing(group_id)
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
            if group.state is not GroupState.EMPTY and group.may_be_subscribed(tp.topic)
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
    ) -> tuple[ErrorCode, list[GroupOverview]]:
        """Return the groups here; filters are names in any case, empty ones let all through."""
        if self._closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        wanted = {state.lower() for state in states}
        kinds = {kind.lower() for kind in types}
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.log.loading else ErrorCode.NONE
        if kinds and CLASSIC not in kinds:
            return error, []
        return error, [
            GroupOverview(g.group_id, g.protocol_type or "", g.state.value)
            for g in self.groups.groups.values()
            if (not wanted or g.state.value.lower() in wanted) and self._ours(g)
        ]

    def _ours(self, group: Group) -> bool:
        """Tell whether a group is here for good, not about to be forgotten."""
        if not self.log.unloading:
            return True
        return self.standing(group.group_id, may_be_empty=True) is ErrorCode.NONE

    def describe(self, group_id: str) -> GroupDescription:
        error = self.standing(group_id, may_be_empty=True)
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
        """Forget an empty group and all its offsets."""
        error = self.standing(group_id, may_be_empty=True)
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
        self.groups.remove(group, self.now())
        self._write_tombstones(group, removed)
        logger.info("group deleted group=%s offsets=%d", group_id, len(removed))
        return ErrorCode.NONE

    # --- cleaning ---------------------------------------------------------------------------------

    def partitions_deleted(self, deleted: Iterable[TopicPartition]) -> None:
        """Hear of partitions that are gone: offsets in them mean nothing any more."""
        self._deleted.extend(deleted)
        if self._deleted:
            self._wake_cleaner.set()

    async def _clean(self) -> None:
        """Expire offsets now and then, and drop those of deleted topics. A loop root."""
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
            gone = group.expired_offsets(self._ages.now_ms(), self._retention_ms)
            if deleted:
                gone += deleted
            else:
                self._expired += len(gone)
            self._remove_offsets(group, gone)

    def _remove_offsets(self, group: Group, partitions: Iterable[TopicPartition]) -> None:
        """Forget offsets, and the group too if nothing of it is left."""
        removed = group.offsets.remove(partitions)
        empty = group.state is GroupState.EMPTY and not group.pending_members
        if empty and not group.offsets.any:
            self.groups.remove(group, self.now())
            logger.info("group forgotten group=%s generation=%d", group.group_id, group.generation)
        self._write_tombstones(group, removed)

    def _write_tombstones(self, group: Group, removed: Iterable[TopicPartition]) -> None:
        timestamp = self._clock.wall_ms()
        group_id = group.group_id
        records = [Record(timestamp=timestamp, key=offset_key(group_id, tp)) for tp in removed]
        if group.state is GroupState.DEAD and group.generation > 0:
            records.append(Record(timestamp=timestamp, key=group_key(group_id)))
        if not records:
            return

        def written(error: ErrorCode, _at: int) -> None:
            if error is not ErrorCode.NONE:
                logger.warning("tombstones not written group=%s error=%s", group_id, error.name)

        # Nobody waits: should they be lost, the next coordinator cleans up once more.
        self.log.append(self.log.partition_for(group_id), records, written, acks=0)

    def statistics(self) -> dict[str, object]:
        states = dict.fromkeys((s.value for s in GroupState if s is not GroupState.DEAD), 0)
        for group in self.groups.groups.values():
            states[group.state.value] += 1
        return {
            "groups": len(self.groups.groups),
            "states": states,
            "offsets": sum(len(g.offsets) for g in self.groups.groups.values()),
            "timers": len(self.groups.timers),
            "commits_total": self._commits,
            "expired_total": self._expired,
            "log": self.log.statistics(),
        }
