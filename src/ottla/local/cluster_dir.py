"""The folder of a local cluster: what `ottla up` wrote down so that later commands find it.

The default is `./ottla-data` (OTTLA_DIR names another): a cluster belongs to the project it is
tried in, is seen by `ls`, and is gone with `rm -r`.

    cluster.json                 addresses, settings, and every process with its start time
    broker-0/server.properties   what that broker reads
    broker-0/server.log          its log
    broker-0/state-change.log    which partitions it leads and follows, as Kafka's brokers log it
    broker-0/metrics.sock        its metrics, for the folder's owner: docs/METRICS.md
    broker-0/faults.sock         cuts its connections, for the folder's owner
    broker-0/data/               Kafka's log folders
    certs/                       with `ottla up --secure`: its CA, and what that issued
    clients/                     with `ottla up --secure`: how clients connect, by user
    passwords.json               with `ottla up --secure`: its users' passwords
    zookeeper.jaas               with `ottla up --secure`: the user of its ZooKeeper
    zookeeper/                   the embedded ZooKeeper's configuration, data and log

Invariants: cluster.json is replaced whole, never edited in place, and written before and after
each start, so that an `up` that is itself killed leaves nothing `down` cannot find; one command
at a time changes the folder (a lock on `.lock`); cluster.json names its folder, so that a copy
never controls the processes of the original.
"""

import contextlib
import errno
import itertools
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from ottla.local import processes
from ottla.local.processes import ProcessId, alive, is_ours, paused
from ottla.model.durable_files import replace_file
from ottla.model.errors import OttlaError
from ottla.model.ports import address_text
from ottla.model.posix import fcntl
from ottla.model.process import ended_in_order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.client.client import Client
    from ottla.local.zookeeper_session import ZooKeeper
    from ottla.model.ports import Files
    from ottla.security.client import ClientSecurity

T = TypeVar("T")

HOST = "127.0.0.1"
ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - recognized, never the default # nosec B104
DEFAULT_DIR = "ottla-data"
CLUSTER_FILE = "cluster.json"
CLIENT_PROPERTIES = "admin.properties"
CALL_TIMEOUT_S, CONNECT_TIMEOUT_S = 30.0, 5.0
LEAST_FREE_BYTES = 2 * 1024 * 1024
REASON = "ottla broker: "
"""Before the reason why a broker ended, in its log."""


class LocalBroker(msgspec.Struct):
    """One broker of the cluster; `process` is what was last started for it.

    `host` is what it listens on, `advertised` the host that it tells clients (default: `host`).
    """

    id: int
    port: int
    process: ProcessId | None = None
    host: str = HOST
    advertised: str = ""
    ended: str = ""
    """How a command ended it, empty if none did."""
    metrics_port: int = 0
    """Where it serves its metrics over HTTP, on the loopback address; 0: not chosen yet."""

    @property
    def address(self) -> str:
        """Return the host and port that clients connect to."""
        return address_text(self.advertised or self.host, self.port)

    @property
    def metrics_address(self) -> str | None:
        """Return where it serves /metrics, None where `ottla up` does not know."""
        return address_text(HOST, self.metrics_port) if self.metrics_port else None

    @property
    def near_address(self) -> tuple[str, int]:
        """Return where it is reached from this machine, whatever it tells clients."""
        return (HOST if self.host in ANY_ADDRESS else self.host), self.port

    @property
    def running(self) -> bool:
        """Return whether its process exists, paused or not."""
        return self.process is not None and alive(self.process)

    @property
    def paused(self) -> bool:
        """Return whether its process is stopped by SIGSTOP."""
        return self.process is not None and paused(self.process)


OWN, EMBEDDED_JAVA, EXTERNAL = "own", "embedded-java", "external"


class LocalZooKeeper(msgspec.Struct):
    """The cluster's ZooKeeper: one that `ottla up` starts and stops, or another (`external`).

    `kind` of the first: our own server, or a real one in Java, on the same files.
    """

    address: str
    external: bool = False
    process: ProcessId | None = None
    kind: str = EMBEDDED_JAVA

    @property
    def server(self) -> str:
        return EXTERNAL if self.external else self.kind

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def running(self) -> bool:
        return self.external or (self.process is not None and alive(self.process))


class LocalRegistry(msgspec.Struct):
    """The cluster's schema registry, if it was asked for."""

    port: int
    process: ProcessId | None = None

    @property
    def url(self) -> str:
        return f"http://{address_text(HOST, self.port)}"

    @property
    def running(self) -> bool:
        return self.process is not None and alive(self.process)


