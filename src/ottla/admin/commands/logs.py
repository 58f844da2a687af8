"""The command `logs`: what is in the files of a log dir, and what is wrong with them.

Invariants: offline; nothing is written; exit code 1 for damage.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ottla.cli import Argument, Option, UsageError
from ottla.cli.output import Format, complain, say
from ottla.model.printable import plural, printable

if TYPE_CHECKING:
    from ottla.admin.log_files.entries import Entry

EXIT_DAMAGED = 1


def logs(
    paths: Annotated[list[Path], Argument(metavar="FILE|FOLDER...")],
    records: Annotated[
        bool,
        Option("--records", help="Also print each record's metadata", hidden=("--deep-iteration",)),
    ] = False,
    contents: Annotated[
        bool,
        Option("--contents", help="Also print keys and values; decode groups and transactions"),
    ] = False,
    as_text: Annotated[
        bool, Option("--print-data-log", help="Also print keys and values, as text")
    ] = False,
    as_offsets: Annotated[
        bool, Option("--offsets-decoder", help="Decode records as offsets and groups")
    ] = False,
    as_transactions: Annotated[
        bool, Option("--transaction-log-decoder", help="Decode records as transaction states")
    ] = False,
    check: Annotated[
        bool, Option("--check", help="Read all records, and print only what is damaged")
    ] = False,
    output: Annotated[
        Format, Option("--output", help="Format; table is what Kafka's tool prints")
    ] = (Format.table),
) -> int:
    from ottla.admin.log_files.entries import Note, Problem
    from ottla.admin.log_files.files import dump, expanded, topic_of
    from ottla.model.ids import (
        GROUP_METADATA_TOPIC,
        TRANSACTION_STATE_TOPIC,
    )

    forms = {Format.table: _Lines, Format.json: _JsonList, Format.tsv: _Tabs}
    writer = _Nothing() if check else forms[output]()
    if as_offsets + as_transactions + as_text > 1:
        raise UsageError(
            "--print-data-log, --offsets-decoder, --transaction-log-decoder: only one of them"
        )
    named = None
    if as_offsets or as_transactions:
        named = GROUP_METADATA_TOPIC if as_offsets else TRANSACTION_STATE_TOPIC
    printing = contents or as_text or named is not None
    damaged = 0
    files = expanded(paths)  # what is not there is said before anything is printed
    for path in files:
        entries = dump(
            path,
            records=records or printing or check,
            contents=printing,
            state_of=None if as_text or not printing else named or topic_of(path),
        )
        writer.begin(path)
        for found in entries:
            if isinstance(found, Problem):
                damaged += 1
                where = "" if found.position is None else f" at byte {found.position}"
                writer.flush()
                complain(f"{path}{where}: {found.what}")
            elif isinstance(found, Note):
                if not check:
                    writer.flush()
                    say(f"{path}: {found.what}")
            elif isinstance(found, str):
                writer.line(found)
            else:
                writer.entry(path, found)
    writer.end()
    if check and not damaged:
        say(f"{plural(len(files), 'file')}, nothing wrong")
    return EXIT_DAMAGED if damaged else 0


class _Nothing:
    """Prints no entries."""

    def begin(self, path: Path) -> None: ...

    def line(self, text: str) -> None: ...

    def entry(self, path: Path, found: "Entry") -> None: ...

    def end(self) -> None: ...

    def flush(self) -> None:
        """Let what was printed be seen before what is said next."""
        sys.stdout.flush()


class _Lines(_Nothing):
    """Prints the lines of Kafka's tool."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()

    def begin(self, path: Path) -> None:
        self.line(f"Dumping {path}")

    def line(self, text: str) -> None:
        sys.stdout.write((printable(text) if self._terminal else text) + "\n")

    def entry(self, _path: Path, found: "Entry") -> None:
        self.line(found.text)


def _fields(path: Path, found: "Entry") -> dict[str, object]:
    import msgspec

    fields: dict[str, object] = msgspec.to_builtins(found)
    fields.pop("shown", None)
    return {**fields, "file": str(path)}


class _Tabs(_Nothing):
    """Prints file, kind, and what an entry holds as name=value, between tabs."""

    def entry(self, path: Path, found: "Entry") -> None:
        fields = _fields(path, found)
        cells = [str(fields.pop("file")), str(fields.pop("kind"))]
        cells += [f"{name}={value}" for name, value in fields.items() if value is not None]
        sys.stdout.write("\t".join(printable(c) for c in cells) + "\n")


class _JsonList(_Nothing):
    """Prints one list, an entry a line, without holding it in memory."""

    def __init__(self) -> None:
        self._before = "[\n"

    def entry(self, path: Path, found: "Entry") -> None:
        import json

        sys.stdout.write(self._before + json.dumps(_fields(path, found)))
        self._before = ",\n"

    def end(self) -> None:
        sys.stdout.write("[]\n" if self._before == "[\n" else "\n]\n")
