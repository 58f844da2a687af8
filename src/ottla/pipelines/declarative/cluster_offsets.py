"""What a cluster holds of topics, for the completeness view of a declarative pipeline.

Invariants: the brokers are asked by ListOffsets when the function is called, which is before the
run reads anything: all that lies below `end` is there for the run to land. Each wait is bounded by
`source.cluster`.
"""

from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.options import parse_options
from ottla.pipelines.source.planning import edges, partitions_of


class Held(NamedTuple):
    """The offsets [first_offset, end_offset) that a partition's log holds.

    With read_committed the end is the last stable offset.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int


SCHEMA = "topic string, partition int, first_offset long, end_offset long"
"""Of rows of `Held`, for `spark.createDataFrame`."""


def held_offsets(
    bootstrap: str, topics: str, isolation: str = "read_uncommitted", properties: str = ""
) -> list[Held]:
    """Return what the cluster holds of each partition of the topics (comma-separated).

    `properties`: a file of client settings, as Kafka's tools take by --command-config.

    ConfigError, UnknownTopicError or ConnectionLostError if that cannot be known.
    """
    options = parse_options(
        {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topics,
            "kafka.isolation.level": isolation,
            "kafka.client.id": "ottla-declarative",
            "properties": properties,
        }
    )
    with Cluster(options) as cluster:
        partitions = partitions_of(cluster.topics(options.subscription))
        first = edges(cluster, dict.fromkeys(partitions, EARLIEST))
        end = edges(cluster, dict.fromkeys(partitions, LATEST))
    return [_held(tp, first[tp], end[tp]) for tp in sorted(partitions)]


def _held(tp: TopicPartition, first: int, end: int) -> Held:
    return Held(tp.topic, tp.partition, first, max(first, end))
