"""`ottla groups`: consumer groups, as a person asks for them.

Who may call: the command line. Invariants: nothing is moved without --execute, nothing deleted
without a yes; exit code 1 if anything asked for was refused.
"""

import sys
from typing import Annotated, Any

from ottla.admin.arguments import Argument, Exit, Option, UsageError
from ottla.admin.options import Bootstrap, Dir, Output, agreed, ask, needs_yes, read_input, usage
from ottla.admin.output import Format, plural, print_json, print_table, say
from ottla.model.errors import OttlaError

KINDS = ("consumer", "")
"""Protocol types of groups with offsets; empty is a group that only commits."""

STATES = (
    "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty",
    "Assigning", "Reconciling",
)  # fmt: skip
"""The last two are KIP-848's, of newer clusters."""


def list_command(
    state: Annotated[
        list[str] | None, Option(help="Only groups in this state; may be repeated")
    ] = None,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """List the groups of the cluster."""
    from ottla.admin.operations import groups  # noqa: PLC0415 - lazy

    wanted = {text.lower() for text in state or ()}
    for text in sorted(wanted - {name.lower() for name in STATES}):
        raise UsageError(f"--state {text}: there are {', '.join(STATES)}")
    found = [
        g
        for g in ask(directory, bootstrap_server, groups.list_groups)
        if not wanted or g.state.lower() in wanted
    ]
    if output is Format.json:
        print_json(found)
        return
    rows = [(g.group, g.state, g.protocol_type, g.coordinator) for g in found]
    print_table(("group", "state", "kind", "coordinator"), rows)


Names = Annotated[list[str] | None, Argument(metavar="[GROUP]...")]
Every = Annotated[bool, Option("--all", help="Every group of consumers")]


async def _groups(client: Any, names: list[str] | None) -> list[str]:
    """Return the groups that were named; all for none."""
    from ottla.admin.operations import groups  # noqa: PLC0415 - lazy

    if names:
        return list(dict.fromkeys(names))
    return [g.group for g in await groups.list_groups(client) if g.protocol_type in KINDS]


def _one_of(names: list[str] | None, every: bool) -> None:
    if bool(names) == every:
        raise UsageError("name groups, or write --all: one of both")


def describe(
    names: Names = None,
    every: Every = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Show groups with their members and what each of them reads."""
    from ottla.admin.operations import groups  # noqa: PLC0415 - lazy

    _one_of(names, every)

    async def question(client: Any) -> list[Any]:
        wanted = await _groups(client, names)
        return [await groups.describe(client, name) for name in wanted]

    found = ask(directory, bootstrap_server, question)
    if output is Format.json:
        print_json(found)
        return
    for group in found:
        title = (
            f"{group.group}: {group.state}, {plural(len(group.members), 'member')}, "
            f"assignor {group.protocol or '-'}, coordinator {group.coordinator}"
        )
        rows = [
            (m.member, m.instance, m.client, m.host, " ".join(m.partitions) or None)
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
    """Show how far groups are behind, per partition and in total."""
    from ottla.admin.operations import groups  # noqa: PLC0415 - lazy

    _one_of(names, every)

    async def question(client: Any) -> dict[str, Any]:
        return {n: await groups.lag(client, n) for n in await _groups(client, names)}

    found = ask(directory, bootstrap_server, question)
    if output is Format.json:
        print_json(
            [
                {
                    "group": name,
                    "lag": sum(r.lag or 0 for r in rows),
                    "partitions": rows,
                }
                for name, rows in found.items()
            ]
        )
        return
    for name, rows in found.items():
        total = sum(r.lag or 0 for r in rows)
        unknown = sum(r.lag is None for r in rows)
        title = f"{name}: {plural(total, 'record')} behind"
        if unknown:
            title += f", {plural(unknown, 'partition')} without an offset or an end"
        print_table(
            ("topic", "partition", "committed", "end", "lag", "member", "host", "client"),
            [
                (r.topic, r.partition, r.committed, r.end, r.lag, r.member, r.host, r.client)
                for r in rows
            ],
            title=title,
        )


def delete(
    names: Annotated[list[str], Argument(metavar="GROUP...")],
    yes: Annotated[bool, Option("--yes", help="Do not ask")] = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
) -> None:
    """Delete groups without members, and their offsets."""
    from ottla.admin.operations import groups  # noqa: PLC0415 - lazy

    names = list(dict.fromkeys(names))
    needs_yes(yes, f"{', '.join(names)} would be gone with all offsets")
    agreed(yes, f"delete {', '.join(names)} with all offsets?", "nothing was deleted")
    results = ask(directory, bootstrap_server, lambda client: groups.delete(client, names))
    for name, problem in results.items():
        say(f"group {name} {'deleted' if problem is None else f'not deleted: {problem}'}")
    if any(results.values()):
        raise Exit(1)


def delete_offsets(
    group: str,
    topic: Annotated[list[str], Option(metavar="TOPIC[:0,1]", help="May be repeated")],
    yes: Annotated[bool, Option("--yes", help="Do not ask")] = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
) -> None:
    """Forget a group's offsets of topics that no member of it reads."""
    from ottla.admin.operations import groups  # noqa: PLC0415 - lazy

    chosen = usage(_parse_topic, topic, "--topic")
    needs_yes(yes, f"the offsets of {group} in {', '.join(topic)} would be gone")

    async def question(client: Any) -> Any:
        partitions = await _partitions(client, chosen)
        agreed(yes, f"forget {plural(len(partitions), 'offset')}?", "nothing was deleted")
        return await groups.forget(client, group, partitions)

    results = ask(directory, bootstrap_server, question)
    for partition, problem in results.items():
        say(f"{partition} {'forgotten' if problem is None else f'not forgotten: {problem}'}")
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
) -> Any:
    """Return where to go; exactly one way of saying it must have been used."""
    from datetime import UTC, datetime  # noqa: PLC0415 - lazy

    from ottla.admin.operations import group_resets  # noqa: PLC0415 - lazy
    from ottla.admin.operations.durations import parse_duration  # noqa: PLC0415 - lazy
    from ottla.admin.operations.group_resets import Target  # noqa: PLC0415 - lazy

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
        data, where = read_input(from_file, group_resets.MAX_FILE_BYTES)
        return Target(offsets=group_resets.parse_file(data, where, group))
    return Target(to_offset=to_offset, shift_by=shift_by)


def _parse_topic(text: str) -> tuple[str, list[int]]:
    """Return the topic and partitions of `TOPIC` or `TOPIC:0,1`; no partitions are all of them."""
    name, colon, indexes = text.partition(":")
    numbers = indexes.split(",") if colon else []
    if not name or not all(n.isascii() and n.isdigit() for n in numbers):
        raise ValueError(f"{text}: write TOPIC or TOPIC:0,1")
    return name, [int(n) for n in dict.fromkeys(numbers)]


async def _partitions(client: Any, chosen: list[tuple[str, list[int]]]) -> list[Any]:
    """Return the partitions that were chosen, each once; OttlaError names one that is not there."""
    from ottla.admin.operations import topics  # noqa: PLC0415 - lazy
    from ottla.model.ids import TopicPartition  # noqa: PLC0415 - lazy

    found: dict[Any, None] = {}
    for name, indexes in chosen:
        facts = await topics.describe_topic(client, name)
        known = [p.partition for p in facts.partitions]
        for index in indexes:
            if index not in known:
                raise OttlaError(
                    f"topic {name} has no partition {index}: it has {len(known)}, from 0 on"
                )
        found |= dict.fromkeys(TopicPartition(name, index) for index in indexes or known)
    return list(found)


def reset_offsets(
    group: str,
    topic: Annotated[
        list[str] | None,
        Option(metavar="TOPIC[:0,1]", help="May be repeated [all with an offset]"),
    ] = None,
    to: Annotated[str | None, Option(metavar="earliest|latest|current")] = None,
    to_offset: Annotated[int | None, Option(min=0, max=(1 << 63) - 1)] = None,
    shift_by: Annotated[int | None, Option(help="Forward, or back if negative")] = None,
    to_datetime: Annotated[str | None, Option(help="The first record not older than this")] = None,
    by_duration: Annotated[
        str | None, Option(metavar="P1DT2H|1d2h", help="So long back from now")
    ] = None,
    from_file: Annotated[
        str | None,
        Option(metavar="FILE", help="Lines of topic,partition,offset; - is standard input"),
    ] = None,
    export: Annotated[
        bool, Option("--export", help="Print such lines, for --from-file or Kafka's tool")
    ] = False,
    execute: Annotated[bool, Option("--execute", help="Do it; else only show it")] = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Move a group's offsets. The group must have no members."""
    from ottla.admin.operations import group_resets  # noqa: PLC0415 - lazy

    target = _target(group, to, to_offset, shift_by, to_datetime, by_duration, from_file)
    if from_file is not None and topic:
        raise UsageError("--from-file names the partitions: leave --topic away")
    chosen = usage(_parse_topic, topic or [], "--topic")

    async def question(client: Any) -> Any:
        partitions = await _partitions(client, chosen) if chosen else None
        moves = await group_resets.plan_reset(client, group, partitions, target)
        if not moves:
            raise OttlaError(f"group {group} has no offsets: name topics with --topic")
        if execute:
            await group_resets.reset(client, group, moves)
        return moves

    moves = ask(directory, bootstrap_server, question)
    if export:
        sys.stdout.writelines(f"{m.topic},{m.partition},{m.new}\n" for m in moves)
    elif output is Format.json:
        print_json({"group": group, "executed": execute, "partitions": moves})
    else:
        rows = [(m.topic, m.partition, m.current, m.new) for m in moves]
        print_table(("topic", "partition", "current", "new"), rows)
    for m in moves:
        if m.asked != m.new:
            end = "begins" if m.asked < m.new else "ends"
            say(f"{m.topic}-{m.partition}: {m.asked} is outside of the log, which {end} at {m.new}")
    if not execute:
        say("nothing was changed: add --execute")
