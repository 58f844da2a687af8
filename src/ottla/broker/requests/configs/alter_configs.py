"""AlterConfigs and IncrementalAlterConfigs: settings of topics and brokers.

A broker's own settings are changed by itself, those of topics and of all brokers by any.
Invariants: what is written is valid as a whole; the change notification follows the settings, never
the other way round; messages are Kafka's, for tools match them. Kafka: `ConfigAdminManager`,
`ZkAdminManager.alterConfigs`, `incrementalAlterConfigs`, and `AdminZkClient.changeTopicConfig` and
`changeBrokerConfig` (KIP-226, KIP-339).
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypedDict, TypeVar

import msgspec

from ottla.broker.configs.dynamic_configs import CLUSTER_DEFAULT
from ottla.broker.requests.api import Api, Parts
from ottla.broker.requests.configs.describe_configs import ALTERING
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model.config import shown
from ottla.model.config_keys import broker_keys, topic_keys
from ottla.model.errors import (
    ConfigError,
    ErrorCode,
    InvalidRequestError,
    OttlaError,
    UnknownTopicError,
)
from ottla.model.time_slices import InTimeSlices
from ottla.net.connection import Connection
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.portions import MANY_CHANGES, in_portions

logger = logging.getLogger(__name__)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Resource = (
    AlterConfigsRequest.AlterConfigsResource | IncrementalAlterConfigsRequest.AlterConfigsResource
)
ResourceT = TypeVar(
    "ResourceT",
    AlterConfigsRequest.AlterConfigsResource,
    IncrementalAlterConfigsRequest.AlterConfigsResource,
)


async def replace_all(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: AlterConfigsRequest
) -> Parts:
    """Handle AlterConfigs: what is not named goes back to its default."""
    twice = _named_twice(request.resources)

    async def change(resource: AlterConfigsRequest.AlterConfigsResource) -> None:
        _check_entries(resource, twice, [c.name for c in resource.configs if c.value is None])
        entity = _entity(server, resource)
        new = {c.name: str(c.value) for c in resource.configs}
        await _write(server, entity, new, validate_only=request.validate_only)

    outcomes = await _outcomes(server, change, request.resources)
    one = AlterConfigsResponse.AlterConfigsResourceResponse
    return respond(header, AlterConfigsResponse(responses=[one(**_fields(*o)) for o in outcomes]))


async def change_some(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: IncrementalAlterConfigsRequest,
) -> Parts:
    """Handle IncrementalAlterConfigs: what is not named stays as it is."""
    twice = _named_twice(request.resources)

    async def change(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
        empty = [
            c.name for c in resource.configs if c.value is None and c.config_operation != DELETE
        ]
        _check_entries(resource, twice, empty)
        entity = _entity(server, resource)
        new = await server.session.store.configs.get(entity.kind, entity.name)
        if entity.kind == "brokers":
            new = server.dynamic_configs.from_stored(new)
        for config in resource.configs:
            _apply(server, entity, new, config)
        await _write(server, entity, new, validate_only=request.validate_only)

    outcomes = await _outcomes(server, change, request.resources)
    r = IncrementalAlterConfigsResponse
    one = r.AlterConfigsResourceResponse
    return respond(header, r(responses=[one(**_fields(*o)) for o in outcomes]))


async def _outcomes(
    server: BrokerServices,
    change: Callable[[ResourceT], Awaitable[None]],
    resources: Iterable[ResourceT],
) -> list[tuple[ResourceT, OttlaError | None]]:
    clock = server.world.clock
    return [(x, await _outcome(change, x)) async for x in InTimeSlices(resources, clock)]


async def _outcome(
    change: Callable[[ResourceT], Awaitable[None]], resource: ResourceT
) -> OttlaError | None:
    try:
        await change(resource)
    except OttlaError as error:
        logger.info("configs not altered entity=%s error=%s", resource.resource_name, error)
        return error
    return None


class _Fields(TypedDict):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


def _fields(resource: Resource, error: OttlaError | None) -> _Fields:
    """Return what both responses say of a resource."""
    return {
        "error_code": ErrorCode.NONE if error is None else error.code,
        "error_message": None if error is None else str(error),
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


class _Entity(msgspec.Struct, frozen=True):
    """Whose settings: the folder and the name under /config."""

    kind: str
    name: str


def _named_twice(resources: Iterable[Resource]) -> frozenset[tuple[int, str]]:
    counts = Counter((r.resource_type, r.resource_name) for r in resources)
    return frozenset(resource for resource, count in counts.items() if count > 1)


def _check_entries(
    resource: Resource, twice: frozenset[tuple[int, str]], empty: Sequence[str]
) -> None:
    """Refuse what no resource of any kind may ask. `empty`: settings without a value."""
    if (resource.resource_type, resource.resource_name) in twice:
        raise InvalidRequestError("Each resource must appear at most once.")
    names = [c.name for c in resource.configs]
    if len(set(names)) < len(names):
        raise InvalidRequestError("Error due to duplicate config keys")
    if empty:
        raise InvalidRequestError(f"Null value not supported for : {', '.join(empty)}")


def _entity(server: BrokerServices, resource: Resource) -> _Entity:
    """Return whose settings are meant, if they can be changed here."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == BROKER:
        if not name:
            return _Entity("brokers", CLUSTER_DEFAULT)
        try:
            number = int(name)
        except ValueError:
            raise InvalidRequestError(f"Node id must be an integer, but it is: {name}") from None
        if number != server.broker_id:
            raise InvalidRequestError(
                f"Unexpected broker id, expected {server.broker_id}, but received {name}"
            )
        return _Entity("brokers", str(number))
    if kind in (BROKER_LOGGER, CLIENT_METRICS):
        what = "BROKER_LOGGER" if kind == BROKER_LOGGER else "CLIENT_METRICS"
        raise InvalidRequestError(
            "AlterConfigs is only supported for topics and brokers, but resource type is " + what
        )
    if kind != TOPIC:
        raise InvalidRequestError(f"Unknown resource type {kind}")
    if not name:
        raise InvalidRequestError("Default topic resources are not allowed.")
    if not server.metadata.contains(name):
        raise UnknownTopicError(f"The topic '{name}' does not exist.")
    return _Entity("topics", name)


