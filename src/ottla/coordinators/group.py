"""One consumer group: its members, its generation, what it committed.

A decider. Who may call: `groups`, and `group_records` to read and restore it. Invariants: the state
changes only as `GROUP_TRANSITIONS` has it; the leader is a member, if there is any; each group
instance id belongs to one member. A request that waits for its response is a ticket in its member's
`join` or `sync` slot. Kafka: `GroupMetadata` and `MemberMetadata`.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from ottla.coordinators.group_states import GROUP_TRANSITIONS, GroupState, check_group_transition
from ottla.coordinators.offsets import GroupOffsets
from ottla.coordinators.timers import Now, Timer
from ottla.model.errors import OttlaError, WireError
from ottla.model.ids import TopicPartition
from ottla.model.transitions import is_legal
from ottla.wire.codec import decode_oldest
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription

logger = logging.getLogger(__name__)

CONSUMER = "consumer"
"""The protocol type of consumers, the only one whose metadata a coordinator reads."""

CLASSIC = "classic"
"""The group type: the only one in ZooKeeper mode."""

Protocols = Sequence[tuple[str, bytes]]
"""(name, metadata) of each assignor a member offers, the preferred one first."""

NO_TIMESTAMP = -1

MAX_SUBSCRIBED = 100_000
"""Topics, of all members together, that are read in one go: 20 ms. Of more none is known."""


class Member:
    """One member. `join` and `sync` hold the ticket of a request that waits, or None."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
        "timer",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = tuple(protocols)
        self.assignment = assignment
        self.is_new = False
        self.join: object | None = None
        self.sync: object | None = None
        self.timer: Timer | None = None

    @property
    def waits(self) -> bool:
        """Whether it needs no heartbeat: it waits for an answer of ours and cannot send any."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def metadata(self, protocol: str) -> bytes:
        """Return what the member said for one of its assignors."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(f"{self.member_id} does not offer {protocol}")

    def vote(self, candidates: set[str]) -> str:
        """Return the member's favourite of assignors that all members offer."""
        return next(name for name, _ in self.protocols if name in candidates)


