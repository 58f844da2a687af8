"""The comparison as a Spark job: tasks read segments, others judge partitions.

Invariants: of a segment only its summary goes from task to task; files that differ are read again
in cells. With a running cluster, partitions in which something is wrong are looked at once more,
and only what is found twice counts: brokers cut, clean and delete while files are read. Each task
opens the files itself: all machines see them under the same paths.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.pipelines import config
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
    Segment,
    Wanted,
    dir_facts,
    logs_in,
    portions,
    segments_in,
)
from ottla.pipelines.segments.summary import Facts, summarize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES_FOR_A_SHARE = 10_000
"""The files of so many partitions are judged by one task."""
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
    running: config.Cluster | None = None,
) -> Report:
    """Compare the replicas under these folders; OttlaError if there is no log of what is wanted."""
    report = _look(spark, places, wanted, running)
    looks = 1
    while running is not None and report.wrong and looks < LOOKS:
        looks += 1
        topics = frozenset(f.topic for f in report.wrong)
        again = _look(spark, places, Wanted(topics, wanted.partitions), running)
        seen = {(f.tp, f.kind, f.broker, f.offset) for f in again.wrong}
        report.findings = [
            f for f in report.findings if not f.wrong or (f.tp, f.kind, f.broker, f.offset) in seen
        ]
    return report


def plan(places: Sequence[Place], wanted: Wanted, running: config.Cluster | None) -> Plan:
    """Ask the cluster, read the checkpoints of log dirs, list the logs: in this order."""
    truths = {} if running is None else cluster.ask(running, wanted.has)
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
    unknown = set(wanted.topics) - {tp.topic for tp in (*logs, *truths)}
    if not logs or unknown:
        folders = ", ".join(place.path for place in places)
        topics = ", ".join(sorted(unknown or wanted.topics)) or "any topic"
        raise OttlaError(f"no log of {topics} in {folders}; write [BROKER=]FOLDER[,…]")
    brokers = frozenset(place.broker for place in places if place.broker is not None)
    problems = tuple(problem for facts in dirs.values() for problem in facts.problems)
    return Plan(logs, files, truths, brokers, problems, frozenset(written))


def _look(
    spark: "SparkSession", places: Sequence[Place], wanted: Wanted, running: config.Cluster | None
) -> Report:
    planned = plan(places, wanted, running)
    listed = [s for place in places for s in segments_in(place, wanted)] if planned.files else []
    judged = read_and_judge(spark, planned, listed)
    findings = [f for one in judged for f in one.findings]
    findings += _unwritten(planned, {one.tp for one in judged})
    report = _report(_with_origins(findings, judged, listed), planned)
    for one in judged:
        report.bytes += one.bytes
        report.batches += one.batches
        report.records += one.records
    report.asked = running is not None
    return report


def segments(spark: "SparkSession", places: Sequence[Place], wanted: Wanted) -> "DataFrame":
    """Return a row of `SEGMENTS_SCHEMA` for each segment, for jobs that join it with others."""
    from ottla.pipelines.segments.source import SegmentsSource  # needs Spark

    spark.dataSource.register(SegmentsSource)
    reader = spark.read.format(SegmentsSource.name()).option("mode", "segments")
    if wanted.topics:
        reader = reader.option("topics", ",".join(sorted(wanted.topics)))
    if wanted.partitions:
        reader = reader.option("partitions", ",".join(map(str, sorted(wanted.partitions))))
    texts = [p.path if p.broker is None else f"{p.broker}={p.path}" for p in places]
    return reader.load(",".join(texts))


class Judged(NamedTuple):
    """One partition: what is found, how much was read, and the digest of each file.

    `contents`: the file's number in the list of segments, and `Facts.contents`.
    """

    tp: TopicPartition
    findings: list[Finding]
    bytes: int
    batches: int
    records: int
    contents: list[tuple[int, int]]


Row = tuple[int, Segment, bytes]
"""A segment's number in the list, the segment, and its facts, encoded."""
_FACTS = msgspec.msgpack.Encoder()


