"""Notifications: which of those in ZooKeeper this broker has read, and which are old.

Invariants: each notification is read once, however many others stay beside it until they are
removed: with 10,000 of them, every further change would read 10,000. Kafka:
`ZkNodeChangeNotificationListener`.
"""

from collections.abc import Iterable

PURGE_AFTER_MS = 15 * 60 * 1000


class Notifications:
    """Those below one znode, in one session."""

    def __init__(self) -> None:
        self._ctimes_ms: dict[str, int] = {}

    def unread(self, names: Iterable[str]) -> list[str]:
        """Return those that were not read yet; forget what no longer exists."""
        names = list(names)
        known = self._ctimes_ms
        self._ctimes_ms = {name: known[name] for name in names if name in known}
        return [name for name in names if name not in known]

    def read(self, name: str, ctime_ms: int) -> None:
        """Note that one was read and handled; `ctime_ms`: since when it exists."""
        self._ctimes_ms[name] = ctime_ms

    def old(self, now_ms: int) -> list[str]:
        """Return those that every broker has read long ago."""
        return [n for n, ctime in self._ctimes_ms.items() if now_ms - ctime > PURGE_AFTER_MS]
