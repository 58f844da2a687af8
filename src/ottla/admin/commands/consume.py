"""The command `consume`: where to begin, how to print records, when to stop.

Invariants: stdout carries records and nothing else; Ctrl-C is a way to stop, not a failure.
"""

import contextlib
import heapq
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Connection
from ottla.admin.options import TopicOption, usage
from ottla.cli import Argument, Option, UsageError
from ottla.cli.output import Format, print_changes, print_line, say
from ottla.cli.progress import Progress
from ottla.model.errors import OttlaError
from ottla.model.printable import plural, printable
from ottla.model.protocol import EARLIEST, LATEST

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.client.consumer import Consumer, Sink
    from ottla.client.offsets import Place
    from ottla.model.ids import TopicPartition
    from ottla.wire.records import Record

TAIL_GROWTH = 8
"""How much further back to look where the last offsets hold fewer records than asked for."""


class Isolation(StrEnum):
    """Which records of transactions are read, in the order of their numbers."""

    read_uncommitted = "read_uncommitted"
    read_committed = "read_committed"


@dataclass(kw_only=True)
class Wanted:
    """Which records to print, and how: the options of the command."""

    topics: Annotated[list[str] | None, Argument(metavar="TOPIC...")] = None
    topic_option: TopicOption = None
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

    def __post_init__(self) -> None:
        """Raise UsageError for options that do not go together, and for values of no meaning."""
        from ottla.admin.operations.record_format import parse
        from ottla.admin.operations.typed_values import parse_place
        from ottla.client.offsets import END

        self.names = [
            *(self.topics or []),
            *([self.topic_option] if self.topic_option is not None else []),
        ]
        if not self.names:
            raise UsageError("name a topic")
        if self.offset is not None and (
            len(self.partition or []) != 1 or len(self.names) != 1 or self.regex
        ):
            raise UsageError("--offset belongs to one partition: add --partition N")
        places = {
            "--from-beginning": self.from_beginning,
            "--from": self.from_ is not None,
            "--offset": self.offset is not None,
            "--tail": self.tail is not None,
        }
        chosen = [name for name, given in places.items() if given]
        _only_one(chosen)
        if self.group is not None:
            unfit = [
                *(set(chosen) - {"--from-beginning"}),
                *(["--until"] if self.until else []),
                *(["--count"] if self.count else []),
                *(["--isolation"] if self.isolation is Isolation.read_committed else []),
            ]
            _check_group(self.partition, unfit)
        if self.follow or self.tail is not None:
            first = "--follow" if self.follow else "--tail"
            _only_one([first, *(["--until"] if self.until else [])])
            _only_one([first, *(["--count"] if self.count else [])])
        if not self.count:
            forms = {"--key-separator": self.key_separator, "--format": self.template}
            given = [name for name, value in forms.items() if value is not None]
            _only_one(
                [*given, *([f"--output {self.output}"] if self.output is not Format.table else [])]
            )
        elif self.key_separator is not None or self.template is not None:
            raise UsageError("--count prints a number: drop --key-separator and --format")
        usage(parse, [self.template] if self.template is not None else [], "--format")
        stop = usage(parse_place, [self.until], "--until")[0] if self.until is not None else None
        self.stop = END if stop is None and self.count else stop
        whole = self.from_beginning or (self.count and not chosen)
        self.start = _start(whole, self.from_, self.offset)
        self.patterns = usage(_pattern, self.names, "TOPIC") if self.regex else None
        self.looked_for = usage(_bytes_pattern, [self.grep], "--grep")[0] if self.grep else None
        self.null_bytes = self.null.encode(errors="surrogateescape")


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


class Printer:
    """A sink that prints each record that is wanted, and counts."""

    def __init__(self, wanted: Wanted) -> None:
        self.count = 0
        self.counts: dict[TopicPartition, int] = {}
        self._most = wanted.max_messages
        self._grep = wanted.looked_for
        self._out = sys.stdout.buffer
        self.progress = Progress(shown=wanted.count or not sys.stdout.isatty())
        self._text = None if wanted.count else _form(wanted)
        self._escapes = sys.stdout.isatty()

    def __call__(self, tp: "TopicPartition", record: "Record") -> bool:
        if self._grep is not None and not (
            self._grep.search(record.value or b"") or self._grep.search(record.key or b"")
        ):
            return True
        size = len(record.key or b"") + len(record.value or b"")
        if self._text is None:
            self.counts[tp] = self.counts.get(tp, 0) + 1
        else:
            text = self._text(tp, record)
            self._out.write(for_terminal(text) if self._escapes else text)
        self.count += 1
        self.progress.add(1, size)
        return self._most is None or self.count < self._most

    def flush(self) -> None:
        """Hand on what was printed: before it can be committed, and while nothing comes."""
        self._out.flush()


