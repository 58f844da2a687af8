"""The in-sync rules: the members of the ISR, and the high watermark. A decider.

Time is an argument, in milliseconds of the monotonic clock; nothing here knows a log, a clock or a
controller.

Invariants, by the numbers of RELIABILITY.md:
- R4: the high watermark is the smallest log end among the leader and every replica that must have
  the data. A follower's log end counts only if it fetched in *this* leader epoch: `forget`
  resets it at every epoch, the one point where we are stricter than Kafka 3.9, which keeps it
  when the same broker is elected again.
- R5: a follower joins only once its log end has reached both the high watermark and the start of
  this leader's epoch; else it could become leader without records that are already committed.
- R7: while a change is in flight the high watermark obeys the *maximal* ISR, the union of what is
  committed and what is proposed. An expansion is assumed to have happened, a shrink to have not.
- R13: below min.insync.replicas (capped at the replication factor) the high watermark is frozen.

Kafka: `Partition` and `Replica` (KIP-497, KIP-841, KIP-903, KAFKA-15583).
"""

import enum
from collections.abc import Container, Iterable
from dataclasses import dataclass

import msgspec

from ottla.model.errors import ErrorCode
from ottla.model.protocol import UNKNOWN_OFFSET

NEVER = float("-inf")
"""The time of something that did not happen yet; zero would lie on a clock that starts at zero."""


