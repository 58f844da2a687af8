"""Faults that wait for a moment: they look at the cluster from outside and strike when it comes.

Invariants: they look at ZooKeeper's znodes, files on disks and which processes run, at nothing
inside a broker; each ends on its own within a bounded time and restores what it slowed; its chance
is a stream of its own. Chance alone hardly ever makes these circumstances meet.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from ottla.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.sim.pages import Inode
from ottla.sim.target import Target
from ottla.sim.world import Node, Simulation

LOOK_S = 0.01
SESSION_S = 6.0
"""zookeeper.session.timeout.ms and replica.lag.time.max.ms of simulated brokers."""


@dataclass(frozen=True, slots=True)
class Hand:
    """What one strike may do. `may_lose` notes that brokers lose what they have not synced."""

    target: Target
    simulation: Simulation
    rng: Random
    may_lose: Callable[[list[Node]], bool]
    over: Callable[[], bool]
    hard: bool
    reserve: Callable[[list[Node]], bool]
    """Keeps other faults of disks away from brokers; False if one of them is in trouble already."""
    release_after: Callable[[float, list[Node], Callable[[], object]], Callable[[], None]]
    """After so many seconds, or at the end of all faults, calls back once and lets them go; the
    function that it returns does so at once."""

    def after(self, delay_s: float, callback: Callable[..., object], *args: object) -> None:
        self.simulation.scheduler.after(delay_s, callback, *args)

    def between(self, low_s: float, high_s: float) -> float:
        return self.rng.uniform(low_s, high_s)

    def boot_later(self, node: Node, low_s: float, high_s: float) -> None:
        self.after(self.between(low_s, high_s), node.boot_if_down)

    def watch(
        self,
        moment: Callable[[], bool],
        act: Callable[[], object],
        within_s: float,
        otherwise: Callable[[], object] | None = None,
    ) -> None:
        """Look until the moment comes, then act; `otherwise` where it does not."""
        until_s = self.simulation.now + within_s

        def look() -> None:
            if self.over() or self.simulation.now > until_s:
                if otherwise is not None:
                    otherwise()
            elif moment():
                act()
            else:
                self.after(LOOK_S, look)

        look()

    def slow(self, source: Node, target: Node, delay_s: float, seconds: float) -> None:
        """Let all that goes from one node to another take so long."""
        internet = self.simulation.internet
        link = internet.link(source.name, target.name)
        before_s = 0.00002 if source is target else internet.base_s
        link.base_s = delay_s
        self.after(seconds, setattr, link, "base_s", before_s)

    def running(self) -> list[Node]:
        return [n for n in self.target.broker_nodes() if n.running]

    def led_partitions(self) -> list[tuple[TopicPartition, Node, list[Node]]]:
        """Return partitions in a drawn order, each with its leader, which runs, and its ISR."""
        nodes, target = self.target.broker_nodes(), self.target
        found = []
        for tp in self.rng.sample(target.watched, len(target.watched)):
            state = target.leader_and_isr(tp)
            if state is not None and state[0] >= 0 and nodes[state[0]] in self.running():
                found.append((tp, nodes[state[0]], [nodes[b] for b in state[1]]))
        return found


def _end(hand: Hand, tp: TopicPartition, node: Node) -> int:
    return hand.target.replica_ends(tp).get(hand.target.broker_nodes().index(node), -1)


def leader_dies_amid_catch_up(hand: Hand) -> str | None:
    """Kill all, most by their plug; kill the leader as soon as those that lost have half of it.

    They are in the ISR as before, for no one was there to shrink it, and the links to them are
    slow. The leader, whole, is back before anybody gives up waiting for it (F5, F12, R18).
    """
    if not hand.hard:
        return None
    chosen = next(iter(hand.led_partitions()), None)
    if chosen is None:
        return None
    tp, leader, isr = chosen
    victims = [n for n in isr if n is not leader]
    while victims and not hand.may_lose(victims):
        victims.pop()
    if not victims:
        return None
    for node in hand.target.broker_nodes():
        node.crash(power_loss=node in victims)
        hand.boot_later(node, 0.1, 1.5 if node in victims else 0.6)
    delay_s = hand.rng.choice((0.02, 0.05, 0.1))
    for victim in victims:
        hand.slow(leader, victim, delay_s, 20.0)
    first = {victim: _end(hand, tp, victim) for victim in victims}

    def amid() -> bool:
        state = hand.target.leader_and_isr(tp)
        if state is None or not leader.up or state[0] != hand.target.broker_nodes().index(leader):
            return False
        full = _end(hand, tp, leader)
        for victim in victims:
            if victim.up and first[victim] < _end(hand, tp, victim) < full:
                return True
        return False

    def act() -> None:
        leader.crash()
        hand.target.expire_session(leader)
        hand.boot_later(leader, 0.5, 3.0)

    hand.watch(amid, act, within_s=15.0)
    return f"{tp}: {leader.name}, power {' '.join(n.name for n in victims)}"


def power_loss_at_rejoin(hand: Hand) -> str | None:
    """Take a follower's power when it has caught up and its leader is asking for it (KIP-903).

    What the leader asks the controller is slow on its way; the follower is back before it arrives,
    without what it had.
    """
    if not hand.hard:
        return None
    controller = hand.target.controller_node()
    chosen = next(
        (
            (tp, leader, follower)
            for tp, leader, isr in hand.led_partitions()
            for follower in isr
            if follower is not leader and follower is not controller and follower.up
        ),
        None,
    )
    if controller is None or chosen is None:
        return None
    tp, leader, follower = chosen
    number = hand.target.broker_nodes().index(follower)
    delay_s = hand.between(1.0, 3.0)

    def outside() -> bool:
        state = hand.target.leader_and_isr(tp)
        return state is not None and number not in state[1]

    def come_back() -> None:
        follower.boot_if_down()
        hand.slow(leader, controller, delay_s, 15.0)
        hand.watch(has_all, lose, within_s=10.0)

    def has_all() -> bool:
        end = _end(hand, tp, follower)
        return (
            outside()
            and follower.up
            and hand.target.started(follower)
            and (end == _end(hand, tp, leader) > 0)
        )

    def lose() -> None:
        hand.after(hand.between(0.01, 0.2), lose_now)

    def lose_now() -> None:
        if follower.up and hand.may_lose([follower]):
            follower.crash(power_loss=True)
            hand.target.expire_session(follower)
            hand.slow(controller, follower, delay_s, delay_s + 2.0)
            hand.slow(leader, follower, delay_s, delay_s + 2.0)
            hand.boot_later(follower, 0.05, 0.2)

    follower.crash()
    hand.target.expire_session(follower)
    hand.after(hand.between(0.5, 3.0), hand.watch, outside, come_back, 10.0, follower.boot_if_down)
    return f"{tp}: {follower.name} of {leader.name}"


def controller_lost_while_cut_off(hand: Hand) -> str | None:
    """Cut a broker off from the controller; lose the controller once it has deleted a topic.

    Its successor has never heard of that topic, and the broker never of its end (F4, F14, F26).
    """
    controller = hand.target.controller_node()
    others = [n for n in hand.running() if n is not controller]
    if controller is None or controller not in hand.running() or not others:
        return None
    nodes = hand.target.broker_nodes()
    brokers_of = hand.target.topic_brokers()
    hand.rng.shuffle(others)
    lacks = {n: {t for t, some in brokers_of.items() if nodes.index(n) not in some} for n in others}
    other = max(others, key=lambda n: len(lacks[n]))
    if not lacks[other]:
        return None  # a topic's deletion waits for all that have a replica
    internet = hand.simulation.internet
    if internet.is_blocked(controller.name):
        return None
    pairs = [(controller.name, other.name), (other.name, controller.name)]
    if hand.rng.random() < 0.3:
        pairs = pairs[:1]
    internet.block_all(pairs)
    how = hand.rng.choice(("expire", "kill", "pause"))

    def deleted() -> bool:
        return not lacks[other] <= hand.target.topics()

    def heal() -> None:
        internet.unblock_all(pairs)

    def act() -> None:
        if hand.target.controller_node() is controller and controller.up:
            hand.target.expire_session(controller)
            if how == "kill":
                controller.crash()
                hand.boot_later(controller, 0.5, 5.0)
            elif how == "pause" and not controller.loop.paused:
                controller.pause()
                hand.after(5.0, controller.wake, controller.incarnation)
        hand.after(hand.between(1.0, 4.0), heal)

    hand.watch(deleted, act, 8.0, heal)
    return f"{other.name} from {controller.name}, {how}"


def leader_cut_off_from_followers(hand: Hand) -> str | None:
    """Cut a leader off from its followers for long, not from clients; lose it soon after.

    What it appended meanwhile is in doubt: it was written, no one else had it, and whoever asked
    for it hears an error (NOT_ENOUGH_REPLICAS_AFTER_APPEND, or none in time); then it is committed
    after all, and another leader reads it (F13, F36). The transactions' log comes first.
    """
    blocked = hand.simulation.internet.is_blocked
    nodes = hand.target.broker_nodes()
    if len(hand.running()) < len(nodes) or any(blocked(n.name) for n in nodes):
        return None
    led = hand.led_partitions()
    led.sort(key=lambda one: one[0].topic != TRANSACTION_STATE_TOPIC)
    chosen = next(((t, leader, isr) for t, leader, isr in led if len(isr) > 1), None)
    if chosen is None:
        return None
    tp, leader, isr = chosen
    internet = hand.simulation.internet
    pairs = [
        pair
        for n in isr
        if n is not leader
        for pair in ((n.name, leader.name), (leader.name, n.name))
    ]
    internet.block_all(pairs)
    number, seconds = nodes.index(leader), hand.between(8.0, 15.0)

    def heal() -> None:
        internet.unblock_all(pairs)
        hand.after(hand.between(0.5, 2.0), hand.watch, back, lose, 10.0)

    def back() -> bool:
        state = hand.target.leader_and_isr(tp)
        if state is None or state[0] != number or len(state[1]) < len(isr):
            return False
        return len({_end(hand, tp, n) for n in isr}) == 1

    def lose() -> None:
        if leader.running:
            leader.crash()
            hand.target.expire_session(leader)
            hand.boot_later(leader, 1.0, 5.0)

    hand.after(seconds, heal)
    return f"{tp}: {leader.name}, {seconds:.1f} s"


LONGEST_START_CALLBACK_S = SESSION_S / 3
"""A start whose loop stands still for longer than this may lose its session (F9, F19)."""

LONGEST_READ_S = 0.5


def slow_recovery(hand: Hand) -> str | None:
    """Kill a broker; what its next start reads takes longer than a session lasts (F19).

    As logs that are a thousand times longer do it: each read of a segment, old ones included, takes
    half a second at most, all of them several seconds.
    """
    nodes = hand.running()
    if not nodes or hand.simulation.costs.file_s <= 0:
        return None
    node = hand.rng.choice(nodes)
    seconds = hand.between(8.0, 12.0)
    node.crash()
    hand.after(hand.between(0.1, 1.0), _boot_slowly, hand, node, seconds)
    return f"{node.name} {seconds:.1f} s"


def _boot_slowly(hand: Hand, node: Node, seconds: float) -> None:
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
        return node.files is not files or hand.target.started(node)

    def restore() -> None:
        files.costs = hand.simulation.costs
        for took_s, what in loop.stalls:
            if took_s > LONGEST_START_CALLBACK_S:
                node.stood_still.append(f"{node.name} for {took_s:.1f} s while it started: {what}")
        loop.stalls = node.stalls

    hand.watch(done, restore, 40.0, restore)


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


def flipped_bit(hand: Hand) -> str | None:
    """Flip one bit of a committed batch on one disk of the in-sync set, mostly the leader's (F20).

    The internal topics are left alone: no one but their coordinators reads them.
    """
    flips = hand.target.bit_flips
    if flips.there():
        return None
    running = hand.running()
    for tp, leader, isr in hand.led_partitions():
        ends = hand.target.replica_ends(tp)
        followers = [n for n in isr if n is not leader and n in running]
        if tp.topic.startswith("__") or not followers:
            continue
        node = leader if hand.rng.random() < 0.8 else hand.rng.choice(followers)
        numbers = [hand.target.broker_nodes().index(n) for n in isr]
        flip = flips.find(node, tp, min(ends.get(b, 0) for b in numbers), hand.rng)
        if flip is not None and hand.may_lose([node]):
            flips.do(flip)
            hand.after(UNREAD_S, flips.undo)
            return f"{node.name}:{flip.path} at {flip.position}, led by {leader.name}"
    return None


def target_replaced_at_disk_loss(hand: Hand) -> str | None:
    """Replace or cancel a move when the other replica in sync has just lost its disk (F11, F24).

    A follower is dead; the partition moves away from its leader, so that the move waits for the
    follower, with the new replica in sync. The leader's disk is lost; its session has not ended.
    """
    if not hand.hard:
        return None
    target, nodes = hand.target, hand.target.broker_nodes()
    chosen = next(((t, n, isr) for t, n, isr in hand.led_partitions() if len(isr) == 2), None)
    if chosen is None:
        return None
    tp, leader, isr = chosen
    follower = next(n for n in isr if n is not leader)
    others = [n for n in hand.running() if n not in isr]
    hand.rng.shuffle(others)
    if not others:
        return None
    number, first, added = nodes.index(leader), nodes.index(follower), nodes.index(others[0])
    then = [nodes.index(others[-1]), first] if len(others) > 1 else None
    if not target.reassign(tp, [added, first]):
        return None
    follower.crash()
    target.expire_session(follower)

    def in_sync_without_the_follower() -> bool:
        state = target.leader_and_isr(tp)
        return state is not None and state[0] == number and set(state[1]) == {number, added}

    def act() -> None:
        hand.after(hand.between(0.5, 2.5), lose)  # what is written meanwhile only these two have

    def lose() -> None:
        if in_sync_without_the_follower() and leader.up and hand.may_lose([leader]):
            leader.crash()
            leader.disk.wipe()
            target.reassign(tp, then)
            hand.boot_later(leader, 0.5, 4.0)
        hand.after(hand.between(3.0, 8.0), follower.boot_if_down)

    hand.watch(in_sync_without_the_follower, act, 10.0, follower.boot_if_down)
    return f"{tp}: {leader.name}, {others[0].name} instead of it, {follower.name} dead"


def power_loss_after_roll(hand: Hand) -> str | None:
    """Take a broker's power when it has just rolled: the old segment loses its end, no more (F5).

    Nothing of the new segment is lost, so the log ends where it did. The broker is back soon; once
    it is in sync, another leader dies, so that it may lead.
    """
    if not hand.hard:
        return None
    target, nodes = hand.target, hand.target.broker_nodes()
    led = hand.led_partitions()
    led.sort(key=lambda one: not one[0].topic.startswith("__"))  # compacted ones first
    chosen = next(((t, leader, isr) for t, leader, isr in led if len(isr) > 1), None)
    if chosen is None:
        return None
    tp, leader, isr = chosen
    victim = hand.rng.choice(isr)
    number = nodes.index(victim)

    def newest() -> list[Inode]:
        return [victim.disk.inodes[path] for path in target.segment_paths(victim, tp)[-2:]]

    def rolled() -> bool:
        inodes = newest()
        return victim.up and len(inodes) == 2 and all(inode.dirty for inode in inodes)

    def act() -> None:
        if not hand.may_lose([victim]):
            return
        sealed, active = newest()
        sealed.keep_first(hand.rng.randrange(len(sealed.dirty)))
        active.sync()
        victim.disk.commit()
        victim.crash(power_loss=True)
        hand.boot_later(victim, 0.05, 1.0)
        hand.watch(in_sync, let_it_lead, 10.0)

    def in_sync() -> bool:
        state = target.leader_and_isr(tp)
        ends = target.replica_ends(tp)
        return (
            state is not None
            and number in state[1]
            and target.started(victim)
            and ends.get(number) == max(ends.values(), default=-1)
        )

    def let_it_lead() -> None:
        if leader is not victim and leader.running:
            leader.crash()
            target.expire_session(leader)
            hand.boot_later(leader, 0.5, 3.0)

    hand.watch(rolled, act, 10.0)
    return f"{tp}: {victim.name} of {leader.name}"


MOMENTS: dict[str, Callable[[Hand], str | None]] = {
    "leader-dies-amid-catch-up": leader_dies_amid_catch_up,
    "power-loss-at-rejoin": power_loss_at_rejoin,
    "controller-lost-while-cut-off": controller_lost_while_cut_off,
    "leader-cut-off-from-followers": leader_cut_off_from_followers,
    "slow-recovery": slow_recovery,
    "flipped-bit": flipped_bit,
    "target-replaced-at-disk-loss": target_replaced_at_disk_loss,
    "power-loss-after-roll": power_loss_after_roll,
}
