"""Statements that are not true any more: of disks, settings, late bytes, the coordination server.

A copy of a disk has every file that says "these logs are whole" and "this is broker 1", in files of
its own (F51 to F53). What counts as lost: an older copy is a disk that lost what came after it, so
it takes the place of a disk only where that may lose something (`Strike.may_lose`); a broker with
two processes counts as one that lacks records until the second one is gone. Faults of the server's
files do nothing where it has none (`Plan.durable_zookeeper`).
"""

import errno
import struct
from collections.abc import Callable

from ottla.model.ids import TopicPartition
from ottla.sim.clock import WORKER_S
from ottla.sim.faults.strike import Drawn, Meanwhile, Strike, fault
from ottla.sim.files import DiskCopy, SimDisk
from ottla.sim.network import FIRST_PORT
from ottla.sim.transport import SimTransport
from ottla.sim.world import Node
from ottla.sim.zookeeper_node import DATA_DIR

DRAWN = Drawn.AS_STATEMENT
BRIEFLY, ALWAYS = Meanwhile.BRIEFLY, Meanwhile.YES
LONGER_THAN_A_SESSION_S = 8.0

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
(`producer_connections`)."""
LATE_MARKERS = {27: "WriteTxnMarkers"}
"""What the transaction protocol before KIP-890 part 2 cannot tell from the same request for the
producer's next transaction, in Kafka 3.9 neither. Not drawn."""
CHURN = "churn"
"""The topic that comes and goes under one name, and its client. That client's Produce is not held:
it names no topic id, so a late one may hit the next topic, in Kafka as well."""
LATEST_S = 8.0


@fault(4, "F50", ALWAYS, DRAWN)
def lowered_min_isr(strike: Strike) -> str:
    """Lower min.insync.replicas for a while: the default, one broker's, or one topic's (F50)."""
    scope = strike.rng.choice(("default", "broker", "topic"))
    where = {
        "default": "",
        "broker": str(strike.rng.randrange(len(strike.cluster.broker_nodes()))),
        "topic": strike.rng.choice(strike.cluster.watched).topic,
    }[scope]
    strike.cluster.set_min_isr(scope, where, 1)
    strike.after(strike.between(2.0, 12.0), strike.cluster.set_min_isr, scope, where, None)
    return f"{scope} {where}"


@fault(6, "F50", drawn=DRAWN)
def lowered_for_the_last(strike: Strike) -> str | None:
    """Lower min.insync.replicas while one replica is in sync, and restore it; then that one dies.

    What was acknowledged by it alone no eligible replica has (F50).
    """
    scope = strike.rng.choice(("default", "default", "broker", "topic"))

    def act(tp: TopicPartition, leader: Node, last: Node, others: list[Node]) -> None:
        where = {"default": "", "broker": leader.name.removeprefix("b"), "topic": tp.topic}[scope]
        strike.cluster.set_min_isr(scope, where, 1)
        strike.after(2.0, strike.cluster.set_min_isr, scope, where, None)
        strike.after(strike.between(3.0, 4.0), _let_others_lead, strike, leader, [last, *others])

    found = until_one_is_left(strike, act)
    return None if found is None else f"{scope} {found}"


def until_one_is_left(
    strike: Strike,
    then: Callable[[TopicPartition, Node, Node, list[Node]], object],
    prepare: Callable[[Node], object] = lambda _: None,
) -> str | None:
    """Kill an ISR's members, one after the other, until the leader is alone in it.

    `prepare` takes the one that dies last, a while before. `then` takes the partition, its leader,
    that one and the others, all of which are down.
    """
    cluster, nodes = strike.cluster, strike.cluster.broker_nodes()
    chosen = next(((tp, le, isr) for tp, le, isr in strike.led_partitions() if len(isr) > 1), None)
    if chosen is None or len(strike.running()) < len(nodes):
        return None
    tp, leader, isr = chosen
    last = strike.rng.choice([node for node in isr if node is not leader])
    others = [node for node in isr if node not in (leader, last)]

    def reached(*members: Node) -> Callable[[], bool]:
        wanted = nodes.index(leader), {nodes.index(node) for node in members}

        def look() -> bool:
            state = cluster.leader_and_isr(tp)
            return state is not None and (state[0], set(state[1])) == wanted and leader.up

        return look

    def end(*dying: Node) -> None:
        for node in dying:
            strike.kill_and_expire(node)

    def give_up() -> None:
        _boot(last, *others)

    def kill_last() -> None:
        end(last)
        strike.watch(reached(leader), lambda: then(tp, leader, last, others), 10.0, give_up)

    def kill_others() -> None:
        if last.up and leader.up and not strike.over():
            end(*others)
            strike.watch(reached(leader, last), kill_last, 10.0, give_up)

    prepare(last)
    strike.after(strike.between(3.0, 5.0), kill_others)
    return f"{tp}: {leader.name}, then {last.name} without it"


