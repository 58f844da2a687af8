"""The command `consume`: its arguments; `record_output` reads and prints."""

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Connection
from ottla.admin.options import TopicOption, usage
from ottla.cli import Argument, Option, UsageError
from ottla.cli.output import Format

if TYPE_CHECKING:
    from ottla.client.offsets import Place


class Isolation(StrEnum):
    """Which records of transactions are read, in the order of their numbers."""

    read_uncommitted = "read_uncommitted"
    read_committed = "read_committed"


def consume(
    target: Connection,
    topics: Annotated[list[str] | None, Argument(metavar="TOPIC...")] = None,
    topic_option: TopicOption = None,
    regex: Annotated[
        bool, Option("--regex", help="Treat TOPIC as a regular expression for whole names")
    ] = False,
    from_beginning: Annotated[
        bool, Option("--from-beginning", help="Start at the first record, not at the end")
    ] = False,
    from_: Annotated[
        str | None,
        Option(
            "--from",
            metavar="PLACE",
            help="Start at: beginning, end, OFFSET, -N (before the end), a time, 1h (ago)",
        ),
    ] = None,
    until: Annotated[
        str | None,
        Option(
            metavar="PLACE", help="Stop at, as for --from; end is the end of the log at the start"
        ),
    ] = None,
    tail: Annotated[
        int | None, Option(metavar="N", help="Print the last N records, in order of time", min=1)
    ] = None,
    follow: Annotated[bool, Option("--follow", help="Keep following after --tail")] = False,
    partition: Annotated[
        list[int] | None,
        Option(
            "--partition", "-p", complete="number", help="Only this partition; repeatable", min=0
        ),
    ] = None,
    offset: Annotated[
        int | None, Option(help="Start at this offset; needs exactly one --partition", min=0)
    ] = None,
    group: Annotated[
        str | None,
        Option(
            "--group",
            "-g",
            complete="group",
            help="Read as a member of this group, and commit printed offsets",
        ),
    ] = None,
    isolation: Annotated[
        Isolation, Option(help="read_committed leaves out aborted and open transactions")
    ] = Isolation.read_uncommitted,
    grep: Annotated[
        str | None, Option(metavar="REGEX", help="Print only records whose key or value matches")
    ] = None,
    count: Annotated[
        bool, Option("--count", help="Print only the count, from beginning to end")
    ] = False,
    max_messages: Annotated[
        int | None, Option("--max-messages", "-n", help="Stop after N records", min=1)
    ] = None,
    timeout_ms: Annotated[
        int | None, Option(help="Stop after N ms without a record", min=1)
    ] = None,
    key_separator: Annotated[
        str | None, Option(help="Also print keys, with this text before the value")
    ] = None,
    template: Annotated[
        str | None,
        Option(
            "--format",
            "-f",
            help="Format, of %t topic %p partition %o offset %k key %v value %h headers %T time",
        ),
    ] = None,
    null: Annotated[str, Option("--null", metavar="TEXT", help="Text to print for null")] = "null",
    output: Annotated[
        Format,
        Option(
            "--output", help="table prints values; the others everything, json one object per line"
        ),
    ] = Format.table,
) -> None:
    from ottla.admin.commands import record_output
    from ottla.admin.operations.record_format import parse
    from ottla.admin.operations.typed_values import parse_place
    from ottla.client.offsets import END

    names = [*(topics or []), *([topic_option] if topic_option is not None else [])]
    if not names:
        raise UsageError("name a topic")
    if offset is not None and (len(partition or []) != 1 or len(names) != 1 or regex):
        raise UsageError("--offset belongs to one partition: add --partition N")
    places = {
        "--from-beginning": from_beginning,
        "--from": from_ is not None,
        "--offset": offset is not None,
        "--tail": tail is not None,
    }
    chosen = [name for name, given in places.items() if given]
    _only_one(chosen)
    if group is not None:
        unfit = [
            *(set(chosen) - {"--from-beginning"}),
            *(["--until"] if until else []),
            *(["--count"] if count else []),
            *(["--isolation"] if isolation is Isolation.read_committed else []),
        ]
        _check_group(partition, unfit)
    if follow or tail is not None:
        _only_one(["--follow" if follow else "--tail", *(["--until"] if until else [])])
        _only_one(["--follow" if follow else "--tail", *(["--count"] if count else [])])
    if not count:
        forms = {"--key-separator": key_separator, "--format": template}
        given = [name for name, value in forms.items() if value is not None]
        _only_one([*given, *([f"--output {output}"] if output is not Format.table else [])])
    elif key_separator is not None or template is not None:
        raise UsageError("--count prints a number: drop --key-separator and --format")
    usage(parse, [template] if template is not None else [], "--format")
    stop = usage(parse_place, [until], "--until")[0] if until is not None else None
    record_output.run(
        target.ask,
        record_output.Wanted(
            topics=names,
            regex=usage(_pattern, names, "TOPIC") if regex else None,
            start=_start(from_beginning or (count and not chosen), from_, offset),
            stop=END if stop is None and count else stop,
            tail=tail,
            follow=follow,
            partitions=partition or [],
            isolation=list(Isolation).index(isolation),
            grep=usage(_bytes_pattern, [grep], "--grep")[0] if grep else None,
            count=count,
            max_messages=max_messages,
            timeout_ms=timeout_ms,
            key_separator=key_separator,
            template=template,
            null=null.encode(errors="surrogateescape"),
            output=output,
            group=group,
        ),
    )


def _check_group(partitions: list[int] | None, unfit: list[str]) -> None:
    """Refuse what does not go with --group."""
    if partitions:
        raise UsageError("the members of a group share its partitions: drop --partition")
    if unfit:
        raise UsageError(f"--group continues at the group's offsets: drop {', '.join(unfit)}")


def _start(from_beginning: bool, place: str | None, offset: int | None) -> "Place":
    """Return where to begin: at the end, unless something else was typed."""
    from ottla.admin.operations.typed_values import parse_place
    from ottla.client.offsets import BEGINNING, END, Place

    if from_beginning:
        return BEGINNING
    if place is not None:
        return usage(parse_place, [place], "--from")[0]
    return END if offset is None else Place(offset=offset)


def _only_one(options: list[str]) -> None:
    if len(options) > 1:
        raise UsageError(f"{', '.join(options)}: only one of them")


def _pattern(text: str) -> "re.Pattern[str]":
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text}: {error}") from None


def _bytes_pattern(text: str) -> "re.Pattern[bytes]":
    try:
        return re.compile(text.encode(errors="surrogateescape"), re.DOTALL)
    except re.error as error:
        raise ValueError(f"{text}: {error}") from None
