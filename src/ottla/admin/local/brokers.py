"""Single brokers of the cluster on this machine: stop, start, restart, kill, pause, resume, remove.

Who may call: `ottla broker`, the demo. Invariants: one command at a time works on a folder; nothing
is signalled that is not a process of this folder; a rolling restart touches the next broker only
when every partition has all its replicas in sync; a broker is removed only when it has no replica.
"""

import asyncio
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ottla.admin.local import cluster as local_cluster
from ottla.admin.local import ports, processes
from ottla.admin.local.cluster_dir import ClusterDir, LocalBroker, LocalCluster
from ottla.admin.output import plural
from ottla.admin.session import connected
from ottla.model.errors import ConnectionLostError, OttlaError, StartupError
from ottla.net.client import Client

Tell = Callable[[str], None]

STOP_TIMEOUT_S = 60.0
IN_SYNC_TIMEOUT_S = 120.0
GONE_WITHIN_S = 10.0
POLL_S = 0.2
DELETED_SUFFIX = "-delete"
"""Of a log's folder until its files are gone (Kafka: `LocalLog.DeleteDirSuffix`)."""


def chosen(cluster: LocalCluster, ids: Sequence[int]) -> list[LocalBroker]:
    """Return the brokers with these ids, each once, in this order; OttlaError for an unknown id."""
    return [cluster.broker(broker_id) for broker_id in dict.fromkeys(ids)]


def stop(folder: ClusterDir, ids: Sequence[int], timeout_s: float, tell: Tell) -> None:
    """Stop brokers one after the other by a controlled shutdown; one that is down stays down.

    OttlaError if one still runs after `timeout_s`; those after it are left alone.
    """
    cluster = folder.existing()
    with folder.locked():
        for broker in chosen(cluster, ids):
            if not broker.running:
                tell(f"broker {broker.id} is not running")
                continue
            _stop(folder, cluster, broker, timeout_s)
            tell(f"broker {broker.id} stopped")


def start(folder: ClusterDir, ids: Sequence[int], tell: Tell) -> None:
    """Start brokers beside each other and wait until they serve; one that runs goes on."""
    cluster = folder.existing()
    with folder.locked():
        brokers = []
        for broker in chosen(cluster, ids):
            if broker.paused:
                raise OttlaError(f"broker {broker.id} is paused; {_resume(broker)}")
            if broker.running:
                tell(f"broker {broker.id} is already running")
            else:
                brokers.append(broker)
        if brokers:
            _start(folder, cluster, brokers)
        for broker in brokers:
            tell(f"broker {broker.id} started on {broker.address}")


def send_signal(
    folder: ClusterDir, ids: Sequence[int], number: int, tell: Tell, by: str = "`ottla broker kill`"
) -> None:
    """Kill (SIGKILL), pause (SIGSTOP) or resume (SIGCONT) brokers; `by`: what `status` says of it.

    OttlaError, and no signal is sent, if one of them does not run.
    """
    cluster = folder.existing()
    done = {signal.SIGKILL: "killed", signal.SIGSTOP: "paused", signal.SIGCONT: "resumed"}
    with folder.locked():
        brokers = chosen(cluster, ids)
        for broker in brokers:
            if not broker.running:
                raise OttlaError(
                    f"broker {broker.id} is not running: {folder.why_down(broker)}; start it with "
                    f"`ottla broker start {broker.id}`"
                )
        those = [b.process for b in brokers if b.process is not None]
        for process in those:
            processes.send_signal(process, number)
        if number == signal.SIGSTOP:
            processes.wait_paused(those, GONE_WITHIN_S)
        if number == signal.SIGKILL:
            processes.wait_gone(those, GONE_WITHIN_S)
            for broker in brokers:
                broker.ended = f"killed by {by} {_now()}"
            folder.save(cluster)
        for broker in brokers:
            tell(f"broker {broker.id} {done[signal.Signals(number)]}")


def _now() -> str:
    return time.strftime("at %Y-%m-%d %H:%M:%S")


def _resume(broker: LocalBroker) -> str:
    return f"resume it with `ottla broker resume {broker.id}`"


def _stop(folder: ClusterDir, cluster: LocalCluster, broker: LocalBroker, timeout_s: float) -> None:
    process = broker.process
    assert process is not None, "whoever calls has looked whether it runs"
    processes.send_signal(process, signal.SIGCONT)
    processes.send_signal(process, signal.SIGTERM)
    if processes.wait_gone([process], timeout_s):
        raise OttlaError(
            f"broker {broker.id} still runs {timeout_s:g} s after SIGTERM; see "
            f"{folder.log_file(broker.id)}, or end it with `ottla broker kill {broker.id}`"
        )
    broker.ended = f"stopped by `ottla broker stop` {_now()}"
    folder.save(cluster)


def _start(folder: ClusterDir, cluster: LocalCluster, brokers: Sequence[LocalBroker]) -> None:
    problem = folder.zookeeper_problem()
    if problem is not None:
        raise StartupError(problem)
    for broker in brokers:
        problem = ports.port_problem(broker)
        if problem is not None:
            raise StartupError(problem)
    children = {b.id: local_cluster.start_broker(folder, cluster, b) for b in brokers}
    serving = [b for b in cluster.brokers if b.running and not b.paused]
    local_cluster.wait_until_serving(
        folder, msgspec.structs.replace(cluster, brokers=serving), children
    )


# -- rolling restart ----------------------------------------------------------------------------


