"""The command `ottla sim check`.

Invariants: nothing is started but simulations, in processes of their own with a bound of memory;
options win over the scenario file, and the file over a server.properties; exit code 1 if a promise
was broken.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Output
from ottla.admin.options import read_input
from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import Format, print_json, print_line, print_prose, print_table, say
from ottla.cli.progress import StatusLine
from ottla.model.process import ended_in_order

if TYPE_CHECKING:
    from ottla.sim.scenarios.report import Findings
    from ottla.sim.scenarios.scenario import Scenario


EXIT_BROKEN = 1
MOST_PROCESSES = 8
MOST_HOURS = 10_000
LONGEST_RUN_S = 36_000
SETTING = "KEY=VALUE"


@dataclass(kw_only=True)
class Described:
    """What a scenario file may say, as options."""

    file: Annotated[
        str | None,
        Argument(metavar="[SCENARIO]", help="A scenario file (TOML); - is standard input"),
    ] = None
    brokers: Annotated[int | None, Option(metavar="N", help="Brokers [default: 3]")] = None
    partitions: Annotated[int | None, Option(metavar="N", help="Partitions [default: 1]")] = None
    replication_factor: Annotated[
        int | None, Option(metavar="N", help="Replicas of each partition [default: 3]")
    ] = None
    server_properties: Annotated[
        Path | None, Option(metavar="FILE", help="Use the settings of this server.properties")
    ] = None
    producer_properties: Annotated[
        Path | None, Option(metavar="FILE", help="Use the settings of this producer.properties")
    ] = None
    server: Annotated[
        list[str] | None, Option(metavar=SETTING, help="A setting of all brokers")
    ] = None
    topic: Annotated[list[str] | None, Option(metavar=SETTING, help="A setting of the topic")] = (
        None
    )
    producer: Annotated[
        list[str] | None, Option(metavar=SETTING, help="A setting of the producers")
    ] = None
    faults: Annotated[
        str | None,
        Option(metavar="LIST", help="Kinds of faults, or 'none'; --print lists them"),
    ] = None
    at_once: Annotated[
        int | None, Option(metavar="N", help="Number of simultaneous faults [default: 1]")
    ] = None
    wait_for_in_sync: Annotated[
        bool,
        Option(
            "--wait-for-in-sync", help="Wait for all replicas to be in sync before the next fault"
        ),
    ] = False
    catch_up_seconds: Annotated[
        float | None,
        Option(metavar="S", help="How long a broker is slow after it returns [default: 60]"),
    ] = None
    longest_gap: Annotated[
        float | None,
        Option(metavar="S", help="Also check that writes never stop for longer than this"),
    ] = None
    promises: Annotated[
        str | None,
        Option(metavar="LIST", help="Promises to check, of: kept, once, order, reads, gap"),
    ] = None

    def scenario(self) -> "Scenario":
        """Return the scenario that the file and the options describe."""
        from ottla.model.properties import load_settings
        from ottla.sim.scenarios import scenario as scenarios

        where, values = "options", {}
        if self.file is not None:
            data, where = read_input(self.file, scenarios.MAX_BYTES)
            values = scenarios.with_tables(scenarios.parse(data, where), where)
        for table, path, select in (
            ("server", self.server_properties, scenarios.of_the_cluster),
            ("producer", self.producer_properties, scenarios.of_a_producer),
        ):
            if path is not None:
                kept, left_out = select(load_settings(path.read_bytes(), path))
                values[table] = kept | dict(values.get(table, {}))
                if left_out:
                    say(f"ottla: {path}: not simulated: {', '.join(left_out)}")
        for table, settings in (
            ("server", self.server),
            ("topic", self.topic),
            ("producer", self.producer),
        ):
            for text in settings or ():
                name, equals, value = text.partition("=")
                if not equals or not name:
                    raise UsageError(f"--{table} {text}: expected {SETTING}")
                values[table] = {**values.get(table, {}), name.strip(): value.strip()}
        options: tuple[tuple[str, object], ...] = (
            ("brokers", self.brokers),
            ("partitions", self.partitions),
            ("replication-factor", self.replication_factor),
            ("at-once", self.at_once),
            ("wait-for-in-sync", self.wait_for_in_sync or None),
            ("catch-up-seconds", self.catch_up_seconds),
            ("longest-gap-seconds", self.longest_gap),
            ("faults", None if self.faults is None else _list(self.faults)),
            ("promises", None if self.promises is None else _list(self.promises)),
        )
        for name, option in options:
            if option is not None:
                values[name] = option
        return scenarios.checked(values, where)


def _list(text: str) -> list[str]:
    return [] if text == "none" else [part.strip() for part in text.split(",") if part.strip()]


def check(
    described: Described,
    hours: Annotated[
        float,
        Option(
            metavar="H",
            help="Simulated hours to search",
            min=0.01,
            max=MOST_HOURS,
        ),
    ] = 5.0,
    seed: Annotated[int, Option(metavar="N", help="First seed", min=0)] = 1,
    only_faults: Annotated[
        str | None,
        Option(metavar="LIST", help="Run only --seed, with only the faults of these numbers"),
    ] = None,
    seconds: Annotated[
        float | None,
        Option(metavar="S", help="With --only-faults: length of the run", min=1, max=LONGEST_RUN_S),
    ] = None,
    processes: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Number of processes [default: one per CPU]",
            min=1,
            max=MOST_PROCESSES,
        ),
    ] = None,
    no_remedy: Annotated[
        bool, Option("--no-remedy", help="Do not search for settings that would help")
    ] = False,
    html: Annotated[
        Path | None, Option(metavar="FILE", help="Also write the report as one HTML page")
    ] = None,
    only_print: Annotated[
        bool, Option("--print", help="Only print the scenario as a file, with all defaults")
    ] = False,
    output: Output = Format.table,
) -> None:
    if seconds is not None and only_faults is None:
        raise UsageError("--seconds goes with --only-faults; how long to look is --hours")

    from ottla.sim.scenarios import report

    scenario = described.scenario()
    if only_print:
        from ottla.sim.scenarios.scenario import to_text

        sys.stdout.write(to_text(scenario))
        return

    count = processes or min(MOST_PROCESSES, os.cpu_count() or 1)
    said = _Line()
    if only_faults is not None:
        findings = _one_run(scenario, seed, only_faults, seconds)
    else:
        with ended_in_order():
            findings = _searched(scenario, hours * 3600, count, seed, said, no_remedy=no_remedy)
    said.clear()
    _print(findings, output)
    if html is not None:
        html.write_text(report.page(findings), encoding="utf-8")
        say(f"ottla: wrote {html}")
    if findings.hours.interrupted:
        say("ottla: interrupted; this is what was found until then")
        raise Exit(130)
    if findings.hours.first or findings.hours.unhealed or findings.hours.defects:
        raise Exit(EXIT_BROKEN)


def _searched(
    scenario: "Scenario",
    seconds: float,
    processes: int,
    seed: int,
    said: "_Line",
    *,
    no_remedy: bool,
) -> "Findings":
    """Return what a search found; if it is interrupted, what was found until then."""
    from ottla.sim.scenarios import report, search

    found = search.search(scenario, seconds, processes, seed, said)
    findings = report.Findings(scenario, found, {})
    if found.interrupted:
        return findings
    try:
        for promise, first in found.first.items():
            shrunk = (c.run for c in findings.counterexamples.values() if c.run.seed == first.seed)
            same = (r for r in shrunk if any(b.promise == promise for b in r.broken))
            run = next(same, None) or search.counterexample(scenario, first, promise, said)
            findings.add(run, promise)
        if found.first and not no_remedy:
            remedy = search.helping(
                scenario, set(found.first), found.seconds, processes, seed, said
            )
            findings.remedy = remedy
            found.interrupted = remedy is not None and remedy.hours.interrupted
    except KeyboardInterrupt:
        found.interrupted = True
    return findings


def _one_run(
    scenario: "Scenario", seed: int, only_faults: str, seconds: float | None
) -> "Findings":
    from ottla.sim.scenarios import report, search
    from ottla.sim.scenarios.scenario_run import Job
    from ottla.sim.scenarios.worker import Worker

    try:
        numbers = tuple(map(int, _list(only_faults)))
    except ValueError:
        raise UsageError(f"--only-faults {only_faults}: expected numbers, such as 3,7") from None
    found = search.Hours()
    with Worker(scenario) as worker:
        run = worker.run(Job(seed, numbers, seconds))
    found.take(run)
    findings = report.Findings(scenario, found, {}, searched=False)
    for promise in found.first:
        findings.add(run, promise)
    return findings


class _Line(StatusLine):
    """One line on a terminal that says how it goes."""

    def __call__(self, text: str) -> None:
        self.write(text[:100])


def _print(findings: "Findings", output: Format) -> None:
    from ottla.sim.scenarios import report

    if output is Format.json:
        from ottla.sim.scenarios.results import Checked

        print_json(Checked.of(findings))
        return
    for line in report.head(findings.scenario):
        print_prose(line)
    print_line("")
    print_table(("PROMISE", "RESULT"), report.results(findings))
    print_line("")
    for line in report.lines(findings):
        print_prose(line)
