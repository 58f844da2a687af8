"""Faults of the coordination server's files, of deletions, and of bytes that arrive late.

Those of the server do nothing where it has no files (`Plan.durable_zookeeper`). Invariants: each
ends on its own within a bounded time.
"""

import errno
import struct
from collections.abc import Callable

from ottla.sim.clock import WORKER_S
from ottla.sim.files import SimDisk
from ottla.sim.moments import Hand
from ottla.sim.network import FIRST_PORT
from ottla.sim.transport import SimTransport
from ottla.sim.zookeeper_node import DATA_DIR

LATE = {
    0: "Produce",
    4: "LeaderAndIsr",
    5: "StopReplica",
    6: "UpdateMetadata",
    56: "AlterPartition",
}
"""What must be harmless however late it arrives."""
LATE_END = {26: "EndTxn"}
"""What the producer sent again: refused, as its connection is an older one
(`broker/connections.py`)."""
LATE_MARKERS = {27: "WriteTxnMarkers"}
"""What the transaction protocol before KIP-890 part 2 cannot tell from the same request for the
producer's next transaction, in Kafka 3.9 neither. Not drawn (`faults.NOT_DRAWN`)."""
CHURN = "churn"
"""The topic that comes and goes under one name, and its client. That client's Produce is not held:
it names no topic id, so a late one may hit the next topic, in Kafka as well."""
LATEST_S = 8.0


def zookeeper_disk_error(hand: Hand) -> str | None:
    """Let the server's disk fail or be full for a while: it ends, and starts in vain (F55)."""
    zk = hand.target.zk
    if not zk.durable or not zk.node.running or zk.node.disk.faults:
        return None
    operations = hand.rng.choice((("write",), ("fsync",), ("write", "fsync", "open")))
    error = hand.rng.choice((errno.EIO, errno.ENOSPC))
    zk.node.disk.fail(DATA_DIR, operations, error, torn=hand.rng.random() < 0.5)
    hand.after(hand.between(0.5, 6.0), zk.node.disk.mend)
    return f"{'+'.join(operations)} {errno.errorcode[error]}"


def zookeeper_dropped_pages(hand: Hand) -> str | None:
    """Let one fsync of the server fail and lose its pages; the machine loses power later (F55)."""
    zk = hand.target.zk
    if not zk.durable or not zk.node.running or zk.node.disk.faults:
        return None
    zk.node.disk.fail(DATA_DIR, ("fsync",), errno.EIO, times=1, drops=True)
    incarnation = zk.node.incarnation

    def restarted() -> bool:
        return zk.node.running and zk.node.incarnation > incarnation

    def lose_power() -> None:
        if restarted() and not hand.over():
            zk.stop(power_loss=True)
            hand.after(0.5, zk.start)

    def soon() -> None:
        zk.node.disk.mend()
        hand.after(hand.between(0.5, 5.0), lose_power)

    hand.watch(restarted, soon, 20.0, zk.node.disk.mend)
    return "then power loss"


def zookeeper_no_threads(hand: Hand) -> str | None:
    """Let the server start no thread for a while, as under a limit of pids (F55)."""
    zk = hand.target.zk
    if not zk.durable or not zk.node.running:
        return None
    workers = zk.node.workers
    workers.refuses = True
    hand.after(hand.between(0.3, 6.0), setattr, workers, "refuses", False)
    return "for a while"


def zookeeper_restored(hand: Hand) -> str | None:
    """Restore the server from a copy that is older than some topics (F51).

    The partitions that are judged have the leaders, epochs and ISRs of the copy, and everything is
    in sync: what they acknowledged can all be kept. No producer ids were given since: they would be
    given twice, in Kafka as well. Brokers restart, as their sessions know of
    a later state than the server.
    """
    target, zk = hand.target, hand.target.zk
    if not zk.durable or not zk.node.running:
        return None
    copy, judged, topics = zk.node.disk.copy(), target.judged_znodes(), target.topic_ids()

    def moment() -> bool:
        nodes = [zk.node, *target.broker_nodes()]
        return (
            all(node.running for node in nodes)
            and not target.topic_ids() <= topics
            and not target.deletions()
            and target.judged_znodes() == judged
            and target.all_in_sync()
            and not zk.writes.pending
            and hand.may_lose([])
        )

    def act() -> None:
        for node in target.broker_nodes():
            node.crash()
            hand.boot_later(node, 0.5, 3.0)
        zk.restore(copy)
        hand.after(0.3, target.note_forgotten)

    hand.after(hand.between(0.5, 3.0), hand.watch, moment, act, 12.0)
    return f"to {hand.simulation.now:.3f} s"


