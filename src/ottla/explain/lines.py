"""Lines: a journal's lines with the place where they stand.

A decider: text in, values out. What lines hold, and how they are checked, is in
`model.journal_schema`.
"""

from typing import Any, NamedTuple

from ottla.model.journal_schema import AnyLine, read_line


class Entry(NamedTuple):
    """A line, its typed facts if it is an event or snapshot part we know, and where it stands."""

    line: AnyLine
    facts: Any
    file: str
    number: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.number}"


def parse(raw: bytes, file: str, number: int) -> Entry:
    """Return one line as an entry; DamagedLineError if it does not fit."""
    line, facts = read_line(raw)
    return Entry(line, facts, file, number)
