"""One partition's replica on this broker: its log, its state, and who waits for it.

The shell of `partition_state`, and its port: it reads the clock, does what was decided, and keeps
what waits. Everything here is synchronous: an append, the high-watermark move it causes and the
marks on what waits are one step.

Invariants:
- nothing else runs before all that a transition means is done
- each waiting fetch is either watched here or dirty in its session; every change of leadership, and
  the end of the partition, releases all

Why a leader that lost its ZooKeeper session may go on serving (faults F6, F7, F14): its high
watermark moves only when every member of its maximal ISR has fetched in its epoch. The controller
elects only from the ISR in ZooKeeper, which is a subset of ours, because we alone propose
additions. So whatever a fenced leader still acknowledges with acks=all is in the log of any clean
successor; and once the successor's epoch is out, followers fetch elsewhere and our watermark stands
still. While fenced, it proposes no ISR change (`Host.may_propose`).

Kafka: `Partition`.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Container
from typing import Protocol

from ottla.log.log import AppendInfo, Log
from ottla.log.producers import TRUSTED
from ottla.log.results import NotInMemoryError
from ottla.model.cluster import Endpoint, LeaderAndIsr, LeadershipUpdate
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_EPOCH, TopicPartition
from ottla.replication.fetch_session import FetchEntry
from ottla.replication.isr import Follower, IsrState
from ottla.replication.partition_state import HostedPartitionState, IsrChange
from ottla.replication.purgatory import Purgatory
from ottla.replication.throttle import ReplicationQuota
from ottla.replication.topic_counts import TopicCounts
from ottla.wire.batch_header import Header
from ottla.wire.record_check import UNLIMITED, Effort

SWEEP_FROM = 256
"""From so many waiters on, those that are done are removed."""


class Waiter(Protocol):
    """What waits for the high watermarks of one or more partitions; no more once it is `done`."""

    done: bool

    def partition_done(self, slot: int, code: ErrorCode) -> None:
        """Take note of how the wait for the partition given as `slot` ended.

        NONE or NOT_ENOUGH_REPLICAS_AFTER_APPEND if the high watermark is there, else why it will
        not get there under this leader.
        """
        ...


class Host(Protocol):
    """The replica manager, as its parts see it."""

    broker_id: int
    lag_ms: float
    """replica.lag.time.max.ms"""
    may_propose: bool
    """False without a ZooKeeper session"""
    partitions: dict[TopicPartition, "Partition"]
    offline: dict[TopicPartition, None]
    purgatory: Purgatory
    leader_quota: ReplicationQuota
    follower_quota: ReplicationQuota

    @property
    def alive(self) -> Container[int]:
        """The ids of the brokers that the cluster takes for alive."""
        ...

    @property
    def broker_epoch(self) -> int: ...

    def now_ms(self) -> float: ...

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Return the endpoint of a live broker's inter-broker listener; None if unknown."""
        ...

    def exists(self, topic: str, index: int) -> bool:
        """Return whether the cluster has such a partition, as far as this broker knows."""
        ...

    def hosted(self, topic: str, index: int) -> "Partition":
        """Return a partition on this broker, or raise what its absence means."""
        ...

    def leaves(self, topic: str, index: int) -> bool:
        """Return whether a damaged partition will soon be served by another replica."""
        ...

    def is_unclean(self, tp: TopicPartition) -> bool:
        """Return whether a log may have lost its tail, and was not shown to be complete since."""
        ...

    def in_sync(self, tp: TopicPartition) -> None:
        """Note that a log holds every acknowledged record (R18)."""
        ...

    def read_from_disk(self, places: list[NotInMemoryError], then: Callable[[], None]) -> None:
        """Have a worker read these, then call `then`."""
        ...

    def submit_isr_change(self, partition: "Partition", change: IsrChange) -> None:
        """Have the controller asked; ends in `isr_change_accepted` or `isr_change_rejected`."""
        ...

    def prove_isr(self, partition: "Partition") -> None:
        """Have records of eligible replicas voided; ends in `isr_proven`."""
        ...

    async def make_truncations_durable(self) -> None:
        """Wait until the truncations so far are durable; only then may records be appended."""
        ...


