"""`ottla doctor`: what is wrong or unsafe in a cluster, why, and what mends it.

Invariants: nothing changes without --fix; a fix is the very command that is shown; exit code 1 if
something is wrong (errors, warnings); with --strict also for risks.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ottla.admin.arguments import Exit, Option, UsageError
from ottla.admin.options import (
    Bootstrap,
    Dir,
    Output,
    Yes,
    ZooKeeperConfig,
    agreed,
    ask,
    needs_yes,
    usage,
)
from ottla.admin.output import (
    Format,
    complain,
    print_line,
    print_prose,
    print_structured,
    print_table,
    say,
    structured,
)
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
    fix: Annotated[
        list[str] | None,
        Option(metavar="FINDING", help="Carry out the fix of this finding; may be repeated"),
    ] = None,
    watch: Annotated[
        str | None,
        Option(
            "--for",
            metavar="TIME",
            help="How long ISRs and groups are watched; groups need 15s [3s if one of them is "
            "unsettled]",
        ),
    ] = None,
    older_than: Annotated[
        str, Option(metavar="TIME", help="Transactions that are open for so long may hang")
    ] = "15m",
    strict: Annotated[bool, Option("--strict", help="Exit code 1 also for risks")] = False,
    zookeeper: Annotated[
        str | None,
        Option(metavar="HOST:PORT[/ROOT]", help="[default: zookeeper.connect of the brokers]"),
    ] = None,
    zookeeper_config: ZooKeeperConfig = None,
    yes: Yes = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Find what is stuck or unsafe in a cluster, and say what mends it. Exit code 1 if it is wrong.

    Example: ottla doctor --for 20s
    """
    from ottla.admin.diagnosis import asking
    from ottla.admin.operations.durations import parse_duration

    (watch_ms,) = usage(parse_duration, [watch or UNSETTLED], "--for")
    (older_ms,) = usage(parse_duration, [older_than], "--older-than")
    if watch_ms > MOST_S * 1000:
        raise UsageError(f"--for {watch}: at most {MOST_S / 3600:.0f}h")
    if fix:
        needs_yes(yes, "a fix changes the cluster")
    asked = asking.Asked(
        watch_ms / 1000,
        older_ms,
        zookeeper,
        _zookeeper_settings(zookeeper_config, directory, bootstrap_server),
        only_if_unsettled=watch is None,
        made_here=_made_here(directory, bootstrap_server),
    )

    async def question(client: Any) -> Any:
        return await asking.ask(client, asked)

    facts = ask(directory, bootstrap_server, question, timeout_s=watch_ms / 1000 + EXTRA_S)
    facts.disk = _disk(directory, bootstrap_server)
    found = judged(facts)
    if structured(output):
        print_structured(output, _as_json(found, facts.not_asked))
    elif output is Format.tsv:
        print_table(
            ("severity", "finding", "evidence", "fix"),
            [(f.severity, f.name, f.evidence, f.fix) for f in found],
        )
    else:
        _print(found)
    for line in facts.not_asked:
        say(f"not asked: {line}")
    if fix:
        where = _where(directory, bootstrap_server)
        _mend(found, fix, where, yes=yes)
    elif any(strict or f.severity != "risk" for f in found):
        raise Exit(EXIT_WRONG)


def _zookeeper_settings(
    config: Path | None, directory: Path | None, bootstrap_server: str | None
) -> "Mapping[str, str]":
    """Return how to connect to ZooKeeper."""
    if config is not None:
        from ottla.local.zookeeper_session import settings_of

        return settings_of(config)
    from ottla.admin.connection import where

    found = where(bootstrap_server, directory)
    if found.address is not None:
        return {}
    settings: Mapping[str, str] = found.folder.zookeeper(found.folder.existing()).settings
    return settings


def _made_here(directory: Path | None, bootstrap_server: str | None) -> bool:
    """Return whether `ottla up` made the cluster, ZooKeeper included."""
    from ottla.admin.connection import where

    found = where(bootstrap_server, directory)
    return found.address is None and not found.folder.existing().zookeeper.external


def _disk(directory: Path | None, bootstrap_server: str | None) -> str:
    """Return why nothing can be written in the folder of the cluster, empty if it can."""
    from ottla.admin.connection import where

    found = where(bootstrap_server, directory)
    if found.address is not None:
        return ""
    return found.folder.disk_problem(found.folder.existing()) or ""


def judged(facts: Any) -> "list[Finding]":
    """Return the findings of all rules, the worst first."""
    from ottla.admin.diagnosis import brokers, clients, replicas
    from ottla.admin.diagnosis.facts import Severity

    rooms = (brokers, replicas, clients)
    order = list(Severity)
    found = [finding for room in rooms for finding in room.findings(facts)]
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _as_json(found: "Sequence[Finding]", not_asked: Sequence[str]) -> dict[str, object]:
    return {
        "findings": [
            {
                "finding": f.name, "severity": str(f.severity), "subjects": list(f.subjects),
                "evidence": f.evidence, "rule": f.rule, "fix": f.fix,
                "commands": [shlex.join(["ottla", *words]) for words in f.commands],
            }
            for f in found
        ],
        "not_asked": list(not_asked),
    }  # fmt: skip


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

    commands = [shlex.join(["ottla", *words]) for words in finding.commands]
    for text in commands:
        say(text)
    agreed(yes, f"Carry out {plural(len(commands), 'command')}?", "nothing was fixed")
    for text, words in zip(commands, finding.commands, strict=True):
        command = [sys.executable, "-P", "-m", "ottla", *words, *where]
        if subprocess.run(command, check=False).returncode != 0:  # noqa: S603 - ours
            complain(f"ottla doctor: {text} failed; what is after it was not carried out")
            raise Exit(EXIT_WRONG)
    say(f"{finding.name}: {plural(len(commands), 'command')} carried out")


def _where(directory: Path | None, bootstrap_server: str | None) -> list[str]:
    if bootstrap_server is not None:
        return ["--bootstrap-server", bootstrap_server]
    return [] if directory is None else ["--dir", str(directory)]
