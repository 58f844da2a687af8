"""Moments as people type them: a date and time, milliseconds since 1970, or so long ago."""

import re
import time
from datetime import datetime

from ottla.admin.operations.durations import parse_duration

_MILLISECONDS = re.compile(r"@(\d{1,18})", re.ASCII)


def parse_moment(text: str) -> int:
    """Return milliseconds since 1970 for `2026-01-31T12:00`, `@1790000000000`, or `1h30m` ago.

    A date and time without a zone is that of this machine. ValueError for anything else.
    """
    exact = _MILLISECONDS.fullmatch(text)
    if exact:
        return int(exact[1])
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return time.time_ns() // 1_000_000 - parse_duration(text.removeprefix("-"))
    except ValueError:
        raise ValueError(
            f"{text}: write a time as 2026-01-31T12:00, @1790000000000 (milliseconds), "
            "or 1h30m (ago)"
        ) from None
