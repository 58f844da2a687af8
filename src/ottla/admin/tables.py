"""Tables on a terminal: columns that fit its width, colour with a meaning; tab-separated in a pipe.

Invariants: a cell is data: control characters and the like are shown as escapes and never reach the
terminal; a word is never cut; nothing is left out. A table that is wider than the terminal is
wrapped at commas and spaces (headings at hyphens, too), then its columns stand closer; if that is
not enough each row is printed as a block of `column: value` lines.
"""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TextIO

from ottla.model.printable import printable

GAP, NARROW_GAP = 2, 1
CLEAR = "\x1b[H\x1b[2J"
"""To a terminal: the cursor home, the screen empty."""
CLEAR_LINE = "\r\x1b[K"
"""To a terminal: the cursor at the begin of its line, the line empty."""
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

    width = shutil.get_terminal_size((80, 24)).columns
    colour = colours(out)
    heads = [Styled(c, "bold") for c in columns]
    for gap in (GAP, NARROW_GAP):
        found = _widths(columns, cells, width, gap)
        if found is not None:
            for row in [heads, *cells]:
                printed = _lines(row, found, right, gap, colour=colour, hyphens=row is heads)
                out.writelines(line + "\n" for line in printed)
            return
    _write_blocks(columns, cells, out, colour=colour)


def _cell(value: object) -> Styled:
    if value is None:
        return Styled("-", "")
    if isinstance(value, Styled):
        return Styled(printable(value.text), value.style)
    return Styled(printable(str(value)), "")


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata  # only for such texts

    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _words(text: str, *, hyphens: bool = False) -> list[str]:
    """Cut a text behind commas and spaces; a heading behind hyphens, too."""
    words = [""]
    for c in text:
        words[-1] += c
        if c in ", " or (hyphens and c == "-"):
            words.append("")
    return [w for w in words if w]


def _widths(
    columns: Sequence[str], rows: Sequence[Sequence[Styled]], width: int, gap: int
) -> list[int] | None:
    """Return the columns' widths, or None if a table cannot be made so narrow."""
    natural, least = [], []
    for i, column in enumerate(columns):
        texts = [row[i].text for row in rows]
        natural.append(max(map(text_width, [column, *texts])))
        words = [w for t in texts for w in _words(t)] + _words(column, hyphens=True)
        least.append(max((text_width(w.rstrip(" ")) for w in words), default=0))
    excess = sum(natural) + gap * (len(columns) - 1) - width
    while excess > 0:
        i = max(range(len(columns)), key=lambda i: natural[i] - least[i])
        if natural[i] == least[i]:
            return None
        step = min(excess, (natural[i] - least[i] + 1) // 2)
        natural[i] -= step
        excess -= step
    return natural


def _lines(
    row: Sequence[Styled],
    widths: Sequence[int],
    right: Sequence[bool],
    gap: int,
    *,
    colour: bool,
    hyphens: bool,
) -> Iterator[str]:
    parts = [
        _wrapped(cell.text, width, hyphens=hyphens) for cell, width in zip(row, widths, strict=True)
    ]
    for n in range(max(map(len, parts), default=0)):
        line, pending = "", 0
        for cell, part, width, is_right in zip(row, parts, widths, right, strict=True):
            text = part[n] if n < len(part) else ""
            blanks = width - text_width(text)
            shown = styled(text, cell.style) if colour and cell.style and text else text
            before = pending + (blanks if is_right else 0)
            if text:
                line += " " * before + shown
                pending = gap + (0 if is_right else blanks)
            else:
                pending += width + gap
        yield line


def _wrapped(text: str, width: int, *, hyphens: bool) -> list[str]:
    if text_width(text) <= width:
        return [text]
    lines = [""]
    for word in _words(text, hyphens=hyphens):
        if lines[-1] and text_width((lines[-1] + word).rstrip(" ")) > width:
            lines.append("")
        lines[-1] += word
    return [line.rstrip(" ") for line in lines]


def _write_blocks(
    columns: Sequence[str], rows: Sequence[Sequence[Styled]], out: TextIO, *, colour: bool
) -> None:
    for number, row in enumerate(rows):
        if number:
            out.write("\n")
        for column, cell in zip(columns, row, strict=True):
            if cell.text and cell.text != "-":
                text = styled(cell.text, cell.style) if colour and cell.style else cell.text
                out.write(f"{column or 'note'}: {text}\n")
