"""A cluster on this machine: start what does not run, find out that it serves, stop all of it.

Invariants: an `up` that fails, or is interrupted, leaves nothing running that it started; a second
`up` starts only what is dead; ZooKeeper stops after the brokers; brokers start beside ZooKeeper,
not after it, and wait for it. What speaks to brokers is imported when their processes are there:
they start meanwhile.
"""

import contextlib
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.local import processes
from ottla.local.cluster_dir import (
    ANY_ADDRESS,
    CLUSTER_FILE,
    EMBEDDED_JAVA,
    HOST,
    OWN,
    ClusterDir,
    LocalBroker,
    LocalCluster,
    LocalRegistry,
    LocalZooKeeper,
    disk_problem,
    last_line,
)
from ottla.local.folders import replace_file
from ottla.local.fork_process import Start, alone, forking
from ottla.local.ports import (
    METRICS_LISTENER,
    ZOOKEEPER_PORT,
    choose_metrics_port,
    choose_ports,
    free_ports,
    in_the_way,
    next_ports,
    port_is_free,
    port_problem,
    usual_ports_taken,
)
from ottla.model.errors import ConfigError, ConnectionLostError, OttlaError, StartupError
from ottla.model.ports import address_text
from ottla.model.printable import plural
from ottla.model.process import ended_in_order
from ottla.model.properties import as_properties
from ottla.model.waits import waiting
from ottla.zookeeper.embedded import (
    Running,
    StartedZooKeeper,
    begin_own_zookeeper,
    interrupts_deferred,
    start_own_zookeeper,
    start_zookeeper,
    wait_ready,
)
from ottla.zookeeper.jars import find_jars, find_java

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.wire.messages.cluster import MetadataResponse

DEFAULT_BROKERS = 3
MAX_BROKERS = 50
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
OTHERS_S = 5.0
"""For brokers that ran before to hear of those that were started."""
POLL_S = 0.005
POLL_REGISTRY_S = 5.0
REGISTRY_PORT = 8081
"""Confluent's."""
LOOK_S = 0.3
SUPER_USERS = "super.users"
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
    """Make a copied folder an independent cluster."""
    secure: bool = False
    """TLS, users and ACLs for brokers and clients."""
    schema_registry: bool = False
    """A schema registry beside the brokers, from now on."""


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """Parse `key=value` of `--set`; ConfigError for what no broker of ours would read."""
    settings: dict[str, str] = {}
    if not pairs:
        return settings
    from ottla.model.config import BrokerConfig, unknown_setting

    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {pair!r}: write key=value, as in server.properties")
        settings[key.strip()] = value.strip()
    for key in settings:
        if key in {"broker.id", "listeners", "log.dirs", "zookeeper.connect"}:
            raise ConfigError(f"--set {key}: `ottla up` chooses this one for each broker itself")
        if (problem := unknown_setting(key)) is not None:
            raise ConfigError(f"--set {key}: {problem}")
    BrokerConfig({"broker.id": "0", "zookeeper.connect": "unused:2181", **settings})
    return settings


# -- addresses ----------------------------------------------------------------------------------


def _new_cluster(wanted: Wanted) -> LocalCluster:
    kind = wanted.zookeeper or OWN
    external = kind not in KINDS
    ports, zookeeper_port = choose_ports(
        wanted.brokers or DEFAULT_BROKERS,
        wanted.port_base,
        any_ports=wanted.any_ports,
        external=external,
    )
    zookeeper = (
        LocalZooKeeper(kind, external=True)
        if external
        else LocalZooKeeper(f"{HOST}:{zookeeper_port}", kind=kind)
    )
    brokers = [
        LocalBroker(i, port, host=wanted.listen or HOST, advertised=wanted.advertise or "")
        for i, port in enumerate(ports)
    ]
    return LocalCluster(zookeeper, brokers, dict(wanted.settings), secure=wanted.secure)


