r"""The command `produce`: lines, JSON or files become records."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Target
from ottla.admin.options import DryRun, TopicArgument, TopicOption, one_topic, usage
from ottla.cli import Option, UsageError
from ottla.cli.output import print_changes, say
from ottla.model.errors import OttlaError
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.admin.operations.record_input import Lines, Parse
    from ottla.client.client import Client
    from ottla.client.producer import Producer
    from ottla.wire.records import NewRecord


class InputForm(StrEnum):
    """How the input is written."""

    lines = "lines"
    json = "json"


class PartitionerName(StrEnum):
    """Where records without a key go."""

    sticky = "sticky"
    random = "random"


class Compression(StrEnum):
    """The codecs, in the order of their numbers."""

    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


def _acks(text: str) -> int:
    try:
        return {"all": -1, "-1": -1, "0": 0, "1": 1}[text]
    except KeyError:
        raise UsageError(f"--acks {text}: write 0, 1 or all") from None


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise ValueError(f"{text!r}: write name=value, or name for a header without a value")
    return name, value.encode(errors="surrogateescape") if equals else None


def _given(text: str | None) -> bytes | None:
    return None if text is None else text.encode(errors="surrogateescape")


@dataclass(kw_only=True)
class Wanted:
    """What to produce, and how: the options of the command."""

    form: Annotated[
        InputForm, Option("--input", help="lines, or json: one object per line (RECORDS.md)")
    ] = InputForm.lines
    template: Annotated[
        str | None, Option("--format", "-f", help="Format of a record, such as '%k=%v\\n'")
    ] = None
    key_separator: Annotated[str | None, Option(help="Text between key and value [no keys]")] = None
    key: Annotated[str | None, Option("--key", "-k", help="Key of all records")] = None
    key_field: Annotated[
        str | None, Option(metavar="NAME", help="Take the key from this field of JSON values")
    ] = None
    header: Annotated[
        list[str] | None,
        Option("--header", "-H", metavar="NAME=VALUE", help="Header of each record; repeatable"),
    ] = None
    tombstone: Annotated[
        bool,
        Option("--tombstone", help="Produce null values, for --key or for the key on each line"),
    ] = False
    null: Annotated[str | None, Option(metavar="TEXT", help="Text that stands for null")] = None
    partition: Annotated[
        int | None,
        Option("--partition", "-p", complete="number", help="Produce to this partition", min=0),
    ] = None
    keep_partitions: Annotated[
        bool,
        Option("--keep-partitions", help="Produce to the partitions that the JSON names"),
    ] = False
    partitioner: Annotated[
        PartitionerName, Option(help="Partitioner for records without a key")
    ] = PartitionerName.sticky
    compression: Annotated[
        Compression, Option("--compression", "-z", help="Compression of batches")
    ] = Compression.none
    timestamp: Annotated[
        str | None,
        Option(
            metavar="TIME", help="Timestamp of all records: ISO 8601, @milliseconds, or 1h (ago)"
        ),
    ] = None
    file: Annotated[
        list[Path] | None,
        Option("--file", help="Read this file instead of standard input; repeatable"),
    ] = None
    value_file: Annotated[
        list[Path] | None, Option(help="Produce the bytes of this file as one value; repeatable")
    ] = None
    acks: Annotated[str, Option(help="Acknowledgements to wait for: 0, 1 or all")] = "all"
    timeout_ms: Annotated[int, Option(help="Time limit for each record", min=1)] = 120_000
    dry_run: DryRun = False

    def __post_init__(self) -> None:
        """Raise UsageError for options that do not go together, and for values of no meaning."""
        from ottla.admin.operations.record_format import InputTemplate
        from ottla.admin.operations.typed_values import parse_moment

        is_json = self.form is InputForm.json
        if self.key_separator == "":
            raise UsageError("--key-separator is empty; write one, as --key-separator=:")
        if sum([self.key_separator is not None, self.template is not None, is_json]) > 1:
            raise UsageError("--key-separator, --format, --input json: only one of them")
        if self.tombstone and (self.template is not None or is_json or self.value_file):
            raise UsageError("--tombstone: of --key, or of keys that are lines; nothing else")
        if self.tombstone and self.key_separator is not None:
            raise UsageError("--tombstone: a line is a key; drop --key-separator")
        if self.keep_partitions and (not is_json or self.partition is not None):
            raise UsageError("--keep-partitions: for --input json, without --partition")
        if self.key is not None and self.key_separator is not None:
            raise UsageError("--key, --key-separator: only one of them")
        keyed = self.key is not None or self.key_separator is not None or self.tombstone
        if self.key_field is not None and keyed:
            raise UsageError("--key-field: without --key, --key-separator and --tombstone")
        if self.template is not None:
            usage(lambda text: InputTemplate(text, None), [self.template], "--format")
        self.codec = list(Compression).index(self.compression)
        self.wait_for = _acks(self.acks)
        self.headers = tuple(usage(_header, self.header or [], "--header"))
        moments = usage(parse_moment, [self.timestamp] if self.timestamp else [], "--timestamp")
        self.timestamp_ms = moments[0] if moments else None


def produce(
    wanted: Wanted,
    target: Target,
    topic: TopicArgument = None,
    topic_option: TopicOption = None,
) -> None:
    from ottla.admin.results import Produced

    name = one_topic(topic, topic_option)
    count = target.ask(lambda client: _produce(client, name, wanted))
    result = "valid" if wanted.dry_run else "produced"
    print_changes(target.output, [Produced(name, count, result)])


async def _produce(client: "Client", topic: str, wanted: Wanted) -> int:
    """Produce what is read; return how many records were."""
    from ottla.admin.operations import record_input
    from ottla.admin.session import world
    from ottla.cli.progress import Progress
    from ottla.client import producer as producing
    from ottla.client import topics
    from ottla.wire.records import NewRecord

    here = world()
    writer = producing.Producer(
        client,
        topic,
        acks=wanted.wait_for,
        timeout_s=wanted.timeout_ms / 1000,
        codec=wanted.codec,
        sticky=wanted.partitioner is PartitionerName.sticky,
    )
    facts = await topics.describe_topic(client, topic)
    count = len(facts.partitions)
    if wanted.partition is not None and wanted.partition >= count:
        raise producing.no_such_partition(topic, wanted.partition, count)
    available = [p.partition for p in facts.partitions if p.leader is not None]
    await writer.open(count, available, dry_run=wanted.dry_run)
    progress = Progress()
    pending: list[NewRecord] = []

    def take(record: NewRecord) -> None:
        pending.append(_completed(record, wanted))

    async def send() -> None:
        if pending:
            before = writer.written
            size = sum(len(r.key or b"") + len(r.value or b"") for r in pending)
            records, pending[:] = pending[:], []
            await writer.send(records)
            progress.add(writer.written - before, size)

    whole = False
    try:
        if wanted.tombstone and wanted.key is not None:
            take(NewRecord(_given(wanted.key), None))
            await send()
        for path in wanted.value_file or ():
            take(NewRecord(None, path.read_bytes()))
            await send()
        for source in _sources(wanted):
            lines = _lines(wanted, source)
            with _prompt(source) as prompt, _input(source) as arrived:
                async for _ in record_input.read_records(here, lines, source, take):
                    arrived(False)
                    await send()
                    prompt()
                    arrived(True)
        whole = True
    finally:
        progress.clear()
        done = "valid, and nothing was produced" if wanted.dry_run else f"produced to {topic}"
        if not whole and writer.given > writer.written:
            say(_left(writer))
        elif whole or writer.written:
            say(f"{plural(writer.written, 'record')} {done}{progress.rate}")
    return writer.written


def _left(writer: "Producer") -> str:
    """Return what became of the records when producing ended early."""
    parts = [f"{plural(writer.written, 'record')} acknowledged"]
    if writer.unknown:
        parts.append(f"{writer.unknown:,} unknown (sent, and may have been written)")
    refused = writer.given - writer.written - writer.unknown
    if refused:
        parts.append(f"{refused:,} not written")
    text = ", ".join(parts)
    failed = isinstance(sys.exc_info()[1], OttlaError)  # what it waited for is said with it
    return text if failed or not writer.waits_for() else f"{text}; waited for: {writer.waits_for()}"


def _sources(wanted: Wanted) -> list[Path | None]:
    """Return the files to read; None is standard input."""
    if wanted.file:
        return [None if str(path) == "-" else path for path in wanted.file]
    nothing_to_read = wanted.value_file or (wanted.tombstone and wanted.key is not None)
    return [] if nothing_to_read else [None]


def _lines(wanted: Wanted, source: Path | None) -> "Lines":
    from ottla.admin.operations import record_input

    parse, end = _parsed(wanted)
    if wanted.key_field is not None:
        parse = record_input.keyed(parse, wanted.key_field)
    where = "" if source is None else str(source)
    before = "are valid" if wanted.dry_run else "were produced"
    return record_input.Lines(parse, end, where, before)


def _parsed(wanted: Wanted) -> "tuple[Parse, bytes]":
    """Return what makes a record of its text, and what stands after each."""
    from ottla.admin.operations import record_input

    if wanted.template is not None:
        return record_input.template(wanted.template, _given(wanted.null))
    if wanted.form is InputForm.json:
        return record_input.json_lines, b"\n"
    if wanted.tombstone:
        return record_input.keys_to_delete, b"\n"
    separator = None if wanted.key_separator is None else wanted.key_separator.encode()
    return record_input.plain(separator, _given(wanted.null)), b"\n"


def _completed(record: "NewRecord", wanted: Wanted) -> "NewRecord":
    """Return a record with what the command line says about all of them."""
    partition = record.partition
    if wanted.form is InputForm.json and not wanted.keep_partitions:
        partition = None
    return record._replace(
        key=record.key if wanted.key is None else _given(wanted.key),
        headers=record.headers + wanted.headers,
        timestamp=record.timestamp if wanted.timestamp_ms is None else wanted.timestamp_ms,
        partition=partition if wanted.partition is None else wanted.partition,
    )


@contextmanager
def _input(source: Path | None) -> Iterator[Callable[[bool], None]]:
    """Tell of a wait for input that is neither a file nor typed; yield what hears that some came.

    It is given whether more is waited for now.
    """
    from ottla.model.waits import LONG_S, waiting

    since_s: float | None = time.monotonic()

    def arrived(waits: bool) -> None:
        nonlocal since_s
        since_s = time.monotonic() if waits else None

    def text() -> str:
        waits = since_s is not None and time.monotonic() - since_s >= LONG_S
        return "records on standard input, which has not ended" if waits else ""

    if source is not None or sys.stdin.isatty():
        yield arrived
        return
    with waiting(text):
        yield arrived


@contextmanager
def _prompt(source: Path | None) -> Iterator[Callable[[], None]]:
    """Tell a person at a terminal that records are wanted now; yield what asks for the next."""
    shown = source is None and sys.stdin.isatty() and sys.stderr.isatty()

    def prompt() -> None:
        if shown:
            sys.stderr.write("> ")
            sys.stderr.flush()

    if shown:
        say("one record each line, Ctrl-D ends")
    prompt()
    try:
        yield prompt
    finally:
        if shown:
            sys.stderr.write("\n")
