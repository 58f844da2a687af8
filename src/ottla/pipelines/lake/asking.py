"""What the cluster says of a topic, for the lake: its id, what it holds, where its epochs end.

Invariants: the cluster is asked as `source.cluster` does, which bounds every wait. With
read_committed a partition ends at its last stable offset.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.client import parse_bootstrap
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines import config
from ottla.pipelines.lake.spans import Span
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.options import Subscription, parse_options
from ottla.pipelines.source.planning import edges

CLIENT_ID = "ottla-lake"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster names it. Both ids are empty where brokers are too old for them."""

    name: str
    cluster_id: str
    topic_id: str
    partitions: tuple[int, ...]

    @property
    def id_bytes(self) -> bytes:
        return uuid.UUID(self.topic_id).bytes if self.topic_id else ZERO_UUID

    def at(self, offset: int) -> dict[TopicPartition, int]:
        """Return the same offset, or time, for each partition."""
        return {TopicPartition(self.name, p): offset for p in self.partitions}


def reached(cluster: config.Cluster, isolation: str) -> Cluster:
    """Return the cluster, to be opened with `with`; ConfigError for settings that cannot be."""
    try:
        parse_bootstrap(cluster.bootstrap_servers)
    except ValueError as error:
        raise ConfigError(f"cluster.bootstrap_servers: {error}") from None
    options = {
        "kafka.client.id": CLIENT_ID,
        **cluster.source_options(),
        "subscribePattern": ".*",  # topics are named where they are asked for
        "kafka.isolation.level": isolation,
    }
    return Cluster(parse_options(options))


def described(cluster: Cluster, name: str) -> Topic:
    """Return what the cluster says of a topic; UnknownTopicError if there is none."""
    found = cluster.topics(Subscription(topics=(name,)))[name]
    cluster_id = cluster.run(cluster.client.metadata([name])).cluster_id or ""
    known = found.topic_id != ZERO_UUID
    topic_id = str(uuid.UUID(bytes=bytes(found.topic_id))) if known else ""
    return Topic(name, cluster_id, topic_id, found.partitions)


def held(cluster: Cluster, topic: Topic) -> dict[int, Span]:
    """Return what the cluster holds of each partition: its first offset, and its end."""
    first = edges(cluster, topic.at(EARLIEST))
    end = edges(cluster, topic.at(LATEST))
    return {tp.partition: Span(first[tp], max(first[tp], end[tp])) for tp in first}


def offsets_at(cluster: Cluster, topic: Topic, timestamp: int) -> dict[int, int]:
    """Return the first offset of each partition from a time (milliseconds) on, or its end."""
    found = edges(cluster, topic.at(timestamp))
    late = {tp: LATEST for tp, offset in found.items() if offset < 0}
    return {tp.partition: offset for tp, offset in (found | edges(cluster, late)).items()}


def epoch_ends(cluster: Cluster, topic: Topic, epochs: Mapping[int, int]) -> dict[int, int]:
    """Return where each partition's log ends that leaders up to an epoch have written.

    That is the log's end while the epoch is the newest. -1 where the leader does not know any more.
    """

    async def asked(tp: TopicPartition, epoch: int) -> int:
        patience = cluster.patience()
        while True:
            try:
                return await cluster.epoch_end(tp, epoch)
            except OttlaError as error:
                await patience.wait(error)
                await cluster.client.metadata([tp.topic])

    return {p: cluster.run(asked(TopicPartition(topic.name, p), e)) for p, e in epochs.items()}
