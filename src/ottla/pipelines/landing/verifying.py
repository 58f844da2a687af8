"""The full check of a table: every record read from the cluster again, and every row by pyarrow.

Invariants: neither side is Spark. Rows are held against records by place: key, headers, timestamp
and, as far as it was kept or is plain JSON, the value. What the cluster no longer holds is counted,
not judged. Memory: the rows of OFFSETS_AT_ONCE.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ottla.model.printable import plural
from ottla.pipelines.landing import asking
from ottla.pipelines.landing.asking import Topic
from ottla.pipelines.landing.gaps import Reader
from ottla.pipelines.landing.manifest import DATA, DEAD, Manifest
from ottla.pipelines.landing.settings import META_COLUMNS, Settings
from ottla.pipelines.landing.spans import Span
from ottla.pipelines.landing.table import Table
from ottla.pipelines.source.cluster import Cluster
from ottla.wire.records import Record

MOST_TOLD = 20
OFFSETS_AT_ONCE = 50_000
VALUE = "kafka_value"
PLAIN = (int, float, str, bool)


@dataclass(slots=True)
class Verified:
    """What a check found. `gone`: offsets that landed and that the cluster holds no longer."""

    compared: int = 0
    gone: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        if len(self.wrong) < MOST_TOLD:
            self.wrong.append(problem)


def verify(settings: Settings, topic: Topic, table: Table) -> Verified:
    """Compare a table with its topic, batch by batch."""
    found = Verified()
    with asking.reached(settings.cluster, settings.lake.isolation) as cluster:
        held = asking.held(cluster, topic)
        for manifest in table.batches:
            batch = _Files(table.folder, manifest)
            cluster.run(_compare_batch(cluster, topic, manifest, held, batch, found))
            if batch.rows != batch.taken:
                found.add(
                    f"{topic.name}: batch {manifest.batch} has {plural(batch.rows, 'row')}, "
                    f"{batch.taken} of them at its offsets"
                )
    return found


async def _compare_batch(
    cluster: Cluster,
    topic: Topic,
    manifest: Manifest,
    held: Mapping[int, Span],
    batch: "_Files",
    found: Verified,
) -> None:
    """Compare what the cluster holds of a batch with its rows, OFFSETS_AT_ONCE at a time."""
    for partition, parts in manifest.partitions.items():
        reader = Reader(cluster, topic, partition)
        for part in parts:
            for start in range(part.start, part.end, OFFSETS_AT_ONCE):
                span = Span(start, min(start + OFFSETS_AT_ONCE, part.end))
                rows = batch.at(partition, span)
                there = min(max(span.start, held[partition].start), span.end)
                found.gone += there - span.start
                for offset in range(span.start, there):
                    rows.pop((partition, offset), None)
                async for some in reader.read(Span(there, span.end)):
                    for record in some:
                        _compare(topic.name, partition, record, rows, found)
                for _, offset in sorted(rows)[:MOST_TOLD]:
                    found.add(f"{topic.name}-{partition}: the row of offset {offset} is no record")


class _Files:
    """The files of a batch, rows and dead letters, read some offsets at a time.

    `rows`: how many there are. `taken`: how many were asked for.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        from pyarrow import parquet

        kinds = ((DATA, manifest.files_in_place()), (DEAD, manifest.dead_in_place()))
        self._paths = [folder / kind / file.path for kind, files in kinds for file in files]
        self.rows = sum(parquet.read_metadata(path).num_rows for path in self._paths)
        self.taken = 0

    def at(self, partition: int, span: Span) -> dict[tuple[int, int], dict[str, Any]]:
        """Return rows and dead letters by place; a place that stands twice is kept."""
        from pyarrow import parquet

        wanted = [
            ("kafka_partition", "=", partition),
            ("kafka_offset", ">=", span.start),
            ("kafka_offset", "<", span.end),
        ]
        found: dict[tuple[int, int], dict[str, Any]] = {}
        for path in self._paths:
            table = parquet.read_table(path, filters=wanted, partitioning=None)
            self.taken += table.num_rows
            for row in table.to_pylist():
                place = (row["kafka_partition"], row["kafka_offset"])
                if place in found:
                    place = (place[0], -1 - place[1])  # left over at the end, and reported then
                found[place] = row
        return found


def _compare(
    topic: str,
    partition: int,
    record: Record,
    rows: dict[tuple[int, int], dict[str, Any]],
    found: Verified,
) -> None:
    name = f"{topic}-{partition}: offset {record.offset}"
    row = rows.pop((partition, record.offset), None)
    if row is None:
        found.add(f"{name} is missing")
        return
    found.compared += 1
    headers = tuple((h["key"], h["value"]) for h in row["kafka_headers"] or ())
    timestamp = row["kafka_timestamp"]
    if isinstance(timestamp, datetime):
        timestamp = timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
        timestamp = round(timestamp.timestamp() * 1000)
    for what, got, wanted in (
        ("key", row["kafka_key"], None if record.key is None else bytes(record.key)),
        ("headers", headers, record.headers),
        ("timestamp", timestamp, record.timestamp),
    ):
        if got != wanted:
            found.add(f"{name} has {what} {got!r}, not {wanted!r}")
    if VALUE in row:
        if row[VALUE] != record.value:
            found.add(f"{name} has another value")
    else:
        _compare_columns(name, record, row, found)


def _compare_columns(name: str, record: Record, row: Mapping[str, Any], found: Verified) -> None:
    """Compare the plain fields of a JSON object with a row's columns."""
    try:
        reported = {} if record.value is None else json.loads(record.value)
    except ValueError:
        return  # another format: there is nothing to compare without its schema
    if not isinstance(reported, dict):
        found.add(f"{name} is a row and no JSON object")
        return
    for column, got in row.items():
        wanted = reported.get(column)
        if column in META_COLUMNS or type(wanted) not in PLAIN:
            continue
        same = got == wanted or (
            isinstance(got, float) and isinstance(wanted, int | float) and math.isclose(got, wanted)
        )
        # A string column takes numbers as they were written, a timestamp column parses texts.
        text = isinstance(got, str)
        judged = isinstance(wanted, str) if text or got is None else type(got) in PLAIN
        if not same and judged:
            found.add(f"{name} has {column} = {got!r}, not {wanted!r}")
