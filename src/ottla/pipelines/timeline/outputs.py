"""Outputs: the folder, stdout and the page that a timeline is written to.

Invariants: all of a result goes to the folder; stdout and the page show the first so many, and say
how many there are.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ottla.model.errors import OttlaError
from ottla.model.printable import plural
from ottla.pipelines import job as frame
from ottla.pipelines.paths import spark_path
from ottla.pipelines.timeline import clocks, report
from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.findings import ERROR
from ottla.pipelines.timeline.job import BODIES, Timeline
from ottla.pipelines.timeline.read import Wanted, of_topic
from ottla.pipelines.timeline.when import clock, length

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = 50
IN_JSON = 1000
ORDER = ("at_ms", "file", "block", "line")
PICTURED = 100
"""Partitions on the page."""


def show(
    made: Timeline, wanted: Wanted, what: str, output: str | None, kind: str, page: str | None
) -> int:
    """Write and print what was asked for; return the exit code."""
    from pyspark.sql import functions as f

    if output is not None:
        _write(made, wanted, output, kind)
    findings = made.table("findings")
    errors = findings.where(f.col("level") == ERROR).count() + len(made.of_brokers)
    reported = _report(made, findings, errors)
    if what == "lines":
        _print_lines(made, wanted)
    elif what == "json":
        sys.stdout.write(json.dumps(reported, indent=2) + "\n")
    else:
        _print_table(reported, wanted.zone)
    if page is not None:
        report.write(Path(page), reported, _pictured(made), wanted.zone)
    return 1 if errors else 0


def _rows(table: "DataFrame", count: int) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.limit(count).collect()]


def _report(made: Timeline, findings: "DataFrame", errors: int) -> dict[str, Any]:
    from pyspark.sql import functions as f

    gaps = made.table("gaps")
    listed = _rows(findings.orderBy("level", "time_ms", "topic", "partition"), IN_JSON)
    counted = made.counts()
    counts = {what: counted[what] for what in BODIES}
    counts["findings"] += len(made.of_brokers)
    return {
        "lines": made.lines,
        "unread": made.unread,
        "dropped": made.dropped,
        "partitions": counted["partitions"],
        **counts,
        "errors": errors,
        "files": made.files,
        "clocks": clocks.tell(made.shifts),
        "found": [
            {"topic": None, "partition": None, **msgspec.structs.asdict(x)} for x in made.of_brokers
        ]
        + listed,
        "longest_gaps": _rows(gaps.orderBy(f.desc("most_ms"), "topic", "partition"), IN_JSON),
    }


def _pictured(made: Timeline) -> dict[tuple[str, int], dict[str, list[dict[str, Any]]]]:
    """Return the history of the partitions with most to tell: findings, then gaps, then terms."""
    from pyspark.sql import functions as f

    what = f.col("what")
    chosen = (
        made.result.groupBy("topic", "partition")
        .agg(*[f.count_if(what == name).alias(name) for name in BODIES])
        .orderBy(f.desc("findings"), f.desc("gaps"), f.desc("terms"), "topic", "partition")
        .limit(PICTURED)
        .select("topic", "partition")
    )
    found: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}
    for row in made.result.join(f.broadcast(chosen), ["topic", "partition"]).collect():
        of = found.setdefault((row["topic"], row["partition"]), {name: [] for name in BODIES})
        of[row["what"]].append(json.loads(row["body"]))
    return dict(sorted(found.items()))


def _write(made: Timeline, wanted: Wanted, output: str, kind: str) -> None:
    from pyspark.sql import functions as f

    brokers = f.filter(f.split("isr", ","), lambda b: b != "").cast("array<int>")
    events = of_topic(made.events, wanted).where(f.col("kind") != e.UNREAD)
    tables = {
        "events": events.withColumns(
            {
                "isr": brokers,
                "at": f.timestamp_millis("at_ms"),
                "time": f.timestamp_millis("time_ms"),
            }
        ).orderBy(*ORDER),
        **{what: made.table(what).orderBy("topic", "partition") for what in BODIES},
    }
    tables["states"] = tables["states"].withColumn("isr", brokers)
    try:
        for name, table in tables.items():
            table.write.format(kind).save(spark_path(f"{output}/{name}"))
    except OSError as error:
        raise OttlaError(f"{output}: {error.strerror}") from error
    if made.of_brokers and "://" not in output:
        text = "".join(json.dumps(msgspec.structs.asdict(one)) + "\n" for one in made.of_brokers)
        (Path(output) / "findings-of-brokers.jsonl").write_text(text, encoding="utf-8")


def _print_lines(made: Timeline, wanted: Wanted) -> None:
    """Print what Kafka's merge tool prints: the lines that name a partition, in order."""
    from pyspark.sql import functions as f

    events = of_topic(made.events, wanted).where(
        f.col("topic").isNotNull() & (f.col("level") != "JOURNAL")
    )
    rows = events.orderBy(*ORDER).select("text").toLocalIterator()
    frame.print_lines(row["text"] + "\n" for row in rows)


def _print_table(reported: dict[str, Any], zone: str) -> None:
    lines = [
        (
            f"{plural(reported['lines'], 'line')} of {plural(len(reported['files']), 'file')}, "
            f"{plural(reported['partitions'], 'partition')}: {plural(reported['terms'], 'term')}, "
            f"{plural(reported['gaps'], 'interval')} without a leader, "
            f"{plural(reported['findings'], 'finding')}, {reported['errors']:,} of them errors; "
            f"times in {zone}"
        )
    ]
    if reported["unread"] or reported["dropped"]:
        lines.append(
            f"{plural(reported['unread'], 'line was', 'lines were')} no state change, "
            f"{reported['dropped']:,} were dropped by their writers"
        )
    lines += reported["clocks"]
    for one in reported["found"][:SHOWN]:
        name = "" if one["topic"] is None else f" {one['topic']}-{one['partition']}"
        lines.append(
            f"{one['level']} {clock(one['time_ms'], zone)} {one['kind']}{name}: {one['text']}"
        )
    lines += _more(reported["findings"])
    for gap in reported["longest_gaps"][:SHOWN]:
        until = "the end" if gap["end_ms"] is None else f"broker {gap['next']} led"
        lines.append(
            f"no leader {clock(gap['start_to_ms'], zone)} {gap['topic']}-{gap['partition']}: "
            f"broker {gap['after']} {gap['how']}, {length(gap['least_ms'], gap['most_ms'])} "
            f"until {until}"
        )
    lines += _more(reported["gaps"])
    sys.stdout.write("\n".join(lines) + "\n")


def _more(count: int) -> list[str]:
    return [f"… and {count - SHOWN:,} more"] if count > SHOWN else []