def power_loss_at_deletion(hand: Hand) -> str | None:
    """Take a broker's power when it has just set a deleted topic's folder aside (F26).

    Often its process was killed when it had created that folder, and its disk is slow: what has to
    be durable before the deletion is answered may not be.
    """
    running = hand.running()
    if not running:
        return None
    victim = hand.rng.choice(running)
    killed = hand.rng.random() < 0.8
    slow_s = hand.rng.choice((WORKER_S, 0.5, 2.0))
    before = set(victim.disk.folders)

    def fast() -> None:
        victim.workers.mean_s = WORKER_S

    def created() -> bool:
        return victim.up and any(_is_churn(f) for f in victim.disk.folders - before)

    def kill() -> None:
        hand.after(hand.rng.choice((0.0, 0.005, 0.02, 0.1)), kill_now)

    def kill_now() -> None:
        if victim.running and not hand.over():
            victim.crash()
            hand.boot_later(victim, 0.05, 0.5)
            hand.watch(deleted, lose_power, 12.0, fast)

    def deleted() -> bool:
        victim.workers.mean_s = slow_s
        return victim.up and any(map(_is_set_aside, victim.disk.folders - before))

    def lose_power() -> None:
        fast()
        hand.after(hand.rng.choice((0.0, 0.005, 0.02, 0.1)), lose_now)

    def lose_now() -> None:
        if victim.up and hand.may_lose([victim]):
            if hand.rng.random() < 0.7:
                _bring_back(victim.disk, before)
            victim.crash(power_loss=True)
            hand.boot_later(victim, 0.1, 1.5)

    if killed:
        hand.watch(created, kill, 10.0)
    else:
        hand.watch(deleted, lose_power, 12.0, fast)
    return f"{victim.name}{' after a kill' * killed}"


def _bring_back(disk: SimDisk, before: set[str]) -> None:
    """Have a power loss undo a deletion, and leave of that log's files the records only."""
    aside = next(filter(_is_set_aside, sorted(disk.folders - before)), None)
    if aside is None:
        return
    for path in [p for p in sorted(disk.inodes) if p.startswith(f"{aside}/")]:
        inode = disk.inodes[path]
        if path.endswith(".log"):
            inode.sync()
        elif inode.dirty:
            inode.keep_first(0)
    disk.undo_until(lambda: aside not in disk.folders)


def _is_churn(folder: str) -> bool:
    return folder.rpartition("/")[2].startswith(f"{CHURN}-")


def _is_set_aside(folder: str) -> bool:
    return folder.rpartition("/")[2].startswith(f"{CHURN}-") and folder.endswith("-delete")


def late_request(hand: Hand) -> str | None:
    """Hold one request's bytes until its sender has long given its connection up (F54).

    As where they lie in the socket buffer of a process that stands still, or that serves its newer
    connections first. The sender finds the connection reset, and asks again over another one.
    """
    return _late(hand, LATE)


def late_end_txn(hand: Hand) -> str | None:
    """Hold a producer's request to end its transaction: see `LATE_END`."""
    return _late(hand, LATE_END)


def late_markers(hand: Hand) -> str | None:
    """Hold a coordinator's request to write markers: see `LATE_MARKERS`."""
    return _late(hand, LATE_MARKERS)


def _late(hand: Hand, apis: dict[int, str]) -> str | None:
    internet = hand.simulation.internet
    if internet.tap is not None:
        return None
    api = hand.rng.choice(sorted(apis))
    seconds, given_up_s = hand.between(0.5, LATEST_S), hand.between(0.01, 0.4)

    def hear(transport: SimTransport, data: bytes) -> None:
        if len(data) < 14 or struct.unpack_from(">h", data, 4)[0] != api:
            return
        if transport.address[1] < FIRST_PORT or CHURN.encode() in data[14:32]:
            return  # a server's end, or a request that may do harm
        stop()
        assert transport.pipe is not None
        transport.pipe.hold(seconds)
        error = ConnectionResetError(errno.ECONNRESET, "reset by the network")
        hand.after(min(given_up_s, seconds / 2), transport.kernel_reset, error)

    def stop() -> None:
        if internet.tap is hear:
            internet.tap = None

    internet.tap = hear
    hand.after(5.0, stop)
    return f"{apis[api]} by {seconds:.1f} s"


SERVERS: dict[str, Callable[[Hand], str | None]] = {
    "zookeeper-disk-error": zookeeper_disk_error,
    "zookeeper-dropped-pages": zookeeper_dropped_pages,
    "zookeeper-no-threads": zookeeper_no_threads,
    "zookeeper-restored": zookeeper_restored,
    "power-loss-at-deletion": power_loss_at_deletion,
    "late-request": late_request,
    "late-end-txn": late_end_txn,
    "late-markers": late_markers,
}
