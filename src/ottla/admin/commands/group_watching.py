"""`ottla groups watch`: how far groups are behind, again and again, and how fast both sides go.

Ctrl-C is the way to stop, not a failure.
"""

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Target
from ottla.admin.options import fail_for
from ottla.cli import Argument, Option, UsageError
from ottla.cli.output import Format, complain, print_line, print_table, print_watched
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.client.groups import PartitionLag, Rated, RatedLag


def watch(
    target: Target,
    names: Annotated[list[str] | None, Argument(metavar="[GROUP]...", complete="group")] = None,
    every: Annotated[bool, Option("--all", help="All consumer groups")] = False,
    interval: Annotated[float, Option(metavar="SECONDS", help="Interval", min=0.1)] = 2.0,
    count: Annotated[int | None, Option(help="Stop after N times", min=1)] = None,
) -> None:
    if bool(names) == every:
        raise UsageError("name groups, or write --all, not both")

    async def question(client: "Client") -> None:
        from ottla.admin.commands.groups import chosen_groups
        from ottla.admin.session import of_each
        from ottla.client import groups

        before: dict[tuple[str, str, int], tuple[float, PartitionLag]] = {}
        clock = asyncio.get_running_loop().time
        done = 0
        while True:
            found = []
            problems: list[str] = []
            wanted = await chosen_groups(client, names, problems)
            lag = partial(groups.lag, client, problems=problems)
            lags = await of_each(client, wanted, lag, problems)
            now = clock()
            for name, rows in lags.items():
                keys = [(name, row.topic, row.partition) for row in rows]
                rated = [
                    _rated(row, before.get(key), now) for key, row in zip(keys, rows, strict=True)
                ]
                found.append(groups.RatedLag(name, groups.total(rows), rated))
                before |= {key: (now, row) for key, row in zip(keys, rows, strict=True)}
            _show(found, target.output)
            done += 1
            if count is not None and done >= count:
                fail_for(problems)
                return
            for problem in problems:
                complain(problem)
            await asyncio.sleep(interval)

    with contextlib.suppress(KeyboardInterrupt):
        target.ask(question)


def _rated(row: "PartitionLag", before: "tuple[float, PartitionLag] | None", now: float) -> "Rated":
    """Return a row of `groups lag` with records read and written per second since the last one."""
    from msgspec.structs import asdict

    from ottla.client.groups import Rated

    read = written = None
    if before is not None and now > before[0]:
        seconds, old = now - before[0], before[1]
        if row.committed is not None and old.committed is not None:
            read = round((row.committed - old.committed) / seconds, 1)
        if row.end is not None and old.end is not None:
            written = round((row.end - old.end) / seconds, 1)
    return Rated(**asdict(row), read_per_s=read, written_per_s=written)


def _show(found: "list[RatedLag]", output: Format) -> None:
    def table() -> None:
        heads = ("topic", "partition", "committed", "end", "lag", "read/s", "written/s", "client")
        for group in found:
            cells = [
                (
                    r.topic,
                    r.partition,
                    r.committed,
                    r.end,
                    r.lag,
                    r.read_per_s,
                    r.written_per_s,
                    r.client,
                )
                for r in group.partitions
            ]
            print_table(heads, cells, title=f"{group.group}: {plural(group.lag, 'record')} behind")
        if not found:
            print_line("no groups")

    print_watched(output, found, table)
