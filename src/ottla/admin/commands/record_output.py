"""What `ottla consume` does around a `Reader`: where to begin, how to print, when to stop.

Who may call: the command line. Invariants: stdout carries records and nothing else; Ctrl-C is a
way to stop, not a failure.
"""

import contextlib
import json
import sys
from dataclasses import dataclass

from ottla.admin.operations import topics
from ottla.admin.operations.consume import Reader, Sink
from ottla.admin.operations.group_consumer import GroupReader
from ottla.admin.output import plural, say
from ottla.admin.session import connected, world
from ottla.model.errors import OttlaError
from ottla.model.ids import ZERO_UUID, uuid_from_text
from ottla.model.protocol import EARLIEST, LATEST
from ottla.net.client import Client
from ottla.wire.records import Record


@dataclass(slots=True)
class Wanted:
    """What the command line asked for."""

    topic: str
    from_beginning: bool
    partitions: list[int]
    offset: int | None
    max_messages: int | None
    timeout_ms: int | None
    key_separator: str | None
    as_json: bool
    group: str | None = None


class Printer:
    """A sink that prints each record and counts."""

    def __init__(self, wanted: Wanted) -> None:
        self.count = 0
        self._wanted = wanted
        self._separator = (
            wanted.key_separator.encode() if wanted.key_separator is not None else None
        )
        self._out = sys.stdout.buffer

    def __call__(self, partition: int, record: Record) -> bool:
        line = self._json(partition, record) if self._wanted.as_json else self._plain(record)
        self._out.write(line + b"\n")
        self._out.flush()
        self.count += 1
        return self._wanted.max_messages is None or self.count < self._wanted.max_messages

    def _plain(self, record: Record) -> bytes:
        value = record.value if record.value is not None else b"null"
        if self._separator is None:
            return value
        return (record.key if record.key is not None else b"null") + self._separator + value

    def _json(self, partition: int, record: Record) -> bytes:
        return json.dumps(
            {
                "topic": self._wanted.topic,
                "partition": partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[name, _text(value)] for name, value in record.headers],
            }
        ).encode()


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def run(bootstrap: str, wanted: Wanted) -> None:
    """Print records until enough came, nothing came for long enough, or Ctrl-C."""
    printer = Printer(wanted)
    with contextlib.suppress(KeyboardInterrupt):
        connected(bootstrap, lambda client: _consume(client, wanted, printer))
    say(f"{plural(printer.count, 'record')} of {wanted.topic}")


async def _consume(client: Client, wanted: Wanted, sink: Sink) -> None:
    facts = await topics.describe_topic(client, wanted.topic)
    known = [p.partition for p in facts.partitions]
    for partition in wanted.partitions:
        if partition not in known:
            raise OttlaError(
                f"--partition {partition}: topic {wanted.topic} has partitions 0 to {known[-1]}"
            )
    topic_id = uuid_from_text(facts.topic_id) if facts.topic_id else ZERO_UUID
    idle_s = None if wanted.timeout_ms is None else wanted.timeout_ms / 1000
    if wanted.group is not None:
        member = GroupReader(
            client,
            world(),
            wanted.group,
            wanted.topic,
            lambda: Reader(client, world(), wanted.topic, topic_id),
            from_beginning=wanted.from_beginning,
        )
        await member.read(sink, idle_s)
        return
    reader = Reader(client, world(), wanted.topic, topic_id)
    if wanted.offset is not None:
        reader.start_at_offset(wanted.partitions[0], wanted.offset)
    else:
        start = EARLIEST if wanted.from_beginning else LATEST
        await reader.start_at(wanted.partitions or known, start)
    await reader.read(sink, idle_s)
