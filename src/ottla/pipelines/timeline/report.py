"""Report: the timeline as one HTML page that needs nothing else.

Invariants: no network, no script; every text of the logs is escaped; the page is put in place
whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ottla.model.durable_files import replace_file
from ottla.model.errors import OttlaError
from ottla.model.printable import plural
from ottla.pipelines.timeline.picture import DOUBT, GAP, Rows, bars, colour
from ottla.pipelines.timeline.when import clock, seconds

LISTED = 500
STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1280px;padding:0 1em;color:#222}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}svg{width:100%;display:block}
svg text{font:12px system-ui,sans-serif}svg text.on{fill:#fff}table{border-collapse:collapse}
td,th{padding:.2em .8em .2em 0;text-align:left;border-bottom:1px solid #ddd;vertical-align:top}
td.n{text-align:right}.error{color:#b00020;font-weight:600}.key{display:inline-block;width:1em;height:1em;
vertical-align:-.15em;margin:0 .3em 0 1em}
"""

Pictured = Mapping[tuple[str, int], Mapping[str, Rows]]


def write(path: Path, reported: Mapping[str, Any], pictured: Pictured, zone: str) -> None:
    """Write the page; OttlaError if it cannot be written."""
    try:
        replace_file(path, page(reported, pictured, zone).encode())
    except OSError as error:
        raise OttlaError(f"{path}: {error.strerror}") from error


def page(reported: Mapping[str, Any], pictured: Pictured, zone: str) -> str:
    """Return the page."""
    first, last = _span(reported, pictured)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Leadership timeline</title>",
        f"<style>{STYLE}</style><h1>Leadership timeline</h1>",
        (
            f"<p>{clock(first, zone)} to {clock(last, zone)}, {escape(zone)}. "
            f"{plural(reported['lines'], 'line')} of {plural(len(reported['files']), 'file')}; "
            f"{plural(reported['partitions'], 'partition')}, {plural(reported['terms'], 'term')}, "
            f"{plural(reported['gaps'], 'interval')} without a leader, "
            f"{plural(reported['findings'], 'finding')}, "
            f"{reported['errors']:,} of them errors. "
            f"{plural(reported['unread'], 'line was', 'lines were')} no state change, "
            f"{reported['dropped']:,} were dropped by their writers.</p>"
        ),
        *(f"<p>{escape(line)}</p>" for line in reported["clocks"]),
        _findings(reported["found"], reported["findings"], zone),
        f"<h2>Leaders ({len(pictured):,} of {plural(reported['partitions'], 'partition')})</h2>",
        _key(pictured),
        *(bars(f"{t}-{p}", of, first, last, zone) for (t, p), of in pictured.items()),
        _gaps(reported["longest_gaps"], reported["gaps"], zone),
        _files(reported["files"], zone),
    ]
    return "\n".join(parts) + "\n</html>\n"


def _span(reported: Mapping[str, Any], pictured: Pictured) -> tuple[int, int]:
    times = [t["began_ms"] for of in pictured.values() for t in of["terms"]]
    ends = [f["last_ms"] for f in reported["files"] if f["last_ms"] is not None]
    starts = [f["first_ms"] for f in reported["files"] if f["first_ms"] is not None]
    first = min(times or starts, default=0)
    return first, max(ends, default=first)


def _key(pictured: Pictured) -> str:
    leaders = sorted({t["leader"] for of in pictured.values() for t in of["terms"]})
    keys = [(colour(b), f"broker {b}") for b in leaders]
    keys += [(GAP, "no leader"), (DOUBT, "the leader may have been gone already")]
    return (
        "<p>"
        + "".join(f'<span class=key style="background:{c}"></span>{escape(t)}' for c, t in keys)
        + "</p>"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], count: int, title: str) -> str:
    listed = list(rows)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=n' if isinstance(cell, int | float) else ''}>{escape(str(cell))}</td>"
            for cell in row
        )
        + "</tr>"
        for row in listed
    )
    if not listed:
        return f"<h2>{title}</h2><p>None.</p>"
    shown = "" if len(listed) >= count else f" ({len(listed):,} of {count:,})"
    names = "".join(f"<th>{escape(h)}</th>" for h in head)
    return f"<h2>{title}{shown}</h2><table><tr>{names}</tr>{body}</table>"


def _partition(row: Mapping[str, Any]) -> str:
    return "" if row["topic"] is None else f"{row['topic']}-{row['partition']}"


def _findings(rows: Rows, count: int, zone: str) -> str:
    cells = [
        (r["level"], clock(r["time_ms"], zone), r["kind"], _partition(r), r["text"])
        for r in rows[:LISTED]
    ]
    made = _table(("level", "when", "what", "partition", ""), cells, count, "Findings")
    return made.replace("<td>error</td>", "<td class=error>error</td>")


def _gaps(rows: Rows, count: int, zone: str) -> str:
    cells = [
        (
            _partition(r), clock(r["start_to_ms"], zone), seconds(r["least_ms"]),
            seconds(r["most_ms"]), f"broker {r['after']} {r['how']}",
            "none" if r["next"] is None else f"broker {r['next']}",
        )
        for r in rows[:LISTED]
    ]  # fmt: skip
    head = ("partition", "noticed", "at least, s", "at most, s", "before", "after")
    return _table(head, cells, count, "Without a leader, the longest first")


def _files(rows: Rows, zone: str) -> str:
    cells = [
        (
            r["file"], ", ".join(map(str, r["brokers"])), r["lines"], r["unread"],
            *("" if r[at] is None else clock(r[at], zone) for at in ("first_ms", "last_ms")),
        )
        for r in rows
    ]  # fmt: skip
    head = ("file", "brokers", "lines", "not read", "first", "last")
    return _table(head, cells, len(cells), "Files")
