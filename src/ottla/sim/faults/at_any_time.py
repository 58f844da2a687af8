"""Faults at any time: of processes, machines, links, disks, sessions, clocks and the server."""

import errno

from ottla.sim.faults.strike import Drawn, Meanwhile, Strike, fault
from ottla.sim.world import Node

BRIEFLY, ALWAYS = Meanwhile.BRIEFLY, Meanwhile.YES


def _names(nodes: list[Node]) -> str:
    return " ".join(node.name for node in nodes)


@fault(4, "F1 F3 F4", BRIEFLY)
def kill(strike: Strike) -> str | None:
    node = strike.broker()
    if node is None:
        return None
    node.crash()
    strike.boot_later(node, 0.1, 15.0)
    return node.name


@fault(3, "F5 F19", BRIEFLY)
def power_loss(strike: Strike) -> str | None:
    node = strike.one_that_may_lose()
    if node is None:
        return None
    node.crash(power_loss=True)
    strike.boot_later(node, 0.5, 20.0)
    return node.name


@fault(1, "F11", BRIEFLY)
def swap_disk(strike: Strike) -> str | None:
    """Kill a broker and give it an empty disk: it must not lead others into truncation."""
    node = strike.one_that_may_lose()
    if node is None:
        return None
    node.crash()
    node.disk.wipe()
    strike.boot_later(node, 0.1, 15.0)
    return node.name


@fault(2, "F2", BRIEFLY)
def graceful_restart(strike: Strike) -> str | None:
    node = strike.broker()
    if node is None:
        return None
    strike.cluster.processes.stop(node)
    return node.name


@fault(4, "F7 F8 F9", BRIEFLY)
def pause(strike: Strike) -> str | None:
    node = strike.broker()
    if node is None:
        return None
    node.pause()
    seconds = strike.rng.choice((0.5, 3.0, 8.0, 15.0))
    strike.after(seconds, node.wake, node.incarnation)
    return f"{node.name} {seconds} s"


BLOCKED_S = (1.0, 5.0, 12.0, 30.0)


@fault(3, "F13 F14")
def isolate(strike: Strike) -> str | None:
    node = strike.rng.choice(strike.cluster.broker_nodes())
    others = [n for n in strike.cluster.broker_nodes() if n is not node]
    if strike.rng.random() < 0.5:
        others.append(strike.cluster.zk.node)
    pairs = [(node, other) for other in others] + [(other, node) for other in others]
    strike.block(pairs, strike.rng.choice(BLOCKED_S))
    return f"{node.name} from {_names(others)}"


@fault(3, "F13 F15")
def one_way(strike: Strike) -> str | None:
    nodes = strike.cluster.broker_nodes()
    if len(nodes) < 2:
        return None
    source, target = strike.rng.sample(nodes, 2)
    return strike.block([(source, target)], strike.rng.choice(BLOCKED_S))


@fault(3, "F14")
def cut_zookeeper(strike: Strike) -> str | None:
    node = strike.rng.choice(strike.cluster.broker_nodes())
    zookeeper = strike.cluster.zk.node
    pairs = [(node, zookeeper), (zookeeper, node)]
    if strike.rng.random() < 0.3:
        pairs = [strike.rng.choice(pairs)]
    return strike.block(pairs, strike.rng.choice(BLOCKED_S))


@fault(2, "F16", ALWAYS)
def reset(strike: Strike) -> str | None:
    node = strike.rng.choice(strike.cluster.broker_nodes())
    count = strike.simulation.internet.reset_connections(node.name)
    return f"{node.name} {count} connections"


@fault(2, "F16", ALWAYS)
def loss(strike: Strike) -> str | None:
    names = [n.name for n in strike.cluster.broker_nodes()]
    source, target = strike.rng.choice(names), strike.rng.choice(names)
    link = strike.simulation.internet.link(source, target)
    link.stall_chance = strike.rng.choice((0.05, 0.3))

    def mend() -> None:
        link.stall_chance = 0.0

    strike.later(2.0, 20.0, mend)
    return f"{source} to {target} {link.stall_chance}"


@fault(1, "F16", ALWAYS)
def slow(strike: Strike) -> str | None:
    node = strike.rng.choice(strike.cluster.broker_nodes())
    for other in strike.cluster.broker_nodes():
        if other is not node:
            strike.slow(node, other, 0.1, strike.between(2.0, 20.0))
    return node.name


@fault(3, "F10", BRIEFLY)
def expire(strike: Strike) -> str | None:
    node = strike.broker()
    return node.name if node is not None and strike.cluster.expire_session(node) else None


@fault(2, "F6", ALWAYS)
def lost_reply(strike: Strike) -> str | None:
    return strike.cluster.lose_zookeeper_message(reply=True)


@fault(1, "F6", ALWAYS)
def zookeeper_pause(strike: Strike) -> str | None:
    node = strike.cluster.zk.node
    if node.loop.paused:
        return None
    node.pause()
    seconds = strike.rng.choice((1.0, 4.0, 10.0, 30.0))
    strike.after(seconds, node.wake, node.incarnation)
    return f"{seconds} s"


