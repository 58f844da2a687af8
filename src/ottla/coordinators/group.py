"""One consumer group: its members, its generation, what it committed.

A decider. Invariants: the state changes only as `GROUP_TRANSITIONS` has it; the leader is a member,
if there is any; each group instance id belongs to one member. A request that waits for its response
is in its member's `join_request` or `sync_request`. Kafka: `GroupMetadata`, `MemberMetadata` and
`GroupState`, and the validation in `GroupCoordinator`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ottla.coordinators.group_memory import GroupMemory, Protocols, member_bytes, text_bytes
from ottla.coordinators.offsets import GroupOffsets
from ottla.coordinators.requests import (
    NO_MEMBER,
    AwaitsResult,
    Join,
    JoinResult,
    MemberSummary,
    SyncResult,
)
from ottla.coordinators.timers import Now
from ottla.model.errors import ErrorCode, OttlaError, WireError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import NO_TIMESTAMP
from ottla.model.transitions import TransitionTable, check_transition, is_legal
from ottla.wire.codec import decode_oldest
from ottla.wire.messages.groups import ConsumerProtocolSubscription

logger = logging.getLogger(__name__)


class GroupState(Enum):
    """The value is the name on the wire."""

    EMPTY = "Empty"
    """no member; it may hold offsets"""

    PREPARING_REBALANCE = "PreparingRebalance"
    """members are asked to join; their JoinGroup waits"""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """a generation has begun; its members' SyncGroup waits for the leader's assignment"""

    STABLE = "Stable"
    """every member may have its assignment"""

    DEAD = "Dead"
    """deleted here, or moved to another coordinator"""


# Target state -> the states it may be entered from.
GROUP_TRANSITIONS: TransitionTable[GroupState] = {
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


def check_group_transition(group_id: str, before: GroupState, after: GroupState) -> None:
    """Raise IllegalTransitionError unless the table has the transition."""
    check_transition(GROUP_TRANSITIONS, f"group {group_id}", before, after)


CONSUMER = "consumer"
"""The protocol type of consumers, the only one whose metadata a coordinator reads."""

MAX_SUBSCRIBED = 100_000
"""Topics of all members together that are decoded at once (20 ms); of more, none is known."""


@dataclass(slots=True, eq=False)
class Member:
    """One member. `join_request`, `sync_request`: the requests of it that wait, or None.

    Its session ends at `session_due_ms` of the monotonic clock. `session_timer_ms` is when its
    timer expires, None without one: at or before that time, so that heartbeats set no timer.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    owner: str = ""
    is_new: bool = False
    join_request: AwaitsResult[JoinResult] | None = None
    sync_request: AwaitsResult[SyncResult] | None = None
    session_due_ms: float = 0.0
    session_timer_ms: float | None = None

    def __post_init__(self) -> None:
        self.protocols = tuple(self.protocols)

    @property
    def size(self) -> int:
        """Return about what it takes, in bytes."""
        return member_bytes(self.member_id, self.client_id, self.protocols, self.assignment)

    @property
    def awaits_response(self) -> bool:
        """Whether the session must not expire: a client that waits for us sends no heartbeat."""
        waits = self.join_request is not None or self.sync_request is not None
        return waits and not self.is_new

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for one of its assignors; KeyError if it has none."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(f"{self.member_id} does not offer {protocol}")

    def reply_sync(self, result: SyncResult) -> None:
        """Respond to the SyncGroup that waits, if one does."""
        request, self.sync_request = self.sync_request, None
        if request is not None:
            request.on_result(result)

    def vote(self, candidates: set[str]) -> str:
        """Return the member's preferred assignor of those that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)


class Group:
    """The group's data, and the changes that keep it consistent."""

    def __init__(self, group_id: str, wall_ms: int, memory: GroupMemory | None = None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp = wall_ms
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self._supported: dict[str, int] = {}
        """assignor -> how many members support it"""
        self.static_members: dict[str, str] = {}
        """group instance id -> member id"""
        self.pending_members: dict[str, None] = {}
        """ids that were given out and have not joined yet (KIP-394)"""
        self.pending_sync: dict[str, None] = {}
        """members of this generation that have not asked for their assignment"""
        self.offsets = GroupOffsets()
        self.subscribed_topics: frozenset[str] | None = None
        """None: unknown, so any topic may be subscribed"""
        self.subscription_error: Exception | None = None
        self.awaiting_join = 0
        self.initial_delay_ms: int | None = None
        """how long the first rebalance waits for more members now; None in any other rebalance"""
        self.initial_remaining_ms = 0
        """by how much this wait may still be extended"""
        self.new_member_added = False
        self.bytes = 0
        """about what the members take"""
        self.memory: GroupMemory | None = None
        """where that counts, while the group is served"""
        self.count_in(memory)

    def __repr__(self) -> str:
        return f"Group({self.group_id} {self.state.value} generation={self.generation})"

    # --- states -----------------------------------------------------------------------------------

    def transition_to(self, state: GroupState, now: Now) -> None:
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

    def init_next_generation(self, now: Now) -> None:
        """Begin the next generation with the members there are."""
        self.generation += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now)
        else:
            self.protocol = None
            self.transition_to(GroupState.EMPTY, now)
        self.update_subscribed_topics()

    # --- members ----------------------------------------------------------------------------------

    def add(
        self, member: Member, protocol_type: str, join_request: AwaitsResult[JoinResult] | None
    ) -> None:
        """Add a member; `join_request` is its JoinGroup that waits, None if it was loaded."""
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
        self.set_join_request(member, join_request)
        self._joined_or_gave_up(member.member_id)

    def update(
        self,
        member: Member,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        join_request: AwaitsResult[JoinResult] | None,
    ) -> None:
        """Replace the protocols and timeouts of a member that joins again."""
        self._count(member, -1)
        member.protocols = tuple(protocols)
        self._count(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.set_join_request(member, join_request)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Give a member its assignment."""
        self._count(member, -1)
        member.assignment = assignment
        self._count(member, 1)

    def has_room(self, owner: str, member_id: str, client_id: str, protocols: Protocols) -> bool:
        """Return whether a member may leave so much here as it asks for."""
        if self.memory is None:
            return True
        more = member_bytes(member_id, client_id, protocols)
        member = self.members.get(member_id)
        if member is not None:
            owner = member.owner
            more -= member_bytes(member.member_id, member.client_id, member.protocols)
        return self.memory.has_room(owner, self.bytes, more, len(protocols))

    def has_room_for(self, owner: str, assignment: Mapping[str, bytes]) -> bool:
        """Return whether the members may be given so much."""
        if self.memory is None:
            return True
        more = sum(map(len, assignment.values()))
        more -= sum(len(member.assignment) for member in self.members.values())
        return self.memory.has_room(owner, self.bytes, more, 0)

    @property
    def is_unused(self) -> bool:
        """Whether nothing came of the group but ids that were given out."""
        new = self.state is GroupState.EMPTY and self.generation == 0
        return new and not (self.members or self.pending_members or self.offsets.any)

    def accepts(self, join: Join, max_size: int) -> bool:
        """Return whether there is room for this member: group.max.size (KIP-389), and memory."""
        member_id = join.member_id
        if not self.has_room(join.owner, member_id, join.client_id, join.protocols):
            return False
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            return True
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            # Those that wait are counted, not the members: a group that is too large for a lowered
            # setting loses the members that rejoin last.
            awaits_join = member is not None and member.join_request is not None
            return awaits_join or self.awaiting_join < max_size
        return member is not None or len(self.members) < max_size

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that this is a member, and that its instance id is not another's now."""
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                logger.info(
                    "static member fenced group=%s instance=%s member=%s current=%s",
                    self.group_id,
                    instance_id,
                    member_id,
                    owner,
                )
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def validate_generation(
        self, generation: int, member_id: str, instance_id: str | None
    ) -> ErrorCode:
        """Check that this is a member and knows the generation."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.validate_member(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def validate_commit(
        self, generation: int, member_id: str, instance_id: str | None, *, transactional: bool
    ) -> ErrorCode:
        """Check that offsets may be committed by this member, or without one."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE  # a consumer that assigns itself, or an administrator
        if generation >= 0 or member_id != NO_MEMBER or instance_id is not None:
            return self.validate_generation(generation, member_id, instance_id)
        # Old transactional producers know neither member nor generation.
        if transactional or self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        return ErrorCode.UNKNOWN_MEMBER_ID

    def _joined_or_gave_up(self, member_id: str) -> None:
        if member_id in self.pending_members:
            del self.pending_members[member_id]
            if self.memory is not None:
                self.memory.taken(self.group_id, member_id)

    def count_in(self, memory: GroupMemory | None) -> None:
        """Have the group counted there from now on; None: nowhere any more."""
        if self.memory is not None:
            self._count_all(self.memory, -1)
        self.memory = self.offsets.memory = memory
        if memory is not None:
            self._count_all(memory, 1)

    def _count_all(self, memory: GroupMemory, change: int) -> None:
        memory.texts += change * (text_bytes(len(self.group_id)) + self.offsets.text_bytes)
        for member in self.members.values():
            memory.count(member.owner, change * member.size)

    def _count(self, member: Member, change: int) -> None:
        size = change * member.size
        self.bytes += size
        if self.memory is not None:
            self.memory.count(member.owner, size)
        for name in {name for name, _ in member.protocols}:
            self._supported[name] = self._supported.get(name, 0) + change

    def set_join_request(
        self, member: Member, join_request: AwaitsResult[JoinResult] | None
    ) -> None:
        """Note the JoinGroup of a member that waits, None for none."""
        self.awaiting_join += (join_request is not None) - (member.join_request is not None)
        member.join_request = join_request

    def remove(self, member_id: str) -> Member | None:
        """Remove a member, or an id that never joined; return it if it was a member."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            self.set_join_request(member, None)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self._joined_or_gave_up(member_id)
        self.pending_sync.pop(member_id, None)
        return member

    def replace_static_member(self, instance_id: str, old_id: str, new_id: str) -> Member:
        """Give a static member a new id; the place in the group stays (KIP-345)."""
        member = self.members.pop(old_id)
        self._count(member, -1)
        member.member_id = new_id
        self._count(member, 1)
        self.members[new_id] = member
        if self.leader == old_id:
            self.leader = new_id
        self.static_members[instance_id] = new_id
        return member

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader; False if none has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_request is not None:
            return True
        for member in self.members.values():
            if member.join_request is not None:
                self.leader = member.member_id
                return True
        return False

    # --- protocols --------------------------------------------------------------------------------

    def _candidates(self) -> set[str]:
        """Return the assignors that every member supports."""
        size = len(self.members)
        return {name for name, count in self._supported.items() if count == size}

    def supports_protocols(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these assignors may join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        if not self.members:
            # All have left while a rebalance is under way: no member is left to agree with.
            return bool(protocols)
        size = len(self.members)
        return any(self._supported.get(name) == size for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the assignor with the most votes; among equals the one voted for first."""
        candidates = self._candidates()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def update_subscribed_topics(self) -> None:
        """Decode what the members subscribe to; `subscription_error` says why it cannot be done.

        Only the fields of version 0 are decoded, as Kafka's `GroupMetadata` does: all versions
        begin with them, and some clients name a newer version and send no more than them.
        """
        self.subscribed_topics = self.subscription_error = None
        if self.protocol_type != CONSUMER:
            return
        topics: set[str] = set()
        remaining = MAX_SUBSCRIBED
        for member in self.members.values():
            try:
                metadata = member.metadata(self.protocol or "")
                remaining -= int.from_bytes(metadata[2:6])
                if remaining < 0:
                    raise WireError(f"more than {MAX_SUBSCRIBED} topics in all")
                subscription = decode_oldest(ConsumerProtocolSubscription, metadata)
            except (OttlaError, KeyError) as error:
                self.subscription_error = error
                return
            topics.update(subscription.topics)
        self.subscribed_topics = frozenset(topics)

    def log_subscription_error(self) -> None:
        """Log that the subscription of a member could not be decoded, if that is so."""
        if self.subscription_error is not None:
            logger.warning(
                "subscription not understood group=%s protocol=%s error=%s",
                self.group_id,
                self.protocol,
                self.subscription_error,
            )

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member is, or may be, subscribed to a topic."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    # --- descriptions ---------------------------------------------------------------------------

    def join_result(self, member: Member, *, as_leader: bool) -> JoinResult:
        """Return the response to a member of the current generation."""
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if as_leader:
            assert self.protocol is not None
            members = tuple(
                (m.member_id, m.instance_id, m.metadata(self.protocol))
                for m in self.members.values()
            )
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            members=members,
        )

    def sync_result(self, member: Member) -> SyncResult:
        """Return the member's assignment."""
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

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
        """Return the offsets that were not used for longer than the retention (KIP-211)."""
        offsets = self.offsets
        if self.protocol_type is not None and self.state is GroupState.EMPTY:
            since = self.state_timestamp
            return offsets.expired(
                wall_ms,
                retention_ms,
                lambda c: since if since != NO_TIMESTAMP else c.commit_timestamp,
            )
        if self.protocol_type is None:
            # Only offsets were ever committed, no member joined.
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
