"""Reports of a search: what was found as text lines, and as one HTML page.

Invariants of the page: those of `model.html`.
"""

from collections.abc import Iterator
from math import ceil, exp, log
from typing import NamedTuple

import msgspec

from ottla.model import html
from ottla.model.html import COLOURS, Html, tag
from ottla.model.ids import NO_LEADER
from ottla.model.printable import plural
from ottla.sim.scenarios.explanation import Explanation, explain, settings_text
from ottla.sim.scenarios.promises import Broken
from ottla.sim.scenarios.scenario import FAULTS, PROMISES, Scenario
from ottla.sim.scenarios.scenario_run import Run
from ottla.sim.scenarios.search import Hours, Remedy, broken_of

WIDTH, ROW = 1000, 20


SURE = 0.95


class KnownLoss(NamedTuple):
    """Settings that lose records, and after how many simulated hours in the mean."""

    settings: str
    hours: float


KNOWN_LOSSES = (
    KnownLoss("min.insync.replicas=1, acks=all", 2.5),
    KnownLoss("min.insync.replicas=2, acks=1", 0.2),
)
"""3 brokers, 3 replicas, 1 partition, all faults: `python benchmarks/sim_check.py` measures it."""


def chance(known: KnownLoss, seconds: float) -> float:
    """Return how likely a search of so many simulated seconds finds a loss that is so frequent."""
    return 1 - exp(-seconds / 3600 / known.hours)


class Counterexample(msgspec.Struct):
    """The smallest run that was found to break a promise."""

    broken: Broken
    run: Run
    explanation: Explanation


class Findings(msgspec.Struct):
    """What a search found. `counterexamples`: promise -> run."""

    scenario: Scenario
    hours: Hours
    counterexamples: dict[str, Counterexample]
    remedy: Remedy | None = None
    searched: bool = True
    """False: one run was done again."""

    def add(self, run: Run, promise: str) -> None:
        """Note the counterexample of a promise."""
        broken = broken_of(run, promise)
        after_s = self.hours.first_after_s[promise]
        explanation = explain(self.scenario, run, broken, after_s)
        self.counterexamples[promise] = Counterexample(broken, run, explanation)


def hours_text(seconds: float) -> str:
    """Return `2.5 simulated hours`."""
    hours = seconds / 3600
    return f"{hours:.1f} simulated hour{'' if round(hours, 1) == 1 else 's'}"


def head(scenario: Scenario) -> Iterator[str]:
    """Yield what is simulated, a fact a line."""
    yield (
        f"{plural(scenario.brokers, 'broker')}, a topic of "
        f"{plural(scenario.partitions, 'partition')}, replication factor "
        f"{scenario.replication_factor}"
    )
    yield settings_text(scenario)
    kinds = "none" if not scenario.faults else "all kinds"
    if scenario.faults and len(scenario.faults) < len(FAULTS):
        kinds = ", ".join(scenario.faults)
    wait = ", the next one when all replicas are in sync" if scenario.wait_for_in_sync else ""
    yield f"faults: {kinds}; {scenario.at_once} at a time{wait}"


def results(findings: Findings) -> list[tuple[str, str]]:
    """Return each promise with what came of it."""
    found = []
    for promise in findings.scenario.promises:
        meaning = PROMISES[promise]
        if promise == "gap":
            meaning += f" ({findings.scenario.longest_gap_seconds:g} s)"
        if promise in findings.hours.first:
            after = hours_text(findings.hours.first_after_s[promise])
            text = f"broken after {after}"
        else:
            text = f"no counterexample in {hours_text(findings.hours.seconds)}"
        found.append((meaning, text))
    return found


def replay_options(explanation: Explanation) -> str:
    """Return the options that run a counterexample again."""
    numbers = ",".join(map(str, explanation.faults)) or "none"
    return f"--seed {explanation.seed} --only-faults {numbers} --seconds {explanation.seconds:g}"


def remedy_text(remedy: Remedy) -> str:
    """Return whether changed settings help."""
    changes = ", ".join(f"{k}={v}" for k, v in remedy.changes.items())
    still = ", ".join(PROMISES[promise] for promise in remedy.hours.first)
    outcome = f"still broken: {still}" if still else "no counterexample"
    return (
        f"With {changes}: {outcome} in {hours_text(remedy.hours.seconds)} of the same seeds; the "
        f"longest time without an acknowledged write was {remedy.hours.longest_gap_s:.0f} s."
    )


def likelihood(findings: Findings) -> Iterator[str]:
    """Yield how likely a counterexample would have been found, where none was."""
    hours = findings.hours
    if hours.first or not findings.searched:
        return
    yield ""
    yield (
        f"How likely a find was: settings that are known to lose records would have been caught in "
        f"{hours_text(hours.seconds)} with a chance of"
    )
    for known in KNOWN_LOSSES:
        yield (
            f"  {chance(known, hours.seconds):4.0%}  {known.settings}: a loss in about "
            f"{known.hours:g} hours"
        )
    rarest = max(known.hours for known in KNOWN_LOSSES)
    enough = ceil(-log(1 - SURE) * rarest)
    if hours.seconds < enough * 3600:
        yield f"--hours {enough} catches each of them with {SURE:.0%}; a rarer loss takes more."


