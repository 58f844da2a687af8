"""A cluster on this machine: start what does not run, find out that it serves, stop all of it.

Who may call: the commands `up` and `down`, the demo, benchmarks. Invariants: an `up` that fails,
or is interrupted, leaves nothing running that it started; a second `up` starts only what is dead;
ZooKeeper stops after the brokers; brokers start beside ZooKeeper, not after it, and wait for it.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ottla.admin.local import processes
from ottla.admin.local.cluster_dir import (
    HOST,
    ClusterDir,
    LocalBroker,
    LocalCluster,
    LocalZooKeeper,
)
from ottla.admin.session import connected
from ottla.model.config import BrokerConfig
from ottla.model.config_keys import broker_keys
from ottla.model.errors import ConfigError, OttlaError, StartupError
from ottla.net.client import Client
from ottla.wire.messages.metadata import MetadataRequest
from ottla.zookeeper.embedded import find_jars, find_java, interrupts_deferred, start_zookeeper

FIRST_PORT = 9092
ZOOKEEPER_PORT = 2181
FIRST_QUIET_PORT, QUIET_PORTS = 19_000, 10_000
DEFAULT_BROKERS = 3
MAX_BROKERS = 50
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.03


@dataclass(slots=True)
class Wanted:
    """What the command line asked for; None means: as it was, or the default."""

    brokers: int | None = None
    port_base: int | None = None
    zookeeper: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    any_ports: bool = False
    """Without `port_base`: take free ports at once, not the usual ones."""


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """Parse `key=value` of `--set`; ConfigError for what no broker of ours would read."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {pair!r}: write key=value, as in server.properties")
        settings[key.strip()] = value.strip()
    for key in settings:
        if key in {"broker.id", "listeners", "log.dirs", "zookeeper.connect"}:
            raise ConfigError(f"--set {key}: `ottla up` chooses this one for each broker itself")
        if key not in broker_keys():
            raise ConfigError(f"--set {key}: no broker setting of that name{_like(key)}")
    BrokerConfig({"broker.id": "0", "zookeeper.connect": "unused:2181", **settings})
    return settings


def _like(key: str) -> str:
    import difflib  # noqa: PLC0415 - only for a typing error

    near = difflib.get_close_matches(key, list(broker_keys()), 1)
    return f"; did you mean {near[0]}?" if near else ""


# -- addresses ----------------------------------------------------------------------------------


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_ports(count: int) -> list[int]:
    """Return free ports below those the system gives to outgoing connections.

    A broker that was killed finds its port free again: no client took it meanwhile.
    """
    start = os.getpid() * 13 % QUIET_PORTS
    found: list[int] = []
    for step in range(QUIET_PORTS):
        port = FIRST_QUIET_PORT + (start + step) % QUIET_PORTS
        if len(found) < count and port_is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise StartupError("no free ports found; name some with --port-base")


def _choose_ports(
    brokers: int, base: int | None, *, any_ports: bool = False
) -> tuple[list[int], int]:
    """Return the brokers' ports and ZooKeeper's: from `base` on, the usual ones, or free ones."""
    if base is not None:
        if not 0 < base <= 65535 - brokers:
            raise OttlaError(f"--port-base {base}: choose a port from 1 to {65535 - brokers}")
        return list(range(base, base + brokers)), base + brokers
    usual = [*range(FIRST_PORT, FIRST_PORT + brokers), ZOOKEEPER_PORT]
    if any_ports or not all(map(port_is_free, usual)):
        usual = _free_ports(brokers + 1)
    return usual[:-1], usual[-1]


def _new_cluster(wanted: Wanted) -> LocalCluster:
    ports, zookeeper_port = _choose_ports(
        wanted.brokers or DEFAULT_BROKERS, wanted.port_base, any_ports=wanted.any_ports
    )
    zookeeper = (
        LocalZooKeeper(wanted.zookeeper, external=True)
        if wanted.zookeeper
        else LocalZooKeeper(f"{HOST}:{zookeeper_port}")
    )
    return LocalCluster(
        zookeeper, [LocalBroker(i, p) for i, p in enumerate(ports)], dict(wanted.settings)
    )


