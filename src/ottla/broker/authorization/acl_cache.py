"""The ACL cache: what ZooKeeper's ACLs are, on this broker, kept current by their notifications.

Invariants:
- all ACLs are read before a client is served, and again with every new session
- a notification says only where to read
- ACLs that cannot be read stay as they were, with an error in the log; at the start they end it:
  one that is passed over might be one that denies
- a change is written at the version that was read, read again and tried again otherwise

Kafka: the caches of `AclAuthorizer` and `ZkNodeChangeNotificationListener`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.broker.notifications import ChangeListener
from ottla.broker.tasks import Tasks
from ottla.model.errors import OttlaError
from ottla.model.ports import World
from ottla.model.time_slices import yield_to_loop
from ottla.security.acls import Entry, Pattern
from ottla.security.authorizer import AclAuthorizer
from ottla.zookeeper.errors import MalformedZnodeError

if TYPE_CHECKING:
    from ottla.zookeeper.acls import Acls

logger = logging.getLogger(__name__)

MOST_TRIES = 10
BACKOFF_S = 0.1
RETRY_S = 1.0
"""How long until changes are looked for again where ZooKeeper could not be read."""

Change = Callable[[frozenset[Entry]], Awaitable[frozenset[Entry]]]
"""The entries of a pattern before a change -> those after it."""


class AclCache:
    """Keeps an authorizer's ACLs those of ZooKeeper."""

    def __init__(self, world: World, tasks: Tasks, authorizer: AclAuthorizer) -> None:
        self.authorizer = authorizer
        self._world = world
        self._tasks = tasks
        self._listeners: list[ChangeListener[Pattern]] = []
        self._changing = asyncio.Lock()

    async def load(self, stored: "Acls") -> None:
        """Watch for changes, then read all ACLs through a new session; MalformedZnodeError."""
        self.stop()
        self._listeners = [
            ChangeListener(
                self._world,
                self._tasks,
                changes,
                lambda pattern: self._refresh(stored, pattern),
                retry_s=RETRY_S,
            )
            for changes in stored.changes
        ]
        await stored.create_paths()
        for listener in self._listeners:
            await listener.skip_present()  # what is there already is in what is read next
        self.authorizer.replace(await stored.get_all())
        logger.info("acls loaded count=%d", len(self.authorizer))

    def stop(self) -> None:
        """Forget the session; the ACLs stay as they are until the next `load`."""
        for listener in self._listeners:
            listener.stop()

    async def _refresh(self, stored: "Acls", pattern: Pattern) -> None:
        async with self._changing:
            try:
                entries, version = await stored.get(pattern)
            except MalformedZnodeError as error:
                logger.error(  # noqa: TRY400 - not our bug
                    "malformed acls, the former ones stay in force path=%s reason=%s",
                    error.path,
                    error.reason,
                )
                return
            self.authorizer.set(pattern, entries)
        logger.info("acls changed resource=%s count=%d version=%d", pattern, len(entries), version)

    async def change(self, stored: "Acls", pattern: Pattern, new: Change) -> None:
        """Change the ACLs of a pattern in ZooKeeper and here, and notify all brokers.

        OttlaError if others change them all the time.
        """
        async with self._changing:
            for _ in range(MOST_TRIES):
                entries, version = await stored.get(pattern)
                await yield_to_loop()  # ten thousand entries take a moment each time
                changed = await new(entries)
                if changed == entries or await stored.set(pattern, changed, version):
                    break
                await asyncio.sleep(BACKOFF_S * (1 + self._world.random.random() / 2))
            else:
                raise OttlaError(
                    f"Failed to update ACLs for {pattern} after trying a maximum of {MOST_TRIES} "
                    "times"
                )
            await yield_to_loop()
            self.authorizer.set(pattern, changed)
        if changed != entries:
            await stored.notify(pattern)
            logger.info("acls altered resource=%s count=%d", pattern, len(changed))