def _adopt(cluster: LocalCluster, folder: ClusterDir) -> None:
    """Make a copied folder an independent cluster: no processes, free ports."""
    for broker in cluster.brokers:
        broker.process = None
    cluster.zookeeper.process = None
    if cluster.registry is not None:
        cluster.registry = LocalRegistry(free_ports(1)[0])
    cluster.id = ""
    if cluster.zookeeper.external:
        raise OttlaError(
            f"the cluster in {folder} lives in ZooKeeper {cluster.zookeeper.address}, as the "
            "original does: two clusters cannot share it"
        )
    *ports, zookeeper_port = free_ports(len(cluster.brokers) + 1)
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
    port = ZOOKEEPER_PORT if port_is_free(ZOOKEEPER_PORT) else free_ports(1)[0]
    if wanted.port_base is not None:
        _, port = choose_ports(len(cluster.brokers), wanted.port_base)
    return LocalZooKeeper(f"{HOST}:{port}", kind=other)


def _changed(cluster: LocalCluster, wanted: Wanted, folder: ClusterDir) -> LocalCluster:
    """Apply what is asked for to a cluster that exists, or say why that cannot be."""
    runs = bool(cluster.processes())
    count = len(cluster.brokers)
    if wanted.brokers is not None and wanted.brokers < count:
        raise OttlaError(
            f"{folder} holds a cluster of {plural(count, 'broker')}; -n {wanted.brokers} would "
            "leave some "
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
        ports, zookeeper_port = choose_ports(count, wanted.port_base)
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
    cluster.has_users = cluster.has_users and folder.passwords_file.exists()
    if (wanted.secure or cluster.secure) and not cluster.has_users:
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
        for i, port in enumerate(next_ports(cluster, extra))
    ]
    return cluster


# -- up -----------------------------------------------------------------------------------------


def _listener(folder: ClusterDir, cluster: LocalCluster, broker: LocalBroker) -> dict[str, str]:
    """Return the settings of a broker's listener."""
    if cluster.secure:
        from ottla.local import secure

        return secure.broker_settings(folder, broker)
    found = {"listeners": f"PLAINTEXT://{address_text(broker.host, broker.port)}"}
    if broker.advertised:
        there = address_text(broker.advertised, broker.port)
        found["advertised.listeners"] = f"PLAINTEXT://{there}"
    return found


def _metrics_listener(broker: LocalBroker) -> dict[str, str]:
    """Return the setting of where a broker serves its metrics."""
    if not broker.metrics_port:
        return {}
    return {METRICS_LISTENER: address_text(HOST, broker.metrics_port)}


def write_properties(folder: ClusterDir, cluster: LocalCluster, broker: LocalBroker) -> Path:
    """Write one broker's server.properties, with replication on by default where it can be."""
    replicas = str(min(3, len(cluster.brokers)))
    listener = _listener(folder, cluster, broker)
    values = {
        "broker.id": str(broker.id),
        **listener,
        **_metrics_listener(broker),
        "log.dirs": str(folder.data_dir(broker.id)),
        "zookeeper.connect": cluster.zookeeper.address,
        "zookeeper.session.timeout.ms": "6000",
        "default.replication.factor": replicas,
        "min.insync.replicas": "2" if len(cluster.brokers) >= 3 else "1",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        # As in Kafka's own server.properties: a new group's first record takes no 3 s.
        "group.initial.rebalance.delay.ms": "0",
        # When a whole cluster stops, the last brokers have no broker to move their leaders to.
        "controlled.shutdown.retry.backoff.ms": "500",
        **cluster.settings,
    }
    if SUPER_USERS in listener and SUPER_USERS in cluster.settings:
        # Without their own name here, the brokers would refuse each other.
        values[SUPER_USERS] = f"{listener[SUPER_USERS]};{cluster.settings[SUPER_USERS]}"
    file = folder.properties_file(broker.id)
    file.parent.mkdir(parents=True, exist_ok=True)
    head = (
        "# Written by `ottla up` at each start; change settings with `ottla up --set key=value`.\n"
    )
    text = head + as_properties(values)
    replace_file(file, text.encode("ascii"))  # settings may be passwords; a link is not followed
    return file


