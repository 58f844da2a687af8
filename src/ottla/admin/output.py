"""What a command says: data on stdout as a table or JSON, everything else on stderr.

Who may call: the admin room. Invariants: stdout carries only what was asked for, so that it can
be piped; one line per problem; rich is imported only when a table is really drawn.
"""

import json
import sys
from collections.abc import Sequence
from enum import StrEnum


class Format(StrEnum):
    """How a listing is printed."""

    table = "table"
    json = "json"


def say(line: str) -> None:
    """Tell a person something that is not data."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def print_json(value: object) -> None:
    """Print one JSON document: of lists, dicts, structs and what is in them."""
    import msgspec  # noqa: PLC0415 - only where JSON is printed

    sys.stdout.write(json.dumps(msgspec.to_builtins(value), indent=2) + "\n")


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None
) -> None:
    """Print rows as a table; numbers are set right."""
    from rich.console import Console  # noqa: PLC0415 - only where a table is drawn
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*["-" if cell is None else str(cell) for cell in row])
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    if title:
        console.print(title)
    console.print(table)


def megabytes(count: int | None) -> str:
    """Return bytes as whole megabytes, `-` for None."""
    return "-" if count is None else f"{count / 1e6:.0f} MB"


def plural(count: int, noun: str) -> str:
    """Return `1 record`, `2 records`, `12,000 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
