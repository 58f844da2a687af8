"""Records as rows of Spark: what of the source is copied, and what of the target was copied.

Where a copied record came from stands in its last header `ottla.source`, as text:
`CLUSTER_ID;TOPIC;TOPIC_ID;PARTITION;OFFSET`, the ids as Kafka's tools print them; no name and no id
has a semicolon. A record that is copied again keeps its headers and gets one more.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.model.errors import ConfigError
from ottla.pipelines import config
from ottla.pipelines.replaying.settings import Replay
from ottla.pipelines.sink.data_source import TopicFormat
from ottla.pipelines.source.data_source import ALL_COLUMNS
from ottla.pipelines.source.options import READ_COMMITTED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

HEADER = "ottla.source"
COPIED = ("partition", "offset", "key", "value", "headers", "timestamp")
HEADERS = "array<struct<key:string,value:binary>>"
NOT_UTF8 = "\N{REPLACEMENT CHARACTER}"

Spans = Mapping[int, tuple[int, int]]
"""First and next offset by partition."""


def records(
    spark: "SparkSession", cluster: config.Cluster, topic: str, spans: Spans
) -> "DataFrame":
    """Return the committed records of a topic's spans."""
    spark.dataSource.register(TopicFormat)
    spans = {p: span for p, span in spans.items() if span[0] < span[1]}
    if not spans:
        return spark.createDataFrame([], ALL_COLUMNS)
    bounds = {
        name: json.dumps({topic: {str(p): span[side] for p, span in spans.items()}})
        for side, name in enumerate(("startingOffsets", "endingOffsets"))
    }
    return (
        spark.read.format(TopicFormat.name())
        .options(
            **cluster.source_options(every=True),
            **bounds,
            **{"kafka.isolation.level": READ_COMMITTED, "includeHeaders": "true"},
        )
        .option("assign", json.dumps({topic: sorted(spans)}))
        .load()
    )


def loops(prefix: str) -> "Column":
    """Return whether a record came from the target, at any step."""
    from pyspark.sql import functions as f

    found = f.exists(
        "headers", lambda h: (h["key"] == HEADER) & _text(h["value"]).startswith(prefix)
    )
    return f.coalesce(found, f.lit(False))


def copied(found: "DataFrame", replay: Replay, prefix: str) -> "DataFrame":
    """Return what is written of the source's records: COPIED, keys and values as bytes."""
    from pyspark.sql import functions as f

    found = found.where(~loops(prefix))
    if replay.filter is not None:
        found = found.where(f.expr(replay.filter))
    written = {name: f.expr(text) for name, text in replay.transform.items()}
    columns = {name: written.get(name, f.col(name)) for name in COPIED[2:]}
    columns["key"] = columns["key"].cast("binary")
    columns["value"] = columns["value"].cast("binary")
    columns["timestamp"] = f.date_trunc("millisecond", columns["timestamp"])
    return found.select("partition", "offset", *(c.alias(n) for n, c in columns.items()))


def with_source(found: "DataFrame", name: str) -> "DataFrame":
    """Return rows of COPIED with the header that says where they came from."""
    from pyspark.sql import functions as f

    value = f.concat_ws(";", f.lit(name), f.col("partition"), f.col("offset")).cast("binary")
    ours = f.array(f.struct(f.lit(HEADER).alias("key"), value.alias("value")))
    before = f.coalesce("headers", f.array().cast(HEADERS))
    bad = f.exists(before, lambda h: h["key"].isNull() | h["key"].contains(NOT_UTF8))
    told = f.concat_ws(
        "", f.lit("offset "), f.col("offset"), f.lit(" of partition "), f.col("partition"),
        f.lit(": a header's name is null or not UTF-8, which rows of Spark cannot carry"),
    )  # fmt: skip
    headers = f.when(bad, f.raise_error(told).cast(HEADERS)).otherwise(f.concat(before, ours))
    return found.withColumn("headers", headers)


def with_origin(found: "DataFrame", name: str) -> "DataFrame":
    """Return the target's records that are copies of a source (`CLUSTER;TOPIC;ID`).

    Columns: COPIED as they were in the source, and `to_partition`, `to_offset`.
    """
    from pyspark.sql import functions as f

    last = f.try_element_at(f.filter("headers", lambda h: h["key"] == HEADER), f.lit(-1))
    ends_so = f.try_element_at("headers", f.lit(-1))["key"] == HEADER
    before = f.when(ends_so, f.slice("headers", 1, f.size("headers") - 1)).otherwise(
        f.col("headers")
    )
    return (
        found.withColumn("origin", _text(last["value"]))
        .where(f.col("origin").startswith(f"{name};"))
        .select(
            f.expr("try_cast(split(origin, ';')[3] as int)").alias("partition"),
            f.expr("try_cast(split(origin, ';')[4] as bigint)").alias("offset"),
            "key",
            "value",
            before.alias("headers"),
            "timestamp",
            f.col("partition").alias("to_partition"),
            f.col("offset").alias("to_offset"),
        )
        .where("partition is not null and offset is not null")
    )


def refuse_bad_expressions(spark: "SparkSession", replay: Replay) -> None:
    """Let Spark look at filter and transform; ConfigError if they cannot be what they should."""
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    tells_all = PySparkLogger.getLogger("SQLQueryContextLogger")
    disabled, tells_all.disabled = tells_all.disabled, True  # it writes Java's stack to stderr
    try:
        given = spark.createDataFrame([], ALL_COLUMNS)
        types = dict(given.selectExpr(*(f"{e} as {n}" for n, e in replay.transform.items())).dtypes)
        for name, kind in types.items():
            wanted = "binary" if name in ("key", "value") else {"headers": HEADERS}.get(name, name)
            if kind not in (wanted, "string" if wanted == "binary" else wanted):
                raise ConfigError(f"[replay]: transform.{name} gives {kind}, not {wanted}")
        found = copied(given, replay, "")
        deterministic = found._jdf.queryExecution().analyzed().deterministic()  # noqa: SLF001
    except PySparkException as error:
        said = str(error).strip().splitlines()[0]
        raise ConfigError(f"[replay]: filter or transform: {said}") from None
    finally:
        tells_all.disabled = disabled
    if not deterministic:
        raise ConfigError(
            "[replay]: filter or transform gives something else each time: the check would not "
            "agree with what was copied"
        )


def _text(value: "Column") -> "Column":
    return value.cast("string")
