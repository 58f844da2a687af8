"""Tables on a terminal: columns that fit its width, colour with a meaning; tab-separated in a pipe.

Invariants: a cell is data: control characters and the like are shown as escapes and never reach the
terminal; a word is never cut; nothing is left out. A table that is wider than the terminal is
wrapped at commas and spaces (headings at hyphens, too), then its columns stand closer; if that is
not enough each row is printed as a block of `column: value` lines.
"""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple, TextIO

from ottla.model.printable import printable

GAP, NARROW_GAP = 2, 1
CLEAR = "\x1b[H\x1b[2J"
"""To a terminal: the cursor home, the screen empty."""
CLEAR_LINE = "\r\x1b[K"
"""To a terminal: the cursor at the start of its line, the line empty."""
_WORD = re.compile(r"[^, ]*[, ]|[^, ]+")
_HEADING_WORD = re.compile(r"[^, -]*[, -]|[^, -]+")
_CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}


class Styled(NamedTuple):
    """A cell with a colour: `red`, `green`, `yellow` or `bold`."""

    text: str
    style: str


def good(text: str) -> Styled:
    """Return a cell that says that something is as it should be."""
    return Styled(text, "green")


def bad(text: str) -> Styled:
    """Return a cell that says that something is wrong."""
    return Styled(text, "red")


def colours(out: TextIO) -> bool:
    """Return whether `out` is a terminal that shows colours (https://no-color.org)."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str) -> str:
    """Return text between the codes of a style."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


class _Cell(NamedTuple):
    """A cell as the words that may stand on lines of their own, each with the blank after it."""

    words: list[str]
    style: str = ""

    @property
    def text(self) -> str:
        return "".join(self.words)


def write(
    columns: Sequence[str], rows: Sequence[Sequence[object]], out: TextIO, *, tabs: bool = False
) -> None:
    """Write a table. Cells: text, `Styled`, numbers (set right); None is `-`, right beside numbers.

    `tabs`: between tabs on a terminal, too.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    if tabs or not out.isatty():
        lines = [columns, *([cell.text for cell in row] for row in cells)]
        out.writelines("\t".join(line) + "\n" for line in lines)
        return
    right = [
        all(isinstance(row[i], int | float | None) for row in rows)
        and any(row[i] is not None for row in rows)
        for i in range(len(columns))
    ]
    import shutil  # only for a terminal

    room = shutil.get_terminal_size((80, 24)).columns
    colour = colours(out)
    table = [[_Cell(_HEADING_WORD.findall(c), "bold") for c in columns], *cells]
    for gap in (GAP, NARROW_GAP):
        widths = _widths(table, room - gap * (len(columns) - 1))
        if widths is not None:
            for row in table:
                out.writelines(_lines(row, widths, right, " " * gap, colour=colour))
            return
    for number, row in enumerate(cells):
        out.write("\n" if number else "")
        for column, cell in zip(columns, row, strict=True):
            if cell.text not in ("", "-"):
                out.write(f"{column or 'note'}: {_shown(cell.text, cell.style, colour)}\n")


def _cell(value: object) -> _Cell:
    text, style = value if isinstance(value, Styled) else (value, "")
    return _Cell(_WORD.findall(printable("-" if text is None else str(text))), style)


def _shown(text: str, style: str, colour: bool) -> str:
    return styled(text, style) if colour and style and text else text


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata  # only for such texts

    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _widths(table: Sequence[Sequence[_Cell]], room: int) -> list[int] | None:
    """Return the columns' widths, or None if a table cannot be made so narrow."""
    natural = [max(text_width(cell.text) for cell in column) for column in zip(*table, strict=True)]
    least = [
        max((text_width(word.rstrip(" ")) for cell in column for word in cell.words), default=0)
        for column in zip(*table, strict=True)
    ]
    while (excess := sum(natural) - room) > 0:
        i = max(range(len(natural)), key=lambda i: natural[i] - least[i])
        if natural[i] == least[i]:
            return None
        natural[i] -= min(excess, (natural[i] - least[i] + 1) // 2)
    return natural


def _lines(
    row: Sequence[_Cell], widths: Sequence[int], right: Sequence[bool], gap: str, *, colour: bool
) -> Iterator[str]:
    wrapped = [_wrapped(cell.words, width) for cell, width in zip(row, widths, strict=True)]
    for texts in zip_longest(*wrapped, fillvalue=""):
        parts = []
        for text, cell, width, is_right in zip(texts, row, widths, right, strict=True):
            blanks = " " * (width - text_width(text))
            shown = _shown(text, cell.style, colour)
            parts.append(blanks + shown if is_right else shown + blanks)
        yield gap.join(parts).rstrip(" ") + "\n"


def _wrapped(words: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and text_width((lines[-1] + word).rstrip(" ")) > width:
            lines.append("")
        lines[-1] += word
    return [line.rstrip(" ") for line in lines]
