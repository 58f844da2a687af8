"""Output of commands: data on standard output as a table or JSON, all else on standard error.

Invariants: standard output carries only what was asked for, so that it can be piped; names of
topics, clients and files are data: they are never read as markup and no control character of theirs
reaches the terminal.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TextIO

from ottla.admin import tables
from ottla.model import process
from ottla.model.printable import printable

quiet = verbose = False
"""What --quiet and --verbose set for every command."""

MOST_WAITS = 3
"""Printed at once: a hundred partitions may wait for the same reason."""

_tabs = False
"""Whether --output tsv was typed."""


class Format(StrEnum):
    """How a result is printed: for people, as JSON or YAML, or as lines of cells between tabs."""

    table = "table"
    json = "json"
    yaml = "yaml"
    tsv = "tsv"


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
    """Print what went wrong to standard error; where that fails nothing more can be done."""
    try:
        for line in text.split("\n"):
            sys.stderr.write(printable(line) + "\n")
        sys.stderr.flush()
    except OSError:
        process.give_up(sys.stderr)


def print_waits(texts: Sequence[str]) -> None:
    """Print what the command waits for (`model.waits`) to standard error."""
    if sys.stderr.isatty():
        sys.stderr.write(tables.CLEAR_LINE)  # that of `progress.Progress`
    for text in texts[:MOST_WAITS]:
        complain(f"waiting: {text}")
    if len(texts) > MOST_WAITS:
        complain(f"waiting: and for {len(texts) - MOST_WAITS} more of the kind")


def structured(output: Format) -> bool:
    """Return whether a result is to be printed as JSON or YAML; if not, as a table or tsv."""
    global _tabs  # noqa: PLW0603 - one command line for each process
    _tabs = output is Format.tsv
    return output in (Format.json, Format.yaml)


def readable_json(value: object) -> str:
    """Return JSON for people: indented, but a list of numbers (brokers, offsets) on one line."""
    import json  # only where it is printed

    # A line's end stands in no string of JSON, so this finds lists alone.
    return re.sub(
        r"\[\n\s+(-?[\d.]+(?:,\n\s+-?[\d.]+)*)\n\s+\]",
        lambda found: "[" + re.sub(r",\s+", ", ", found[1]) + "]",
        json.dumps(value, indent=2),
    )


def print_structured(output: Format, value: object) -> None:
    """Print one document: of lists, dicts, structs and what is in them."""
    import msgspec  # only where it is printed

    plain = msgspec.to_builtins(value, str_keys=True)
    if output is Format.yaml:
        from ottla.admin.yaml_text import to_yaml

        sys.stdout.write(to_yaml(plain))
    else:
        sys.stdout.write(readable_json(plain) + "\n")


def print_watched(output: Format, value: object, table: Callable[[], None]) -> None:
    """Print one look of many: JSON as a line, a table in the place of the one before."""
    if output is Format.json:
        import json  # only where it is printed

        import msgspec

        print_line(json.dumps(msgspec.to_builtins(value, str_keys=True)))
    elif structured(output):
        print_structured(output, value)
    else:
        if output is Format.table and sys.stdout.isatty():
            sys.stdout.write(tables.CLEAR)
        table()
    sys.stdout.flush()


def print_json(value: object) -> None:
    """Print one JSON document."""
    print_structured(Format.json, value)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None
) -> None:
    """Print rows: aligned on a terminal, separated by tabs in a pipe (see `tables.write`)."""
    if title:
        sys.stdout.write(("# " if _tabs else "") + printable(title) + "\n")
    tables.write(columns, rows, sys.stdout, tabs=_tabs)


def print_results(output: Format, rows: Sequence[Mapping[str, object]]) -> None:
    """Print what a change came to, for programs; people have seen it in words."""
    if structured(output):
        print_structured(output, rows)
    elif output is Format.tsv and rows:
        print_table(tuple(rows[0]), [tuple(row.values()) for row in rows])


def print_line(text: str) -> None:
    """Print one line of data to standard output."""
    sys.stdout.write(printable(text) + "\n")


def print_prose(text: str, hanging: int = 2) -> None:
    """Print one line of words; on a terminal it is broken between words, and what follows set in.

    `hanging`: how many blanks more than the line begins with.
    """
    sys.stdout.write(_broken(text, hanging, sys.stdout) + "\n")


def say_prose(text: str, hanging: int = 2) -> None:
    """Print a message as `say` does, broken as by `print_prose`."""
    if not quiet:
        for line in _broken(text, hanging, sys.stderr).split("\n"):
            complain(line)


def _broken(text: str, hanging: int, out: TextIO) -> str:
    line = printable(text)
    if out.isatty():
        import shutil  # only for a terminal
        import textwrap

        width = max(20, shutil.get_terminal_size((80, 24)).columns)
        begin = line[: len(line) - len(line.lstrip(" "))]
        broken = textwrap.wrap(
            line, width, subsequent_indent=begin + " " * hanging, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        line = "\n".join(broken)
    return line


def megabytes(count: int | None) -> str:
    """Return bytes as whole megabytes, `-` for None."""
    return "-" if count is None else f"{count / 1e6:.0f} MB"
