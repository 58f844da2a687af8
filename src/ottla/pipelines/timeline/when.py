"""When: times and lengths as people read them.

Invariants: pure.
"""

from datetime import datetime
from zoneinfo import ZoneInfo


def clock(time_ms: int, zone: str) -> str:
    """Return `2026-11-22 16:00:00,000`, as log4j writes it."""
    moment = datetime.fromtimestamp(time_ms // 1000, ZoneInfo(zone))
    return f"{moment:%Y-%m-%d %H:%M:%S},{time_ms % 1000:03d}"


def seconds(ms: int) -> str:
    return f"{ms / 1000:.3f}"


def length(least_ms: int, most_ms: int) -> str:
    """Return `0.024 to 6.300 s`, or `6.300 s` where both bounds are the same."""
    most = f"{seconds(most_ms)} s"
    return most if least_ms == most_ms else f"{seconds(least_ms)} to {most}"
