"""Delegation tokens of this cluster: read from ZooKeeper, kept current, looked up by listeners.

Invariants: a notification carries a token's id only, and the token is read when it is handled; a
token's SCRAM credential is made when it is first used, once for each mechanism; the controller
removes expired tokens. Kafka: `DelegationTokenManagerZk` and `DelegationTokenCache`.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.broker.notifications import Notifications
from ottla.broker.tasks import Tasks
from ottla.model.config import BrokerConfig
from ottla.model.errors import OttlaError
from ottla.model.ports import World
from ottla.security.delegation_tokens import Token, token_hmac, token_password
from ottla.security.sasl.scram import (
    DEFAULT_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_of,
)
from ottla.security.sasl.scram_exchange import TokenOwner
from ottla.zookeeper.tokens import CHANGE_PREFIX
from ottla.zookeeper.znodes import TOKEN_CHANGES

if TYPE_CHECKING:
    from ottla.zookeeper.store import Store
    from ottla.zookeeper.watches import WatchEvent

logger = logging.getLogger(__name__)

_ID = re.compile(r"[\w.-]{1,200}", re.ASCII)


def token_key(config: BrokerConfig) -> str:
    """Return the cluster's key of tokens; empty: there are none."""
    return config.text("delegation.token.secret.key") or config.text("delegation.token.master.key")


class DelegationTokens:
    """The tokens this broker knows."""

    def __init__(self, world: World, config: BrokerConfig, tasks: Tasks) -> None:
        self.key = token_key(config)
        self._world = world
        self._config = config
        self._tasks = tasks
        self._tokens: dict[str, Token] = {}
        self._by_hmac: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        self._store: Store | None = None
        self._last_change = -1
        self._notifications = Notifications()
        self._lock = asyncio.Lock()

    @property
    def enabled(self) -> bool:
        return bool(self.key)

    def __iter__(self) -> Iterator[Token]:
        return iter(list(self._tokens.values()))

    def of_hmac(self, secret: bytes) -> Token | None:
        """Return the token with this secret."""
        token_id = self._by_hmac.get(secret)
        return None if token_id is None else self._tokens.get(token_id)

    def owner(self, mechanism: ScramMechanism, token_id: str) -> TokenOwner | None:
        """Return whom a token stands for, and its credential; None for an unknown one."""
        token = self._tokens.get(token_id)
        if token is None:
            return None
        credential = self._credentials.get((token_id, mechanism))
        if credential is None:
            salt = secrets.token_bytes(20)
            password = token_password(token_hmac(self.key, token_id))
            salted = mechanism.salted_password(password, salt, DEFAULT_ITERATIONS)
            credential = credential_of(mechanism, salted, salt, DEFAULT_ITERATIONS)
            self._credentials[token_id, mechanism] = credential
        return TokenOwner(token.owner.name, min(token.expires_ms, token.max_ms), credential)

    async def load(self, store: "Store") -> None:
        """Read all tokens through a new session."""
        if not self.enabled:
            return
        self._store = store
        self._last_change = -1
        self._notifications = Notifications()
        await store.create_delegation_token_paths()
        found = await store.get_delegation_tokens(await store.get_delegation_token_ids())
        for token_id in set(self._tokens) - set(found):
            self._forget(token_id)
        for token in found.values():
            self._take(token)

    async def watch(self) -> None:
        """Handle pending notifications and all later ones, as long as the session lives."""
        if self._store is not None:
            await self._handle_changes(self._store)

    async def put(self, store: "Store", token: Token) -> None:
        """Write a new or changed token, and tell the other brokers."""
        await store.set_or_create_delegation_token(token)
        self._take(token)
        await store.create_token_change_notification(token.id)

    async def remove(self, store: "Store", token_id: str) -> None:
        await store.delete_delegation_token(token_id)
        self._forget(token_id)
        await store.create_token_change_notification(token_id)

    async def run_expiry(
        self, is_controller: Callable[[], bool], current_store: Callable[[], "Store | None"]
    ) -> None:
        """Remove expired tokens, for ever, while this broker is the controller."""
        while self.enabled:
            await asyncio.sleep(
                self._config.interval_s("delegation.token.expiry.check.interval.ms")
            )
            store = current_store()
            if not is_controller() or store is None:
                continue
            now_ms = self._world.clock.wall_ms()
            for token in self:
                if token.expired(now_ms):
                    try:
                        await self.remove(store, token.id)
                    except OttlaError as error:
                        logger.info("expired token not removed error=%s", error)
                        break
                    logger.info("expired token removed entity=%s", token.owner)

    def _take(self, token: Token) -> None:
        self._tokens[token.id] = token
        self._by_hmac[token_hmac(self.key, token.id)] = token.id

    def _forget(self, token_id: str) -> None:
        self._tokens.pop(token_id, None)
        self._by_hmac.pop(token_hmac(self.key, token_id), None)
        for mechanism in ScramMechanism:
            self._credentials.pop((token_id, mechanism), None)

    def _on_watch(self, store: "Store", _event: "WatchEvent") -> None:
        if store is self._store and not self._tasks.closed:
            self._tasks.keep(lambda: self._handle_changes(store), "token-changes")

    async def _handle_changes(self, store: "Store") -> None:
        try:
            async with self._lock:
                await self._handle_pending(store)
        except OttlaError as error:
            # The session is going; the next one loads everything anew.
            logger.info("token changes not read error=%s", error)

    async def _handle_pending(self, store: "Store") -> None:
        names = await store.get_token_change_notifications(lambda e: self._on_watch(store, e))
        notifications = self._notifications
        for name, token_id, ctime_ms in await store.get_token_changes(notifications.unread(names)):
            digits = name.removeprefix(CHANGE_PREFIX)
            if not (digits.isascii() and digits.isdigit() and _ID.fullmatch(token_id)):
                logger.error("malformed znode ignored path=%s/%s reason=no id", TOKEN_CHANGES, name)
            elif int(digits) > self._last_change:
                self._last_change = int(digits)
                found = await store.get_delegation_tokens([token_id])
                if token_id in found:
                    self._take(found[token_id])
                else:
                    self._forget(token_id)
            notifications.read(name, ctime_ms)
        purge = notifications.old(self._world.clock.wall_ms())
        if purge:
            await store.delete_token_change_notifications(purge)
