"""Here: a small drill in this process, without Spark or Java; the same rules, the same report.

Invariants: each partition's rules are the functions that `job` runs on Spark; only the reading and
grouping is done again, in plain Python. All facts are in memory: what is larger than MOST_BYTES is
refused with the way out.
"""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.pipelines.auditing.reading import Landed
from ottla.pipelines.drilling import job, reasons
from ottla.pipelines.drilling.cells import CELL, Run, judge
from ottla.pipelines.drilling.held import Confirmed, Given, known_of, report_of, row_of
from ottla.pipelines.drilling.joining import Report
from ottla.pipelines.drilling.runs import runs_of
from ottla.pipelines.replica_files import job as replica_job
from ottla.pipelines.replica_files.replica import SegmentFacts
from ottla.pipelines.segments.folders import Wanted as Logs
from ottla.pipelines.segments.folders import logs_in
from ottla.pipelines.segments.reading import SegmentReader
from ottla.pipelines.segments.summary import Summary
from ottla.pipelines.timeline import clocks, journals, lines
from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.events import Event
from ottla.pipelines.timeline.facts import Brokers, Fact
from ottla.pipelines.timeline.findings import Acted, stale_controllers
from ottla.pipelines.timeline.history import history

MOST_BYTES = 1 << 30
"""Of segments, logs and acknowledgements together."""
SECOND_MS = 1000
_FACT = [name for name in Fact._fields if name not in {"file", "place", "life"}]

Name = tuple[str, int]
Parts = dict[Name, dict[str, list[Any]]]


def drill(wanted: job.Wanted) -> tuple[list[Report], dict[str, Any]]:
    """Return the reports, the worst first, and what is of no single partition."""
    general: dict[str, Any] = {"acknowledgements": None, "lake": None, "logs": None}
    acks = _acks(wanted, general)
    landed = job.landed_tables(wanted)
    general["lake"] = None if wanted.lake is None else sorted(one.topic for one in landed)
    logs = Logs(frozenset(wanted.topics), frozenset(wanted.partitions))
    planned = replica_job.plan(wanted.places, logs, wanted.cluster)
    job.refuse_other_topics(landed, planned)
    given = Given(
        frozenset(topic for topic, _ in acks),
        {one.topic: one.isolation == "read_committed" for one in landed},
        wanted.overlap_ms,
        wanted.start_ms is None and wanted.end_ms is None,
    )
    parts: Parts = defaultdict(lambda: defaultdict(list))
    runs, confirmed = _replicas(wanted, logs, planned, parts)
    _history(wanted, general, parts)
    for row in job.rows_of_manifests(landed, wanted):
        parts[row[0], row[1]][row[2]].append(json.loads(row[3]))
    rows = _lake_rows(landed)
    for name in sorted({*parts, *acks, *rows}):
        if name[0] in given.ack_topics or name[0] in given.lake:
            _cells(name, parts[name], acks.get(name, []), rows.get(name), runs[name], given)
    general["cluster_asked"] = wanted.cluster is not None
    general["problems"] = list(planned.problems)
    general["delta"] = [line for one in landed for line in one.delta]
    general["files"] = planned.files
    reports = [
        report_of(topic, partition, of, given, confirmed)
        for (topic, partition), of in parts.items()
    ]
    return sorted(reports, key=lambda r: (r.rank, r.topic, r.partition)), general


def _is_wanted(wanted: job.Wanted, topic: str, partition: int) -> bool:
    return (not wanted.topics or topic in wanted.topics) and (
        not wanted.partitions or partition in wanted.partitions
    )


def _refuse_large(paths: Iterable[str]) -> None:
    size = sum(Path(path).stat().st_size for path in paths)
    if size > MOST_BYTES:
        raise OttlaError(
            f"{size / 1e9:.1f} GB are too much for one process without Spark: leave out --here"
        )


# -- acknowledgements, offsets ---------------------------------------------------------------------


