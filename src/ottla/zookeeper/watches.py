"""The one-shot watches that a session has on the server, and the callbacks of each.

Invariants: a watch is kept only once the server confirmed the read that left it; an event removes
its watches; the tables are dropped with the session. Kafka: `ZKWatchManager`.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from ottla.zookeeper import jute


class WatchType(IntEnum):
    """What happened to the watched znode."""

    CREATED = jute.NODE_CREATED
    DELETED = jute.NODE_DELETED
    DATA_CHANGED = jute.NODE_DATA_CHANGED
    CHILDREN_CHANGED = jute.NODE_CHILDREN_CHANGED


class WatchEvent(NamedTuple):
    """A watch fired. It carries no facts: read again to learn them."""

    type: WatchType
    path: str


WatchCallback = Callable[[WatchEvent], None]


class Watches:
    """Three tables, as the server keeps them: on data, on a path not yet there, on children."""

    def __init__(self) -> None:
        self.data: dict[str, list[WatchCallback]] = {}
        self.absent: dict[str, list[WatchCallback]] = {}
        self.children: dict[str, list[WatchCallback]] = {}

    def take(self, event: WatchEvent) -> list[WatchCallback]:
        """Remove and return the callbacks of `event`, in the order of registration."""
        if event.type == WatchType.CHILDREN_CHANGED:
            return self.children.pop(event.path, [])
        found = self.data.pop(event.path, []) + self.absent.pop(event.path, [])
        if event.type == WatchType.DELETED:
            for callback in self.children.pop(event.path, []):
                if callback not in found:
                    found.append(callback)
        return found

    def clear(self) -> None:
        for table in (self.data, self.absent, self.children):
            table.clear()

    def __len__(self) -> int:
        return len(self.data) + len(self.absent) + len(self.children)