class LocalCluster(msgspec.Struct):
    """All of cluster.json."""

    zookeeper: LocalZooKeeper
    brokers: list[LocalBroker]
    settings: dict[str, str] = {}
    version: int = 1
    id: str = ""
    """Random; a copied folder has the same."""
    folder: str = ""
    """Where cluster.json was written last."""
    secure: bool = False
    """Whether brokers and clients meet over TLS as users that ACLs allow what they may do."""
    has_users: bool = False
    """Whether the users of a secured cluster are in ZooKeeper."""
    registry: LocalRegistry | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(b.address for b in self.brokers)

    def processes(self) -> list[ProcessId]:
        """Return every process of ours that still runs, ZooKeeper last."""
        registry = None if self.registry is None else self.registry.process
        known = [registry, *(b.process for b in self.brokers), self.zookeeper.process]
        return [p for p in known if p is not None and alive(p) and is_ours(p)]

    def broker(self, broker_id: int) -> LocalBroker:
        for broker in self.brokers:
            if broker.id == broker_id:
                return broker
        known = ", ".join(str(b.id) for b in self.brokers)
        raise OttlaError(f"no broker {broker_id} here; there are {known}")


def default_dir() -> Path:
    return Path(os.environ.get("OTTLA_DIR") or DEFAULT_DIR)


