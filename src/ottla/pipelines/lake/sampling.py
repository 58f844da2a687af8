"""A schema offered: what the newest records of a topic look like. Needs no Spark."""

import msgspec

from ottla.model.errors import OttlaError
from ottla.pipelines.lake import asking
from ottla.pipelines.lake.schemas import ddl, merged, seen_in, settled
from ottla.pipelines.lake.settings import Settings
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.options import parse_options
from ottla.pipelines.source.ranges import OffsetRange
from ottla.pipelines.source.scan import scan

SAMPLE = 10_000
"""Records of each partition, at most."""


def sampled_schema(settings: Settings, cluster: Cluster, name: str) -> str:
    """Return the DDL of the columns that a topic's newest JSON objects need."""
    import pyarrow as pa

    topic = asking.described(cluster, name)
    options = parse_options(
        {
            **settings.cluster.source_options(every=True),
            "subscribe": name,
            "kafka.isolation.level": settings.lake.isolation,
        }
    )
    found, count = pa.null(), 0
    for p, span in asking.held(cluster, topic).items():
        start = max(span.start, span.end - SAMPLE)
        wanted = OffsetRange(name, topic.id_bytes, p, start, span.end)
        for records in scan(options, wanted, ("value",)):
            for value in records.column("value").to_pylist():
                count += 1
                try:
                    told = msgspec.json.decode(value or b"")
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue
                if isinstance(told, dict):
                    found = merged(found, seen_in(told))
    if not count:
        raise OttlaError(f"topic {name} is empty: there is nothing to infer a schema from")
    if not pa.types.is_struct(found) or not found.num_fields:
        raise OttlaError(f"topic {name}: its newest records are no JSON objects")
    return ddl(sorted(settled(found), key=lambda field: field.name))
