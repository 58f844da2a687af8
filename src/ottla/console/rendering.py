"""Pages from templates: what a cluster says is escaped, and shown without control characters.

Invariants: every value is escaped, whichever template it is in; control and format characters (ESC,
those that turn the direction of writing) are shown as text; a variable that is missing is an error
of ours.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ottla.model.printable import plural, printable

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
KIB = 1024
OWN_URL = re.compile(r'( (?:href|src|action|data-live)=")/')


class Pages(NamedTuple):
    """Which part of a list is shown: `first` and `last` count from 1."""

    page: int
    pages: int
    first: int
    last: int
    total: int


T = TypeVar("T")


def paged(rows: Sequence[T], page: int, size: int) -> tuple[Sequence[T], Pages]:
    """Return one page of a list; a page behind the last one is the last one."""
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, page), pages)
    first = (page - 1) * size
    part = rows[first : first + size]
    return part, Pages(page, pages, first + 1 if part else 0, first + len(part), len(rows))


def _finalize(value: object) -> object:
    if hasattr(value, "__html__"):
        return value
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return f"{value:,.1f}"
    return printable(str(value))


def number(value: float | None) -> str:
    """Return a number with its thousands, `-` for None."""
    return "-" if value is None else f"{round(value):,}"


def size(value: float | None) -> str:
    """Return bytes as people read them, `-` for None and for what a broker does not tell."""
    if value is None or value < 0:
        return "-"
    for unit in UNITS:
        if value < KIB or unit == UNITS[-1]:
            return f"{value:,.0f} {unit}" if unit == UNITS[0] else f"{value:,.1f} {unit}"
        value /= KIB
    raise AssertionError


def block(text: str) -> Markup:
    """Return text of several lines, its line ends and tabs kept."""
    if not text.isprintable():
        text = "".join(c if c in "\n\t" else printable(c) for c in text)
    return escape(text)


def as_typed(text: str) -> Markup:
    """Return the value of a form's field as it was typed, to be sent again."""
    return escape(text)


def path(*parts: object, **query: object) -> str:
    """Return a URL of ours: each part and value quoted."""
    url = "/" + "/".join(quote(str(part), safe="") for part in parts)
    given = {k: v for k, v in query.items() if v not in (None, "")}
    return f"{url}?{urlencode(given, errors='replace')}" if given else url


def placed(html: str, place: str) -> str:
    """Return a page with all its own URLs below a session's place.

    Values are escaped, and have no quotation marks: what is found is the templates'.
    """
    return OWN_URL.sub(lambda found: f"{found[1]}{place}/", html) if place else html


def ids(brokers: Sequence[int]) -> str:
    """Return broker ids as a list in words."""
    return ", ".join(map(str, brokers)) or "none"


NAVIGATION = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/transactions", "Transactions"),
    ("/reassign", "Reassignments"),
    ("/acls", "Access"),
    ("/users", "Users"),
    ("/settings?kind=broker", "Settings"),
    ("/doctor", "Doctor"),
    ("/whatif", "What if"),
)
LOCAL = (("/why", "Why"), ("/chaos", "Chaos"))
"""Pages that need the files of a cluster on this machine."""


def navigation(console: Any) -> list[tuple[str, str]]:
    """Return the pages that every page links to."""
    return [*NAVIGATION, *(LOCAL if console.folder is not None else ())]


def environment() -> Environment:
    """Return what makes pages."""
    made = Environment(
        loader=PackageLoader("ottla.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "number": number,
        "size": size,
        "ids": ids,
        "block": block,
        "as_typed": as_typed,
    }
    made.globals |= {"path": path, "plural": plural, "navigation": navigation}
    return made