def _changed(cluster: LocalCluster, wanted: Wanted, folder: ClusterDir) -> LocalCluster:
    """Apply what is asked for to a cluster that exists, or say why that cannot be."""
    runs = bool(cluster.processes())
    count = len(cluster.brokers)
    if wanted.brokers is not None and wanted.brokers < count:
        raise OttlaError(
            f"{folder} holds a cluster of {count} brokers; -n {wanted.brokers} would leave some "
            "out with their data. Use another --dir, or remove this one"
        )
    if wanted.zookeeper and wanted.zookeeper != cluster.zookeeper.address:
        raise OttlaError(
            f"the cluster in {folder} lives in ZooKeeper {cluster.zookeeper.address}, not "
            f"{wanted.zookeeper}; use another --dir"
        )
    ports = [b.port for b in cluster.brokers]
    if wanted.port_base is not None and wanted.port_base != ports[0]:
        if runs:
            raise OttlaError(
                f"the cluster in {folder} runs on port {ports[0]} and up; stop it first: ottla down"
            )
        ports, zookeeper_port = _choose_ports(count, wanted.port_base)
        if not cluster.zookeeper.external:
            cluster.zookeeper.address = f"{HOST}:{zookeeper_port}"
    if any(cluster.settings.get(k) != v for k, v in wanted.settings.items()):
        if runs:
            raise OttlaError(
                "--set: brokers read their settings when they start; stop them first: ottla down"
            )
        cluster.settings.update(wanted.settings)
    for broker, port in zip(cluster.brokers, ports, strict=True):
        broker.port = port
    extra = (wanted.brokers or count) - count
    new_ports = _free_ports(extra)
    cluster.brokers += [LocalBroker(count + i, port) for i, port in enumerate(new_ports)]
    return cluster


# -- up -----------------------------------------------------------------------------------------


def write_properties(folder: ClusterDir, cluster: LocalCluster, broker: LocalBroker) -> Path:
    """Write one broker's server.properties, with replication on by default where it can be."""
    replicas = str(min(3, len(cluster.brokers)))
    values = {
        "broker.id": str(broker.id),
        "listeners": f"PLAINTEXT://{broker.address}",
        "log.dirs": str(folder.data_dir(broker.id)),
        "zookeeper.connect": cluster.zookeeper.address,
        "zookeeper.session.timeout.ms": "6000",
        "default.replication.factor": replicas,
        "min.insync.replicas": "2" if len(cluster.brokers) >= 3 else "1",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        # When a whole cluster stops, the last brokers have nobody to hand their leaders to.
        "controlled.shutdown.retry.backoff.ms": "500",
        **cluster.settings,
    }
    file = folder.properties_file(broker.id)
    file.parent.mkdir(parents=True, exist_ok=True)
    head = (
        "# Written by `ottla up` at each start; change settings with `ottla up --set key=value`.\n"
    )
    file.write_text(head + "".join(f"{k}={v}\n" for k, v in values.items()), encoding="utf-8")
    return file


def start_broker(
    folder: ClusterDir, cluster: LocalCluster, broker: LocalBroker
) -> "subprocess.Popen[bytes]":
    """Start one broker's process and write it down; it is not ready yet."""
    properties = write_properties(folder, cluster, broker)
    command = [sys.executable, "-m", "ottla", "broker", "--config", str(properties)]
    command += ["--state-change-log", str(folder.state_change_log(broker.id))]
    command += ["--metrics-socket", str(folder.metrics_socket(broker.id))]
    process = processes.spawn(command, folder.log_file(broker.id))
    broker.process = processes.identify(process.pid)
    folder.save(cluster)
    return process


def up(
    folder: ClusterDir, wanted: Wanted, tell: Callable[[str], None] = lambda _: None
) -> tuple[LocalCluster, int]:
    """Bring a cluster up whole; return it and how many processes had to be started."""
    if wanted.brokers is not None and not 0 < wanted.brokers <= MAX_BROKERS:
        raise OttlaError(f"-n {wanted.brokers}: a cluster here has 1 to {MAX_BROKERS} brokers")
    folder.make()
    with folder.locked():
        known = folder.load()
        cluster = _new_cluster(wanted) if known is None else _changed(known, wanted, folder)
        _check_can_start(cluster)
        started: list[processes.ProcessId] = []
        try:
            _start_all(folder, cluster, started, tell)
        except BaseException:
            with undisturbed():
                processes.stop(started, 2.0)
                if known is None:
                    (folder.path / "cluster.json").unlink(missing_ok=True)
            raise
        return cluster, len(started)


def _start_all(
    folder: ClusterDir,
    cluster: LocalCluster,
    started: list[processes.ProcessId],
    tell: Callable[[str], None],
) -> None:
    children: dict[int, subprocess.Popen[bytes]] = {}
    for broker in cluster.brokers:
        if not broker.running:
            with interrupts_deferred():
                children[broker.id] = start_broker(folder, cluster, broker)
                assert broker.process is not None
                started.append(broker.process)
    zookeeper = cluster.zookeeper
    if not zookeeper.running:
        tell(f"starting ZooKeeper on {zookeeper.address}")
        handle = start_zookeeper(folder.zookeeper_dir, zookeeper.port)
        with interrupts_deferred():
            zookeeper.process = processes.identify(handle.pid)
            assert zookeeper.process is not None, "it answered a moment ago"
            started.append(zookeeper.process)
            folder.save(cluster)
    if children:
        tell(f"starting {len(children)} of {len(cluster.brokers)} brokers")
    wait_until_serving(folder, cluster, children)