def _acks(wanted: job.Wanted, general: dict[str, Any]) -> dict[Name, list[tuple[int, int]]]:
    """Return (offset, ms) of each acknowledgement by partition; CSV alone is read here."""
    if wanted.acks is None:
        return {}
    path = Path(wanted.acks)
    if not path.is_file():
        raise OttlaError(f"acknowledgements: {path} is no file; leave out --here for folders")
    _refuse_large([str(path)])
    found: dict[Name, list[tuple[int, int]]] = defaultdict(list)
    records, broken = 0, 0
    with path.open(encoding="utf-8", errors="replace", newline="") as opened:
        reader = csv.DictReader(opened)
        names = set(reader.fieldnames or ())
        if not names.issuperset({"partition", "offset"}):
            raise OttlaError(f"acknowledgements: {path} needs the columns partition and offset")
        if "topic" not in names and len(wanted.topics) != 1:
            raise OttlaError(
                f"acknowledgements: {path} has no column topic; name the one topic by --topic"
            )
        for row in reader:
            try:
                topic = str(row["topic"]) if "topic" in names else wanted.topics[0]
                partition, offset = int(row["partition"]), int(row["offset"])
                ms = int(row["ms"]) if "ms" in names else 0
            except (TypeError, ValueError):
                broken += 1
                continue
            in_time = "ms" not in names or (
                (wanted.start_ms is None or ms >= wanted.start_ms)
                and (wanted.end_ms is None or ms <= wanted.end_ms)
            )
            if in_time and _is_wanted(wanted, topic, partition):
                found[topic, partition].append((offset, ms))
                records += 1
    job.note_acks(wanted, records, broken, general)
    return found


def _lake_rows(landed: Sequence[Landed]) -> dict[Name, Any]:
    """Return the offsets of the lake's rows and dead letters by partition."""
    if not any(one.files for one in landed):
        return {}
    from pyarrow import parquet  # only with a lake

    found: dict[Name, list[Any]] = defaultdict(list)
    for one in landed:
        _refuse_large(one.files)
        for file in one.files:
            table = parquet.ParquetFile(file).read(["kafka_partition", "kafka_offset"])
            partitions, offsets = (column.to_numpy() for column in table.columns)
            for partition in np.unique(partitions):
                found[one.topic, int(partition)].append(offsets[partitions == partition])
    return {name: np.concatenate(some) for name, some in found.items()}


def _cells(
    name: Name,
    parts: dict[str, list[Any]],
    acks: Sequence[tuple[int, int]],
    rows: Any,
    runs: Sequence[Run],
    given: Given,
) -> None:
    """Judge the offsets of a partition, cell by cell."""
    reported = np.array(acks, np.int64).reshape(-1, 2)
    offsets, times = reported[:, 0], reported[:, 1]
    rows = np.empty(0, np.int64) if rows is None else rows.astype(np.int64)
    landed = [(a, b) for one in parts.get("lake", ()) for a, b in one["landed"]]
    base: dict[str, Any] = next(iter(parts.get("base", ())), {})
    terms = [(t["began_ms"], t["last_epoch"]) for t in parts.get("terms", ())]
    known = known_of(name[0], base, terms, given)
    ends = [
        *(r.last for r in runs), *(b for _, b in landed),
        int(offsets.max(initial=-1)), int(rows.max(initial=-1)),
    ]  # fmt: skip
    for low in range(0, max(ends, default=-1) + 1, CELL):
        high = low + CELL - 1
        here = (offsets >= low) & (offsets <= high)
        cell = judge(
            known,
            (offsets[here], times[here]),
            rows[(rows >= low) & (rows <= high)],
            [
                r._replace(base=max(r.base, low), last=min(r.last, high))
                for r in runs
                if r.base <= high and r.last >= low
            ],
            [(max(a, low), min(b, high)) for a, b in landed if a <= high and b >= low],
        )
        parts["cell"].append(json.loads(msgspec.json.encode(cell)))


# -- replicas --------------------------------------------------------------------------------------


def _replicas(
    wanted: job.Wanted, logs: Logs, planned: replica_job.Plan, parts: Parts
) -> tuple[dict[Name, list[Run]], Confirmed]:
    runs, wrong = _look(wanted, logs, planned, parts)
    if wanted.cluster is None:
        return runs, None
    if not wrong:
        return runs, frozenset()
    again: Parts = defaultdict(lambda: defaultdict(list))
    once_more = replica_job.plan(wanted.places, logs, wanted.cluster)
    return runs, wrong & _look(wanted, logs, once_more, again)[1]


def _look(
    wanted: job.Wanted, logs: Logs, planned: replica_job.Plan, parts: Parts
) -> tuple[dict[Name, list[Run]], frozenset[tuple[str, int, str, int, int]]]:
    """Read all segments; add what replicas hold; return the runs and what is wrong."""
    runs: dict[Name, list[Run]] = defaultdict(list)
    segments: dict[TopicPartition, dict[str, list[SegmentFacts]]] = defaultdict(dict)
    listed = [s for place in wanted.places for log in logs_in(place, logs) for s in log.segments]
    _refuse_large(s.path for s in listed if Path(s.path).exists())
    for segment in listed:
        summary = Summary()
        try:
            for piece in SegmentReader(segment.path, segment.size).pieces():
                summary.add(piece)
                runs[segment.topic, segment.partition] += runs_of(segment, piece)
        except FileNotFoundError:
            continue
        segments[segment.tp].setdefault(segment.log_dir, []).append(
            SegmentFacts(segment.base_offset, segment.path, segment.size, summary.result())
        )
    wrong = set()
    for tp in planned.logs:
        topic, partition, known, body, _ = row_of(planned, tp, segments.get(tp, {}))
        reported = json.loads(body)
        parts[topic, partition]["base"].append(json.loads(known))
        parts[topic, partition]["replicas"].append(reported)
        wrong |= {
            (topic, partition, f["kind"], f["broker"], f["offset"])
            for f in reported["findings"]
            if f["wrong"]
        }
    return runs, frozenset(wrong)


