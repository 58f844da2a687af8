"""`ottla groups`: consumer groups, as a person asks for them.

Who may call: the command line. Invariants: nothing is moved without --execute, nothing deleted
without a yes; exit code 1 if anything asked for was refused.
"""

import sys
from typing import Annotated, Any

import typer

from ottla.admin.options import Bootstrap, Dir, Output, ask
from ottla.admin.output import Format, plural, print_json, print_table, say
from ottla.model.errors import OttlaError

app = typer.Typer(
    help="List, describe, measure, reset and delete consumer groups.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_command(
    state: Annotated[
        list[str] | None, typer.Option(help="Only groups in this state; may be repeated")
    ] = None,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """List the groups of the cluster."""
    from ottla.admin import groups  # noqa: PLC0415 - lazy

    wanted = {text.lower() for text in state or ()}
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


@app.command("describe")
def describe(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...")],
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Show groups with their members and what each of them reads."""
    from ottla.admin import groups  # noqa: PLC0415 - lazy

    async def question(client: Any) -> list[Any]:
        return [await groups.describe(client, name) for name in names]

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


@app.command("lag")
def lag(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...")],
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Show how far groups are behind, per partition and in total."""
    from ottla.admin import groups  # noqa: PLC0415 - lazy

    async def question(client: Any) -> dict[str, Any]:
        return {name: await groups.lag(client, name) for name in names}

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


@app.command("delete")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
) -> None:
    """Delete groups without members, and their offsets."""
    from ottla.admin import groups  # noqa: PLC0415 - lazy

    if not yes:
        typer.confirm(f"delete {', '.join(names)} with all offsets?", abort=True, err=True)
    results = ask(directory, bootstrap_server, lambda client: groups.delete(client, names))
    for name, problem in results.items():
        say(f"group {name} {'deleted' if problem is None else f'not deleted: {problem}'}")
    if any(results.values()):
        sys.exit(1)


def _target(
    to: str | None, to_offset: int | None, shift_by: int | None, to_datetime: str | None
) -> Any:
    """Return where to go; exactly one way of saying it must have been used."""
    from datetime import datetime  # noqa: PLC0415 - lazy

    from ottla.admin.groups import Target  # noqa: PLC0415 - lazy

    given = [v for v in (to, to_offset, shift_by, to_datetime) if v is not None]
    if len(given) != 1:
        raise typer.BadParameter("choose one of --to, --to-offset, --shift-by, --to-datetime")
    if to is not None:
        if to not in ("earliest", "latest"):
            raise typer.BadParameter(f"--to {to}: write earliest or latest")
        return Target(earliest=to == "earliest", latest=to == "latest")
    if to_datetime is not None:
        try:
            moment = datetime.fromisoformat(to_datetime)
        except ValueError:
            raise typer.BadParameter(
                f"--to-datetime {to_datetime}: write it as 2026-11-21T13:00:00+00:00"
            ) from None
        if moment.tzinfo is None:
            moment = moment.astimezone()
        return Target(timestamp=int(moment.timestamp() * 1000))
    return Target(to_offset=to_offset, shift_by=shift_by)


async def _partitions(client: Any, texts: list[str]) -> Any:
    """Return the partitions of TOPIC or TOPIC:0,1 each; None for all that have an offset."""
    from ottla.admin import topics  # noqa: PLC0415 - lazy
    from ottla.model.ids import TopicPartition  # noqa: PLC0415 - lazy

    if not texts:
        return None
    found = []
    for text in texts:
        name, colon, indexes = text.partition(":")
        if colon:
            if not all(i.isdigit() for i in indexes.split(",")):
                raise OttlaError(f"--topic {text}: write TOPIC or TOPIC:0,1")
            found += [TopicPartition(name, int(i)) for i in indexes.split(",")]
        else:
            facts = await topics.describe_topic(client, name)
            found += [TopicPartition(name, p.partition) for p in facts.partitions]
    return found


@app.command("reset-offsets")
def reset_offsets(
    group: str,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC[:0,1]", help="May be repeated [all with an offset]"),
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="earliest|latest")] = None,
    to_offset: Annotated[int | None, typer.Option(min=0)] = None,
    shift_by: Annotated[int | None, typer.Option(help="Forward, or back if negative")] = None,
    to_datetime: Annotated[
        str | None, typer.Option(help="The first record not older than this")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; else only show it")] = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Move a group's offsets. The group must have no members."""
    from ottla.admin import groups  # noqa: PLC0415 - lazy

    target = _target(to, to_offset, shift_by, to_datetime)

    async def question(client: Any) -> Any:
        chosen = await _partitions(client, topic or [])
        moves = await groups.plan_reset(client, group, chosen, target)
        if not moves:
            raise OttlaError(f"group {group} has no offsets: name topics with --topic")
        if execute:
            await groups.reset(client, group, moves)
        return moves

    moves = ask(directory, bootstrap_server, question)
    if output is Format.json:
        print_json({"group": group, "executed": execute, "partitions": moves})
    else:
        rows = [(m.topic, m.partition, m.current, m.new) for m in moves]
        print_table(("topic", "partition", "current", "new"), rows)
    if not execute:
        say("nothing was changed: add --execute")
