"""Single brokers of the cluster on this machine: stop, start, restart, kill, pause, resume, remove.

Invariants: one command at a time works on a folder; nothing is signalled that is not a process of
this folder; a rolling restart takes no replica in sync away from a partition that lacks another; a
broker is removed only when it has no replica.
"""

import contextlib
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from ottla.client.client import Client
from ottla.local import cluster as local_cluster
from ottla.local import faults, ports, processes
from ottla.local.cluster_dir import ClusterDir, LocalBroker, LocalCluster
from ottla.model.errors import ConnectionLostError, OttlaError, StartupError
from ottla.model.printable import plural
from ottla.model.waits import waiting
from ottla.wire.messages.cluster import MetadataResponse

Tell = Callable[[str], None]

STOP_TIMEOUT_S = 60.0
GONE_WITHIN_S = 10.0
POLL_S = 0.2
NOBODY = (LocalBroker(-1, 0),)
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
            _start(folder, cluster, brokers, tell)
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
    assert process is not None, "the caller has checked that it runs"
    processes.send_signal(process, signal.SIGCONT)
    faults.end_all(folder, [broker])  # they end with the process; it could not hand over before
    processes.send_signal(process, signal.SIGTERM)
    if processes.wait_gone([process], timeout_s):
        raise OttlaError(
            f"broker {broker.id} still runs {timeout_s:g} s after SIGTERM; see "
            f"{folder.log_file(broker.id)}, or end it with `ottla broker kill {broker.id}`"
        )
    broker.ended = f"stopped by `ottla broker stop` {_now()}"
    folder.save(cluster)


def _start(
    folder: ClusterDir, cluster: LocalCluster, brokers: Sequence[LocalBroker], tell: Tell
) -> None:
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
        folder, msgspec.structs.replace(cluster, brokers=serving), children, tell
    )


# -- rolling restart ----------------------------------------------------------------------------


def restart_order(folder: ClusterDir, ids: Sequence[int]) -> list[LocalBroker]:
    """Return the brokers in the order of a rolling restart.

    Those that do not run, are paused or lag come first, since they may be what the others would
    wait for; the controller is last.
    """
    cluster = folder.existing()
    brokers = chosen(cluster, ids or [b.id for b in cluster.brokers])
    view = _view_if_any(folder)
    behind = set() if view is None else _behind(view)
    controller = -1 if view is None else view.controller_id

    def place(broker: LocalBroker) -> tuple[bool, bool]:
        ready = broker.running and not broker.paused and broker.id not in behind
        return ready, broker.id == controller  # False sorts first

    return sorted(brokers, key=place)


def unavailable_meanwhile(folder: ClusterDir, ids: Sequence[int]) -> list[str]:
    """Return the partitions whose only replica is on one of these brokers."""
    view = _view_if_any(folder)
    return [
        f"{topic.name}-{p.partition_index}"
        for topic in ([] if view is None else view.topics)
        for p in topic.partitions
        if len(p.replica_nodes) == 1 and p.replica_nodes[0] in ids
    ]


def restart(
    folder: ClusterDir, brokers: Sequence[LocalBroker], timeout_s: float, tell: Tell
) -> None:
    """Restart brokers one after the other, each when no partition needs it (see `needed_by`).

    Those that are down are only started, all at once before the others. Waits `timeout_s` at most
    for each; OttlaError says what is not in sync and what is left to do.
    """
    cluster = folder.existing()
    with folder.locked():
        ours = [cluster.broker(b.id) for b in brokers]
        down = [b for b in ours if not b.running]
        if down:
            _start(folder, cluster, down, tell)
            for broker in down:
                tell(f"broker {broker.id} started: it was down")
        cuts = faults.in_force(folder)
        if cuts:
            tell(faults.described(cuts))
        left = [b for b in ours if b not in down]
        done = {b.id for b in down}
        while left:
            broker = _wait_for_one(folder, left, done, timeout_s)
            problem = folder.zookeeper_problem()
            if problem is not None:  # it could not start again
                raise StartupError(problem)
            _stop(folder, cluster, broker, STOP_TIMEOUT_S)
            try:
                _start(folder, cluster, [broker], tell)
            except KeyboardInterrupt:
                tell(f"interrupted while broker {broker.id} was starting: see `ottla status`")
                raise
            tell(f"broker {broker.id} restarted")
            left.remove(broker)
            done.add(broker.id)
        _wait_for_one(folder, [], done, timeout_s)