# -- who led, and why ------------------------------------------------------------------------------


class _Line(NamedTuple):
    """An event, the number of its file and its place there; `at_ms`: with clocks agreed."""

    event: Event
    file: int
    line: int
    at_ms: int = 0


def _history(wanted: job.Wanted, general: dict[str, Any], parts: Parts) -> None:
    if wanted.files is None:
        return
    _refuse_large([*wanted.files.logs, *wanted.files.journals])
    files, read = _events(wanted)
    found = [_Line(event, number, line) for number, of in enumerate(read) for line, event in of]
    shifts = clocks.shifts(_leads(found))
    placed = [
        one._replace(at_ms=one.event.time_ms + shifts.get(one.event.broker, 0)) for one in found
    ]
    last_ms = max((f["last_ms"] or 0 for f in files), default=0)
    brokers = Brokers(_signs(placed), _gone(placed), last_ms)
    for (topic, partition), facts in _facts(placed).items():
        if _is_wanted(wanted, topic, partition):
            reported = msgspec.to_builtins(history(facts, brokers, wanted.overlap_ms))
            for what, some in reported.items():
                parts[topic, partition][what] += some
    of_brokers = stale_controllers(_acted(found))
    general["logs"] = {
        "files": files,
        "lines": sum(f["lines"] for f in files),
        "unread": sum(f["unread"] for f in files),
        "dropped": sum(f["dropped"] or 0 for f in files),
        "clocks": clocks.tell(shifts),
    }
    general["findings_of_brokers"] = [msgspec.to_builtins(x) for x in of_brokers]
    _decisions(wanted, parts)


def _text_of(path: str) -> Iterator[str]:
    if path.endswith(".gz") or "://" in path:
        raise OttlaError(f"{path}: packed and remote logs need Spark: leave out --here")
    with Path(path).open(encoding="utf-8", errors="replace") as opened:
        yield from opened


def _events(wanted: job.Wanted) -> tuple[list[dict[str, Any]], list[list[tuple[int, Event]]]]:
    """Read all files; return what each holds, the one that begins first being the first."""
    assert wanted.files is not None
    zone = ZoneInfo(wanted.zone)
    found: list[tuple[dict[str, Any], list[tuple[int, Event]]]] = []
    for path in [*wanted.files.logs, *wanted.files.journals]:
        is_journal = path in wanted.files.journals
        events: list[tuple[int, Event]] = []
        unread = 0
        for number, line in enumerate(_text_of(path)):
            parsed = journals.parse(line.rstrip("\n")) if is_journal else _of_log(line, zone)
            if parsed is None:
                unread += 1
                continue
            events += [(number, event) for event in parsed if _in_time(event, wanted)]
        times = [event.time_ms for _, event in events]
        dropped = [event.offset or 0 for _, event in events if event.kind == e.DROPPED]
        if events or unread:
            facts = {
                "file": f"file:{path}", "first_ms": min(times, default=None),
                "last_ms": max(times, default=None), "lines": len(events), "unread": unread,
                "dropped": sum(dropped) if dropped else None,
                "brokers": sorted({event.broker for _, event in events}),
            }  # fmt: skip
            found.append((facts, events))
    found.sort(key=lambda f: (f[0]["first_ms"] or 0, f[0]["file"]))
    return [facts for facts, _ in found], [events for _, events in found]


def _of_log(line: str, zone: ZoneInfo) -> list[Event] | None:
    event = lines.parse(line, zone)
    return None if event is None else [event]


def _in_time(event: Event, wanted: job.Wanted) -> bool:
    return (wanted.start_ms is None or event.time_ms >= wanted.start_ms) and (
        wanted.end_ms is None or event.time_ms <= wanted.end_ms
    )


def _name(event: Event) -> Name:
    return event.topic or "", -1 if event.partition is None else event.partition


