"""TLS of a broker: of its listeners, and of its connections to other brokers.

Invariants: a broker whose TLS settings would not work does not start (F40): every file is read, and
it must trust its own certificate where brokers meet; certificates are read again when their files
change, and a change that would not work changes nothing. Kafka: `SslChannelBuilder`,
`DefaultKafkaPrincipalBuilder`, `DynamicListenerConfig`.
"""

import asyncio
import logging
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path

from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.ports import World
from ottla.net.connection import CloseConnection, Connection
from ottla.security.client import ClientTls
from ottla.security.distinguished_names import subject_text
from ottla.security.principals import USER_TYPE, Principal
from ottla.security.tls import (
    TlsEndpoint,
    check_own_trust,
    check_replacement,
    days_left,
    principal_mapping,
)
from ottla.security.tls_settings import TlsSettings, listener_settings

logger = logging.getLogger(__name__)

PROTOCOLS = frozenset({"SSL", "SASL_SSL"})
RELOAD_EVERY_S = 5.0
SOON_DAYS = 30


class ListenerTls:
    """One listener with TLS."""

    def __init__(self, config: BrokerConfig, world: World, listener: str) -> None:
        self.listener = listener
        self.authenticates = config.protocol_of(listener) == "SSL"
        settings = listener_settings(config, listener)
        self.endpoint = TlsEndpoint(settings, world.files.read_bytes, server=True)
        self._mapping = principal_mapping(settings)

    @property
    def context(self) -> ssl.SSLContext:
        return self.endpoint.context

    def replace(self, settings: TlsSettings) -> None:
        """Take over new settings; ConfigError changes nothing."""
        mapping = principal_mapping(settings)
        self.endpoint.reload(settings)
        self._mapping = mapping

    def authenticate(self, connection: Connection, tls: ssl.SSLObject) -> None:
        """Set the principal of the client's certificate; without one it stays ANONYMOUS."""
        cipher = tls.cipher()
        allowed = self.endpoint.settings.tls13_ciphers
        if cipher is not None and not ClientTls(lambda: self.context, allowed).allows(cipher[0]):
            raise CloseConnection(f"cipher suite {cipher[0]} is not among ssl.cipher.suites")
        certificate = tls.getpeercert(binary_form=True)
        if certificate is None or not self.authenticates:
            return
        try:
            name = self._mapping.name(subject_text(certificate))
        except OttlaError as error:
            raise CloseConnection(f"no principal: {error}") from error
        connection.principal = Principal(USER_TYPE, name)


class BrokerTls:
    """All of it. `listeners` are those with TLS, by name."""

    def __init__(self, config: BrokerConfig, world: World) -> None:
        """Read all certificates; ConfigError for what would not work."""
        self._config = config
        self._world = world
        self.listeners: dict[str, ListenerTls] = {}
        self._clients: dict[str, TlsEndpoint] = {}
        for endpoint in config.listeners:
            if endpoint.protocol in PROTOCOLS:
                self.listeners[endpoint.listener] = ListenerTls(config, world, endpoint.listener)
        for listener in {config.inter_broker_listener, config.control_plane_listener}:
            if listener in self.listeners:
                settings = listener_settings(config, listener)
                client = TlsEndpoint(settings, world.files.read_bytes, server=False)
                check_own_trust(self.listeners[listener].endpoint, client, listener)
                self._clients[listener] = client
        for name, tls in self.listeners.items():
            self._tell(name, tls.endpoint)

    def client(self, listener: str) -> ClientTls | None:
        """Return how this broker connects to a listener of others; None: in the clear."""
        endpoint = self._clients.get(listener)
        if endpoint is None:
            return None
        return ClientTls(lambda: endpoint.context, endpoint.settings.tls13_ciphers)

    async def run(self) -> None:
        """Read certificates again whenever their files have changed."""
        while True:
            await asyncio.sleep(RELOAD_EVERY_S)
            self.reload_changed()

    def reload_changed(self) -> None:
        """Read certificates again if their files have changed; what would not work is logged."""
        for name, tls in self.listeners.items():
            self._reload(name, tls.endpoint)
        for name, client in self._clients.items():
            self._reload(name, client)

    def _reload(self, name: str, endpoint: TlsEndpoint) -> None:
        try:
            if not endpoint.changed():
                return
            endpoint.reload()
        except ConfigError as error:
            if str(error) != endpoint.problem:
                logger.error("certificates not reloaded listener=%s error=%s", name, error)  # noqa: TRY400
            endpoint.problem = str(error)
            return
        endpoint.problem = ""
        logger.info("certificates of the %s side reloaded listener=%s", endpoint.side, name)
        self._tell(name, endpoint)

    def check(self, properties: Mapping[str, str]) -> None:
        """Raise ConfigError unless listeners could take these settings over while they run."""
        config = BrokerConfig(properties)
        for name in self.listeners:
            self._checked(config, name)

    def apply(self) -> None:
        """Take over changed settings of listeners; what would not work is logged."""
        for name, tls in self.listeners.items():
            try:
                settings = self._checked(self._config, name)
                if settings == tls.endpoint.settings and not tls.endpoint.changed():
                    continue
                tls.replace(settings)
                if name in self._clients:
                    self._clients[name].reload(settings)
            except ConfigError as error:
                logger.error("TLS settings not applied listener=%s error=%s", name, error)  # noqa: TRY400
                continue
            logger.info("TLS settings applied listener=%s", name)
            self._tell(name, tls.endpoint)

    def _checked(self, config: BrokerConfig, listener: str) -> TlsSettings:
        """Return a listener's new settings; ConfigError if they would not work. Kafka: KIP-226."""
        settings = listener_settings(config, listener)
        old = self.listeners[listener].endpoint
        if settings == old.settings and not old.changed():
            return settings
        read = self._world.files.read_bytes
        new = TlsEndpoint(settings, read, server=True)
        principal_mapping(settings)
        check_replacement(
            old,
            new,
            names=_flag(config, listener, "ssl.allow.dn.changes"),
            others=_flag(config, listener, "ssl.allow.san.changes"),
        )
        if listener in self._clients:
            check_own_trust(new, TlsEndpoint(settings, read, server=False), listener)
        return settings

    def _tell(self, listener: str, endpoint: TlsEndpoint) -> None:
        """Warn of a certificate that ends soon, and of a key that others can read."""
        days = days_left(endpoint.own, self._world.clock.wall_ms() / 1000)
        if days is not None and days < SOON_DAYS:
            level = logging.ERROR if days < 0 else logging.WARNING
            text = "has expired" if days < 0 else f"expires in {days} days"
            logger.log(level, "certificate %s listener=%s: ottla certs rotate", text, listener)
        location = endpoint.settings.keystore.location
        if location and _others_read(location):
            logger.warning(
                "%slocation=%s can be read by every user of this machine; chmod 600 %s",
                endpoint.settings.keystore.where,
                location,
                location,
            )


def _flag(config: BrokerConfig, listener: str, key: str) -> bool:
    own = config.listener_text(listener, key)
    return own.lower() == "true" if own else config.flag(key)


def _others_read(path: str) -> bool:
    try:
        return bool(Path(path).stat().st_mode & stat.S_IROTH)
    except OSError:
        return False
