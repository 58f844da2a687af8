"""The check: both topics read again and compared, record by record, by the source's coordinates.

Invariants: what should be there is what the source's cluster holds in the spans, read by a reader
of its own, not what the writer counted. Workers hash and count in blocks of offsets; only blocks
that differ are looked into.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ottla.model.errors import OttlaError
from ottla.pipelines import config
from ottla.pipelines.landing.asking import Topic
from ottla.pipelines.landing.spans import Span
from ottla.pipelines.replaying import comparing, rows, sums
from ottla.pipelines.replaying.comparing import Blocks, Finding
from ottla.pipelines.replaying.settings import Replay
from ottla.pipelines.replaying.sums import BLOCK, Detail, Part, Sum
from ottla.pipelines.source.options import SourceOptions
from ottla.pipelines.source.ranges import OffsetRange, divided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_BLOCKS = 32
MOST_DUPLICATES = 100


@dataclass(frozen=True, slots=True)
class Side:
    """A topic, how its cluster is reached, and what is read of it."""

    cluster: config.Cluster
    options: SourceOptions
    topic: Topic
    spans: Mapping[int, Span]


@dataclass(frozen=True, slots=True)
class Compared:
    """What is compared: records of the target count if `source_name` is their origin's."""

    replay: Replay
    source: Side
    target: Side
    source_name: str
    loop_prefix: str
    dropped: Mapping[int, frozenset[int]] = field(default_factory=dict)
    all_of_job: bool = False
    """Whether records of before the spans are none of the comparison; else they are doubled."""


@dataclass(slots=True)
class Outcome:
    """What a check found. `records`: of the source, `copied`: what the target should have."""

    records: int = 0
    copied: int = 0
    gaps: int = 0
    findings: list[Finding] = field(default_factory=list)
    more: int = 0
    runs: list[comparing.Run] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """Return what is wrong, in words."""
        more = [f"and {self.more} more blocks of offsets differ"] if self.more else []
        return [*map(str, self.findings), *more]


def compare(spark: "SparkSession", wanted: Compared) -> Outcome:
    """Read the spans of both topics and compare them."""
    parts = _parts(spark, wanted)
    found = _run(spark, parts)
    of_source = [one for one in found if one.of_source]
    of_target = [one for one in found if not one.of_source]
    records = sum(one.records for one in of_source)
    expected: Blocks = comparing.merged(one.blocks for one in of_source)
    should = _expected(spark, wanted)
    if should is not None:
        expected = _blocks(should)
    there = comparing.merged(one.blocks for one in of_target)
    outcome = Outcome(
        records=records,
        copied=sum(count for count, _ in expected.values()),
        gaps=sum(span.size for span in wanted.source.spans.values()) - records,
        runs=comparing.joined(run for one in of_target for run in one.runs),
    )
    different = comparing.different(expected, there)
    if different:
        looked = different[:MOST_BLOCKS]
        outcome.more = len(different) - len(looked)
        details = _run(spark, [replace(part, blocks=frozenset(looked)) for part in parts])
        wanted_details = [d for one in details if one.of_source for d in one.details]
        if should is not None:
            wanted_details = _details(should, looked)
        outcome.findings = comparing.findings(
            wanted_details,
            [d for one in details if not one.of_source for d in one.details],
            wanted.source.spans,
        )
    return outcome


def target_runs(spark: "SparkSession", wanted: Compared) -> list[comparing.Run]:
    """Return where the source's offsets of the spans stand in the target."""
    parts = [part for part in _parts(spark, wanted) if part.source_name is not None]
    return comparing.joined(run for one in _run(spark, parts) for run in one.runs)


def duplicates(
    spark: "SparkSession", target: config.Cluster, topic: str, spans: Mapping[int, Span]
) -> list[dict[str, Any]]:
    """Return the records of a topic whose origin stands there more than once, MOST_DUPLICATES."""
    from pyspark.sql import functions as f

    spans = {p: span for p, span in spans.items() if span.size}
    if not spans:
        return []
    found = rows.with_origin(rows.records(spark, target, topic, spans))
    keys = ("source", "partition", "offset")
    twice = (
        found.groupBy(*keys)
        .agg(
            f.count("*").alias("times"),
            f.sort_array(f.collect_list(f.struct("to_partition", "to_offset"))).alias("places"),
        )
        .where("times > 1")
        .orderBy(*keys)
        .limit(MOST_DUPLICATES)
    )
    return [
        {
            **{key: row[key] for key in (*keys, "times")},
            "places": [list(place) for place in row["places"]],
        }
        for row in twice.collect()
    ]


