"""`ottla cluster`: how a cluster is set up, as one file; differences; a cluster made like a file.

Invariants: --dry-run changes nothing; nothing is changed without a yes; exit code 1 where `diff`
finds something.
"""

from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Connection, Target
from ottla.admin.options import DryRun, Yes, agreed, needs_yes, read_input
from ottla.cli import Argument, Exit, Option
from ottla.cli.output import Format, print_result, say
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.client.cluster_state import ClusterState, Step

EXIT_DIFFERENT = 1
File = Annotated[
    str, Argument(metavar="FILE", help="A file of `cluster snapshot`; - is standard input")
]
SnapshotOutput = Annotated[Format, Option("--output", help="Format; diff and apply read json")]


def snapshot(target: Connection, output: SnapshotOutput = Format.json) -> None:
    from ottla.client import cluster_state

    found = target.ask(cluster_state.taken)
    rows = [
        (
            name,
            len(t.replicas),
            len(t.replicas[0]),
            ", ".join(f"{k}={v}" for k, v in t.settings.items()),
        )
        for name, t in found.topics.items()
    ]
    print_result(output, found, ("topic", "partitions", "replicas", "settings"), rows)
    if output is Format.json:
        return
    say(
        f"{plural(len(found.groups), 'group')}, {plural(len(found.quotas), 'quota')}, settings of "
        f"{plural(len(found.brokers), 'broker')}"
    )


def _read(name: str) -> "ClusterState":
    from ottla.client import cluster_state

    return cluster_state.parse(*read_input(name, cluster_state.MAX_BYTES))


def diff(
    target: Target,
    before: File,
    after: Annotated[
        str | None, Argument(metavar="FILE", help="A second file [default: the cluster as it is]")
    ] = None,
    without_groups: Annotated[
        bool, Option("--without-groups", help="Leave out group offsets")
    ] = False,
) -> None:
    from ottla.client import cluster_state

    old = _read(before)
    new = target.ask(cluster_state.taken) if after is None else _read(after)
    found = list(cluster_state.differences(old, new, with_groups=not without_groups))
    rows = [(d.what, d.name, _shown(d.before), _shown(d.after)) for d in found]
    print_result(target.output, found, ("what", "name", "before", "after"), rows)
    say(f"{plural(len(found), 'difference')}")
    if found:
        raise Exit(EXIT_DIFFERENT)


def _shown(value: object) -> str | None:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return None if value is None else str(value)


def apply(
    target: Target,
    file: File,
    delete: Annotated[
        bool, Option("--delete", help="Also delete topics that are not in the file")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    from ottla.client import cluster_state

    wanted = _read(file)
    needs_yes(yes or dry_run, "the cluster would be changed")

    async def plan(client: "Client") -> "tuple[ClusterState, list[Step]]":
        now = await cluster_state.taken(client)
        found = await cluster_state.apply(client, wanted, now, delete=delete, dry_run=True)
        return now, found

    now, steps = target.ask(plan)
    if steps and not dry_run:
        if not yes:
            for step in steps:
                say(f"{step.kind} {step.name}: {step.done}")
        agreed(yes, f"Make {plural(len(steps), 'change')}?", "nothing was changed")
        target.ask(lambda c: cluster_state.apply(c, wanted, now, delete=delete, dry_run=False))
    if steps or target.output is Format.json:
        rows = [(step.kind, step.name, step.done) for step in steps]
        print_result(target.output, steps, ("step", "name", "details"), rows)
    count = plural(len(steps), "change")
    say(f"{count} would be made; nothing was changed" if dry_run else f"{count} made")