@fault(1, "F6", ALWAYS)
def zookeeper_restart(strike: Strike) -> str | None:
    zk = strike.cluster.zk
    if not zk.node.running:
        return None
    seconds = strike.rng.choice((0.2, 3.0, 8.0, 20.0))
    power_loss, operations = False, None
    if zk.durable:
        power_loss = strike.rng.random() < 0.5
        operations = strike.rng.choice((None, None, None, 0, 1, 2, 3, 5, 9))
    zk.stop(power_loss=power_loss, after_operations=operations)
    strike.after(seconds, zk.start)
    if not zk.durable:
        return f"after {seconds} s"
    at = "now" if operations is None else f"after {operations} operations"
    return f"{'power loss' if power_loss else 'kill'} {at}, back after {seconds} s"


@fault(2, "F6", ALWAYS)
def lost_request(strike: Strike) -> str | None:
    return strike.cluster.lose_zookeeper_message(reply=False)


@fault(1, "F22", ALWAYS)
def slow_disk(strike: Strike) -> str | None:
    """Let what a broker's workers do take two seconds each: fsyncs, cold reads."""
    node = strike.broker()
    if node is None:
        return None
    strike.later(5.0, 30.0, strike.slow_workers(node, 2.0))
    return node.name


@fault(1, "F23", ALWAYS)
def clock_jump(strike: Strike) -> str | None:
    node = strike.rng.choice(strike.cluster.broker_nodes())
    by_ms = strike.rng.choice((-3_600_000, -5_000, 5_000, 3_600_000))
    node.jump_wall_clock(by_ms)
    return f"{node.name} {by_ms} ms"


@fault(1, "F5")
def kill_all(strike: Strike) -> str | None:
    nodes = [n for n in strike.cluster.broker_nodes() if n.up]
    for node in nodes:
        node.crash()
        strike.boot_later(node, 0.5, 10.0)
    return _names(nodes) or None


@fault(1, "F5", BRIEFLY)
def kill_all_power_loss(strike: Strike) -> str | None:
    """Kill every broker, some by their plug; all are back before one gives up waiting."""
    unlucky = strike.unlucky()
    if not unlucky:
        return None
    for node in strike.cluster.broker_nodes():
        node.crash(power_loss=node in unlucky)
        strike.boot_later(node, 0.5, 4.0)
    return f"all, power {_names(unlucky)}"


@fault(3, "F17 F18")
def disk_error(strike: Strike) -> str | None:
    """Fail one log dir of a broker until its operator replaces it and restarts the broker."""
    node = strike.broker()
    if node is None or strike.allowance.bad_disks:
        return None
    folder = strike.rng.choice(strike.cluster.processes.log_dirs)
    operations = strike.rng.choice((("write",), ("write", "fsync", "read"), ("fsync",)))
    error = strike.rng.choice((errno.EIO, errno.ENOSPC))
    torn = strike.rng.random() < 0.5
    node.disk.fail(folder, operations, error, torn=torn)
    _replace_later(strike, node, folder)
    return f"{node.name}:{folder} {'+'.join(operations)} {errno.errorcode[error]} torn={torn}"


def _replace_later(strike: Strike, node: Node, folder: str) -> None:
    strike.allowance.bad_disks[node.name] = folder
    strike.later(3.0, 15.0, strike.allowance.replace_disk, node)


@fault(3, "F5 F19", BRIEFLY)
def power_loss_of_several(strike: Strike) -> str | None:
    victims = strike.some_that_may_lose()
    for node in victims:
        node.crash(power_loss=True)
        strike.boot_later(node, 0.5, 20.0)
    return _names(victims) or None


@fault(3, "F1 F3 F19", BRIEFLY)
def kill_at_operation(strike: Strike) -> str | None:
    """Kill a broker in the middle of a callback or a worker's call."""
    return _end_at_operation(strike, strike.broker(), power_loss=False)


@fault(2, "F5 F19", BRIEFLY)
def power_loss_at_operation(strike: Strike) -> str | None:
    return _end_at_operation(strike, strike.one_that_may_lose(), power_loss=True)


def _end_at_operation(strike: Strike, node: Node | None, *, power_loss: bool) -> str | None:
    if node is None:
        return None
    count = strike.rng.choice((0, 1, 2, 5, 20, 100))
    node.crash_at_operation(count, power_loss=power_loss)
    strike.boot_later(node, 0.5, 15.0)
    return f"{node.name} after {count} operations"


@fault(2, "F11 F12", BRIEFLY)
def bounce(strike: Strike) -> str | None:
    """Kill a broker, a whole one too, and have it back before anybody notices, and again."""
    node = strike.any_broker()
    if node is None:
        return None
    times = strike.rng.randint(1, 3)
    _bounce_again(strike, node, times)
    return f"{node.name} {times} times"


