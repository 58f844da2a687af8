"""Topics: create, list, describe, grow and delete them, with any Kafka.

Invariants: what a broker refuses is reported with the broker's own reason; what it does not tell is
not guessed. Kafka: `TopicCommand`.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from ottla.client import configs
from ottla.client.client import CONTROLLER, Client
from ottla.client.error_texts import reason, with_way_out
from ottla.model.errors import ErrorCode, OttlaError, UnknownTopicError
from ottla.model.ids import TopicPartition, topic_name_problem, uuid_to_text
from ottla.model.printable import plural
from ottla.wire.messages.cluster import MetadataRequest, MetadataResponse
from ottla.wire.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

CREATE_TIMEOUT_MS = 30_000
DELETE_TIMEOUT_MS = 30_000
FIRST_VERSION_BY_ID = 6
MIN_ISR = "min.insync.replicas"

Sizes = dict[TopicPartition, dict[int, int]]
"""Bytes of replicas, by partition and broker."""


class PartitionFacts(msgspec.Struct, frozen=True):
    """One partition as Metadata describes it."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


class TopicFacts(msgspec.Struct, frozen=True):
    """One topic. `settings` are those set on it, None where they were not asked for.

    `size` is the bytes of the leaders' logs, `size_of_replicas` of all, where they were asked for.
    """

    name: str = msgspec.field(name="topic")
    topic_id: str
    internal: bool
    partitions: list[PartitionFacts]
    settings: dict[str, str | None] | None = None
    size: int | msgspec.UnsetType = msgspec.UNSET
    size_of_replicas: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def replication_factor(self) -> int:
        return max((len(p.replicas) for p in self.partitions), default=0)

    @property
    def under_replicated(self) -> int:
        return sum(len(p.isr) < len(p.replicas) for p in self.partitions)

    @property
    def without_leader(self) -> int:
        return sum(p.leader is None for p in self.partitions)


async def create_topic(
    client: Client,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    settings: Mapping[str, str] | None = None,
    assignment: Sequence[Sequence[int]] = (),
    validate_only: bool = False,
    timeout_ms: int = CREATE_TIMEOUT_MS,
) -> tuple[int, int]:
    """Create a topic; -1 leaves a count to the brokers' defaults.

    Return how many partitions, and replicas of each, the brokers gave it, or would with
    `validate_only`; -1 where they do not tell (KIP-525, from Kafka 2.4 on).
    `assignment`: the brokers of each partition, the preferred leader first; the counts are -1 then.
    """
    problem = topic_name_problem(name)
    if problem:
        raise OttlaError(f"topic name: {problem}")
    await _check_brokers(client, assignment)
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=k, value=v)
            for k, v in (settings or {}).items()
        ],
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=i, broker_ids=list(ids))
            for i, ids in enumerate(assignment)
        ],
    )
    request = CreateTopicsRequest(
        topics=[topic], timeout_ms=timeout_ms, validate_only=validate_only
    )
    response = await client.call(request, CONTROLLER, timeout_s=timeout_ms / 1000 + 5)
    for result in response.topics:
        if result.error_code:
            why = reason(result.error_code, result.error_message)
            raise OttlaError(
                with_way_out(f"topic {name} was not created: {why}", result.error_code),
                ErrorCode(result.error_code),
            )
    return response.topics[0].num_partitions, response.topics[0].replication_factor


async def _check_brokers(client: Client, assignment: Sequence[Sequence[int]]) -> None:
    """Refuse unknown brokers: a controller would create a topic that has no leader."""
    if not assignment:
        return
    live = await client.broker_ids()
    for ids in assignment:
        for broker in ids:
            if broker not in live:
                raise OttlaError(
                    f"broker {broker} is not alive; alive are {', '.join(map(str, live))}; "
                    "nothing was sent"
                )


