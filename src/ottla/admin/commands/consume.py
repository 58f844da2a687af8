"""The command `consume`: its arguments; `record_output` reads and prints."""

import re
from dataclasses import dataclass
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


@dataclass(kw_only=True)
class Options:
    """Which records to print, and how."""

    regex: Annotated[
        bool, Option("--regex", help="Treat TOPIC as a regular expression for whole names")
    ] = False
    from_beginning: Annotated[
        bool, Option("--from-beginning", help="Start at the first record, not at the end")
    ] = False
    from_: Annotated[
        str | None,
        Option(
            "--from",
            metavar="PLACE",
            help="Start at: beginning, end, OFFSET, -N (before the end), a time, 1h (ago)",
        ),
    ] = None
    until: Annotated[
        str | None,
        Option(
            metavar="PLACE", help="Stop at, as for --from; end is the end of the log at the start"
        ),
    ] = None
    tail: Annotated[
        int | None, Option(metavar="N", help="Print the last N records, in order of time", min=1)
    ] = None
    follow: Annotated[bool, Option("--follow", help="Keep following after --tail")] = False
    partition: Annotated[
        list[int] | None,
        Option(
            "--partition", "-p", complete="number", help="Only this partition; repeatable", min=0
        ),
    ] = None
    offset: Annotated[
        int | None, Option(help="Start at this offset; needs exactly one --partition", min=0)
    ] = None
    group: Annotated[
        str | None,
        Option(
            "--group",
            "-g",
            complete="group",
            help="Read as a member of this group, and commit printed offsets",
        ),
    ] = None
    isolation: Annotated[
        Isolation, Option(help="read_committed leaves out aborted and open transactions")
    ] = Isolation.read_uncommitted
    grep: Annotated[
        str | None, Option(metavar="REGEX", help="Print only records whose key or value matches")
    ] = None
    count: Annotated[
        bool, Option("--count", help="Print only the count, from beginning to end")
    ] = False
    max_messages: Annotated[
        int | None, Option("--max-messages", "-n", help="Stop after N records", min=1)
    ] = None
    timeout_ms: Annotated[int | None, Option(help="Stop after N ms without a record", min=1)] = None
    key_separator: Annotated[
        str | None, Option(help="Also print keys, with this text before the value")
    ] = None
    template: Annotated[
        str | None,
        Option(
            "--format",
            "-f",
            help="Format, of %t topic %p partition %o offset %k key %v value %h headers %T time",
        ),
    ] = None
    null: Annotated[str, Option("--null", metavar="TEXT", help="Text to print for null")] = "null"
    output: Annotated[
        Format,
        Option(
            "--output", help="table prints values; the others everything, json one object per line"
        ),
    ] = Format.table


def consume(
    target: Connection,
    asked: Options,
    topics: Annotated[list[str] | None, Argument(metavar="TOPIC...")] = None,
    topic_option: TopicOption = None,
) -> None:
    from ottla.admin.commands import record_output
    from ottla.admin.operations.record_format import parse
    from ottla.admin.operations.typed_values import parse_place
    from ottla.client.offsets import END

    names = [*(topics or []), *([topic_option] if topic_option is not None else [])]
    if not names:
        raise UsageError("name a topic")
    if asked.offset is not None and (
        len(asked.partition or []) != 1 or len(names) != 1 or asked.regex
    ):
        raise UsageError("--offset belongs to one partition: add --partition N")
    places = {
        "--from-beginning": asked.from_beginning,
        "--from": asked.from_ is not None,
        "--offset": asked.offset is not None,
        "--tail": asked.tail is not None,
    }
    chosen = [name for name, given in places.items() if given]
    _only_one(chosen)
    if asked.group is not None:
        unfit = [
            *(set(chosen) - {"--from-beginning"}),
            *(["--until"] if asked.until else []),
            *(["--count"] if asked.count else []),
            *(["--isolation"] if asked.isolation is Isolation.read_committed else []),
        ]
        _check_group(asked.partition, unfit)
    if asked.follow or asked.tail is not None:
        _only_one(["--follow" if asked.follow else "--tail", *(["--until"] if asked.until else [])])
        _only_one(["--follow" if asked.follow else "--tail", *(["--count"] if asked.count else [])])
    if not asked.count:
        forms = {"--key-separator": asked.key_separator, "--format": asked.template}
        given = [name for name, value in forms.items() if value is not None]
        _only_one(
            [*given, *([f"--output {asked.output}"] if asked.output is not Format.table else [])]
        )
    elif asked.key_separator is not None or asked.template is not None:
        raise UsageError("--count prints a number: drop --key-separator and --format")
    usage(parse, [asked.template] if asked.template is not None else [], "--format")
    stop = usage(parse_place, [asked.until], "--until")[0] if asked.until is not None else None
    record_output.run(
        target.ask,
        record_output.Wanted(
            topics=names,
            regex=usage(_pattern, names, "TOPIC") if asked.regex else None,
            start=_start(
                asked.from_beginning or (asked.count and not chosen), asked.from_, asked.offset
            ),
            stop=END if stop is None and asked.count else stop,
            tail=asked.tail,
            follow=asked.follow,
            partitions=asked.partition or [],
            isolation=list(Isolation).index(asked.isolation),
            grep=usage(_bytes_pattern, [asked.grep], "--grep")[0] if asked.grep else None,
            count=asked.count,
            max_messages=asked.max_messages,
            timeout_ms=asked.timeout_ms,
            key_separator=asked.key_separator,
            template=asked.template,
            null=asked.null.encode(errors="surrogateescape"),
            output=asked.output,
            group=asked.group,
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