def start_broker(
    folder: ClusterDir, cluster: LocalCluster, broker: LocalBroker, start: Start = alone
) -> Running:
    """Start one broker's process and write it down; it is not ready yet.

    Interrupts wait until it is written down: `down` stops only what is written there.
    """
    choose_metrics_port(cluster, broker)
    properties = write_properties(folder, cluster, broker)
    arguments = ["broker", "--config", str(properties)]
    arguments += ["--state-change-log", str(folder.state_change_log(broker.id))]
    arguments += ["--metrics-socket", str(folder.metrics_socket(broker.id))]
    arguments += ["--faults-socket", str(folder.faults_socket(broker.id))]
    with interrupts_deferred():
        process = start(arguments, folder.log_file(broker.id))
        broker.process = processes.identify_child(process.pid)
        broker.ended = ""
        try:
            folder.save(cluster)
        except OttlaError:
            processes.kill_child(process.pid)
            raise
    return process


def up(
    folder: ClusterDir, wanted: Wanted, tell: Callable[[str], None] = lambda _: None
) -> tuple[LocalCluster, int]:
    """Start what does not run of a cluster; return it and how many processes were started."""
    if wanted.brokers is not None and not 0 < wanted.brokers <= MAX_BROKERS:
        raise OttlaError(f"-n {wanted.brokers}: a cluster here has 1 to {MAX_BROKERS} brokers")
    aside = folder.put_aside()
    if aside is not None:
        tell(f"{folder} was another user's: nothing in it is used; it is {aside} now")
    folder.make()
    problem = disk_problem(folder.path)
    if problem is not None:
        raise StartupError(f"{problem}; free some space there, or name another folder by --dir")
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
            from ottla.local import relocation

            if other.external:
                _check_reachable(other.address)
            relocation.go_on_with(folder, cluster, other, tell)
        _check_can_start(cluster, tell)
        if known is None and not wanted.any_ports:
            taken = usual_ports_taken(cluster, wanted.port_base)
            if taken is not None:
                tell(taken)
        if cluster.secure:
            from ottla.local import secure

            secure.prepare(folder, cluster)
        started: list[processes.ProcessId] = []
        try:
            if copied is not None:
                _start_adopted_zookeeper(folder, cluster, started, tell)
            _start_all(folder, cluster, started, tell)
            if wanted.schema_registry and cluster.registry is None:
                free = port_is_free(REGISTRY_PORT)
                port = REGISTRY_PORT if free else free_ports(1)[0]
                cluster.registry = LocalRegistry(port)
            if cluster.registry is not None and not cluster.registry.running:
                _start_registry(folder, cluster.registry, cluster, started, tell)
        except BaseException:
            with undisturbed():
                processes.stop_children(started, 2.0)
                if known is None:
                    (folder.path / CLUSTER_FILE).unlink(missing_ok=True)
                if copied is not None:  # it stays a copy, which has to be adopted
                    replace_file(folder.path / CLUSTER_FILE, copied)
            raise
        return cluster, len(started)


def _start_all(
    folder: ClusterDir,
    cluster: LocalCluster,
    started: list[processes.ProcessId],
    tell: Callable[[str], None],
) -> None:
    children: dict[int, Running] = {}
    stopped = [broker for broker in cluster.brokers if not broker.running]
    own = cluster.zookeeper.kind == OWN and not cluster.zookeeper.running
    with forking(len(stopped) + own, _import_client) as start:
        # First, since brokers wait for it; where there are few cores they would take them.
        zookeeper = None
        if not cluster.zookeeper.running:
            zookeeper = _start_zookeeper(folder, cluster, started, tell, start)
        if cluster.secure and not cluster.has_users:
            if zookeeper is not None:
                _wait_ready(zookeeper)
            _create_users(folder, cluster)
        for broker in stopped:
            with interrupts_deferred():
                children[broker.id] = start_broker(folder, cluster, broker, start)
                assert broker.process is not None
                started.append(broker.process)
    if children:
        tell(f"starting {len(children)} of {plural(len(cluster.brokers), 'broker')}")
    if zookeeper is not None:
        _wait_ready(zookeeper)
    wait_until_serving(folder, cluster, children, tell)


