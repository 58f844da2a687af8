"""The state of one hosted partition: its leadership, its ISR, its followers. A decider.

Time is an argument, in milliseconds of the monotonic clock. `alive` holds the ids of the brokers
that the cluster takes for alive. The partition's log is an argument, too: what is read of it is in
`LogView`. What a transition means for the log, for those who wait and for the controller goes
through the port (`PartitionPort`, which is `Partition`), once the state here is complete.

Invariants, by the numbers of RELIABILITY.md:
- `leader_epoch` never goes back; `epoch_start` is set exactly while this broker leads (R1, R3)
- only a leader has followers; what is known of them belongs to the current epoch (R4)
- a follower joins the ISR by R5, and only if its broker is alive (R9)
- one ISR change in flight at a time; until it is settled the maximal ISR counts (R6, R7)
- a fetch of a former registration of a broker is refused; what a former registration had in its
  log says nothing of the next one (R8)
- a follower's high watermark comes from its leader, after the append, and never goes back (R11)
- nothing moves the high watermark while fewer than min.insync.replicas are in sync, nor without a
  replica that could be elected all the same: it left the ISR where the controller took
  min.insync.replicas for higher than it is here (R13)

Kafka: `Partition` and `PartitionState` (`CommittedPartitionState`, `PendingPartitionChange`).
"""

import logging
from collections.abc import Container
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ottla.model.cluster import LeaderAndIsr, LeadershipUpdate
from ottla.model.config import TopicConfig
from ottla.model.errors import (
    ErrorCode,
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderError,
    UnknownLeaderEpochError,
)
from ottla.model.ids import NO_EPOCH, NO_LEADER, ZERO_UUID, TopicPartition
from ottla.model.protocol import ACKS_ALL
from ottla.replication import isr as rules
from ottla.replication.isr import AfterRejection, Follower, IsrState

logger = logging.getLogger(__name__)

INELIGIBLE_PAUSE_MS = 500
"""After the controller called a replica ineligible, it is not proposed again for this long."""

NOBODY = IsrState.of(())


class IsrChange(NamedTuple):
    """A change of the ISR that the controller is asked to write; `proposal` is in flight then.

    `broker_epochs` pairs each proposed member with the broker epoch it is known in (KIP-903): -1 if
    that is not known, None for this broker.
    """

    proposal: IsrState
    wanted: LeaderAndIsr
    broker_epochs: tuple[tuple[int, int | None], ...]


class LogView(Protocol):
    """What the decisions read of the log and of its topic's settings. `Log` has it."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def config(self) -> TopicConfig: ...


class PartitionPort(Protocol):
    """What a decision acts through. `Partition` implements it."""

    def advance_high_watermark(self, offset: int) -> None:
        """Move the log's high watermark to `offset`, higher than it was."""
        ...

    def advance_log_start(self, offset: int) -> None:
        """Let the log start at `offset`, higher than it did; the leader's does (R11)."""
        ...

    def start_epoch(self, epoch: int, offset: int) -> None:
        """Note in the leader epoch cache that `epoch` starts at `offset`."""
        ...

    def propose_isr(self, change: IsrChange) -> None:
        """Ask the controller to write it (AlterPartition)."""
        ...

    def prove_isr(self) -> None:
        """Have it proven that no replica outside the ISR may be elected (`eligible_records`).

        Ends in `Partition.isr_proven`, or is asked for again.
        """
        ...

    def wake_fetches(self) -> None:
        """Try every fetch again that waits for this partition."""
        ...

    def notify_followers(self) -> None:
        """Mention this partition in the next response to each follower, also without records."""
        ...

    def fail_produces(self, code: ErrorCode) -> None:
        """Fail the produces that wait for the high watermark."""
        ...


