"""The Spark job of a batch that writes rows without Spark's rows: plan, run, take what was named.

Invariants: files reach the batch's folder by renames, on the driver, after the job has ended, and
only those of attempts that the job's result names. What is set aside comes back as records for
Spark's parser.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ottla.model.errors import OttlaError
from ottla.pipelines.landing.asking import CLIENT_ID, Topic
from ottla.pipelines.landing.columnar import Plan
from ottla.pipelines.landing.gathering import Gathering, divided_dates, gather
from ottla.pipelines.landing.settings import Settings
from ottla.pipelines.landing.spans import Span
from ottla.pipelines.landing.table import Stage
from ottla.pipelines.landing.writing import Task, Written, write
from ottla.pipelines.paths import spark_path
from ottla.pipelines.source.options import SourceOptions, parse_options
from ottla.pipelines.source.ranges import OffsetRange, divided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

RECORDS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
ROWS_FOR_A_TASK = 50_000
"""Of records that were set aside."""


def write_columns(
    spark: "SparkSession",
    settings: Settings,
    topic: Topic,
    plan: Plan,
    batch: Mapping[int, Span],
    stage: Stage,
) -> "DataFrame | None":
    """Write a batch's rows into `stage`; return the records that are left, None if none are."""
    options = _options(settings, topic, batch)
    folder, layout = str(stage.attempts), settings.layout
    parallelism = spark.sparkContext.defaultParallelism
    gathers = layout.gather and layout.date is not None
    tasks = [
        Task(options, wanted, plan, folder, layout.compression, gathers)
        for wanted in ranges(topic, batch, parallelism)
    ]
    written = _run(spark, write, tasks)
    pieces = [piece for one in written for piece in one.pieces]
    if pieces:
        shares = divided_dates(pieces, parallelism)
        dates = [Gathering(share, folder, layout.compression) for share in shares]
        _take(_run(spark, gather, dates), stage)
    else:
        _take(written, stage)
    aside = [spark_path(one.aside) for one in written if one.aside]
    if not aside:
        return None
    count = sum(one.aside_count for one in written)
    return spark.read.schema(RECORDS).parquet(*aside).coalesce(1 + count // ROWS_FOR_A_TASK)


def _run(spark: "SparkSession", work: Callable[[T], Written], tasks: Sequence[T]) -> list[Written]:
    written = spark.sparkContext.parallelize(tasks, len(tasks)).map(work).collect()
    for one in written:
        if one.problem is not None:
            raise OttlaError(one.problem, one.code)
    return list(written)


def ranges(topic: Topic, batch: Mapping[int, Span], parallelism: int) -> list[OffsetRange]:
    """Return what each task reads: no more than its share, the largest first.

    So no task is left that runs alone at the end for long.
    """
    whole = [OffsetRange(topic.name, topic.id_bytes, p, s.start, s.end) for p, s in batch.items()]
    share = -(-sum(one.size for one in whole) // parallelism)
    return sorted(divided(whole, None, share), key=lambda one: -one.size)


def _options(settings: Settings, topic: Topic, batch: Mapping[int, Span]) -> SourceOptions:
    given = {
        **settings.cluster.source_options(every=True),
        "assign": json.dumps({topic.name: sorted(batch)}),
        "onDataLoss": "fail",
        "kafka.isolation.level": settings.lake.isolation,
    }
    given.setdefault("kafka.client.id", CLIENT_ID)
    return parse_options(given)


def _take(written: list[Written], stage: Stage) -> None:
    """Move the files that were named to where they belong."""
    stage.data.mkdir(exist_ok=True)
    made = set()
    for one in written:
        for path, place in one.rows.items():
            target = stage.data / place
            if target.parent not in made:
                target.parent.mkdir(exist_ok=True)
                made.add(target.parent)
            Path(path).rename(target)
