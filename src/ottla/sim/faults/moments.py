"""Faults that wait for a moment: they look at the cluster from outside and strike when it comes.

Chance alone hardly ever makes these circumstances meet.
"""

from dataclasses import replace

from ottla.model.ids import TRANSACTION_STATE_TOPIC
from ottla.sim.faults.strike import SESSION_S, Drawn, Strike, fault
from ottla.sim.pages import Inode
from ottla.sim.world import Node


@fault(6, "F5 F12", drawn=Drawn.HALF)
def leader_dies_amid_catch_up(strike: Strike) -> str | None:
    """Kill all, most by their plug; kill the leader as soon as those that lost have half of it.

    They are in the ISR as before, for no one was there to shrink it, and the links to them are
    slow. The leader, whole, is back before anybody gives up waiting for it (F5, F12, R18).
    """
    if not strike.hard:
        return None
    chosen = next(iter(strike.led_partitions()), None)
    if chosen is None:
        return None
    tp, leader, isr = chosen
    victims = [n for n in isr if n is not leader]
    while victims and not strike.may_lose(victims):
        victims.pop()
    if not victims:
        return None
    for node in strike.cluster.broker_nodes():
        node.crash(power_loss=node in victims)
        strike.boot_later(node, 0.1, 1.5 if node in victims else 0.6)
    delay_s = strike.rng.choice((0.02, 0.05, 0.1))
    for victim in victims:
        strike.slow(leader, victim, delay_s, 20.0)
    first = {victim: strike.end(tp, victim) for victim in victims}

    def halfway() -> bool:
        state = strike.cluster.leader_and_isr(tp)
        if (
            state is None
            or not leader.up
            or state[0] != strike.cluster.broker_nodes().index(leader)
        ):
            return False
        full = strike.end(tp, leader)
        for victim in victims:
            if victim.up and first[victim] < strike.end(tp, victim) < full:
                return True
        return False

    def act() -> None:
        strike.kill_and_expire(leader)
        strike.boot_later(leader, 0.5, 3.0)

    strike.watch(halfway, act, within_s=15.0)
    return f"{tp}: {leader.name}, power {' '.join(n.name for n in victims)}"


@fault(6, "F5 F11", drawn=Drawn.HALF)
def power_loss_at_rejoin(strike: Strike) -> str | None:
    """Take a follower's power when it has caught up and its leader is asking for it (KIP-903).

    What the leader asks the controller is slow on its way; the follower is back before it arrives,
    without what it had.
    """
    if not strike.hard:
        return None
    controller = strike.cluster.controller_node()
    chosen = next(
        (
            (tp, leader, follower)
            for tp, leader, isr in strike.led_partitions()
            for follower in isr
            if follower is not leader and follower is not controller and follower.up
        ),
        None,
    )
    if controller is None or chosen is None:
        return None
    tp, leader, follower = chosen
    number = strike.cluster.broker_nodes().index(follower)
    delay_s = strike.between(1.0, 3.0)

    def outside() -> bool:
        state = strike.cluster.leader_and_isr(tp)
        return state is not None and number not in state[1]

    def come_back() -> None:
        follower.boot_if_down()
        strike.slow(leader, controller, delay_s, 15.0)
        strike.watch(has_all, lose, within_s=10.0)

    def has_all() -> bool:
        end = strike.end(tp, follower)
        return (
            outside()
            and follower.up
            and strike.cluster.processes.started(follower)
            and (end == strike.end(tp, leader) > 0)
        )

    def lose() -> None:
        strike.after(strike.between(0.01, 0.2), lose_now)

    def lose_now() -> None:
        if follower.up and strike.may_lose([follower]):
            follower.crash(power_loss=True)
            strike.cluster.expire_session(follower)
            strike.slow(controller, follower, delay_s, delay_s + 2.0)
            strike.slow(leader, follower, delay_s, delay_s + 2.0)
            strike.boot_later(follower, 0.05, 0.2)

    strike.kill_and_expire(follower)
    strike.after(
        strike.between(0.5, 3.0), strike.watch, outside, come_back, 10.0, follower.boot_if_down
    )
    return f"{tp}: {follower.name} of {leader.name}"


@fault(6, "F4 F14 F26", drawn=Drawn.HALF)
def controller_lost_while_cut_off(strike: Strike) -> str | None:
    """Cut a broker off from the controller; lose the controller once it has deleted a topic.

    Its successor has never heard of that topic, and the broker never of its end (F4, F14, F26).
    """
    controller = strike.cluster.controller_node()
    others = [n for n in strike.running() if n is not controller]
    if controller is None or controller not in strike.running() or not others:
        return None
    nodes = strike.cluster.broker_nodes()
    brokers_of = strike.cluster.topic_brokers()
    strike.rng.shuffle(others)
    lacks = {n: {t for t, some in brokers_of.items() if nodes.index(n) not in some} for n in others}
    other = max(others, key=lambda n: len(lacks[n]))
    if not lacks[other]:
        return None  # a topic's deletion waits for all that have a replica
    internet = strike.simulation.internet
    if internet.is_blocked(controller.name):
        return None
    pairs = [(controller.name, other.name), (other.name, controller.name)]
    if strike.rng.random() < 0.3:
        pairs = pairs[:1]
    internet.block_all(pairs)
    how = strike.rng.choice(("expire", "kill", "pause"))

    def deleted() -> bool:
        return not lacks[other] <= strike.cluster.topics()

    def heal() -> None:
        internet.unblock_all(pairs)

    def act() -> None:
        if strike.cluster.controller_node() is controller and controller.up:
            strike.cluster.expire_session(controller)
            if how == "kill":
                controller.crash()
                strike.boot_later(controller, 0.5, 5.0)
            elif how == "pause" and not controller.loop.paused:
                controller.pause()
                strike.after(5.0, controller.wake, controller.incarnation)
        strike.after(strike.between(1.0, 4.0), heal)

    strike.watch(deleted, act, 8.0, heal)
    return f"{other.name} from {controller.name}, {how}"


