"""What `ottla consume` does around a `Consumer`: where to begin, how to print, when to stop.

Invariants: stdout carries records and nothing else; Ctrl-C is a way to stop, not a failure.
"""

import contextlib
import heapq
import re
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from ottla.admin.operations.record_format import Template
from ottla.admin.operations.record_json import to_line
from ottla.cli.output import Format, print_changes, print_line, say
from ottla.cli.progress import Progress
from ottla.client import topics
from ottla.client.client import Client
from ottla.client.consumer import Consumer, Sink
from ottla.client.offsets import BEGINNING, END, Place
from ottla.model.errors import OttlaError
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_from_text
from ottla.model.printable import plural, printable
from ottla.model.protocol import EARLIEST, LATEST
from ottla.wire.records import Record

TAIL_GROWTH = 8
"""How much further back to look where the last offsets hold fewer records than asked for."""


@dataclass(slots=True)
class Wanted:
    """What the command line asked for. `stop` and `tail` end the reading, but for `follow`."""

    topics: Sequence[str]
    regex: Sequence["re.Pattern[str]"] | None
    start: Place
    stop: Place | None
    tail: int | None
    follow: bool
    partitions: list[int]
    isolation: int
    grep: "re.Pattern[bytes] | None"
    count: bool
    max_messages: int | None
    timeout_ms: int | None
    key_separator: str | None
    template: str | None
    null: bytes
    output: Format
    group: str | None = None


class Printer:
    """A sink that prints each record that is wanted, and counts."""

    def __init__(self, wanted: Wanted) -> None:
        self.count = 0
        self.counts: dict[TopicPartition, int] = {}
        self._most = wanted.max_messages
        self._grep = wanted.grep
        self._out = sys.stdout.buffer
        self.progress = Progress(shown=wanted.count or not sys.stdout.isatty())
        self._text = None if wanted.count else _form(wanted)
        self._escapes = sys.stdout.isatty()

    def __call__(self, tp: TopicPartition, record: Record) -> bool:
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


def _form(wanted: Wanted) -> Callable[[TopicPartition, Record], bytes]:
    """Return what makes the bytes to print of a record."""
    if wanted.template is not None:
        return Template(wanted.template, wanted.null).text
    if wanted.output is Format.json:
        return lambda tp, record: to_line(tp, record) + b"\n"
    if wanted.output is Format.tsv:
        return _cells
    null = wanted.null

    def value(_tp: TopicPartition, record: Record) -> bytes:
        return (null if record.value is None else record.value) + b"\n"

    if wanted.key_separator is None:
        return value
    separator = wanted.key_separator.encode(errors="surrogateescape")

    def key_and_value(tp: TopicPartition, record: Record) -> bytes:
        return (null if record.key is None else record.key) + separator + value(tp, record)

    return key_and_value


COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def _cells(tp: TopicPartition, record: Record) -> bytes:
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


def run(ask: Callable[[Callable[[Client], Awaitable[None]]], None], wanted: Wanted) -> None:
    """Print records until enough came, nothing came for long enough, or Ctrl-C."""
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
            ask(lambda client: _consume(client, wanted, printer))
            whole = True
        printer.flush()
    finally:
        printer.progress.clear()
    if wanted.count:
        _print_counts(wanted, printer)
    names = ", ".join(wanted.topics)
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


async def _chosen(client: Client, wanted: Wanted) -> tuple[dict[str, bytes], list[TopicPartition]]:
    """Return the topics with their ids, and the partitions of them that are to be read."""
    if wanted.regex is None:
        facts = [await topics.describe_topic(client, name) for name in dict.fromkeys(wanted.topics)]
    else:
        from ottla.admin.commands.topics import named_like

        facts = await topics.list_topics(client)
        names = named_like([t.name for t in facts], wanted.regex)
        facts = [t for t in facts if t.name in names]
        say(f"reading {', '.join(t.name for t in facts)}")
    ids = {t.name: uuid_from_text(t.topic_id) if t.topic_id else ZERO_UUID for t in facts}
    chosen = []
    for topic in facts:
        known = [p.partition for p in topic.partitions]
        for partition in wanted.partitions:
            if partition not in known:
                raise OttlaError(
                    f"--partition {partition}: topic {topic.name} has partitions 0 to {known[-1]}"
                )
        chosen += [TopicPartition(topic.name, p) for p in wanted.partitions or known]
    return ids, chosen


async def _consume(client: Client, wanted: Wanted, printer: Printer) -> None:
    ids, chosen = await _chosen(client, wanted)
    idle_s = None if wanted.timeout_ms is None else wanted.timeout_ms / 1000

    def reader() -> Consumer:
        return Consumer(client, ids, isolation=wanted.isolation, settled=printer.flush)

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
    make_reader: Callable[[], Consumer],
    partitions: Sequence[TopicPartition],
    count: int,
    sink: Sink,
) -> dict[TopicPartition, int] | None:
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

        def keep(tp: TopicPartition, record: Record) -> bool:
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
    last: Mapping[TopicPartition, deque[Record]], count: int
) -> list[tuple[TopicPartition, Record]]:
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
