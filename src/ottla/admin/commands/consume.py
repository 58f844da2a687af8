"""The command `consume`: its arguments; `record_output` reads and prints.

Who may call: `cli`.
"""

from typing import Annotated

import typer

from ottla.admin.options import Bootstrap, Dir, bootstrap
from ottla.admin.output import Format


def consume(
    topic: str,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first record, not the end")
    ] = False,
    partition: Annotated[
        list[int] | None, typer.Option(help="Only this partition; may be repeated")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(help="Start here; needs exactly one --partition", min=0)
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Read as a member of this group, and commit what was printed"),
    ] = None,
    max_messages: Annotated[int | None, typer.Option(help="Stop after so many", min=1)] = None,
    timeout_ms: Annotated[
        int | None, typer.Option(help="Stop when nothing came for so long", min=1)
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option(help="Print keys too, with this before the value")
    ] = None,
    output: Annotated[Format, typer.Option("--output", help="table: values; json: all")] = (
        Format.table
    ),
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
) -> None:
    """Print records, one line each, until Ctrl-C, --max-messages or --timeout-ms."""
    from ottla.admin.commands import record_output  # noqa: PLC0415 - lazy

    if offset is not None and len(partition or []) != 1:
        raise typer.BadParameter("--offset belongs to one partition: add --partition N")
    if group is not None and partition:
        raise typer.BadParameter("--group shares the partitions out: leave --partition away")
    record_output.run(
        bootstrap(bootstrap_server, directory),
        record_output.Wanted(
            topic=topic,
            from_beginning=from_beginning,
            partitions=partition or [],
            offset=offset,
            max_messages=max_messages,
            timeout_ms=timeout_ms,
            key_separator=key_separator,
            as_json=output is Format.json,
            group=group,
        ),
    )