@fault(4, "F13 F36", drawn=Drawn.HALF)
def leader_cut_off_from_followers(strike: Strike) -> str | None:
    """Cut a leader off from its followers for long, not from clients; lose it soon after.

    What it appended meanwhile is in doubt: it was written, no one else had it, and the client
    hears an error (NOT_ENOUGH_REPLICAS_AFTER_APPEND, or none in time); then it is committed
    after all, and another leader reads it (F13, F36). The transactions' log comes first.
    """
    blocked = strike.simulation.internet.is_blocked
    nodes = strike.cluster.broker_nodes()
    if len(strike.running()) < len(nodes) or any(blocked(n.name) for n in nodes):
        return None
    led = strike.led_partitions()
    led.sort(key=lambda one: one[0].topic != TRANSACTION_STATE_TOPIC)
    chosen = next(((t, leader, isr) for t, leader, isr in led if len(isr) > 1), None)
    if chosen is None:
        return None
    tp, leader, isr = chosen
    internet = strike.simulation.internet
    pairs = [
        pair
        for n in isr
        if n is not leader
        for pair in ((n.name, leader.name), (leader.name, n.name))
    ]
    internet.block_all(pairs)
    number, seconds = nodes.index(leader), strike.between(8.0, 15.0)

    def heal() -> None:
        internet.unblock_all(pairs)
        strike.after(strike.between(0.5, 2.0), strike.watch, back, lose, 10.0)

    def back() -> bool:
        state = strike.cluster.leader_and_isr(tp)
        if state is None or state[0] != number or len(state[1]) < len(isr):
            return False
        return len({strike.end(tp, n) for n in isr}) == 1

    def lose() -> None:
        if leader.running:
            strike.kill_and_expire(leader)
            strike.boot_later(leader, 1.0, 5.0)

    strike.after(seconds, heal)
    return f"{tp}: {leader.name}, {seconds:.1f} s"


LONGEST_START_CALLBACK_S = SESSION_S / 3
"""A start whose loop stands still for longer than this may lose its session (F9, F19)."""

LONGEST_READ_S = 0.5


@fault(4, "F9 F19", drawn=Drawn.HALF)
def slow_recovery(strike: Strike) -> str | None:
    """Kill a broker; what its next start reads takes longer than a session lasts (F19).

    As logs that are a thousand times longer do it: each read of a segment, old ones included, takes
    half a second at most, all of them several seconds.
    """
    nodes = strike.running()
    if not nodes or strike.simulation.costs.file_s <= 0:
        return None
    node = strike.rng.choice(nodes)
    seconds = strike.between(8.0, 12.0)
    node.crash()
    strike.after(strike.between(0.1, 1.0), _boot_slowly, strike, node, seconds)
    return f"{node.name} {seconds:.1f} s"


def _boot_slowly(strike: Strike, node: Node, seconds: float) -> None:
    if node.up:
        return
    last, largest = _segment_sizes(node)
    node.boot()
    if not last:
        return
    files, loop = node.files, node.loop
    loop.stalls = []
    byte_s = min(seconds / last, LONGEST_READ_S / largest)
    # Logs grow while the start goes on: without a bound a read of them would take longer.
    files.costs = replace(files.costs, read_byte_s=byte_s, read_most_s=LONGEST_READ_S)

    def done() -> bool:
        return node.files is not files or strike.cluster.processes.started(node)

    def restore() -> None:
        files.costs = strike.simulation.costs
        for took_s, what in loop.stalls:
            if took_s > LONGEST_START_CALLBACK_S:
                node.stood_still.append(f"{node.name} for {took_s:.1f} s while it started: {what}")
        loop.stalls = node.stalls

    strike.watch(done, restore, 40.0, restore)


def _segment_sizes(node: Node) -> tuple[int, int]:
    """Return the bytes of the newest segments of all logs together, and of the largest of all.

    A start after a crash reads the former, and older ones from the recovery point on: whichever is
    read in one piece, it takes no longer than promised.
    """
    sizes = {p: len(i.data) for p, i in node.disk.inodes.items() if p.endswith(".log")}
    newest = {path.rpartition("/")[0]: path for path in sorted(sizes)}
    return sum(sizes[path] for path in newest.values()), max(sizes.values(), default=0)


