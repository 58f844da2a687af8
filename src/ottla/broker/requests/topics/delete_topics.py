"""DeleteTopics: topics marked for deletion, by the broker that is the controller.

Invariants: what is marked stays marked, whatever the response says: the controller deletes it as
soon as all its replicas can be reached. The response waits until this broker no longer knows the
topic; REQUEST_TIMED_OUT means that it is still going. Kafka: `KafkaApis.handleDeleteTopicsRequest`
and `ZkAdminManager.deleteTopics` (KIP-516 for ids).
"""

import logging
from collections.abc import Sequence

from ottla.broker.authorization.request_authorizer import allowed
from ottla.broker.quotas.controller_mutation_quota import Charge, ThrottlingQuotaExceededError
from ottla.broker.requests.access import Access, Need
from ottla.broker.requests.api import Api, Later, Parts
from ottla.broker.requests.responses import hold_back, respond
from ottla.broker.services import BrokerServices
from ottla.model.errors import ConnectionLostError, ErrorCode, InvalidRequestError, OttlaError
from ottla.model.ids import ZERO_UUID
from ottla.model.ports import Buffer
from ottla.net.connection import Connection
from ottla.security.acls import DELETE, DESCRIBE, TOPIC
from ottla.wire.apis import ApiKey
from ottla.wire.error_responses import by_version, error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.portions import MANY_CHANGES, in_portions
from ottla.zookeeper.errors import (
    ConnectionLossError,
    NodeExistsError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)

logger = logging.getLogger(__name__)

STRICT_QUOTA = 5
"""From this version on clients know THROTTLING_QUOTA_EXCEEDED."""
FIRST_VERSION_BY_ID = 6
REPLY_LOST = (
    ConnectionLossError,
    ConnectionLostError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
"""ZooKeeper may or may not have done it."""

Result = DeleteTopicsResponse.DeletableTopicResult
Named = tuple[str | None, bytes]


def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: DeleteTopicsRequest,
) -> Parts | Later:
    wanted = _wanted(request, header.api_version)
    refusal = _refusal(server, header.api_version)
    if refusal is not None:
        results = [Result(name=n, topic_id=i, error_code=refusal) for n, i in wanted]
        return respond(header, DeleteTopicsResponse(responses=results))
    if any(name is not None and topic_id != ZERO_UUID for name, topic_id in wanted):
        raise InvalidRequestError
    quota = server.mutation_quotas.quota(conn.principal.name, header, strict_since=STRICT_QUOTA)

    async def work() -> list[Buffer]:
        once = list(dict.fromkeys(wanted))
        deleted = await _delete_all(server, conn, once, request.timeout_ms, quota.charge)
        done = dict(zip(once, deleted, strict=True))
        results = [done[w] for w in wanted]
        hold_back(conn, header, quota.wait_ms())
        return respond(header, DeleteTopicsResponse(responses=results))

    return work()


def _wanted(request: DeleteTopicsRequest, version: int) -> list[Named]:
    """Return (name, id) of each topic asked for; one of the two is unset."""
    if version < FIRST_VERSION_BY_ID:
        return [(name, ZERO_UUID) for name in request.topic_names]
    return [(t.name, bytes(t.topic_id)) for t in request.topics]


def _refusal(server: BrokerServices, version: int) -> ErrorCode | None:
    if not server.controller.is_active:
        return ErrorCode.NOT_CONTROLLER
    if not server.config.flag("delete.topic.enable"):
        return ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
    return None


async def _delete_all(
    server: BrokerServices,
    conn: Connection,
    wanted: Sequence[Named],
    timeout_ms: int,
    charge: Charge,
) -> list[Result]:
    results = []
    going: dict[str, Result] = {}
    for given, topic_id in wanted:
        name = given if topic_id == ZERO_UUID else server.metadata.topic_name(topic_id)
        result = Result(name=name, topic_id=topic_id)
        results.append(result)
        if name is None:
            unnamed = topic_id == ZERO_UUID  # neither name nor id: so Kafka responds
            result.error_code = (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED if unnamed else ErrorCode.UNKNOWN_TOPIC_ID
            )
        elif topic_id != ZERO_UUID and not _may(server, conn, DESCRIBE, name):
            result.name = None  # an id is no secret, a name is
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not _may(server, conn, DELETE, name):
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not server.metadata.contains(name):
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            try:
                charge(len(server.metadata.snapshot.topics[name].partitions))
            except ThrottlingQuotaExceededError as error:
                result.error_code = error.code
                continue
            result.error_code = await _mark(server, name)
            if result.error_code == ErrorCode.NONE:
                going[name] = result

    def gone() -> bool:
        return not any(server.metadata.contains(name) for name in going)

    if going and not await server.metadata.wait_until(gone, max(0, timeout_ms) / 1000):
        for name, result in going.items():
            if timeout_ms <= 0 or server.metadata.contains(name):
                result.error_code = ErrorCode.REQUEST_TIMED_OUT
    return results


def _may(server: BrokerServices, conn: Connection, operation: int, name: str) -> bool:
    return allowed(server.authorizer, conn, ApiKey.DELETE_TOPICS, operation, TOPIC, name)


async def _mark(server: BrokerServices, name: str) -> ErrorCode:
    """Mark a topic for deletion; one that is marked already is waited for like any other.

    So is one that may be: the response to our mark was lost with the connection or the session. The
    topic's end, if it comes, is what whoever asked wants to know.
    """
    try:
        if not await server.session.store.topics.exists(name):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except REPLY_LOST as error:
        logger.info("topic not looked up topic=%s error=%s", name, error)
        return ErrorCode.NOT_CONTROLLER  # nothing is marked, and we are not it for much longer
    except OttlaError as error:
        return error.code
    try:
        await server.session.store.topics.request_deletion(name)
    except NodeExistsError:
        return ErrorCode.NONE
    except REPLY_LOST as error:
        logger.info("topic perhaps marked for deletion topic=%s error=%s", name, error)
        return ErrorCode.NONE
    except OttlaError as error:
        return error.code
    return ErrorCode.NONE


DELETE_TOPICS = Api(
    DeleteTopicsRequest,
    handle,
    access=Access(
        handler=(
            Need(DELETE, TOPIC, "name"),
            Need(DESCRIBE, TOPIC, "name", "to be shown the name of a topic named by id"),
        )
    ),
    error=by_version(
        FIRST_VERSION_BY_ID,
        error_response(DeleteTopicsResponse, "topics", "responses"),
        error_response(DeleteTopicsResponse, "topic_names", "responses", topic_id=ZERO_UUID),
    ),
    large=in_portions(
        "topics",
        "responses",
        unique=2,
        many=MANY_CHANGES,
        since=FIRST_VERSION_BY_ID,
        older=in_portions("topic_names", "responses", unique=1, many=MANY_CHANGES),
    ),
)