def _bounce_again(strike: Strike, node: Node, times: int) -> None:
    if not node.running or strike.over():
        return
    node.crash()
    strike.boot_later(node, 0.01, 0.3)
    if times > 1:
        strike.later(0.4, 2.0, _bounce_again, strike, node, times - 1)


@fault(2, "F1 F3 F4", BRIEFLY)
def brief_kill(strike: Strike) -> str | None:
    """Kill a broker, a whole one too, and have it back before others give up waiting."""
    node = strike.any_broker()
    if node is None:
        return None
    node.crash()
    strike.boot_later(node, 0.3, 3.0)
    return node.name


@fault(2, "F2 F5 F48", BRIEFLY)
def stop_while_waiting(strike: Strike) -> str | None:
    """Kill every broker; one that lost power starts first, is stopped, and starts again.

    The others are back soon: it must not lead before it has heard them.
    """
    unlucky = strike.unlucky()
    if not unlucky:
        return None
    first = unlucky[0]
    for node in strike.cluster.broker_nodes():
        node.crash(power_loss=node in unlucky)
        if node is not first:
            strike.boot_later(node, 2.5, 4.0)
    # Another boot waits for the end of its last session: the others would be back before.
    strike.cluster.expire_session(first)
    boot_s = strike.between(0.05, 0.3)
    stop_s = strike.rng.choice((0.1, 0.4, 0.8)) * strike.rng.random()
    strike.after(boot_s, first.boot_if_down)
    strike.after(boot_s + stop_s, strike.cluster.processes.stop, first)
    strike.after(5.0, first.boot_if_down)
    return f"all, power {_names(unlucky)}"


@fault(2, "F1 F2 F48", BRIEFLY)
def failed_starts(strike: Strike) -> str | None:
    """Kill a broker; its next start or two end in the middle."""
    node = strike.broker()
    if node is None:
        return None
    node.crash()
    times = strike.rng.randint(1, 2)
    strike.later(0.2, 3.0, _start_in_vain, strike, node, times)
    return f"{node.name} {times} times"


def _start_in_vain(strike: Strike, node: Node, times: int) -> None:
    if node.up or strike.over():
        return
    node.boot()
    if strike.rng.random() < 0.5:
        node.crash_at_operation(strike.rng.randrange(200))
    else:
        strike.later(0.0, 3.0, _kill_in_start, strike, node, node.incarnation)
    following = _start_in_vain if times > 1 else _boot_whole
    strike.later(3.5, 8.0, following, strike, node, times - 1)


def _kill_in_start(strike: Strike, node: Node, incarnation: int) -> None:
    if node.incarnation == incarnation and node.up and not strike.over():
        node.crash()  # not after all was healed: no one would start it again


def _boot_whole(_strike: Strike, node: Node, _times: int) -> None:
    node.files.last_operations = None
    node.boot_if_down()


@fault(2, "F2 F48", BRIEFLY)
def stop_early(strike: Strike) -> str | None:
    """Kill a broker or take its power, and stop it by SIGTERM soon after its start."""
    lost = strike.rng.random() < 0.5
    node = strike.one_that_may_lose() if lost else strike.broker()
    if node is None:
        return None
    node.crash(power_loss=lost)
    boot_s = strike.between(0.1, 3.0)
    stop_s = strike.rng.choice((0.0, 0.05, 0.3, 1.0, 3.0)) * strike.rng.random()
    strike.after(boot_s, node.boot_if_down)
    strike.after(boot_s + stop_s, strike.cluster.processes.stop, node)
    strike.boot_later(node, 8.0, 12.0)
    return f"{node.name} power={'lost' if lost else 'kept'} stop {stop_s:.3f} s after start"


@fault(2, "F22", ALWAYS)
def cold_cache(strike: Strike) -> str | None:
    """Empty a broker's page cache, as another program on its machine does."""
    node = strike.broker()
    if node is None:
        return None
    node.disk.evict()
    return node.name


@fault(1, "F45", drawn=Drawn.HALF)
def few_descriptors(strike: Strike) -> str | None:
    """Let a broker open no file for a while: its process has no descriptor left (EMFILE)."""
    node = strike.broker()
    if node is None:
        return None
    times = strike.rng.choice((1, 3, 20, 1 << 30))
    disk = node.disk
    failing = disk.fail("/", ("open",), errno.EMFILE, times=times)

    def end() -> None:
        if failing in disk.faults:
            disk.faults.remove(failing)

    strike.later(0.5, 6.0, end)
    return f"{node.name} {times if times < 100 else 'all'} openings"


@fault(2, "F18")
def dropped_pages(strike: Strike) -> str | None:
    """Let an fsync fail once and lose what it was to write: the next ones succeed."""
    node = None if strike.allowance.bad_disks else strike.one_that_may_lose()
    if node is None:
        return None
    folder = strike.rng.choice(strike.cluster.processes.log_dirs)
    times = strike.rng.choice((1, 3))
    node.disk.fail(folder, ("fsync",), errno.EIO, times=times, drops=True)
    _replace_later(strike, node, folder)
    return f"{node.name}:{folder}"
