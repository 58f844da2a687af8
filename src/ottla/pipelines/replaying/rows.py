"""Records as rows of Spark: what of the source is copied, and what of the target was copied.

Invariants: only committed records; the rows of one partition of a topic are in one task, in their
order. What is copied is defined here once, for writing and for checking; tests compare with
readers of their own.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.model.errors import ConfigError
from ottla.pipelines import config
from ottla.pipelines.landing.spans import Span
from ottla.pipelines.replaying.origins import HEADER
from ottla.pipelines.replaying.settings import Replay
from ottla.pipelines.source.data_source import ALL_COLUMNS, TopicSource
from ottla.pipelines.source.options import READ_COMMITTED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COPIED = ("partition", "offset", "key", "value", "headers", "timestamp")
HEADERS = "array<struct<key:string,value:binary>>"


def records(
    spark: "SparkSession", cluster: config.Cluster, topic: str, spans: Mapping[int, Span]
) -> "DataFrame":
    """Return the committed records of a topic's spans, none of which is empty."""
    spark.dataSource.register(TopicSource)
    bounds = {
        name: json.dumps({topic: {str(p): getattr(span, side) for p, span in spans.items()}})
        for name, side in (("startingOffsets", "start"), ("endingOffsets", "end"))
    }
    return (
        spark.read.format(TopicSource.name())
        .options(
            **cluster.source_options(every=True),
            **bounds,
            **{"kafka.isolation.level": READ_COMMITTED, "includeHeaders": "true"},
        )
        .option("assign", json.dumps({topic: sorted(spans)}))
        .load()
    )


def copied(found: "DataFrame", replay: Replay, loop_prefix: str) -> "DataFrame":
    """Return what is written of the source's records: COPIED, the key and value as bytes."""
    from pyspark.sql import functions as f

    loops = f.exists(
        "headers", lambda h: (h["key"] == HEADER) & _text(h["value"]).startswith(loop_prefix)
    )
    found = found.where(~f.coalesce(loops, f.lit(False)))
    if replay.filter is not None:
        found = found.where(f.expr(replay.filter))
    written = {name: f.expr(text) for name, text in replay.transform.items()}
    return found.select(
        "partition",
        "offset",
        *(written.get(name, f.col(name)).alias(name) for name in COPIED[2:]),
    )


def refuse_bad_expressions(spark: "SparkSession", replay: Replay) -> None:
    """Let Spark look at filter and transform; ConfigError if they cannot be what they should."""
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    if replay.plain:
        return
    tells_all = PySparkLogger.getLogger("SQLQueryContextLogger")
    disabled, tells_all.disabled = tells_all.disabled, True  # it writes Java's stack to stderr
    try:
        found = copied(spark.createDataFrame([], ALL_COLUMNS), replay, "")
        deterministic = found._jdf.queryExecution().analyzed().deterministic()  # noqa: SLF001
    except PySparkException as error:
        said = str(error).strip().splitlines()[0]
        raise ConfigError(f"[replay]: filter or transform: {said}") from None
    finally:
        tells_all.disabled = disabled
    if not deterministic:
        raise ConfigError(
            "[replay]: filter or transform gives something else each time; an attempt that is "
            "made again, and the check, would not agree with it"
        )
    types = {field.name: field.dataType.simpleString() for field in found.schema}
    wanted = {"key": "binary", "value": "binary", "headers": HEADERS, "timestamp": "timestamp"}
    for name, kind in wanted.items():
        if types[name] not in (kind, "string" if kind == "binary" else kind):
            raise ConfigError(f"[replay]: transform.{name} gives {types[name]}, not {kind}")


def as_bytes(found: "DataFrame") -> "DataFrame":
    """Return COPIED with keys and values that are strings as UTF-8, times in whole ms."""
    from pyspark.sql import functions as f

    return found.select(
        "partition",
        "offset",
        f.col("key").cast("binary").alias("key"),
        f.col("value").cast("binary").alias("value"),
        "headers",
        f.date_trunc("millisecond", "timestamp").alias("timestamp"),
    )


def with_origin(found: "DataFrame") -> "DataFrame":
    """Return the target's records that have an origin.

    Columns: `partition` and `offset` of the origin, `source` (cluster, topic and id of it),
    `to_partition`, `to_offset`; key, value and timestamp; `headers` as they were before.
    """
    from pyspark.sql import functions as f

    last = f.try_element_at(f.filter("headers", lambda h: h["key"] == HEADER), f.lit(-1))
    parts = f.split(_text(last["value"]), ";")
    ends_so = f.try_element_at("headers", f.lit(-1))["key"] == HEADER
    before = f.when(ends_so, f.slice("headers", 1, f.size("headers") - 1)).otherwise(
        f.col("headers")
    )
    return (
        found.withColumn("parts", parts)
        .where(f.size("parts") == 5)
        .select(
            f.expr("try_cast(parts[3] as int)").alias("partition"),
            f.expr("try_cast(parts[4] as bigint)").alias("offset"),
            f.concat_ws(";", f.slice("parts", 1, 3)).alias("source"),
            f.col("partition").alias("to_partition"),
            f.col("offset").alias("to_offset"),
            "key",
            "value",
            before.alias("headers"),
            "timestamp",
        )
        .where("partition is not null and offset is not null")
    )


def _text(value: "Column") -> "Column":
    return value.cast("string")
