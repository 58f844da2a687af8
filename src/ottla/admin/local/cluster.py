"""A cluster on this machine: start what does not run, find out that it serves, stop all of it.

Who may call: the commands `up` and `down`, the demo, benchmarks. Invariants: an `up` that fails,
or is interrupted, leaves nothing running that it started; a second `up` starts only what is dead;
ZooKeeper stops after the brokers; brokers start beside ZooKeeper, not after it, and wait for it.
"""

import asyncio
import contextlib
import errno
import itertools
import os
import shutil
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
    ANY_ADDRESS,
    CLUSTER_FILE,
    EMBEDDED_JAVA,
    HOST,
    OWN,
    ClusterDir,
    LocalBroker,
    LocalCluster,
    LocalZooKeeper,
)
from ottla.admin.session import connected
from ottla.model.config import BrokerConfig
from ottla.model.config_keys import ConfigKey, broker_keys, our_keys
from ottla.model.errors import ConfigError, ConnectionLostError, OttlaError, StartupError
from ottla.model.ports import address_text
from ottla.net.client import Client
from ottla.wire.messages.metadata import MetadataRequest
from ottla.zookeeper.embedded import (
    interrupts_deferred,
    start_own_zookeeper,
    start_zookeeper,
)
from ottla.zookeeper.jars import find_jars, find_java

FIRST_PORT = 9092
ZOOKEEPER_PORT = 2181
FIRST_QUIET_PORT, QUIET_PORTS = 19_000, 10_000
DEFAULT_BROKERS = 3
MAX_BROKERS = 50
LEAST_FREE_BYTES = 2 * 1024 * 1024
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.03
KINDS = (OWN, EMBEDDED_JAVA)
"""The servers that can be started here, as `--zookeeper` names them."""


@dataclass(slots=True)
class Wanted:
    """What the command line asked for; None means: as it was, or the default."""

    brokers: int | None = None
    port_base: int | None = None
    zookeeper: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    any_ports: bool = False
    """Without `port_base`: take free ports at once, not the usual ones."""
    listen: str | None = None
    """The address that brokers listen on."""
    advertise: str | None = None
    """The host name or address that brokers tell their clients."""
    adopt: bool = False
    """Make a copied folder a cluster of its own."""
    secure: bool = False
    """TLS for brokers and clients, with certificates of a CA of its own."""


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
        if key not in _settable():
            raise ConfigError(f"--set {key}: no broker setting of that name{_like(key)}")
    BrokerConfig({"broker.id": "0", "zookeeper.connect": "unused:2181", **settings})
    return settings


def _settable() -> dict[str, ConfigKey]:
    return broker_keys() | our_keys()


def _like(key: str) -> str:
    import difflib  # noqa: PLC0415 - only for a typing error

    near = difflib.get_close_matches(key, list(_settable()), 1)
    return f"; did you mean {near[0]}?" if near else ""


# -- addresses ----------------------------------------------------------------------------------


def port_is_free(port: int, host: str = HOST) -> bool:
    return _bind_error(port, host) is None


def _bind_error(port: int, host: str) -> OSError | None:
    """Try to bind a port; return what is in the way, or None."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
        return None


def port_problem(broker: LocalBroker) -> str | None:
    """Return why a broker cannot listen on its port and what to do about it; None if it can."""
    return _port_problem(broker.port, broker.host, f"broker {broker.id}")


def _port_problem(port: int, host: str, what: str) -> str | None:
    """Return why `what` cannot listen on a port and what to do about it; None if it can."""
    error = _bind_error(port, host)
    if error is None:
        return None
    if error.errno == errno.EACCES:
        return (
            f"port {port} for {what}: ports below 1024 are for root only; choose others with "
            "--port-base"
        )
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"{what} cannot listen on {host}: this machine has no such address; see --listen"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} for {what} is in use by another program; stop it, or choose other ports "
            "with --port-base"
        )
    return f"port {port} for {what} cannot be used: {error.strerror}"


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
        if wanted.zookeeper and wanted.zookeeper not in KINDS
        else LocalZooKeeper(f"{HOST}:{zookeeper_port}", kind=wanted.zookeeper or OWN)
    )
    brokers = [
        LocalBroker(i, port, host=wanted.listen or HOST, advertised=wanted.advertise or "")
        for i, port in enumerate(ports)
    ]
    return LocalCluster(zookeeper, brokers, dict(wanted.settings), secure=wanted.secure)


def _next_ports(cluster: LocalCluster, count: int) -> list[int]:
    """Return ports for more brokers: those after the last broker's, as far as they are free."""
    taken = {b.port for b in cluster.brokers}
    if not cluster.zookeeper.external:
        taken.add(cluster.zookeeper.port)
    after = (p for p in range(cluster.brokers[-1].port + 1, 65536) if p not in taken)
    found = list(itertools.islice(after, count))
    host = cluster.brokers[-1].host
    if len(found) == count and all(port_is_free(p, host) for p in found):
        return found
    return _free_ports(count)


