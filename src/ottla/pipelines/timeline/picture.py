"""Picture: one partition's leadership as bars in SVG.

Invariants: pure; every text is escaped; a bar of no width is drawn one unit wide, so that nothing
that happened is invisible.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ottla.pipelines.timeline.when import clock, seconds

WIDTH, BAR, LABEL = 1000, 22, 220
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#86bcb6")
GAP, DOUBT = "#d62728", "#f2b5b5"

Rows = Sequence[Mapping[str, Any]]


def colour(broker: int) -> str:
    return COLOURS[broker % len(COLOURS)]


def bars(name: str, reported: Mapping[str, Rows], first_ms: int, last_ms: int, zone: str) -> str:
    """Return a row: leaders by colour, red where no one led, pale where no one can tell."""
    span = max(last_ms - first_ms, 1)

    def x(time_ms: int | None) -> float:
        time = last_ms if time_ms is None else min(max(time_ms, first_ms), last_ms)
        return LABEL + (time - first_ms) * WIDTH / span

    parts = [f'<text x="0" y="15">{escape(name)}</text>']
    for term in reported["terms"]:
        ended = term["ended_to_ms"]
        what = (
            f"broker {term['leader']}, leader epochs {term['first_epoch']} to "
            f"{term['last_epoch']}: {clock(term['began_ms'], zone)} to "
            f"{'the end' if ended is None else clock(ended, zone)} "
            f"({term['how']})"
        )
        label = str(term["leader"]) if x(ended) - x(term["began_ms"]) > 14 else ""
        parts.append(_bar(x(term["began_ms"]), x(ended), colour(term["leader"]), what, label))
    for gap in reported["gaps"]:
        what = (
            f"no leader after broker {gap['after']} {gap['how']}: {seconds(gap['least_ms'])} to "
            f"{seconds(gap['most_ms'])} s"
        )
        if gap["start_from_ms"] < gap["start_to_ms"]:
            parts.append(_bar(x(gap["start_from_ms"]), x(gap["start_to_ms"]), DOUBT, what, ""))
        parts.append(_bar(x(gap["start_to_ms"]), x(gap["end_ms"]), GAP, what, ""))
    parts += [
        f'<path d="M{x(one["time_ms"]):.1f} 0l5 -7h-10z" fill="#000">'
        f"<title>{escape(one['kind'])}: {escape(one['text'])}</title></path>"
        for one in reported["findings"]
    ]
    return (
        f'<svg viewBox="-2 -8 {LABEL + WIDTH + 4} {BAR + 10}" role="img">'
        + "".join(parts)
        + "</svg>"
    )


def _bar(start: float, end: float, fill: str, what: str, label: str) -> str:
    width = max(end - start, 1.0)
    text = f'<text class="on" x="{start + 4:.1f}" y="15">{escape(label)}</text>' if label else ""
    return (
        f'<rect x="{start:.1f}" y="0" width="{width:.1f}" height="{BAR - 2}" fill="{fill}">'
        f"<title>{escape(what)}</title></rect>{text}"
    )
