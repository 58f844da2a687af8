"""`ottla elect`: elections on request, as a person types them.

Who may call: the command line. Invariants: an unclean election is not held without --yes, because
it may lose records; exit code 1 if any partition asked for has no leader as asked.
"""

import sys
from typing import Annotated, Any

from ottla.admin.arguments import Argument, Exit, Option, UsageError
from ottla.admin.options import Bootstrap, Dir, DryRun, Output, ask, read_input, usage
from ottla.admin.output import (
    Format,
    complain,
    plural,
    print_structured,
    print_table,
    say,
    structured,
)

KIND_HELP = (
    "preferred: back to the first replica, if it is in sync. "
    "unclean: out of sync replicas too, which may lose records."
)


def elect(
    kind: Annotated[str, Argument(metavar="preferred|unclean", help=KIND_HELP)],
    partitions: Annotated[
        list[str] | None, Argument(metavar="[TOPIC-PARTITION]...", help="As flights-0")
    ] = None,
    file: Annotated[
        str | None,
        Option(
            "--file",
            "--path-to-json-file",
            metavar="FILE",
            help='Partitions, as {"partitions":[{"topic":"t","partition":0}]}; - is standard input',
        ),
    ] = None,
    every: Annotated[bool, Option("--all", help="Every partition that needs it")] = False,
    yes: Annotated[bool, Option("--yes", help="Unclean: accept that records are lost")] = (False),
    dry_run: DryRun = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Elect leaders anew. Exit code 1 if a partition has no leader as asked.

    Example: ottla elect preferred --all
    """
    from ottla.admin.operations import elect as electing  # noqa: PLC0415 - lazy
    from ottla.admin.operations.election_file import parse_partitions  # noqa: PLC0415 - lazy
    from ottla.admin.operations.plans import MAX_PLAN_BYTES, parse_partition  # noqa: PLC0415 - lazy

    if kind not in tuple(electing.Kind):
        raise UsageError(f"{kind!r}: write preferred or unclean")
    if [every, bool(partitions), file is not None].count(True) != 1:
        raise UsageError(
            "name partitions as TOPIC-PARTITION, or write --file or --all: one of them"
        )
    chosen = usage(parse_partition, partitions or [], "")
    if kind == electing.Kind.unclean and not (yes or dry_run):
        raise UsageError(
            "an unclean election may lose acknowledged records; add --yes if no replica in sync "
            "can come back"
        )
    if file is not None:
        data, where = read_input(file, MAX_PLAN_BYTES)
        chosen = parse_partitions(data, where)
    hold = electing.would_elect if dry_run else electing.elect

    async def run(client: Any) -> tuple[list[electing.Outcome], electing.Balance | None]:
        found = await hold(client, electing.Kind(kind), None if every else chosen, _tell)
        elected = {o.partition.topic for o in found if o.result == electing.ELECTED}
        return found, await electing.balance(client, elected) if elected else None

    found, balance = ask(directory, bootstrap_server, run, timeout_s=electing.TIMEOUT_MS / 1000 + 5)
    if structured(output):
        print_structured(
            output,
            [
                {"partition": str(o.partition), "result": o.result, "problem": o.problem}
                for o in found
            ],
        )
    elif found:
        print_table(
            ("partition", "result", ""), [(o.partition, o.result, o.problem or "") for o in found]
        )
    if balance is not None:
        elected = sum(o.result == electing.ELECTED for o in found)
        say(
            f"{plural(elected, 'leader')} elected; of these topics each broker leads "
            f"{balance.fewest} to {balance.most} partitions"
        )
    failed = [o for o in found if o.problem]
    if failed:
        count = plural(len(failed), "partition")
        complain(f"ottla elect: {count} failed; first {failed[0].partition}: {failed[0].problem}")
        sys.stdout.flush()
        raise Exit(1)
    if not found:
        say("no partition needs it")


def _tell(done: int, of: int) -> None:
    say(f"{done:,} of {plural(of, 'partition')} done")
