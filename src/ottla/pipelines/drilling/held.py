"""Held: what each broker's files hold of a partition, and what is wrong with them, as JSON.

Invariants: findings are those of the job `replicas`; a replica's checksum does not depend on how it
cuts its log into files.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pandas as pd

from ottla.model.ids import TopicPartition
from ottla.pipelines.drilling.cells import Known
from ottla.pipelines.drilling.joining import Report, join
from ottla.pipelines.replica_files.files import replica_of
from ottla.pipelines.replica_files.job import Plan, judge_logs
from ottla.pipelines.replica_files.replica import Replica, SegmentFacts
from ottla.pipelines.segments.summary import Facts

SCHEMA = "topic string, partition int, known string, body string, wrong int"
_COLUMNS = SCHEMA.replace(",", "").split()[::2]
_CHECKSUM_BITS = 63


class Given(NamedTuple):
    """What the job was given to compare with, and how."""

    ack_topics: frozenset[str] = frozenset()
    lake: Mapping[str, bool] = {}
    """Topics with a table, and whether it has committed records alone."""
    tolerance_ms: int = 1000
    whole_time: bool = True


def known_of(
    topic: str, base: Mapping[str, Any], terms: Sequence[tuple[int, int]], given: Given
) -> Known:
    """Return what is known of a partition: `base` of its replicas, terms of the timeline."""
    return Known(
        starts={int(broker): start for broker, start in base.get("starts", {}).items()},
        cleaned=base.get("cleaned", 0),
        high_watermark=base.get("high_watermark"),
        terms=sorted((began, epoch) for began, epoch in terms),
        acks=topic in given.ack_topics,
        lake=topic in given.lake,
        committed_only=given.lake.get(topic, False),
        tolerance_ms=given.tolerance_ms,
        whole_time=given.whole_time,
    )


def told_of(planned: Plan, tp: TopicPartition, rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row of SCHEMA, of the rows of a partition's segments."""
    segments: dict[str, list[SegmentFacts]] = {}
    for folder, file, base, size, facts in zip(
        rows["folder"], rows["file"], rows["segment"], rows["size"], rows["facts"], strict=True
    ):
        segment = SegmentFacts(
            int(base), file, int(size), msgspec.msgpack.decode(facts, type=Facts)
        )
        segments.setdefault(folder, []).append(segment)
    return pd.DataFrame([row_of(planned, tp, segments)], columns=_COLUMNS)


def row_of(
    planned: Plan, tp: TopicPartition, segments: Mapping[str, Sequence[SegmentFacts]]
) -> tuple[str, int, str, str, int]:
    """Return the row of a partition, of what its segments hold by log dir."""
    truth = planned.truths.get(tp)
    replicas = [
        replica_of(tp, known, segments.get(known.log_dir, ())) for known in planned.logs.get(tp, ())
    ]
    findings = judge_logs(tp, planned, segments)
    isr = None if truth is None else truth.isr
    base = {
        "starts": {r.broker: r.start for r in replicas if r.broker is not None},
        "cleaned": max((r.holes_upto for r in replicas), default=0),
        "high_watermark": None if truth is None else truth.high_watermark,
    }
    body = {
        "replicas": [_facts(r, isr) for r in replicas],
        "findings": [f._asdict() for f in findings],
    }
    encode = msgspec.json.encode
    wrong = sum(f.wrong for f in findings)
    return tp.topic, tp.partition, encode(base).decode(), encode(body).decode(), wrong


Confirmed = frozenset[tuple[str, int, str, int, int]] | None
"""Findings about replicas that a second look found, too: topic, partition, kind, broker, offset;
None: all count."""


def report_of(
    topic: str,
    partition: int,
    parts: Mapping[str, Sequence[Any]],
    given: Given,
    confirmed: Confirmed,
) -> Report:
    """Return the report of one partition, of the parts that the jobs made of it."""
    base: Mapping[str, Any] = next(iter(parts.get("base", ())), {})
    terms = [(t["began_ms"], t["last_epoch"]) for t in parts.get("terms", ())]
    known = known_of(topic, base, terms, given)

    def counts(finding: Mapping[str, Any]) -> bool:
        key = (topic, partition, finding["kind"], finding["broker"], finding["offset"])
        return confirmed is None or not finding["wrong"] or key in confirmed

    replicas = [
        {**body, "findings": [f for f in body["findings"] if counts(f)]}
        for body in parts.get("replicas", ())
    ]
    known_part = [msgspec.to_builtins(known, str_keys=True)]
    return join(topic, partition, {**parts, "replicas": replicas, "known": known_part})


def _facts(replica: Replica, isr: frozenset[int] | None) -> dict[str, Any]:
    facts = [s.facts for s in replica.segments]
    epochs = [run[0] for one in facts for run in one.epochs[-1:]]
    contents = sum(one.contents for one in facts) & (1 << _CHECKSUM_BITS) - 1
    return {
        "broker": replica.broker,
        "folder": replica.folder,
        "start": replica.start,
        "end": replica.end,
        "last_epoch": epochs[-1] if epochs else None,
        "bytes": sum(s.size for s in replica.segments),
        "batches": sum(one.batches for one in facts),
        "records": sum(one.records for one in facts),
        "checksum": f"{contents:016x}",
        "high_watermark": replica.high_watermark,
        "in_sync": None if isr is None else replica.broker in isr,
    }