class ClusterDir:
    """The folder and its paths."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def __str__(self) -> str:
        """Return the path as a person would type it."""
        with contextlib.suppress(ValueError):
            return f"./{self.path.relative_to(Path.cwd())}"
        return str(self.path)

    @property
    def zookeeper_dir(self) -> Path:
        return self.path / "zookeeper"

    @property
    def registry_log(self) -> Path:
        return self.path / "schema-registry.log"

    def broker_dir(self, broker_id: int) -> Path:
        return self.path / f"broker-{broker_id}"

    def properties_file(self, broker_id: int) -> Path:
        return self.broker_dir(broker_id) / "server.properties"

    def log_file(self, broker_id: int) -> Path:
        return self.broker_dir(broker_id) / "server.log"

    def state_change_log(self, broker_id: int) -> Path:
        return self.broker_dir(broker_id) / "state-change.log"

    def metrics_socket(self, broker_id: int) -> Path:
        return self.broker_dir(broker_id) / "metrics.sock"

    def faults_socket(self, broker_id: int) -> Path:
        return self.broker_dir(broker_id) / "faults.sock"

    def data_dir(self, broker_id: int) -> Path:
        return self.broker_dir(broker_id) / "data"

    @property
    def certificates_dir(self) -> Path:
        return self.path / "certs"

    @property
    def clients_dir(self) -> Path:
        return self.path / "clients"

    @property
    def passwords_file(self) -> Path:
        return self.path / "passwords.json"

    @property
    def zookeeper_jaas(self) -> Path:
        return self.path / "zookeeper.jaas"

    def zookeeper_settings(self) -> dict[str, str]:
        """Return a broker's settings for security towards ZooKeeper; none: in the clear."""
        file = self.zookeeper_jaas
        if not file.exists():
            return {}
        return {"java.security.auth.login.config": str(file), "zookeeper.set.acl": "true"}

    def zookeeper(self, cluster: LocalCluster) -> "ZooKeeper":
        """Return how commands here reach the cluster's ZooKeeper."""
        from ottla.local.zookeeper_session import ZooKeeper

        settings = {**self.zookeeper_settings(), **cluster.settings}
        return ZooKeeper(cluster.zookeeper.address, settings)

    def client_properties(self) -> Path | None:
        """Return the file that says how tools connect to this cluster, None: in the clear."""
        file = self.clients_dir / CLIENT_PROPERTIES
        return file if file.exists() else None

    def security(self) -> "ClientSecurity | None":
        """Return how tools connect to this cluster."""
        file = self.client_properties()
        if file is None:
            return None
        from ottla.model.properties import load_settings
        from ottla.security.client_properties import client_security

        return client_security(load_settings(file.read_bytes(), file))

    def ask(self, addresses: str, question: "Callable[[Client], Awaitable[T]]") -> T:
        """Return what a question to brokers of this cluster returns; ConnectionLostError."""
        from ottla.client.client import Client, parse_bootstrap
        from ottla.net import runtime

        async def conversation() -> T:
            client = Client(
                runtime.real_world(cast("Files", None)),
                parse_bootstrap(addresses),
                "ottla-cli",
                connect_timeout_s=CONNECT_TIMEOUT_S,
                patience_s=CALL_TIMEOUT_S,
                security=self.security(),
            )
            try:
                return await question(client)
            finally:
                await client.close()

        with ended_in_order():
            return runtime.run(conversation)

    def put_aside(self) -> Path | None:
        """Rename a folder that another user made in one of ours; return its new path.

        None where it is ours or is none, and where it has to stay, as a cluster is in it or may be:
        `make` refuses that one. Nothing in it is used, nor is it lost.
        """
        try:
            owner, ours = self.path.lstat().st_uid, os.geteuid()
            if owner == ours or self.path.parent.stat().st_uid != ours:
                return None
            with contextlib.suppress(FileNotFoundError):
                (self.path / CLUSTER_FILE).lstat()
                return None
            names = (f"{self.path.name}.of-uid-{owner}{n or ''}" for n in itertools.count())
            aside = next(p for p in map(self.path.with_name, names) if not os.path.lexists(p))
            return self.path.rename(aside)
        except OSError:  # not ours to look into, a mount
            return None

    def make(self) -> None:
        """Make the folder, its user's alone; one of a cluster that is there becomes so."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
            self._check_owner()
            if not self.path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            if (self.path / CLUSTER_FILE).exists():
                self.path.chmod(0o700)
        except OSError as error:
            raise OttlaError(
                f"cannot make the folder {self}: {error.strerror}; name another by --dir"
            ) from error

    def _check_owner(self) -> None:
        """Raise OttlaError for a folder that another user could have filled; OSError."""
        for path in (self.path, self.path / CLUSTER_FILE):
            try:
                itself, target = path.lstat(), path.stat()
            except FileNotFoundError:
                continue
            if {itself.st_uid, target.st_uid} != {os.geteuid()}:
                raise OttlaError(
                    f"{path} is not yours{_owner(path)}: what is in it is not trusted; use the "
                    "account that made it, or name another folder by --dir"
                )
            if target.st_mode & stat.S_IWOTH:
                raise OttlaError(
                    f"{path} can be written by every user: what is in it is not trusted; "
                    f"`chmod o-w {path}`, or name another folder by --dir"
                )

    def load(self) -> LocalCluster | None:
        """Return what is written down, or None if no cluster was ever started here."""
        file = self.path / CLUSTER_FILE
        try:
            data = file.read_bytes()
            self._check_owner()
            return msgspec.json.decode(data, type=LocalCluster)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise OttlaError(f"{self} is a file; name a folder by --dir") from None
        except OSError as error:
            raise OttlaError(
                f"cannot read {file}: {error.strerror}{_owner(file)}; use the account that made "
                "it, or name another folder by --dir"
            ) from error
        except msgspec.DecodeError as error:
            raise OttlaError(
                f"{file} is damaged: {error}; remove it if no broker of it runs any more"
            ) from error

    def original(self, cluster: LocalCluster) -> Path | None:
        """Return the folder that this one is a copy of; None if it is not a copy (or was moved)."""
        if not cluster.folder or cluster.folder == str(self.path.resolve()):
            return None
        other = Path(cluster.folder)
        try:
            known = msgspec.json.decode((other / CLUSTER_FILE).read_bytes(), type=LocalCluster)
            same = other.samefile(self.path)
        except (OSError, msgspec.DecodeError):
            return None  # it was moved here
        return other if known.id == cluster.id and not same else None

    def check_is_no_copy(self, cluster: LocalCluster) -> None:
        """Raise OttlaError for a copy: its cluster.json lists the processes of the original."""
        original = self.original(cluster)
        if original is not None:
            raise OttlaError(
                f"{self} is a copy of {original}, to which the processes in its {CLUSTER_FILE} "
                f"belong; use --dir {original}, or make the copy an independent cluster with "
                f"`ottla up --adopt --dir {self}`"
            )

    def existing(self) -> LocalCluster:
        """Return what is written down; an error that says the way out if there is nothing."""
        cluster = self.load()
        if cluster is not None:
            self.check_is_no_copy(cluster)
        if cluster is None:
            raise OttlaError(
                f"no cluster in {self}; start one with `ottla up`, or name it by --dir or "
                "--bootstrap-server"
            )
        return cluster

    def save(self, cluster: LocalCluster) -> None:
        """Replace cluster.json whole; OttlaError if that fails, the former one is kept then."""
        file = self.path / CLUSTER_FILE
        cluster.id = cluster.id or os.urandom(8).hex()
        cluster.folder = str(self.path.resolve())
        try:
            text = msgspec.json.format(msgspec.json.encode(cluster), indent=2) + b"\n"
            replace_file(file, text, 0o600)  # settings may be passwords
        except OSError as error:
            raise OttlaError(f"cannot write {file}: {error.strerror}; {_way_out(error)}") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands from changing this folder."""
        lock = self.path / ".lock"
        try:
            opened = os.fdopen(
                os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "w"
            )
        except OSError as error:
            raise OttlaError(
                f"cannot write {lock}: {error.strerror}{_owner(self.path)}; {_way_out(error)}"
            ) from error
        with opened as file, ended_in_order():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OttlaError(
                    f"another `ottla up` or `ottla down` is working on {self}; wait for it"
                ) from error
            yield

    def bootstrap(self) -> str:
        """Return the addresses of the running brokers."""
        cluster = self.existing()
        running = [b.address for b in cluster.brokers if b.running and not b.paused]
        if not running:
            raise OttlaError(self.nothing_runs(cluster))
        return ",".join(running)

    def nothing_runs(self, cluster: LocalCluster) -> str:
        """Return what to do when no broker can be asked."""
        if any(b.paused for b in cluster.brokers):
            return f"all running brokers of {self} are paused; see `ottla broker resume`"
        full = self.disk_problem(cluster)
        if full is not None:
            return f"no broker of {self} runs: {full}; free some space there, then `ottla up`"
        return f"no broker of {self} runs; start them with `ottla up`"

    def disk_problem(self, cluster: LocalCluster) -> str | None:
        """Return why processes of this folder cannot write, as `0 bytes free on PATH`."""
        data = [self.data_dir(broker.id) for broker in cluster.brokers]
        return first_disk_problem([self.path, self.zookeeper_dir, *data])

    def zookeeper_problem(self) -> str | None:
        """Return what is wrong if the cluster's ZooKeeper does not run or does not respond."""
        zookeeper = self.existing().zookeeper
        if not zookeeper.running:
            return f"ZooKeeper at {zookeeper.address} is down; start it with `ottla up`"
        host, _, port = zookeeper.address.partition("/")[0].split(",")[0].rpartition(":")
        try:
            with socket.create_connection((host, int(port)), 1.0):
                return None
        except (OSError, ValueError) as error:
            return f"ZooKeeper at {zookeeper.address} does not respond: {error}"

    def last_words(self, broker_id: int) -> str:
        """Return the last line a broker logged: when it did not start, the reason."""
        words = last_line(self.log_file(broker_id)).removeprefix(REASON)
        return words or "its log is empty"

    def why_down(self, broker: LocalBroker) -> str:
        """Return why a broker does not run, as far as commands and its log tell."""
        if broker.ended:
            return f"it was {broker.ended}"
        if broker.process is None:
            return "it was not started, or `ottla down` stopped it"
        line = last_line(self.log_file(broker.id))
        if line.startswith(REASON):
            return line.removeprefix(REASON)
        if line.endswith("shut down"):
            return "it was stopped"
        if line.endswith("MemoryError"):
            return "out of memory"
        if processes.killed_for_memory(broker.process.pid):
            return "the kernel killed it: out of memory"
        return f"it ended without a message (kill -9, out of memory?); last line of its log: {line}"


