"""Topics: create, list and describe them, with any Kafka.

Who may call: the command line, the demo, benchmarks. Invariants: what a broker refuses is told
with the broker's own reason; what it does not tell is not guessed. Answers to Kafka's
`TopicCommand`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ottla.admin.session import error_name
from ottla.model.errors import ConfigError, ErrorCode, OttlaError, UnknownTopicError
from ottla.model.ids import topic_name_problem, uuid_to_text
from ottla.net.client import CONTROLLER, Client
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest

CREATE_TIMEOUT_MS = 30_000
TOPIC_RESOURCE = 2
FROM_TOPIC = 1
"""The source of a setting that was set on the topic itself (`DYNAMIC_TOPIC_CONFIG`)."""


class PartitionFacts(msgspec.Struct, frozen=True):
    """One partition as Metadata tells it; leader -1 is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


class TopicFacts(msgspec.Struct, frozen=True):
    """One topic. `settings` are those set on it, None where they were not asked for."""

    name: str
    topic_id: str
    internal: bool
    partitions: list[PartitionFacts]
    settings: dict[str, str | None] | None = None

    @property
    def replication_factor(self) -> int:
        return max((len(p.replicas) for p in self.partitions), default=0)

    @property
    def under_replicated(self) -> int:
        return sum(len(p.isr) < len(p.replicas) for p in self.partitions)

    @property
    def without_leader(self) -> int:
        return sum(p.leader < 0 for p in self.partitions)


def parse_topic_settings(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `key=value` of `--config`; whether a key exists is for the cluster to say."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--config {pair!r}: write key=value, as min.insync.replicas=2")
        settings[key.strip()] = value.strip()
    return settings


def _reason(code: int, message: str | None) -> str:
    name = error_name(code)
    return f"{message.rstrip('.')} ({name})" if message else name


async def create_topic(
    client: Client,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    settings: Mapping[str, str] | None = None,
    timeout_ms: int = CREATE_TIMEOUT_MS,
) -> None:
    """Create a topic; -1 leaves a count to the brokers' defaults."""
    problem = topic_name_problem(name)
    if problem:
        raise OttlaError(f"topic name: {problem}")
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=k, value=v)
            for k, v in (settings or {}).items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
    response = await client.call(request, CONTROLLER, timeout_s=timeout_ms / 1000 + 5)
    for result in response.topics:
        if result.error_code:
            reason = _reason(result.error_code, result.error_message)
            raise OttlaError(f"topic {name} was not created: {reason}")


def _facts(topic: Any) -> TopicFacts:
    return TopicFacts(
        topic.name or "",
        uuid_to_text(topic.topic_id) if any(topic.topic_id) else "",
        topic.is_internal,
        sorted(
            (
                PartitionFacts(
                    p.partition_index,
                    p.leader_id,
                    p.leader_epoch,
                    list(p.replica_nodes),
                    list(p.isr_nodes),
                    list(p.offline_replicas),
                )
                for p in topic.partitions
            ),
            key=lambda p: p.partition,
        ),
    )


async def list_topics(client: Client) -> list[TopicFacts]:
    """Return every topic, by name."""
    response = await client.metadata(None)
    return sorted((_facts(t) for t in response.topics), key=lambda t: t.name)


async def describe_topic(client: Client, name: str, *, settings: bool = False) -> TopicFacts:
    """Return one topic; UnknownTopicError if there is none of that name."""
    topic = (await client.metadata([name])).topics[0]
    if topic.error_code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ):
        raise UnknownTopicError(
            f"topic {name} does not exist; `ottla topics list` shows those that do, "
            f"`ottla topics create {name}` makes it"
        )
    if topic.error_code and not topic.partitions:
        raise OttlaError(f"topic {name}: {_reason(topic.error_code, None)}")
    facts = _facts(topic)
    if settings:
        facts = msgspec.structs.replace(facts, settings=await _own_settings(client, name))
    return facts


async def _own_settings(client: Client, name: str) -> dict[str, str | None]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )
    response = await client.call(DescribeConfigsRequest(resources=[resource]))
    result = response.results[0]
    if result.error_code:
        reason = _reason(result.error_code, result.error_message)
        raise OttlaError(f"settings of topic {name}: {reason}")
    return {c.name: c.value for c in result.configs if c.config_source == FROM_TOPIC}