def _boot(*nodes: Node) -> None:
    for node in nodes:
        node.boot_if_down()


def _let_others_lead(strike: Strike, leader: Node, others: list[Node]) -> None:
    """Kill a leader that stays away for longer than a session; the others start meanwhile."""
    strike.kill_and_expire(leader)
    for other in others:
        strike.boot_later(other, 0.05, 1.0)
    strike.boot_later(leader, LONGER_THAN_A_SESSION_S, 1.5 * LONGER_THAN_A_SESSION_S)


@fault(5, "F51", drawn=DRAWN)
def zookeeper_restored(strike: Strike) -> str | None:
    """Restore the server from a copy that is older than some topics (F51).

    The partitions that are judged have the leaders, epochs and ISRs of the copy, and everything is
    in sync: what they acknowledged can all be kept. No producer ids were given since: they would be
    given twice, in Kafka as well. Brokers restart, as their sessions know of
    a later state than the server.
    """
    cluster, zk = strike.cluster, strike.cluster.zk
    if not zk.durable or not zk.node.running:
        return None
    copy, judged, topics = zk.node.disk.copy(), cluster.judged_znodes(), cluster.topic_ids()

    def moment() -> bool:
        nodes = [zk.node, *cluster.broker_nodes()]
        return (
            all(node.running for node in nodes)
            and not cluster.topic_ids() <= topics
            and not cluster.deletions()
            and cluster.judged_znodes() == judged
            and cluster.all_in_sync()
            and not zk.writes.pending
            and strike.may_lose([])
        )

    def act() -> None:
        for node in cluster.broker_nodes():
            node.crash()
            strike.boot_later(node, 0.5, 3.0)
        zk.restore(copy)
        strike.after(0.3, cluster.note_forgotten)

    strike.after(strike.between(0.5, 3.0), strike.watch, moment, act, 12.0)
    return f"to {strike.simulation.now:.3f} s"


@fault(5, "F52", BRIEFLY, DRAWN)
def older_disk(strike: Strike) -> str | None:
    """Replace the disk of a broker that leads by an older copy; often all brokers die with it.

    The copy is taken after a clean stop, or from the running broker. The others are back soon.
    """
    victim = next((leader for _, leader, _ in strike.led_partitions()), None)
    if victim is None:
        return None
    all_die, reboots = strike.rng.random() < 0.6, strike.rng.random() < 0.25

    def replace(copy: DiskCopy) -> None:
        if strike.over() or not victim.up or not strike.may_lose([victim]):
            return
        for node in strike.cluster.broker_nodes() if all_die else [victim]:
            node.crash()
            strike.boot_later(node, 0.5, 4.0) if node is not victim else None
        if reboots:
            victim.disk.power_losses += 1
        victim.disk.restore(copy)
        strike.boot_later(victim, 0.05, 0.5)

    how = _copy(strike, victim, lambda copy: strike.after(strike.between(1.0, 8.0), replace, copy))
    return f"{victim.name} {how}{', all die' * all_die}{', another boot' * reboots}"


def _copy(strike: Strike, node: Node, then: Callable[[DiskCopy], object]) -> str:
    """Copy a broker's disk, now or once it has stopped gracefully; say how."""
    if strike.rng.random() < 0.5:
        then(node.disk.copy())
        return "hot"
    strike.cluster.processes.stop(node)  # its supervisor starts it again
    incarnation = node.incarnation

    def stopped() -> bool:
        return not node.up and not node.loop.dead and node.incarnation == incarnation

    strike.watch(stopped, lambda: then(node.disk.copy()), 5.0)
    return "after a clean stop"


@fault(6, "F52", drawn=DRAWN)
def older_disk_of_eligible(strike: Strike) -> str | None:
    """Let the last broker but one of an ISR die and return with an older disk, without the last.

    It is an eligible replica by what the controller noted of it (adr/0007).
    """
    copies: list[DiskCopy] = []

    def act(tp: TopicPartition, leader: Node, last: Node, others: list[Node]) -> None:
        del tp
        number = strike.cluster.broker_nodes().index(last)
        states = map(strike.cluster.leader_and_isr, strike.cluster.watched)
        # Where it is in sync it may lead when it has waited for the others (adr/0005).
        elsewhere = any(state is None or number in state[1] for state in states)
        if copies and not elsewhere and strike.may_lose([last]):
            last.crash()  # another fault may have started it
            last.disk.restore(copies[0])
            _let_others_lead(strike, leader, [last, *others])
        else:
            _boot(last, *others)

    def prepare(victim: Node) -> None:
        _copy(strike, victim, copies.append)

    return until_one_is_left(strike, act, prepare) if strike.hard else None


