"""What commands print: results on standard output as a table or JSON, messages on standard error.

Invariants: standard output carries only what was asked for, so that it can be piped; names of
topics, clients and files are data: they are never read as markup, and none of their control
characters reaches the terminal.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TextIO

from ottla.cli import tables
from ottla.model import process
from ottla.model.printable import printable

if TYPE_CHECKING:
    import msgspec

MOST_WAITS = 3
"""Printed at once: a hundred partitions may wait for the same reason."""


class Format(StrEnum):
    """How a result is printed: for people, as JSON, or as lines of tab-separated cells."""

    table = "table"
    json = "json"
    tsv = "tsv"


class Output(NamedTuple):
    """How one command prints: what --output, --quiet and --verbose say."""

    form: Format = Format.table
    quiet: bool = False
    verbose: bool = False


_WITHOUT_OPTIONS = Output()
_current: ContextVar[Output] = ContextVar("output", default=_WITHOUT_OPTIONS)


def current() -> Output:
    """Return how the running command prints; as without options where no command runs."""
    return _current.get()


@contextmanager
def printing(output: Output) -> Iterator[None]:
    """Have everything within print as `output` says."""
    token = _current.set(output)
    try:
        yield
    finally:
        _current.reset(token)


# --- results ------------------------------------------------------------------------------------


def print_result(
    form: Format,
    value: object,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str | None = None,
) -> None:
    """Print a result: a struct or a list of structs as JSON, or these rows as a table."""
    if form is Format.json:
        print_json(value)
    else:
        print_table(columns, rows, title=title)


def print_changes(form: Format, changes: "Sequence[msgspec.Struct]") -> None:
    """Print what has changed, for programs: people have read it on standard error."""
    if form is Format.json:
        print_json(changes)
    elif form is Format.tsv and changes:
        from msgspec.structs import astuple

        print_table(changes[0].__struct_fields__, [astuple(change) for change in changes])


def print_json(value: object) -> None:
    """Print one JSON document of structs, lists and dicts."""
    import msgspec  # only where JSON is printed

    sys.stdout.write(readable_json(msgspec.to_builtins(value, str_keys=True)) + "\n")


def readable_json(value: object) -> str:
    """Return indented JSON, but a list of numbers (brokers, offsets) on one line."""
    import json  # only where JSON is printed

    # A JSON string contains no line break, so this finds lists only.
    return re.sub(
        r"\[\n\s+(-?[\d.]+(?:,\n\s+-?[\d.]+)*)\n\s+\]",
        lambda found: "[" + re.sub(r",\s+", ", ", found[1]) + "]",
        json.dumps(value, indent=2),
    )


def print_json_line(value: object) -> None:
    """Print one of many JSON documents, on a line of its own."""
    import json  # only where JSON is printed

    import msgspec

    print_line(json.dumps(msgspec.to_builtins(value, str_keys=True)))


def print_watched(form: Format, value: object, table: Callable[[], None]) -> None:
    """Print one of many results: JSON as one line, a table in place of the one before."""
    if form is Format.json:
        print_json_line(value)
    else:
        if form is Format.table and sys.stdout.isatty():
            sys.stdout.write(tables.CLEAR)
        table()
    sys.stdout.flush()


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None
) -> None:
    """Print rows: aligned on a terminal, separated by tabs in a pipe (see `tables.write`)."""
    tabs = current().form is Format.tsv
    if title:
        sys.stdout.write(("# " if tabs else "") + printable(title) + "\n")
    tables.write(columns, rows, sys.stdout, tabs=tabs)


def print_line(text: str) -> None:
    """Print one line of data to standard output."""
    sys.stdout.write(printable(text) + "\n")


def print_prose(text: str, hanging: int = 2) -> None:
    """Print one line of prose; on a terminal it is wrapped between words.

    `hanging`: by how many columns the lines after the first are indented further.
    """
    sys.stdout.write(_wrapped(text, hanging, sys.stdout) + "\n")


# --- messages -----------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print a message, which is not data, to standard error, except with --quiet."""
    if not current().quiet:
        complain(text)


def complain(text: str) -> None:
    """Print what went wrong to standard error; if that fails, nothing more can be done."""
    try:
        for line in text.split("\n"):
            sys.stderr.write(printable(line) + "\n")
        sys.stderr.flush()
    except OSError:
        process.give_up(sys.stderr)


def print_waits(texts: Sequence[str]) -> None:
    """Print what the command waits for (`waits`) to standard error."""
    if sys.stderr.isatty():
        sys.stderr.write(tables.CLEAR_LINE)  # that of `progress.Progress`
    for text in texts[:MOST_WAITS]:
        complain(f"waiting: {text}")
    if len(texts) > MOST_WAITS:
        complain(f"waiting: and for {len(texts) - MOST_WAITS} more of the kind")


def say_prose(text: str, hanging: int = 2) -> None:
    """Print a message as `say` does, wrapped as by `print_prose`."""
    for line in _wrapped(text, hanging, sys.stderr).split("\n"):
        say(line)


def _wrapped(text: str, hanging: int, out: TextIO) -> str:
    line = printable(text)
    if not out.isatty():
        return line
    import shutil  # only for a terminal
    import textwrap

    return textwrap.fill(
        line,
        max(20, shutil.get_terminal_size((80, 24)).columns),
        subsequent_indent=line[: len(line) - len(line.lstrip(" "))] + " " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def ids(brokers: Sequence[int]) -> str:
    """Return broker ids with commas between them, `-` for none."""
    return ",".join(map(str, brokers)) or "-"


def megabytes(count: int | None) -> str:
    """Return bytes as whole megabytes, `-` for None."""
    return "-" if count is None else f"{count / 1e6:.0f} MB"