def _leads(found: Sequence[_Line]) -> list[clocks.Lead]:
    """Return by how much brokers acted before what they acted on was decided."""
    created: dict[Name, int] = defaultdict(int)
    decided: dict[tuple[Name, int], tuple[int, int]] = {}
    for event, *_ in found:
        if (event.before, event.after) == ("NonExistentPartition", "NewPartition"):
            created[_name(event)] += event.level != "JOURNAL"
        if event.kind == e.DECIDED and event.leader_epoch is not None:
            key = (_name(event), event.leader_epoch)
            decided[key] = min(decided.get(key, (event.time_ms, event.broker)),
                               (event.time_ms, event.broker))  # fmt: skip
    most: dict[tuple[int, int], int] = {}
    for event, *_ in found:
        known = decided.get(
            (_name(event), -1 if event.leader_epoch is None else event.leader_epoch)
        )
        if event.kind in (e.LED, e.FOLLOWED) and known and created[_name(event)] <= 1:
            pair = (known[1], event.broker)
            ms = known[0] - event.time_ms
            most[pair] = max(most.get(pair, ms), ms)
    return [clocks.Lead(controller, broker, ms) for (controller, broker), ms in most.items()]


def _gone(found: Sequence[_Line]) -> dict[int, list[int]]:
    gone: dict[int, list[int]] = defaultdict(list)
    for event, _, _, at_ms in found:
        if event.kind == e.GONE and event.about is not None:
            gone[event.about].append(at_ms)
    return {broker: sorted(times) for broker, times in gone.items()}


def _signs(found: Sequence[_Line]) -> Any:
    """Return who says when a broker last wrote something: to the second, as on Spark."""
    cells: dict[tuple[int, int], tuple[int, int]] = {}
    for event, _, _, at_ms in found:
        key = (event.broker, at_ms // SECOND_MS)
        low, high = cells.get(key, (at_ms, at_ms))
        cells[key] = (min(low, at_ms), max(high, at_ms))
    times: dict[int, set[int]] = defaultdict(set)
    for (broker, _), both in cells.items():
        times[broker].update(both)

    def last(broker: int, before: int) -> int | None:
        return max((t for t in times.get(broker, ()) if t < before), default=None)

    return last


def _acted(found: Sequence[_Line]) -> list[Acted]:
    groups: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    for event, file, line, _ in found:
        acting = event.kind in (e.CACHED, e.LED, e.FOLLOWED) and event.side == e.BROKER
        if acting and event.epoch is not None:
            groups[event.broker, file, event.epoch].append((line, event.time_ms))
    return [
        Acted(broker, file, epoch, (0, min(some)[0]), min(some)[1], (0, max(some)[0]), max(some)[1])
        for (broker, file, epoch), some in groups.items()
    ]


def _facts(found: Sequence[_Line]) -> dict[Name, list[Fact]]:
    """Return what the rules look at by partition, in the order of files; see `timeline.job`."""
    once: dict[tuple[Any, ...], Fact] = {}
    rest: dict[Name, list[Fact]] = defaultdict(list)
    for event, file, _, at_ms in sorted(found, key=lambda one: (one.file, one.line)):
        if event.kind not in e.RULED or event.topic is None:
            continue
        if event.kind not in (e.CACHED, e.SENT):
            values = event._replace(time_ms=at_ms)._asdict()
            rest[_name(event)].append(Fact(**{n: values[n] for n in _FACT}, file=file))
        elif event.leader_epoch is not None:
            key = (_name(event), event.leader, event.leader_epoch, event.isr, event.version)
            known = once.get(key)
            once[key] = Fact(
                at_ms if known is None else min(known.time_ms, at_ms),
                event.broker if known is None else min(known.broker, event.broker),
                e.CACHED, "TRACE", leader=event.leader, leader_epoch=event.leader_epoch,
                isr=event.isr, version=event.version, file=-1,
            )  # fmt: skip
    facts: dict[Name, list[Fact]] = defaultdict(list)
    for key, fact in once.items():
        facts[key[0]].append(fact)
    for name, some in rest.items():
        facts[name] += some
    return {
        name: [fact._replace(place=place) for place, fact in enumerate(some)]
        for name, some in facts.items()
    }


def _decisions(wanted: job.Wanted, parts: Parts) -> None:
    assert wanted.files is not None
    events: dict[tuple[int, int], list[reasons.Event]] = defaultdict(list)
    found: list[tuple[tuple[int, int], str, int, reasons.Decision]] = []
    for path in wanted.files.journals:
        for raw in _text_of(path):
            parsed = reasons.parse(raw)
            if parsed is None:
                continue
            cause = reasons.cause_of(raw)
            if isinstance(parsed, reasons.Event):
                events[cause].append(parsed)
            elif job.decided_in_time(parsed[2], wanted):
                found.append((cause, *parsed))
    for cause, topic, partition, decision in found:
        if _is_wanted(wanted, topic, partition):
            reported = msgspec.structs.replace(
                decision, events=events.get(cause, [])[: reasons.MOST_EVENTS]
            )
            parts[topic, partition]["decision"].append(msgspec.to_builtins(reported))
