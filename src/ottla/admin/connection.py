"""Which cluster is meant, and how its clients are set: by option, environment, profile or folder.

The first of these that is there decides: --bootstrap-server, --dir, --profile, bootstrap.servers of
--command-config, OTTLA_BOOTSTRAP_SERVERS, OTTLA_PROFILE, OTTLA_DIR, the profile in use,
./ottla-data. Invariant: a setting without effect is refused.
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from ottla.admin.arguments import Option

if TYPE_CHECKING:
    from ottla.local.zookeeper_session import ZooKeeper
    from ottla.security.client import ClientSecurity

MAX_CONFIG_BYTES = 1_048_576
DEFAULT_CLIENT_ID = "ottla-cli"


class Typed(NamedTuple):
    """What was typed for the options that every command has that asks a cluster."""

    profile: str | None = None
    command_config: Path | None = None


typed = Typed()


class Where(NamedTuple):
    """A cluster: at an address, or the one of a folder (None: $OTTLA_DIR or ./ottla-data)."""

    address: str | None
    path: Path | None
    command_config: Path | None = None

    @property
    def folder(self) -> Any:
        """The `ClusterDir`, where it is the cluster of a folder."""
        from ottla.local.cluster_dir import ClusterDir, default_dir

        return ClusterDir(self.path or default_dir())

    def bootstrap(self) -> str:
        """Return addresses of brokers: those that were named, or those that run."""
        return str(self.folder.bootstrap()) if self.address is None else self.address

    @property
    def settings(self) -> "ClientSettings":
        """How clients are set; OttlaError for what tools of ours cannot do."""
        file = self.command_config
        if file is None and self.address is None:
            file = self.folder.client_properties()
        return settings_of(file)


def zookeeper(address: str | None, config: Path | None, directory: Path | None) -> "ZooKeeper":
    """Return the ZooKeeper that --zookeeper, --zookeeper-config and --dir mean."""
    from ottla.local.zookeeper_session import ZooKeeper, settings_of

    if config is not None:
        settings = settings_of(config)
        named = address or settings.get("zookeeper.connect")
        if named:
            return ZooKeeper(named, settings)
    folder = Where(None, directory).folder
    if config is None and address is not None:
        known = folder.load()
        if known is None or known.zookeeper.address != address:
            return ZooKeeper(address)
    found: ZooKeeper = folder.zookeeper(folder.existing())
    return found if config is None else found._replace(settings=settings)


class ClientSettings(NamedTuple):
    """What Kafka's client.properties may say that concerns tools. Times are in seconds."""

    client_id: str = DEFAULT_CLIENT_ID
    timeout_s: float | None = None
    bootstrap_servers: str | None = None
    security: "ClientSecurity | None" = None
    """None: in the clear"""


def options(
    profile: Annotated[
        str | None,
        Option("--profile", metavar="NAME", help="A cluster by name (ottla profile)",
               complete="profile"),
    ] = None,
    command_config: Annotated[
        Path | None,
        Option("--command-config", metavar="FILE", help="Kafka's client.properties"),
    ] = None,
) -> None:  # fmt: skip
    """Take the options that every command has that asks a cluster."""
    global typed  # noqa: PLW0603 - one command line for each process
    typed = Typed(profile, command_config)
    settings_of.cache_clear()


def where(address: str | None, directory: Path | None) -> Where:
    """Return which cluster is meant, as this module's docstring has it."""
    config = typed.command_config
    if address is not None:
        return Where(address, None, config)
    if directory is not None:
        return Where(None, directory, config)
    named = typed.profile
    if named is None and config is not None:
        servers = settings_of(config).bootstrap_servers
        if servers:
            return Where(servers, None, config)
    environment = os.environ.get("OTTLA_BOOTSTRAP_SERVERS")
    if named is None and environment:
        return Where(environment, None, config)
    from ottla.admin import profiles
    from ottla.model.errors import OttlaError

    named = named or os.environ.get("OTTLA_PROFILE") or None
    if named is None and os.environ.get("OTTLA_DIR"):
        return Where(None, None, config)
    found = profiles.load()
    named = named or found.current
    if named is None:
        return Where(None, None, config)
    profile = found.find(named)
    if config is None and profile.command_config is not None:
        config = Path(profile.command_config)
    servers = profile.bootstrap_servers
    if servers is None and profile.dir is None and config is not None:
        servers = settings_of(config).bootstrap_servers
    if servers is None and profile.dir is None:
        raise OttlaError(f"profile {named} names neither bootstrap-servers nor dir")
    if servers is not None:
        return Where(servers, None, config)
    return Where(None, Path(profile.dir or ""), config)


@cache
def settings_of(file: Path | None) -> ClientSettings:
    """Read Kafka's client.properties; OttlaError for what tools of ours cannot do.

    A command line reads it once.
    """
    if file is None:
        return ClientSettings()
    from ottla.model.errors import OttlaError
    from ottla.security.config_providers import client_settings

    with file.open("rb") as opened:
        data = opened.read(MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise OttlaError(f"{file}: more than {MAX_CONFIG_BYTES:,} bytes are no client.properties")
    found = client_settings(data, file)
    timeout = found.get("request.timeout.ms")
    if timeout is not None and not (timeout.isascii() and timeout.isdigit() and int(timeout)):
        raise OttlaError(f"{file}: request.timeout.ms={timeout}: write milliseconds")
    return ClientSettings(
        found.get("client.id") or DEFAULT_CLIENT_ID,
        None if timeout is None else int(timeout) / 1000,
        found.get("bootstrap.servers") or None,
        _security(file, found),
    )


def _security(file: Path, found: Mapping[str, str]) -> "ClientSecurity | None":
    """Return how to connect; OttlaError for what tools cannot do."""
    if found.get("security.protocol", "PLAINTEXT").strip().upper() == "PLAINTEXT":
        return None
    from ottla.model.errors import OttlaError
    from ottla.security.client_properties import client_security

    try:
        return client_security(found)
    except OttlaError as error:
        raise OttlaError(f"{file}: {error}") from error
