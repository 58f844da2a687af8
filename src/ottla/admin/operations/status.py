"""Status of a cluster: brokers, controller, partitions; with the folder, also the processes.

Invariants: changes nothing; a broker that does not respond is reported as such, and the rest is
reported all the same.
"""

from pathlib import Path

import msgspec

from ottla.admin.session import connected
from ottla.client.client import Client
from ottla.local import processes
from ottla.local.cluster_dir import ClusterDir, LocalCluster
from ottla.model.errors import OttlaError
from ottla.model.ports import address_text
from ottla.net import status_socket

ASK_TIMEOUT_S = 5.0
METRICS_TIMEOUT_S = 1.0
"""For each broker: one that is stopped does not respond."""

DAMAGED = "ottla.log:type=LogManager,name=DamagedLogCount"
IDLE = "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"


class BrokerStatus(msgspec.Struct):
    """One broker. Fields of the folder are None where only the wire was asked."""

    id: int = msgspec.field(name="broker")
    address: str
    alive: bool
    controller: bool = False
    leads: int = 0
    replicas: int = 0
    pid: int | None = None
    resident_bytes: int | None = None
    paused: bool = False
    """Whether its process is stopped by a signal (SIGSTOP)."""
    reason: str | None = None
    """Why it is down or not registered, as far as its log and ZooKeeper tell."""
    metrics: dict[str, dict[str, int | float]] | None = None
    """Kafka's figures by MBean name, None where the broker does not tell: docs/METRICS.md"""

    @property
    def idle(self) -> float | None:
        """Return how much of the last minute the broker had nothing to do, from 0 to 1."""
        return None if self.metrics is None else self.metrics.get(IDLE, {}).get("Value")

    @property
    def damaged(self) -> int:
        """Return how many of its logs hold records that it cannot read, as far as it tells."""
        found = 0 if self.metrics is None else self.metrics.get(DAMAGED, {}).get("Value", 0)
        return int(found)


class Status(msgspec.Struct):
    """A cluster. `partitions` counts; the three after it say what is wrong with some."""

    cluster_id: str | None
    controller: int | None
    brokers: list[BrokerStatus]
    topics: int = 0
    partitions: int = 0
    under_replicated: int = 0
    without_leader: int = 0
    zookeeper: str | None = None
    zookeeper_running: bool | None = None
    zookeeper_server: str | None = None
    """own, embedded-java, or external"""
    problem: str | None = None
    disk: str | None = None
    """Why the processes of the folder cannot write: a full disk, for one."""

    @property
    def healthy(self) -> bool:
        """Whether all brokers live, there is a controller and every partition is healthy."""
        return (
            self.problem is None
            and self.disk is None
            and self.controller is not None
            and self.zookeeper_running is not False
            and all(b.alive and not b.paused for b in self.brokers)
            and not (self.under_replicated or self.without_leader)
        )


class JudgedStatus(Status, kw_only=True):
    """A status as it is printed: with what it amounts to."""

    healthy: bool


def with_verdict(status: Status) -> JudgedStatus:
    return JudgedStatus(**msgspec.structs.asdict(status), healthy=status.healthy)


async def ask(client: Client) -> Status:
    """Return what Metadata says."""
    response = await client.metadata(None)
    brokers = {
        b.node_id: BrokerStatus(
            b.node_id,
            address_text(b.host, b.port),
            alive=True,
            controller=b.node_id == response.controller_id,
        )
        for b in sorted(response.brokers, key=lambda b: b.node_id)
    }
    status = Status(
        response.cluster_id,
        response.controller_id if response.controller_id >= 0 else None,
        list(brokers.values()),
        topics=len(response.topics),
    )
    for topic in response.topics:
        for partition in topic.partitions:
            status.partitions += 1
            status.without_leader += partition.leader_id < 0
            status.under_replicated += len(partition.isr_nodes) < len(partition.replica_nodes)
            if partition.leader_id in brokers:
                brokers[partition.leader_id].leads += 1
            for replica in partition.replica_nodes:
                if replica in brokers:
                    brokers[replica].replicas += 1
    return status


def of_folder(folder: ClusterDir) -> Status:
    """Return the status of the cluster that `ottla up` started, dead parts included."""
    cluster = folder.existing()
    running = [b.address for b in cluster.brokers if b.running and not b.paused]
    status = Status(None, None, [])
    if running:
        try:
            status = connected(
                ",".join(running), ask, timeout_s=ASK_TIMEOUT_S, security=folder.security()
            )
        except OttlaError as error:
            status.problem = str(error)
    else:
        status.problem = folder.nothing_runs(cluster)
    _add_processes(status, cluster, folder)
    status.disk = folder.disk_problem(cluster)
    for broker in status.brokers:
        if broker.pid is not None and not broker.paused:
            broker.metrics = metrics_of(folder.metrics_socket(broker.id))
    return status


def metrics_of(socket: Path) -> dict[str, dict[str, int | float]] | None:
    """Return what a broker tells by its metrics socket, None if it does not."""
    try:
        text = status_socket.read(str(socket), METRICS_TIMEOUT_S)
        return msgspec.json.decode(text, type=dict[str, dict[str, int | float]])
    except (OSError, msgspec.DecodeError):
        return None


def _add_processes(status: Status, cluster: LocalCluster, folder: ClusterDir) -> None:
    known = {b.id: b for b in status.brokers}
    status.brokers = []
    for local in cluster.brokers:
        broker = known.get(local.id)
        if broker is None or broker.address != local.address:
            # Whoever registered under this id at another address is not the process started here.
            elsewhere = None if broker is None else broker.address
            broker = BrokerStatus(local.id, local.address, alive=False)
            if elsewhere is not None:
                broker.reason = f"its id is registered by a broker at {elsewhere}"
        if local.process is not None and local.running:
            broker.pid = local.process.pid
            broker.resident_bytes = processes.resident_bytes(local.process)
            broker.paused = local.paused
            if broker.paused:
                broker.reason = f"it is paused; `ottla broker resume {local.id}` lets it go on"
            elif not broker.alive and broker.reason is None:
                words = folder.last_words(local.id)
                broker.reason = f"it runs but is not registered; last line of its log: {words}"
        else:
            broker.alive = False
            broker.reason = folder.why_down(local)
        status.brokers.append(broker)
    status.zookeeper = cluster.zookeeper.address
    status.zookeeper_running = cluster.zookeeper.running
    status.zookeeper_server = cluster.zookeeper.server
