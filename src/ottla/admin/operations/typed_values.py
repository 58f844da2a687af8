"""Values as people type them: lengths of time, moments, places in a log, settings, assignments.

ValueError for any other text. Durations: `java.time.Duration.parse`, which Kafka's tools use.
"""

import re
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.offsets import Place

_TIMES = r"(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?"
_FORMS = (
    re.compile(rf"P(?:(?P<d>\d+)D)?(?:T(?=\d){_TIMES})?", re.ASCII),
    re.compile(rf"(?:(?P<d>\d+)D)?{_TIMES}", re.ASCII),
)
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_MILLISECONDS = re.compile(r"@(\d{1,18})", re.ASCII)
_OFFSET = re.compile(r"-?\d{1,18}", re.ASCII)


def parse_duration(text: str) -> int:
    """Return the milliseconds of `P1DT2H30M`, as Kafka's tools take it, or of `1d2h30m`."""
    for form in _FORMS:
        found = form.fullmatch(text.upper())
        if found is not None and any(found.groups()):
            parts = found.groupdict()
            return round(sum(float(parts[u] or 0) * s for u, s in _SECONDS.items()) * 1000)
    raise ValueError(f"{text}: write it as P1DT2H or 1d2h, 30m, 90s")


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


def parse_place(text: str) -> "Place":
    """Return the place of `beginning`, `end`, `42`, `-10` (before the end), or of a time."""
    from ottla.client.offsets import BEGINNING, END, Place  # few values need it

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


def parse_topic_settings(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `key=value` of `--config`, ValueError for other text. The cluster checks the keys."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{pair}: write KEY=VALUE, as min.insync.replicas=2")
        settings[key.strip()] = value.strip()
    return settings


def parse_assignment(text: str) -> list[list[int]]:
    """Parse `0:1,1:2,2:0`, the brokers of each partition as Kafka's tool takes them; ValueError."""
    found = []
    for part in text.split(","):
        ids = part.split(":")
        if not all(i.isascii() and i.isdigit() and int(i) < 1 << 31 for i in ids):
            raise ValueError(f"{text}: write the brokers of each partition, as 0:1,1:2,2:0")
        numbers = [int(i) for i in ids]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"{text}: {part} names a broker twice")
        found.append(numbers)
    return found
