"""What `failover.py` measured, as a table and a plot.

Who may call: `failover.py`. The plot is written as SVG text, without a library: time and memory
over the number of partitions, both axes linear, so that growth is seen as it is.
"""

import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "BENCHMARKS.md"
PLOT = ROOT / "docs" / "failover.svg"
BEGIN, END = "<!-- failover: begin -->", "<!-- failover: end -->"
WIDTH, HEIGHT, LEFT, BOTTOM = 430, 250, 50, 40
NAMES = {"ottla": "Ottla", "kafka": "Kafka 3.9.1"}
COLOURS = {"ottla": "#0b6e4f", "kafka": "#b3541e"}
MAX_PARTITIONS_S = 10.0


@dataclass(frozen=True)
class Result:
    """One failover. Times in seconds from the end of the dead controller's session."""

    system: str
    partitions: int
    led_s: float
    written_s: float
    told_s: float
    rss_mb: float
    rss_before_mb: float
    peak_mb: float
    zookeeper_requests: int
    cpu_s: float
    sent_mb: float
    produce_before_p99_ms: float
    produce_p99_ms: float
    produce_max_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    callback_max_ms: float
    over_20_ms: float
    load: float
    requests: dict[str, int] = field(default_factory=dict)

    def figures(self) -> dict[str, object]:
        return {
            key: round(value, 3) if isinstance(value, float) else value
            for key, value in asdict(self).items()
        }


def medians(results: list[Result]) -> list[dict[str, object]]:
    """Return one row per (system, size), each figure the median of its rounds."""
    rows = []
    for key in sorted({(r.partitions, r.system) for r in results}):
        some = [asdict(r) for r in results if (r.partitions, r.system) == key]
        rows.append(
            {
                name: value
                if not isinstance(value, int | float)
                else statistics.median(r[name] for r in some)
                for name, value in some[0].items()
            }
        )
    return rows


def table(rows: list[dict]) -> list[str]:
    columns = (
        "partitions", "", "led again", "all told", "CPU", "memory, before → after",
        "ZooKeeper requests", "produce p99, before → during (max)", "loop late p99 / max",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---:|---|" + "---:|" * (len(columns) - 2)]
    for r in rows:
        late = ""
        if r["system"] == "ottla":
            late = f"{r['lag_p99_ms']:.0f} / {r['lag_max_ms']:.0f} ms"
        lines.append(
            f"| {r['partitions']:,.0f} | {NAMES[r['system']]} | {r['led_s']:.2f} s "
            f"| {r['told_s']:.2f} s | {r['cpu_s']:.1f} s "
            f"| {r['rss_before_mb']:.0f} → {r['rss_mb']:.0f} MB | {r['zookeeper_requests']:,.0f} "
            f"| {r['produce_before_p99_ms']:.1f} → {r['produce_p99_ms']:.1f} "
            f"({r['produce_max_ms']:.0f}) ms | {late} |"
        )
    return lines


def verdicts(rows: list[dict]) -> list[str]:
    """Say of each goal whether it held."""
    by_key = {(r["system"], r["partitions"]): r for r in rows}
    lines = []
    for (system, size), theirs in by_key.items():
        ours = by_key.get(("ottla", size))
        if system == "kafka" and ours is not None:
            ratio = ours["told_s"] / theirs["told_s"]
            word = "held" if ratio <= 0.5 else "missed"
            lines.append(f"- {size:,.0f} partitions, ours / Kafka <= 1/2: {ratio:.2f}, {word}")
    most = by_key.get(("ottla", 100_000))
    if most is not None:
        word = "held" if most["told_s"] <= MAX_PARTITIONS_S else "missed"
        lines.append(f"- 100,000 partitions <= 10 s: {most['told_s']:.1f} s, {word}")
        word = "held" if most["lag_p99_ms"] <= 20 else "missed"
        lines.append(f"- loop late by <= 20 ms at p99 meanwhile: {most['lag_p99_ms']:.0f}, {word}")
    return lines


def section(results: list[Result]) -> str:
    rows = medians(results)
    rounds = max(sum(r.system == "ottla" and r.partitions == size for r in results)
                 for size in {r.partitions for r in results})  # fmt: skip
    loads = ", ".join(f"{r.load:.1f}" for r in results)
    how = (
        f"Measured {time.strftime('%Y-%m-%d', time.gmtime())} by `make bench-failover`: "
        f"rounds {rounds}, medians; {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{platform.system()}. Load average at the end of each: {loads}."
    )
    picture = "![time and memory of a controller failover](failover.svg)"
    return "\n".join([BEGIN, how, "", *table(rows), "", *verdicts(rows), "", picture, END])


# -- the plot -------------------------------------------------------------------------------------


def chart(rows: list[dict], what: str, title: str, offset: int) -> list[str]:
    """Return one chart's elements, its left edge at `offset`."""
    top_x = max(r["partitions"] for r in rows)
    top_y = max(r[what] for r in rows) * 1.1 or 1.0

    def at(r: dict) -> tuple[float, float]:
        x = offset + LEFT + r["partitions"] / top_x * (WIDTH - LEFT - 20)
        return x, HEIGHT - BOTTOM - r[what] / top_y * (HEIGHT - BOTTOM - 40)

    base = HEIGHT - BOTTOM
    left = offset + LEFT
    out = [
        f'<text x="{left}" y="20" class="title">{title}</text>',
        f'<path d="M{left} 30V{base}H{offset + WIDTH - 10}" class="axis"/>',
    ]
    for system in sorted({r["system"] for r in rows}):
        points = [(*at(r), r) for r in rows if r["system"] == system]
        colour = COLOURS[system]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y, r in points:
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
            out.append(
                f'<text x="{x - 4:.1f}" y="{y - 7:.1f}" class="value" fill="{colour}">'
                f"{r[what]:.3g}</text>"
            )
    ticks = [r for r in rows if r["system"] == "ottla" and r["partitions"] >= top_x / 20]
    out += [
        f'<text x="{at(r)[0]:.1f}" y="{base + 16}" class="tick">{r["partitions"]:,.0f}</text>'
        for r in ticks
    ]
    return out


def plot(rows: list[dict]) -> str:
    style = (
        "text{font:11px sans-serif;fill:#444}.title{font-size:13px}.tick{text-anchor:middle}"
        ".value{text-anchor:end}.axis{stroke:#888;fill:none}"
    )
    legend = "".join(
        f'<circle cx="{LEFT + 8 + 90 * n}" cy="{HEIGHT - 9}" r="4" fill="{COLOURS[name]}"/>'
        f'<text x="{LEFT + 16 + 90 * n}" y="{HEIGHT - 5}">{NAMES[name]}</text>'
        for n, name in enumerate(sorted({r["system"] for r in rows}))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{HEIGHT}">',
            f"<style>{style}</style>",
            '<rect width="100%" height="100%" fill="white"/>',
            *chart(rows, "told_s", "seconds until all is led and told, by partitions", 0),
            *chart(rows, "rss_mb", "MB resident afterwards, by partitions", WIDTH),
            legend,
            "</svg>",
            "",
        ]
    )


def write_report(results: list[Result], *, write: bool) -> None:
    """Print the table; put it and the plot into docs."""
    text = section(results)
    print(text)
    if not write:
        return
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(before + text + rest.partition(END)[2])
    PLOT.write_text(plot(medians(results)))