def read_and_judge(spark: "SparkSession", planned: Plan, listed: Sequence[Segment]) -> list[Judged]:
    """Read all segments in tasks, bring those of a partition together, and judge each partition.

    Python's own objects are shuffled, not rows of a DataFrame: there are few and Spark has nothing
    to compute with them, but planning a query and its workers would take seconds.
    """
    if not listed:
        return []
    numbers = {tp: n for n, tp in enumerate(sorted({segment.tp for segment in listed}))}
    tasks = [[(numbers[s.tp], at, s) for at, s in portion] for portion in _portions(listed)]
    shares = min(
        len(numbers),
        max(spark.sparkContext.defaultParallelism, -(-len(listed) // FILES_FOR_A_SHARE)),
    )
    return list(
        spark.sparkContext.parallelize(tasks, len(tasks))
        .flatMap(read_portion)
        .groupByKey(shares, _itself)
        .map(judging(planned))
        .collect()
    )


def _portions(listed: Sequence[Segment]) -> list[list[tuple[int, Segment]]]:
    """Return what each task reads, the largest first, so that none runs alone at the end."""
    numbers = iter(range(len(listed)))
    found = [[(next(numbers), segment) for segment in some] for some in portions(listed)]
    return sorted(found, key=lambda some: -sum(segment.size for _, segment in some))


def _itself(number: int) -> int:
    return number


def read_portion(task: Sequence[tuple[int, int, Segment]]) -> Iterator[tuple[int, Row]]:
    """Yield each segment's partition and row; OttlaError for a file that cannot be read."""
    for partition, number, segment in task:
        try:
            facts = summarize(segment)
        except OSError as error:
            raise OttlaError(f"{segment.path}: {error.strerror or error}") from None
        yield partition, (number, segment, _FACTS.encode(facts))


def judging(planned: Plan) -> Callable[[tuple[int, Iterable[Row]]], Judged]:
    """Return what a task does with the rows of one partition."""

    def judged(group: tuple[int, Iterable[Row]]) -> Judged:
        return judge_rows(planned, sorted(group[1]))

    return judged


def judge_rows(planned: Plan, rows: Sequence[Row]) -> Judged:
    """Judge one partition, by the rows of all its segments: there is one at least."""
    tp = rows[0][1].tp
    segments: dict[str, list[SegmentFacts]] = {}
    batches = records = 0
    contents = []
    for number, segment, encoded in rows:
        facts = msgspec.msgpack.decode(encoded, type=Facts)
        found = SegmentFacts(segment.base_offset, segment.path, segment.size, facts)
        segments.setdefault(segment.log_dir, []).append(found)
        batches += facts.batches
        records += facts.records
        contents.append((number, facts.contents))
    read = sum(segment.size for _, segment, _ in rows)
    return Judged(tp, judge_logs(tp, planned, segments), read, batches, records, contents)


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


def _with_origins(
    findings: list[Finding], judged: Sequence[Judged], listed: Sequence[Segment]
) -> list[Finding]:
    """Say of which other partition the contents of a file that differs are, if of any."""
    suspects = {f.contents for f in findings if f.contents and f.wrong}
    if not suspects:
        return findings
    same: dict[int, list[Segment]] = {}
    for one in judged:
        for number, contents in one.contents:
            if contents in suspects:
                same.setdefault(contents, []).append(listed[number])
    return [_with_origin(one, same) for one in findings]


def _with_origin(found: Finding, same: Mapping[int, Sequence[Segment]]) -> Finding:
    if not found.contents or not found.wrong:
        return found
    other = next((s for s in same.get(found.contents, ()) if s.tp != found.tp), None)
    if other is None:
        return found
    detail = f"{found.detail}; {other.path} of {other.tp} has the same batches"
    return found._replace(kind=kinds.FOREIGN, detail=detail)


def _report(findings: Iterable[Finding], planned: Plan) -> Report:
    return Report(
        findings=sorted(findings, key=lambda f: (not f.wrong, f.tp, f.offset, f.broker)),
        partitions=len(planned.logs),
        replicas=sum(map(len, planned.logs.values())),
        files=planned.files,
        problems=planned.problems,
    )