def lines(findings: Findings) -> Iterator[str]:
    """Yield what follows the table of results."""
    hours = findings.hours
    yield (
        f"{plural(hours.runs, 'run')} with {plural(hours.faults, 'fault')}, "
        f"{plural(hours.acknowledged, 'acknowledged record')}; longest time without an "
        f"acknowledged write: {hours.longest_gap_s:.0f} s"
    )
    yield from likelihood(findings)
    shown: list[Run] = []
    for promise in findings.scenario.promises:
        found = findings.counterexamples.get(promise)
        if found is not None:
            yield ""
            yield from _counterexample(found.explanation, events=found.run not in shown)
            shown.append(found.run)
    if findings.remedy is not None:
        yield ""
        yield remedy_text(findings.remedy)
    if hours.unhealed is not None:
        yield ""
        why = hours.unhealed.unhealed
        yield f"Seed {hours.unhealed.seed} did not recover after its faults: {why}"
    if hours.defects:
        yield ""
        yield "Errors that no one caught; they are defects of Ottla, please report them:"
        yield from (f"  {line}" for line in hours.defects[:5])


def _counterexample(explanation: Explanation, *, events: bool) -> Iterator[str]:
    yield (
        f"Counterexample: {explanation.meaning} (seed {explanation.seed}, "
        f"{plural(len(explanation.faults), 'fault')}, {plural(explanation.records, 'record')})"
    )
    yield f"  {explanation.what}"
    yield from (f"  {line}" for line in explanation.why)
    if not events:
        yield "  It is the run above."
        return
    yield ""
    for event in explanation.events:
        yield f"  {event.at_s:8.1f} s  {event.text}"
    yield f"  Again: the same command with {replay_options(explanation)}"


STYLE = """
td{padding-right:1em}table{margin:.8em 0}.n{text-align:right;font-family:monospace}
.n{white-space:nowrap}.fault{color:#a02020}.record{font-weight:bold}code{white-space:pre-wrap}
svg{width:100%;background:#f4f4f4}text{font:11px monospace;fill:#222}
@media(prefers-color-scheme:dark){svg{background:#242424}text{fill:#ddd}.fault{color:#ff8080}}
"""


def page(findings: Findings) -> Html:
    """Return the report as one HTML page."""
    title = "What may be lost" if findings.counterexamples else "No counterexample found"
    return html.page(f"ottla sim: {title}", _parts(findings), STYLE)


def _parts(findings: Findings) -> Iterator[Html]:
    yield tag("ul", *(tag("li", line) for line in head(findings.scenario)))
    rows = (tag("tr", tag("td", meaning), tag("td", text)) for meaning, text in results(findings))
    yield html.table(("promise", "result"), rows)
    hours = findings.hours
    yield tag(
        "p",
        f"{plural(hours.runs, 'run')} in {hours_text(hours.seconds)}, with "
        f"{plural(hours.faults, 'fault')} and {plural(hours.acknowledged, 'acknowledged record')}."
        f" The longest time without an acknowledged write was {hours.longest_gap_s:.0f} s.",
    )
    yield from (tag("p", line) for line in likelihood(findings) if line)
    for found in findings.counterexamples.values():
        yield from _section(found)
    if findings.remedy is not None:
        yield tag("h2", "What helps")
        yield tag("p", remedy_text(findings.remedy))


def _section(found: Counterexample) -> Iterator[Html]:
    explanation = found.explanation
    yield tag("h2", f"Broken: {explanation.meaning}")
    yield tag("p", explanation.what)
    yield tag("ul", *(tag("li", line) for line in explanation.why))
    yield _drawing(found.run, found.broken)
    rows = (
        tag("tr", tag("td", f"{e.at_s:.1f} s", class_="n"), tag("td", e.text), class_=e.kind)
        for e in explanation.events
    )
    yield html.table(("time", "what happened"), rows)
    yield tag("p", "Again: the same command with ", tag("code", replay_options(explanation)))


def _drawing(run: Run, broken: Broken) -> Html:
    """Draw the leader, each broker's time in sync, its faults, and the record's moment."""
    states = [s for s in run.states if s.partition == broken.partition]
    brokers = sorted({b for s in states for b in s.isr} | {f.broker for f in run.faults} - {-1})
    rows = [f"{broken.partition} leader", *(f"broker {b} in sync" for b in brokers), "faults"]
    end_s = run.seconds or 1.0

    def x(at_s: float) -> float:
        share = min(max((at_s - run.began_s) / end_s, 0.0), 1.0)
        return round(170 + share * (WIDTH - 180), 1)

    def bar(row: int, start_s: float, stop_s: float, colour: str, what: str) -> Html:
        left = x(start_s)
        width = max(round(x(stop_s) - left, 1), 1.5)
        place = {"x": left, "y": row * ROW + 3, "width": width, "height": ROW - 6}
        return tag("rect", tag("title", what), fill=colour, **place)

    drawn = [tag("text", name, x=4, y=row * ROW + 14) for row, name in enumerate(rows)]
    ends = [s.at_s for s in states[1:]] + [run.began_s + end_s]
    for state, until_s in zip(states, ends, strict=False):
        if state.leader != NO_LEADER:
            what = f"leader {state.leader}, epoch {state.leader_epoch}"
            drawn.append(bar(0, state.at_s, until_s, COLOURS[state.leader % len(COLOURS)], what))
        for broker in state.isr:
            colour, what = COLOURS[broker % len(COLOURS)], f"broker {broker} in sync"
            drawn.append(bar(1 + brokers.index(broker), state.at_s, until_s, colour, what))
    for fault in run.faults:
        what = f"{fault.kind} of {f'broker {fault.broker}' if fault.broker >= 0 else 'ZooKeeper'}"
        colour = COLOURS[fault.broker % len(COLOURS)] if fault.broker >= 0 else "#444444"
        drawn.append(bar(len(rows) - 1, fault.at_s, fault.at_s + fault.lasts_s, colour, what))
    height = len(rows) * ROW + 4
    if broken.acknowledged_s >= 0:
        at, name = x(broken.acknowledged_s), tag("title", broken.value or broken.promise)
        drawn.append(tag("line", name, x1=at, x2=at, y1=0, y2=height, stroke="#d02020"))
    return tag("svg", *drawn, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label="timeline")
