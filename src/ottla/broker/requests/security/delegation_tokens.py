"""CreateDelegationToken, Renew, Expire and Describe: tokens for authenticated clients (KIP-48).

Invariants: a client that authenticated by a token, or not at all, gets and renews none; a token's
secret goes to those who may describe it, and into no log line. Any broker serves them, as in
Kafka's ZooKeeper mode. Kafka: `KafkaApis.handleCreateTokenRequestZk` and its neighbours,
`DelegationTokenManagerZk`.
"""

import base64
import logging
import secrets
from typing import Any

from ottla.broker.authorization.request_authorizer import allowed
from ottla.broker.requests.access import Access, Need
from ottla.broker.requests.api import Api, Later, Parts
from ottla.broker.requests.responses import ELEMENT_BYTES, Steps, respond, respond_in_steps
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, OttlaError
from ottla.net.connection import Connection
from ottla.security.acls import (
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DESCRIBE,
    DESCRIBE_TOKENS,
    USER,
)
from ottla.security.delegation_tokens import Token, new_token, token_hmac
from ottla.security.principals import ANONYMOUS, USER_TYPE, Principal
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

logger = logging.getLogger(__name__)

NO_TIME = -1
MOST_RENEWERS, MOST_RENEWER_CHARACTERS = 1_000, 100_000
"""Of one token. Each broker reads all of them with the token, and keeps them until it expires."""
FIRST_WITH_REQUESTER = 3
"""The first version of Create and Describe that tells who asked for a token."""


class TokenError(OttlaError):
    """A request about a token that is refused; responses carry the code alone."""