def _apply(
    server: BrokerServices,
    entity: _Entity,
    configs: dict[str, str],
    change: IncrementalAlterConfigsRequest.AlterableConfig,
) -> None:
    """Do one operation on an entity's settings."""
    name, operation, value = change.name, change.config_operation, change.value
    if operation == DELETE:
        configs.pop(name, None)
        return
    assert value is not None, "checked before"
    if operation == SET:
        configs[name] = value
        return
    of_topic = entity.kind == "topics"
    key = (topic_keys() if of_topic else broker_keys()).get(name)
    if operation not in (APPEND, SUBTRACT):
        raise InvalidRequestError(f"Unknown operations type {operation}")
    if key is None or key.type != "list":
        verb = "append" if operation == APPEND else "subtract"
        raise ConfigError(f"Config value {verb} is not allowed for config key: {name}")
    text = configs.get(name)
    if text is None:
        text = (server.config.topic_default(name)[0] if of_topic else key.default) or ""
    values = [v.strip() for v in text.split(",") if v.strip()]
    given = [v.strip() for v in value.split(",") if v.strip()]
    if operation == APPEND:
        values += [v for v in given if v not in values]
    else:
        values = [v for v in values if v not in given]
    configs[name] = ",".join(values)


async def _write(
    server: BrokerServices, entity: _Entity, configs: dict[str, str], *, validate_only: bool
) -> None:
    if entity.kind == "topics":
        try:
            server.config.checked_topic_config(configs)
        except ConfigError as error:
            if str(error).startswith("Unknown topic config name"):
                raise ConfigError(str(error)) from error
            where = f"ConfigResource(type=TOPIC, name='{entity.name}')"
            facts = f"Invalid config value for resource {where}: {error}"
            raise ConfigError(facts) from error
    else:
        server.dynamic_configs.check(configs, per_broker=entity.name != CLUSTER_DEFAULT)
    if validate_only:
        return
    stored = server.dynamic_configs.to_stored(configs) if entity.kind == "brokers" else configs
    await server.session.store.configs.set(entity.kind, entity.name, stored)
    await server.session.store.configs.changes.notify(f"{entity.kind}/{entity.name}")
    logger.info("configs altered entity=%s/%s configs=%s", entity.kind, entity.name, shown(configs))


ALTER_CONFIGS = Api(
    AlterConfigsRequest,
    replace_all,
    access=ALTERING,
    error=error_response(AlterConfigsResponse, "resources", "responses"),
    large=in_portions("resources", "responses", unique=2, many=MANY_CHANGES),
)
INCREMENTAL_ALTER_CONFIGS = Api(
    IncrementalAlterConfigsRequest,
    change_some,
    access=ALTERING,
    error=error_response(IncrementalAlterConfigsResponse, "resources", "responses"),
    large=in_portions("resources", "responses", unique=2, many=MANY_CHANGES),
)
