"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: requests of members to their coordinator.

Invariants: no task per request: a join or sync that has to wait is a `Pending`, which is completed
when the coordinator responds. Kafka: the handlers of the same names in `KafkaApis` and
`GroupCoordinatorAdapter`.
"""

import socket
import struct
import uuid

from ottla.broker.requests.access import on_group
from ottla.broker.requests.api import Api, Parts, Response
from ottla.broker.requests.responses import PendingResult, respond
from ottla.broker.services import BrokerServices
from ottla.coordinators.requests import (
    NO_MEMBER,
    Join,
    JoinResult,
    LeavingMember,
    Sync,
    SyncResult,
)
from ottla.model.errors import ErrorCode
from ottla.net.connection import Connection, Pending
from ottla.security.acls import READ
from ottla.security.principals import ANONYMOUS
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.wire.portions import MANY_CHANGES, in_portions

FIRST_JOIN_WITH_KNOWN_IDS = 4
FIRST_JOIN_WITH_SKIPPING = 9
FIRST_JOIN_WITH_NULL_PROTOCOL = 7
FIRST_SYNC_WITH_PROTOCOL = 5
FIRST_LEAVE_OF_MANY = 3

_IPV6 = struct.Struct(">8H")


def client_host(conn: Connection) -> str:
    """Return the peer's address as Java's InetAddress prints it: a slash, IPv6 written out."""
    host = conn.peer[0]
    if ":" in host:
        raw = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        host = ":".join(f"{group:x}" for group in _IPV6.unpack(raw))
    return f"/{host}"


def join_group(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: JoinGroupRequest
) -> Pending:
    version = header.api_version
    entropy = server.world.random.randbytes(16)
    new = not request.member_id  # only then is the text of a UUID worth its time
    join = Join(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        header.client_id or "",
        client_host(conn),
        request.session_timeout_ms,
        request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
        request.protocol_type,
        tuple((p.name, bytes(p.metadata)) for p in request.protocols),
        member_id_suffix=str(uuid.UUID(bytes=entropy, version=4)) if new else "",
        requires_known_member_id=version >= FIRST_JOIN_WITH_KNOWN_IDS,
        supports_skipping_assignment=version >= FIRST_JOIN_WITH_SKIPPING,
        reason=request.reason,
        owner=conn.peer[0] if conn.principal == ANONYMOUS else str(conn.principal),
    )

    pending = PendingJoin(conn, header)
    server.groups.join(join, pending)
    return pending


class PendingJoin(PendingResult[JoinResult]):
    __slots__ = ()

    def response(self, result: JoinResult) -> JoinGroupResponse:
        protocol = result.protocol
        if protocol is None and self.header.api_version < FIRST_JOIN_WITH_NULL_PROTOCOL:
            protocol = ""
        member = JoinGroupResponse.JoinGroupResponseMember
        return JoinGroupResponse(
            error_code=result.error,
            generation_id=result.generation,
            protocol_type=result.protocol_type,
            protocol_name=protocol,
            leader=result.leader,
            skip_assignment=result.skip_assignment,
            member_id=result.member_id,
            members=[
                member(member_id=m, group_instance_id=instance, metadata=metadata)
                for m, instance, metadata in result.members
            ],
        )


def sync_group(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: SyncGroupRequest
) -> Response:
    if header.api_version >= FIRST_SYNC_WITH_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return respond(header, SyncGroupResponse(error_code=code))
    sync = Sync(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        {a.member_id: bytes(a.assignment) for a in request.assignments},
    )
    pending = PendingSync(conn, header)
    server.groups.sync(sync, pending)
    return pending


class PendingSync(PendingResult[SyncResult]):
    __slots__ = ()

    def response(self, result: SyncResult) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=result.error,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol,
            assignment=result.assignment,
        )


def heartbeat(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: HeartbeatRequest
) -> Parts:
    code = server.groups.heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    return respond(header, HeartbeatResponse(error_code=code))


def leave_group(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: LeaveGroupRequest
) -> Parts:
    many = header.api_version >= FIRST_LEAVE_OF_MANY
    if many:
        leaving = [
            LeavingMember(m.member_id, m.group_instance_id, m.reason) for m in request.members
        ]
    else:
        leaving = [LeavingMember(request.member_id, None, None)]
    code, codes = server.groups.leave(request.group_id, leaving)
    if not many:
        if code is ErrorCode.NONE:
            code = codes[0]
        return respond(header, LeaveGroupResponse(error_code=code))
    member = LeaveGroupResponse.MemberResponse
    members = [
        member(member_id=m or NO_MEMBER, group_instance_id=instance, error_code=error)
        for (m, instance, _), error in zip(leaving, codes, strict=False)
    ]
    return respond(header, LeaveGroupResponse(error_code=code, members=members))


def _join_error(
    _request: JoinGroupRequest, version: int, code: int, _message: str | None
) -> JoinGroupResponse:
    protocol = None if version >= FIRST_JOIN_WITH_NULL_PROTOCOL else ""
    return JoinGroupResponse(error_code=code, protocol_name=protocol)


JOIN_GROUP = Api(JoinGroupRequest, join_group, access=on_group(READ), error=_join_error)
SYNC_GROUP = Api(
    SyncGroupRequest, sync_group, access=on_group(READ), error=error_response(SyncGroupResponse)
)
HEARTBEAT = Api(
    HeartbeatRequest, heartbeat, access=on_group(READ), error=error_response(HeartbeatResponse)
)
LEAVE_GROUP = Api(
    LeaveGroupRequest,
    leave_group,
    access=on_group(READ),
    error=error_response(LeaveGroupResponse),
    large=in_portions("members", "members", many=MANY_CHANGES, since=FIRST_LEAVE_OF_MANY),
)