def _start_registry(
    folder: ClusterDir,
    registry: LocalRegistry,
    cluster: LocalCluster,
    started: list[processes.ProcessId],
    tell: Callable[[str], None],
) -> None:
    """Start the schema registry, and wait until it has read its topic."""
    tell(f"starting the schema registry on {registry.url}")
    arguments = ["schema-registry", "--dir", str(folder.path), "--port", str(registry.port)]
    with interrupts_deferred():
        process = alone(arguments, folder.registry_log)
        registry.process = processes.identify_child(process.pid)
        started.append(registry.process)
        folder.save(cluster)
    give_up_s = time.monotonic() + START_TIMEOUT_S
    with waiting(f"the schema registry on port {registry.port}"):
        while not _answers(registry.port):
            if process.poll() is not None or time.monotonic() > give_up_s:
                raise StartupError(
                    f"the schema registry did not start: {last_line(folder.registry_log)}"
                )
            time.sleep(LOOK_S)


def _answers(port: int) -> bool:
    from http.client import HTTPConnection, HTTPException

    asked = HTTPConnection(HOST, port, timeout=POLL_REGISTRY_S)
    try:
        asked.request("GET", "/subjects")
        return asked.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        asked.close()


def _wait_ready(zookeeper: StartedZooKeeper) -> None:
    with waiting(f"ZooKeeper on port {zookeeper.port} to open a session"):
        wait_ready(zookeeper)


def _import_client() -> None:
    """Import what speaks to brokers."""
    import asyncio  # noqa: F401 - lazy

    from ottla.client import client  # noqa: F401 - the same
    from ottla.net import runtime  # noqa: F401 - the same
    from ottla.wire.messages.cluster import MetadataRequest  # noqa: F401 - the same


def _create_users(folder: ClusterDir, cluster: LocalCluster) -> None:
    """Write a secured cluster's users into ZooKeeper: brokers authenticate as one of them."""
    from ottla.local import secure

    zookeeper = folder.zookeeper(cluster)
    secure.create_users(zookeeper, secure.load_passwords(folder).users)
    cluster.has_users = True
    folder.save(cluster)


def _start_zookeeper(
    folder: ClusterDir,
    cluster: LocalCluster,
    started: list[processes.ProcessId],
    tell: Callable[[str], None],
    start: Start = alone,
) -> StartedZooKeeper:
    """Start a ZooKeeper server; the caller waits until it is ready."""
    zookeeper = cluster.zookeeper
    tell(f"starting ZooKeeper on {zookeeper.address}")
    jaas_file = folder.zookeeper_jaas if cluster.secure else None
    with interrupts_deferred():
        there, port = folder.zookeeper_dir, zookeeper.port
        handle: StartedZooKeeper
        if zookeeper.kind != OWN:
            handle = start_zookeeper(there, port, jaas_file=jaas_file, wait=False)
        elif start is alone:
            handle = start_own_zookeeper(there, port, jaas_file=jaas_file, wait=False)
        else:
            handle = begin_own_zookeeper(there, port, start, jaas_file=jaas_file)
        zookeeper.process = processes.identify_child(handle.pid)
        started.append(zookeeper.process)
        folder.save(cluster)
    return handle