@dataclass(slots=True, eq=False)
class Follower:
    """What a leader knows of one follower since the leader's epoch began. Changed in place."""

    broker_id: int
    broker_epoch: int = -1
    log_start_offset: int = UNKNOWN_OFFSET
    log_end_offset: int = UNKNOWN_OFFSET
    last_fetch_leader_end_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: float = NEVER
    last_caught_up_ms: float = NEVER
    not_before_ms: float = NEVER
    sent_offset: int = UNKNOWN_OFFSET
    """where the records began that it was sent last"""

    def forget(self, *, in_isr: bool, now_ms: float) -> None:
        """Start over for a new leader epoch.

        A member of the ISR gets the benefit of the doubt for one lag period. Anyone else counts as
        never caught up, so that it holds back no high watermark.
        """
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = NEVER
        self.last_caught_up_ms = now_ms if in_isr else NEVER
        self.not_before_ms = NEVER

    def is_stale(self, broker_epoch: int) -> bool:
        """Return whether a fetch comes from an earlier registration of this broker (KIP-903)."""
        return -1 < broker_epoch < self.broker_epoch

    def registered_again(self, broker_epoch: int) -> bool:
        """Return whether a fetch is the first one of a later registration of this broker (R8)."""
        return broker_epoch > self.broker_epoch > -1

    def observe(
        self,
        offset: int,
        log_start_offset: int,
        now_ms: float,
        leader_end_offset: int,
        broker_epoch: int,
    ) -> bool:
        """Note a fetch at `offset`: the follower has all below it. True if its log end moved.

        `broker_epoch` is the one the fetch carries, -1 for none (JVM brokers in ZooKeeper mode).
        Caught up *now* if it asks for the leader's end; caught up *at the previous fetch* if it
        asks for what the end was then: under a steady stream it never asks for the very end.
        """
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif (
            offset >= self.last_fetch_leader_end_offset
            and self.last_fetch_ms > self.last_caught_up_ms
        ):
            self.last_caught_up_ms = self.last_fetch_ms
        self.last_fetch_leader_end_offset = max(
            leader_end_offset, self.last_fetch_leader_end_offset
        )
        self.last_fetch_ms = now_ms
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        moved = offset != self.log_end_offset
        self.log_end_offset = offset
        return moved

    def stayed_caught_up(self, until_ms: float, leader_end_offset: int) -> None:
        """Note fetches that had nothing new to say about a partition, the last at `until_ms`."""
        if until_ms > self.last_fetch_ms:
            self.last_fetch_ms = until_ms
            self.last_caught_up_ms = max(self.last_caught_up_ms, until_ms)
            self.last_fetch_leader_end_offset = max(
                leader_end_offset, self.last_fetch_leader_end_offset
            )

    def caught_up(self, leader_end_offset: int, now_ms: float, lag_ms: float) -> bool:
        """Return whether it has everything, or had everything within the last `lag_ms`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_ms

    def __repr__(self) -> str:
        return (
            f"Follower(id={self.broker_id} end={self.log_end_offset} "
            f"caught_up_ms={self.last_caught_up_ms} fetched_ms={self.last_fetch_ms})"
        )


class IsrState(msgspec.Struct, frozen=True):
    """The ISR as committed, and what is proposed to the controller while a change is in flight.

    Tuples keep the order in which members joined, as Kafka's znodes show it.
    """

    committed: tuple[int, ...]
    proposed: tuple[int, ...] | None = None
    maximal: tuple[int, ...] = ()

    @classmethod
    def of(cls, isr: Iterable[int]) -> "IsrState":
        """Return a settled state."""
        members = tuple(isr)
        return cls(members, None, members)

    @property
    def in_flight(self) -> bool:
        return self.proposed is not None

    def expand(self, replica: int) -> "IsrState":
        """Propose `replica` as a member; it counts for the high watermark from now on (R7)."""
        assert not self.in_flight
        assert replica not in self.committed
        grown = (*self.committed, replica)
        return IsrState(self.committed, grown, grown)

    def shrink(self, out: Iterable[int]) -> "IsrState":
        """Propose to drop `out`; they count until the controller has agreed (R7)."""
        assert not self.in_flight
        gone = set(out)
        left = tuple(r for r in self.committed if r not in gone)
        assert len(left) < len(self.committed)
        return IsrState(self.committed, left, self.committed)

    def back(self) -> "IsrState":
        """Return to what is committed; only when the proposal certainly was not applied."""
        return IsrState.of(self.committed)


def effective_min_isr(min_insync_replicas: int, replication_factor: int) -> int:
    """Return min.insync.replicas capped at the number of replicas there are (R13)."""
    return min(min_insync_replicas, replication_factor)


def may_join(follower: Follower, state: IsrState, high_watermark: int, epoch_start: int) -> bool:
    """Return whether a follower meets R5. Whether its broker is alive is for the caller to know."""
    return (
        not state.in_flight
        and follower.broker_id not in state.committed
        and follower.log_end_offset >= high_watermark
        and follower.log_end_offset >= epoch_start
    )


def out_of_sync(
    state: IsrState,
    leader: int,
    followers: dict[int, Follower],
    leader_end_offset: int,
    now_ms: float,
    lag_ms: float,
) -> tuple[int, ...]:
    """Return the members that have not been caught up for `lag_ms`, or are no replicas any more.

    While a change is in flight no replica is: one change at a time (R6). The last member stays, for
    the leader is never counted as late.
    """
    if state.in_flight:
        return ()
    late = []
    for member in state.committed:
        if member == leader:
            continue
        follower = followers.get(member)
        if follower is None or not follower.caught_up(leader_end_offset, now_ms, lag_ms):
            late.append(member)
    return tuple(late)


def high_watermark(
    leader_end_offset: int,
    followers: Iterable[Follower],
    maximal: tuple[int, ...],
    now_ms: float,
    lag_ms: float,
    alive: Container[int],
) -> int:
    """Return the offset below which all who must have the records have them (R4, R7).

    Besides the maximal ISR a caught-up follower about to join is waited for: were it not, the
    leader alone could run ahead forever and the follower's end never reach the high watermark.
    `alive` holds the brokers that may join at all (R9); members of the ISR need not be alive.
    Nor is one waited for that the controller has just refused: it may be shutting down, and
    producers would wait for it until it is back.
    """
    lowest = leader_end_offset
    for follower in followers:
        end = follower.log_end_offset
        if end < lowest and (
            follower.broker_id in maximal
            or (
                now_ms - follower.last_caught_up_ms <= lag_ms
                and now_ms >= follower.not_before_ms
                and follower.broker_id in alive
            )
        ):
            lowest = end
    return lowest


class AfterRejection(enum.Enum):
    """What a leader does when the controller did not accept an ISR change (R6)."""

    BACK = "back to the committed ISR: it was certainly not applied"
    WAIT = "stay with the maximal ISR until the next LeaderAndIsr says what is true"
    RETRY = "send the same change again"


_BACK = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_WAIT = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def after_rejection(code: ErrorCode) -> AfterRejection:
    """Return what follows a rejection; a stale version waits, it never loops (KAFKA-2729)."""
    if code in _BACK:
        return AfterRejection.BACK
    if code in _WAIT:
        return AfterRejection.WAIT
    return AfterRejection.RETRY