def _check_allowed(server: BrokerServices, conn: Connection) -> None:
    """Raise TokenError for a connection by which no token may be had."""
    protocols = {e.listener: e.protocol for e in server.config.listeners}
    protocol = protocols.get(conn.listener, "")
    authentication = conn.authentication
    identity = None if authentication is None else authentication.identity
    by_token = identity is not None and identity.by_delegation_token
    if by_token or protocol == "PLAINTEXT" or (protocol == "SSL" and conn.principal == ANONYMOUS):
        raise TokenError("not on this connection", ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _check_enabled(server: BrokerServices) -> None:
    if not server.delegation_tokens.enabled:
        raise TokenError(
            "delegation.token.secret.key is not set", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        )


async def create(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: CreateDelegationTokenRequest,
) -> Parts:
    """Handle CreateDelegationToken."""
    requester = conn.principal
    name = request.owner_principal_name
    owner = Principal(request.owner_principal_type or "", name) if name else requester
    named: dict[str, Any] = {
        "principal_type": owner.type,
        "principal_name": owner.name,
    }
    if header.api_version >= FIRST_WITH_REQUESTER:
        named["token_requester_principal_type"] = requester.type
        named["token_requester_principal_name"] = requester.name
    try:
        _check_allowed(server, conn)
        if owner != requester and not allowed(
            server.authorizer, conn, header.api_key, CREATE_TOKENS, USER, str(owner)
        ):
            raise TokenError("of others", ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        renewers = [Principal(r.principal_type, r.principal_name) for r in request.renewers]
        characters = sum(len(r.type) + len(r.name) for r in renewers)
        if len(renewers) > MOST_RENEWERS or characters > MOST_RENEWER_CHARACTERS:
            raise TokenError("too many renewers", ErrorCode.INVALID_REQUEST)
        if any(renewer.type != USER_TYPE for renewer in renewers):
            raise TokenError("renewers must be users", ErrorCode.INVALID_PRINCIPAL_TYPE)
        _check_enabled(server)
        token = new_token(
            base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("="),
            owner,
            requester,
            renewers,
            server.world.clock.wall_ms(),
            (
                request.max_lifetime_ms,
                server.config.integer("delegation.token.max.lifetime.ms"),
                server.config.integer("delegation.token.expiry.time.ms"),
            ),
        )
        await server.delegation_tokens.put(server.session.store.tokens, token)
    except OttlaError as error:
        return respond(header, _not_created(error.code, **named))
    logger.info("delegation token created entity=%s", owner)
    response = CreateDelegationTokenResponse(
        **named,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.id,
        hmac=token_hmac(server.delegation_tokens.key, token.id),
    )
    return respond(header, response)


def _not_created(code: int, **named: Any) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
        **named,
    )


def _found(server: BrokerServices, conn: Connection, secret: bytes) -> Token:
    """Return the token with a secret, if the client may renew and end it; TokenError."""
    _check_allowed(server, conn)
    _check_enabled(server)
    token = server.delegation_tokens.of_hmac(secret)
    if token is None:
        raise TokenError("no such token", ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if not token.may_renew(conn.principal):
        raise TokenError("of another owner", ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    return token


def _check_not_expired(token: Token, now_ms: int) -> None:
    if token.expired(now_ms):
        raise TokenError("expired", ErrorCode.DELEGATION_TOKEN_EXPIRED)


async def renew(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: RenewDelegationTokenRequest,
) -> Parts:
    """Handle RenewDelegationToken. A negative period: the default one."""
    token = _found(server, conn, bytes(request.hmac))
    now_ms = server.world.clock.wall_ms()
    _check_not_expired(token, now_ms)
    period_ms = request.renew_period_ms
    if period_ms < 0:
        period_ms = server.config.integer("delegation.token.expiry.time.ms")
    token = token.until(now_ms, period_ms)
    await server.delegation_tokens.put(server.session.store.tokens, token)
    return respond(header, RenewDelegationTokenResponse(expiry_timestamp_ms=token.expires_ms))


async def expire(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: ExpireDelegationTokenRequest,
) -> Parts:
    """Handle ExpireDelegationToken. A negative period: at once."""
    token = _found(server, conn, bytes(request.hmac))
    now_ms = server.world.clock.wall_ms()
    if request.expiry_time_period_ms < 0:
        await server.delegation_tokens.remove(server.session.store.tokens, token.id)
        return respond(header, ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
    _check_not_expired(token, now_ms)
    token = token.until(now_ms, request.expiry_time_period_ms)
    await server.delegation_tokens.put(server.session.store.tokens, token)
    return respond(header, ExpireDelegationTokenResponse(expiry_timestamp_ms=token.expires_ms))


def describe(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: DescribeDelegationTokenRequest,
) -> Parts | Later:
    """Handle DescribeDelegationToken: the tokens of the owners that are named, or of all."""
    _check_allowed(server, conn)
    _check_enabled(server)
    return respond_in_steps(server, conn, header, _all_described(server, conn, header, request))


def _all_described(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: DescribeDelegationTokenRequest,
) -> Steps:
    wanted: set[Principal] | None = None
    if request.owners is not None:
        wanted = {Principal(o.principal_type, o.principal_name) for o in request.owners}
        yield 0
    named = header.api_version >= FIRST_WITH_REQUESTER
    tokens = []
    for token in list(server.delegation_tokens):
        asked_for = wanted is None or not wanted.isdisjoint((token.owner, *token.renewers))
        if asked_for and _is_shown(server, conn, header, token):
            tokens.append(_described(server, token, with_requester=named))
            yield 5 * ELEMENT_BYTES + ELEMENT_BYTES * len(token.renewers)
        else:
            yield 0
    return DescribeDelegationTokenResponse(tokens=tokens)


def _is_shown(
    server: BrokerServices, conn: Connection, header: RequestHeader, token: Token
) -> bool:
    """Return whether a client may see a token: its own, or one that ACLs show it."""
    return token.owner_or_renewer(conn.principal) or any(
        allowed(server.authorizer, conn, header.api_key, operation, kind, name, log_denied=False)
        for operation, kind, name in (
            (DESCRIBE, DELEGATION_TOKEN, token.id),
            (DESCRIBE_TOKENS, USER, str(token.owner)),
        )
    )


def _described(
    server: BrokerServices, token: Token, *, with_requester: bool
) -> DescribeDelegationTokenResponse.DescribedDelegationToken:
    r = DescribeDelegationTokenResponse
    return r.DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type if with_requester else "",
        token_requester_principal_name=token.requester.name if with_requester else "",
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=token_hmac(server.delegation_tokens.key, token.id),
        renewers=[
            r.DescribedDelegationTokenRenewer(principal_type=p.type, principal_name=p.name)
            for p in token.renewers
        ],
    )


CREATE_DELEGATION_TOKEN = Api(
    CreateDelegationTokenRequest,
    create,
    access=Access(handler=(Need(CREATE_TOKENS, USER, "owner", "the token is for another owner"),)),
    error=lambda _request, _version, code, _message: _not_created(code),
)
RENEW_DELEGATION_TOKEN = Api(
    RenewDelegationTokenRequest,
    renew,
    access=Access(open="only a token's owner and its renewers may"),
    error=lambda _request, _version, code, _message: RenewDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=NO_TIME
    ),
)
EXPIRE_DELEGATION_TOKEN = Api(
    ExpireDelegationTokenRequest,
    expire,
    access=Access(open="only a token's owner and its renewers may"),
    error=lambda _request, _version, code, _message: ExpireDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=NO_TIME
    ),
)
DESCRIBE_DELEGATION_TOKEN = Api(
    DescribeDelegationTokenRequest,
    describe,
    access=Access(
        handler=(
            Need(DESCRIBE, DELEGATION_TOKEN, "token_id", "the token is of another owner, or:"),
            Need(DESCRIBE_TOKENS, USER, "owner", "the token is of another owner"),
        )
    ),
    error=lambda _request, _version, code, _message: DescribeDelegationTokenResponse(
        error_code=code
    ),
    large_response=True,
)