@dataclass(slots=True, eq=False)
class HostedPartitionState:
    """Leadership, ISR and followers of one partition on this broker. Changed in place."""

    tp: TopicPartition
    broker_id: int
    lag_ms: float
    """replica.lag.time.max.ms"""
    port: PartitionPort
    topic_id: bytes = ZERO_UUID
    leader: int = NO_LEADER
    is_leader: bool = False
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = 0
    controller_epoch: int = 0
    proven_epoch: int = -1
    """the partition epoch in which no replica outside the ISR may be elected, by ZooKeeper"""
    epoch_start: int | None = None
    own_from: int | None = None
    """where the records begin that this process appended as the leader, if they end the log"""
    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    isr: IsrState = NOBODY
    followers: dict[int, Follower] = field(default_factory=dict)
    isr_changes_total: int = 0
    isr_rejections_total: int = 0

    # --- leadership -----------------------------------------------------------------------------

    def outdates(self, update: LeadershipUpdate, role: str) -> bool:
        """Return whether a state that the controller wrote later is known already; log it.

        `role` is what the update would make of this broker.
        """
        if update.partition_epoch >= self.partition_epoch:
            return False
        logger.info(
            "become %s skipped partition=%s partition_epoch=%d ours=%d",
            role,
            self.tp,
            update.partition_epoch,
            self.partition_epoch,
        )
        return True

    def become_leader(
        self, update: LeadershipUpdate, log: LogView, now_ms: float, alive: Container[int]
    ) -> None:
        """Lead from now on. The update is not outdated."""
        begins = update.leader_epoch > self.leader_epoch or not self.is_leader
        self._take_assignment(update)
        self.isr = IsrState.of(update.isr)
        for replica in self.replicas:
            if replica != self.broker_id and replica not in self.followers:
                self.followers[replica] = Follower(replica)
        for gone in [r for r in self.followers if r not in self.replicas]:
            del self.followers[gone]
        self.leader = self.broker_id
        self.is_leader = True
        if begins:
            end = log.log_end_offset
            for follower in self.followers.values():
                follower.forget(in_isr=follower.broker_id in update.isr, now_ms=now_ms)
            self.leader_epoch = update.leader_epoch
            self.epoch_start = end
            self.own_from = end if self.own_from is None else min(self.own_from, end)
            # Also an epoch without a record must be answerable, else a follower that comes from a
            # later epoch than our last record could not find where to cut.
            self.port.start_epoch(update.leader_epoch, end)
        self.port.wake_fetches()
        self.raise_high_watermark(log, now_ms, alive)

    def await_leadership(self, update: LeadershipUpdate) -> None:
        """Know the epoch that this broker will lead, but do not lead yet (R18, `tail_recovery`)."""
        self.leader_epoch = update.leader_epoch
        self._lead_no_more(self.broker_id)
        self._take_assignment(update)
        self._release(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def become_follower(self, update: LeadershipUpdate) -> None:
        """Follow from now on. The update is not outdated."""
        self.leader_epoch = max(self.leader_epoch, update.leader_epoch)
        self._lead_no_more(update.leader)
        self._take_assignment(update)
        self._release(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def stop(self, code: ErrorCode) -> None:
        """Neither lead nor follow: the replica is deleted, or its log dir failed."""
        self._lead_no_more(NO_LEADER)
        self._release(code)

    def release_waiting(self) -> None:
        """Have everything that waits tried again: the controller stops this replica."""
        if self.is_leader:
            self.port.wake_fetches()
        else:
            self._release(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _release(self, code: ErrorCode) -> None:
        self.port.wake_fetches()
        self.port.fail_produces(code)

    def _lead_no_more(self, leader: int) -> None:
        self.is_leader = False
        self.leader = leader
        self.epoch_start = None
        self.proven_epoch = -1
        self.followers.clear()
        self.isr = NOBODY

    def _take_assignment(self, update: LeadershipUpdate) -> None:
        self.controller_epoch = update.controller_epoch
        self.partition_epoch = update.partition_epoch
        if update.replicas != self.replicas:
            self.proven_epoch = -1
        self.replicas = update.replicas
        self.adding = update.adding
        self.removing = update.removing
        if update.topic_id != ZERO_UUID:
            self.topic_id = update.topic_id

    # --- checks ---------------------------------------------------------------------------------

    def check_epoch(self, epoch: int) -> None:
        """Compare a request's leader epoch (-1: none) with ours (R3)."""
        if epoch not in (NO_EPOCH, self.leader_epoch):
            facts = f"{self.tp}: epoch {epoch}, ours is {self.leader_epoch}"
            if epoch < self.leader_epoch:
                raise FencedLeaderEpochError(facts)
            raise UnknownLeaderEpochError(facts)

    def check_readable(self, *, leader_only: bool) -> None:
        """Raise unless this replica may serve a reader.

        A replica that is about to lead (`await_leadership`) is neither leader nor follower: it must
        not respond OFFSET_OUT_OF_RANGE to a consumer while its log is not recovered yet.
        """
        if not self.is_leader and (leader_only or self.leader == self.broker_id):
            raise self.not_leader()

    def not_leader(self) -> NotLeaderError:
        """Return the error for a request that needs the leader."""
        return NotLeaderError(f"{self.tp} is not led by broker {self.broker_id}")

    def follower(self, broker_id: int, epoch: int) -> Follower:
        """Return what is known of a follower that fetches with leader epoch `epoch`."""
        found = self.followers.get(broker_id)
        if found is None:
            facts = f"broker {broker_id} is no replica of {self.tp} in epoch {self.leader_epoch}"
            # With an epoch in hand the follower knows of an assignment that we do not know yet.
            raise NotLeaderError(facts) if epoch == NO_EPOCH else UnknownLeaderEpochError(facts)
        return found

    def min_isr(self, min_insync_replicas: int) -> int:
        """Return min.insync.replicas as it counts here (R13)."""
        return rules.effective_min_isr(min_insync_replicas, len(self.followers) + 1)

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        return len(self.isr.committed) < self.min_isr(min_insync_replicas)

    # --- the leader's data path -----------------------------------------------------------------

    def epoch_to_append(self, acks: int, min_insync_replicas: int) -> int:
        """Return the leader epoch to append a producer's batch with.

        NotLeaderError; NotEnoughReplicasError for acks=all below min.insync.replicas (R13).
        """
        if not self.is_leader:
            raise self.not_leader()
        if acks == ACKS_ALL and self.is_under_min_isr(min_insync_replicas):
            raise NotEnoughReplicasError(
                f"{self.tp}: ISR {self.isr.committed} is below "
                f"min.insync.replicas {self.min_isr(min_insync_replicas)}"
            )
        return self.leader_epoch

    @property
    def waits_for_followers(self) -> bool:
        """Whether an append alone cannot move the high watermark: another member must fetch."""
        return len(self.isr.maximal) != 1

    def raise_high_watermark(self, log: LogView, now_ms: float, alive: Container[int]) -> None:
        """Move a leader's high watermark as far as R4, R7 and R13 allow."""
        if self.is_under_min_isr(log.config.min_insync_replicas):
            return
        if self.proven_epoch != self.partition_epoch:
            members = self.isr.committed
            if not all(follower in members for follower in self.followers):
                self.port.prove_isr()
                return
            self.proven_epoch = self.partition_epoch
        offset = rules.high_watermark(
            log.log_end_offset,
            self.followers.values(),
            self.isr.maximal,
            now_ms,
            self.lag_ms,
            alive,
        )
        if offset > log.high_watermark:
            self.port.advance_high_watermark(offset)

    def code_when_replicated(self, min_insync_replicas: int) -> ErrorCode:
        """Return how a produce with acks=all ends whose offset the high watermark has reached.

        The records are there, but maybe not as safe as they were to be.
        """
        if self.min_isr(min_insync_replicas) <= len(self.isr.maximal):
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def fetched(
        self,
        follower: Follower,
        position: tuple[int, int],
        broker_epoch: int,
        log: LogView,
        now_ms: float,
        alive: Container[int],
        *,
        may_propose: bool,
    ) -> None:
        """Note a follower's fetch; it may join the ISR, and the high watermark may move.

        `position` is the fetch offset and the follower's log start offset, `broker_epoch` the one
        that the fetch carries, -1 for none. `may_propose` is False without a ZooKeeper session.
        NotLeaderError for a fetch of a former registration (R8).
        """
        if broker_epoch != follower.broker_epoch:
            self._check_registration(follower, now_ms, broker_epoch)
        moved = follower.observe(*position, now_ms, log.log_end_offset, broker_epoch)
        if may_propose and follower.broker_id not in self.isr.maximal:
            self._maybe_expand(follower, log.high_watermark, now_ms, alive)
        if moved:
            self.raise_high_watermark(log, now_ms, alive)

    def _check_registration(self, follower: Follower, now_ms: float, broker_epoch: int) -> None:
        """Refuse a former registration; a broker that lost power has less than it once fetched."""
        if follower.is_stale(broker_epoch):
            raise NotLeaderError(
                f"{self.tp}: fetch of broker {follower.broker_id} with an old broker epoch"
            )
        if follower.registered_again(broker_epoch):
            follower.forget(in_isr=follower.broker_id in self.isr.committed, now_ms=now_ms)

    def note_idle_fetches(self, replica_id: int, until_ms: float, end: int) -> None:
        """Count a follower as caught up until its last fetch, which had nothing new to say.

        `end` is the log end offset that it had fetched up to, if it had all.
        """
        follower = self.followers.get(replica_id)
        if follower is not None and follower.log_end_offset == end:
            follower.stayed_caught_up(until_ms, end)

    def low_watermark(self, log_start: int, alive: Container[int]) -> int:
        """Return the lowest log start offset among the live replicas (DeleteRecords)."""
        lowest = log_start
        for follower in self.followers.values():
            if follower.log_start_offset < lowest and follower.broker_id in alive:
                lowest = follower.log_start_offset
        return lowest

    # --- the ISR --------------------------------------------------------------------------------

    def _maybe_expand(
        self, follower: Follower, high_watermark: int, now_ms: float, alive: Container[int]
    ) -> None:
        """Propose a follower as a member, if it meets R5 and its broker is alive (R9)."""
        assert self.epoch_start is not None
        if not (
            rules.may_join(follower, self.isr, high_watermark, self.epoch_start)
            and now_ms >= follower.not_before_ms
            and follower.broker_id in alive
        ):
            return
        logger.debug(
            "expand isr partition=%s isr=%s adding=%d log_end_offset=%d high_watermark=%d "
            "epoch_start_offset=%d",
            self.tp,
            self.isr.committed,
            follower.broker_id,
            follower.log_end_offset,
            high_watermark,
            self.epoch_start,
        )
        self._propose(self.isr.expand(follower.broker_id))

    def shrink_isr(self, log: LogView, now_ms: float) -> None:
        """Propose to drop the members that have lagged for too long; called by a leader."""
        end = log.log_end_offset
        late = rules.out_of_sync(self.isr, self.broker_id, self.followers, end, now_ms, self.lag_ms)
        if not late:
            return
        logger.info(
            "shrink isr partition=%s isr=%s removing=%s high_watermark=%d log_end_offset=%d "
            "followers=%s",
            self.tp,
            self.isr.committed,
            late,
            log.high_watermark,
            end,
            [repr(self.followers[r]) for r in late if r in self.followers],
        )
        self._propose(self.isr.shrink(late))

    def _propose(self, proposal: IsrState) -> None:
        self.isr = proposal
        members = proposal.proposed
        assert members is not None
        known = self.followers
        wanted = LeaderAndIsr(
            leader=self.broker_id,
            leader_epoch=self.leader_epoch,
            isr=members,
            partition_epoch=self.partition_epoch,
        )
        epochs = tuple(
            (m, None if m == self.broker_id else known[m].broker_epoch if m in known else -1)
            for m in members
        )
        self.port.propose_isr(IsrChange(proposal, wanted, epochs))

    def isr_change_accepted(
        self,
        proposal: IsrState,
        change: LeaderAndIsr,
        log: LogView,
        now_ms: float,
        alive: Container[int],
    ) -> None:
        """Take over `change`, which the controller wrote in response to `proposal` (R6)."""
        if self.isr is not proposal:
            return  # a new epoch began meanwhile; LeaderAndIsr said what was written
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
            self.tp,
            self.isr.committed,
            self.partition_epoch,
        )
        self._isr_settled(log, now_ms, alive)

    def isr_change_rejected(
        self,
        proposal: IsrState,
        code: ErrorCode,
        log: LogView,
        now_ms: float,
        alive: Container[int],
    ) -> bool:
        """Take `proposal` as not written; return whether to send it again (R6)."""
        if self.isr is not proposal:
            return False
        self.isr_rejections_total += 1
        then = rules.after_rejection(code)
        logger.debug(
            "isr change rejected partition=%s error=%s action=%s", self.tp, code.name, then.name
        )
        if then is not AfterRejection.BACK:
            return then is AfterRejection.RETRY
        self.isr = proposal.back()
        for replica in proposal.proposed or ():
            if replica not in proposal.committed and replica in self.followers:
                self.followers[replica].not_before_ms = now_ms + INELIGIBLE_PAUSE_MS
        self._isr_settled(log, now_ms, alive)
        return False

    def _isr_settled(self, log: LogView, now_ms: float, alive: Container[int]) -> None:
        # A follower that is out of the ISR must be looked at with every fetch, so that it can join.
        self.port.notify_followers()
        if self.is_leader:
            self.raise_high_watermark(log, now_ms, alive)

    def acknowledged_below(self, log: LogView) -> int:
        """Return the offset from which on none of the records was acknowledged with acks=all (F43).

        What this process appended as the leader was not, from its high watermark on. Of all else,
        what it copied as a follower and what an earlier process left, it cannot know: the leader
        may have counted this replica without its having the new high watermark.
        """
        end = log.log_end_offset
        own = end if self.own_from is None else self.own_from
        return min(end, max(own, log.high_watermark))

    # --- the follower's data path ---------------------------------------------------------------

    def adopt(self, leader_high_watermark: int, leader_log_start: int, log: LogView) -> None:
        """Take over the leader's high watermark and log start, after the append (R11).

        A leader elected a moment ago may know a lower high watermark than we do. Ours stays: what
        was committed is committed, and a consumer that reads here never sees it go back.
        """
        offset = min(leader_high_watermark, log.log_end_offset)
        if offset > log.high_watermark:
            self.port.advance_high_watermark(offset)
        if leader_log_start > log.log_start_offset:
            self.port.advance_log_start(leader_log_start)

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader}"
        return f"{self.tp} {role} epoch={self.leader_epoch} isr={self.isr.committed}"
