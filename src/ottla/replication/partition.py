"""One partition's replica on this broker: leader or follower, its epochs, its ISR, who waits on it.

Who may call: `replica_manager`, `fetching`, `producing`, `fetcher`. Everything here is synchronous:
an append, the high-watermark move it causes and the marks on what waits are one step.

Invariants:
- `leader_epoch` never goes back; `epoch_start` is set exactly while this broker leads
- only a leader has followers; what is known of them belongs to the current epoch (R4)
- one ISR change in flight at a time; until it is settled the maximal ISR rules (R6, R7)
- whoever waits is either watched here or dirty in its session; every change of leadership, and
  the end of the partition, releases all

Why a leader that lost its ZooKeeper session may go on serving (faults F6, F7, F14): its high
watermark moves only when every member of its maximal ISR has fetched in its epoch. The controller
elects only from the ISR in ZooKeeper, which is a subset of ours, because we alone propose
additions. So whatever a deposed leader still acknowledges with acks=all is in the log of any clean
successor; and once the successor's epoch is out, followers fetch elsewhere and our watermark stands
still. While fenced, it proposes no ISR change (`Host.may_propose`).

Kafka: `Partition`.
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from ottla.log.log import AppendInfo, Log
from ottla.log.producers import TRUSTED
from ottla.log.validate import Header
from ottla.model.cluster import LeaderAndIsr, LeadershipUpdate
from ottla.model.errors import (
    ErrorCode,
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderError,
    UnknownLeaderEpochError,
)
from ottla.model.ids import NO_EPOCH, NO_LEADER, ZERO_UUID, TopicPartition
from ottla.replication import isr as rules
from ottla.replication.fetch_session import FetchEntry
from ottla.replication.isr import AfterRejection, Follower, IsrState
from ottla.wire.record_check import UNLIMITED, Effort

logger = logging.getLogger(__name__)

SWEEP_FROM = 256
"""From so many waiting produces on, those that nobody waits for any more are let go."""

INELIGIBLE_PAUSE_MS = 500
"""After the controller called a replica ineligible, it is not proposed again for this long."""


class Waiter(Protocol):
    """A produce that waits for the high watermark to reach `required_offset`."""

    required_offset: int
    open: bool

    def reached(self, partition: "Partition") -> None:
        """Hear that the high watermark is there."""
        ...

    def lost(self, code: ErrorCode) -> None:
        """Hear that it will not get there under this leader."""
        ...


class Host(Protocol):
    """What a partition asks of the broker around it."""

    broker_id: int
    lag_ms: float
    may_propose: bool

    def now_ms(self) -> float: ...

    def may_join(self, broker_id: int) -> bool:
        """Tell whether a broker is alive, so that it may join an ISR (R9)."""
        ...

    def propose(self, partition: "Partition", state: IsrState, change: LeaderAndIsr) -> None:
        """Carry an ISR change to the controller; answers with `alter_accepted`/`_rejected`."""
        ...


class Partition:
    """A replica of one partition."""

    def __init__(self, tp: TopicPartition, host: Host) -> None:
        self.tp = tp
        self.host = host
        self.topic_id = ZERO_UUID
        self.log: Log | None = None
        self.future: Log | None = None
        """the copy in another log dir that is to take the log's place (`log_dir_moves`)"""
        self.leader = NO_LEADER
        self.is_leader = False
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = 0
        self.controller_epoch = 0
        self.epoch_start: int | None = None
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        self.isr = IsrState.of(())
        self.followers: dict[int, Follower] = {}
        self.isr_changes_total = 0
        self.isr_rejections_total = 0
        self.produce_templates: dict[int, tuple[bytes, bytes]] = {}
        self._at_end: dict[FetchEntry, None] = {}
        self._at_watermark: dict[FetchEntry, None] = {}
        self._waiters: deque[Waiter] = deque()
        self._sweep_at = SWEEP_FROM

    # --- leadership -----------------------------------------------------------------------------

    def make_leader(self, update: LeadershipUpdate, log: Log) -> bool:
        """Lead from now on in the update's epoch; True if this broker did not lead before."""
        state = update.leader_and_isr
        if state.partition_epoch < self.partition_epoch:
            logger.info(
                "become leader skipped partition=%s partition_epoch=%d ours=%d",
                self.tp, state.partition_epoch, self.partition_epoch,
            )  # fmt: skip
            return False
        now_ms = self.host.now_ms()
        was_leader = self.is_leader
        self._take_assignment(update, log)
        self.isr = IsrState.of(state.isr)
        for replica in self.replicas:
            if replica != self.host.broker_id and replica not in self.followers:
                self.followers[replica] = Follower(replica)
        for gone in [r for r in self.followers if r not in self.replicas]:
            del self.followers[gone]
        if state.leader_epoch > self.leader_epoch or not was_leader:
            start = log.log_end_offset
            # Also an epoch without a record must be answerable, else a follower that comes from a
            # later epoch than our last record could not find where to cut.
            log.assign_epoch_start(state.leader_epoch, start)
            for follower in self.followers.values():
                follower.forget(in_isr=follower.broker_id in state.isr, now_ms=now_ms)
            self.leader_epoch = state.leader_epoch
            self.epoch_start = start
        self.leader = self.host.broker_id
        self.is_leader = True
        logger.debug(
            "leader partition=%s epoch=%d start=%s hw=%d isr=%s replicas=%s",
            self.tp, self.leader_epoch, self.epoch_start, log.high_watermark,
            self.isr.committed, self.replicas,
        )  # fmt: skip
        self._release_fetches()
        self.raise_high_watermark(now_ms)
        return not was_leader

    def await_leadership(self, update: LeadershipUpdate, log: Log) -> None:
        """Take note of an epoch that this broker will lead, but not yet (`tail_recovery`)."""
        self.is_leader = False
        self.leader = self.host.broker_id
        self.leader_epoch = update.leader_and_isr.leader_epoch
        self.epoch_start = None
        self.followers.clear()
        self.isr = IsrState.of(())
        self._take_assignment(update, log)
        self._release_fetches()
        self._release_produces(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def make_follower(self, update: LeadershipUpdate, log: Log) -> bool:
        """Follow from now on; True if the epoch is new, so that the fetcher must start over."""
        state = update.leader_and_isr
        if state.partition_epoch < self.partition_epoch:
            logger.info(
                "become follower skipped partition=%s partition_epoch=%d ours=%d",
                self.tp, state.partition_epoch, self.partition_epoch,
            )  # fmt: skip
            return False
        new_epoch = state.leader_epoch > self.leader_epoch
        self.is_leader = False
        self.leader = state.leader
        self.leader_epoch = max(self.leader_epoch, state.leader_epoch)
        self.epoch_start = None
        self.followers.clear()
        self.isr = IsrState.of(())
        self._take_assignment(update, log)
        logger.debug(
            "follower partition=%s leader=%d epoch=%d end=%d hw=%d",
            self.tp, self.leader, self.leader_epoch, log.log_end_offset, log.high_watermark,
        )  # fmt: skip
        self._release_fetches()
        self._release_produces(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return new_epoch

    def _take_assignment(self, update: LeadershipUpdate, log: Log) -> None:
        self.controller_epoch = update.controller_epoch
        self.partition_epoch = update.leader_and_isr.partition_epoch
        self.replicas = update.assignment.replicas
        self.adding = update.assignment.adding
        self.removing = update.assignment.removing
        self.log = log
        if update.topic_id != ZERO_UUID:
            self.topic_id = update.topic_id

    def stop(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Forget log and leadership: deleted, or its log directory failed."""
        self.log = None
        self.future = None
        self.is_leader = False
        self.leader = NO_LEADER
        self.epoch_start = None
        self.followers.clear()
        self.isr = IsrState.of(())
        self._release_fetches()
        self._release_produces(code)

    def replace_log(self, log: Log) -> None:
        """Go on with a log of the same records in another log dir: nobody who waits need know."""
        self.log = log
        self.future = None

    def release_waiting(self) -> None:
        """Have everything that waits looked at again: the controller stops this replica."""
        self._release_fetches()
        if not self.is_leader:
            self._release_produces(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # --- checks ---------------------------------------------------------------------------------

    def check_epoch(self, epoch: int) -> None:
        """Compare a request's leader epoch (-1: none) with ours (R3)."""
        if epoch not in (NO_EPOCH, self.leader_epoch):
            facts = f"{self.tp}: epoch {epoch}, ours is {self.leader_epoch}"
            if epoch < self.leader_epoch:
                raise FencedLeaderEpochError(facts)
            raise UnknownLeaderEpochError(facts)

    def local_log(self, epoch: int = NO_EPOCH, *, leader_only: bool) -> Log:
        """Return the log for a reader that expects leader epoch `epoch`."""
        self.check_epoch(epoch)
        log = self.log
        # About to lead (`await_leadership`) is neither: a consumer that is right to ask here must
        # not be told that its offset does not exist, just because it is not back yet.
        neither = self.leader == self.host.broker_id
        if log is None or (not self.is_leader and (leader_only or neither)):
            raise NotLeaderError(f"{self.tp} is not led by broker {self.host.broker_id}")
        return log

    def follower(self, broker_id: int, epoch: int) -> Follower:
        """Return what we know of a follower that fetches."""
        found = self.followers.get(broker_id)
        if found is None:
            facts = f"broker {broker_id} is no replica of {self.tp} in epoch {self.leader_epoch}"
            # With an epoch in hand the follower knows of an assignment that we do not know yet.
            raise NotLeaderError(facts) if epoch == NO_EPOCH else UnknownLeaderEpochError(facts)
        return found

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, capped at the number of replicas."""
        assert self.log is not None
        return min(self.log.config.min_insync_replicas, len(self.followers) + 1)

    @property
    def under_min_isr(self) -> bool:
        return len(self.isr.committed) < self.min_isr

    # --- the leader's data path -----------------------------------------------------------------

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
        log = self.log
        if log is None or not self.is_leader:
            raise NotLeaderError(f"{self.tp} is not led by broker {self.host.broker_id}")
        if acks == -1 and len(self.isr.committed) < self.min_isr:
            raise NotEnoughReplicasError(
                f"{self.tp}: ISR {self.isr.committed} is below min.insync.replicas {self.min_isr}"
            )
        end = log.log_end_offset
        info = log.append_as_leader(
            records,
            self.leader_epoch,
            wall_ms,
            origin=origin,
            guard=guard,
            effort=effort,
            checked=checked,
        )
        if log.log_end_offset != end:
            if self._at_end:
                self._wake_followers(end)
            if len(self.isr.maximal) == 1:
                # With another member the watermark moves when that one fetches, never now.
                self.raise_high_watermark(self.host.now_ms())
        return info

    def observe_fetch(
        self, follower: Follower, entry: FetchEntry, now_ms: float, broker_epoch: int
    ) -> None:
        """Note how far a follower is; it may join the ISR, and the high watermark may move."""
        log = self.log
        assert log is not None
        if broker_epoch != follower.broker_epoch:
            self._check_life(follower, now_ms, broker_epoch)
        moved = follower.observe(
            entry.fetch_offset, entry.log_start_offset, now_ms, log.log_end_offset, broker_epoch
        )
        if follower.broker_id not in self.isr.maximal:
            self._maybe_expand(follower, log, now_ms)
        if moved:
            self.raise_high_watermark(now_ms)

    def _check_life(self, follower: Follower, now_ms: float, broker_epoch: int) -> None:
        """Refuse a fetch of an earlier life; what an earlier life had says nothing of a later one.

        A broker that lost power has less than it once fetched (R8, F11).
        """
        if follower.is_stale(broker_epoch):
            raise NotLeaderError(
                f"{self.tp}: fetch of broker {follower.broker_id} from an earlier incarnation"
            )
        if follower.registered_again(broker_epoch):
            follower.forget(in_isr=follower.broker_id in self.isr.committed, now_ms=now_ms)

    def raise_high_watermark(self, now_ms: float) -> None:
        """Move the high watermark as far as R4, R7 and R13 allow."""
        log = self.log
        assert log is not None
        if self.under_min_isr:
            return
        target = rules.high_watermark(
            log.log_end_offset,
            self.followers.values(),
            self.isr.maximal,
            now_ms,
            self.host.lag_ms,
            self.host.may_join,
        )
        self._set_high_watermark(log, target)

    def _set_high_watermark(self, log: Log, target: int) -> None:
        if target <= log.high_watermark:
            return
        log.set_high_watermark(target)
        waiters = self._waiters
        while waiters and waiters[0].required_offset <= target:
            waiters.popleft().reached(self)
        self.wake_consumers()
        for entry in self._at_end:
            # Followers hear of it with the next answer; it is no reason to answer (as in Kafka).
            entry.session.dirty[entry] = None

    def low_watermark(self) -> int:
        """Return the lowest log start among the live replicas (DeleteRecords waits for it).

        A copy on its way to another log dir counts: else a restart could bring records back.
        """
        assert self.log is not None
        lowest = self.log.log_start_offset
        if self.future is not None:
            lowest = min(lowest, self.future.log_start_offset)
        for follower in self.followers.values():
            if follower.log_start_offset < lowest and self.host.may_join(follower.broker_id):
                lowest = follower.log_start_offset
        return lowest

    def delete_records_before(self, offset: int) -> None:
        """Let the log begin at `offset`; followers hear of it with their next answer."""
        assert self.log is not None
        if self.log.maybe_increment_log_start_offset(offset):
            for entry in self._at_end:
                entry.session.dirty[entry] = None

    # --- who waits ------------------------------------------------------------------------------

    def await_high_watermark(self, waiter: Waiter) -> None:
        """Keep a produce until the high watermark reaches its offset, or its time is over."""
        waiters = self._waiters
        offset = waiter.required_offset
        if waiters and offset < waiters[-1].required_offset:
            # A batch sent once more: it lies below what others wait for.
            waiters.insert(bisect_right(waiters, offset, key=lambda w: w.required_offset), waiter)
        else:
            waiters.append(waiter)
        if len(waiters) > self._sweep_at:
            self._waiters = deque(w for w in waiters if w.open)
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
            if self._at_end.pop(entry, entry) is None:
                self._settle(entry)
        else:
            self._at_watermark.pop(entry, None)

    def _settle(self, entry: FetchEntry) -> None:
        """Credit a follower with the fetches in which its session had nothing to say about us."""
        log = self.log
        for follower in self.followers.values():
            if follower.broker_id == entry.session.replica_id:
                if log is not None and follower.log_end_offset == log.log_end_offset:
                    follower.stayed_caught_up(entry.session.last_used_ms, log.log_end_offset)
                return

    def _wake_followers(self, end_before: int) -> None:
        entries, self._at_end = self._at_end, {}
        followers = self.followers
        for entry in entries:
            session = entry.session
            follower = followers.get(session.replica_id)
            if follower is not None and follower.log_end_offset == end_before:
                follower.stayed_caught_up(session.last_used_ms, end_before)
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

    def _release_fetches(self) -> None:
        entries, self._at_end = self._at_end, {}
        for entry in entries:
            entry.source = None
            entry.session.dirty[entry] = None
            if entry.session.waiting is not None:
                entry.session.waiting.reconsider()
        self.wake_consumers()

    def _release_produces(self, code: ErrorCode) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            waiter.lost(code)

    # --- the ISR --------------------------------------------------------------------------------

    def _maybe_expand(self, follower: Follower, log: Log, now_ms: float) -> None:
        assert self.epoch_start is not None
        if (
            rules.may_join(follower, self.isr, log.high_watermark, self.epoch_start)
            and self.host.may_propose
            and now_ms >= follower.not_before_ms
            and self.host.may_join(follower.broker_id)
        ):
            logger.debug(
                "expand isr partition=%s isr=%s adding=%d end=%d hw=%d epoch_start=%d",
                self.tp, self.isr.committed, follower.broker_id, follower.log_end_offset,
                log.high_watermark, self.epoch_start,
            )  # fmt: skip
            self._propose(self.isr.expand(follower.broker_id))

    def maybe_shrink(self, now_ms: float) -> None:
        """Propose to drop members that lag for too long; called every half lag period."""
        log = self.log
        if log is None or not self.is_leader or not self.host.may_propose:
            return
        late = rules.out_of_sync(
            self.isr, self.host.broker_id, self.followers,
            log.log_end_offset, now_ms, self.host.lag_ms,
        )  # fmt: skip
        if late:
            logger.info(
                "shrink isr partition=%s isr=%s dropping=%s hw=%d end=%d followers=%s",
                self.tp, self.isr.committed, late, log.high_watermark, log.log_end_offset,
                [self.followers[r] for r in late if r in self.followers],
            )  # fmt: skip
            self._propose(self.isr.shrink(late))

    def _propose(self, state: IsrState) -> None:
        self.isr = state
        assert state.proposed is not None
        self.host.propose(self, state, self.proposal(state.proposed))

    def lives_of(self, members: Sequence[int], ours: int) -> tuple[tuple[int, int], ...]:
        """Return members with the broker epochs of the lives we know them in (KIP-903).

        Our own is `ours`. -1 stands for a follower whose fetches carry none, or that has not
        fetched yet: then only the controller can tell whether it is the one we mean.
        """
        known = self.followers
        return tuple(
            (m, ours if m == self.host.broker_id else known[m].broker_epoch if m in known else -1)
            for m in members
        )

    def proposal(self, members: Sequence[int]) -> LeaderAndIsr:
        """Return the state that an ISR change asks the controller to write."""
        return LeaderAndIsr(
            leader=self.host.broker_id,
            leader_epoch=self.leader_epoch,
            isr=tuple(members),
            partition_epoch=self.partition_epoch,
        )

    def alter_accepted(self, state: IsrState, change: LeaderAndIsr) -> None:
        """Take over `change`, which the controller wrote in answer to the proposal `state`."""
        if self.isr is not state:
            return  # leadership moved on meanwhile; whatever was written comes with LeaderAndIsr
        if (
            change.leader_epoch != self.leader_epoch
            or change.partition_epoch < self.partition_epoch
        ):
            self.isr_rejections_total += 1
            return
        self.isr = IsrState.of(change.isr)
        self.partition_epoch = change.partition_epoch
        self.isr_changes_total += 1
        logger.debug(
            "isr partition=%s isr=%s partition_epoch=%d",
            self.tp, self.isr.committed, self.partition_epoch,
        )  # fmt: skip
        self._isr_settled()

    def alter_rejected(self, state: IsrState, code: ErrorCode) -> bool:
        """Take a proposal as not written; True if it is to be sent again."""
        if self.isr is not state:
            return False
        self.isr_rejections_total += 1
        verdict = rules.after_rejection(code)
        logger.debug(
            "isr change rejected partition=%s error=%s then=%s", self.tp, code.name, verdict.name
        )
        if verdict is AfterRejection.BACK:
            self.isr = state.back()
            not_before_ms = self.host.now_ms() + INELIGIBLE_PAUSE_MS
            for replica in state.proposed or ():
                if replica not in state.committed and replica in self.followers:
                    self.followers[replica].not_before_ms = not_before_ms
            self._isr_settled()
        return verdict is AfterRejection.RETRY

    def _isr_settled(self) -> None:
        # A follower that is out of the ISR must be looked at with every fetch, so that it can join.
        for entry in self._at_end:
            entry.session.dirty[entry] = None
        if self.is_leader:
            self.raise_high_watermark(self.host.now_ms())

    # --- the follower's data path ---------------------------------------------------------------

    def append_as_follower(self, records: memoryview) -> AppendInfo:
        """Append what the leader sent."""
        return self.local_log(leader_only=False).append_as_follower(records)

    def adopt(self, leader_high_watermark: int, leader_log_start: int) -> None:
        """Take over the leader's high watermark and log start, after the append (R11).

        A leader elected a moment ago may know a lower one than we do. Ours stays: what was
        committed is committed, and a consumer that reads here never sees it go back.
        """
        log = self.local_log(leader_only=False)
        target = min(leader_high_watermark, log.log_end_offset)
        if target > log.high_watermark:
            log.set_high_watermark(target)
            self.wake_consumers()
        if leader_log_start > log.log_start_offset:
            log.maybe_increment_log_start_offset(leader_log_start)

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader}"
        return f"Partition({self.tp} {role} epoch={self.leader_epoch} isr={self.isr.committed})"
