"""A schema offered: what the newest records of a topic look like.

Invariants: reads a bounded number of records, changes nothing.
"""

import json
from typing import TYPE_CHECKING

from ottla.model.errors import OttlaError
from ottla.pipelines.landing import asking
from ottla.pipelines.landing.columns import inferred, nullable
from ottla.pipelines.landing.parsing import text
from ottla.pipelines.landing.records import records
from ottla.pipelines.landing.settings import Settings
from ottla.pipelines.landing.spans import Span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = 10_000
"""Records of each partition, at most."""


def sampled_schema(spark: "SparkSession", settings: Settings, name: str) -> str:
    """Return the DDL of the columns that a topic's newest JSON objects need."""
    lake = settings.lake

    with asking.reached(settings.cluster, lake.isolation) as cluster:
        held = asking.held(cluster, asking.described(cluster, name))
    spans = {
        p: Span(max(s.start, s.end - SAMPLE), s.end) for p, s in held.items() if s.end > s.start
    }
    if not spans:
        raise OttlaError(f"topic {name} is empty: there is nothing to infer a schema from")
    found = records(spark, settings.cluster, lake.source, name, spans, lake.isolation)
    schema = nullable(inferred(spark, found.select(text())))
    if not schema.fields:
        raise OttlaError(f"topic {name}: its newest records are no JSON objects")
    jvm = spark._jvm  # noqa: SLF001 - Python's schemas do not write DDL
    assert jvm is not None
    kind = jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(schema.jsonValue()))
    return str(kind.toDDL())
