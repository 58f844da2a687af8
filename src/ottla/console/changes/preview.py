"""The page between asking for a change and making it."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.console.page import Page

ROWS_SHOWN = 200


class Preview(NamedTuple):
    """What would be changed: lines, and a table of `heads` and `rows`.

    `fields` go to `action` when `button` is pressed; `back` is where a no leads. `details` is text
    to keep: its heading, and the text. `see`: a page to look at before, its text and URL.
    """

    title: str
    lines: Sequence[str]
    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    action: str
    fields: Sequence[tuple[str, str]]
    button: str
    back: str
    details: tuple[str, str] | None = None
    see: tuple[str, str] | None = None


def preview(of: Preview) -> Page:
    """Return the page."""
    more = max(0, len(of.rows) - ROWS_SHOWN)
    values = {"title": of.title, "of": of, "rows": of.rows[:ROWS_SHOWN], "more": more}
    return Page("preview.html", values)
