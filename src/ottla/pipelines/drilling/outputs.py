"""Outputs: pages and JSON of all partitions, the worst first, and the one line of the result.

Invariants: partitions are written as they come from Spark, one at a time; the folder is new or
empty, and `index.html` is put there last, whole.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, TextIO

import msgspec

from ottla.model.durable_files import replacing
from ottla.model.errors import OttlaError
from ottla.model.printable import plural
from ottla.pipelines.drilling import page
from ottla.pipelines.drilling.cells import Offsets, in_words
from ottla.pipelines.drilling.joining import HELD, LAKE, LOSSES, Report
from ottla.pipelines.timeline.when import clock, length

TOGETHER = 300
"""More partitions than that get a file each."""
IN_INDEX = 2000
INDEX, JSON, PAGES = "index.html", "report.json", "partitions"


@dataclass(slots=True)
class Sums:
    """What all partitions add up to. `first` are the first things that are wrong, in words."""

    partitions: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    acknowledged: int | None = None
    lost: int = 0
    replicas: int = 0
    rows: int | None = None
    lake_wrong: int = 0
    gaps: int = 0
    longest_ms: tuple[int, int] = (0, 0)
    """The interval without a leader that may have been the longest: at most, at least."""
    wrong: int = 0
    wrong_of_brokers: int = 0
    audit: int = 0
    """Findings of the audit, by producers' reports."""
    delta: int = 0
    """Differences between the lake's Delta logs and its manifests."""
    first: list[str] = field(default_factory=list)

    def add(self, report: Report) -> None:
        self.partitions += 1
        self.verdicts.update(report.verdicts)
        if report.acknowledged is not None:
            self.acknowledged = (self.acknowledged or 0) + report.acknowledged.count
        if report.lake is not None:
            self.rows = (self.rows or 0) + report.lake.rows
        self.replicas += len(report.replicas)
        self.gaps += len(report.without_leader)
        self.longest_ms = max(self.longest_ms, report.longest_ms)
        for found in report.findings:
            if not found.wrong:
                continue
            self.wrong += 1
            self.lost += found.count if found.kind in LOSSES else 0
            self.lake_wrong += found.count if found.kind in LAKE else 0
            if len(self.first) < 3:
                spans = in_words(Offsets(found.count, found.offsets))
                at = f" at {spans}" if spans else ""
                self.first.append(f"{found.kind}: {page.name_of(report)}{at}")

    @property
    def held(self) -> bool:
        return not (self.wrong or self.wrong_of_brokers or self.audit or self.delta)

    def line(self, index: Path) -> str:
        """Return the result in one line."""
        most_ms, least_ms = self.longest_ms
        parts = [
            f"{self.acknowledged:,} acknowledged, {self.lost:,} of them lost"
            if self.acknowledged is not None
            else "no acknowledgements given",
            f"{plural(self.replicas, 'replica')} compared",
            f"{plural(self.rows, 'row')} in the lake, {self.lake_wrong:,} missing, doubled or "
            "foreign"
            if self.rows is not None
            else "no lake given",
            f"{plural(self.gaps, 'interval')} without a leader"
            + (f", the longest for {length(least_ms, most_ms)}" if self.gaps else ""),
        ]
        if self.held:
            result = "HELD"
        else:
            kinds = [f"{name} {n:,}" for name, n in self.verdicts.items() if name != HELD]
            kinds += [f"leadership of brokers {self.wrong_of_brokers}"] * bool(
                self.wrong_of_brokers
            )
            kinds += [f"producers' reports {self.audit}"] * bool(self.audit)
            kinds += [f"Delta logs {self.delta}"] * bool(self.delta)
            result = f"WRONG ({', '.join(kinds)}; {'; '.join(self.first)})".replace("; )", ")")
        return (
            f"{result}: {plural(self.partitions, 'partition')}: {'; '.join(parts)}. Report: {index}"
        )


