"""`ottla groups`: consumer groups, as a person asks for them.

Invariants: nothing is moved without --execute, nothing deleted without a yes; exit code 1 if
anything asked for was refused.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

from ottla.admin.options import (
    Bootstrap,
    Dir,
    DryRun,
    Output,
    Yes,
    agreed,
    ask,
    fail_for,
    needs_yes,
    read_input,
    usage,
)
from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import (
    Format,
    complain,
    print_changes,
    print_json,
    print_result,
    print_table,
    say,
)
from ottla.model.errors import OttlaError
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.client.group_resets import Target
    from ottla.client.groups import GroupDescription, GroupLag
    from ottla.model.ids import TopicPartition

T = TypeVar("T")

STATES = (
    "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty",
    "Assigning", "Reconciling", "NotReady",
)  # fmt: skip
"""The last three are those of new types, of newer clusters."""


def list_command(
    state: Annotated[list[str] | None, Option(help="Only groups in this state; repeatable")] = None,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    from ottla.client import groups

    problems: list[str] = []
    wanted = {text.lower() for text in state or ()}
    for text in sorted(wanted - {name.lower() for name in STATES}):
        raise UsageError(f"--state {text}: there are {', '.join(STATES)}")
    found = [
        g
        for g in ask(directory, bootstrap_server, lambda c: groups.list_groups(c, problems))
        if not wanted or g.state.lower() in wanted
    ]
    rows = [(g.group, g.state, g.type, g.protocol_type, g.coordinator) for g in found]
    print_result(output, found, ("group", "state", "type", "protocol", "coordinator"), rows)
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
    names: Names = None,
    every: Every = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    from ottla.admin.session import of_each
    from ottla.client.groups import describe as described

    _one_of(names, every)
    problems: list[str] = []

    async def question(client: "Client") -> "list[GroupDescription]":
        wanted = await chosen_groups(client, names, problems)
        found = await of_each(client, wanted, lambda n: described(client, n), problems)
        return list(found.values())

    found = ask(directory, bootstrap_server, question)
    _print_each(output, found, _print_description)
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
    names: Names = None,
    every: Every = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    from ottla.admin.session import of_each
    from ottla.client import groups

    _one_of(names, every)
    problems: list[str] = []

    async def question(client: "Client") -> "dict[str, list[groups.PartitionLag]]":
        wanted = await chosen_groups(client, names, problems)
        return await of_each(client, wanted, lambda n: groups.lag(client, n, problems), problems)

    lags = ask(directory, bootstrap_server, question)
    found = [groups.GroupLag(name, groups.total(rows), rows) for name, rows in lags.items()]
    _print_each(output, found, _print_lag)
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
    names: Annotated[list[str], Argument(metavar="GROUP...", complete="group")],
    yes: Yes = False,
    dry_run: DryRun = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    from ottla.admin.results import GroupResult
    from ottla.client import groups

    names = list(dict.fromkeys(names))
    needs_yes(yes or dry_run, f"{', '.join(names)} would be gone with all offsets")
    if dry_run:
        results = ask(directory, bootstrap_server, lambda client: groups.deletable(client, names))
    else:
        agreed(yes, f"delete {', '.join(names)} with all offsets?", "nothing was deleted")
        results = ask(directory, bootstrap_server, lambda client: groups.delete(client, names))
    done = "would be deleted" if dry_run else "deleted"
    for name, problem in results.items():
        if problem is None:
            say(f"group {name} {done}")
        else:
            complain(f"group {name} not deleted: {problem}")
    print_changes(
        output,
        [
            GroupResult(name, done if problem is None else "refused", problem)
            for name, problem in results.items()
        ],
    )
    if any(results.values()):
        raise Exit(1)


def delete_offsets(
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
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    from ottla.admin.commands.topic_partitions import parse_topic
    from ottla.admin.commands.topic_partitions import partitions as chosen_partitions
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

    results = ask(directory, bootstrap_server, question)
    done = "would be forgotten" if dry_run else "forgotten"
    for partition, problem in results.items():
        if problem is None:
            say(f"{partition} {done}")
        else:
            complain(f"{partition} not forgotten: {problem}")
    print_changes(
        output,
        [
            OffsetResult(*tp, done if problem is None else "refused", problem)
            for tp, problem in results.items()
        ],
    )
    if any(results.values()):
        raise Exit(1)


TARGETS = "--to, --to-offset, --shift-by, --to-datetime, --by-duration, --from-file"


def _target(
    group: str,
    to: str | None,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: str | None,
) -> "Target":
    """Return where to go; exactly one way of saying it must have been used."""
    from datetime import UTC, datetime

    from ottla.admin.operations.input_files import MAX_FILE_BYTES, parse_offsets
    from ottla.admin.operations.typed_values import parse_duration
    from ottla.client.group_resets import Target

    ways = (to, to_offset, shift_by, to_datetime, by_duration, from_file)
    if sum(way is not None for way in ways) != 1:
        raise UsageError(f"choose one of {TARGETS}")
    if to is not None:
        if to not in ("earliest", "latest", "current"):
            raise UsageError(f"--to {to}: write earliest, latest or current")
        return Target(earliest=to == "earliest", latest=to == "latest", current=to == "current")
    if to_datetime is not None:
        try:
            moment = datetime.fromisoformat(to_datetime)
            if moment.tzinfo is None:
                moment = moment.astimezone()
            return Target(timestamp=max(0, int(moment.timestamp() * 1000)))
        except (ValueError, OverflowError):
            raise UsageError(
                f"--to-datetime {to_datetime}: write it as 2026-11-21T13:00:00+00:00"
            ) from None
    if by_duration is not None:
        (back_ms,) = usage(parse_duration, [by_duration], "--by-duration")
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        return Target(timestamp=max(0, now_ms - back_ms))
    if from_file is not None:
        data, where = read_input(from_file, MAX_FILE_BYTES)
        return Target(offsets=parse_offsets(data, where, group))
    return Target(to_offset=to_offset, shift_by=shift_by)


def reset_offsets(
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
    to: Annotated[
        str | None,
        Option(
            metavar="earliest|latest|current",
            help="First offset, end of the log, or the current offset",
        ),
    ] = None,
    to_offset: Annotated[
        int | None, Option(help="Reset to this offset in each partition", min=0, max=(1 << 63) - 1)
    ] = None,
    shift_by: Annotated[int | None, Option(help="Move by N, back if negative")] = None,
    to_datetime: Annotated[
        str | None, Option(help="Reset to the first record not older than this")
    ] = None,
    by_duration: Annotated[
        str | None,
        Option(
            metavar="P1DT2H|1d2h", help="Reset to the first record not older than this long ago"
        ),
    ] = None,
    from_file: Annotated[
        str | None,
        Option(metavar="FILE", help="Read lines of topic,partition,offset; - is standard input"),
    ] = None,
    export: Annotated[
        bool, Option("--export", help="Print lines for --from-file or Kafka's tool")
    ] = False,
    execute: Annotated[bool, Option("--execute", help="Make the change, not only show it")] = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    from ottla.admin.commands.topic_partitions import parse_topic
    from ottla.admin.commands.topic_partitions import partitions as chosen_partitions
    from ottla.client import group_resets

    target = _target(group, to, to_offset, shift_by, to_datetime, by_duration, from_file)
    if from_file is not None and topic:
        raise UsageError("--from-file names the partitions: drop --topic")
    chosen = usage(parse_topic, topic or [], "--topic")

    async def question(client: "Client") -> list[group_resets.Move]:
        partitions = await chosen_partitions(client, chosen) if chosen else None
        moves = await group_resets.plan_reset(client, group, partitions, target)
        if not moves:
            raise OttlaError(f"group {group} has no offsets: name topics with --topic")
        if execute:
            await group_resets.reset(client, group, moves)
        return moves

    moves = ask(directory, bootstrap_server, question)
    if export:
        sys.stdout.writelines(f"{m.topic},{m.partition},{m.new}\n" for m in moves)
    else:
        rows = [(m.topic, m.partition, m.current, m.new) for m in moves]
        result = group_resets.Reset(group, execute, moves)
        print_result(output, result, ("topic", "partition", "current", "new"), rows)
    for m in moves:
        if m.asked != m.new:
            end = "begins" if m.asked < m.new else "ends"
            say(f"{m}: {m.asked} is outside of the log, which {end} at {m.new}")
    if not execute:
        say("nothing was changed: add --execute")
