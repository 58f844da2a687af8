"""Page: the report of one partition, and the index of all, as HTML.

Invariants: pure; no network, no script; every text is escaped; lists that are longer than LISTED
say so.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from ottla.model.printable import plural
from ottla.pipelines.drilling.cells import Offsets, in_words
from ottla.pipelines.drilling.joining import Count, Finding, Gap, Leader, Replica, Report
from ottla.pipelines.timeline.picture import COLOURS, GAP, LABEL, WIDTH, bars, colour
from ottla.pipelines.timeline.when import clock, length

LISTED = 200
STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1280px;padding:0 1em;color:#222}
h1{font-size:1.4em}h2{font-size:1.2em;margin-top:2.5em;border-top:1px solid #999;padding-top:.6em}
h3{font-size:1em;margin:1.2em 0 .3em}
svg{width:100%;display:block}svg text{font:12px system-ui,sans-serif}
svg text.on{fill:#fff}table{border-collapse:collapse}td.n{text-align:right}
td,th{padding:.2em .8em .2em 0;text-align:left;border-bottom:1px solid #ddd;vertical-align:top}
.wrong{color:#b00020;font-weight:600}.held{color:#2e7d32}.no one td{color:#b00020}
"""
LAKE_COLOUR, ACK_COLOUR = COLOURS[4], COLOURS[2]


def opening(title: str) -> str:
    """Return what a page begins with."""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
        f"<style>{STYLE}</style><h1>{escape(title)}</h1>\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], kinds: Sequence[str] = ()) -> str:
    """Return a table; a cell that is a `Raw` is HTML already. `kinds`: a class for each row."""
    listed = list(rows)
    if not listed:
        return "<p>None.</p>"
    names = "".join(f"<th>{escape(h)}</th>" for h in head)
    lines = []
    for place, row in enumerate(listed[:LISTED]):
        kind = kinds[place] if place < len(kinds) else ""
        lines.append(f"<tr class={kind or 'row'}>{''.join(map(_cell, row))}</tr>")
    more = f"<p>… and {len(listed) - LISTED:,} more.</p>" if len(listed) > LISTED else ""
    return f"<table><tr>{names}</tr>{''.join(lines)}</table>{more}\n"


class Raw(str):
    """HTML that was made here."""

    __slots__ = ()


def _cell(value: Any) -> str:
    if isinstance(value, Raw):
        return f"<td>{value}</td>"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"<td class=n>{value:,}</td>"
    return f"<td>{escape('' if value is None else str(value))}</td>"


def verdict(report: Report) -> Raw:
    text = escape(", ".join(report.verdicts))
    return Raw(f"<span class={'held' if report.held else 'wrong'}>{text}</span>")


def name_of(report: Report) -> str:
    return f"{report.topic}-{report.partition}"


def index_row(report: Report, address: str) -> list[Any]:
    """Return the row of the index; INDEX are its names."""
    lost = sum(f.count for f in report.findings if f.wrong and f.source == "acknowledgements")
    most_ms, least_ms = report.longest_ms
    first = next((f for f in report.findings if f.wrong), None)
    return [
        Raw(f'<a href="{escape(address)}">{escape(name_of(report))}</a>'),
        verdict(report),
        None if report.acknowledged is None else report.acknowledged.count,
        None if report.acknowledged is None else lost,
        len(report.replicas),
        None if report.lake is None else report.lake.rows,
        len(report.leaders),
        Raw(escape(length(least_ms, most_ms))) if report.without_leader else None,
        "" if first is None else _in_short(first),
    ]


INDEX = (
    "partition", "verdict", "acknowledged", "of it lost", "replicas", "rows in the lake", "terms",
    "longest without a leader", "what is wrong first",
)  # fmt: skip


def _in_short(finding: Finding) -> str:
    where = f" at {in_words(Offsets(finding.count, finding.offsets))}" if finding.offsets else ""
    broker = "" if finding.broker is None else f", broker {finding.broker}"
    return f"{finding.kind}{where}{broker}: {finding.text}"


