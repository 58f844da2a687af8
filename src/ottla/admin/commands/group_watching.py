"""`ottla groups watch`: how far groups are behind, again and again, and how fast both sides go.

Ctrl-C is the way to stop, not a failure.
"""

import asyncio
import contextlib
from functools import partial
from typing import Annotated, Any

from ottla.admin.options import Bootstrap, Dir, Output, ask, fail_for
from ottla.admin.output import Format, complain, print_line, print_table, print_watched
from ottla.cli import Argument, Option, UsageError
from ottla.model.printable import plural


def watch(
    names: Annotated[list[str] | None, Argument(metavar="[GROUP]...", complete="group")] = None,
    every: Annotated[bool, Option("--all", help="All consumer groups")] = False,
    interval: Annotated[float, Option(metavar="SECONDS", help="Interval", min=0.1)] = 2.0,
    count: Annotated[int | None, Option(help="Stop after N times", min=1)] = None,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    if bool(names) == every:
        raise UsageError("name groups, or write --all: one of both")

    async def question(client: Any) -> None:
        from ottla.admin.commands.groups import chosen_groups
        from ottla.admin.operations import groups
        from ottla.admin.session import of_each

        before: dict[Any, tuple[float, Any]] = {}
        clock = asyncio.get_running_loop().time
        done = 0
        while True:
            found = {}
            problems: list[str] = []
            wanted = await chosen_groups(client, names, problems)
            lag = partial(groups.lag, client, problems=problems)
            lags = await of_each(client, wanted, lag, problems)
            now = clock()
            for name, rows in lags.items():
                found[name] = [_with_rates(r, before.get((name, r.topic, r.partition)), now)
                               for r in rows]  # fmt: skip
                before |= {(name, r.topic, r.partition): (now, r) for r in rows}
            _show(found, output)
            done += 1
            if count is not None and done >= count:
                fail_for(problems)
                return
            for problem in problems:
                complain(problem)
            await asyncio.sleep(interval)

    with contextlib.suppress(KeyboardInterrupt):
        ask(directory, bootstrap_server, question)


def _with_rates(row: Any, before: tuple[float, Any] | None, now: float) -> dict[str, Any]:
    """Return a row of `groups lag` with records read and written per second since the last one."""
    found = {
        "topic": row.topic,
        "partition": row.partition,
        "committed": row.committed,
        "end": row.end,
        "lag": row.lag,
        "client": row.client,
        "read_per_s": None,
        "written_per_s": None,
    }
    if before is not None and now > before[0]:
        seconds, old = now - before[0], before[1]
        if row.committed is not None and old.committed is not None:
            found["read_per_s"] = round((row.committed - old.committed) / seconds, 1)
        if row.end is not None and old.end is not None:
            found["written_per_s"] = round((row.end - old.end) / seconds, 1)
    return found


def _show(found: dict[str, list[dict[str, Any]]], output: Format) -> None:
    listed = [
        {"group": name, "lag": sum(r["lag"] or 0 for r in rows), "partitions": rows}
        for name, rows in found.items()
    ]

    def table() -> None:
        heads = ("topic", "partition", "committed", "end", "lag", "read/s", "written/s", "client")
        for name, rows in found.items():
            total = plural(sum(r["lag"] or 0 for r in rows), "record")
            cells = [
                (r["topic"], r["partition"], r["committed"], r["end"], r["lag"], r["read_per_s"],
                 r["written_per_s"], r["client"])
                for r in rows
            ]  # fmt: skip
            print_table(heads, cells, title=f"{name}: {total} behind")
        if not found:
            print_line("no groups")

    print_watched(output, listed, table)
