"""The comparison as a Spark job: tasks read segments, others judge partitions.

Who may call: the job `replicas`, tests, benchmarks. Invariants: of a segment only its summary goes
from task to task; files that differ are read again in cells. With a running cluster, partitions in
which something is wrong are looked at once more, and only what is found twice counts: brokers cut,
clean and delete while files are read. Each task opens the files itself: all machines see them under
the same paths.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pandas as pd

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.pipelines.replica_files import cluster
from ottla.pipelines.replica_files import finding as kinds
from ottla.pipelines.replica_files.files import Known, known_of, read_cell, replica_of
from ottla.pipelines.replica_files.finding import Finding
from ottla.pipelines.replica_files.judge import judge, missing_replicas
from ottla.pipelines.replica_files.replica import SegmentFacts, Truth
from ottla.pipelines.segments.folders import (
    EVERYTHING,
    DirFacts,
    Place,
    Wanted,
    dir_facts,
    logs_in,
)
from ottla.pipelines.segments.summary import Facts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINDINGS_SCHEMA = (
    "topic string, partition int, kind string, offset long, broker int, file string, "
    "position long, detail string, wrong boolean, contents long"
)
LOOKS = 2


@dataclass(frozen=True)
class Plan:
    """The logs of each partition as they were listed, and what the cluster says if it was asked."""

    logs: Mapping[TopicPartition, Sequence[Known]]
    files: int
    truths: Mapping[TopicPartition, Truth]
    brokers: frozenset[int] = frozenset()
    problems: tuple[str, ...] = ()
    written: frozenset[TopicPartition] = frozenset()
    """Partitions of which any replica has a file."""


@dataclass
class Report:
    """What was looked at, and found. `asked`: whether the cluster was."""

    findings: list[Finding]
    partitions: int = 0
    replicas: int = 0
    files: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    asked: bool = False
    problems: tuple[str, ...] = field(default_factory=tuple)

    @property
    def wrong(self) -> list[Finding]:
        return [f for f in self.findings if f.wrong]

    @property
    def held(self) -> bool:
        return not self.wrong and not self.problems


def compare(
    spark: "SparkSession",
    places: Sequence[Place],
    wanted: Wanted = EVERYTHING,
    bootstrap: str | None = None,
) -> Report:
    """Compare the replicas under these folders; OttlaError if there is no log of what is wanted."""
    report = _look(spark, places, wanted, bootstrap)
    looks = 1
    while bootstrap is not None and report.wrong and looks < LOOKS:
        looks += 1
        topics = frozenset(f.topic for f in report.wrong)
        again = _look(spark, places, Wanted(topics, wanted.partitions), bootstrap)
        seen = {(f.tp, f.kind, f.broker, f.offset) for f in again.wrong}
        report.findings = [
            f for f in report.findings if not f.wrong or (f.tp, f.kind, f.broker, f.offset) in seen
        ]
    return report


def plan(places: Sequence[Place], wanted: Wanted, bootstrap: str | None) -> Plan:
    """Ask the cluster, read the checkpoints of log dirs, list the logs: in this order."""
    truths = {} if bootstrap is None else cluster.ask(bootstrap, wanted.has)
    dirs: dict[str, DirFacts] = {}
    logs: dict[TopicPartition, list[Known]] = {}
    files = 0
    written: set[TopicPartition] = set()
    for place in places:
        for log in logs_in(place, wanted):
            facts = dirs.get(log.log_dir)
            if facts is None:
                facts = dirs[log.log_dir] = dir_facts(log.log_dir)
            known = known_of(log.broker, log.log_dir, log.tp, facts)
            logs.setdefault(log.tp, []).append(known)
            files += len(log.segments)
            if log.segments:
                written.add(log.tp)
    if not logs:
        folders = ", ".join(place.path for place in places)
        raise OttlaError(f"no log of what is wanted in {folders}; write [BROKER=]FOLDER[,…]")
    brokers = frozenset(place.broker for place in places if place.broker is not None)
    problems = tuple(problem for facts in dirs.values() for problem in facts.problems)
    return Plan(logs, files, truths, brokers, problems, frozenset(written))


def _look(
    spark: "SparkSession", places: Sequence[Place], wanted: Wanted, bootstrap: str | None
) -> Report:
    planned = plan(places, wanted, bootstrap)
    asked = bootstrap is not None
    if not planned.files:
        return _report(_unwritten(planned, ()), {}, planned, asked=asked)
    files = segments(spark, places, wanted).persist()
    try:
        findings = _judged(files, planned)
        totals = _totals(files)
        findings = _with_origins([*findings, *_unwritten(planned, totals)], files)
        return _report(findings, totals, planned, asked=asked)
    finally:
        files.unpersist()


def segments(spark: "SparkSession", places: Sequence[Place], wanted: Wanted) -> "DataFrame":
    from ottla.pipelines.segments.source import SegmentsSource  # noqa: PLC0415 - needs Spark

    spark.dataSource.register(SegmentsSource)
    reader = spark.read.format(SegmentsSource.name()).option("mode", "segments")
    if wanted.topics:
        reader = reader.option("topics", ",".join(sorted(wanted.topics)))
    if wanted.partitions:
        reader = reader.option("partitions", ",".join(map(str, sorted(wanted.partitions))))
    texts = [p.path if p.broker is None else f"{p.broker}={p.path}" for p in places]
    return reader.load(",".join(texts))


def _judged(files: "DataFrame", planned: Plan) -> list[Finding]:
    rows = (
        files.select("topic", "partition", "folder", "file", "segment", "size", "facts")
        .groupBy("topic", "partition")
        .applyInPandas(judging(planned), FINDINGS_SCHEMA)
        .collect()
    )
    return [Finding(*row) for row in rows]


def judging(planned: Plan) -> Callable[[tuple[str, int], pd.DataFrame], pd.DataFrame]:
    """Return what a task does with the segments' rows of one partition."""

    def judged(key: tuple[str, int], rows: pd.DataFrame) -> pd.DataFrame:
        return judge_rows(planned, TopicPartition(str(key[0]), int(key[1])), rows)

    return judged