def section(report: Report, span: tuple[int, int], zone: str) -> str:
    """Return a partition's section; `span`: the first and the last time of the plots, in ms."""
    wrong = [f for f in report.findings if f.wrong]
    notes = [f for f in report.findings if not f.wrong]
    parts = [
        f'<h2 id="{escape(name_of(report))}">{escape(name_of(report))}: {verdict(report)}</h2>\n',
        *(["<h3>What is wrong</h3>", _findings(wrong, zone)] if wrong else []),
        "<h3>Who led, and why</h3>",
        bars("", _drawn(report), *span, zone) if report.leaders else "",
        _leadership(report, zone),
        "<h3>What was acknowledged</h3>",
        _acknowledged(report),
        "<h3>What each replica holds</h3>",
        _plot(report),
        _replicas(report),
        "<h3>What the lake holds</h3>",
        _lake(report),
        *(["<h3>Worth knowing, not wrong</h3>", _findings(notes, zone)] if notes else []),
        *(["<h3>In-sync replicas</h3>", _isr(report, zone)] if report.isr else []),
    ]
    return "\n".join(parts) + "\n"


def _drawn(report: Report) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return a report as the timeline's picture wants it."""
    return {
        "terms": [
            {
                "leader": t.leader, "first_epoch": t.first_epoch, "last_epoch": t.last_epoch,
                "began_ms": t.began_ms, "ended_to_ms": t.ended_to_ms, "how": t.how,
            }
            for t in report.leaders
        ],
        "gaps": [
            {
                "after": g.after, "how": f"({g.reason})", "least_ms": g.least_ms,
                "most_ms": g.most_ms, "start_from_ms": g.start_from_ms,
                "start_to_ms": g.start_to_ms, "end_ms": g.end_ms,
            }
            for g in report.without_leader
        ],
        "findings": [
            {"time_ms": f.time_ms, "kind": f.kind, "text": f.text}
            for f in report.findings
            if f.time_ms is not None
        ],
    }  # fmt: skip


def _findings(found: Sequence[Finding], zone: str) -> str:
    rows = [
        (
            f.kind, f.count or "", in_words(Offsets(f.count, f.offsets)), f.broker,
            "" if f.time_ms is None else clock(f.time_ms, zone),
            f"{f.file}, byte {f.position}" if f.position is not None else f.file, f.text,
        )
        for f in found
    ]  # fmt: skip
    return table(("what", "offsets", "which", "broker", "when", "file", ""), rows)


def _leadership(report: Report, zone: str) -> str:
    events: list[Leader | Gap] = [*report.leaders, *report.without_leader]
    events.sort(key=lambda one: one.began_ms if isinstance(one, Leader) else one.start_to_ms)
    rows, kinds = [], []
    for one in events:
        if isinstance(one, Leader):
            epochs = f"{one.first_epoch}"
            if one.last_epoch != one.first_epoch:
                epochs += f" to {one.last_epoch}"
            ended = one.ended_to_ms
            rows.append(
                (
                    clock(one.began_ms, zone),
                    "the logs' end" if ended is None else clock(ended, zone),
                    f"broker {one.leader}", epochs, one.isr, _count(one.acknowledged), one.reason,
                    "" if ended is None else one.how,
                )
            )  # fmt: skip
            kinds.append("led")
        else:
            how_long = length(one.least_ms, one.most_ms)
            rows.append(
                (
                    clock(one.start_to_ms, zone),
                    "the logs' end" if one.end_ms is None else clock(one.end_ms, zone),
                    "no leader", "", "", "", f"{one.reason}; without a leader for {how_long}", "",
                )
            )  # fmt: skip
            kinds.append("leaderless")
    if not rows:
        return "<p>No log tells.</p>"
    head = ("from", "to", "leader", "epoch", "ISR", "acknowledged meanwhile", "why", "how it ended")
    return table(head, rows, kinds)


def _count(count: Count | None) -> str:
    if count is None or not count.count:
        return ""
    return f"{count.count:,} (offsets {count.first} to {count.last})"