def for_terminal(data: bytes) -> bytes:
    r"""Return bytes of a record for a terminal: what would steer it is escaped, as `\x1b`.

    Line ends and tabs stay, and so does text of any language. Into a pipe bytes go as they are.
    """
    text = data.decode("utf-8", errors="surrogateescape")
    return data if text.isprintable() else "".join(map(_shown, text)).encode()


def _shown(char: str) -> str:
    if char in "\n\t":
        return char
    if "\udc80" <= char <= "\udcff":  # a byte that is no text
        return f"\\x{ord(char) & 0xFF:02x}"
    return printable(char)


def _form(wanted: Wanted) -> "Callable[[TopicPartition, Record], bytes]":
    """Return what makes the bytes to print of a record."""
    from ottla.admin.operations.record_format import Template
    from ottla.admin.operations.record_json import to_line

    if wanted.template is not None:
        return Template(wanted.template, wanted.null_bytes).text
    if wanted.output is Format.json:
        return lambda tp, record: to_line(tp, record) + b"\n"
    if wanted.output is Format.tsv:
        return _cells
    null = wanted.null_bytes

    def value(_tp: "TopicPartition", record: "Record") -> bytes:
        return (null if record.value is None else record.value) + b"\n"

    if wanted.key_separator is None:
        return value
    separator = wanted.key_separator.encode(errors="surrogateescape")

    def key_and_value(tp: "TopicPartition", record: "Record") -> bytes:
        return (null if record.key is None else record.key) + separator + value(tp, record)

    return key_and_value


COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def _cells(tp: "TopicPartition", record: "Record") -> bytes:
    """Return a record as cells between tabs."""
    headers = b",".join(
        name.encode(errors="surrogateescape") + b"=" + _cell(content)
        for name, content in record.headers
    )
    numbers = [b"%d" % n for n in (tp.partition, record.offset, record.timestamp)]
    cells = [tp.topic.encode(), *numbers, _cell(record.key), _cell(record.value), headers]
    return b"\t".join(cells) + b"\n"


def _cell(data: bytes | None) -> bytes:
    r"""Return bytes without tabs and line ends; \N for a null."""
    if data is None:
        return b"\\N"
    text = data.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n")
    return text.replace(b"\r", b"\\r")


def consume(wanted: Wanted, target: Connection) -> None:
    from ottla.client.offsets import END

    printer = Printer(wanted)
    if wanted.output is Format.tsv and not wanted.count:
        sys.stdout.write("\t".join(COLUMNS) + "\n")
        sys.stdout.flush()
    whole = True
    if wanted.start == END and wanted.tail is None and wanted.group is None and _at_a_terminal():
        say("waiting for new records; --from-beginning reads all there are, Ctrl-C ends")
    try:
        with contextlib.suppress(KeyboardInterrupt):
            whole = False
            target.ask(lambda client: _consume(client, wanted, printer))
            whole = True
        printer.flush()
    finally:
        printer.progress.clear()
    if wanted.count:
        _print_counts(wanted, printer)
    names = ", ".join(wanted.names)
    note = "" if whole or not wanted.count else ", interrupted"
    say(f"{plural(printer.count, 'record')} of {names}{printer.progress.rate}{note}")


def _at_a_terminal() -> bool:
    return sys.stdout.isatty() and sys.stderr.isatty()


def _print_counts(wanted: Wanted, printer: Printer) -> None:
    from ottla.admin.results import Counted

    if wanted.output is Format.table:
        print_line(str(printer.count))
    else:
        counts = [Counted(*tp, count) for tp, count in sorted(printer.counts.items())]
        print_changes(wanted.output, counts)


