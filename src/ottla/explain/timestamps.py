"""Timestamps: what a person types to name a point in time, and how one is printed.

Times without an offset are those of this machine's time zone; a time without a date belongs to the
day of the journal's last line.
"""

import re
from datetime import UTC, datetime

from ottla.model.errors import OttlaError

_MILLISECONDS = re.compile(r"\d{12,}")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?")


class UnknownTimeError(OttlaError):
    """The text names no point in time."""


def lacks_date(text: str) -> bool:
    return _TIME.fullmatch(text) is not None


def parse_time(text: str, last_ms: int = -1) -> int:
    """Return milliseconds since 1970; all of the second or minute named is meant."""
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        found = _TIME.fullmatch(text)
        if found is not None:
            hour, minute, second, fraction = found.groups()
            day = datetime.fromtimestamp(last_ms / 1000, UTC).astimezone()
            when = day.replace(
                hour=int(hour), minute=int(minute), second=int(second or 59), microsecond=999_000
            )
            if fraction is not None:
                when = when.replace(microsecond=int(fraction.ljust(3, "0")) * 1000)
        else:
            when = datetime.fromisoformat(text).astimezone()
            if re.search(r"\d:\d{2}:\d{2}(?!\.)", text) and not when.microsecond:
                when = when.replace(microsecond=999_000)
    except (ValueError, OverflowError, OSError) as error:
        raise UnknownTimeError(
            f"{text!r} is not a time: write 12:01:07, 2026-11-21T12:01:07 (an offset such as "
            f"+02:00 may follow) or milliseconds since 1970 ({error})"
        ) from error
    return int(when.timestamp() * 1000)


def time_text(ts: int) -> str:
    """Return a line's time for people: this machine's time zone, milliseconds."""
    if ts < 0:
        return "-"
    try:
        when = datetime.fromtimestamp(ts / 1000, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return str(ts)
    return when.strftime("%Y-%m-%d %H:%M:%S.") + f"{ts % 1000:03d}"
