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
from ottla.broker.notifications import ChangeListener
from ottla.broker.quotas import quota_settings
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.tasks import Tasks
from ottla.model.config import BrokerConfig, TopicConfig
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.ids import topic_name_problem
from ottla.model.ports import World

if TYPE_CHECKING:
    from ottla.zookeeper.configs import Configs
    from ottla.zookeeper.store import Store

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
        self._stored: Configs | None = None
        self._listener: ChangeListener[str] | None = None

    def get(self, topic: str) -> TopicConfig:
        """Return a topic's settings; the broker's defaults for topics without overrides."""
        return self._configs.get(topic, self._defaults)

    async def load(self, store: "Store") -> None:
        """Read every topic's overrides through a new session and tell of those that changed."""
        self.stop()
        stored = self._stored = store.configs
        self._listener = ChangeListener(
            self._world, self._tasks, stored.changes, lambda entity: self._handle(stored, entity)
        )
        if self._dynamic is not None:
            await self._dynamic.load(stored)
        if self._quotas is not None:
            await quota_settings.load(self._quotas, stored)
        if self._users is not None:
            await self._users.load(stored)
        if self._tokens is not None:
            await self._tokens.load(store.tokens)
        names = await stored.get_names("topics")
        for name, overrides in (await stored.get_many("topics", names)).items():
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
        legal = [topic for topic in topics if topic_name_problem(topic) is None]
        if self._stored is None or not legal:
            return
        try:
            found = await self._stored.get_many("topics", legal)
        except OttlaError as error:
            # The session is going; the next one loads everything, and the logs get it.
            logger.warning("topic configs not read topics=%d error=%s", len(legal), error)
            return
        for topic, overrides in found.items():
            self._apply(topic, overrides)

    async def watch(self) -> None:
        """Handle pending notifications and all later ones, as long as the session lives."""
        assert self._listener is not None
        await self._listener.run()
        if self._tokens is not None:
            await self._tokens.watch()

    def stop(self) -> None:
        """Forget the session; settings stay as they are until the next `load`."""
        self._stored = None
        if self._listener is not None:
            self._listener.stop()
        if self._tokens is not None:
            self._tokens.stop()

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

    async def _handle(self, stored: "Configs", entity: str) -> None:
        kind, _, name = entity.partition("/")
        if kind == "topics":
            self._apply(name, await stored.get("topics", name))
            logger.info(
                "topic config changed topic=%s overrides=%s", name, self.get(name).overrides
            )
        elif kind == "brokers" and self._dynamic is not None:
            await self._dynamic.refresh(stored, name)
        elif kind in quota_settings.KINDS and self._quotas is not None:
            await quota_settings.refresh(self._quotas, stored, kind, name)
            if kind == quota_settings.USERS and self._users is not None:
                await self._users.refresh(stored, name)
        else:
            logger.info("config change ignored entity=%s", entity)