async def _chosen(
    client: "Client", wanted: Wanted
) -> "tuple[dict[str, bytes], list[TopicPartition]]":
    """Return the topics with their ids, and the partitions of them that are to be read."""
    from ottla.admin.commands.topics import named_like
    from ottla.client import topics
    from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_from_text

    if wanted.patterns is None:
        facts = [await topics.describe_topic(client, name) for name in dict.fromkeys(wanted.names)]
    else:
        facts = await topics.list_topics(client)
        names = named_like([t.name for t in facts], wanted.patterns)
        facts = [t for t in facts if t.name in names]
        say(f"reading {', '.join(t.name for t in facts)}")
    ids = {t.name: uuid_from_text(t.topic_id) if t.topic_id else ZERO_UUID for t in facts}
    chosen = []
    for topic in facts:
        known = [p.partition for p in topic.partitions]
        for partition in wanted.partition or ():
            if partition not in known:
                raise OttlaError(
                    f"--partition {partition}: topic {topic.name} has partitions 0 to {known[-1]}"
                )
        chosen += [TopicPartition(topic.name, p) for p in wanted.partition or known]
    return ids, chosen


async def _consume(client: "Client", wanted: Wanted, printer: Printer) -> None:
    from ottla.client.consumer import Consumer
    from ottla.client.offsets import BEGINNING

    ids, chosen = await _chosen(client, wanted)
    idle_s = None if wanted.timeout_ms is None else wanted.timeout_ms / 1000

    def reader() -> "Consumer":
        isolation = list(Isolation).index(wanted.isolation)
        return Consumer(client, ids, isolation=isolation, settled=printer.flush)

    if wanted.group is not None:
        from ottla.client.group_consumer import GroupConsumer

        member = GroupConsumer(
            client,
            wanted.group,
            list(ids),
            reader,
            from_beginning=wanted.start == BEGINNING,
        )
        await member.read(printer, idle_s)
        return
    reading = reader()
    if wanted.tail is not None:
        ends = await _tail(reader, chosen, wanted.tail, printer)
        if ends is None or not wanted.follow:
            return
        starts: Mapping[TopicPartition, int] = ends
    else:
        starts = await reading.offsets_at(chosen, wanted.start)
    for tp, offset in starts.items():
        reading.start_at_offset(tp, offset)
    if wanted.stop is not None:
        for tp, offset in (await reading.offsets_at(chosen, wanted.stop)).items():
            reading.stop_at_offset(tp, offset)
    await reading.read(printer, idle_s)


async def _tail(
    make_reader: "Callable[[], Consumer]",
    partitions: "Sequence[TopicPartition]",
    count: int,
    sink: "Sink",
) -> "dict[TopicPartition, int] | None":
    """Give the last records to the sink, in order of time; return where each log ended.

    None if the sink wants no more. Markers and what compaction took away have offsets, too: where
    the last offsets hold too few records, it looks further back.
    """
    asking = make_reader()
    starts = await asking.offsets(partitions, EARLIEST)
    ends = await asking.offsets(partitions, LATEST)
    last: dict[TopicPartition, deque[Record]] = {}
    wanted, back = list(partitions), count
    while wanted:
        reader = make_reader()
        for tp in wanted:
            last[tp] = deque(maxlen=count)
            reader.start_at_offset(tp, max(starts[tp], ends[tp] - back))
            reader.stop_at_offset(tp, ends[tp])

        def keep(tp: "TopicPartition", record: "Record") -> bool:
            last[tp].append(record)
            return True

        await reader.read(keep, None)
        wanted = [tp for tp in wanted if len(last[tp]) < count and ends[tp] - back > starts[tp]]
        back *= TAIL_GROWTH
    for tp, record in _newest(last, count):
        if not sink(tp, record):
            return None
    return ends


def _newest(
    last: "Mapping[TopicPartition, deque[Record]]", count: int
) -> "list[tuple[TopicPartition, Record]]":
    """Return the last records of all partitions together: each partition's keep their order.

    Taken from the ends, from where the newest one is.
    """
    heap = [(-records[-1].timestamp, tp) for tp, records in last.items() if records]
    heapq.heapify(heap)
    found: list[tuple[TopicPartition, Record]] = []
    while heap and len(found) < count:
        _, tp = heapq.heappop(heap)
        found.append((tp, last[tp].pop()))
        if last[tp]:
            heapq.heappush(heap, (-last[tp][-1].timestamp, tp))
    return found[::-1]
