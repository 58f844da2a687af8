"""A ZooKeeper session for one question of a command.

Invariants: the session is closed whatever happens; what ends a command (Ctrl-C, SIGTERM) ends it in
order; TLS, SASL and ACLs are those of the settings that brokers have for them.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar, cast

from ottla.model.ports import Files, World
from ottla.model.process import ended_in_order
from ottla.model.waits import waiting
from ottla.net import runtime
from ottla.zookeeper.security import OPEN, ZooKeeperSecurity
from ottla.zookeeper.session import Session

T = TypeVar("T")

SESSION_TIMEOUT_MS = 10_000
CONNECT_TIMEOUT_MS = 5_000


class ZooKeeper(NamedTuple):
    """A ZooKeeper and the settings of brokers that say how to connect to it."""

    address: str
    settings: Mapping[str, str] = MappingProxyType({})


def settings_of(config: Path) -> dict[str, str]:
    """Return the settings of a file that --zookeeper-config names."""
    from ottla.security.config_providers import client_settings

    return client_settings(config.read_bytes(), config)


async def opened(zookeeper: ZooKeeper) -> Session:
    """Open a session; ConfigError, AuthFailedError, OperationTimeoutError."""
    where, security = runtime.real_world(cast("Files", None)), OPEN
    if any(map(_concerns, zookeeper.settings)):
        where, security = _secured(zookeeper, where)
    return await Session.connect(
        where, zookeeper.address, SESSION_TIMEOUT_MS, CONNECT_TIMEOUT_MS, security=security
    )


def _concerns(key: str) -> bool:
    return key.startswith(("zookeeper.ssl.", "zookeeper.sasl.", "zookeeper.set.acl", "java."))


def _secured(zookeeper: ZooKeeper, plain: World) -> tuple[World, ZooKeeperSecurity]:
    from ottla.log.files import OsFiles
    from ottla.model.config import BrokerConfig
    from ottla.net.tls_world import tls_world
    from ottla.zookeeper.security_settings import zookeeper_security, zookeeper_tls

    concerning = {k: v for k, v in zookeeper.settings.items() if _concerns(k)}
    config = BrokerConfig({"broker.id": "0", "zookeeper.connect": zookeeper.address, **concerning})
    read_bytes = OsFiles().read_bytes
    tls = zookeeper_tls(config, read_bytes)
    where = plain if tls is None else tls_world(plain, tls)
    return where, zookeeper_security(config, read_bytes)


def asked(zookeeper: ZooKeeper, question: Callable[[Session], Awaitable[T]]) -> T:
    """Ask ZooKeeper something in a new session."""

    async def conversation() -> T:
        with waiting(f"ZooKeeper at {zookeeper.address} has not answered"):
            session = await opened(zookeeper)
            try:
                return await question(session)
            finally:
                await session.close()

    with ended_in_order():
        return runtime.run(conversation)
