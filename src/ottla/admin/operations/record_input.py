"""Input of `produce`: bytes from standard input or files, cut into records.

Invariants: what is wrong is reported with the number of its record, and what stands before it is
given first; memory is bounded by one chunk and the longest record.
"""

import os
import select
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from ottla.admin.operations.record_format import InputTemplate
from ottla.admin.operations.record_json import field_of, from_line
from ottla.model.errors import OttlaError
from ottla.model.ports import World
from ottla.model.time_slices import yield_to_loop
from ottla.wire.records import NewRecord

CHUNK_BYTES = 256 * 1024
INPUT_WAIT_S = 0.2
MAX_LINE_BYTES = 32 * 1024 * 1024
"""Longer ones are refused. A record of JSON with base64 is a third longer than what it holds."""

Parse = Callable[[bytes], NewRecord]
"""Makes a record of a line without its end; ValueError says what is wrong with the line."""


class Lines:
    """Cuts bytes into records at their ends; what is wrong is named by its number."""

    def __init__(
        self, parse: Parse, end: bytes = b"\n", where: str = "", before: str = "were produced"
    ) -> None:
        """`where` is how to call the input in messages; empty for standard input.

        `before` says of the lines before a wrong one what happened to them.
        """
        self._parse = parse
        self._before = before
        self._end = end
        self._where = f"{where}, " if where else ""
        self._rest = b""
        self._number = 0

    def feed(self, chunk: bytes) -> Iterator[NewRecord]:
        """Yield the records of all whole lines; an empty chunk ends the input."""
        *lines, self._rest = (self._rest + chunk).split(self._end)
        if not chunk and self._rest:
            lines, self._rest = [self._rest], b""
        for line in lines:
            self._number += 1
            yield self._record(line)
        if len(self._rest) > MAX_LINE_BYTES:
            self._number += 1
            raise self._wrong(f"is longer than {MAX_LINE_BYTES} bytes")

    def _record(self, line: bytes) -> NewRecord:
        if self._end == b"\n":
            line = line.removesuffix(b"\r")
        if len(line) > MAX_LINE_BYTES:
            raise self._wrong(f"is longer than {MAX_LINE_BYTES} bytes")
        try:
            return self._parse(line)
        except ValueError as error:
            raise self._wrong(str(error)) from None

    def _wrong(self, what: str) -> OttlaError:
        colon = " " if what.startswith(("is ", "has ")) else ": "
        before = f"; the lines before it {self._before}" if self._number > 1 else ""
        return OttlaError(f"{self._where}line {self._number}{colon}{what}{before}")


def plain(key_separator: bytes | None, null: bytes | None) -> Parse:
    """Return what reads lines that are values, or keys and values; `null` stands for no bytes."""

    def parse(line: bytes) -> NewRecord:
        key, value = None, line
        if key_separator is not None:
            key, found, value = line.partition(key_separator)
            if not found:
                raise ValueError(f"has no key separator {key_separator.decode()!r}")
        return NewRecord(
            None if key == null else key, None if null is not None and value == null else value
        )

    return parse


def keyed(parse: Parse, name: str) -> Parse:
    """Return what reads the same, with a field of each value as the key."""

    def with_key(line: bytes) -> NewRecord:
        record = parse(line)
        return record._replace(key=field_of(record.value, name))

    return with_key


def keys_to_delete(line: bytes) -> NewRecord:
    """Return a tombstone for a line that is a key."""
    return NewRecord(line, None)


def json_lines(line: bytes) -> NewRecord:
    return from_line(line)


def template(text: str, null: bytes | None) -> tuple[Parse, bytes]:
    """Return what reads records by a template, and what stands after each; ValueError."""
    found = InputTemplate(text, null)
    return found.record, found.end


async def read_records(
    world: World, lines: Lines, path: Path | None, take: Callable[[NewRecord], None]
) -> AsyncIterator[None]:
    """Give the records of a file, or of standard input, to `take`; yield after each chunk.

    Input that waits is waited for without keeping the loop busy.
    """
    source = None if path is None else path.open("rb")
    try:
        while True:
            if source is None:
                chunk = await world.workers.run(_read_some)
                if chunk is None:
                    continue
            else:
                chunk = await world.workers.run(source.read, CHUNK_BYTES)
            failure = None
            try:
                for record in lines.feed(chunk):
                    take(record)
            except OttlaError as error:
                failure = error
            yield
            if failure is not None:
                raise failure
            if not chunk:
                return
            await yield_to_loop()
    finally:
        if source is not None:
            source.close()


def _read_some() -> bytes | None:
    """Return what is there to read, b"" at the end, None after a while of nothing."""
    ready, _, _ = select.select([sys.stdin], [], [], INPUT_WAIT_S)
    return os.read(sys.stdin.fileno(), CHUNK_BYTES) if ready else None
