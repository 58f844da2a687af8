"""`ottla doctor`: what is wrong or unsafe in a cluster, why, and what mends it.

Invariants: nothing changes without --fix; a fix is the very command that is shown; exit code 1 if
something is wrong (errors, warnings); with --strict also for risks.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Target
from ottla.admin.options import Yes, ZooKeeperConfig, agreed, needs_yes, usage
from ottla.cli import Exit, Option, UsageError
from ottla.cli.output import Format, complain, print_json, print_line, print_prose, print_table, say
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.admin.diagnosis.facts import Finding

EXIT_WRONG = 1
UNSETTLED = "3s"
MOST_S = 3600.0
UNDER_THE_WORDS = 7
"""As many blanks as `found: ` is long."""
EXTRA_S = 120.0
"""For all that is asked besides watching."""


def doctor(
    target: Target,
    fix: Annotated[
        list[str] | None,
        Option(metavar="FINDING", help="Apply the fix of this finding; repeatable"),
    ] = None,
    watch: Annotated[
        str | None,
        Option(
            "--for",
            metavar="TIME",
            help="Time to watch ISRs and groups; groups need 15s [3s if something is unsettled]",
        ),
    ] = None,
    older_than: Annotated[
        str, Option(metavar="TIME", help="Treat transactions open longer than this as hanging")
    ] = "15m",
    strict: Annotated[bool, Option("--strict", help="Also exit with 1 for risks")] = False,
    zookeeper: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT[/ROOT]",
            help="ZooKeeper to ask [default: the brokers' zookeeper.connect]",
        ),
    ] = None,
    zookeeper_config: ZooKeeperConfig = None,
    yes: Yes = False,
) -> None:
    from ottla.admin.diagnosis import asking
    from ottla.admin.diagnosis.facts import Diagnosis
    from ottla.admin.diagnosis.rules import judged
    from ottla.admin.operations.typed_values import parse_duration

    (watch_ms,) = usage(parse_duration, [watch or UNSETTLED], "--for")
    (older_ms,) = usage(parse_duration, [older_than], "--older-than")
    if watch_ms > MOST_S * 1000:
        raise UsageError(f"--for {watch}: at most {MOST_S / 3600:.0f}h")
    if fix:
        needs_yes(yes, "a fix changes the cluster")
    local = target.where.folder if target.where.address is None else None
    cluster = None if local is None else local.existing()
    settings: Mapping[str, str] = {}
    if zookeeper_config is not None:
        from ottla.local.zookeeper_session import settings_of

        settings = settings_of(zookeeper_config)
    elif local is not None and cluster is not None:
        settings = local.zookeeper(cluster).settings
    asked = asking.Asked(
        watch_ms / 1000,
        older_ms,
        zookeeper,
        settings,
        only_if_unsettled=watch is None,
        made_here=cluster is not None and not cluster.zookeeper.external,
    )

    facts = target.ask(
        lambda client: asking.ask(client, asked),
        timeout_s=watch_ms / 1000 + EXTRA_S,
    )
    if local is not None and cluster is not None:
        facts.disk = local.disk_problem(cluster) or ""
    found = judged(facts)
    if target.output is Format.json:
        print_json(Diagnosis(found, facts.not_asked))
    elif target.output is Format.tsv:
        print_table(
            ("severity", "finding", "evidence", "fix"),
            [(f.severity, f.name, f.evidence, f.fix) for f in found],
        )
    else:
        _print(found)
    for line in facts.not_asked:
        say(f"not asked: {line}")
    if fix:
        options = [] if target.directory is None else ["--dir", str(target.directory)]
        if target.bootstrap_server is not None:
            options = ["--bootstrap-server", target.bootstrap_server]
        _mend(found, fix, options, yes=yes)
    elif any(strict or f.severity != "risk" for f in found):
        raise Exit(EXIT_WRONG)


def _print(found: "Sequence[Finding]") -> None:
    for f in found:
        print_line(f"{f.severity}: {f.name}")
        print_prose(f"  found: {f.evidence}", UNDER_THE_WORDS)
        print_prose(f"  rule:  {f.rule}", UNDER_THE_WORDS)
        print_prose(f"  fix:   {f.fix}", UNDER_THE_WORDS)
        if len(f.commands) > 1:
            print_line(f"         and {plural(len(f.commands) - 1, 'command')} more like it")
    wrong = sum(f.severity != "risk" for f in found)
    say(f"{plural(wrong, 'problem')}, {plural(len(found) - wrong, 'risk')}")
    if any(f.commands for f in found):
        names = " ".join(f"--fix {f.name}" for f in found if f.commands)
        say(f"`ottla doctor {names}` carries out these fixes")


def _mend(
    found: "Sequence[Finding]", names: Sequence[str], where: Sequence[str], *, yes: bool
) -> None:
    by_name = {f.name: f for f in found}
    for name in dict.fromkeys(names):
        finding = by_name.get(name)
        if finding is None:
            say(f"{name}: not found, nothing to fix")
        elif not finding.commands:
            complain(f"ottla doctor: {name} has no fix that a command alone carries out")
            raise Exit(EXIT_WRONG)
        else:
            _carry_out(finding, where, yes=yes)


def _carry_out(finding: "Finding", where: Sequence[str], *, yes: bool) -> None:
    import subprocess  # only where something is fixed

    for text in finding.commands:
        say(text)
    count = plural(len(finding.commands), "command")
    agreed(yes, f"Carry out {count}?", "nothing was fixed")
    for text in finding.commands:
        command = [sys.executable, "-P", "-m", *shlex.split(text), *where]
        if subprocess.run(command, check=False).returncode != 0:  # noqa: S603 - ours
            complain(f"ottla doctor: {text} failed; what is after it was not carried out")
            raise Exit(EXIT_WRONG)
    say(f"{finding.name}: {count} carried out")