class MemberSummary(NamedTuple):
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Group:
    """The group's facts and the moves that need no judgement."""

    def __init__(self, group_id: str, wall_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp = wall_ms
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self._offered: dict[str, int] = {}
        """assignor -> how many members offer it"""
        self.static_members: dict[str, str] = {}
        """group instance id -> member id"""
        self.pending_members: dict[str, Timer] = {}
        """ids that were given out and have not joined yet (KIP-394)"""
        self.pending_sync: dict[str, None] = {}
        """members of this generation that have not asked for their assignment"""
        self.offsets = GroupOffsets()
        self.subscribed_topics: frozenset[str] | None = None
        """None: unknown, so any topic may be subscribed"""
        self.awaiting_join = 0
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None
        self.initial_delay_ms: int | None = None
        """while a first rebalance waits for more members: how long this wait is"""
        self.initial_left_ms = 0
        """how much longer it may be extended in all"""
        self.new_member_added = False

    def __repr__(self) -> str:
        return f"Group({self.group_id} {self.state.value} generation={self.generation})"

    # --- states -----------------------------------------------------------------------------------

    def enter(self, state: GroupState, now: Now) -> None:
        """Change to another state; IllegalTransitionError if the table does not have it."""
        check_group_transition(self.group_id, self.state, state)
        self.state = state
        self.state_timestamp = now.wall_ms

    @property
    def can_rebalance(self) -> bool:
        return is_legal(GROUP_TRANSITIONS, self.state, GroupState.PREPARING_REBALANCE)

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def begin_generation(self, now: Now) -> None:
        """Take who has joined as the members of the next generation."""
        self.generation += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self.subscribed_topics = self._subscribed()
            self.enter(GroupState.COMPLETING_REBALANCE, now)
        else:
            self.protocol = None
            self.subscribed_topics = self._subscribed()
            self.enter(GroupState.EMPTY, now)

    # --- members ----------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str, ticket: object | None) -> None:
        """Take a member in; `ticket` is its JoinGroup that waits, None for one that was loaded."""
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        self.wait_join(member, ticket)
        self._forget_pending(member.member_id)

    def update(
        self,
        member: Member,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        ticket: object | None,
    ) -> None:
        """Take over what a member says anew when it joins again."""
        self._count(member, -1)
        member.protocols = tuple(protocols)
        self._count(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.wait_join(member, ticket)

    def _count(self, member: Member, change: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._offered[name] = self._offered.get(name, 0) + change

    def wait_join(self, member: Member, ticket: object | None) -> None:
        """Put a JoinGroup into the member's slot, or take it out (None)."""
        self.awaiting_join += (ticket is not None) - (member.join is not None)
        member.join = ticket

    def remove(self, member_id: str) -> Member | None:
        """Forget a member, or an id that never joined; return it if it was a member."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            self.wait_join(member, None)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
            if member.timer is not None:
                member.timer.cancel()
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self._forget_pending(member_id)
        self.pending_sync.pop(member_id, None)
        return member

    def _forget_pending(self, member_id: str) -> None:
        timer = self.pending_members.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def replace_static(self, instance_id: str, old_id: str, new_id: str) -> Member:
        """Give a static member a new id; the place in the group stays (KIP-345)."""
        member = self.members.pop(old_id)
        member.member_id = new_id
        self.members[new_id] = member
        if self.leader == old_id:
            self.leader = new_id
        self.static_members[instance_id] = new_id
        return member

    def elect_joined_leader(self) -> bool:
        """Have a leader that joined; False if there is nobody to be."""
        if self.leader is None:
            return False
        if self.members[self.leader].join is not None:
            return True
        for member in self.members.values():
            if member.join is not None:
                logger.info(
                    "group leader did not rejoin group=%s leader=%s new=%s",
                    self.group_id, self.leader, member.member_id,
                )  # fmt: skip
                self.leader = member.member_id
                return True
        return False

    # --- protocols --------------------------------------------------------------------------------

    def _candidates(self) -> set[str]:
        """Return the assignors that every member offers."""
        size = len(self.members)
        return {name for name, count in self._offered.items() if count == size}

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Tell whether a member with these assignors may join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        if not self.members:
            # All have left while a rebalance is under way: nobody is there to disagree.
            return bool(protocols)
        size = len(self.members)
        return any(self._offered.get(name) == size for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the assignor with the most votes; of equals the one voted for first."""
        candidates = self._candidates()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _subscribed(self) -> frozenset[str] | None:
        """Return what the members subscribe to; None if that is not known, so may be anything.

        Of each only the fields of version 0 are read, as Kafka's `GroupMetadata` does: all versions
        begin with them, and there are clients that name a newer version and stop after them.
        """
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        left = MAX_SUBSCRIBED
        for member in self.members.values():
            try:
                metadata = member.metadata(self.protocol or "")
                left -= int.from_bytes(metadata[2:6])
                if left < 0:
                    raise WireError(f"more than {MAX_SUBSCRIBED} topics in all")
                said = decode_oldest(ConsumerProtocolSubscription, metadata)
            except (OttlaError, KeyError) as error:
                logger.warning(
                    "subscription not understood group=%s protocol=%s error=%s",
                    self.group_id, self.protocol, error,
                )  # fmt: skip
                return None
            topics.update(said.topics)
        return frozenset(topics)

    def restore_subscription(self) -> None:
        """Work out the subscribed topics of a group that was loaded."""
        self.subscribed_topics = self._subscribed()

    def may_be_subscribed(self, topic: str) -> bool:
        return self.subscribed_topics is None or topic in self.subscribed_topics

    # --- what others are shown ------------------------------------------------------------------

    def member_metadata(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """Return (member id, instance id, metadata) of each member, for the leader to assign."""
        assert self.protocol is not None
        return tuple(
            (m.member_id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values()
        )

    def summaries(self) -> list[MemberSummary]:
        """Return the members as DescribeGroups shows them: metadata only while stable."""
        stable = self.state is GroupState.STABLE
        assert not stable or self.protocol is not None
        return [
            MemberSummary(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.metadata(self.protocol) if stable and self.protocol is not None else b"",
                m.assignment if stable else b"",
            )
            for m in self.members.values()
        ]

    def expired_offsets(self, wall_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Return the offsets that nobody used for long enough (KIP-211)."""
        offsets = self.offsets
        if self.protocol_type is not None and self.state is GroupState.EMPTY:
            since = self.state_timestamp
            return offsets.expired(
                wall_ms,
                retention_ms,
                lambda c: since if since != NO_TIMESTAMP else c.commit_timestamp,
            )
        if self.protocol_type is None:
            # Only ever used to keep offsets.
            return offsets.expired(wall_ms, retention_ms, lambda c: c.commit_timestamp)
        if (
            self.protocol_type == CONSUMER
            and self.subscribed_topics is not None
            and self.state is GroupState.STABLE
        ):
            return offsets.expired(
                wall_ms, retention_ms, lambda c: c.commit_timestamp, self.subscribed_topics
            )
        return []
