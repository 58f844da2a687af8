"""DescribeGroups, ListGroups, DeleteGroups: groups as administrators see them.

Kafka: the handlers of the same names in `KafkaApis`.
"""

from typing import Any, NoReturn

from ottla.broker.authorization.request_authorizer import allowed, authorized_operations
from ottla.broker.requests.access import Access, Need, each_named
from ottla.broker.requests.api import Api, Later, Parts
from ottla.broker.requests.responses import ELEMENT_BYTES, STEP, Steps, respond, respond_in_steps
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, UnsupportedVersionError
from ottla.net.connection import Connection
from ottla.security.acls import DELETE, DESCRIBE, GROUP
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.wire.portions import MANY_CHANGES, in_portions, itself

UNKNOWN_OPERATIONS = -(2**31)


def refuse(
    _server: BrokerServices, _conn: Connection, _header: RequestHeader, _request: Any
) -> NoReturn:
    """Refuse a heartbeat of a new group protocol at once.

    Nothing is kept of a client that asks (KIP-848, KIP-932). librdkafka waits without an error for
    an API that ApiVersions does not list, and fails at once on this answer; Java's clients fail at
    once either way. Kafka 3.9 in ZooKeeper mode refuses ConsumerGroupHeartbeat like this, in
    version 0 only.
    """
    raise UnsupportedVersionError("only the classic group protocol is served")


CONSUMER_GROUP_HEARTBEAT = Api(
    ConsumerGroupHeartbeatRequest,
    refuse,
    access=Access(open="always refused"),
    error=error_response(ConsumerGroupHeartbeatResponse),
)
SHARE_GROUP_HEARTBEAT = Api(
    ShareGroupHeartbeatRequest,
    refuse,
    access=Access(open="always refused"),
    error=error_response(ShareGroupHeartbeatResponse),
)


def describe_groups(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: DescribeGroupsRequest
) -> Parts | Later:
    return respond_in_steps(server, conn, header, _described(server, conn, request))


def _described(server: BrokerServices, conn: Connection, request: DescribeGroupsRequest) -> Steps:
    """Describe each group once, however often it is named."""
    r = DescribeGroupsResponse
    described = []
    for group_id in dict.fromkeys(request.groups):
        group = server.groups.describe(group_id)
        shown = request.include_authorized_operations and group.error is ErrorCode.NONE
        described.append(
            r.DescribedGroup(
                error_code=group.error,
                group_id=group_id,
                group_state=group.state,
                protocol_type=group.protocol_type,
                protocol_data=group.protocol,
                members=[
                    r.DescribedGroupMember(
                        member_id=m.member_id,
                        group_instance_id=m.instance_id,
                        client_id=m.client_id,
                        client_host=m.client_host,
                        member_metadata=m.metadata,
                        member_assignment=m.assignment,
                    )
                    for m in group.members
                ],
                authorized_operations=authorized_operations(
                    server.authorizer, conn, GROUP, group_id
                )
                if shown
                else UNKNOWN_OPERATIONS,
            )
        )
        texts = sum(len(m.metadata) + len(m.assignment) + len(m.client_id) for m in group.members)
        yield ELEMENT_BYTES * (1 + len(group.members)) + texts
    return r(groups=described)


def list_groups(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: ListGroupsRequest
) -> Parts | Later:
    return respond_in_steps(server, conn, header, _listed(server, conn, header, request))


def _listed(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: ListGroupsRequest
) -> Steps:
    sees_all = allowed(server.authorizer, conn, header.api_key, DESCRIBE, log_denied=False)
    error, groups = server.groups.list_groups(request.states_filter, request.types_filter)
    r = ListGroupsResponse
    listed = []
    for number, g in enumerate(groups, 1):
        if sees_all or allowed(
            server.authorizer, conn, header.api_key, DESCRIBE, GROUP, g.group_id, log_denied=False
        ):
            listed.append(
                r.ListedGroup(
                    group_id=g.group_id,
                    protocol_type=g.protocol_type,
                    group_state=g.state,
                    group_type=g.group_type,
                )
            )
        if not number % STEP:
            yield STEP * ELEMENT_BYTES
    return r(error_code=error, groups=listed)


def delete_groups(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: DeleteGroupsRequest
) -> Parts:
    r = DeleteGroupsResponse
    groups = server.groups
    results = [
        r.DeletableGroupResult(group_id=group_id, error_code=groups.delete(group_id))
        for group_id in dict.fromkeys(request.groups_names)
    ]
    return respond(header, r(results=results))


DESCRIBE_GROUPS = Api(
    DescribeGroupsRequest,
    describe_groups,
    access=Access(each=each_named(Need(DESCRIBE, GROUP), "groups", "groups")),
    error=error_response(DescribeGroupsResponse, "groups"),
    large=in_portions("groups", "groups", once=itself),
    large_response=True,
)
LIST_GROUPS = Api(
    ListGroupsRequest,
    list_groups,
    access=Access(
        handler=(
            Need(DESCRIBE, note="to be shown all groups, or of each group shown:"),
            Need(DESCRIBE, GROUP, "group_id"),
        )
    ),
    error=error_response(ListGroupsResponse),
    large_response=True,
)
DELETE_GROUPS = Api(
    DeleteGroupsRequest,
    delete_groups,
    access=Access(each=each_named(Need(DELETE, GROUP), "groups_names", "results")),
    error=error_response(DeleteGroupsResponse, "groups_names", "results"),
    large=in_portions("groups_names", "results", many=MANY_CHANGES, once=itself),
)
