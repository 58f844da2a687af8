"""`ottla verify-replicas`: whether all replicas of topics have the same batches.

Over the wire, or with --files by the brokers' own files. Invariants: nothing is changed; exit code
1 if a replica has something otherwise, or could not be compared. Kafka: `ReplicaVerificationTool`,
whose options are accepted.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Target
from ottla.admin.options import usage
from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import (
    Format,
    complain,
    megabytes,
    print_json,
    print_line,
    print_table,
    say,
)
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.admin.replica_files.comparing import Report, Truths
    from ottla.admin.replica_files.folders import Wanted
    from ottla.client.client import Client
    from ottla.client.replica_comparison import Difference
    from ottla.client.replica_verification import Replica, Verified

EXIT_DIFFERS = 1
LONGEST_S = 30 * 86_400.0
MAX_FETCH = 256 * 1024 * 1024


def verify_replicas(
    target: Target,
    topics: Annotated[
        list[str] | None, Argument(metavar="[TOPIC]...", help="Topics [all]", complete="topic")
    ] = None,
    pattern: Annotated[
        str | None,
        Option("--topics-include", metavar="REGEX", help="Topics whose whole names match"),
    ] = None,
    since: Annotated[
        str,
        Option("--time", metavar="TIME", help="Start at: earliest (-2), latest (-1), or a time"),
    ] = "earliest",
    follow: Annotated[
        bool, Option("--follow", help="Continue until Ctrl-C, with regular reports")
    ] = False,
    report_interval_ms: Annotated[
        int, Option("--report-interval-ms", help="With --follow: time between two reports")
    ] = 30_000,
    fetch_size: Annotated[
        int,
        Option(
            "--fetch-size", help="Most bytes of one fetch; a larger batch is still fetched whole"
        ),
    ] = 1_048_576,
    max_wait_ms: Annotated[
        int, Option("--max-wait-ms", help="Longest time a broker waits for records")
    ] = 0,
    files: Annotated[
        str | None,
        Option(
            "--files",
            metavar="[ID=]FOLDER[,…]",
            help="Compare the files in these log dirs; the id is meta.properties' by default",
            hidden=("--brokers",),
        ),
    ] = None,
) -> None:
    if files is not None:
        if pattern is not None or follow or since != "earliest":
            raise UsageError("--files reads whole files: name topics, and nothing else with it")
        _compare_files(files, topics or [], target)
        return
    from ottla.client import replica_verification as operation

    if topics and pattern is not None:
        raise UsageError("name topics, or write --topics-include, not both")
    if not 1 <= fetch_size <= MAX_FETCH:
        raise UsageError(f"--fetch-size {fetch_size}: write 1 to {MAX_FETCH}")
    if report_interval_ms < 100 or not 0 <= max_wait_ms <= 60_000:
        raise UsageError("--report-interval-ms is 100 or more, --max-wait-ms 0 to 60000")
    (begin,) = usage(_parse_since, [since], "--time")
    limits = operation.Limits(begin, fetch_size, max_wait_ms)

    async def run(client: "Client") -> "list[Verified]":
        wanted = await operation.partitions(client, await _chosen(client, topics, pattern))
        await operation.verify(client, wanted, limits)
        said: Counter[tuple[object, int]] = Counter()
        while follow:
            for verified in wanted:
                _say_differences(verified, said)
            print_line(_report(wanted))
            sys.stdout.flush()
            await asyncio.sleep(report_interval_ms / 1000)
            await operation.refresh(client, wanted)
            await operation.verify(client, wanted, limits)
        return wanted

    found = target.ask(run, timeout_s=LONGEST_S if follow else None)
    if target.output is Format.json:
        print_json([operation.ComparedPartition.of(verified) for verified in found])
    else:
        _print(found)
    differing = sum(verified.differs for verified in found)
    incomplete = sum(not verified.compared for verified in found)
    batches = plural(sum(verified.batches for verified in found), "batch", "batches")
    say(
        f"{plural(len(found), 'partition')}, {batches} "
        f"compared: {differing:,} differ, {incomplete:,} could not be compared whole"
    )
    if differing or incomplete:
        raise Exit(EXIT_DIFFERS)


def _compare_files(places: str, topics: list[str], target: Target) -> None:
    """Compare files; a cluster that is named is asked for high watermarks and ISRs."""
    from ottla.admin.replica_files import cluster as running
    from ottla.admin.replica_files.comparing import ComparedFiles, compare
    from ottla.admin.replica_files.folders import Wanted, parse_places

    def truths(wanted: "Wanted") -> "Truths":
        return target.ask(lambda client: running.truths(client, wanted.has))

    runs = target.directory is not None or target.bootstrap_server is not None
    found = compare(parse_places(places), Wanted(topics), truths if runs else None)
    if target.output is Format.json:
        print_json(ComparedFiles.of(found))
    else:
        _print_files(found)
    wrong = plural(len(found.wrong), "finding") + " wrong" if found.wrong else "nothing is wrong"
    say(
        f"{plural(found.partitions, 'partition')}, {plural(found.replicas, 'replica')}, "
        f"{plural(found.files, 'file')}, {megabytes(found.bytes)}, "
        f"{plural(found.records, 'record')}: {wrong}"
    )
    if not found.held:
        raise Exit(EXIT_DIFFERS)


def _print_files(report: "Report") -> None:
    rows = []
    for f in report.findings:
        numbers = ("-" if n < 0 else n for n in (f.offset, f.broker, f.position))
        rows.append((f.tp, "wrong" if f.wrong else "note", f.kind, *numbers, f.file, f.detail))
    names = ("partition", "state", "what", "offset", "broker", "position", "file", "detail")
    print_table(names, rows)
    for problem in report.problems:
        complain(f"bad checkpoint: {problem}")


def _parse_since(text: str) -> int:
    from ottla.admin.operations.typed_values import parse_moment
    from ottla.model.protocol import EARLIEST, LATEST

    named = {"earliest": EARLIEST, "-2": EARLIEST, "latest": LATEST, "-1": LATEST}
    return named[text] if text in named else parse_moment(text)


async def _chosen(client: "Client", topics: list[str] | None, pattern: str | None) -> list[str]:
    import re  # only with a pattern

    if topics:
        return topics
    try:
        matches = re.compile(pattern or ".*").fullmatch
    except re.error as error:
        raise UsageError(f"--topics-include {pattern}: {error}") from None
    names = [topic.name or "" for topic in (await client.metadata(None)).topics]
    found = [name for name in names if matches(name)]
    if not found:
        raise UsageError(f"no topic of {len(names)} matches {pattern or 'anything'}")
    return found


def _report(wanted: "Sequence[Verified]") -> str:
    """Return the line that Kafka's tool prints."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    if not wanted:
        return f"{now}: no partitions"
    most = max(wanted, key=lambda verified: verified.lag)
    return (
        f"{now}: max lag is {most.lag} for partition {most.partition} at offset {most.offset} "
        f"among {plural(len(wanted), 'partition')}"
    )


def _say_differences(verified: "Verified", said: "Counter[tuple[object, int]]") -> None:
    for replica in verified.replicas:
        which = replica.partition, replica.broker
        for difference in replica.differences[said[which] :]:
            complain(_text(replica, difference))
        said[which] = len(replica.differences)


def _text(replica: "Replica", difference: "Difference") -> str:
    return (
        f"{replica.partition}: offset {difference.offset} on broker {replica.broker}: "
        f"{difference.text}"
    )


def _print(found: "Sequence[Verified]") -> None:
    rows = []
    for verified in found:
        for replica in verified.replicas:
            result = "leader" if replica.leads else "same"
            if verified.problem or replica.problem:
                result = f"not compared: {verified.problem or replica.problem}"
            elif replica.found:
                result = f"{plural(replica.found, 'difference')}"
            rows.append(
                (
                    verified.partition,
                    replica.broker,
                    verified.first,
                    verified.offset,
                    replica.lag,
                    result,
                )
            )
    print_table(("partition", "broker", "from", "to", "lag", "result"), rows)
    for verified in found:
        for replica in verified.replicas:
            for difference in replica.differences:
                complain(_text(replica, difference))
