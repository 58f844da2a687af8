"""Topics: the requests that create and delete them, and ask for them.

Who may call: `sync_cluster`. Pure.
"""

from collections.abc import Mapping

from ottla.model.errors import OttlaError
from ottla.model.ids import topic_name_problem
from ottla.testing.settings import as_text
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse


def creation(
    name: str,
    partitions: int,
    replicas: int,
    configs: Mapping[str, object],
    timeout_s: float,
    *,
    validate_only: bool = False,
) -> CreateTopicsRequest:
    """Return what creates a topic; `configs` with `_` for `.`. OttlaError for a bad name."""
    problem = topic_name_problem(name)
    if problem:
        raise OttlaError(f"topic name: {problem}")
    entry = CreateTopicsRequest.CreatableTopicConfig
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            entry(name=key.replace("_", "."), value=as_text(value))
            for key, value in configs.items()
        ],
    )
    return CreateTopicsRequest(
        topics=[topic], timeout_ms=int(timeout_s * 1000), validate_only=validate_only
    )


def deletion(name: str, timeout_s: float) -> DeleteTopicsRequest:
    """Return what deletes a topic."""
    topic = DeleteTopicsRequest.DeleteTopicState(name=name)
    return DeleteTopicsRequest(topics=[topic], timeout_ms=int(timeout_s * 1000))


def about(topics: list[str] | None) -> MetadataRequest:
    """Return a question for these topics, all for None, which creates none of them."""
    item = MetadataRequest.MetadataRequestTopic
    wanted = None if topics is None else [item(name=t) for t in topics]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)


def sync_problem(response: MetadataResponse) -> str:
    """Return what is not in sync by a Metadata response; "" if all is."""
    for topic in response.topics:
        for part in topic.partitions:
            missing = sorted(set(part.replica_nodes) - set(part.isr_nodes))
            name = f"{topic.name}-{part.partition_index}"
            if part.leader_id < 0:
                return f"{name} has no leader"
            if missing:
                return f"{name} lacks the replicas {missing}"
    return ""
