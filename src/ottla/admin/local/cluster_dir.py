"""The folder of a local cluster: what `ottla up` wrote down so that later commands find it.

Who may call: the admin room. The default is `./ottla-data` (OTTLA_DIR names another): a cluster
belongs to the project it is tried in, is seen by `ls`, and is gone with `rm -r`.

    cluster.json                 addresses, settings, and every process with its start time
    broker-0/server.properties   what that broker reads
    broker-0/server.log          what it says
    broker-0/state-change.log    whom it leads and follows, as Kafka's brokers write it
    broker-0/metrics.sock        how it fares, for whoever owns the folder: docs/METRICS.md
    broker-0/data/               Kafka's log folders
    zookeeper/                   the embedded ZooKeeper's configuration, data and log

Invariants: cluster.json is replaced whole, never edited in place, and written before and after
each start, so that an `up` that is itself killed leaves nothing `down` cannot find; one command
at a time changes the folder (a lock on `.lock`).
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ottla.admin.local.processes import ProcessId, alive
from ottla.model.errors import OttlaError

HOST = "127.0.0.1"
DEFAULT_DIR = "ottla-data"
CLUSTER_FILE = "cluster.json"


class LocalBroker(msgspec.Struct):
    """One broker of the cluster; `process` is what was last started for it."""

    id: int
    port: int
    process: ProcessId | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        return self.process is not None and alive(self.process)


class LocalZooKeeper(msgspec.Struct):
    """The cluster's ZooKeeper: ours to start and stop, or somebody else's (`external`)."""

    address: str
    external: bool = False
    process: ProcessId | None = None

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def running(self) -> bool:
        return self.external or (self.process is not None and alive(self.process))


class LocalCluster(msgspec.Struct):
    """All of cluster.json."""

    zookeeper: LocalZooKeeper
    brokers: list[LocalBroker]
    settings: dict[str, str] = {}
    version: int = 1

    @property
    def bootstrap(self) -> str:
        return ",".join(b.address for b in self.brokers)

    def processes(self) -> list[ProcessId]:
        """Return every process of ours that still runs, ZooKeeper last."""
        known = [*(b.process for b in self.brokers), self.zookeeper.process]
        return [p for p in known if p is not None and alive(p)]

    def broker(self, broker_id: int) -> LocalBroker:
        for broker in self.brokers:
            if broker.id == broker_id:
                return broker
        raise OttlaError(f"no broker {broker_id} here; there are {[b.id for b in self.brokers]}")


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

    def data_dir(self, broker_id: int) -> Path:
        return self.broker_dir(broker_id) / "data"

    def make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OttlaError(
                f"cannot make the folder {self}: {error.strerror}; name another by --dir"
            ) from error

    def load(self) -> LocalCluster | None:
        """Return what is written down, or None if no cluster was ever started here."""
        file = self.path / CLUSTER_FILE
        try:
            return msgspec.json.decode(file.read_bytes(), type=LocalCluster)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise OttlaError(
                f"cannot read {file}: {error}; remove it if no broker of it runs any more"
            ) from error

    def existing(self) -> LocalCluster:
        """Return what is written down; an error that says the way out if there is nothing."""
        cluster = self.load()
        if cluster is None:
            raise OttlaError(
                f"no cluster in {self}; start one with `ottla up`, or name it by --dir or "
                "--bootstrap-server"
            )
        return cluster

    def save(self, cluster: LocalCluster) -> None:
        """Replace cluster.json whole."""
        file = self.path / CLUSTER_FILE
        part = file.with_suffix(".tmp")
        part.write_bytes(msgspec.json.format(msgspec.json.encode(cluster), indent=2) + b"\n")
        part.replace(file)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands from changing this folder meanwhile."""
        with (self.path / ".lock").open("w") as file:
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
        running = [b.address for b in cluster.brokers if b.running]
        if not running:
            raise OttlaError(f"no broker of {self} runs; start them with `ottla up`")
        return ",".join(running)

    def last_words(self, broker_id: int) -> str:
        """Return the last line a broker logged: when it did not start, the reason."""
        words = last_line(self.log_file(broker_id)).removeprefix("ottla broker: ")
        return words or "it left no message"


def last_line(file: Path) -> str:
    """Return the last line of a file that is not empty; empty if there is none."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - 8192))
            lines = opened.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