def _check_can_start(cluster: LocalCluster) -> None:
    """Say what would not work before anything is started."""
    zookeeper = cluster.zookeeper
    for broker in cluster.brokers:
        if not broker.running and not port_is_free(broker.port):
            raise StartupError(
                f"port {broker.port} for broker {broker.id} is in use by another program; stop "
                "it, or choose other ports with --port-base"
            )
    if zookeeper.external:
        _check_reachable(zookeeper.address)
    elif not zookeeper.running:
        find_java()
        find_jars()
        if not port_is_free(zookeeper.port):
            raise StartupError(
                f"port {zookeeper.port} for ZooKeeper is in use by another program; stop it, use "
                f"it with --zookeeper {zookeeper.address}, or choose other ports with --port-base"
            )


def _check_reachable(addresses: str) -> None:
    """Connect to one of an external ZooKeeper's addresses."""
    reason = ""
    for part in addresses.partition("/")[0].split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon or not port.isdigit() or not 0 < int(port) < 65536:
            raise OttlaError(f"--zookeeper {part!r} is no address; write host:port[,host:port]")
        try:
            with socket.create_connection((host, int(port)), 3):
                return
        except OSError as error:
            reason = error.strerror or str(error)
    raise StartupError(
        f"ZooKeeper at {addresses} is not reachable: {reason}; start it, or leave --zookeeper out "
        "and one is started here"
    )


def wait_until_serving(
    folder: ClusterDir,
    cluster: LocalCluster,
    children: "Mapping[int, subprocess.Popen[bytes]]",
    timeout_s: float = START_TIMEOUT_S,
) -> None:
    """Wait until a broker lists all of them and a controller; StartupError with the reason."""

    def check() -> None:
        for broker_id, process in children.items():
            if process.poll() is not None:
                raise StartupError(
                    f"broker {broker_id} ended at once: {folder.last_words(broker_id)} "
                    f"(all of it: {folder.log_file(broker_id)})"
                )

    async def wait(client: Client) -> None:
        wanted = {b.id for b in cluster.brokers}
        deadline = time.monotonic() + timeout_s
        alive: set[int] = set()
        while True:
            check()
            with contextlib.suppress(OttlaError):
                alive = await _listed_by_all(client, cluster)
                if alive >= wanted:
                    return
            if time.monotonic() > deadline:
                missing = sorted(wanted - alive)
                words = folder.last_words(missing[0])
                raise StartupError(
                    f"brokers {missing} did not join within {timeout_s:.0f} s; "
                    f"broker {missing[0]} last said: {words}"
                )
            await asyncio.sleep(POLL_S)

    # Until a port answers there is nobody to ask; a plain connect is the cheapest question.
    deadline = time.monotonic() + timeout_s
    while any(not _answers(b.port) for b in cluster.brokers) and time.monotonic() < deadline:
        check()
        time.sleep(POLL_S)
    connected(cluster.bootstrap, wait)


async def _listed_by_all(client: Client, cluster: LocalCluster) -> set[int]:
    """Return the brokers that every broker lists, while there is a controller; else nothing."""
    alive = {b.id for b in cluster.brokers}
    first = await client.metadata([])
    if first.controller_id < 0:
        return set()
    for broker in cluster.brokers:
        if broker.id not in {b.node_id for b in first.brokers}:
            return {b.node_id for b in first.brokers}
        response = await client.call(MetadataRequest(topics=[]), broker.id)
        alive &= {b.node_id for b in response.brokers}
    return alive


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) == 0


# -- down ---------------------------------------------------------------------------------------


def down(folder: ClusterDir, timeout_s: float = STOP_TIMEOUT_S) -> tuple[int, int]:
    """Stop everything of this folder; return how many were stopped, and how many by force."""
    cluster = folder.existing()
    with folder.locked(), undisturbed():
        brokers = [b.process for b in cluster.brokers if b.process and b.running]
        forced = processes.stop(brokers, timeout_s)
        zookeeper = cluster.zookeeper.process
        last = [zookeeper] if zookeeper is not None and processes.alive(zookeeper) else []
        forced += processes.stop(last, 10.0)
        for broker in cluster.brokers:
            broker.process = None
        cluster.zookeeper.process = None
        folder.save(cluster)
        return len(brokers) + len(last), len(forced)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let no second Ctrl-C cut a clean-up short: what it waits for is bounded."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