UNREAD_S = 15.0
"""After so long a flipped bit that no one has read is put right."""


@fault(6, "F20", drawn=Drawn.HALF)
def flipped_bit(strike: Strike) -> str | None:
    """Flip one bit of a committed batch on one disk of the in-sync set, mostly the leader's (F20).

    The internal topics are left alone: no one but their coordinators reads them.
    """
    flips = strike.cluster.bit_flips
    if flips.there():
        return None
    running = strike.running()
    for tp, leader, isr in strike.led_partitions():
        ends = strike.cluster.replicas.ends(tp)
        followers = [n for n in isr if n is not leader and n in running]
        if tp.topic.startswith("__") or not followers:
            continue
        node = leader if strike.rng.random() < 0.8 else strike.rng.choice(followers)
        numbers = [strike.cluster.broker_nodes().index(n) for n in isr]
        flip = flips.find(node, tp, min(ends.get(b, 0) for b in numbers), strike.rng)
        if flip is not None and strike.may_lose([node]):
            flips.do(flip)
            strike.after(UNREAD_S, flips.undo)
            return f"{node.name}:{flip.path} at {flip.position}, led by {leader.name}"
    return None


@fault(4, "F11 F24", drawn=Drawn.HALF)
def target_replaced_at_disk_loss(strike: Strike) -> str | None:
    """Replace or cancel a move when the other replica in sync has just lost its disk (F11, F24).

    A follower is dead; the partition moves away from its leader, so that the move waits for the
    follower, with the new replica in sync. The leader's disk is lost; its session has not ended.
    """
    if not strike.hard:
        return None
    cluster, nodes = strike.cluster, strike.cluster.broker_nodes()
    chosen = next(((t, n, isr) for t, n, isr in strike.led_partitions() if len(isr) == 2), None)
    if chosen is None:
        return None
    tp, leader, isr = chosen
    follower = next(n for n in isr if n is not leader)
    others = [n for n in strike.running() if n not in isr]
    strike.rng.shuffle(others)
    if not others:
        return None
    number, first, added = nodes.index(leader), nodes.index(follower), nodes.index(others[0])
    then = [nodes.index(others[-1]), first] if len(others) > 1 else None
    if not cluster.reassign(tp, [added, first]):
        return None
    strike.kill_and_expire(follower)

    def in_sync_without_the_follower() -> bool:
        state = cluster.leader_and_isr(tp)
        return state is not None and state[0] == number and set(state[1]) == {number, added}

    def act() -> None:
        strike.after(
            strike.between(0.5, 2.5), lose
        )  # what is written meanwhile only these two have

    def lose() -> None:
        if in_sync_without_the_follower() and leader.up and strike.may_lose([leader]):
            leader.crash()
            leader.disk.wipe()
            cluster.reassign(tp, then)
            strike.boot_later(leader, 0.5, 4.0)
        strike.after(strike.between(3.0, 8.0), follower.boot_if_down)

    strike.watch(in_sync_without_the_follower, act, 10.0, follower.boot_if_down)
    return f"{tp}: {leader.name}, {others[0].name} instead of it, {follower.name} dead"


@fault(4, "F5", drawn=Drawn.HALF)
def power_loss_after_roll(strike: Strike) -> str | None:
    """Take a broker's power when it has just rolled: the old segment loses its end, no more (F5).

    Nothing of the new segment is lost, so the log ends where it did. The broker is back soon; once
    it is in sync, another leader dies, so that it may lead.
    """
    if not strike.hard:
        return None
    cluster, nodes = strike.cluster, strike.cluster.broker_nodes()
    led = strike.led_partitions()
    led.sort(key=lambda one: not one[0].topic.startswith("__"))  # compacted ones first
    chosen = next(((t, leader, isr) for t, leader, isr in led if len(isr) > 1), None)
    if chosen is None:
        return None
    tp, leader, isr = chosen
    victim = strike.rng.choice(isr)
    number = nodes.index(victim)

    def newest() -> list[Inode]:
        return [victim.disk.inodes[path] for path in cluster.replicas.paths(victim, tp)[-2:]]

    def rolled() -> bool:
        inodes = newest()
        return victim.up and len(inodes) == 2 and all(inode.dirty for inode in inodes)

    def act() -> None:
        if not strike.may_lose([victim]):
            return
        sealed, active = newest()
        sealed.keep_first(strike.rng.randrange(len(sealed.dirty)))
        active.sync()
        victim.disk.commit()
        victim.crash(power_loss=True)
        strike.boot_later(victim, 0.05, 1.0)
        strike.watch(in_sync, let_it_lead, 10.0)

    def in_sync() -> bool:
        state = cluster.leader_and_isr(tp)
        ends = cluster.replicas.ends(tp)
        return (
            state is not None
            and number in state[1]
            and cluster.processes.started(victim)
            and ends.get(number) == max(ends.values(), default=-1)
        )

    def let_it_lead() -> None:
        if leader is not victim and leader.running:
            strike.kill_and_expire(leader)
            strike.boot_later(leader, 0.5, 3.0)

    strike.watch(rolled, act, 10.0)
    return f"{tp}: {victim.name} of {leader.name}"
