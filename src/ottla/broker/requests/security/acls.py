"""DescribeAcls, CreateAcls, DeleteAcls: the cluster's access rules.

Invariants: any broker with an authorizer serves them, without one the response is
SECURITY_DISABLED; the number of "unknown" closes the connection, as in Kafka; what a filter deletes
is said of the first filter that selects it. Kafka: `AclApis`, and of `AclAuthorizer` `createAcls`,
`deleteAcls` and `acls` (KIP-140, KIP-290).
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from ottla.broker.authorization.acl_cache import AclCache
from ottla.broker.requests.access import on_cluster
from ottla.broker.requests.api import Api, Later, Parts
from ottla.broker.requests.responses import ELEMENT_BYTES, STEP, Steps, respond, respond_in_steps
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, InvalidRequestError, OttlaError
from ottla.model.time_slices import TimeSlice
from ottla.net.connection import CloseConnection, Connection
from ottla.security.acls import (
    ALTER,
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    DESCRIBE,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    UNKNOWN,
    Acl,
    AclFilter,
    Entry,
    Pattern,
    parse_principal,
)
from ottla.security.authorizer import AclAuthorizer
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from ottla.wire.portions import MANY_CHANGES, in_portions


class SecurityDisabledError(OttlaError):
    """There is no authorizer on this broker."""

    code = ErrorCode.SECURITY_DISABLED


class FilterFields(Protocol):
    """The fields of a request that make a filter."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def _cache(server: BrokerServices) -> AclCache:
    if server.acl_cache is None:
        raise SecurityDisabledError("No Authorizer is configured.")
    return server.acl_cache


def _filter(asked: FilterFields) -> AclFilter:
    """Return the filter of a request; CloseConnection if a part of it is unknown here."""
    found = AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
    _check_known(found.resource_type, found.pattern_type, found.operation, found.permission)
    return found


def _check_known(*numbers: int) -> None:
    """Raise CloseConnection for what is said to be unknown; any other number just matches none."""
    if UNKNOWN in numbers:
        raise CloseConnection("a request for ACLs names something unknown")


# --- Describe -----------------------------------------------------------------------------------


def describe(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: DescribeAclsRequest
) -> Parts | Later:
    wanted = _filter(request)
    if server.acl_cache is None:
        raise SecurityDisabledError("No Authorizer is configured on the broker")
    return respond_in_steps(server, conn, header, _described(server.acl_cache.authorizer, wanted))