def _start_adopted_zookeeper(
    folder: ClusterDir,
    cluster: LocalCluster,
    started: list[processes.ProcessId],
    tell: Callable[[str], None],
) -> None:
    """Start a copy's ZooKeeper before its brokers, and remove what is true of the original only."""
    from ottla.local import relocation  # only a copy needs it

    relocation.remove_marks(folder, cluster)
    _wait_ready(_start_zookeeper(folder, cluster, started, tell))
    relocation.remove_registrations(folder.zookeeper(cluster))


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
            find_jars(tell, sasl=cluster.secure)
        problem = in_the_way(zookeeper.port, HOST, "ZooKeeper")
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
    if "://" in addresses:
        raise OttlaError(f"--zookeeper {addresses} has a scheme; write host:port[,host:port]")
    reason = ""
    for part in addresses.partition("/")[0].split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon or not port.isdigit() or not 0 < int(port) < 65536:
            raise OttlaError(f"--zookeeper {part!r} is not an address; write host:port[,host:port]")
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
    children: Mapping[int, Running],
    tell: Callable[[str], None],
    timeout_s: float = START_TIMEOUT_S,
) -> None:
    """Wait until every broker lists all of them and a controller; StartupError with the reason.

    Brokers that are not in `children` ran before. One of them that hangs or is cut off fails no
    start of others: it is named after OTHERS_S.
    """
    import asyncio  # while brokers start

    from ottla.local import faults

    def check() -> None:
        for broker_id, process in children.items():
            if process.poll() is not None:
                raise StartupError(
                    f"broker {broker_id} ended at once: {folder.last_words(broker_id)} "
                    f"(all of it: {folder.log_file(broker_id)})"
                )

    async def wait(client: "Client") -> set[int]:
        """Return the brokers that ran before and do not list all the others."""
        wanted, started = {b.id for b in cluster.brokers}, set(children)
        deadline = time.monotonic() + timeout_s
        others_until: float | None = None
        alive: set[int] = set()

        def missing() -> str:
            ids = sorted((wanted if alive else started or wanted) - alive) or sorted(wanted)
            return f"broker {', '.join(map(str, ids))} to join the cluster"

        with waiting(missing):
            while True:
                check()
                with contextlib.suppress(ConnectionLostError):
                    lists = await _lists(client, cluster, started)
                    alive = set(lists).intersection(*lists.values())
                    if alive >= wanted:
                        return set()
                    if started and all(started <= lists.get(b, set()) for b in started):
                        others_until = others_until or time.monotonic() + OTHERS_S
                        if time.monotonic() > others_until:
                            return {b for b in wanted if not started <= lists.get(b, set())} or (
                                wanted - alive
                            )
                if time.monotonic() > deadline:
                    ids = sorted((wanted if alive else started or wanted) - alive)
                    words = folder.last_words(ids[0])
                    cuts = faults.in_force(folder)
                    raise StartupError(
                        f"broker {', '.join(map(str, ids))} did not join within "
                        f"{timeout_s:.0f} s; "
                        + (f"{faults.described(cuts)}; " if cuts else "")
                        + f"broker {ids[0]} last said: {words}"
                    )
                await asyncio.sleep(POLL_S)

    # Until a port accepts connections there is no broker; a plain connect costs least.
    # One that has accepted is not asked again: the others need the processor to start.
    deadline = time.monotonic() + timeout_s
    silent = list(cluster.brokers)
    with waiting() as listening:
        while silent := [b for b in silent if not _responses(b.near_address)]:
            check()
            if time.monotonic() > deadline:
                break
            listening.text = f"broker {', '.join(str(b.id) for b in silent)} to listen"
            time.sleep(POLL_S)
    for broker in cluster.brokers:
        if broker.advertised and not _responses((broker.advertised, broker.port), 3.0):
            raise StartupError(
                f"broker {broker.id} listens on {broker.host}:{broker.port}, but is not reachable "
                f"at {broker.address}, which --advertise names; the other brokers need that "
                "address too: name one that reaches this machine"
            )
    asked = [b for b in cluster.brokers if b.id in children] or cluster.brokers
    addresses = ",".join(b.address for b in asked)
    for broker_id in sorted(folder.ask(addresses, wait)):
        tell(
            f"broker {broker_id} runs, but does not know of all others; see `ottla status`, or "
            f"restart it: `ottla broker restart {broker_id}`"
        )