def _adopt(cluster: LocalCluster, folder: ClusterDir) -> None:
    """Make a copied folder a cluster of its own: no processes, ports that are free."""
    for broker in cluster.brokers:
        broker.process = None
    cluster.zookeeper.process = None
    cluster.id = ""
    if cluster.zookeeper.external:
        raise OttlaError(
            f"the cluster in {folder} lives in ZooKeeper {cluster.zookeeper.address}, as the "
            "original does: two clusters cannot share it"
        )
    *ports, zookeeper_port = _free_ports(len(cluster.brokers) + 1)
    for broker, port in zip(cluster.brokers, ports, strict=True):
        broker.port = port
    cluster.zookeeper.address = f"{HOST}:{zookeeper_port}"


def _other_zookeeper(cluster: LocalCluster, wanted: Wanted) -> LocalZooKeeper | None:
    """Return the ZooKeeper that the cluster is to go on with; None: the one that it has."""
    now, other = cluster.zookeeper, wanted.zookeeper
    if not other or other == now.address or (other in KINDS and not now.external):
        return None
    if other not in KINDS:
        return LocalZooKeeper(other, external=True)
    port = ZOOKEEPER_PORT if port_is_free(ZOOKEEPER_PORT) else _free_ports(1)[0]
    if wanted.port_base is not None:
        _, port = _choose_ports(len(cluster.brokers), wanted.port_base)
    return LocalZooKeeper(f"{HOST}:{port}", kind=other)


def _changed(cluster: LocalCluster, wanted: Wanted, folder: ClusterDir) -> LocalCluster:
    """Apply what is asked for to a cluster that exists, or say why that cannot be."""
    runs = bool(cluster.processes())
    count = len(cluster.brokers)
    if wanted.brokers is not None and wanted.brokers < count:
        raise OttlaError(
            f"{folder} holds a cluster of {count} brokers; -n {wanted.brokers} would leave some "
            "out with their data. Use another --dir, or remove this one"
        )
    if wanted.zookeeper in KINDS and not cluster.zookeeper.external:
        if wanted.zookeeper != cluster.zookeeper.kind and cluster.zookeeper.running:
            raise OttlaError(
                f"--zookeeper {wanted.zookeeper}: the cluster in {folder} runs on "
                f"{cluster.zookeeper.kind}; stop it first: ottla down"
            )
        cluster.zookeeper.kind = wanted.zookeeper or OWN
    elif _other_zookeeper(cluster, wanted) is not None:
        if runs:
            raise OttlaError(
                f"--zookeeper {wanted.zookeeper}: the cluster in {folder} runs on ZooKeeper "
                f"{cluster.zookeeper.address}; stop it first: ottla down"
            )
        if cluster.zookeeper.external and wanted.zookeeper not in KINDS:
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
    for option, values, value in (
        ("--listen", {b.host for b in cluster.brokers}, wanted.listen),
        ("--advertise", {b.advertised for b in cluster.brokers}, wanted.advertise),
    ):
        if value is not None and values != {value} and runs:
            raise OttlaError(
                f"{option}: brokers read their addresses when they start; stop them first: "
                "ottla down"
            )
    if wanted.secure and not cluster.secure:
        if runs:
            raise OttlaError(
                "--secure: brokers read their listeners when they start; stop them first: "
                "ottla down"
            )
        cluster.secure = True
    for broker in cluster.brokers:
        broker.host = wanted.listen if wanted.listen is not None else broker.host
        if wanted.advertise is not None:
            broker.advertised = wanted.advertise
    if any(cluster.settings.get(k) != v for k, v in wanted.settings.items()):
        if runs:
            raise OttlaError(
                "--set: brokers read their settings when they start; stop them first: ottla down"
            )
        cluster.settings.update(wanted.settings)
    for broker, port in zip(cluster.brokers, ports, strict=True):
        broker.port = port
    extra = (wanted.brokers or count) - count
    last = cluster.brokers[-1]
    # Removed brokers leave gaps; a lower id would come back to what is left of its folder.
    next_id = max(b.id for b in cluster.brokers) + 1
    cluster.brokers += [
        LocalBroker(next_id + i, port, host=last.host, advertised=last.advertised)
        for i, port in enumerate(_next_ports(cluster, extra))
    ]
    return cluster


# -- up -----------------------------------------------------------------------------------------


