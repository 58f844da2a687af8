"""Ports of a cluster on this machine: the usual ones, those after them, or free ones.

Invariants: free ports come from below those that the system gives to outgoing connections; a port
that cannot be used is one line with the reason and the way out.
"""

import errno
import itertools
import os
import socket

from ottla.local.cluster_dir import HOST, LocalBroker, LocalCluster
from ottla.model.errors import OttlaError, StartupError

FIRST_PORT = 9092
ZOOKEEPER_PORT = 2181
FIRST_QUIET_PORT, QUIET_PORTS = 19_000, 10_000
METRICS_LISTENER, METRICS_ABOVE = "ottla.metrics.listener", 100


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
    return in_the_way(broker.port, broker.host, f"broker {broker.id}")


def in_the_way(port: int, host: str, what: str) -> str | None:
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


def free_ports(count: int) -> list[int]:
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


def choose_ports(
    brokers: int, base: int | None, *, any_ports: bool = False, external: bool = False
) -> tuple[list[int], int]:
    """Return the brokers' ports and ZooKeeper's: from `base` on, the usual ones, or free ones.

    `external`: ZooKeeper needs none, and may itself be who has the usual one.
    """
    if base is not None:
        if not 0 < base <= 65535 - brokers:
            raise OttlaError(f"--port-base {base}: choose a port from 1 to {65535 - brokers}")
        return list(range(base, base + brokers)), base + brokers
    usual = [*range(FIRST_PORT, FIRST_PORT + brokers), ZOOKEEPER_PORT]
    needed = usual[:brokers] if external else usual
    if any_ports or not all(map(port_is_free, needed)):
        usual = free_ports(brokers + 1)
    return usual[:-1], usual[-1]


def usual_ports_taken(cluster: LocalCluster, wanted_base: int | None) -> str | None:
    """Return what to say where a new cluster could not have the usual ports, None if it has."""
    first = cluster.brokers[0].port
    if wanted_base is not None or first == FIRST_PORT:
        return None
    last = FIRST_PORT + len(cluster.brokers) - 1
    usual = f"{FIRST_PORT} to {last}" if last > FIRST_PORT else f"{FIRST_PORT}"
    if not cluster.zookeeper.external:
        usual += f" and {ZOOKEEPER_PORT}"
    return (
        f"of the usual ports ({usual}) some are in use: this cluster begins at {first}; "
        "--port-base chooses"
    )


def next_ports(cluster: LocalCluster, count: int) -> list[int]:
    """Return ports for more brokers: those after the last broker's, as far as they are free."""
    taken = {b.port for b in cluster.brokers}
    if not cluster.zookeeper.external:
        taken.add(cluster.zookeeper.port)
    after = (p for p in range(cluster.brokers[-1].port + 1, 65536) if p not in taken)
    found = list(itertools.islice(after, count))
    host = cluster.brokers[-1].host
    if len(found) == count and all(port_is_free(p, host) for p in found):
        return found
    return free_ports(count)


def choose_metrics_port(cluster: LocalCluster, broker: LocalBroker) -> None:
    """Keep the port of a broker's metrics if it is free; else choose the one 100 above its own.

    Metrics are no reason for a broker not to start: where that one is not free, any is taken.
    """
    if METRICS_LISTENER in cluster.settings:
        broker.metrics_port = 0
        return
    others = {port for b in cluster.brokers for port in (b.port, b.metrics_port) if b is not broker}
    for port in (broker.metrics_port, broker.port + METRICS_ABOVE):
        if 0 < port < 65536 and port not in others and port_is_free(port):
            broker.metrics_port = port
            return
    free = free_ports(len(others) + 1)
    broker.metrics_port = next(port for port in free if port not in others)
