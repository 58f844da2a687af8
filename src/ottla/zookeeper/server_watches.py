"""The watches that connections have on a server's znodes, and who hears of an event.

Invariants: a standard watch fires once; a persistent one stays, a recursive one hears of everything
below its path but of changed children; a connection hears of a deletion once; an event is for those
who may read the znode; a connection's watches go with it. ZooKeeper: `WatchManager`, and the two of
them in `DataTree`.
"""

import sys
from collections.abc import Iterator
from typing import Generic, TypeVar

from ottla.zookeeper.errors import ThrottledError
from ottla.zookeeper.watches import WatchEvent, WatchType

STANDARD, PERSISTENT, RECURSIVE = 1, 2, 4
ANY = STANDARD | PERSISTENT | RECURSIVE
# Modes and types as clients send them: AddWatchMode, WatcherType.
MODES = {0: PERSISTENT, 1: RECURSIVE}
WATCH_BYTES = 300
"""What a watch costs beside its path, about."""
MAX_BYTES = 32 << 20
"""Of one connection's watches."""
MAX_TOTAL_BYTES = 128 << 20
C = TypeVar("C")
Table = dict[str, dict[C, int]]


class ServerWatches(Generic[C]):
    """Two tables: on data and existence, and on children; in each the modes by connection."""

    def __init__(self) -> None:
        self.data: Table[C] = {}
        self.children: Table[C] = {}
        self._of: dict[C, dict[str, None]] = {}
        self._recursive = 0
        self.count = 0
        """How many watches there are; `len` counts paths."""
        self._bytes: dict[C, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.data) + len(self.children)

    def add(self, table: Table[C], path: str, connection: C, mode: int = STANDARD) -> None:
        """ThrottledError if the watches of the connection, or of all, take too much memory."""
        watchers = table.get(path, {})
        before = watchers.get(connection, 0)
        if not before:
            size = sys.getsizeof(path) + WATCH_BYTES
            own = self._bytes.get(connection, 0) + size
            if own > MAX_BYTES or self.bytes + size > MAX_TOTAL_BYTES:
                raise ThrottledError(path=path)
            self._bytes[connection], self.bytes = own, self.bytes + size
            self.count += 1
            table[path] = watchers
        watchers[connection] = before | mode
        self._recursive += (mode & ~before) >> 2
        self._of.setdefault(connection, {})[path] = None

    def add_persistent(self, path: str, connection: C, mode: int) -> None:
        self.add(self.data, path, connection, mode)
        if mode == PERSISTENT:
            self.add(self.children, path, connection, mode)

    def take(self, event: WatchEvent) -> Iterator[C]:
        """Remove the standard watches of an event; yield who hears of it, each once."""
        found: dict[C, None] = {}
        if not (self._recursive or event.path in self.data or event.path in self.children):
            return iter(found)  # nearly always
        if event.type != WatchType.CHILDREN_CHANGED:
            found.update(self._taken(self.data, event.path))
            if self._recursive:
                found.update(self._above(event.path))
        if event.type in (WatchType.CHILDREN_CHANGED, WatchType.DELETED):
            found.update(self._taken(self.children, event.path))
        return iter(found)

    def _taken(self, table: Table[C], path: str) -> dict[C, None]:
        watchers = dict.fromkeys(table.get(path, ()))
        for connection in watchers:
            self._discard(table, path, connection, STANDARD)
        return watchers

    def _above(self, path: str) -> dict[C, None]:
        found: dict[C, None] = {}
        while path != "/":
            path = path.rpartition("/")[0] or "/"
            watchers = self.data.get(path, {})
            found.update({c: None for c, modes in watchers.items() if modes & RECURSIVE})
        return found

    def has(self, path: str, connection: C, kind: int) -> bool:
        """Return whether the connection has a watch of a type (WatcherType) on the path."""
        return any(t.get(path, {}).get(connection, 0) & modes for t, modes in self._of_kind(kind))

    def remove(self, path: str, connection: C, kind: int) -> bool:
        """Remove the watches of a type; return whether there was one."""
        there = self.has(path, connection, kind)
        for table, modes in self._of_kind(kind):
            self._discard(table, path, connection, modes)
        return there

    def _of_kind(self, kind: int) -> list[tuple[Table[C], int]]:
        return {
            1: [(self.children, STANDARD)],
            2: [(self.data, STANDARD)],
            4: [(self.data, PERSISTENT), (self.children, PERSISTENT)],
            5: [(self.data, RECURSIVE)],
        }.get(kind, [(self.data, ANY), (self.children, ANY)])

    def _discard(self, table: Table[C], path: str, connection: C, modes: int) -> None:
        watchers = table.get(path)
        if watchers is None or connection not in watchers:
            return
        before = watchers[connection]
        self._recursive -= (before & modes) >> 2
        watchers[connection] = before & ~modes
        if not watchers[connection]:
            del watchers[connection]
            size = sys.getsizeof(path) + WATCH_BYTES
            self.bytes -= size
            self._bytes[connection] -= size
            self.count -= 1
            if not watchers:
                del table[path]
            if not any(connection in t.get(path, ()) for t in (self.data, self.children)):
                self._of.get(connection, {}).pop(path, None)

    def forget(self, connection: C) -> None:
        """Remove all watches of a connection."""
        for path in self._of.pop(connection, ()):
            self._discard(self.data, path, connection, ANY)
            self._discard(self.children, path, connection, ANY)
        self._bytes.pop(connection, None)