def write(
    reports: Iterator[Report],
    count: int,
    general: Mapping[str, Any],
    folder: Path,
    zone: str,
    span: tuple[int, int],
) -> Sums:
    """Write everything; OttlaError if it cannot be written. `span`: of the plots, in ms."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _written(reports, count, general, folder, zone, span)
    except OSError as error:
        raise OttlaError(f"{error.filename or folder}: {error.strerror}") from error


def _written(
    reports: Iterator[Report],
    count: int,
    general: Mapping[str, Any],
    folder: Path,
    zone: str,
    span: tuple[int, int],
) -> Sums:
    apart = count > TOGETHER
    sums = Sums(
        wrong_of_brokers=sum(f["level"] == "error" for f in general.get("findings_of_brokers", ())),
        audit=len(general.get("audit", ())),
        delta=len(general.get("delta", ())),
    )
    rows: list[list[Any]] = []
    sections = folder / (PAGES + ".new")
    if apart:
        (folder / PAGES).mkdir()
    with (
        (folder / JSON).open("w", encoding="utf-8") as data,
        sections.open("w", encoding="utf-8") as together,
    ):
        data.write('{"partitions": [')
        for report in reports:
            data.write(",\n" if sums.partitions else "\n")
            data.write(msgspec.json.encode(report).decode())
            sums.add(report)
            name = page.name_of(report)
            address = f"{PAGES}/{name}.html" if apart else f"#{name}"
            if len(rows) < IN_INDEX:
                rows.append(page.index_row(report, address))
            body = page.section(report, span, zone)
            if apart:
                text = page.opening(f"Drill report: {name}") + _back() + body + "</html>\n"
                (folder / PAGES / f"{name}.html").write_text(text, encoding="utf-8")
            else:
                together.write(body)
        rest = {
            "held": sums.held,
            "verdicts": dict(sums.verdicts),
            "acknowledged": sums.acknowledged,
            "lost": sums.lost,
            "rows_in_the_lake": sums.rows,
            "general": dict(general),
        }
        data.write(f'\n],\n"result": {json.dumps(rest)}}}\n')
    with replacing(folder / INDEX) as part, part.open("w", encoding="utf-8") as index:
        _write_index(index, sums, rows, general, zone, span)
        if not apart:
            with sections.open(encoding="utf-8") as together:
                shutil.copyfileobj(together, index)
        index.write("</html>\n")
    sections.unlink()
    return sums


def _back() -> str:
    return f'<p><a href="../{INDEX}">all partitions</a></p>\n'


def _write_index(
    index: TextIO,
    sums: Sums,
    rows: list[list[Any]],
    general: Mapping[str, Any],
    zone: str,
    span: tuple[int, int],
) -> None:
    index.write(page.opening("Drill report"))
    kind = "held" if sums.held else "wrong"
    line = sums.line(Path(INDEX)).rpartition(" Report: ")[0]
    index.write(f"<p class={kind}>{escape(line)}</p>\n")
    if span[1]:
        times = f"{clock(span[0], zone)} to {clock(span[1], zone)}, {zone}"
        index.write(f"<p>Logs from {escape(times)}.</p>\n")
    index.writelines(f"<p>{escape(text)}</p>\n" for text in _inputs(general))
    found = general.get("findings_of_brokers", ())
    if found:
        lines = [(f["level"], f["kind"], clock(f["time_ms"], zone), f["text"]) for f in found]
        index.write("<h3>About brokers</h3>" + page.table(("", "what", "when", ""), lines))
    index.write("<h3>Partitions, the worst first</h3>")
    shown = page.LISTED
    index.writelines(
        page.table(page.INDEX, rows[at : at + shown]) for at in range(0, len(rows), shown)
    )
    if sums.partitions > len(rows):
        index.write(
            f"<p>… and {sums.partitions - len(rows):,} more, each in the folder {PAGES} as "
            "TOPIC-PARTITION.html.</p>\n"
        )


def _inputs(general: Mapping[str, Any]) -> Iterator[str]:
    logs, acks, lake = general.get("logs"), general.get("acknowledgements"), general.get("lake")
    if logs is None:
        yield "No state-change logs and no journals were given: who led is not known."
    else:
        yield (
            f"{plural(logs['lines'], 'line')} of {plural(len(logs['files']), 'state-change log')} "
            "and journals; "
            f"{logs['unread']:,} of them no state changes, {logs['dropped']:,} were dropped "
            "by their "
            "writers."
        )
        yield from logs["clocks"]
    if acks is None:
        yield "No acknowledgements were given: loss is not judged."
    else:
        yield (
            f"{plural(acks['records'], 'acknowledgement')} of {acks['path']}, "
            f"{plural(acks['unreadable_lines'], 'line')} could not be read."
        )
    if lake is None:
        yield "No lake was given."
    else:
        yield f"Tables of the lake: {', '.join(lake)}."
    yield (
        f"{plural(general['files'], 'segment file')}; the running cluster was "
        + ("asked for its high watermarks." if general["cluster_asked"] else "not asked.")
    )
    for problem in general["problems"]:
        yield f"bad checkpoint: {problem}"
    for line in general.get("delta", ()):
        yield f"Delta log: {line}"
    for finding in general.get("audit", ()):
        yield f"audit: {finding}"
