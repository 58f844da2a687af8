"""`ottla elect`: elections on request, as a person types them.

Who may call: the command line. Invariants: an unclean election is not held without --yes, because
it may lose records; exit code 1 if any partition asked for has no leader as asked.
"""

import sys
from typing import Annotated

from ottla.admin.arguments import Argument, Exit, Option, UsageError
from ottla.admin.options import Bootstrap, Dir, DryRun, Output, ask, usage
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
    from ottla.admin.operations.plans import parse_partition  # noqa: PLC0415 - lazy

    if kind not in tuple(electing.Kind):
        raise UsageError(f"{kind!r}: write preferred or unclean")
    if every == bool(partitions):
        raise UsageError("name partitions as TOPIC-PARTITION, or write --all: one of both")
    chosen = usage(parse_partition, partitions or [], "")
    if kind == electing.Kind.unclean and not (yes or dry_run):
        raise UsageError(
            "an unclean election may lose acknowledged records; add --yes if no replica in sync "
            "can come back"
        )
    hold = electing.would_elect if dry_run else electing.elect
    found = ask(
        directory,
        bootstrap_server,
        lambda client: hold(client, electing.Kind(kind), None if every else chosen),
        timeout_s=electing.TIMEOUT_MS / 1000 + 5,
    )
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
    failed = [o for o in found if o.problem]
    if failed:
        count = plural(len(failed), "partition")
        complain(f"ottla elect: {count} failed; first {failed[0].partition}: {failed[0].problem}")
        sys.stdout.flush()
        raise Exit(1)
    if not found:
        say("no partition needs it")
