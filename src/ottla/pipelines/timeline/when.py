"""When: times and lengths as people read them.

Who may call: this room. Invariants: pure.
"""

from datetime import datetime
from zoneinfo import ZoneInfo


def clock(time_ms: int, zone: str) -> str:
    """Return `2026-11-22 16:00:00,000`, as log4j writes it."""
    moment = datetime.fromtimestamp(time_ms // 1000, ZoneInfo(zone))
    return f"{moment:%Y-%m-%d %H:%M:%S},{time_ms % 1000:03d}"


def seconds(ms: int) -> str:
    return f"{ms / 1000:.3f}"
