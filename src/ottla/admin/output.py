"""Output of commands: data on standard output as a table or JSON, all else on standard error.

Who may call: `admin`, `explain`. Invariants: standard output carries only what was asked for, so
that it can be piped; names of topics, clients and files are data: they are never read as markup and
no control character of theirs reaches the terminal.
"""

import sys
from collections.abc import Sequence
from enum import StrEnum

from ottla.admin import tables

quiet = verbose = False
"""What every command may be told by --quiet and --verbose."""


class Format(StrEnum):
    """How a listing is printed."""

    table = "table"
    json = "json"


class InputForm(StrEnum):
    """How the input of `produce` is written."""

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


class Isolation(StrEnum):
    """Which records of transactions are read: by number."""

    read_uncommitted = "read_uncommitted"
    read_committed = "read_committed"


def say(text: str) -> None:
    """Print a message, which is not data, to standard error, unless --quiet was typed."""
    if not quiet:
        complain(text)


def complain(text: str) -> None:
    """Print what went wrong to standard error."""
    for line in text.split("\n"):
        sys.stderr.write(tables.printable(line) + "\n")
    sys.stderr.flush()


def print_json(value: object) -> None:
    """Print one JSON document: of lists, dicts, structs and what is in them."""
    import json  # noqa: PLC0415 - only where JSON is printed

    import msgspec  # noqa: PLC0415

    sys.stdout.write(json.dumps(msgspec.to_builtins(value), indent=2) + "\n")


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None
) -> None:
    """Print rows: aligned on a terminal, separated by tabs in a pipe (see `tables.write`)."""
    if title:
        sys.stdout.write(tables.printable(title) + "\n")
    tables.write(columns, rows, sys.stdout)


def print_line(text: str) -> None:
    """Print one line of data to standard output."""
    sys.stdout.write(tables.printable(text) + "\n")


def megabytes(count: int | None) -> str:
    """Return bytes as whole megabytes, `-` for None."""
    return "-" if count is None else f"{count / 1e6:.0f} MB"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return `1 record`, `2 records`, `12,000 records`; `nouns` is a plural without -s."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"