def _described(authorizer: AclAuthorizer, wanted: AclFilter) -> Steps:
    r = DescribeAclsResponse
    resources: dict[Pattern, DescribeAclsResponse.DescribeAclsResource] = {}
    for number, acl in enumerate(_selected(authorizer, wanted), 1):
        if acl is None:
            yield 0
            continue
        if not number % STEP:
            yield STEP * ELEMENT_BYTES
        kind, name, pattern_type = acl.pattern
        resource = resources.get(acl.pattern)
        if resource is None:
            resource = resources[acl.pattern] = r.DescribeAclsResource(
                resource_type=kind, resource_name=name, pattern_type=pattern_type, acls=[]
            )
        entry = acl.entry
        resource.acls.append(
            r.AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return r(resources=list(resources.values()))


def _selected(authorizer: AclAuthorizer, wanted: AclFilter) -> Iterator[Acl | None]:
    """Yield the ACLs that a filter selects, and None now and then while it selects none."""
    for number, pattern in enumerate(authorizer.patterns(), 1):
        if wanted.selects(pattern):
            found = (Acl(pattern, entry) for entry in authorizer.entries(pattern))
            yield from filter(wanted.matches, found)
        elif not number % STEP:
            yield None


# --- Create -------------------------------------------------------------------------------------


async def create(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: CreateAclsRequest
) -> Parts:
    for asked in request.creations:
        _check_known(
            asked.resource_type,
            asked.resource_pattern_type,
            asked.operation,
            asked.permission_type,
        )
    cache = _cache(server)
    acls = [_acl(asked) for asked in request.creations]
    errors: dict[int, OttlaError] = {}
    by_pattern: dict[Pattern, list[int]] = {}
    for number, acl in enumerate(acls):
        try:
            _check(acl)
        except OttlaError as error:
            errors[number] = error
        else:
            by_pattern.setdefault(acl.pattern, []).append(number)
    for pattern, numbers in by_pattern.items():
        try:
            await _add(server, cache, pattern, [acls[n].entry for n in numbers])
        except OttlaError as error:
            errors |= dict.fromkeys(numbers, error)
    one = CreateAclsResponse.AclCreationResult
    results = []
    for number in range(len(acls)):
        failure = errors.get(number)
        code = ErrorCode.NONE if failure is None else failure.code
        message = None if failure is None else str(failure) or None
        results.append(one(error_code=code, error_message=message))
    return respond(header, CreateAclsResponse(results=results))


def _acl(asked: CreateAclsRequest.AclCreation) -> Acl:
    if ANY in (asked.resource_type, asked.operation, asked.permission_type):
        raise OttlaError("an ACL is about one thing, not about any")
    if asked.resource_pattern_type in (ANY, MATCH):
        raise OttlaError("a pattern is literal or prefixed")
    pattern = Pattern(asked.resource_type, asked.resource_name, asked.resource_pattern_type)
    entry = Entry(asked.principal, asked.host, asked.operation, asked.permission_type)
    return Acl(pattern, entry)


def _check(acl: Acl) -> None:
    """Raise what is wrong with an ACL that is to be created. Kafka's messages."""
    pattern, entry = acl
    if pattern.resource_type == CLUSTER and pattern.name != CLUSTER_NAME:
        raise InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not pattern.name:
        raise InvalidRequestError("Invalid empty resource name")
    known = (
        pattern.resource_type in RESOURCE_TYPES
        and pattern.pattern_type in PATTERN_TYPES
        and entry.operation in OPERATIONS
        and entry.permission in PERMISSIONS
    )
    if "/" in pattern.name or not known:
        raise InvalidRequestError("Failed to create ACL")


async def _add(
    server: BrokerServices, cache: AclCache, pattern: Pattern, entries: Sequence[Entry]
) -> None:
    for entry in entries:
        if parse_principal(entry.principal) is None:
            raise OttlaError(
                f"expected a string in format principalType:principalName but got {entry.principal}"
            )

    async def with_them(known: frozenset[Entry]) -> frozenset[Entry]:
        return known | frozenset(entries)

    await cache.change(server.session.store.acls, pattern, with_them)


# --- Delete -------------------------------------------------------------------------------------


async def delete(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: DeleteAclsRequest
) -> Parts:
    r = DeleteAclsResponse
    filters = [_filter(asked) for asked in request.filters]
    cache = _cache(server)
    results = [r.DeleteAclsFilterResult(matching_acls=[]) for _ in filters]
    first: dict[AclFilter, int] = {}
    by_pattern: dict[Pattern, list[int]] = {}
    broad: list[tuple[int, AclFilter]] = []
    for number, wanted in enumerate(filters):
        if first.setdefault(wanted, number) != number:
            continue  # what it selects is deleted by the one before
        patterns = wanted.patterns
        for pattern in patterns:
            by_pattern.setdefault(pattern, []).append(number)
        if not patterns:
            broad.append((number, wanted))
    time_slice = TimeSlice(server.world.clock)
    known = cache.authorizer.patterns()
    for pattern in dict.fromkeys([*known, *by_pattern]):
        selecting = list(by_pattern.get(pattern, ()))
        for number, wanted in broad:
            if wanted.selects(pattern):
                selecting.append(number)
            await time_slice.checkpoint()
        selecting.sort()
        if not selecting:
            continue
        deleted: dict[Entry, int] = {}
        code, message = ErrorCode.NONE, None
        try:
            await _remove(server, cache, pattern, [(n, filters[n]) for n in selecting], deleted)
        except OttlaError as error:
            code, message = error.code, str(error)
        for entry, number in deleted.items():
            results[number].matching_acls.append(
                r.DeleteAclsMatchingAcl(
                    error_code=code,
                    error_message=message,
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
            )
    return respond(header, r(filter_results=results))


async def _remove(
    server: BrokerServices,
    cache: AclCache,
    pattern: Pattern,
    filters: Sequence[tuple[int, AclFilter]],
    deleted: dict[Entry, int],
) -> None:
    """Delete what the filters select; note in `deleted` by which of them."""

    async def rest(entries: frozenset[Entry]) -> frozenset[Entry]:
        deleted.clear()
        time_slice = TimeSlice(server.world.clock)
        for entry in entries:
            for number, selected in filters:
                if selected.matches(Acl(pattern, entry)):
                    deleted[entry] = number
                    break
                await time_slice.checkpoint()
        return entries - deleted.keys()

    await cache.change(server.session.store.acls, pattern, rest)


DESCRIBE_ACLS = Api(
    DescribeAclsRequest,
    describe,
    access=on_cluster(DESCRIBE),
    error=error_response(DescribeAclsResponse),
    large_response=True,
)
CREATE_ACLS = Api(
    CreateAclsRequest,
    create,
    access=on_cluster(ALTER),
    error=error_response(CreateAclsResponse, "creations", "results"),
    large=in_portions("creations", "results", many=MANY_CHANGES),
)
DELETE_ACLS = Api(
    DeleteAclsRequest,
    delete,
    access=on_cluster(ALTER),
    error=error_response(DeleteAclsResponse, "filters", "filter_results"),
    large=in_portions("filters", "filter_results", many=MANY_CHANGES),
)
