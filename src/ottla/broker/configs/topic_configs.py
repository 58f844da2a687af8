"""Topic configs: each topic's settings, kept current by ZooKeeper's change notifications.

The notifications tell of brokers' settings too, which `dynamic_configs` keeps, and of quotas
(`quota_settings`) and of users' credentials (`scram_users`); a topic without an override falls back
to the broker's.

Invariants: a notification carries no values, only a name: values are read when it is handled, so
two changes in a row may be seen as one but never in the wrong order; a malformed notification is
logged and skipped (F41). Kafka: `ZkConfigManager`, `ZkNodeChangeNotificationListener` and
`TopicConfigHandler`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.configs.delegation_tokens import DelegationTokens
from ottla.broker.configs.dynamic_configs import DynamicConfigs
from ottla.broker.configs.scram_users import ScramUsers
from ottla.broker.notifications import Notifications
from ottla.broker.quotas import quota_settings
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.tasks import Tasks
from ottla.model.config import BrokerConfig, TopicConfig
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.ids import topic_name_problem
from ottla.model.ports import World
from ottla.zookeeper.znodes import CONFIG_CHANGE_PREFIX, CONFIG_CHANGES

if TYPE_CHECKING:
    from ottla.zookeeper.store import Store
    from ottla.zookeeper.watches import WatchEvent

logger = logging.getLogger(__name__)


class TopicConfigs:
    """Typed settings by topic. Topics without overrides share the broker's defaults."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        tasks: Tasks,
        on_update: Callable[[str, TopicConfig], None],
        dynamic: DynamicConfigs | None = None,
        quotas: ClientQuotas | None = None,
        users: ScramUsers | None = None,
        tokens: DelegationTokens | None = None,
    ) -> None:
        self._world = world
        self._config = config
        self._tasks = tasks
        self._on_update = on_update
        self._dynamic = dynamic
        self._quotas = quotas
        self._users = users
        self._tokens = tokens
        self._defaults = config.topic_config({})
        self._configs: dict[str, TopicConfig] = {}
        self._store: Store | None = None
        self._last_change = -1
        self._notifications = Notifications()
        self._handling = False
        self._again = False

    def get(self, topic: str) -> TopicConfig:
        """Return a topic's settings; the broker's defaults for topics without overrides."""
        return self._configs.get(topic, self._defaults)

    async def load(self, store: "Store") -> None:
        """Read every topic's overrides through a new session and tell of those that changed."""
        self._store = store
        self._last_change = -1
        self._notifications = Notifications()
        if self._dynamic is not None:
            await self._dynamic.load(store)
        if self._quotas is not None:
            await quota_settings.load(self._quotas, store)
        if self._users is not None:
            await self._users.load(store)
        if self._tokens is not None:
            await self._tokens.load(store)
        names = await store.get_all_entities_with_config("topics")
        for name, overrides in (await store.get_entities_configs("topics", names)).items():
            self._apply(name, overrides)
        for name in sorted(set(self._configs) - set(names)):
            self._apply(name, {})

    def broker_changed(self) -> None:
        """Take over new settings of the broker: what topics do not set themselves follows them."""
        self._defaults = self._config.topic_config({})
        for topic, config in list(self._configs.items()):
            self._configs[topic] = self._config.topic_config(config.overrides)

    async def refresh(self, topics: Sequence[str]) -> None:
        """Read these topics' overrides again: their first logs here are about to be created.

        The creation of a topic is not notified, nor is its deletion, so only a reading at this
        moment tells the settings of the topic that bears the name now.
        """
        store = self._store
        legal = [topic for topic in topics if topic_name_problem(topic) is None]
        if store is None or not legal:
            return
        try:
            found = await store.get_entities_configs("topics", legal)
        except OttlaError as error:
            # The session is going; the next one loads everything anew and the logs get it.
            logger.warning("topic configs not read topics=%d error=%s", len(legal), error)
            return
        for topic, overrides in found.items():
            self._apply(topic, overrides)

    async def watch(self) -> None:
        """Handle pending notifications and all later ones, as long as the session lives."""
        assert self._store is not None
        await self._handle_changes(self._store)
        if self._tokens is not None:
            await self._tokens.watch()

    def stop(self) -> None:
        """Forget the session; settings stay as they are until the next `load`."""
        self._store = None

    async def _refresh(self, store: "Store", topic: str) -> None:
        self._apply(topic, await store.get_entity_configs("topics", topic))

    def _apply(self, topic: str, overrides: dict[str, str]) -> None:
        if overrides == self.get(topic).overrides:
            return
        known = {}
        for name, value in overrides.items():
            try:
                self._config.topic_config({name: value})
            except ConfigError as error:
                logger.warning("topic config ignored topic=%s error=%s", topic, error)
            else:
                known[name] = value
        config = self._config.topic_config(known)
        if known:
            self._configs[topic] = config
        else:
            self._configs.pop(topic, None)
        self._on_update(topic, config)

    def _on_watch(self, store: "Store", _event: "WatchEvent") -> None:
        if store is not self._store:
            return  # a watch of an earlier session
        if self._handling:
            self._again = True
        else:
            self._tasks.keep(lambda: self._handle_changes(store), "config-changes")

    async def _handle_changes(self, store: "Store") -> None:
        self._handling = True
        try:
            while True:
                self._again = False
                try:
                    await self._handle_pending(store)
                except OttlaError as error:
                    # The session is going; the next one loads everything anew.
                    logger.info("config changes not read error=%s", error)
                    return
                if not self._again or store is not self._store:
                    return
        finally:
            self._handling = False

    async def _handle_pending(self, store: "Store") -> None:
        names = await store.get_all_config_change_notifications(
            lambda event: self._on_watch(store, event)
        )
        notifications = self._notifications
        last = self._last_change
        unread = notifications.unread(names)
        for name, entity_path, ctime_ms in await store.get_config_changes(unread):
            number = _number(name)
            if number is None:
                logger.error(
                    "malformed znode ignored path=%s/%s reason=its name has no number",
                    CONFIG_CHANGES,
                    name,
                )
            elif number > last:
                await self._handle_one(store, entity_path)
                self._last_change = max(self._last_change, number)
            notifications.read(name, ctime_ms)
        purge = notifications.old(self._world.clock.wall_ms())
        if purge:
            await store.delete_config_change_notifications(purge)

    async def _handle_one(self, store: "Store", entity_path: str) -> None:
        kind, _, name = entity_path.partition("/")
        if kind == "topics":
            await self._refresh(store, name)
            logger.info(
                "topic config changed topic=%s overrides=%s", name, self.get(name).overrides
            )
        elif kind == "brokers" and self._dynamic is not None:
            await self._dynamic.refresh(store, name)
        elif kind in quota_settings.KINDS and self._quotas is not None:
            await quota_settings.refresh(self._quotas, store, kind, name)
            if kind == quota_settings.USERS and self._users is not None:
                await self._users.refresh(store, name)
        else:
            logger.info("config change ignored entity=%s", entity_path)


def _number(name: str) -> int | None:
    """Return the sequence number of a notification; None for a name ZooKeeper did not give."""
    digits = name.removeprefix(CONFIG_CHANGE_PREFIX)
    if name.startswith(CONFIG_CHANGE_PREFIX) and digits.isascii() and digits.isdigit():
        return int(digits)
    return None
