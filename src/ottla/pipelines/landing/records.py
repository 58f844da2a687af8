"""Records of given offsets as a DataFrame: the one place where the lake meets a source.

Invariants: the columns are those of Spark's Kafka connector: key, value, topic, partition, offset,
timestamp, timestampType, headers. Offsets that are gone make the job fail; they are never skipped
here.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.pipelines.config import Cluster
from ottla.pipelines.landing.spans import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLL_RECORDS = "20000"
"""The connector asks for the log's start and end at every poll: few large polls, not many."""
PARTITION_BYTES = str(8 * 1024 * 1024)


def records(
    spark: "SparkSession",
    cluster: Cluster,
    source: str,
    topic: str,
    spans: Mapping[int, Span],
    isolation: str,
) -> "DataFrame":
    """Return the records of one span of each partition."""
    reader = spark.read.format(source)
    if source != "kafka":
        reader = reader.options(**cluster.source_options(every=True))
    else:
        reader = reader.options(
            **cluster.connector_options(),
            **{
                "kafka.max.poll.records": POLL_RECORDS,
                "kafka.max.partition.fetch.bytes": PARTITION_BYTES,
            },
        )
    return reader.options(
        **{
            "assign": json.dumps({topic: sorted(spans)}),
            "startingOffsets": _offsets(topic, {p: s.start for p, s in spans.items()}),
            "endingOffsets": _offsets(topic, {p: s.end for p, s in spans.items()}),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "kafka.isolation.level": isolation,
            "minPartitions": str(max(len(spans), spark.sparkContext.defaultParallelism)),
        }
    ).load()


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(p): offset for p, offset in sorted(offsets.items())}})
