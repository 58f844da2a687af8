"""What goes into and comes out of `groups`: settings, events, results, effects. Values only.

A request is known to the decider by a number, its `request_id`, which comes back with its `Reply`;
a record by the `token` of its `StoreGroup`, which comes back with `RecordsStored`. Kafka:
`GroupConfig`, `JoinGroupResult`, `SyncGroupResult`.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from typing import NamedTuple

import msgspec

from ottla.coordinators.group import Group, Member, Protocols
from ottla.coordinators.timers import CancelTimer, SetTimer
from ottla.model.effects import LogLine
from ottla.model.errors import ErrorCode
from ottla.model.protocol import NO_GENERATION

NO_MEMBER = ""


NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a first JoinGroup may wait: its sender has no id yet, so it cannot heartbeat."""

MIN_POSTPONED_JOIN_MS = 100
"""A rebalance that no member joins is tried again no sooner, whatever timeouts clients ask for."""


class GroupSettings(msgspec.Struct, frozen=True):
    """The group.* settings of server.properties; times in milliseconds."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1


# --- requests ---------------------------------------------------------------------------------


class Join(msgspec.Struct, frozen=True):
    """A JoinGroup. `member_id_suffix` makes the id of a new member unique, else it is empty."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    member_id_suffix: str
    requires_known_member_id: bool = False
    """whether a new member gets its id first and joins again with it (JoinGroup 4, KIP-394)"""
    supports_skipping_assignment: bool = False
    """whether the client understands `skip_assignment` (JoinGroup 9, KIP-814)"""
    reason: str | None = None
    owner: str = ""
    """for whose share of the memory it counts, as in `GroupMemory`"""


class Sync(msgspec.Struct, frozen=True):
    """A SyncGroup; `assignment` maps member ids to bytes and comes from the leader only."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignment: Mapping[str, bytes]


class LeavingMember(NamedTuple):
    """A member of a LeaveGroup; NO_MEMBER where only its instance id is known."""

    member_id: str
    instance_id: str | None
    reason: str | None


# --- events -----------------------------------------------------------------------------------


class GroupTimer(IntEnum):
    """What a timer of a group is for."""

    JOIN = auto()
    """the end of a rebalance's first phase"""
    SYNC = auto()
    """until then each member of a generation has to ask for its assignment"""
    HEARTBEAT = auto()
    """the end of a member's session"""
    PENDING_MEMBER = auto()
    """until then a member id that was given out has to join"""


class TimerKey(NamedTuple):
    """Which timer; `member_id` is NO_MEMBER for those of a whole group."""

    kind: GroupTimer
    group_id: str
    member_id: str = NO_MEMBER


class JoinRequested(NamedTuple):
    request_id: int
    join: Join


class SyncRequested(NamedTuple):
    request_id: int
    sync: Sync


class HeartbeatReceived(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class LeaveRequested(NamedTuple):
    group_id: str
    members: tuple[LeavingMember, ...]


class OffsetCommitRequested(NamedTuple):
    """An OffsetCommit or TxnOffsetCommit, without its offsets. NONE makes sure the group exists."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    transactional: bool = False


class RecordsStored(NamedTuple):
    """The record of a `StoreGroup` is committed in the log, or not; `error` is for clients."""

    token: int
    error: ErrorCode


class TimerExpired(NamedTuple):
    key: TimerKey


class GroupLoaded(NamedTuple):
    """The group was read from the log: this broker coordinates it from now on."""

    group: Group


class GroupUnloaded(NamedTuple):
    """Another broker coordinates the group from now on."""

    group_id: str


class GroupDeleted(NamedTuple):
    """The group, which is empty, is to be removed for good."""

    group_id: str


Event = (
    JoinRequested
    | SyncRequested
    | RecordsStored
    | TimerExpired
    | GroupLoaded
    | GroupUnloaded
    | GroupDeleted
)


# --- results ----------------------------------------------------------------------------------


class JoinResult(NamedTuple):
    """The response to a JoinGroup; `members` is empty for all but the leader."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class SyncResult(NamedTuple):
    """The response to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class LeaveResult(NamedTuple):
    """The response to a LeaveGroup: one error for all, or one for each member in their order."""

    error: ErrorCode
    members: tuple[ErrorCode, ...] = ()


Result = JoinResult | SyncResult


def join_result(group: Group, member: Member, *, as_leader: bool) -> JoinResult:
    """Return the response to a member of the current generation."""
    return JoinResult(
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or "",
        members=group.member_metadata() if as_leader else (),
    )


def sync_result(group: Group, member: Member) -> SyncResult:
    """Return the member's assignment."""
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)


# --- effects ----------------------------------------------------------------------------------


class Reply(NamedTuple):
    """Effect: respond to the request with this number."""

    request_id: int
    result: Result


class StoreReason(Enum):
    """Why a group's record is written, and so what follows when it is committed."""

    ASSIGNMENT = auto()
    EMPTY_GENERATION = auto()
    STATIC_MEMBER = auto()


class StaticMemberReplacement(NamedTuple):
    """A static member that came back with a new id: how to respond, and what to restore."""

    request_id: int
    instance_id: str
    old_id: str
    new_id: str
    old_leader: str | None
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    supports_skipping_assignment: bool


class StoreGroup(NamedTuple):
    """Effect: write `value` as the group's record; `RecordsStored` with `token` must follow.

    `assignment` is what the record gives to each member.
    """

    token: int
    group_id: str
    generation: int
    value: bytes
    reason: StoreReason
    assignment: Mapping[str, bytes]
    replacement: StaticMemberReplacement | None = None


Effect = Reply | StoreGroup | SetTimer[TimerKey] | CancelTimer[TimerKey] | LogLine