def _acknowledged(report: Report) -> str:
    if report.acknowledged is None:
        return "<p>No acknowledgements were given.</p>"
    reported = _count(report.acknowledged) or "nothing"
    early = _count(report.before_the_logs)
    more = (
        f" {escape(early)} of it before the logs' first term, or at unknown times." if early else ""
    )
    mark = report.high_watermark
    high = "" if mark is None else f" The high watermark is {mark:,}."
    return f"<p>Distinct offsets: {escape(reported)}.{more}{high}</p>"


def _replicas(report: Report) -> str:
    rows = [
        (
            "?" if r.broker is None else f"broker {r.broker}", r.start, r.end, r.last_epoch,
            r.bytes, r.batches, r.records, r.checksum,
            Raw("<span class=held>nothing wrong</span>")
            if r.agrees
            else Raw("<span class=wrong>see above</span>"),
            {True: "yes", False: "no", None: ""}[r.in_sync],
            "" if r.lacking is None else f"{r.lacking.count:,} {in_words(r.lacking)}".strip(),
        )
        for r in report.replicas
    ]  # fmt: skip
    head = (
        "replica", "start offset", "end offset", "last epoch", "bytes", "batches", "records",
        "checksum", "compared", "in sync", "acknowledged that it lacks",
    )  # fmt: skip
    return table(head, rows)


def _lake(report: Report) -> str:
    lake = report.lake
    if lake is None:
        return "<p>No lake was given, or it has no table of this topic.</p>"
    landed = in_words(Offsets(1, lake.landed)) or "nothing"
    where = "" if lake.first is None else f", offsets {lake.first:,} to {lake.last:,}"
    return (
        f"<p>{plural(lake.rows, 'row')} and dead letters{where}. Landed by its own word: {landed}; "
        f"{plural(lake.gaps, 'offset')} of it without a record for readers, {lake.lost:,} lost "
        "before "
        f"they landed. {plural(lake.waiting.count, 'record')} of the log not landed.</p>"
    )


def _isr(report: Report, zone: str) -> str:
    rows = [
        (clock(one["time_ms"], zone), one["leader_epoch"], f"broker {one['leader']}", one["isr"])
        for one in report.isr
    ]
    return table(("first heard of", "epoch", "leader", "ISR"), rows)


def _plot(report: Report) -> str:
    """Draw which offsets were acknowledged, are in each replica and in the lake; wrong ones red."""
    lines: list[tuple[str, int, int, str]] = []
    if report.acknowledged is not None and report.acknowledged.first is not None:
        last = report.acknowledged.last or 0
        lines.append(("acknowledged", report.acknowledged.first, last + 1, ACK_COLOUR))
    lines += [(_label(r), r.start, r.end, colour(r.broker or 0)) for r in report.replicas]
    if report.lake is not None and report.lake.first is not None:
        lines.append(("lake", report.lake.first, (report.lake.last or 0) + 1, LAKE_COLOUR))
    if not lines:
        return ""
    first, end = min(x[1] for x in lines), max(x[2] for x in lines)
    size = max(end - first, 1)

    def x(offset: int) -> float:
        return LABEL + (min(max(offset, first), end) - first) * WIDTH / size

    parts = []
    for place, (label, start, stop, fill) in enumerate(lines):
        y = place * 18
        parts.append(
            f'<text x="0" y="{y + 12}">{escape(label)}</text>'
            f'<rect x="{x(start):.1f}" y="{y}" width="{max(x(stop) - x(start), 1):.1f}" '
            f'height="14" fill="{fill}">'
            f"<title>{escape(label)}: offsets {start} to {stop - 1}</title></rect>"
        )
    height = len(lines) * 18
    for found in report.findings:
        if not found.wrong:
            continue
        for one, last in found.offsets:
            width = max(x(last + 1) - x(one), 2)
            parts.append(
                f'<rect x="{x(one):.1f}" y="0" width="{width:.1f}" height="{height}" fill="{GAP}" '
                f'fill-opacity=".6"><title>{escape(_in_short(found))}</title></rect>'
            )
    return (
        f'<svg viewBox="-2 -4 {LABEL + WIDTH + 4} {height + 8}" role="img">{"".join(parts)}</svg>'
    )


def _label(replica: Replica) -> str:
    return "replica" if replica.broker is None else f"replica on broker {replica.broker}"
