"""Which cluster is meant, and how its clients are set: by option, environment, profile or folder.

The first of these that is there decides: --bootstrap-server, --dir, --profile, bootstrap.servers of
--command-config, OTTLA_BOOTSTRAP_SERVERS, OTTLA_PROFILE, OTTLA_DIR, the profile in use,
./ottla-data. Invariants: a setting without effect is refused; a cluster that does not respond at
once has no names for a shell to complete.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from ottla.cli import Option
from ottla.cli.output import Format

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.local.cluster_dir import ClusterDir
    from ottla.local.zookeeper_session import ZooKeeper
    from ottla.security.client import ClientSecurity
    from ottla.wire.messages.cluster import MetadataResponse

T = TypeVar("T")

MAX_CONFIG_BYTES = 1_048_576
DEFAULT_CLIENT_ID = "ottla-cli"


class Where(NamedTuple):
    """A cluster: at an address, or the one of a folder (None: $OTTLA_DIR or ./ottla-data)."""

    address: str | None
    path: Path | None
    command_config: Path | None = None

    @property
    def folder(self) -> "ClusterDir":
        """The `ClusterDir`, where it is the cluster of a folder."""
        from ottla.local.cluster_dir import ClusterDir, default_dir

        return ClusterDir(self.path or default_dir())

    def bootstrap(self) -> str:
        """Return addresses of brokers: those that were named, or those that run."""
        return self.folder.bootstrap() if self.address is None else self.address

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
    found = folder.zookeeper(folder.existing())
    return found if config is None else found._replace(settings=settings)


class ClientSettings(NamedTuple):
    """What Kafka's client.properties may say that concerns tools. Times are in seconds."""

    client_id: str = DEFAULT_CLIENT_ID
    timeout_s: float | None = None
    bootstrap_servers: str | None = None
    security: "ClientSecurity | None" = None
    """None: in the clear"""


Dir = Annotated[
    Path | None,
    Option("--dir", help="Folder of the cluster [default: $OTTLA_DIR or ./ottla-data]"),
]
Output = Annotated[Format, Option("--output", help="Format of the result")]


@dataclass(kw_only=True)
class _Folder:
    """The folder of a cluster."""

    directory: Dir = None

    @property
    def folder(self) -> "ClusterDir":
        """The folder of --dir, or where a cluster is looked for without it."""
        return Where(None, self.directory).folder


@dataclass(kw_only=True)
class Local(_Folder):
    """The cluster on this machine that a command is for, and how its result is printed."""

    output: Output = Format.table


@dataclass(kw_only=True)
class Connection(_Folder):
    """The cluster that a command asks: any Kafka, or the one that `ottla up` started in --dir."""

    bootstrap_server: Annotated[
        str | None,
        Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT[,…]",
            help="Brokers of any Kafka cluster [default: the cluster in --dir]",
        ),
    ] = None
    profile: Annotated[
        str | None,
        Option(metavar="NAME", help="Name of a cluster (see `ottla profile`)", complete="profile"),
    ] = None
    command_config: Annotated[
        Path | None, Option(metavar="FILE", help="Kafka's client.properties")
    ] = None

    @cached_property
    def where(self) -> Where:
        """Which cluster is meant, as this module's docstring has it."""
        settings_of.cache_clear()
        return _where(self.bootstrap_server, self.directory, self.profile, self.command_config)

    def ask(
        self, question: "Callable[[Client], Awaitable[T]]", *, timeout_s: float | None = None
    ) -> T:
        """Put a question to the cluster."""
        from ottla.admin.session import CALL_TIMEOUT_S, connected
        from ottla.model.errors import OttlaError

        found = self.where
        settings = found.settings
        try:
            return connected(
                found.bootstrap(),
                question,
                timeout_s=timeout_s or settings.timeout_s or CALL_TIMEOUT_S,
                client_id=settings.client_id,
                security=settings.security,
            )
        except OttlaError as error:
            problem = found.folder.zookeeper_problem() if found.address is None else None
            if problem is None:
                raise
            raise OttlaError(
                f"{problem}; brokers can change nothing without it ({error})"
            ) from error


@dataclass(kw_only=True)
class Target(Connection):
    """The cluster that a command asks, and how its result is printed."""

    output: Output = Format.table


def _where(
    address: str | None, directory: Path | None, named: str | None, config: Path | None
) -> Where:
    if address is not None:
        return Where(address, None, config)
    if directory is not None:
        return Where(None, directory, config)
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


NAMES_WITHIN_S = 1.5
"""A person waits at the terminal."""


def names(kind: str, chosen: Mapping[str, str]) -> list[str]:
    """Return names of a cluster; none where it does not respond at once."""
    from ottla.model.errors import OttlaError

    try:
        if kind == "profile":
            from ottla.admin import profiles

            return sorted(profiles.load().by_name)
        return _asked(kind, chosen)
    except (OttlaError, OSError, TimeoutError):
        return []


def _asked(kind: str, chosen: Mapping[str, str]) -> list[str]:
    import asyncio

    from ottla.admin.connection import Connection
    from ottla.admin.session import connected

    config, directory = chosen.get("command_config"), chosen.get("directory")
    found = Connection(
        directory=Path(directory) if directory else None,
        bootstrap_server=chosen.get("bootstrap_server"),
        profile=chosen.get("profile"),
        command_config=Path(config) if config else None,
    ).where

    async def question(client: "Client") -> list[str]:
        async with asyncio.timeout(NAMES_WITHIN_S):
            if kind in ("topic", "partition", "number"):
                return _of_topics(kind, (await client.metadata(None)).topics, chosen.get("topic"))
            if kind == "broker":
                return [str(b) for b in await client.broker_ids()]
            if kind == "group":
                from ottla.client.groups import list_groups

                return [g.group for g in await list_groups(client, [])]
            from ottla.client.transactions import list_transactions

            return [t.transactional_id for t in await list_transactions(client, [], [])]

    return connected(
        found.bootstrap(), question, timeout_s=NAMES_WITHIN_S, security=found.settings.security
    )


def _of_topics(
    kind: str, topics: "list[MetadataResponse.MetadataResponseTopic]", topic: str | None
) -> list[str]:
    """Return topics, their partitions, or the numbers of the partitions of one topic."""
    if kind == "topic":
        return sorted(t.name or "" for t in topics)
    found = sorted((t.name or "", p.partition_index) for t in topics for p in t.partitions)
    if kind == "partition":
        return [f"{name}-{number}" for name, number in found]
    return [str(number) for name, number in found if name == topic]
