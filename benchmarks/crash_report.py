"""What `crash.py` measured, as tables, a plot and a few lines for a terminal.

Who may call: `crash.py`. Results are dicts as it keeps them in a file: system, part, kind, load,
seconds, counts. The plot is written as SVG text, without a library: a bar from the kill to the
median of the next acknowledged record, and a dot for each kill.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "BENCHMARKS.md"
PLOT = ROOT / "docs" / "crash.svg"
PARTS = ("kills", "start", "restart", "rolling")
MARKS = {"kills": "crash", "start": "crash-start", "restart": "crash-restart",
         "rolling": "crash-rolling"}  # fmt: skip
KINDS = ("leader", "follower", "controller")
NAMES = {"kafka39": "Kafka 3.9.1", "kafka41": "Kafka 4.1.0", "ottla": "Ottla"}
COLOURS = {"kafka39": "#b3541e", "kafka41": "#c9922e", "ottla": "#0b6e4f"}
OURS = "ottla"
P50_S, WORST_S = 0.5, 1.5
SINGLE = {
    "start": ("three brokers (and ZooKeeper), to the first acks=all record", "start", 1.0),
    "restart": ("a killed broker starts, until it is in every ISR", "restart", 1.0),
}
ROLLING_GAP_S = 0.1
# kind, seconds by this name, what the row says, whether the goal counts for it
ROWS: tuple[tuple[str, str, str, bool], ...] = (
    ("leader", "led", "a leader: until every partition is led again", True),
    ("leader", "ack", "... until the producer's next acknowledged record", True),
    ("leader", "gap", "... longest time without one, of one partition", False),
    ("follower", "out", "a broker that only follows: until no ISR names it", True),
    ("follower", "ack", "... until the producer's next acknowledged record", True),
    ("follower", "gap", "... longest time without one, of one partition", False),
    ("controller", "led", "the controller: until every partition is led again", True),
    ("controller", "ack", "... until the producer's next acknowledged record", True),
    ("controller", "gap", "... longest time without one, of one partition", False),
)
TITLE = "kill -9 of a broker: seconds until the next record is acknowledged (acks=all)"
WIDTH, LEFT, RIGHT, ROW, TOP = 760, 190, 60, 22, 34


@dataclass
class Report:
    """All results of a run."""

    results: list[dict[str, Any]] = field(default_factory=list)

    def add(self, result: dict[str, Any]) -> None:
        self.results.append(result)

    def of(self, part: str, system: str = "", kind: str = "") -> list[dict[str, Any]]:
        return [
            r
            for r in self.results
            if r["part"] == part
            and (not system or r["system"] == system)
            and (not kind or r["kind"] == kind)
        ]

    def seconds(self, name: str, part: str, system: str, kind: str = "") -> list[float]:
        return [r["seconds"][name] for r in self.of(part, system, kind)]

    def systems(self, part: str) -> list[str]:
        return [name for name in NAMES if self.of(part, name)]

    def tell(self, *, write: bool) -> None:
        """Print the tables of what was measured; put them and the plot into docs."""
        for part in PARTS:
            if not self.of(part):
                continue
            text = section(self, part)
            print(text)
            if write:
                write_section(MARKS[part], text)
        if write and self.of("kills"):
            PLOT.write_text(plot(self))


def write_section(mark: str, text: str) -> None:
    page = PAGE.read_text()
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, _, rest = page.partition(begin)
    PAGE.write_text(before + f"{begin}\n{text}\n{end}" + rest.partition(end)[2])


# -- tables ---------------------------------------------------------------------------------------


def p50_and_worst(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}, {max(values):.2f} s" if values else ""


def ratios(median: Callable[[str], float | None]) -> str:
    """Return ours by each of the others', in their order."""
    ours = median(OURS)
    found = []
    for system in NAMES:
        theirs = median(system)
        if system != OURS and ours is not None and theirs:
            found.append(f"{ours / theirs:.2f}")
    return ", ".join(found)


