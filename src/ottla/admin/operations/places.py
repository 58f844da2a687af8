"""Where reading begins and ends, as people type it: an offset, an end of the log, a time.

Pure but for the clock of a time "so long ago".
"""

import re
from typing import NamedTuple

from ottla.admin.operations.moments import parse_moment
from ottla.model.protocol import EARLIEST, LATEST

_OFFSET = re.compile(r"-?\d{1,18}", re.ASCII)


class Place(NamedTuple):
    """One of these is set. `before_end` counts records back from the end of each partition."""

    offset: int | None = None
    before_end: int | None = None
    timestamp: int | None = None
    """a time, or EARLIEST or LATEST"""


BEGINNING, END = Place(timestamp=EARLIEST), Place(timestamp=LATEST)


def parse_place(text: str) -> Place:
    """Return the place of `beginning`, `end`, `42`, `-10` (before the end), or of a time."""
    if text in ("beginning", "earliest"):
        return BEGINNING
    if text in ("end", "latest"):
        return END
    if _OFFSET.fullmatch(text):
        number = int(text)
        return Place(before_end=-number) if text.startswith("-") else Place(offset=number)
    try:
        return Place(timestamp=parse_moment(text))
    except ValueError:
        raise ValueError(
            f"{text}: write beginning, end, an offset, -N (before the end), a time as "
            "2026-01-31T12:00 or @1790000000000 (milliseconds), or 1h30m (ago)"
        ) from None