def later_duplicates(
    spark: "SparkSession", source: config.Cluster, topic: str, spans: Mapping[int, Span]
) -> dict[int, frozenset[int]]:
    """Return offsets of records whose origin stands in the topic before, by partition.

    Before is by partition, then by offset: the first of them is kept.
    """
    from pyspark.sql import functions as f

    spans = {p: span for p, span in spans.items() if span.size}
    if not spans:
        return {}
    found = rows.with_origin(rows.records(spark, source, topic, spans))
    places = f.sort_array(f.collect_list(f.struct("to_partition", "to_offset")))
    twice = (
        found.groupBy("source", "partition", "offset")
        .agg(places.alias("places"))
        .where(f.size("places") > 1)
        .select(f.explode(f.slice("places", 2, f.size("places"))).alias("place"))
        .select("place.*")
    )
    offsets: dict[int, set[int]] = {}
    for partition, offset in twice.collect():
        offsets.setdefault(partition, set()).add(offset)
    return {p: frozenset(found) for p, found in offsets.items()}


def spans_between(starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, Span]:
    """Return the span of each partition; one that has no start begins at 0."""
    return {p: Span(min(starts.get(p, 0), end), end) for p, end in ends.items()}


def _parts(spark: "SparkSession", wanted: Compared) -> list[Part]:
    """Divide both topics' spans among tasks."""
    cores = spark.sparkContext.defaultParallelism
    found = []
    for side in (wanted.source, wanted.target):
        of_target = side is wanted.target
        ranges = [
            OffsetRange(side.topic.name, side.topic.id_bytes, p, span.start, span.end)
            for p, span in side.spans.items()
        ]
        found += [
            Part(
                options=side.options,
                topic=side.topic,
                partition=one.partition,
                span=Span(one.start, one.end),
                spans=wanted.source.spans,
                source_name=wanted.source_name if of_target else None,
                loop_prefix=wanted.loop_prefix,
                hashed=wanted.replay.plain,
                all_of_job=wanted.all_of_job,
                dropped=wanted.dropped.get(one.partition, frozenset()),
            )
            for one in divided(ranges, cores, None)
        ]
    return found


def _run(spark: "SparkSession", parts: list[Part]) -> list[Sum]:
    if not parts:
        return []
    context = spark.sparkContext
    slices = min(len(parts), 4 * context.defaultParallelism)
    found = context.parallelize(parts, slices).map(sums.summed).collect()
    for one in found:
        if one.problem is not None:
            raise OttlaError(one.problem)
    return list(found)


def _expected(spark: "SparkSession", wanted: Compared) -> "DataFrame | None":
    """Return hashes of what filter and transform make of the source; None without these."""
    spans = {p: span for p, span in wanted.source.spans.items() if span.size}
    if wanted.replay.plain or not spans:
        return None
    found = rows.records(spark, wanted.source.cluster, wanted.replay.topic, spans)
    found = rows.as_bytes(rows.copied(found, wanted.replay, wanted.loop_prefix))
    drops = [(p, o) for p, offsets in wanted.dropped.items() for o in offsets]
    if drops:
        dropped = spark.createDataFrame(drops, "partition int, offset long")
        found = found.join(dropped, ["partition", "offset"], "left_anti")
    return found.mapInArrow(sums.hashed_rows, sums.HASHED)


def _blocks(found: "DataFrame") -> Blocks:
    from pyspark.sql import functions as f

    block = f.floor(f.col("offset") / BLOCK).cast("long").alias("block")
    summed = found.groupBy("partition", block).agg(f.count("*"), f.bit_xor("hash")).collect()
    return {(row[0], row[1]): (row[2], row[3]) for row in summed}


def _details(found: "DataFrame", blocks: list[tuple[int, int]]) -> list[Detail]:
    inside = " or ".join(
        f"(partition = {p} and offset >= {b * BLOCK} and offset < {(b + 1) * BLOCK})"
        for p, b in blocks
    )
    return [(row[0], row[1], row[2], None) for row in found.where(inside).collect()]
