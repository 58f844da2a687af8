"""DescribeUserScramCredentials and AlterUserScramCredentials: SCRAM users in ZooKeeper (KIP-554).

Invariants: the controller alone alters them; what is written is what Kafka writes, beside a user's
quotas, and the change notification follows; no response and no log line has a salt or a key;
messages are Kafka's. Kafka: `ZkAdminManager.describeUserScramCredentials` and
`alterUserScramCredentials`.
"""

import logging
from collections import Counter
from collections.abc import Mapping

from ottla.broker.configs.scram_users import credentials_of
from ottla.broker.quotas.quota_settings import USERS
from ottla.broker.requests.access import on_cluster
from ottla.broker.requests.api import Api, Parts
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, NotControllerError, OttlaError
from ottla.net.connection import Connection
from ottla.security.acls import ALTER, DESCRIBE
from ottla.security.sasl.scram import (
    BY_NUMBER,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    credential_of,
    credential_text,
)
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.zookeeper.znodes import DEFAULT_ENTITY, desanitize, sanitize

logger = logging.getLogger(__name__)

NO_ZNODES = (".", "..")
"""Names that no znode can have, sanitized or not. Kafka's broker fails on them."""
EMPTY_NAME = "Username must not be empty"
_Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion


class UserError(OttlaError):
    """Why nothing of a user is altered."""


async def describe(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: DescribeUserScramCredentialsRequest,
) -> Parts:
    """Handle DescribeUserScramCredentials: all users, or those named."""
    store = server.session.store
    if not request.users:
        names = await store.configs.get_names(USERS)
        settings = await store.configs.get_many(USERS, names)
        users = {desanitize(n): found for n, found in settings.items() if n != DEFAULT_ENTITY}
        described = [_described(user, found) for user, found in users.items()]
        results = [result for result in described if result.credential_infos]
        return respond(header, DescribeUserScramCredentialsResponse(results=results))
    counts = Counter(user.name for user in request.users)
    twice = [name for name, count in counts.items() if count > 1]
    response = DescribeUserScramCredentialsResponse()
    for name, count in counts.items():
        if name == "":
            code = ErrorCode.RESOURCE_NOT_FOUND
            result = _Described(user=name, error_code=code, error_message=EMPTY_NAME)
        elif count > 1:
            code = ErrorCode.DUPLICATE_RESOURCE
            result = _Described(
                user=name,
                error_code=code,
                error_message="Cannot describe SCRAM credentials for the same user twice in a "
                f"single request: {', '.join(twice)}",
            )
        elif name in NO_ZNODES:
            result = _described(name, {})
        else:
            result = _described(name, await store.configs.get(USERS, sanitize(name)))
        response.results.append(result)
    return respond(header, response)


def _described(user: str, settings: Mapping[str, str]) -> _Described:
    found = credentials_of(sanitize(user), settings)
    if not found:
        return _Described(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message="Attempt to describe a user credential that does not exist: " + user,
        )
    info = DescribeUserScramCredentialsResponse.CredentialInfo
    infos = [info(mechanism=m.number, iterations=c.iterations) for m, c in found.items()]
    return _Described(user=user, credential_infos=infos)


async def alter(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: AlterUserScramCredentialsRequest,
) -> Parts:
    """Handle AlterUserScramCredentials: each user for itself, all of a user's changes or none."""
    if not server.controller.is_active:
        raise NotControllerError("This is not the correct controller for this cluster.")
    changes: dict[str, list[_Upsertion | _Deletion]] = {}
    for change in _changes(request):
        changes.setdefault(change.name, []).append(change)
    response = AlterUserScramCredentialsResponse()
    for user, wanted in changes.items():
        code, message = ErrorCode.NONE, ""
        try:
            await _alter(server, user, wanted)
        except OttlaError as error:
            logger.info("credentials not altered entity=users/%s error=%s", user, error)
            code, message = error.code, str(error)
        response.results.append(_result(user, code, message))
    return respond(header, response)


def _changes(request: AlterUserScramCredentialsRequest) -> list[_Upsertion | _Deletion]:
    changes: list[_Upsertion | _Deletion] = list(request.deletions)
    return changes + list(request.upsertions)


def _result(
    user: str, code: int, message: str | None
) -> AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
        user=user, error_code=code, error_message=message
    )


async def _alter(server: BrokerServices, user: str, changes: list[_Upsertion | _Deletion]) -> None:
    mechanisms = [_mechanism(change) for change in changes]
    if len(set(mechanisms)) < len(mechanisms):
        raise UserError(
            "A user credential cannot be altered twice in the same request",
            ErrorCode.DUPLICATE_RESOURCE,
        )
    if user in NO_ZNODES:
        raise UserError(f"No user can be called {user}", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    store, name = server.session.store, sanitize(user)
    settings = await store.configs.get(USERS, name)
    for change, mechanism in zip(changes, mechanisms, strict=True):
        if isinstance(change, _Upsertion):
            credential = credential_of(
                mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
            )
            settings[mechanism.sasl_name] = credential_text(credential)
        elif settings.pop(mechanism.sasl_name, None) is None:
            raise UserError(
                "Attempt to delete a user credential that does not exist",
                ErrorCode.RESOURCE_NOT_FOUND,
            )
    if settings or not await store.configs.drop(USERS, name):
        await store.configs.set(USERS, name, settings)
    await store.configs.changes.notify(f"{USERS}/{name}")
    logger.info(
        "credentials altered entity=users/%s keys=%s",
        name,
        ",".join(mechanism.sasl_name for mechanism in mechanisms),
    )


def _mechanism(change: _Upsertion | _Deletion) -> ScramMechanism:
    """Return the mechanism of a change that may be made; UserError."""
    if change.name == "":
        raise UserError(EMPTY_NAME, ErrorCode.UNACCEPTABLE_CREDENTIAL)
    mechanism = BY_NUMBER.get(change.mechanism)
    if mechanism is None:
        raise UserError("Unknown SCRAM mechanism", ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    if isinstance(change, _Upsertion):
        if change.iterations > MAX_ITERATIONS:
            raise UserError("Too many iterations", ErrorCode.UNACCEPTABLE_CREDENTIAL)
        if not change.salted_password:
            # Kafka fails on an empty key within: UNKNOWN_SERVER_ERROR.
            raise UserError(
                "The salted password must not be empty", ErrorCode.UNACCEPTABLE_CREDENTIAL
            )
        if change.iterations < MIN_ITERATIONS:
            raise UserError("Too few iterations", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    return mechanism


def _alter_error(
    request: AlterUserScramCredentialsRequest, _version: int, code: int, message: str | None
) -> AlterUserScramCredentialsResponse:
    names = dict.fromkeys(change.name for change in _changes(request))
    return AlterUserScramCredentialsResponse(results=[_result(n, code, message) for n in names])


def _describe_error(
    request: DescribeUserScramCredentialsRequest, _version: int, code: int, message: str | None
) -> DescribeUserScramCredentialsResponse:
    """Kafka has a result for each user that was named, without the name."""
    results = [
        _Described(user="", error_code=code, error_message=None) for _ in request.users or ()
    ]
    return DescribeUserScramCredentialsResponse(
        error_code=code, error_message=message, results=results
    )


DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    DescribeUserScramCredentialsRequest,
    describe,
    access=on_cluster(DESCRIBE),
    error=_describe_error,
    large_response=True,
)
ALTER_USER_SCRAM_CREDENTIALS = Api(
    AlterUserScramCredentialsRequest,
    alter,
    access=on_cluster(ALTER),
    error=_alter_error,
)
