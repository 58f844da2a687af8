"""Guards: what stands between the router and a handler where there is an authorizer.

Invariants: a handler never sees what its client may not ask for, except where its `Access` says
that it checks by itself; without an authorizer there is no guard at all, and nothing costs
anything; a client that may do all it asks for costs one question for each resource. A refusal is
made of the API's own error body.

A request of which a part is refused: the handler gets the rest; its response is decoded again to
get the refused elements. Kafka: the calls of `AuthHelper` in `KafkaApis`.
"""

from collections.abc import Coroutine
from types import CoroutineType
from typing import Any, cast

from ottla.broker.authorization.request_authorizer import RequestAuthorizer
from ottla.broker.requests.access import ERRORS, MESSAGES, Access, ForEach, Need
from ottla.broker.requests.api import AnyApi, Handle, HandleInSlices, Later, Parts, Response
from ottla.broker.requests.large_requests import Aside, decoded
from ottla.broker.requests.responses import Unencoded, respond, respond_in_slices
from ottla.broker.services import BrokerServices
from ottla.model.errors import OttlaError
from ottla.net.connection import CloseConnection, Connection
from ottla.security.acls import CLUSTER_NAME
from ottla.wire.headers import RequestHeader
from ottla.wire.portions import elements, with_elements
from ottla.wire.schema import Message


class Refusal(OttlaError):  # noqa: N818 - a decision, not a failure
    """The client may not do what the request as a whole needs."""


class _Asking:
    """The sender of one request. See `access.Asking`."""

    __slots__ = ("_api_key", "_authorizer", "_conn")

    def __init__(self, authorizer: RequestAuthorizer, conn: Connection, api_key: int) -> None:
        self._authorizer = authorizer
        self._conn = conn
        self._api_key = api_key

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        return self._authorizer.allows(self._conn, self._api_key, operation, resource_type, name)

    def may_quietly(self, operation: int, resource_type: int, name: str) -> bool:
        return self._authorizer.allows(
            self._conn, self._api_key, operation, resource_type, name, log_denied=False
        )

    def may_any(self, operation: int, resource_type: int) -> bool:
        return self._authorizer.allows_any(self._conn, self._api_key, operation, resource_type)


def refusal(need: Need) -> Refusal:
    """Return the error of a request that lacks a need."""
    return Refusal("", ERRORS[need.resource_type])


def _check_whole(access: Access, asking: _Asking, header: RequestHeader, request: Message) -> None:
    """Raise the error of the first need of the whole request that is not met."""
    for any_of in access.whole:
        *others, last = any_of
        for need in others:
            if asking.may_quietly(need.operation, need.resource_type, need.name_in(request)):
                break
        else:
            if not asking.may(last.operation, last.resource_type, last.name_in(request)):
                raise refusal(last)
    if access.check is not None:
        access.check(asking, header, request)


def guarded(api: AnyApi, authorizer: RequestAuthorizer | None) -> Handle[Any]:
    """Return the handler of an API with its guard in front."""
    access, handle = api.access, api.handle
    if authorizer is None or not (access.whole or access.check or access.each):
        return handle
    api_key = int(api.key)
    each = access.each
    asks = bool(access.whole) or access.check is not None

    def guard(
        server: BrokerServices, conn: Connection, header: RequestHeader, request: Message
    ) -> "Response | Later":
        if asks:
            _check_whole(access, _Asking(authorizer, conn, api_key), header, request)
        if each is not None:
            refused = _refused(each, authorizer, conn, api_key, request)
            if refused:
                return _handle_rest(api, each, server, conn, header, request, refused)
        return handle(server, conn, header, request)

    return guard


def guarded_in_slices(
    api: AnyApi, handle: HandleInSlices[Any], authorizer: RequestAuthorizer | None
) -> HandleInSlices[Any]:
    """Return the same for a handler of requests that were read in slices."""
    access = api.access
    if authorizer is None:
        return handle
    assert access.each is None, "a request that is read in slices needs something as a whole"
    api_key = int(api.key)

    async def guard(
        server: BrokerServices, conn: Connection, header: RequestHeader, request: Message
    ) -> Parts:
        _check_whole(access, _Asking(authorizer, conn, api_key), header, request)
        return await handle(server, conn, header, request)

    return guard


def _refused(
    each: ForEach, authorizer: RequestAuthorizer, conn: Connection, api_key: int, request: Message
) -> dict[int, Need]:
    """Return the places of elements that may not be handled, with the need that each lacks."""
    unless = each.unless
    allows = authorizer.allows
    if unless is not None and allows(
        conn, api_key, unless.operation, unless.resource_type, CLUSTER_NAME, log_denied=False
    ):
        return {}
    found: dict[int, Need] = {}
    for place, element in enumerate(elements(request, each.asked)):
        need = each.need(element)
        if need is None:
            continue
        operation, kind, _, _ = need
        if not allows(conn, api_key, operation, kind, need.name_in(element)):
            found[place] = need
    return found


def _handle_rest(
    api: AnyApi,
    each: ForEach,
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: Message,
    refused: dict[int, Need],
) -> "Response | Later":
    """Handle what is allowed, and add to the response what is not."""
    asked = elements(request, each.asked)
    additions = []
    error = each.error or api.error
    for need in dict.fromkeys(refused.values()):
        part = with_elements(
            request, each.asked, [asked[p] for p, n in refused.items() if n == need]
        )
        message = MESSAGES.get(need.resource_type) if each.with_message else None
        code = int(ERRORS[need.resource_type])
        additions.append(error(part, header.api_version, code, message))
    allowed = [e for p, e in enumerate(asked) if p not in refused]
    rest = with_elements(request, each.asked, allowed)
    if getattr(request, "acks", 1) == 0:
        _without_response(api, server, conn, header, rest)
    if not allowed and not each.handles_none:
        return respond(header, _joined(additions[0], additions[1:], each))
    aside = Aside(conn)
    outcome = api.handle(server, cast("Connection", aside), header, rest)
    return _complete(server, conn, header, each, aside, outcome, additions)


def _without_response(
    api: AnyApi, server: BrokerServices, conn: Connection, header: RequestHeader, rest: Any
) -> None:
    """Produce with acks=0: there is no other way to say that a part was refused."""
    if rest.topic_data:
        api.handle(server, conn, header, rest)
    raise CloseConnection("not authorized to produce to a topic")


async def _complete(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    each: ForEach,
    aside: Aside,
    outcome: "Response | Coroutine[Any, Any, Parts]",
    additions: list[Any],
) -> Parts:
    if isinstance(outcome, CoroutineType):
        parts = await outcome
    else:
        parts = await aside.parts(cast("Response", outcome))
    whole = _joined(decoded(header, parts), additions, each)
    if not isinstance(parts, Unencoded):
        return respond(header, whole)
    if getattr(conn, "joins_responses", False):
        return Unencoded(whole, parts.size)
    return await respond_in_slices(header, whole, server.world.clock)


def _joined(response: Message, additions: list[Any], each: ForEach) -> Any:
    if getattr(response, "error_code", 0):
        return response  # the request failed as a whole
    into = elements(response, each.responded)
    for addition in additions:
        into.extend(elements(addition, each.responded))
    return response
