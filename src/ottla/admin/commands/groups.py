"""`ottla groups`: consumer groups, as a person asks for them.

Invariants: nothing is moved without --execute, nothing deleted without a yes; exit code 1 if
anything asked for was refused.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

from ottla.admin.connection import Target
from ottla.admin.options import DryRun, Yes, agreed, fail_for, needs_yes, read_input, usage
from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import (
    Format,
    complain,
    print_changes,
    print_json,
    print_line,
    print_result,
    print_table,
    print_watched,
    say,
)
from ottla.model.errors import OttlaError
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.client import group_resets
    from ottla.client.client import Client
    from ottla.client.groups import GroupDescription, GroupLag, PartitionLag, Rated, RatedLag
    from ottla.model.ids import TopicPartition

T = TypeVar("T")

STATES = (
    *("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"),
    *("Assigning", "Reconciling", "NotReady"),
)
"""The last three are those of new types, of newer clusters."""


def list_command(
    target: Target,
    state: Annotated[list[str] | None, Option(help="Only groups in this state; repeatable")] = None,
) -> None:
    from ottla.client import groups

    problems: list[str] = []
    wanted = {text.lower() for text in state or ()}
    for text in sorted(wanted - {name.lower() for name in STATES}):
        raise UsageError(f"--state {text}: there are {', '.join(STATES)}")
    found = [
        g
        for g in target.ask(lambda c: groups.list_groups(c, problems))
        if not wanted or g.state.lower() in wanted
    ]
    rows = [(g.group, g.state, g.type, g.protocol_type, g.coordinator) for g in found]
    print_result(target.output, found, ("group", "state", "type", "protocol", "coordinator"), rows)
    fail_for(problems)


Names = Annotated[list[str] | None, Argument(metavar="[GROUP]...", complete="group")]
Group = Annotated[str, Argument(metavar="GROUP", complete="group")]
Every = Annotated[bool, Option("--all", help="All consumer groups")]


async def chosen_groups(
    client: "Client", names: list[str] | None, problems: list[str]
) -> list[str]:
    """Return the groups that were named; all for none, as far as brokers list them."""
    from ottla.client import groups

    if names:
        return list(dict.fromkeys(names))
    listed = await groups.list_groups(client, problems)
    return [g.group for g in listed if g.protocol_type in groups.WITH_OFFSETS]


def _one_of(names: list[str] | None, every: bool) -> None:
    if bool(names) == every:
        raise UsageError("name groups, or write --all, not both")


def describe(
    target: Target,
    names: Names = None,
    every: Every = False,
) -> None:
    from ottla.admin.session import of_each
    from ottla.client.groups import describe as described

    _one_of(names, every)
    problems: list[str] = []

    async def question(client: "Client") -> "list[GroupDescription]":
        wanted = await chosen_groups(client, names, problems)
        found = await of_each(client, wanted, lambda n: described(client, n), problems)
        return list(found.values())

    found = target.ask(question)
    _print_each(target.output, found, _print_description)
    fail_for(problems)


def _print_each(output: Format, found: list[T], table: Callable[[T], None]) -> None:
    if output is Format.json:
        print_json(found)
    else:
        for group in found:
            table(group)


def _print_description(group: "GroupDescription") -> None:
    type_ = "" if group.type == "classic" else f"{group.type} group, "
    title = (
        f"{group.group}: {type_}{group.state}, {plural(len(group.members), 'member')}, "
        f"assignor {group.protocol or '-'}, coordinator {group.coordinator}"
    )
    rows = [
        (m.member, m.instance, m.client, m.host, " ".join(map(str, m.partitions)) or None)
        for m in group.members
    ]
    print_table(("member", "instance", "client", "host", "partitions"), rows, title=title)


def lag(
    target: Target,
    names: Names = None,
    every: Every = False,
) -> None:
    from ottla.admin.session import of_each
    from ottla.client import groups

    _one_of(names, every)
    problems: list[str] = []

    async def question(client: "Client") -> "dict[str, list[groups.PartitionLag]]":
        wanted = await chosen_groups(client, names, problems)
        return await of_each(client, wanted, lambda n: groups.lag(client, n, problems), problems)

    lags = target.ask(question)
    found = [groups.GroupLag(name, groups.total(rows), rows) for name, rows in lags.items()]
    _print_each(target.output, found, _print_lag)
    fail_for(problems)


def _print_lag(group: "GroupLag") -> None:
    behind = f"{plural(group.lag, 'record')} behind" if group.partitions else "no offsets"
    unknown = sum(r.lag is None for r in group.partitions)
    note = f", {plural(unknown, 'partition')} without an offset or an end" if unknown else ""
    print_table(
        ("topic", "partition", "committed", "end", "lag", "member", "host", "client"),
        [
            (r.topic, r.partition, r.committed, r.end, r.lag, r.member, r.host, r.client)
            for r in group.partitions
        ],
        title=f"{group.group}: {behind}{note}",
    )


def delete(
    target: Target,
    names: Annotated[list[str], Argument(metavar="GROUP...", complete="group")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    from ottla.admin.results import GroupResult
    from ottla.client import groups

    names = list(dict.fromkeys(names))
    needs_yes(yes or dry_run, f"{', '.join(names)} would be gone with all offsets")
    if dry_run:
        results = target.ask(lambda client: groups.deletable(client, names))
    else:
        agreed(yes, f"delete {', '.join(names)} with all offsets?", "nothing was deleted")
        results = target.ask(lambda client: groups.delete(client, names))
    done = "would be deleted" if dry_run else "deleted"
    for name, problem in results.items():
        if problem is None:
            say(f"group {name} {done}")
        else:
            complain(f"group {name} not deleted: {problem}")
    print_changes(
        target.output,
        [
            GroupResult(name, done if problem is None else "refused", problem)
            for name, problem in results.items()
        ],
    )
    if any(results.values()):
        raise Exit(1)


def delete_offsets(
    target: Target,
    group: Group,
    topic: Annotated[
        list[str],
        Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="Only these partitions; repeatable",
            complete="topic",
        ),
    ],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    from ottla.admin.commands.topics import chosen_partitions, parse_topic
    from ottla.admin.results import OffsetResult
    from ottla.client import groups

    chosen = usage(parse_topic, topic, "--topic")
    needs_yes(yes or dry_run, f"the offsets of {group} in {', '.join(topic)} would be gone")

    async def question(client: "Client") -> "dict[TopicPartition, str | None]":
        partitions = await chosen_partitions(client, chosen)
        if dry_run:
            return dict.fromkeys(partitions)
        agreed(yes, f"forget {plural(len(partitions), 'offset')}?", "nothing was deleted")
        return await groups.forget(client, group, partitions)

    results = target.ask(question)
    done = "would be forgotten" if dry_run else "forgotten"
    for partition, problem in results.items():
        if problem is None:
            say(f"{partition} {done}")
        else:
            complain(f"{partition} not forgotten: {problem}")
    print_changes(
        target.output,
        [
            OffsetResult(*tp, done if problem is None else "refused", problem)
            for tp, problem in results.items()
        ],
    )
    if any(results.values()):
        raise Exit(1)


TARGETS = "--to, --to-offset, --shift-by, --to-datetime, --by-duration, --from-file"


@dataclass(kw_only=True)
class Goal:
    """The options that say where a group continues, of which one is typed."""

    to: Annotated[
        str | None,
        Option(
            metavar="earliest|latest|current",
            help="First offset, end of the log, or the current offset",
        ),
    ] = None
    to_offset: Annotated[
        int | None, Option(help="Reset to this offset in each partition", min=0, max=(1 << 63) - 1)
    ] = None
    shift_by: Annotated[int | None, Option(help="Move by N, back if negative")] = None
    to_datetime: Annotated[
        str | None, Option(help="Reset to the first record not older than this")
    ] = None
    by_duration: Annotated[
        str | None,
        Option(
            metavar="P1DT2H|1d2h", help="Reset to the first record not older than this long ago"
        ),
    ] = None
    from_file: Annotated[
        str | None,
        Option(metavar="FILE", help="Read lines of topic,partition,offset; - is standard input"),
    ] = None

    def of(self, group: str) -> "group_resets.Target":
        """Return where to go; exactly one way of saying it must have been used."""
        from datetime import UTC, datetime

        from ottla.admin.operations.input_files import MAX_FILE_BYTES, parse_offsets
        from ottla.admin.operations.typed_values import parse_duration
        from ottla.client.group_resets import Target as Place

        if sum(way is not None for way in astuple(self)) != 1:
            raise UsageError(f"choose one of {TARGETS}")
        if self.to is not None:
            if self.to not in ("earliest", "latest", "current"):
                raise UsageError(f"--to {self.to}: write earliest, latest or current")
            to = self.to
            return Place(earliest=to == "earliest", latest=to == "latest", current=to == "current")
        if self.to_datetime is not None:
            try:
                moment = datetime.fromisoformat(self.to_datetime)
                if moment.tzinfo is None:
                    moment = moment.astimezone()
                return Place(timestamp=max(0, int(moment.timestamp() * 1000)))
            except (ValueError, OverflowError):
                raise UsageError(
                    f"--to-datetime {self.to_datetime}: write it as 2026-11-21T13:00:00+00:00"
                ) from None
        if self.by_duration is not None:
            (back_ms,) = usage(parse_duration, [self.by_duration], "--by-duration")
            now_ms = int(datetime.now(UTC).timestamp() * 1000)
            return Place(timestamp=max(0, now_ms - back_ms))
        if self.from_file is not None:
            data, where = read_input(self.from_file, MAX_FILE_BYTES)
            return Place(offsets=parse_offsets(data, where, group))
        return Place(to_offset=self.to_offset, shift_by=self.shift_by)


def reset_offsets(
    goal: Goal,
    target: Target,
    group: Group,
    topic: Annotated[
        list[str] | None,
        Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            complete="topic",
            help="Only these partitions; repeatable [all with an offset]",
        ),
    ] = None,
    export: Annotated[
        bool, Option("--export", help="Print lines for --from-file or Kafka's tool")
    ] = False,
    execute: Annotated[bool, Option("--execute", help="Make the change, not only show it")] = False,
) -> None:
    from ottla.admin.commands.topics import chosen_partitions, parse_topic
    from ottla.client import group_resets

    place = goal.of(group)
    if goal.from_file is not None and topic:
        raise UsageError("--from-file names the partitions: drop --topic")
    chosen = usage(parse_topic, topic or [], "--topic")

    async def question(client: "Client") -> list[group_resets.Move]:
        partitions = await chosen_partitions(client, chosen) if chosen else None
        moves = await group_resets.plan_reset(client, group, partitions, place)
        if not moves:
            raise OttlaError(f"group {group} has no offsets: name topics with --topic")
        if execute:
            await group_resets.reset(client, group, moves)
        return moves

    moves = target.ask(question)
    if export:
        sys.stdout.writelines(f"{m.topic},{m.partition},{m.new}\n" for m in moves)
    else:
        rows = [(m.topic, m.partition, m.current, m.new) for m in moves]
        result = group_resets.Reset(group, execute, moves)
        print_result(target.output, result, ("topic", "partition", "current", "new"), rows)
    for m in moves:
        if m.asked != m.new:
            end = "begins" if m.asked < m.new else "ends"
            say(f"{m}: {m.asked} is outside of the log, which {end} at {m.new}")
    if not execute:
        say("nothing was changed: add --execute")


def watch_groups(
    target: Target,
    names: Annotated[list[str] | None, Argument(metavar="[GROUP]...", complete="group")] = None,
    every: Annotated[bool, Option("--all", help="All consumer groups")] = False,
    interval: Annotated[float, Option(metavar="SECONDS", help="Interval", min=0.1)] = 2.0,
    count: Annotated[int | None, Option(help="Stop after N times", min=1)] = None,
) -> None:
    if bool(names) == every:
        raise UsageError("name groups, or write --all, not both")

    async def question(client: "Client") -> None:
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