@fault(2, "F52", drawn=DRAWN)
def swapped_disks(strike: Strike) -> str | None:
    """Kill two brokers and exchange their disks for a while: none may serve what is another's."""
    running = strike.running()
    if len(running) < 2:
        return None
    pair = strike.rng.sample(running, 2)
    if not strike.allowance.may_reserve(pair):
        return None
    one, other = pair

    def exchange() -> None:
        one.crash()
        other.crash()
        one.disk.exchange(other.disk)
        strike.boot_later(one, 0.05, 0.5)
        strike.boot_later(other, 0.05, 0.5)

    exchange()
    strike.allowance.reserve(strike.between(1.0, 4.0), pair, exchange)
    return f"{one.name} {other.name}"


@fault(3, "F53", BRIEFLY, DRAWN)
def second_process(strike: Strike) -> str | None:
    """Start a copy of a living broker's disk elsewhere (F53): its id is in use."""
    started = _start_second(strike)
    return None if started is None else f"{started[0].name} {started[1]:.1f} s"


@fault(4, "F53", BRIEFLY, DRAWN)
def second_process_while_silent(strike: Strike) -> str | None:
    """Start one while the first is paused, or cut off from all servers: its session ends."""
    started = _start_second(strike)
    if started is None:
        return None
    node, seconds = started
    if strike.rng.random() < 0.5:
        node.pause()
        strike.after(0.7 * seconds, node.wake, node.incarnation)
        return f"{node.name} {seconds:.1f} s paused"
    internet, cluster = strike.simulation.internet, strike.cluster
    # From brokers, too: else it may become the only member of an ISR and acknowledge alone what the
    # copy, which then takes its place, does not have. That is lost in Kafka as well.
    others = [n.name for n in (cluster.zk.node, *cluster.broker_nodes()) if n is not node]
    pairs = [pair for other in others for pair in ((node.name, other), (other, node.name))]
    internet.block_all(pairs)
    strike.after(0.7 * seconds, internet.unblock_all, pairs)
    return f"{node.name} {seconds:.1f} s cut off"


def _start_second(strike: Strike) -> tuple[Node, float] | None:
    """Start it; return the first one, and after how many seconds the second one is ended.

    Where the first one dies meanwhile, the second one ends at once: Kafka has no rule for two
    disks of which either may be the right one.
    """
    started = [n for n in strike.running() if strike.cluster.processes.started(n)]
    if not started:
        return None
    node = strike.rng.choice(started)
    if not strike.may_lose([node]) or not strike.allowance.may_reserve([node]):
        return None
    second = strike.cluster.start_second(node)
    seconds = strike.between(4.0, 15.0)

    release = strike.allowance.reserve(
        seconds, [node], lambda: strike.cluster.end_second(node, second)
    )
    strike.watch(lambda: not node.up, release, seconds)
    return node, seconds


@fault(6, "F54", ALWAYS, DRAWN)
def late_request(strike: Strike) -> str | None:
    """Hold one request's bytes until its sender has long given its connection up (F54).

    As where they lie in the socket buffer of a process that stands still, or that serves its newer
    connections first. The sender finds the connection reset, and asks again over another one.
    """
    return _late(strike, LATE)


@fault(6, "F54", drawn=DRAWN)
def late_end_txn(strike: Strike) -> str | None:
    """Hold a producer's request to end its transaction: see `LATE_END`."""
    return _late(strike, LATE_END)


@fault(6, "F54", drawn=Drawn.NAMED_ONLY)
def late_markers(strike: Strike) -> str | None:
    """Hold a coordinator's request to write markers: see `LATE_MARKERS`."""
    return _late(strike, LATE_MARKERS)


