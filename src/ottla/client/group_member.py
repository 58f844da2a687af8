"""A member of a consumer group: the requests of its life, and what it knows of its place.

Invariants: a request is sent until the group's coordinator responds to it; what the code of the
response asks for (`REJOIN`) is the caller's. Kafka: `AbstractCoordinator`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.client.assignors import RANGE, RangeAssignor
from ottla.client.client import Client
from ottla.client.coordinators import MOVED, Coordinator, code_of_all
from ottla.client.group_resets import commit_request, worst_code
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition, by_topic
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.messages.groups import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

PROTOCOL_TYPE = "consumer"
LEAVE_VERSION = 2
"""The last that names one member, as every broker understands."""
REJOIN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)
AGAIN = MOVED | {ErrorCode.UNSTABLE_OFFSET_COMMIT}


class Seat(NamedTuple):
    """A place in a generation. It stays what it was when the coordinator has put us out."""

    generation: int
    member_id: str


class GroupMember:
    """One member. `partitions` are those of its last assignment, in the generation of `seat`."""

    def __init__(
        self,
        client: Client,
        group: str,
        topics: Sequence[str],
        *,
        session_ms: int,
        rebalance_ms: int,
        grace_s: float,
        patience_s: float,
        assignor: RangeAssignor = RANGE,
        instance_id: str | None = None,
    ) -> None:
        """`grace_s`: how much longer than `rebalance_ms` a response to a join may take.

        `patience_s`: how long the coordinator may be away. `instance_id`: of a static member.
        """
        self.group = group
        self.topics = sorted(topics)
        self.assignor = assignor
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.partitions: tuple[TopicPartition, ...] = ()
        self.previous: tuple[TopicPartition, ...] = ()
        """What it had when it was given `partitions`."""
        self.missed = False
        """Whether others may have had a generation between that of the last join and the one
        before."""
        self.seat = Seat(-1, "")
        self.coordinator = Coordinator(client, group, patience_s=patience_s)
        self._session_ms = session_ms
        self._rebalance_ms = rebalance_ms
        self._join_s = rebalance_ms / 1000 + grace_s

    async def ask(self, request: Any, code_of: Any = code_of_all, **how: Any) -> Any:
        """Return the coordinator's response."""
        return await self.coordinator.ask(request, code_of, **how)

    async def send_join(self) -> JoinGroupResponse:
        """Ask for a place in the next generation; it is taken by `send_sync`."""
        said = self.assignor.subscription(self.topics, self.partitions, self.seat.generation)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=self.assignor.name, metadata=said)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        joined: JoinGroupResponse = await self.ask(request, timeout_s=self._join_s)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        if not joined.error_code:
            self.missed = joined.generation_id != self.generation + 1
            self.member_id, self.generation = joined.member_id, joined.generation_id
        return joined

    def subscriptions(
        self, joined: JoinGroupResponse
    ) -> dict[str, ConsumerProtocolSubscription] | None:
        """Return what the members said, for the leader of a generation; None for others."""
        if joined.leader != self.member_id or joined.skip_assignment:
            return None
        return {
            m.member_id: decode_versioned(ConsumerProtocolSubscription, m.metadata, newer_ok=True)
            for m in joined.members
        }

    async def send_sync(
        self, joined: JoinGroupResponse, counts: Mapping[str, int] | None
    ) -> SyncGroupResponse:
        """Take our place in a generation; its leader shares out topics of so many partitions."""
        said = self.subscriptions(joined)
        shares = {} if said is None or counts is None else self.assignor.share_out(counts, said)
        one = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[
                one(member_id=member, assignment=_encode(topics))
                for member, topics in shares.items()
            ],
        )
        synced: SyncGroupResponse = await self.ask(request, timeout_s=self._join_s)
        if not synced.error_code:
            self.seat = Seat(self.generation, self.member_id)
            self.previous, self.partitions = self.partitions, _decode(synced.assignment)
        return synced

    async def send_heartbeat(self) -> int:
        """Return the error code of a heartbeat."""
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return int((await self.ask(request)).error_code)

    async def send_commit(self, offsets: Mapping[TopicPartition, int], **how: Any) -> int:
        """Commit offsets; return the first error code, 0 if all are committed."""
        request = commit_request(
            self.group, offsets, self.generation, self.member_id, self.instance_id
        )
        return worst_code(await self.ask(request, worst_code, **how))

    async def fetch_committed(
        self, partitions: Sequence[TopicPartition], version: int, *, stable: bool = False
    ) -> OffsetFetchResponse:
        """Ask for committed offsets; with `stable` after open transactions' end (KIP-447)."""
        one = OffsetFetchRequest.OffsetFetchRequestTopic
        request = OffsetFetchRequest(
            group_id=self.group,
            topics=[one(name=n, partition_indexes=p) for n, p in by_topic(partitions).items()],
            require_stable=stable,
        )
        how = {"again": AGAIN} if stable else {}
        found: OffsetFetchResponse = await self.ask(request, _fetched_code, version=version, **how)
        return found

    async def send_leave(self) -> None:
        """Leave the group, if we are in it."""
        if self.member_id:
            request = LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
            await self.ask(request, version=LEAVE_VERSION)

    def forget(self, code: int) -> None:
        """Reset what the coordinator has forgotten."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation = -1


def _fetched_code(response: OffsetFetchResponse) -> int:
    return int(response.error_code) or worst_code(response)


def _encode(topics: Mapping[str, list[int]]) -> bytes:
    r = ConsumerProtocolAssignment
    assigned = [r.TopicPartition(topic=name, partitions=ps) for name, ps in topics.items()]
    return encode_versioned(r(assigned_partitions=assigned), 0)


def _decode(assignment: bytes) -> tuple[TopicPartition, ...]:
    if not assignment:
        return ()
    mine = decode_versioned(ConsumerProtocolAssignment, assignment, newer_ok=True)
    return tuple(TopicPartition(t.topic, p) for t in mine.assigned_partitions for p in t.partitions)
