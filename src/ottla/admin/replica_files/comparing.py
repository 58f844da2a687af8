"""The comparison: each file is read once, by processes of its own; then partitions are judged.

Invariants: of a segment only its facts go from process to process; files that differ are read again
in cells. With a running cluster, partitions in which something is wrong are looked at once more,
and only what is found twice counts: brokers cut, clean and delete while files are read.
"""

import itertools
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from msgspec import UNSET, Struct, UnsetType

from ottla.admin.replica_files import finding as kinds
from ottla.admin.replica_files.finding import Finding
from ottla.admin.replica_files.folders import (
    EVERYTHING,
    DirFacts,
    Place,
    Segment,
    Wanted,
    dir_facts,
    logs_in,
)
from ottla.admin.replica_files.judge import judge, missing_replicas
from ottla.admin.replica_files.replica import SegmentFacts, Truth
from ottla.admin.replica_files.small_files import Known, known_of, read_cell, replica_of
from ottla.admin.replica_files.summary import Facts, summarize
from ottla.model.errors import OttlaError
from ottla.model.ids import Partition, TopicPartition

FEW_BYTES = 64 << 20
"""So much is read sooner than processes start."""
FILES_AT_ONCE = 16
"""Files that a process takes at a time."""
LOOKS = 2

Truths = Mapping[TopicPartition, Truth]


@dataclass(frozen=True)
class Plan:
    """The logs of each partition as they were listed, and what the cluster says if it was asked."""

    logs: Mapping[TopicPartition, Sequence[Known]]
    segments: Sequence[Segment]
    truths: Truths
    brokers: frozenset[int] = frozenset()
    problems: tuple[str, ...] = ()


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


class FileFinding(Partition, frozen=True):
    """A finding as it is printed; `wrong` is false for what a healthy cluster may show, too.

    `broker` is missing where it is about all replicas, or no one knows whose a folder is.
    """

    kind: str
    wrong: bool
    offset: int | None
    file: str | None
    position: int | None
    detail: str
    broker: int | UnsetType = UNSET


class ComparedFiles(Struct, frozen=True):
    """The report as it is printed; offsets and places that no one knows are null."""

    held: bool
    partitions: int
    replicas: int
    files: int
    bytes: int
    batches: int
    records: int
    cluster_asked: bool
    problems: list[str]
    findings: list[FileFinding]

    @classmethod
    def of(cls, report: Report) -> "ComparedFiles":
        def known(number: int) -> int | None:
            return None if number < 0 else number

        return cls(
            report.held,
            report.partitions,
            report.replicas,
            report.files,
            report.bytes,
            report.batches,
            report.records,
            report.asked,
            list(report.problems),
            [
                FileFinding(
                    *f.tp,
                    f.kind,
                    f.wrong,
                    known(f.offset),
                    f.file or None,
                    known(f.position),
                    f.detail,
                    UNSET if f.broker < 0 else f.broker,
                )
                for f in report.findings
            ],
        )


def compare(
    places: Sequence[Place],
    wanted: Wanted = EVERYTHING,
    ask: Callable[[Wanted], Truths] | None = None,
) -> Report:
    """Compare the replicas under these folders; OttlaError if there is no log of what is wanted.

    `ask` asks the running cluster, before files are listed.
    """
    report = _look(places, wanted, ask)
    looks = 1
    while ask is not None and report.wrong and looks < LOOKS:
        looks += 1
        topics = frozenset(f.topic for f in report.wrong)
        again = _look(places, Wanted(topics, wanted.partitions), ask)
        seen = {(f.tp, f.kind, f.broker, f.offset) for f in again.wrong}
        report.findings = [
            f for f in report.findings if not f.wrong or (f.tp, f.kind, f.broker, f.offset) in seen
        ]
    return report