def _late(strike: Strike, apis: dict[int, str]) -> str | None:
    internet = strike.simulation.internet
    if internet.tap is not None:
        return None
    api = strike.rng.choice(sorted(apis))
    seconds, given_up_s = strike.between(0.5, LATEST_S), strike.between(0.01, 0.4)

    def hear(transport: SimTransport, data: bytes) -> None:
        if len(data) < 14 or struct.unpack_from(">h", data, 4)[0] != api:
            return
        if transport.address[1] < FIRST_PORT or CHURN.encode() in data[14:32]:
            return  # a server's end, or a request that may do harm
        stop()
        assert transport.pipe is not None
        transport.pipe.hold(seconds)
        error = ConnectionResetError(errno.ECONNRESET, "reset by the network")
        strike.after(min(given_up_s, seconds / 2), transport.kernel_reset, error)

    def stop() -> None:
        if internet.tap is hear:
            internet.tap = None

    internet.tap = hear
    strike.after(5.0, stop)
    return f"{apis[api]} by {seconds:.1f} s"


@fault(3, "F55", ALWAYS, DRAWN)
def zookeeper_disk_error(strike: Strike) -> str | None:
    """Let the server's disk fail or be full for a while: it ends, and starts in vain (F55)."""
    zk = strike.cluster.zk
    if not zk.durable or not zk.node.running or zk.node.disk.faults:
        return None
    operations = strike.rng.choice((("write",), ("fsync",), ("write", "fsync", "open")))
    error = strike.rng.choice((errno.EIO, errno.ENOSPC))
    zk.node.disk.fail(DATA_DIR, operations, error, torn=strike.rng.random() < 0.5)
    strike.after(strike.between(0.5, 6.0), zk.node.disk.mend)
    return f"{'+'.join(operations)} {errno.errorcode[error]}"


@fault(3, "F55", ALWAYS, DRAWN)
def zookeeper_dropped_pages(strike: Strike) -> str | None:
    """Let one fsync of the server fail and lose its pages; the machine loses power later (F55)."""
    zk = strike.cluster.zk
    if not zk.durable or not zk.node.running or zk.node.disk.faults:
        return None
    zk.node.disk.fail(DATA_DIR, ("fsync",), errno.EIO, times=1, drops=True)
    incarnation = zk.node.incarnation

    def restarted() -> bool:
        return zk.node.running and zk.node.incarnation > incarnation

    def lose_power() -> None:
        if restarted() and not strike.over():
            zk.stop(power_loss=True)
            strike.after(0.5, zk.start)

    def soon() -> None:
        zk.node.disk.mend()
        strike.after(strike.between(0.5, 5.0), lose_power)

    strike.watch(restarted, soon, 20.0, zk.node.disk.mend)
    return "then power loss"


@fault(2, "F55", ALWAYS, DRAWN)
def zookeeper_no_threads(strike: Strike) -> str | None:
    """Let the server start no thread for a while, as under a limit of pids (F55)."""
    zk = strike.cluster.zk
    if not zk.durable or not zk.node.running:
        return None
    workers = zk.node.workers
    workers.refuses = True

    def end() -> None:
        workers.refuses = False

    strike.later(0.3, 6.0, end)
    return "for a while"


@fault(6, "F5 F26", BRIEFLY, DRAWN)
def power_loss_at_deletion(strike: Strike) -> str | None:
    """Take a broker's power when it has just set a deleted topic's folder aside (F26).

    Often its process was killed when it had created that folder, and its disk is slow: what has to
    be durable before the deletion is answered may not be.
    """
    running = strike.running()
    if not running:
        return None
    victim = strike.rng.choice(running)
    killed = strike.rng.random() < 0.8
    slow_s = strike.rng.choice((WORKER_S, 0.5, 2.0))
    before = set(victim.disk.folders)

    def fast() -> None:
        victim.workers.mean_s = WORKER_S

    def created() -> bool:
        return victim.up and any(_is_churn(f) for f in victim.disk.folders - before)

    def kill() -> None:
        strike.after(strike.rng.choice((0.0, 0.005, 0.02, 0.1)), kill_now)

    def kill_now() -> None:
        if victim.running and not strike.over():
            victim.crash()
            strike.boot_later(victim, 0.05, 0.5)
            strike.watch(deleted, lose_power, 12.0, fast)

    def deleted() -> bool:
        victim.workers.mean_s = slow_s
        return victim.up and any(map(_is_set_aside, victim.disk.folders - before))

    def lose_power() -> None:
        fast()
        strike.after(strike.rng.choice((0.0, 0.005, 0.02, 0.1)), lose_now)

    def lose_now() -> None:
        if victim.up and strike.may_lose([victim]):
            if strike.rng.random() < 0.7:
                _bring_back(victim.disk, before)
            victim.crash(power_loss=True)
            strike.boot_later(victim, 0.1, 1.5)

    if killed:
        strike.watch(created, kill, 10.0)
    else:
        strike.watch(deleted, lose_power, 12.0, fast)
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
