"""What goes into and comes out of `groups`: settings, requests, results, effects.

Values only. Who may call: this room, and handlers for the results. Kafka:
`GroupConfig`, `JoinGroupResult` and `SyncGroupResult`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from ottla.coordinators.group import Group, Protocols
from ottla.model.errors import ErrorCode

NO_MEMBER = ""
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What group.* of server.properties says; times in milliseconds."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup. `fresh` is what makes a new member's id unique."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    fresh: str
    id_required: bool = False
    """whether the client can be sent back with an id of its own first (JoinGroup 4)"""
    may_skip_assignment: bool = False
    """whether it understands `skip_assignment` (JoinGroup 9)"""
    reason: str | None = None


class JoinResult(NamedTuple):
    """The answer to a JoinGroup; `members` is empty for all but the leader."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class SyncResult(NamedTuple):
    """The answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Answer(NamedTuple):
    """Effect: tell whoever waits with this ticket."""

    ticket: object
    result: JoinResult | SyncResult


class Reason(Enum):
    """Why a group's record is written, and so what its being written means."""

    ASSIGNMENT = auto()
    EMPTY_GENERATION = auto()
    STATIC_MEMBER = auto()


class Swap(NamedTuple):
    """A static member's return under a new id: what to answer, and what to restore."""

    instance_id: str
    old_id: str
    new_id: str
    old_leader: str | None
    protocols: Protocols
    rebalance_timeout_ms: int
    session_timeout_ms: int
    may_skip_assignment: bool
    ticket: object


class Store(NamedTuple):
    """Effect: write this value under the group's key, and call `stored` with the outcome."""

    group: Group
    generation: int
    value: bytes
    reason: Reason
    assignment: Mapping[str, bytes]
    swap: Swap | None = None
