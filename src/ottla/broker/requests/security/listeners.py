"""SaslListeners: everything by which the SASL listeners of one broker authenticate.

Invariants: settings are checked when it is made, before anything is opened (F40); users and tokens
are looked up each time, so a change counts for the next authentication. Kafka: `ChannelBuilders`
and `SaslChannelBuilder`.
"""

import functools
import hmac
import secrets
from typing import TYPE_CHECKING

from ottla.broker.configs.delegation_tokens import DelegationTokens, token_key
from ottla.broker.configs.scram_users import ScramUsers
from ottla.broker.requests.security.sasl import Requests, SaslDispatch
from ottla.broker.tasks import Tasks
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.model.ports import World
from ottla.security.sasl.oauthbearer import OAUTHBEARER
from ottla.security.sasl.scram import BY_NAME, ScramLookup
from ottla.security.sasl.settings import (
    UNSIGNED,
    SaslListener,
    Validate,
    policy_of,
    sasl_listeners,
)

if TYPE_CHECKING:
    from ottla.security.sasl.jwks import JwksSource

_DELEGATION = "delegation.token."
_KEYS = (f"{_DELEGATION}secret.key", f"{_DELEGATION}master.key")
_SALTS = b"salts of users that do not exist"


class SaslListeners:
    """The SASL listeners, by name."""

    def __init__(self, config: BrokerConfig) -> None:
        """Read the settings; ConfigError."""
        self._config = config
        self._listeners = sasl_listeners(config)
        self._sources: dict[str, JwksSource] = {}
        self.dispatches: dict[str, SaslDispatch] = {}
        _check_tokens(config, self.with_scram)

    @property
    def with_scram(self) -> bool:
        """Whether credentials of users are needed at all."""
        return any(set(found.modules) & set(BY_NAME) for found in self._listeners.values())

    def max_receive_bytes(self, listener: str) -> int | None:
        """Return the bound of frames before authentication; None without SASL."""
        found = self._listeners.get(listener)
        return None if found is None else found.max_receive_bytes

    async def start(self, world: World, tasks: Tasks) -> None:
        """Read the keys of signed tokens, and keep them current."""
        for name, listener in self._listeners.items():
            if OAUTHBEARER in listener.modules and not self._config.flag(UNSIGNED):
                from ottla.security.sasl.jwks import jwks_source  # needs PyJWT

                source = self._sources[name] = jwks_source(self._config, name)
                if source.is_file:
                    try:
                        await world.workers.run(source.load)
                    except (OSError, ValueError) as error:
                        raise ConfigError(
                            f"sasl.oauthbearer.jwks.endpoint.url={source.url}: {error}"
                        ) from error
                run = functools.partial(source.run, world.clock, world.workers)
                tasks.keep(run, f"jwks-{name}")

    def dispatch(
        self,
        listener: str,
        world: World,
        requests: Requests,
        users: ScramUsers,
        tokens: DelegationTokens,
    ) -> SaslDispatch | None:
        """Return what a listener does with frames; None without SASL."""
        found = self._listeners.get(listener)
        if found is None:
            return None
        lookup = ScramLookup(users.credential, tokens.owner, _secret(self._config))
        policy = policy_of(found, lookup, self._validate(found))
        delay = "connection.failed.authentication.delay.ms"
        made = SaslDispatch(policy, requests, world.clock, lambda: self._config.integer(delay))
        self.dispatches[listener] = made
        return made

    def _validate(self, listener: SaslListener) -> Validate | None:
        if OAUTHBEARER not in listener.modules:
            return None
        source = self._sources.get(listener.listener)
        if source is not None:
            return source.validate
        from ottla.security.sasl.jwks import expected_of  # needs PyJWT
        from ottla.security.sasl.jwt_tokens import validate_unsigned

        expected = expected_of(self._config, listener.listener)
        return lambda token, now_ms: validate_unsigned(token, now_ms, expected)

    def statistics(self) -> dict[str, object]:
        """Return how many authentications there were."""
        return {
            name: {"authenticated": made.authenticated, "failed": made.failed}
            for name, made in self.dispatches.items()
        }


def _secret(config: BrokerConfig) -> bytes:
    """Return what salts of unknown users are made of: the same on all brokers, where that can be.

    Without a key that all have, two brokers answer differently, which tells that a user is unknown.
    """
    key = token_key(config)
    return hmac.digest(key.encode(), _SALTS, "sha256") if key else secrets.token_bytes(32)


def _check_tokens(config: BrokerConfig, with_scram: bool) -> None:
    """Refuse delegation tokens that could not be made, or by which no client could authenticate."""
    named = sorted(k for k in config.properties if k.startswith(_DELEGATION))
    if not named:
        return
    if not token_key(config):
        raise ConfigError(
            f"{_KEYS[0]} is missing or empty, and {named[0]} is set: delegation tokens need the "
            "same key on all brokers. Set it, or remove the other key"
        )
    if any(key in named for key in _KEYS) and not with_scram:
        raise ConfigError(
            f"{named[0]} is set, but no listener has SCRAM, by which tokens authenticate. Enable "
            "SCRAM-SHA-256 or SCRAM-SHA-512, or remove the key"
        )