def plan(places: Sequence[Place], wanted: Wanted, truths: Truths) -> Plan:
    """Read the checkpoints of log dirs, then list the logs."""
    dirs: dict[str, DirFacts] = {}
    logs: dict[TopicPartition, list[Known]] = {}
    segments: list[Segment] = []
    for place in places:
        for log in logs_in(place, wanted):
            facts = dirs.get(log.log_dir)
            if facts is None:
                facts = dirs[log.log_dir] = dir_facts(log.log_dir)
            known = known_of(log.broker, log.log_dir, log.tp, facts)
            logs.setdefault(log.tp, []).append(known)
            segments += log.segments
    unknown = set(wanted.topics) - {tp.topic for tp in (*logs, *truths)}
    if not logs or unknown:
        folders = ", ".join(place.path for place in places)
        topics = ", ".join(sorted(unknown or wanted.topics)) or "any topic"
        raise OttlaError(f"no log of {topics} in {folders}; write [BROKER=]FOLDER[,…]")
    brokers = frozenset(place.broker for place in places if place.broker is not None)
    problems = tuple(problem for facts in dirs.values() for problem in facts.problems)
    return Plan(logs, sorted(segments, key=_partition), truths, brokers, problems)


def _partition(segment: Segment) -> TopicPartition:
    return segment.tp


def _look(
    places: Sequence[Place], wanted: Wanted, ask: Callable[[Wanted], Truths] | None
) -> Report:
    planned = plan(places, wanted, {} if ask is None else ask(wanted))
    report = Report(
        [],
        len(planned.logs),
        sum(map(len, planned.logs.values())),
        len(planned.segments),
        sum(segment.size for segment in planned.segments),
        asked=ask is not None,
        problems=planned.problems,
    )
    contents: dict[int, list[Segment]] = {}
    unwritten = set(planned.logs)
    findings: list[Finding] = []
    for tp, group in itertools.groupby(_read(planned.segments), lambda one: one[0].tp):
        by_dir: dict[str, list[SegmentFacts]] = {}
        for segment, facts in group:
            found = SegmentFacts(segment.base_offset, segment.path, segment.size, facts)
            by_dir.setdefault(segment.log_dir, []).append(found)
            contents.setdefault(facts.contents, []).append(segment)
            report.batches += facts.batches
            report.records += facts.records
        findings += judge_logs(tp, planned, by_dir)
        unwritten.discard(tp)
    for tp in sorted(unwritten):
        findings += judge_logs(tp, planned, {})
    findings = [_with_origin(one, contents.get(one.contents, ())) for one in findings]
    report.findings = sorted(findings, key=lambda f: (not f.wrong, f.tp, f.offset, f.broker))
    return report


def _read(segments: Sequence[Segment]) -> Iterator[tuple[Segment, Facts]]:
    """Yield each segment with what it holds; OttlaError for a file that cannot be read."""
    if len(segments) < 2 or sum(segment.size for segment in segments) < FEW_BYTES:
        yield from zip(segments, map(_facts, segments), strict=True)
        return
    with ProcessPoolExecutor(initializer=_leave_interrupts) as pool:
        chunk = max(1, min(FILES_AT_ONCE, len(segments) // (4 * (os.cpu_count() or 1))))
        try:
            yield from zip(segments, pool.map(_facts, segments, chunksize=chunk), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)


def _leave_interrupts() -> None:
    """Ctrl-C is for the process that waits for this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _facts(segment: Segment) -> Facts:
    try:
        return summarize(segment)
    except OSError as error:
        raise OttlaError(f"{segment.path}: {error.strerror or error}") from None


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


def _with_origin(found: Finding, same: Iterable[Segment]) -> Finding:
    """Say of which other partition the contents of a file that differs are, if of any."""
    other = next((s for s in same if s.tp != found.tp), None)
    if not found.contents or not found.wrong or other is None:
        return found
    detail = f"{found.detail}; {other.path} of {other.tp} has the same batches"
    return found._replace(kind=kinds.FOREIGN, detail=detail)
