"""The log of writes to ZooKeeper, with a listener that hears of each when nothing can undo it.

In memory alone that is at once. With files a write is pending until its transaction is durable: a
crash of the server before that takes it back, and no client has received a reply to it.
"""

from collections import deque
from collections.abc import Callable, Iterable

from ottla.sim.loop import SimLoop
from ottla.zookeeper.memory import LOGGED_WRITES, LoggedWrite

Wrote = Callable[[LoggedWrite, SimLoop | None], None]


class WatchedWrites(deque[LoggedWrite]):
    """The log `before`, continued. `wrote` receives each write that is added.

    `process_of` returns the process whose session this is; it is asked when the write is made.
    """

    def __init__(
        self,
        before: Iterable[LoggedWrite],
        wrote: Wrote,
        process_of: Callable[[int], SimLoop | None],
        *,
        held: bool = False,
    ) -> None:
        super().__init__(before, LOGGED_WRITES)
        self.pending: deque[tuple[LoggedWrite, SimLoop | None]] = deque()
        self._wrote = wrote
        self._process_of = process_of
        self._held = held

    def append(self, write: LoggedWrite, /) -> None:
        self.pending.append((write, self._process_of(write.session)))
        if not self._held:
            self.release(write.zxid)

    def begin_again(self, writes: Iterable[LoggedWrite]) -> None:
        """Have the log hold only these, and report none of them."""
        self.clear()
        self.pending.clear()
        self.extend(writes)

    def release(self, zxid: int) -> None:
        """Report the writes up to `zxid`: they are durable."""
        while self.pending and self.pending[0][0].zxid <= zxid:
            write, process = self.pending.popleft()
            super().append(write)
            self._wrote(write, process)