def restart_order(folder: ClusterDir, ids: Sequence[int]) -> list[LocalBroker]:
    """Return the brokers in the order of a rolling restart: the controller last."""
    cluster = folder.existing()
    brokers = chosen(cluster, ids or [b.id for b in cluster.brokers])
    controller = connected(folder.bootstrap(), _controller, security=folder.security())
    return sorted(brokers, key=lambda b: b.id == controller)


async def _controller(client: Client) -> int:
    return int((await client.metadata([])).controller_id)


def unavailable_meanwhile(folder: ClusterDir, ids: Sequence[int]) -> list[str]:
    """Return the partitions whose only replica is on one of these brokers."""

    async def ask(client: Client) -> list[str]:
        response = await client.metadata(None)
        return [
            f"{topic.name}-{p.partition_index}"
            for topic in response.topics
            for p in topic.partitions
            if len(p.replica_nodes) == 1 and p.replica_nodes[0] in ids
        ]

    return connected(folder.bootstrap(), ask, security=folder.security())


def restart(
    folder: ClusterDir, brokers: Sequence[LocalBroker], timeout_s: float, tell: Tell
) -> None:
    """Restart brokers one after the other, each when all partitions are in sync.

    Those that are down are only started, all at once before the others. Waits `timeout_s` at most
    for each; OttlaError says what is not in sync and what is left to do.
    """
    cluster = folder.existing()
    with folder.locked():
        ours = [cluster.broker(b.id) for b in brokers]
        down = [b for b in ours if not b.running]
        if down:
            _start(folder, cluster, down)
            for broker in down:
                tell(f"broker {broker.id} started: it was down")
        running = [b for b in ours if b not in down]
        for place, broker in enumerate(running):
            left = " ".join(str(b.id) for b in running[place:])
            _wait_in_sync(folder, timeout_s, f"`ottla broker restart {left}` goes on")
            _stop(folder, cluster, broker, STOP_TIMEOUT_S)
            try:
                _start(folder, cluster, [broker])
            except KeyboardInterrupt:
                tell(f"interrupted while broker {broker.id} was starting: see `ottla status`")
                raise
            tell(f"broker {broker.id} restarted")
        _wait_in_sync(folder, timeout_s, "all are restarted")


def _wait_in_sync(folder: ClusterDir, timeout_s: float, way_out: str) -> None:
    deadline = time.monotonic() + timeout_s

    async def wait(client: Client) -> str | None:
        problem: str | None = None
        while True:
            try:
                problem = _sync_problem(await client.metadata(None))
                if problem is None:
                    return None
            except ConnectionLostError as error:
                problem = str(error)
            if time.monotonic() >= deadline:
                return problem
            await asyncio.sleep(POLL_S)

    problem = connected(folder.bootstrap(), wait, security=folder.security())
    if problem is not None:
        raise OttlaError(f"not in sync after {timeout_s:g} s: {problem}; {way_out}")


def _sync_problem(response: object) -> str | None:
    """Return what is not in sync, by a Metadata response; None if all is."""
    behind = [
        (f"{topic.name}-{p.partition_index}", sorted(set(p.replica_nodes) - set(p.isr_nodes)))
        for topic in response.topics  # type: ignore[attr-defined]
        for p in topic.partitions
        if len(p.isr_nodes) < len(p.replica_nodes) or p.leader_id < 0
    ]
    if not behind:
        return None
    brokers = Counter(broker for _, missing in behind for broker in missing)
    missing = ", ".join(f"broker {b} ({count})" for b, count in sorted(brokers.items()))
    return f"{plural(len(behind), 'partition')} (such as {behind[0][0]}) lack replicas in sync" + (
        f": {missing}" if missing else ""
    )


# -- remove -------------------------------------------------------------------------------------


def remove(folder: ClusterDir, broker_id: int, timeout_s: float, tell: Tell) -> None:
    """Stop a broker that has no replicas and forget it; its folder goes if it holds no logs."""
    cluster = folder.existing()
    with folder.locked():
        broker = cluster.broker(broker_id)
        if len(cluster.brokers) == 1:
            raise OttlaError(
                f"broker {broker_id} is the only one of {folder}; `ottla down` stops it"
            )
        replicas = connected(
            folder.bootstrap(),
            lambda client: _replicas(client, broker_id),
            security=folder.security(),
        )
        if replicas:
            raise OttlaError(
                f"broker {broker_id} has {plural(replicas, 'replica')}; move them first: "
                f"`ottla broker drain {broker_id}`"
            )
        if broker.running:
            _stop(folder, cluster, broker, timeout_s)
        cluster.brokers.remove(broker)
        folder.save(cluster)
        tell(f"broker {broker_id} removed")
        data = folder.data_dir(broker_id)
        logs = _log_folders(data)
        if logs:
            tell(f"{data} holds {plural(len(logs), 'folder')} of logs and stays")
        else:
            shutil.rmtree(folder.broker_dir(broker_id), ignore_errors=True)


def _log_folders(data: Path) -> list[Path]:
    """Return the logs of partitions in a log dir, without those that are being deleted."""
    found = [path for path in data.iterdir() if path.is_dir()] if data.is_dir() else []
    return [path for path in found if not path.name.endswith(DELETED_SUFFIX)]


async def _replicas(client: Client, broker_id: int) -> int:
    response = await client.metadata(None)
    return sum(broker_id in p.replica_nodes for t in response.topics for p in t.partitions)
