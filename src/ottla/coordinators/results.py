"""Results of requests to a coordinator, and how a request that waits gets its result.

Invariants: each request gets its result once, at once or later.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from ottla.coordinators.group import CLASSIC, MemberSummary
from ottla.coordinators.offsets import Commit
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

ResultT_contra = TypeVar("ResultT_contra", contravariant=True)

PartitionErrors = Mapping[TopicPartition, ErrorCode]


COMMIT_ERRORS = {
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
"""The client's error for a failed append, without those of a partition that is not the client's."""

STORE_ERRORS = {
    **COMMIT_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The decider's error for a group whose record was not written."""


class AwaitsResult(Protocol[ResultT_contra]):
    """A request that waits for its result."""

    def on_result(self, result: ResultT_contra) -> None: ...


class AwaitsVerification(Protocol):
    """A request that waits until its partitions are verified as part of a transaction."""

    def on_verified(self, errors: PartitionErrors) -> None:
        """Go on; `errors` names the partitions that must not be written to."""
        ...


class GroupOverview(msgspec.Struct, frozen=True):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC


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