def _listener(folder: ClusterDir, cluster: LocalCluster, broker: LocalBroker) -> dict[str, str]:
    """Return the settings of a broker's listener."""
    if cluster.secure:
        from ottla.admin.local import secure  # noqa: PLC0415 - lazy

        return secure.broker_settings(folder, broker)
    found = {"listeners": f"PLAINTEXT://{address_text(broker.host, broker.port)}"}
    if broker.advertised:
        there = address_text(broker.advertised, broker.port)
        found["advertised.listeners"] = f"PLAINTEXT://{there}"
    return found


def write_properties(folder: ClusterDir, cluster: LocalCluster, broker: LocalBroker) -> Path:
    """Write one broker's server.properties, with replication on by default where it can be."""
    replicas = str(min(3, len(cluster.brokers)))
    values = {
        "broker.id": str(broker.id),
        **_listener(folder, cluster, broker),
        "log.dirs": str(folder.data_dir(broker.id)),
        "zookeeper.connect": cluster.zookeeper.address,
        "zookeeper.session.timeout.ms": "6000",
        "default.replication.factor": replicas,
        "min.insync.replicas": "2" if len(cluster.brokers) >= 3 else "1",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        # When a whole cluster stops, the last brokers have no broker to move their leaders to.
        "controlled.shutdown.retry.backoff.ms": "500",
        **cluster.settings,
    }
    file = folder.properties_file(broker.id)
    file.parent.mkdir(parents=True, exist_ok=True)
    head = (
        "# Written by `ottla up` at each start; change settings with `ottla up --set key=value`.\n"
    )
    file.touch(mode=0o600)
    file.chmod(0o600)  # settings may be passwords
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
    broker.ended = ""
    folder.save(cluster)
    return process


def up(
    folder: ClusterDir, wanted: Wanted, tell: Callable[[str], None] = lambda _: None
) -> tuple[LocalCluster, int]:
    """Start what does not run of a cluster; return it and how many processes were started."""
    if wanted.brokers is not None and not 0 < wanted.brokers <= MAX_BROKERS:
        raise OttlaError(f"-n {wanted.brokers}: a cluster here has 1 to {MAX_BROKERS} brokers")
    folder.make()
    free = shutil.disk_usage(folder.path).free
    if free < LEAST_FREE_BYTES:
        raise StartupError(
            f"{folder}: No space left on device ({free} bytes are free); free some space there, or "
            "name another folder by --dir"
        )
    with folder.locked():
        known = folder.load()
        copied: bytes | None = None
        if known is not None and wanted.adopt and folder.original(known) is not None:
            copied = (folder.path / CLUSTER_FILE).read_bytes()
            _adopt(known, folder)
        elif known is not None:
            folder.check_is_no_copy(known)
        cluster = _new_cluster(wanted) if known is None else _changed(known, wanted, folder)
        _check_advertised(cluster)
        other = None if known is None else _other_zookeeper(cluster, wanted)
        if other is not None:
            if copied is not None:
                raise OttlaError("--adopt: leave --zookeeper to the next `ottla up`")
            from ottla.admin.local import other_zookeeper  # noqa: PLC0415 - lazy

            if other.external:
                _check_reachable(other.address)
            other_zookeeper.go_on_with(folder, cluster, other, tell)
        _check_can_start(cluster, tell)
        if cluster.secure:
            from ottla.admin.local import secure  # noqa: PLC0415 - lazy

            secure.make_certificates(folder, cluster)
        started: list[processes.ProcessId] = []
        try:
            if copied is not None:
                _start_adopted_zookeeper(folder, cluster, started, tell)
            _start_all(folder, cluster, started, tell)
        except BaseException:
            with undisturbed():
                processes.stop(started, 2.0)
                if known is None:
                    (folder.path / CLUSTER_FILE).unlink(missing_ok=True)
                if copied is not None:  # it stays a copy, which has to be adopted
                    (folder.path / CLUSTER_FILE).write_bytes(copied)
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
    if not cluster.zookeeper.running:
        _start_zookeeper(folder, cluster, started, tell)
    if children:
        tell(f"starting {len(children)} of {len(cluster.brokers)} brokers")
    wait_until_serving(folder, cluster, children)


def _start_zookeeper(
    folder: ClusterDir,
    cluster: LocalCluster,
    started: list[processes.ProcessId],
    tell: Callable[[str], None],
) -> None:
    zookeeper = cluster.zookeeper
    tell(f"starting ZooKeeper on {zookeeper.address}")
    start = start_own_zookeeper if zookeeper.kind == OWN else start_zookeeper
    handle = start(folder.zookeeper_dir, zookeeper.port)
    with interrupts_deferred():
        zookeeper.process = processes.identify(handle.pid)
        assert zookeeper.process is not None, "it responded a moment ago"
        started.append(zookeeper.process)
        folder.save(cluster)


