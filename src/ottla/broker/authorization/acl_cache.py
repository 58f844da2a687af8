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

from ottla.broker.notifications import Notifications
from ottla.broker.tasks import Tasks
from ottla.model.errors import OttlaError
from ottla.model.ports import World
from ottla.model.time_slices import yield_to_loop
from ottla.security.acls import Entry, Pattern
from ottla.security.authorizer import AclAuthorizer
from ottla.zookeeper.acls import CHANGES
from ottla.zookeeper.errors import MalformedZnodeError

if TYPE_CHECKING:
    from ottla.zookeeper.store import Store
    from ottla.zookeeper.watches import WatchEvent

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
        self._store: Store | None = None
        self._seen: dict[str, str] = {}
        self._notifications: dict[str, Notifications] = {}
        self._handling: set[str] = set()
        self._again: set[str] = set()
        self._changing = asyncio.Lock()

    async def load(self, store: "Store") -> None:
        """Watch for changes, then read all ACLs through a new session; MalformedZnodeError."""
        self._store = store
        await store.create_acl_paths()
        for parent in CHANGES:
            # What is there already is in what is read next.
            names = await store.get_acl_change_names(parent, self._on_watch(store, parent))
            self._seen[parent] = names[-1] if names else ""
            self._notifications[parent] = Notifications()
        self.authorizer.replace(await store.get_all_acls())
        logger.info("acls loaded count=%d", len(self.authorizer))

    def stop(self) -> None:
        """Forget the session; the ACLs stay as they are until the next `load`."""
        self._store = None

    def _on_watch(self, store: "Store", parent: str) -> "Callable[[WatchEvent], None]":
        def changed(_event: "WatchEvent") -> None:
            if store is self._store and not self._tasks.closed:
                if parent in self._handling:
                    self._again.add(parent)
                else:
                    self._tasks.keep(lambda: self._handle_changes(store, parent), "acl-changes")

        return changed

    async def _handle_changes(self, store: "Store", parent: str) -> None:
        self._handling.add(parent)
        try:
            while store is self._store:
                self._again.discard(parent)
                try:
                    await self._handle_pending(store, parent)
                except OttlaError as error:
                    # The next session, if this one is gone, loads everything anew.
                    logger.warning("acl changes not read path=%s error=%s", parent, error)
                    await asyncio.sleep(RETRY_S)
                    continue
                if parent not in self._again:
                    return
        finally:
            self._handling.discard(parent)

    async def _handle_pending(self, store: "Store", parent: str) -> None:
        names = await store.get_acl_change_names(parent, self._on_watch(store, parent))
        notifications = self._notifications[parent]
        last = self._seen.get(parent, "")
        for change in await store.get_acl_changes(parent, notifications.unread(names)):
            if change.name > last and change.pattern is not None:
                await self._refresh(store, change.pattern)
            notifications.read(change.name, change.ctime_ms)
        if names:
            self._seen[parent] = names[-1]
        purge = notifications.old(self._world.clock.wall_ms())
        if purge:
            await store.delete_acl_changes(parent, purge)

    async def _refresh(self, store: "Store", pattern: Pattern) -> None:
        async with self._changing:
            try:
                entries, version = await store.get_acls(pattern)
            except MalformedZnodeError as error:
                logger.error(  # noqa: TRY400 - not our bug
                    "malformed acls, the former ones stay in force path=%s reason=%s",
                    error.path,
                    error.reason,
                )
                return
            self.authorizer.set(pattern, entries)
        logger.info("acls changed resource=%s count=%d version=%d", pattern, len(entries), version)

    async def change(self, store: "Store", pattern: Pattern, new: Change) -> None:
        """Change the ACLs of a pattern in ZooKeeper and here, and notify all brokers.

        OttlaError if others change them all the time.
        """
        async with self._changing:
            for _ in range(MOST_TRIES):
                entries, version = await store.get_acls(pattern)
                await yield_to_loop()  # ten thousand entries take a moment each time
                changed = await new(entries)
                if changed == entries or await store.set_acls(pattern, changed, version):
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
            await store.create_acl_change_notification(pattern)
            logger.info("acls altered resource=%s count=%d", pattern, len(changed))