class Partition:
    """A replica of one partition."""

    def __init__(self, tp: TopicPartition, host: Host) -> None:
        self.tp = tp
        self.host = host
        self.state = HostedPartitionState(tp, host.broker_id, host.lag_ms, self)
        self.counts = TopicCounts()
        """of its topic, on this broker; the replica manager has one for all partitions of it"""
        self.log: Log | None = None
        self.future: Log | None = None
        """the copy in another log dir that is to take the log's place (`log_dir_moves`)"""
        self.stopped = False
        """whether the controller had it stop following, and named it in no LeaderAndIsr since"""
        self._at_end: dict[FetchEntry, None] = {}
        self._at_watermark: dict[FetchEntry, None] = {}
        self._waiters: deque[tuple[int, Waiter, int]] = deque()
        self._sweep_at = SWEEP_FROM

    # --- what others read of the state ----------------------------------------------------------

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, capped at the number of replicas."""
        assert self.log is not None
        return self.state.min_isr(self.log.config.min_insync_replicas)

    @property
    def under_min_isr(self) -> bool:
        assert self.log is not None
        return self.state.is_under_min_isr(self.log.config.min_insync_replicas)

    def follower(self, broker_id: int, epoch: int) -> Follower:
        """Return what is known of a follower that fetches with leader epoch `epoch`."""
        return self.state.follower(broker_id, epoch)

    # --- leadership -----------------------------------------------------------------------------

    def make_leader(self, update: LeadershipUpdate, log: Log) -> bool:
        """Lead from now on; True if this broker did not lead before."""
        state, host = self.state, self.host
        if state.outdates(update, "leader"):
            return False
        was_leader = state.is_leader
        self.log = log
        state.become_leader(update, log, host.now_ms(), host.alive)
        return not was_leader

    def await_leadership(self, update: LeadershipUpdate, log: Log) -> None:
        """Take note of an epoch that this broker will lead, but not yet (`tail_recovery`)."""
        self.log = log
        self.state.await_leadership(update)

    def make_follower(self, update: LeadershipUpdate, log: Log) -> bool:
        """Follow from now on; True if the epoch is new, so that the fetcher must start over."""
        state = self.state
        if state.outdates(update, "follower"):
            return False
        is_new = update.leader_epoch > state.leader_epoch
        self.log = log
        state.become_follower(update)
        return is_new

    def stop(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Forget log and leadership: deleted, or its log directory failed."""
        self.log = None
        self.future = None
        self.state.stop(code)

    def release_waiting(self) -> None:
        """Have everything that waits tried again: the controller stops this replica."""
        self.state.release_waiting()

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Take an id that the controller names for a topic that had none, also into the log."""
        if self.log is not None:
            self.log.assign_topic_id(topic_id)
        self.state.topic_id = topic_id

    def replace_log(self, log: Log) -> None:
        """Go on with a log of the same records in another log dir; who waits need not know."""
        self.log = log
        self.future = None

    # --- the port of the state ------------------------------------------------------------------

    def start_epoch(self, epoch: int, offset: int) -> None:
        assert self.log is not None
        self.log.assign_epoch_start(epoch, offset)

    def advance_log_start(self, offset: int) -> None:
        assert self.log is not None
        self.log.maybe_increment_log_start_offset(offset)

    def propose_isr(self, change: IsrChange) -> None:
        self.host.submit_isr_change(self, change)

    def prove_isr(self) -> None:
        self.host.prove_isr(self)

    def advance_high_watermark(self, offset: int) -> None:
        log = self.log
        assert log is not None
        log.set_high_watermark(offset)
        waiters = self._waiters
        if waiters and waiters[0][0] <= offset:
            code = self.state.code_when_replicated(log.config.min_insync_replicas)
            while waiters and waiters[0][0] <= offset:
                _, waiter, slot = waiters.popleft()
                waiter.partition_done(slot, code)
        self.wake_consumers()
        # Followers get it with the next response; it completes no fetch (as in Kafka).
        self.notify_followers()

    # --- the leader's data path -----------------------------------------------------------------

    def local_log(self, epoch: int = NO_EPOCH, *, leader_only: bool) -> Log:
        """Return the log for a reader that expects leader epoch `epoch`."""
        state = self.state
        state.check_epoch(epoch)
        log = self.log
        if log is None:
            raise state.not_leader()
        state.check_readable(leader_only=leader_only)
        return log

    def append_as_leader(
        self,
        records: memoryview,
        acks: int,
        wall_ms: int,
        origin: str = "client",
        guard: object = TRUSTED,
        effort: Effort = UNLIMITED,
        checked: tuple[memoryview, Header] | None = None,
    ) -> AppendInfo:
        """Append what a client sent and let followers and the high watermark know.

        EffortExceededError, and nothing done, if checking the batch takes more than `effort`;
        `checked` is what came of checking it elsewhere.
        """
        log, state = self.log, self.state
        if log is None:
            raise state.not_leader()
        epoch = state.epoch_to_append(acks, log.config.min_insync_replicas)
        end = log.log_end_offset
        info = log.append_as_leader(
            records, epoch, wall_ms, origin=origin, guard=guard, effort=effort, checked=checked
        )
        counts = self.counts
        counts.produces += 1
        if log.log_end_offset != end:
            counts.messages_in += info.count
            counts.bytes_in += info.bytes
            if self._at_end:
                self._wake_followers(end)
            if not state.waits_for_followers:
                self.raise_high_watermark()
        return info

    def raise_high_watermark(self) -> None:
        """Move a leader's high watermark as far as the rules allow."""
        log, host = self.log, self.host
        assert log is not None
        self.state.raise_high_watermark(log, host.now_ms(), host.alive)

    def observe_fetch(
        self, follower: Follower, entry: FetchEntry, now_ms: float, broker_epoch: int
    ) -> None:
        """Note how far a follower is; it may join the ISR, and the high watermark may move."""
        log, host = self.log, self.host
        assert log is not None
        self.state.fetched(
            follower,
            (entry.fetch_offset, entry.log_start_offset),
            broker_epoch,
            log,
            now_ms,
            host.alive,
            may_propose=host.may_propose,
        )

    def low_watermark(self) -> int:
        """Return the lowest log start among the live replicas (DeleteRecords waits for it).

        A copy on its way to another log dir counts: else a restart could bring records back.
        """
        assert self.log is not None
        lowest = self.log.log_start_offset
        if self.future is not None:
            lowest = min(lowest, self.future.log_start_offset)
        return self.state.low_watermark(lowest, self.host.alive)

    def delete_records_before(self, offset: int) -> None:
        """Let the log begin at `offset`; followers get it with their next response."""
        assert self.log is not None
        if self.log.maybe_increment_log_start_offset(offset):
            self.notify_followers()

    # --- who waits ------------------------------------------------------------------------------

    def await_high_watermark(self, offset: int, waiter: Waiter, slot: int = 0) -> None:
        """Keep `waiter` until the high watermark reaches `offset`, or it is done otherwise."""
        waiters = self._waiters
        if waiters and offset < waiters[-1][0]:
            # A batch sent once more: it lies below what others wait for.
            at = bisect_right(waiters, offset, key=lambda w: w[0])
            waiters.insert(at, (offset, waiter, slot))
        else:
            waiters.append((offset, waiter, slot))
        if len(waiters) > self._sweep_at:
            self._waiters = deque(w for w in waiters if not w[1].done)
            self._sweep_at = max(SWEEP_FROM, 2 * len(self._waiters))

    def watch(self, entry: FetchEntry) -> None:
        """Mark `entry` dirty, and wake its parked fetch, at the next change that concerns it."""
        entry.source = self
        if entry.session.privileged:
            self._at_end[entry] = None
        else:
            self._at_watermark[entry] = None

    def unwatch(self, entry: FetchEntry) -> None:
        if entry.session.privileged:
            if self._at_end.pop(entry, entry) is None and self.log is not None:
                session = entry.session
                end = self.log.log_end_offset
                self.state.note_idle_fetches(session.replica_id, session.last_used_ms, end)
        else:
            self._at_watermark.pop(entry, None)

    def _wake_followers(self, end_before: int) -> None:
        """Wake fetches of followers that had all up to `end_before`: there is more now."""
        entries, self._at_end = self._at_end, {}
        for entry in entries:
            session = entry.session
            self.state.note_idle_fetches(session.replica_id, session.last_used_ms, end_before)
            entry.source = None
            session.dirty[entry] = None
            if session.waiting is not None:
                session.waiting.reconsider()

    def wake_consumers(self) -> None:
        """Wake fetches that wait for the high watermark or the last stable offset."""
        if not self._at_watermark:
            return
        entries, self._at_watermark = self._at_watermark, {}
        for entry in entries:
            session = entry.session
            entry.source = None
            session.dirty[entry] = None
            if session.waiting is not None:
                session.waiting.reconsider()

    def wake_fetches(self) -> None:
        entries, self._at_end = self._at_end, {}
        for entry in entries:
            entry.source = None
            entry.session.dirty[entry] = None
            if entry.session.waiting is not None:
                entry.session.waiting.reconsider()
        self.wake_consumers()

    def fail_produces(self, code: ErrorCode) -> None:
        waiters, self._waiters = self._waiters, deque()
        for _, waiter, slot in waiters:
            waiter.partition_done(slot, code)

    def notify_followers(self) -> None:
        """Have the next response to each follower that waits mention this partition."""
        for entry in self._at_end:
            entry.session.dirty[entry] = None

    # --- the ISR --------------------------------------------------------------------------------

    def maybe_shrink_isr(self) -> None:
        """Propose to drop members that lag for too long; called every half lag period."""
        log, host = self.log, self.host
        if log is not None and self.state.is_leader and host.may_propose:
            self.state.shrink_isr(log, host.now_ms())

    def isr_proven(self, partition_epoch: int) -> None:
        """Move the high watermark by the ISR of this epoch: none outside it may be elected."""
        state = self.state
        if state.is_leader and self.log is not None and state.partition_epoch == partition_epoch:
            state.proven_epoch = partition_epoch
            self.raise_high_watermark()

    def isr_change_accepted(self, proposal: IsrState, change: LeaderAndIsr) -> None:
        """Take over `change`, which the controller wrote in response to `proposal`."""
        log, host = self.log, self.host
        if log is not None:
            self.state.isr_change_accepted(proposal, change, log, host.now_ms(), host.alive)

    def isr_change_rejected(self, proposal: IsrState, code: ErrorCode) -> bool:
        """Take a proposal as not written; True if it is to be sent again."""
        log, host = self.log, self.host
        if log is None:
            return False
        return self.state.isr_change_rejected(proposal, code, log, host.now_ms(), host.alive)

    @property
    def acknowledged_below(self) -> int:
        """The offset from which on no record of the log was acknowledged with acks=all."""
        assert self.log is not None
        return self.state.acknowledged_below(self.log)

    # --- the follower's data path ---------------------------------------------------------------

    def append_as_follower(self, records: memoryview) -> AppendInfo:
        """Append what the leader sent."""
        info = self.local_log(leader_only=False).append_as_follower(records)
        self.counts.replication_bytes_in += len(records)
        return info

    def adopt(self, leader_high_watermark: int, leader_log_start: int) -> None:
        """Take over the leader's high watermark and log start, after the append (R11)."""
        log = self.local_log(leader_only=False)
        self.state.adopt(leader_high_watermark, leader_log_start, log)

    def __repr__(self) -> str:
        return f"Partition({self.state!r})"