def kills_table(report: Report) -> list[str]:
    systems = report.systems("kills")
    names = " | ".join(f"{NAMES[s]}: p50, worst" for s in systems)
    lines = [
        f"| `kill -9` of | {names} | ours / theirs (p50) | goal |",
        "|---|" + "---:|" * len(systems) + "---:|---|",
    ]
    for kind, name, what, has_goal in ROWS:
        if not report.of("kills", kind=kind):
            continue

        def values(system: str, name: str = name, kind: str = kind) -> list[float]:
            return report.seconds(name, "kills", system, kind)

        def median(system: str, values: Callable[[str], list[float]] = values) -> float | None:
            return statistics.median(values(system)) if values(system) else None

        cells = " | ".join(p50_and_worst(values(s)) for s in systems)
        goal = goal_of_kills(values(OURS)) if has_goal else ""
        lines.append(f"| {what} | {cells} | {ratios(median)} | {goal} |")
    return lines


def goal_of_kills(ours: Sequence[float]) -> str:
    if not ours:
        return ""
    held = [
        f"{what} <= {bound} s {'held' if value <= bound else 'missed'}"
        for what, value, bound in (
            ("p50", statistics.median(ours), P50_S),
            ("worst", max(ours), WORST_S),
        )
    ]
    return ", ".join(held)


def single_table(report: Report, part: str) -> list[str]:
    what, name, bound = SINGLE[part]
    lines = ["| | p50, worst | goal | |", "|---|---:|---|---|"]
    for system in report.systems(part):
        values = report.seconds(name, part, system)
        goal, verdict = "", ""
        if system == OURS:
            goal = f"<= {bound} s"
            verdict = "held" if statistics.median(values) <= bound else "missed"
        row = f"{NAMES[system]}: {what}"
        lines.append(f"| {row} | {p50_and_worst(values)} | {goal} | {verdict} |")
    return lines


def rolling_table(report: Report) -> list[str]:
    lines = [
        "| | longest gap: p50, worst | errors | broker stops | ... is back | all three | goal | |",
        "|---|---:|---:|---:|---:|---:|---|---|",
    ]
    for system in report.systems("rolling"):
        runs = report.of("rolling", system)
        gaps = report.seconds("gap", "rolling", system)
        errors = sum(r["counts"]["errors"] for r in runs)
        goal, verdict = "", ""
        if system == OURS:
            goal = f"<= {ROLLING_GAP_S} s, no errors"
            verdict = "held" if max(gaps) <= ROLLING_GAP_S and not errors else "missed"

        def each(what: str, runs: list[dict[str, Any]] = runs) -> str:
            some = [v for r in runs for k, v in r["seconds"].items() if k.startswith(what)]
            return p50_and_worst(some)

        whole = p50_and_worst(report.seconds("all", "rolling", system))
        lines.append(
            f"| {NAMES[system]} | {statistics.median(gaps):.3f}, {max(gaps):.3f} s | {errors} "
            f"| {each('stop_')} | {each('back_')} | {whole} | {goal} | {verdict} |"
        )
    return lines


def how(report: Report, part: str) -> str:
    counts = []
    for system in report.systems(part):
        some = report.of(part, system)
        each = f"{len(some)}"
        if part == "kills":
            each = ", ".join(
                f"{len(report.of(part, system, kind))} {kind}"
                for kind in KINDS
                if report.of(part, system, kind)
            )
        loads = [r["load"] for r in some]
        counts.append(
            f"{NAMES[system]}: {each} (load average {min(loads):.1f} to {max(loads):.1f}, "
            f"median {statistics.median(loads):.1f})"
        )
    command = "make bench-crash" if part == "kills" else f"benchmarks/crash.py --part {part}"
    return (
        f"Measured {time.strftime('%Y-%m-%d', time.gmtime())} by `{command}`: "
        f"{'; '.join(counts)}. {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{platform.system()}."
    )


