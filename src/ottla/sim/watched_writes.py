"""The in-memory ZooKeeper's log of writes, with someone who hears of each at its moment.

Who may call: `cluster`.
"""

from collections import deque
from collections.abc import Callable

from ottla.zookeeper.memory import LoggedWrite


class WatchedWrites(deque[LoggedWrite]):
    """The log so far, continued. `wrote` takes each write that is added."""

    def __init__(self, before: deque[LoggedWrite], wrote: Callable[[LoggedWrite], None]) -> None:
        super().__init__(before, before.maxlen)
        self._wrote = wrote

    def append(self, write: LoggedWrite, /) -> None:
        super().append(write)
        self._wrote(write)
