"""AlterConfigs and IncrementalAlterConfigs: settings of topics, changed on any broker.

Who may call: the router. Invariants: what is written is valid as a whole; the change notification
follows the settings, never the other way round. Settings of brokers do not change while they run
yet: that is said, not ignored. Answers to `ZkAdminManager.alterConfigs`, `incrementalAlterConfigs`
and `AdminZkClient.changeTopicConfig` (KIP-339).
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ottla.broker.answers import answer, answer_later
from ottla.model.config_keys import topic_keys
from ottla.model.errors import ErrorCode, OttlaError, UnknownTopicError
from ottla.model.ids import topic_name_problem
from ottla.model.ports import Buffer
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices
    from ottla.net.connection import Connection, Pending

logger = logging.getLogger(__name__)

TOPIC = 2
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


class _InvalidRequestError(OttlaError):
    code = ErrorCode.INVALID_REQUEST


class _InvalidConfigError(OttlaError):
    code = ErrorCode.INVALID_CONFIG


class _InvalidTopicError(OttlaError):
    code = ErrorCode.INVALID_TOPIC_EXCEPTION


def replace_all(
    server: "BrokerServices",
    conn: "Connection",
    header: RequestHeader,
    request: AlterConfigsRequest,
) -> "Pending":
    """Handle AlterConfigs: what is not named goes back to its default."""

    async def change(resource: Any) -> None:
        empty = [c.name for c in resource.configs if c.value is None]
        if empty:
            raise _InvalidRequestError(f"Null value not supported for : {','.join(empty)}")
        await _check_topic(server, resource)
        new = {c.name: c.value for c in resource.configs}
        await _write(server, resource.resource_name, new, validate_only=request.validate_only)

    async def work() -> list[Buffer]:
        r = AlterConfigsResponse
        outcomes = [(x, await _outcome(change, x)) for x in request.resources]
        return answer(header, r(responses=_responses(r, outcomes)))

    return answer_later(server, conn, header, request, work())


def change_some(
    server: "BrokerServices",
    conn: "Connection",
    header: RequestHeader,
    request: IncrementalAlterConfigsRequest,
) -> "Pending":
    """Handle IncrementalAlterConfigs: what is not named stays as it is."""

    async def change(resource: Any) -> None:
        names = [c.name for c in resource.configs]
        if len(set(names)) < len(names):
            raise _InvalidRequestError(f"Error due to duplicate config keys : {','.join(names)}")
        empty = [
            c.name for c in resource.configs if c.value is None and c.config_operation != DELETE
        ]
        if empty:
            raise _InvalidRequestError(f"Null value not supported for : {','.join(empty)}")
        await _check_topic(server, resource)
        topic = resource.resource_name
        new = await server.store.get_entity_configs("topics", topic)
        for config in resource.configs:
            _apply(server, new, config)
        await _write(server, topic, new, validate_only=request.validate_only)

    async def work() -> list[Buffer]:
        r = IncrementalAlterConfigsResponse
        outcomes = [(x, await _outcome(change, x)) for x in request.resources]
        return answer(header, r(responses=_responses(r, outcomes)))

    return answer_later(server, conn, header, request, work())


async def _outcome(change: Any, resource: Any) -> OttlaError | None:
    try:
        await change(resource)
    except OttlaError as error:
        logger.info("settings not altered of=%s error=%s", resource.resource_name, error)
        return error
    return None


def _responses(response: Any, outcomes: Iterable[tuple[Any, OttlaError | None]]) -> list[Any]:
    return [
        response.AlterConfigsResourceResponse(
            error_code=ErrorCode.NONE if error is None else error.code,
            error_message=None if error is None else str(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, error in outcomes
    ]


async def _check_topic(server: "BrokerServices", resource: Any) -> None:
    if resource.resource_type != TOPIC:
        raise _InvalidRequestError(
            "only settings of topics can be altered; change a broker's in its server.properties "
            "and restart it"
        )
    problem = topic_name_problem(resource.resource_name)
    if problem is not None:
        raise _InvalidTopicError(f"Topic name is invalid: {problem}")
    if not server.metadata.contains(resource.resource_name):
        raise UnknownTopicError(f"The topic '{resource.resource_name}' does not exist.")


def _apply(server: "BrokerServices", configs: dict[str, str], change: Any) -> None:
    """Do one operation on a topic's overrides."""
    name, operation = change.name, change.config_operation
    if operation == SET:
        configs[name] = change.value
        return
    if operation == DELETE:
        configs.pop(name, None)
        return
    key = topic_keys().get(name)
    if operation not in (APPEND, SUBTRACT):
        raise _InvalidRequestError(f"Unknown config operation {operation} for {name}")
    if key is None or key.type != "list":
        verb = "append" if operation == APPEND else "subtract"
        raise _InvalidConfigError(f"Config value {verb} is not allowed for config key: {name}")
    text = configs.get(name)
    if text is None:
        text = server.config.topic_default(name)[0] or ""
    values = [v.strip() for v in text.split(",") if v.strip()]
    given = [v.strip() for v in change.value.split(",") if v.strip()]
    if operation == APPEND:
        values += [v for v in given if v not in values]
    else:
        values = [v for v in values if v not in given]
    configs[name] = ",".join(values)


async def _write(
    server: "BrokerServices", topic: str, configs: dict[str, str], *, validate_only: bool
) -> None:
    server.config.topic_config(configs)
    if validate_only:
        return
    await server.store.set_or_create_entity_configs("topics", topic, configs)
    await server.store.create_config_change_notification(f"topics/{topic}")
    logger.info("settings altered topic=%s overrides=%s", topic, configs)