def section(report: Report, part: str) -> str:
    if part == "kills":
        errors = {s: sum(r["counts"]["errors"] for r in report.of(part, s)) for s in NAMES}
        told = ", ".join(f"{NAMES[s]} {n}" for s, n in errors.items() if report.of(part, s))
        return "\n".join(
            [
                how(report, part),
                "",
                *kills_table(report),
                "",
                f"Errors that reached the producer's application: {told}.",
                "",
                "![from kill -9 to the next acknowledged record](crash.svg)",
            ]
        )
    table = rolling_table(report) if part == "rolling" else single_table(report, part)
    return "\n".join([how(report, part), "", *table])


# -- for a terminal -------------------------------------------------------------------------------


def summary(report: Report, width: int = 48) -> list[str]:
    """Return bars from the kill to the next acknowledged record: median, and the worst."""
    medians, worst = {}, {}
    for kind in KINDS:
        for system in report.systems("kills"):
            if values := report.seconds("ack", "kills", system, kind):
                medians[kind, system] = statistics.median(values)
                worst[kind, system] = max(values)
    if not medians:
        return []
    scale = width / max(worst.values())
    lines = ["kill -9, seconds until the next record is acknowledged (█ median, ░ worst)"]
    for (kind, system), value in medians.items():
        full = max(1, round(value * scale))
        more = max(0, round(worst[kind, system] * scale) - full)
        bar = "█" * full + "░" * more
        lines.append(f"  {kind:10} {NAMES[system]:11} {value:6.2f} {bar}")
    return lines


# -- the plot -------------------------------------------------------------------------------------


def plot(report: Report) -> str:
    rows = [
        (kind, system, values)
        for kind in KINDS
        for system in reversed(report.systems("kills"))
        if (values := report.seconds("ack", "kills", system, kind))
    ]
    top = max(max(values) for _, _, values in rows) * 1.02
    kinds = [kind for kind in KINDS if any(k == kind for k, _, _ in rows)]
    base = TOP + len(rows) * ROW + len(kinds) * 10

    def at(seconds: float) -> float:
        return LEFT + seconds / top * (WIDTH - LEFT - RIGHT)

    style = (
        "text{font:12px sans-serif;fill:#444}.title{font-size:14px}.tick{text-anchor:middle}"
        ".name{text-anchor:end}.axis{stroke:#ccc}"
    )
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{base + 34}">',
        f"<style>{style}</style>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="20" class="title">{TITLE}</text>',
    ]
    step = next(s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60) if top / s <= 10)
    for n in range(int(top / step) + 1):
        x = at(n * step)
        out.append(f'<path d="M{x:.1f} {TOP}V{base}" class="axis"/>')
        out.append(f'<text x="{x:.1f}" y="{base + 16}" class="tick">{n * step:g}</text>')
    y = TOP
    for n, (kind, system, values) in enumerate(rows):
        if not n or rows[n - 1][0] != kind:
            y += 10
            out.append(f'<text x="12" y="{y + 15}">{kind}</text>')
        median, colour = statistics.median(values), COLOURS[system]
        out.append(f'<text x="{LEFT - 8}" y="{y + 15}" class="name">{NAMES[system]}</text>')
        out.append(
            f'<rect x="{LEFT}" y="{y + 4}" width="{at(median) - LEFT:.1f}" height="{ROW - 8}" '
            f'fill="{colour}" fill-opacity="0.35"/>'
        )
        for i, value in enumerate(values):
            high = y + 6 + i * 7 % (ROW - 12)
            out.append(f'<circle cx="{at(value):.1f}" cy="{high}" r="2" fill="{colour}"/>')
        out.append(
            f'<text x="{at(max(values)) + 7:.1f}" y="{y + 15}" fill="{colour}">{median:.2f}</text>'
        )
        y += ROW
    out += ["</svg>", ""]
    return "\n".join(out)
