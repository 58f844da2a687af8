"""CreateTopics: topics made on request, by the broker that is the controller.

Kafka: `KafkaApis.handleCreateTopicsRequest` and `ZkAdminManager.createTopics`; a topic whose
leaders are not known in time is reported as REQUEST_TIMED_OUT although it exists, as the JVM does.
"""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from ottla.broker.authorization.request_authorizer import allowed
from ottla.broker.configs import config_entries
from ottla.broker.quotas.controller_mutation_quota import Charge
from ottla.broker.requests.access import Access, Need
from ottla.broker.requests.api import Api, Later, Parts
from ottla.broker.requests.responses import hold_back, respond
from ottla.broker.services import BrokerServices
from ottla.broker.topic_creation import METADATA_TOPIC, CreatedTopic, NewTopic
from ottla.model.errors import (
    ConfigError,
    ErrorCode,
    InvalidRequestError,
    OttlaError,
    TopicExistsError,
)
from ottla.model.ids import ZERO_UUID
from ottla.model.ports import Buffer
from ottla.model.time_slices import InTimeSlices
from ottla.net.connection import Connection
from ottla.security.acls import CREATE, DESCRIBE_CONFIGS, TOPIC
from ottla.wire.apis import ApiKey
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.portions import MANY_CHANGES, in_portions

DEFAULT = -1
STRICT_QUOTA = 6
"""From this version on clients know THROTTLING_QUOTA_EXCEEDED."""
Result = CreateTopicsResponse.CreatableTopicResult


TIERED = "remote.storage.enable"


def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: CreateTopicsRequest,
) -> Parts | Later:
    if not server.controller.is_active:
        # Kafka's own response has an empty message here, not null.
        results = [_failure(t.name, ErrorCode.NOT_CONTROLLER, "") for t in request.topics]
        return respond(header, CreateTopicsResponse(topics=results))

    quota = server.mutation_quotas.quota(conn.principal.name, header, strict_since=STRICT_QUOTA)

    async def work() -> list[Buffer]:
        results = await _create_all(server, conn, request, quota.charge)
        hold_back(conn, header, quota.wait_ms())
        return respond(header, CreateTopicsResponse(topics=results))

    return work()


def _failure(name: str, code: int, message: str | None = None) -> Result:
    return Result(
        name=name,
        error_code=code,
        error_message=message,
        num_partitions=DEFAULT,
        replication_factor=DEFAULT,
        configs=[],
    )


async def _create_all(
    server: BrokerServices, conn: Connection, request: CreateTopicsRequest, charge: Charge
) -> list[Result]:
    results: dict[str, Result] = {}
    created: dict[str, int] = {}
    times = Counter(t.name for t in request.topics)
    rights = _Rights.of(server, conn, times)
    async for wanted in InTimeSlices(request.topics, server.world.clock):
        name = wanted.name
        if name == METADATA_TOPIC:
            message = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            results[name] = _failure(name, ErrorCode.INVALID_REQUEST, message)
        elif times[name] > 1:
            message = "Found multiple entries for this topic."
            results[name] = _failure(name, ErrorCode.INVALID_REQUEST, message)
        elif name not in rights.created:
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            results[name] = _failure(name, denied, "Authorization failed.")
            if name not in rights.described:
                results[name].topic_config_error_code = denied
        else:
            try:
                topic = _new_topic(server, wanted)
                done = await server.topic_creation.create(
                    topic, validate_only=request.validate_only, charge=charge
                )
            except OttlaError as error:
                results[name] = _failure(name, error.code, str(error) or None)
                continue
            described = name in rights.described
            results[name] = _success(server, topic, done) if described else _created(name)
            created[name] = len(done.assignment)
    if created and not request.validate_only:
        late = await server.topic_creation.wait_for_leaders(created, max(0, request.timeout_ms))
        for name in late if request.timeout_ms > 0 else set(created):
            results[name] = _failure(name, ErrorCode.REQUEST_TIMED_OUT)
    return [results[t.name] for t in request.topics]


class _Rights(NamedTuple):
    """Which of a request's topics its client may create, and be shown the settings of."""

    created: Collection[str]
    described: Collection[str]

    @staticmethod
    def of(server: BrokerServices, conn: Connection, names: Collection[str]) -> "_Rights":
        authorizer, key = server.authorizer, ApiKey.CREATE_TOPICS
        if authorizer is None:
            return _Rights(names, names)
        asked = [name for name in names if name != METADATA_TOPIC]
        created: Collection[str] = asked
        if not allowed(authorizer, conn, key, CREATE, log_denied=False):
            created = {n for n in asked if authorizer.allows(conn, key, CREATE, TOPIC, n)}
        described = {
            name
            for name in asked
            if authorizer.allows(conn, key, DESCRIBE_CONFIGS, TOPIC, name, log_denied=False)
        }
        return _Rights(created, described)


def _created(name: str) -> Result:
    """Return the result for a client that may create a topic and not be shown what it is like."""
    result = _failure(name, ErrorCode.NONE)
    result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return result


def _new_topic(server: BrokerServices, wanted: CreateTopicsRequest.CreatableTopic) -> NewTopic:
    if server.metadata.contains(wanted.name):
        raise TopicExistsError(f"Topic '{wanted.name}' already exists.")
    empty = [c.name for c in wanted.configs if c.value is None]
    if empty:
        raise ConfigError(f"Null value not supported for topic configs: {','.join(empty)}")
    if any(c.name == TIERED and str(c.value).lower() == "true" for c in wanted.configs):
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    given = wanted.num_partitions != DEFAULT or wanted.replication_factor != DEFAULT
    if wanted.assignments and given:
        raise InvalidRequestError(
            "Both numPartitions or replicationFactor and replicasAssignments were set. "
            "Both cannot be used at the same time."
        )
    number = server.config.integer
    partitions, factor = wanted.num_partitions, wanted.replication_factor
    return NewTopic(
        wanted.name,
        number("num.partitions") if partitions == DEFAULT else partitions,
        number("default.replication.factor") if factor == DEFAULT else factor,
        {a.partition_index: tuple(a.broker_ids) for a in wanted.assignments},
        {c.name: str(c.value) for c in wanted.configs},
    )


def _success(server: BrokerServices, topic: NewTopic, done: CreatedTopic) -> Result:
    configs = [
        CreateTopicsResponse.CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in config_entries.topic_entries(server.config, topic.configs)
    ]
    return Result(
        name=done.name,
        topic_id=done.topic_id or ZERO_UUID,
        error_message=None,
        num_partitions=len(done.assignment),
        replication_factor=len(done.assignment[0]),
        configs=configs,
    )


CREATE_TOPICS = Api(
    CreateTopicsRequest,
    handle,
    access=Access(
        handler=(
            Need(CREATE, note="or of each topic:"),
            Need(CREATE, TOPIC, "name"),
            Need(DESCRIBE_CONFIGS, TOPIC, "name", "to be shown its settings"),
        )
    ),
    error=error_response(CreateTopicsResponse, "topics"),
    large=in_portions("topics", "topics", unique=1, many=MANY_CHANGES),
)
