"""ACLs of a running cluster: listed, added and removed over the wire, with any Kafka.

Invariants: nothing but what is named is added or removed. Kafka: `AclCommand` with
`--bootstrap-server`.
"""

from collections.abc import Sequence
from typing import TypedDict

from ottla.client.client import Client
from ottla.client.error_texts import explained, with_way_out
from ottla.model.errors import ErrorCode, OttlaError
from ottla.security.acls import Acl, AclFilter, Entry, Pattern
from ottla.wire.messages.security import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

NO_AUTHORIZER = (
    "the brokers have no authorizer, so everyone may do everything: set super.users and "
    "authorizer.class.name on each broker, to kafka.security.authorizer.AclAuthorizer (with KRaft: "
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer)"
)


def _failure(what: str, code: int, message: str | None) -> OttlaError:
    if code == ErrorCode.SECURITY_DISABLED:
        return OttlaError(f"{what}: {NO_AUTHORIZER}", ErrorCode(code))
    return OttlaError(with_way_out(f"{what}: {message or explained(code)}", code), ErrorCode(code))


class _Filter(TypedDict):
    """What DescribeAcls and DeleteAcls both say of a filter."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def _filter(wanted: AclFilter) -> _Filter:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _exactly(acl: Acl) -> AclFilter:
    """Return the filter that selects this ACL and no other."""
    pattern, entry = acl
    return AclFilter(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )


async def find(client: Client, wanted: AclFilter) -> list[Acl]:
    """Return the ACLs that a filter selects, in order."""
    response = await client.call(DescribeAclsRequest(**_filter(wanted)))
    if response.error_code:
        raise _failure("acls not listed", response.error_code, response.error_message)
    return sorted(
        Acl(
            Pattern(resource.resource_type, resource.resource_name, resource.pattern_type),
            Entry(acl.principal, acl.host, acl.operation, acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
    )


async def add(client: Client, acls: Sequence[Acl]) -> None:
    """Add ACLs; OttlaError naming the first that was refused, the others are there."""
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=acl.pattern.resource_type,
            resource_name=acl.pattern.name,
            resource_pattern_type=acl.pattern.pattern_type,
            principal=acl.entry.principal,
            host=acl.entry.host,
            operation=acl.entry.operation,
            permission_type=acl.entry.permission,
        )
        for acl in acls
    ]
    response = await client.call(CreateAclsRequest(creations=creations))
    for acl, result in zip(acls, response.results, strict=True):
        if result.error_code:
            raise _failure(f"not added: {acl}", result.error_code, result.error_message)


async def remove(client: Client, acls: Sequence[Acl]) -> int:
    """Remove exactly these ACLs; return how many were there."""
    filters = [DeleteAclsRequest.DeleteAclsFilter(**_filter(_exactly(acl))) for acl in acls]
    response = await client.call(DeleteAclsRequest(filters=filters))
    removed = 0
    for acl, result in zip(acls, response.filter_results, strict=True):
        if result.error_code:
            raise _failure(f"not removed: {acl}", result.error_code, result.error_message)
        for match in result.matching_acls:
            if match.error_code:
                raise _failure(f"not removed: {acl}", match.error_code, match.error_message)
            removed += 1
    return removed
