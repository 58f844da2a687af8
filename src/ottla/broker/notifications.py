"""Change listeners: what ZooKeeper's notifications say has changed is read again.

Invariants: each notification is read once, however many others stay beside it until they are
removed: with 10,000 of them, every further change would read 10,000; what changes while changes are
handled is handled next; notifications that every broker has read long ago are deleted. Kafka:
`ZkNodeChangeNotificationListener`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.broker.tasks import Tasks
from ottla.model.errors import OttlaError
from ottla.model.ports import World

if TYPE_CHECKING:
    from ottla.zookeeper.notifications import Notifications
    from ottla.zookeeper.watches import WatchEvent

logger = logging.getLogger(__name__)
T = TypeVar("T")

PURGE_AFTER_MS = 15 * 60 * 1000


class ChangeListener(Generic[T]):
    """Hands each change of one kind to `handle`, until it is stopped: its session is over.

    `retry_s`: how long until changes are read again where ZooKeeper could not be read; None: with
    the next notification.
    """

    def __init__(
        self,
        world: World,
        tasks: Tasks,
        changes: "Notifications[T]",
        handle: Callable[[T], Awaitable[None]],
        *,
        retry_s: float | None = None,
    ) -> None:
        self._world = world
        self._tasks = tasks
        self._changes = changes
        self._handle = handle
        self._retry_s = retry_s
        self._known: frozenset[str] = frozenset()
        self._ctimes_ms: dict[str, int] = {}
        self._handling = False
        self._again = False
        self._stopped = False

    def stop(self) -> None:
        """Handle nothing more."""
        self._stopped = True

    async def skip_present(self) -> None:
        """Listen from now on; what has been notified already is not handled."""
        self._known = frozenset(await self._changes.names(self._on_watch))

    async def run(self) -> None:
        """Handle pending notifications; all later ones follow in tasks."""
        self._handling = True
        try:
            while not self._stopped:
                self._again = False
                try:
                    await self._handle_pending()
                except OttlaError as error:
                    # If the session is going, the next one loads everything.
                    level = logging.INFO if self._retry_s is None else logging.WARNING
                    logger.log(
                        level, "changes not read path=%s error=%s", self._changes.parent, error
                    )
                    if self._retry_s is None:
                        return
                    await asyncio.sleep(self._retry_s)
                    continue
                if not self._again:
                    return
        finally:
            self._handling = False

    async def _handle_pending(self) -> None:
        names = await self._changes.names(self._on_watch)
        read = {name: self._ctimes_ms[name] for name in names if name in self._ctimes_ms}
        self._ctimes_ms = read
        for change in await self._changes.read([name for name in names if name not in read]):
            if change.what is not None and change.name not in self._known:
                await self._handle(change.what)
            read[change.name] = change.ctime_ms
        long_ago_ms = self._world.clock.wall_ms() - PURGE_AFTER_MS
        old = [name for name, ctime_ms in read.items() if ctime_ms < long_ago_ms]
        if old:
            await self._changes.delete(old)

    def _on_watch(self, _event: "WatchEvent") -> None:
        if self._stopped or self._tasks.closed:
            return
        if self._handling:
            self._again = True
        else:
            self._tasks.keep(self.run, "changes")