def _start_adopted_zookeeper(
    folder: ClusterDir,
    cluster: LocalCluster,
    started: list[processes.ProcessId],
    tell: Callable[[str], None],
) -> None:
    """Start a copy's ZooKeeper before its brokers, and remove what is true of the original only."""
    from ottla.admin.local import adoption  # noqa: PLC0415 - only a copy needs it

    adoption.remove_marks(folder, cluster)
    _start_zookeeper(folder, cluster, started, tell)
    adoption.remove_registrations(cluster.zookeeper.address)


def _check_can_start(cluster: LocalCluster, tell: Callable[[str], None]) -> None:
    """Say what would not work before anything is started."""
    zookeeper = cluster.zookeeper
    for broker in cluster.brokers:
        if broker.paused:
            raise StartupError(
                f"broker {broker.id} is paused; resume it with `ottla broker resume {broker.id}`"
            )
        problem = None if broker.running else port_problem(broker)
        if problem is not None:
            raise StartupError(problem)
    if zookeeper.external:
        _check_reachable(zookeeper.address)
    elif not zookeeper.running:
        if zookeeper.kind == EMBEDDED_JAVA:
            find_java()
            find_jars(tell)
        problem = _port_problem(zookeeper.port, HOST, "ZooKeeper")
        if problem is not None:
            raise StartupError(f"{problem}; or use it with --zookeeper {zookeeper.address}")


def _check_advertised(cluster: LocalCluster) -> None:
    """Refuse addresses under which the brokers could not find each other."""
    for broker in cluster.brokers:
        if broker.host in ANY_ADDRESS and not broker.advertised:
            raise OttlaError(
                f"--listen {broker.host}: clients cannot connect to this address; add --advertise "
                "with a host name or an address of this machine that they can reach"
            )
        name = broker.advertised or broker.host
        try:
            socket.getaddrinfo(name, broker.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise OttlaError(
                f"{'--advertise' if broker.advertised else '--listen'} {name}: {error.strerror}; "
                "the brokers find each other by this name, so this machine must know it"
            ) from None


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
            with contextlib.suppress(ConnectionLostError):
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

    # Until a port accepts connections there is no broker; a plain connect costs least.
    deadline = time.monotonic() + timeout_s
    while any(not _responses(b.near_address) for b in cluster.brokers):
        check()
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    for broker in cluster.brokers:
        if broker.advertised and not _responses((broker.advertised, broker.port), 3.0):
            raise StartupError(
                f"broker {broker.id} listens on {broker.host}:{broker.port}, but is not reachable "
                f"at {broker.address}, which --advertise names; the other brokers need that "
                "address too: name one that reaches this machine"
            )
    connected(cluster.bootstrap, wait, security=folder.security())


async def _listed_by_all(client: Client, cluster: LocalCluster) -> set[int]:
    """Return the brokers that every broker lists at their addresses, while there is a controller.

    StartupError if an id belongs to a live broker at another address: that of another cluster.
    """
    ours = {b.id: (b.advertised or b.host, b.port) for b in cluster.brokers}
    alive = set(ours)
    first = await client.metadata([])
    for broker in first.brokers:
        there = (broker.host, broker.port)
        if broker.node_id not in ours or there == ours[broker.node_id]:
            continue
        # At our own port another name is what this broker advertised before, until it registers.
        if there[1] != ours[broker.node_id][1] and _responses(there):
            raise StartupError(
                f"broker id {broker.node_id} is registered in ZooKeeper by a live broker at "
                f"{broker.host}:{broker.port}: another cluster uses the same "
                "ZooKeeper path; stop it, or give this cluster a path of its own: "
                "--zookeeper HOST:PORT/NAME"
            )
    if first.controller_id < 0:
        return set()
    for broker_id in ours:
        listed = {b.node_id for b in first.brokers if (b.host, b.port) == ours.get(b.node_id)}
        if broker_id not in listed:
            return listed
        response = await client.call(MetadataRequest(topics=[]), broker_id)
        alive &= {b.node_id for b in response.brokers if (b.host, b.port) == ours.get(b.node_id)}
    return alive


def _responses(address: tuple[str, int], timeout_s: float = 0.5) -> bool:
    try:
        with socket.create_connection(address, timeout_s):
            return True
    except OSError:
        return False


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
            broker.ended = ""
        cluster.zookeeper.process = None
        try:
            folder.save(cluster)
        except OttlaError as error:
            raise OttlaError(f"everything is stopped, but {error}") from error
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
