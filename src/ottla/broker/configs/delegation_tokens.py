"""Delegation tokens of this cluster: read from ZooKeeper, kept current, looked up by listeners.

Invariants: a notification carries a token's id only, and the token is read when it is handled; a
token's SCRAM credential is made when it is first used, once for each mechanism; the controller
removes expired tokens. Kafka: `DelegationTokenManagerZk` and `DelegationTokenCache`.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.broker.current_session import CurrentSession
from ottla.broker.notifications import ChangeListener
from ottla.broker.tasks import Tasks
from ottla.model.config import BrokerConfig
from ottla.model.errors import OttlaError
from ottla.model.ports import World
from ottla.security.delegation_tokens import Token, token_hmac, token_password
from ottla.security.sasl.scram import (
    DEFAULT_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    TokenOwner,
    credential_of,
)

if TYPE_CHECKING:
    from ottla.zookeeper.tokens import DelegationTokens as StoredTokens

logger = logging.getLogger(__name__)


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
        self._listener: ChangeListener[str] | None = None

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

    async def load(self, stored: "StoredTokens") -> None:
        """Read all tokens through a new session."""
        self.stop()
        if not self.enabled:
            return
        self._listener = ChangeListener(
            self._world, self._tasks, stored.changes, lambda token: self._handle(stored, token)
        )
        await stored.create_paths()
        found = await stored.get(await stored.get_ids())
        for token_id in set(self._tokens) - set(found):
            self._forget(token_id)
        for token in found.values():
            self._take(token)

    async def watch(self) -> None:
        """Handle pending notifications and all later ones, as long as the session lives."""
        if self._listener is not None:
            await self._listener.run()

    def stop(self) -> None:
        """Forget the session; the tokens stay as they are until the next `load`."""
        if self._listener is not None:
            self._listener.stop()

    async def put(self, stored: "StoredTokens", token: Token) -> None:
        """Write a new or changed token, and notify the other brokers."""
        await stored.set(token)
        self._take(token)
        await stored.changes.notify(token.id)

    async def remove(self, stored: "StoredTokens", token_id: str) -> None:
        await stored.delete(token_id)
        self._forget(token_id)
        await stored.changes.notify(token_id)

    async def run_expiry(self, is_controller: Callable[[], bool], session: CurrentSession) -> None:
        """Remove expired tokens, forever, while this broker is the controller."""
        while self.enabled:
            await asyncio.sleep(
                self._config.interval_s("delegation.token.expiry.check.interval.ms")
            )
            store = session.current
            if not is_controller() or store is None:
                continue
            now_ms = self._world.clock.wall_ms()
            for token in self:
                if token.expired(now_ms):
                    try:
                        await self.remove(store.tokens, token.id)
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

    async def _handle(self, stored: "StoredTokens", token_id: str) -> None:
        found = await stored.get([token_id])
        if token_id in found:
            self._take(found[token_id])
        else:
            self._forget(token_id)