def needed_by(
    view: MetadataResponse, broker_id: int, restarted: Collection[int]
) -> dict[str, list[int]]:
    """Return the partitions for which a broker must not stop now, with the replicas that they lack.

    It is in sync there and others are not: without it there would be one replica less. Where it is
    out of sync itself, or its log dir failed, its restart is what helps. Nothing else is touched
    either until those in `restarted` lead and follow again.
    """
    found = {}
    for topic in view.topics:
        for p in topic.partitions:
            missing = set(p.replica_nodes) - set(p.isr_nodes) - {broker_id}
            in_sync = broker_id in p.isr_nodes and broker_id not in p.offline_replicas
            returning = missing if p.leader_id >= 0 else set(p.replica_nodes)
            if (in_sync and missing) or not returning.isdisjoint(restarted):
                found[f"{topic.name}-{p.partition_index}"] = sorted(missing)
    return found


def _wait_for_one(
    folder: ClusterDir,
    left: Sequence[LocalBroker],
    restarted: Collection[int],
    timeout_s: float,
) -> LocalBroker:
    """Return which of these is the next to be restarted, as soon as no partition needs it.

    That is the first, or one that lags. With none left it waits for those that are restarted.
    """
    began = time.monotonic()
    with waiting() as reported:
        while True:
            # Of the broker itself only if no other can be asked: it may not know what happened.
            asked = _serving(folder, without=left[0].id if left else None)
            view, problem = None, "no broker serves"
            try:
                view = _view(folder, asked)
            except ConnectionLostError as error:
                problem = str(error)
            if view is None and left and {b.id for b in asked} <= {left[0].id}:
                return left[0]  # no other broker serves: nothing can get worse
            if view is not None:
                behind = _behind(view)
                for place, broker in enumerate(left or NOBODY):
                    if broker.paused:
                        return broker  # it serves nothing; others may wait for it
                    if place and broker.id not in behind:
                        continue
                    lacking = needed_by(view, broker.id, () if broker.id in behind else restarted)
                    if not lacking:
                        return broker
                    if not place:
                        problem = _lacking(lacking)
            if time.monotonic() - began >= timeout_s:
                raise OttlaError(f"not in sync after {timeout_s:g} s: {problem}; {_then(left)}")
            reported.text = problem
            time.sleep(POLL_S)


def _then(left: Sequence[LocalBroker]) -> str:
    if not left:
        return "all are restarted"
    ids = " ".join(str(b.id) for b in left)
    first = left[0].id
    return (
        f"`ottla broker restart {ids}` goes on; if broker {first} is why, `ottla broker stop "
        f"{first}` and `ottla broker start {first}` do not wait"
    )


def _serving(folder: ClusterDir, without: int | None = None) -> list[LocalBroker]:
    """Return the brokers that can be asked: others than `without`, unless it is alone."""
    serving = [b for b in folder.existing().brokers if b.running and not b.paused]
    return [b for b in serving if b.id != without] or serving


def _view(folder: ClusterDir, asked: Sequence[LocalBroker]) -> MetadataResponse | None:
    """Return the cluster's metadata from one of these brokers, None if there are none."""
    if not asked:
        return None
    addresses = ",".join(b.address for b in asked)
    return folder.ask(addresses, lambda client: client.metadata(None))


def _view_if_any(folder: ClusterDir) -> MetadataResponse | None:
    """Return the cluster's metadata, None where no broker answers: to restart them may help."""
    with contextlib.suppress(ConnectionLostError):
        return _view(folder, _serving(folder))
    return None


def _behind(view: MetadataResponse) -> set[int]:
    """Return the brokers that have a replica which is not in sync."""
    return {
        broker
        for topic in view.topics
        for p in topic.partitions
        for broker in set(p.replica_nodes) - set(p.isr_nodes)
    }


def _lacking(partitions: dict[str, list[int]]) -> str:
    """Return in words which replicas these partitions lack."""
    counts = Counter(broker for missing in partitions.values() for broker in missing)
    missing = ", ".join(f"broker {b} ({count})" for b, count in sorted(counts.items()))
    verb = "lacks" if len(partitions) == 1 else "lack"
    what = f"replicas in sync: {missing}" if missing else "a leader"
    count = plural(len(partitions), "partition")
    return f"{count} (such as {next(iter(partitions))}) {verb} {what}"


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
        replicas = folder.ask(folder.bootstrap(), lambda client: _replicas(client, broker_id))
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