def _facts(topic: MetadataResponse.MetadataResponseTopic) -> TopicFacts:
    return TopicFacts(
        topic.name or "",
        uuid_to_text(topic.topic_id) if any(topic.topic_id) else "",
        topic.is_internal,
        sorted(
            (
                PartitionFacts(
                    p.partition_index,
                    p.leader_id if p.leader_id >= 0 else None,
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
    """Return one topic; UnknownTopicError if it does not exist."""
    topic = (await client.metadata([name])).topics[0]
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        topic = await _as_the_controller_sees_it(client, name)
    if topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        raise UnknownTopicError(
            f"topic {name} does not exist, and none can have this name; `ottla topics list` shows "
            "those that do exist"
        )
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicError(
            f"topic {name} does not exist; `ottla topics list` shows those that do, "
            f"`ottla topics create {name}` makes it"
        )
    if topic.error_code and not topic.partitions:
        raise OttlaError(f"topic {name}: {reason(topic.error_code, None)}")
    facts = _facts(topic)
    if settings:
        own = await configs.own(client, configs.TOPIC, name)
        facts = msgspec.structs.replace(facts, settings=own)
    return facts


async def _as_the_controller_sees_it(
    client: Client, name: str
) -> MetadataResponse.MetadataResponseTopic:
    """Ask again where news begin: a broker may not know a new topic yet."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    response = await client.call(request, CONTROLLER)
    return response.topics[0]


# --- what is wrong with some ------------------------------------------------------------------


async def pick_partitions(
    client: Client,
    topics: Sequence[TopicFacts],
    *,
    under_replicated: bool = False,
    leaderless: bool = False,
    under_min_isr: bool = False,
    at_min_isr: bool = False,
) -> list[TopicFacts]:
    """Return topics with only those partitions that any of the asked for is true of."""
    found = []
    for topic in topics:
        min_isr = await _min_isr(client, topic.name) if under_min_isr or at_min_isr else 0
        least = min_isr if under_min_isr else 0
        chosen = [
            p
            for p in topic.partitions
            if (under_replicated and len(p.isr) < len(p.replicas))
            or (leaderless and p.leader is None)
            or len(p.isr) < least
            or (at_min_isr and len(p.isr) == min_isr)
        ]
        if chosen:
            found.append(msgspec.structs.replace(topic, partitions=chosen))
    return found


async def _min_isr(client: Client, topic: str) -> int:
    settings = await configs.effective(client, configs.TOPIC, topic, [MIN_ISR])
    value, _ = settings.get(MIN_ISR, ("1", False))
    return int(value or 1)


# --- changing and deleting --------------------------------------------------------------------


async def alter_topic(
    client: Client,
    name: str,
    *,
    partitions: int | None = None,
    changed: Mapping[str, str] | None = None,
    removed: Collection[str] = (),
    assignment: Sequence[Sequence[int]] | None = None,
    validate_only: bool = False,
) -> None:
    """Grow a topic and change its settings: both, or neither if one of them is refused.

    `assignment`: the brokers of each new partition.
    """
    changed = changed or {}
    await describe_topic(client, name)
    if validate_only or (partitions is not None and (changed or removed)):
        if partitions is not None:
            await _grow(client, name, partitions, assignment, validate_only=True)
        if changed or removed:
            await configs.alter(client, configs.TOPIC, name, changed, removed, validate_only=True)
    if validate_only:
        return
    if partitions is not None:
        await _grow(client, name, partitions, assignment)
    if changed or removed:
        await configs.alter(client, configs.TOPIC, name, changed, removed)


async def _grow(
    client: Client,
    name: str,
    count: int,
    assignment: Sequence[Sequence[int]] | None,
    *,
    validate_only: bool = False,
) -> None:
    r = CreatePartitionsRequest
    placed = None
    if assignment is not None:
        placed = [r.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignment]
    request = r(
        topics=[r.CreatePartitionsTopic(name=name, count=count, assignments=placed)],
        timeout_ms=CREATE_TIMEOUT_MS,
        validate_only=validate_only,
    )
    response = await client.call(request, CONTROLLER, timeout_s=CREATE_TIMEOUT_MS / 1000 + 5)
    result = response.results[0]
    if result.error_code:
        why = reason(result.error_code, result.error_message)
        raise OttlaError(
            f"topic {name} was not given {plural(count, 'partition')}: {why}",
            ErrorCode(result.error_code),
        )


async def delete_topics(
    client: Client, names: Sequence[str], *, timeout_ms: int = DELETE_TIMEOUT_MS
) -> None:
    """Delete topics and wait until they are gone; OttlaError names those that are not."""
    _, controller = await client.peer(CONTROLLER)
    version = controller.version(DeleteTopicsRequest())
    if version >= FIRST_VERSION_BY_ID:
        states = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
        request = DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
    else:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    with client.waiting(f"topic {', '.join(names[:3])}: every broker with replicas to delete them"):
        response = await client.call(
            request, CONTROLLER, version=version, timeout_s=timeout_ms / 1000 + 5
        )
    problems = []
    for result in response.responses:
        if result.error_code == ErrorCode.REQUEST_TIMED_OUT:
            problems.append(
                f"topic {result.name} is marked for deletion but not gone yet: it goes once every "
                "broker that has replicas of it is up (`ottla status`) and no reassignment of it "
                "is under way"
            )
        elif result.error_code:
            why = reason(result.error_code, result.error_message)
            problems.append(f"topic {result.name} was not deleted: {why}")
    if problems:
        raise OttlaError("; ".join(problems))


async def sizes(
    client: Client,
    names: Collection[str] = (),
    *,
    only: Mapping[str, Collection[int]] | None = None,
) -> Sizes:
    """Return how many bytes each replica of some topics has, by broker; silent brokers left out.

    Of `only` these partitions by topic, if it is given.
    """
    from ottla.client import log_dirs  # few commands need it

    found: Sizes = {}
    brokers = await client.broker_ids()
    for lying in (await log_dirs.describe(client, brokers, names, only=only)).replicas:
        if not lying.is_future:
            found.setdefault(lying.partition, {})[lying.broker] = lying.size
    return found


def with_sizes(topic: TopicFacts, measured: Sizes) -> TopicFacts:
    """Return a topic with the bytes of its leaders and of all replicas, as far as known."""
    by_partition = [
        (p.leader, measured.get(TopicPartition(topic.name, p.partition), {}))
        for p in topic.partitions
    ]
    return msgspec.structs.replace(
        topic,
        size=sum(of.get(leader, 0) for leader, of in by_partition if leader is not None),
        size_of_replicas=sum(sum(of.values()) for _, of in by_partition),
    )


async def missing_topics(client: Client, names: Sequence[str]) -> list[str]:
    """Return which of the names no topic has."""
    there = {topic.name for topic in await list_topics(client)}
    return [name for name in names if name not in there]