def disk_problem(path: Path | str) -> str | None:
    """Return `0 bytes free on PATH` or the like; None where there is room, or no such folder.

    Nothing is written to find out.
    """
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    if found.f_flag & os.ST_RDONLY:
        return f"{path} is on a read-only file system"
    free = found.f_bavail * found.f_frsize
    if free < LEAST_FREE_BYTES:
        return f"{free:,} bytes free on {path}"
    if found.f_files and not found.f_favail:
        return f"no inodes free on {path}, so no file can be created"
    return None


def first_disk_problem(paths: Iterable[Path]) -> str | None:
    """Return the problem of the first file system that has one; each is asked once."""
    asked = set()
    for path in paths:
        try:
            device = path.stat().st_dev
        except OSError:
            continue
        if device not in asked:
            asked.add(device)
            found = disk_problem(path)
            if found is not None:
                return found
    return None


def _owner(path: Path) -> str:
    """Return whose file it is, where that is another user's."""
    try:
        found = path.stat()
        return "" if found.st_uid == os.geteuid() else f" (it belongs to {path.owner()})"
    except (OSError, KeyError):
        return ""


def _way_out(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space there and try again"
    return "use the account that made it, or name another folder by --dir"


def last_line(file: Path) -> str:
    """Return the last line of a file that is not empty; empty if there is none."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - 8192))
            lines = opened.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
