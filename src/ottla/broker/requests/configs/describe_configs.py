"""DescribeConfigs: the settings of topics, of this broker and of all brokers.

Overrides of topics are read from ZooKeeper, not from the cache, so that a client that altered them
sees the change at once; those of one request are read together. Kafka:
`ConfigHelper.describeConfigs`.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from types import CoroutineType
from typing import Any, cast

from ottla.broker.configs import config_entries
from ottla.broker.configs.config_entries import Entry, Source
from ottla.broker.requests.access import Access, ForEach, Need
from ottla.broker.requests.api import Api, Parts
from ottla.broker.requests.responses import ELEMENT_BYTES, Steps, respond_in_steps
from ottla.broker.services import BrokerServices
from ottla.model.errors import (
    InvalidRequestError,
    InvalidTopicError,
    OttlaError,
    UnknownTopicError,
)
from ottla.model.ids import topic_name_problem
from ottla.net.connection import Connection
from ottla.security import acls
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.wire.portions import in_portions

logger = logging.getLogger(__name__)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
_Overrides = Mapping[str, Mapping[str, str] | OttlaError]
"""Of each topic that is known, or why they cannot be read."""
_JAVA_LEVELS = {50: "FATAL", 40: "ERROR", 30: "WARN", 20: "INFO", 10: "DEBUG", 5: "TRACE"}


def _each_resource(operation: int, responded: str, *, with_message: bool = False) -> ForEach:
    """Return the needs of a request's resources. Unknown types have none: they are refused."""
    of_topic = Need(operation, acls.TOPIC, "resource_name", "a topic's settings")
    of_cluster = Need(operation, note="a broker's settings, loggers, client metrics")
    needs = {
        TOPIC: of_topic,
        BROKER: of_cluster,
        BROKER_LOGGER: of_cluster,
        CLIENT_METRICS: of_cluster,
    }

    def need(resource: Any) -> Need | None:
        return needs.get(resource.resource_type)

    return ForEach("resources", responded, need, (of_topic, of_cluster), with_message=with_message)


DESCRIBING = Access(each=_each_resource(acls.DESCRIBE_CONFIGS, "results", with_message=True))
ALTERING = Access(each=_each_resource(acls.ALTER_CONFIGS, "responses"))


async def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: DescribeConfigsRequest,
) -> Parts:
    for resource in request.resources:
        if resource.resource_type not in (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS):
            raise InvalidRequestError(f"Unexpected resource type {resource.resource_type}")

    overrides = await _overrides_of_topics(server, request.resources)
    steps = _all_described(server, request, overrides)
    outcome = respond_in_steps(server, conn, header, steps)
    return await outcome if isinstance(outcome, CoroutineType) else cast("Parts", outcome)


def _all_described(
    server: BrokerServices, request: DescribeConfigsRequest, overrides: _Overrides
) -> Steps:
    results = []
    for resource in request.resources:
        result = _describe(server, resource, request, overrides)
        results.append(result)
        yield sum((2 + len(c.synonyms)) * ELEMENT_BYTES for c in result.configs) + ELEMENT_BYTES
    return DescribeConfigsResponse(results=results)


async def _overrides_of_topics(
    server: BrokerServices, resources: Iterable[DescribeConfigsRequest.DescribeConfigsResource]
) -> _Overrides:
    names = {r.resource_name for r in resources if r.resource_type == TOPIC}
    known = [name for name in names if server.metadata.contains(name)]
    if not known:
        return {}
    try:
        return await server.session.store.configs.get_many("topics", known)
    except OttlaError as error:
        return dict.fromkeys(known, error)


def _describe(
    server: BrokerServices,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
    request: DescribeConfigsRequest,
    overrides: _Overrides,
) -> DescribeConfigsResponse.DescribeConfigsResult:
    result = DescribeConfigsResponse.DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    kind, wanted = resource.resource_type, resource.configuration_keys
    try:
        if kind == TOPIC:
            entries = _entries_of_topic(server, resource.resource_name, wanted, overrides)
        else:
            found = _entries(server, kind, resource.resource_name)
            entries = (entry for entry in found if not wanted or entry.name in wanted)
    except OttlaError as error:
        result.error_code = error.code
        result.error_message = str(error)
        return result
    result.configs = [_result(entry, synonyms=request.include_synonyms) for entry in entries]
    return result


def _entries_of_topic(
    server: BrokerServices, name: str, wanted: Collection[str] | None, overrides: _Overrides
) -> Iterable[Entry]:
    problem = topic_name_problem(name)
    if problem is not None:
        raise InvalidTopicError(f"Topic name is invalid: {problem}")
    own = overrides.get(name)
    if own is None:
        raise UnknownTopicError
    if isinstance(own, OttlaError):
        raise own
    return config_entries.topic_entries(server.config, own, server.dynamic_configs.layers, wanted)


def _entries(server: BrokerServices, kind: int, name: str) -> Iterable[Entry]:
    if kind == CLIENT_METRICS:
        raise InvalidRequestError("Config type client-metrics is only supported on KRaft clusters")
    if not name:
        if kind == BROKER:
            return config_entries.default_entries(server.config, server.dynamic_configs.layers)
        raise InvalidRequestError("Broker id must not be empty")
    try:
        number = int(name)
    except ValueError:
        raise InvalidRequestError(f"Broker id must be an integer, but it is: {name}") from None
    if number != server.broker_id:
        raise InvalidRequestError(
            f"Unexpected broker id, expected {server.broker_id} or empty string, "
            f"but received {name}"
        )
    if kind == BROKER:
        return config_entries.broker_entries(server.config, server.dynamic_configs.layers)
    return _loggers()


def _loggers() -> list[Entry]:
    names = sorted(n for n in logging.root.manager.loggerDict if n.startswith("ottla"))
    levels = {"root": logging.root.getEffectiveLevel()} | {
        n: logging.getLogger(n).getEffectiveLevel() for n in names
    }
    source = Source.UNKNOWN
    return [
        Entry(name, _JAVA_LEVELS.get(level, str(level)), source, False, False, 0, ())
        for name, level in levels.items()
    ]


def _result(
    entry: Entry, *, synonyms: bool
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    dynamic_logger = 6  # the one source that `Source` has no use for
    source = entry.source or dynamic_logger
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=source,
        is_sensitive=entry.sensitive,
        config_type=entry.type_number,
        documentation=None,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=s.name, value=s.value, source=s.source
            )
            for s in (entry.synonyms if synonyms else ())
        ],
    )


DESCRIBE_CONFIGS = Api(
    DescribeConfigsRequest,
    handle,
    access=DESCRIBING,
    error=error_response(DescribeConfigsResponse, "resources", "results"),
    large=in_portions("resources", "results"),
    large_response=True,
)