async def _lists(
    client: "Client", cluster: LocalCluster, started: Collection[int]
) -> dict[int, set[int]]:
    """Return which brokers each broker lists at their addresses, without those that are silent.

    Nothing while there is no controller, or one of `started` is not alive. StartupError if an id
    belongs to a live broker at another address: that of another cluster.
    """
    from ottla.wire.messages.cluster import MetadataRequest

    ours = {b.id: (b.advertised or b.host, b.port) for b in cluster.brokers}
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
                "ZooKeeper path; stop it, or give this cluster a separate path: "
                "--zookeeper HOST:PORT/NAME"
            )

    def listed(response: "MetadataResponse") -> set[int]:
        return {b.node_id for b in response.brokers if (b.host, b.port) == ours.get(b.node_id)}

    lists: dict[int, set[int]] = {}
    alive = listed(first)
    if first.controller_id < 0 or not alive.issuperset(started):
        return lists
    for broker_id in alive:
        timeout_s = None if broker_id in started else OTHERS_S
        with contextlib.suppress(ConnectionLostError):
            response = await client.call(MetadataRequest(topics=[]), broker_id, timeout_s=timeout_s)
            lists[broker_id] = listed(response)
    return lists


def _responses(address: tuple[str, int], timeout_s: float = 0.5) -> bool:
    try:
        with socket.create_connection(address, timeout_s):
            return True
    except OSError:
        return False


# -- foreground ---------------------------------------------------------------------------------


def stay(folder: ClusterDir, first_words: Sequence[str], say: Callable[[str], None]) -> None:
    """Say `first_words`, watch the processes until Ctrl-C; return when all of them are stopped."""
    with ended_in_order():
        _stay(folder, first_words, say)


def _stay(folder: ClusterDir, first_words: Sequence[str], say: Callable[[str], None]) -> None:
    dead: set[int] = set()
    try:
        for line in (*first_words, "Ctrl-C stops all of it"):
            say(line)
        while True:
            for broker in folder.existing().brokers:
                if not broker.running and broker.id not in dead:
                    dead.add(broker.id)
                    say(f"broker {broker.id} is gone: {folder.last_words(broker.id)}")
                elif broker.running and broker.id in dead:
                    dead.discard(broker.id)
                    say(f"broker {broker.id} is back")
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        say("stopping")
    finally:
        down(folder)


# -- down ---------------------------------------------------------------------------------------


def down(folder: ClusterDir, timeout_s: float = STOP_TIMEOUT_S) -> tuple[int, int]:
    """Stop everything of this folder; return how many were stopped, and how many by force."""
    from ottla.local import faults

    cluster = folder.existing()
    with folder.locked(), undisturbed():
        faults.end_all(folder, cluster.brokers)
        registry = cluster.registry
        brokers = [b.process for b in cluster.brokers if b.process and b.running]
        if registry is not None and registry.process is not None and registry.running:
            brokers.append(registry.process)
        forced = processes.stop(brokers, timeout_s)
        zookeeper = cluster.zookeeper.process
        last = [zookeeper] if zookeeper is not None and processes.alive(zookeeper) else []
        forced += processes.stop(last, 10.0)
        for broker in cluster.brokers:
            broker.process = None
            broker.ended = ""
            for left in (folder.metrics_socket(broker.id), folder.faults_socket(broker.id)):
                with contextlib.suppress(OSError):
                    left.unlink()  # that of a broker which was killed
        cluster.zookeeper.process = None
        if registry is not None:
            registry.process = None
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