def judge_rows(planned: Plan, tp: TopicPartition, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the findings of one partition as rows."""
    segments: dict[str, list[SegmentFacts]] = {}
    for folder, file, base, size, facts in zip(
        rows["folder"], rows["file"], rows["segment"], rows["size"], rows["facts"], strict=True
    ):
        segment = SegmentFacts(
            int(base), file, int(size), msgspec.msgpack.decode(facts, type=Facts)
        )
        segments.setdefault(folder, []).append(segment)
    return pd.DataFrame(judge_logs(tp, planned, segments), columns=list(Finding._fields))


def judge_logs(
    tp: TopicPartition, planned: Plan, segments: Mapping[str, Sequence[SegmentFacts]]
) -> list[Finding]:
    """Judge one partition by the facts of its segments, by log dir."""
    replicas = [
        replica_of(tp, known, segments.get(known.log_dir, ())) for known in planned.logs.get(tp, ())
    ]
    truth = planned.truths.get(tp)
    found = judge(replicas, read_cell, truth)
    return found + list(missing_replicas(replicas, truth, planned.brokers))


def _unwritten(planned: Plan, seen: Collection[TopicPartition]) -> list[Finding]:
    """Judge the partitions none of whose replicas has a file: nothing was written to them yet."""
    return [f for tp in sorted(planned.logs.keys() - seen) for f in judge_logs(tp, planned, {})]


def _with_origins(findings: list[Finding], files: "DataFrame") -> list[Finding]:
    """Say of which other partition the contents of a file that differs are, if of any."""
    suspects = {f.contents for f in findings if f.contents and f.wrong}
    if not suspects:
        return findings
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    rows = files.filter(f.col("contents").isin(sorted(suspects))).collect()
    return [_with_origin(one, rows) for one in findings]


def _with_origin(found: Finding, rows: Sequence[Any]) -> Finding:
    if not found.contents or not found.wrong:
        return found
    others = [
        row
        for row in rows
        if row["contents"] == found.contents
        and (row["topic"], row["partition"]) != (found.topic, found.partition)
    ]
    if not others:
        return found
    other = others[0]
    detail = (
        f"{found.detail}; {other['file']} of {other['topic']}-{other['partition']} has the same"
    )
    return found._replace(kind=kinds.FOREIGN, detail=f"{detail} batches")


class _Total(NamedTuple):
    """How much was read of a partition."""

    bytes: int
    batches: int
    records: int


def _totals(files: "DataFrame") -> dict[TopicPartition, _Total]:
    rows = files.groupBy("topic", "partition").sum("size", "batches", "records").collect()
    return {TopicPartition(row[0], row[1]): _Total(row[2], row[3], row[4]) for row in rows}


def _report(
    findings: Iterable[Finding],
    totals: Mapping[TopicPartition, _Total],
    planned: Plan,
    *,
    asked: bool,
) -> Report:
    return Report(
        findings=sorted(findings, key=lambda f: (not f.wrong, f.tp, f.offset, f.broker)),
        partitions=len(planned.logs),
        replicas=sum(map(len, planned.logs.values())),
        files=planned.files,
        bytes=sum(total.bytes for total in totals.values()),
        batches=sum(total.batches for total in totals.values()),
        records=sum(total.records for total in totals.values()),
        asked=asked,
        problems=planned.problems,
    )
