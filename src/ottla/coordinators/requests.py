"""Requests to the coordinators as values, and their results. Values only.

Invariants: each request gets its result once, at once or later. Kafka: `JoinGroupResult`,
`SyncGroupResult`, `InitProducerIdResult` and the requests' own classes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from ottla.coordinators.group_memory import Protocols
from ottla.coordinators.offsets import Commit
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.protocol import NO_GENERATION

ResultT_contra = TypeVar("ResultT_contra", contravariant=True)

PartitionErrors = Mapping[TopicPartition, ErrorCode]

NO_MEMBER = ""

CLASSIC = "classic"
"""The group type, the only one in ZooKeeper mode."""


class AwaitsResult(Protocol[ResultT_contra]):
    """A request that waits for its result. It is all that a coordinator keeps of a request."""

    def on_result(self, result: ResultT_contra) -> None:
        """Respond. It neither raises nor comes back to the coordinator before it returns."""
        ...


class AwaitsVerification(Protocol):
    """A request that waits until its partitions are verified as part of a transaction."""

    def on_verified(self, errors: PartitionErrors) -> None:
        """Go on; `errors` names the partitions that must not be written to."""
        ...


# --- groups -----------------------------------------------------------------------------------


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


class JoinResult(NamedTuple):
    """The response to a JoinGroup; `members` is empty for all but the leader."""

    error: ErrorCode
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class Sync(msgspec.Struct, frozen=True):
    """A SyncGroup; `assignment` maps member ids to bytes and comes from the leader only."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignment: Mapping[str, bytes]


class SyncResult(NamedTuple):
    """The response to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    """A member of a LeaveGroup; NO_MEMBER where only its instance id is known."""

    member_id: str
    instance_id: str | None
    reason: str | None


class LeaveResult(NamedTuple):
    """The response to a LeaveGroup: one error for all, or one for each member in their order."""

    error: ErrorCode
    members: tuple[ErrorCode, ...] = ()


class GroupOverview(msgspec.Struct, frozen=True):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC


class MemberSummary(NamedTuple):
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(msgspec.Struct, frozen=True):
    """A group as DescribeGroups shows it."""

    error: ErrorCode
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[MemberSummary] = ()


class FetchedOffset(msgspec.Struct, frozen=True):
    """One partition's committed offset; `commit` is None where there is none."""

    tp: TopicPartition
    commit: Commit | None
    error: ErrorCode = ErrorCode.NONE


# --- transactions -----------------------------------------------------------------------------


class ProducerIdAndEpoch(NamedTuple):
    """The id and epoch that a producer sends."""

    producer_id: int
    epoch: int


class InitResult(NamedTuple):
    """The response to InitProducerId."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1


class InitProducerId(NamedTuple):
    """An InitProducerId. `expected` is what the producer has already (KIP-360), if anything."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None
    request: AwaitsResult[InitResult]
