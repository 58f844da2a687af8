"""Faults of what a disk says of itself: older copies, exchanged disks, two processes of one id.

A copy has every file that says "these logs are whole" and "this is broker 1", in files of its own
(F51 to F53). What counts as lost: an older copy is a disk that lost what came after it, so it takes
the place of a disk only where that may lose something (`Hand.may_lose`); a broker with two
processes counts as one that lacks records until the second one is gone. Invariants: each ends by
itself, bounded in time.
"""

from collections.abc import Callable

from ottla.model.ids import TopicPartition
from ottla.sim.files import DiskCopy
from ottla.sim.moments import Hand
from ottla.sim.world import Node

LONGER_THAN_A_SESSION_S = 8.0


def older_disk(hand: Hand) -> str | None:
    """Replace the disk of a broker that leads by an older copy; often all brokers die with it.

    The copy is taken after a clean stop, or from the running broker. The others are back soon.
    """
    victim = next((leader for _, leader, _ in hand.led_partitions()), None)
    if victim is None:
        return None
    all_die, reboots = hand.rng.random() < 0.6, hand.rng.random() < 0.25

    def replace(copy: DiskCopy) -> None:
        if hand.over() or not victim.up or not hand.may_lose([victim]):
            return
        for node in hand.target.broker_nodes() if all_die else [victim]:
            node.crash()
            hand.boot_later(node, 0.5, 4.0) if node is not victim else None
        if reboots:
            victim.disk.power_losses += 1
        victim.disk.restore(copy)
        hand.boot_later(victim, 0.05, 0.5)

    how = _copy(hand, victim, lambda copy: hand.after(hand.between(1.0, 8.0), replace, copy))
    return f"{victim.name} {how}{', all die' * all_die}{', another boot' * reboots}"


def _copy(hand: Hand, node: Node, then: Callable[[DiskCopy], object]) -> str:
    """Copy a broker's disk, now or once it has stopped gracefully; say how."""
    if hand.rng.random() < 0.5:
        then(node.disk.copy())
        return "hot"
    hand.target.restart_gracefully(node)  # its supervisor starts it again
    incarnation = node.incarnation

    def stopped() -> bool:
        return not node.up and not node.loop.dead and node.incarnation == incarnation

    hand.watch(stopped, lambda: then(node.disk.copy()), 5.0)
    return "after a clean stop"


def older_disk_of_eligible(hand: Hand) -> str | None:
    """Let the last broker but one of an ISR die and return with an older disk, without the last.

    It is an eligible replica by what the controller noted of it (adr/0007).
    """
    copies: list[DiskCopy] = []

    def act(tp: TopicPartition, leader: Node, last: Node, others: list[Node]) -> None:
        del tp
        number = hand.target.broker_nodes().index(last)
        states = map(hand.target.leader_and_isr, hand.target.watched)
        # Where it is in sync it may lead when it has waited for the others (adr/0005).
        elsewhere = any(state is None or number in state[1] for state in states)
        if copies and not elsewhere and hand.may_lose([last]):
            last.crash()  # another fault may have started it
            last.disk.restore(copies[0])
            _let_others_lead(hand, leader, [last, *others])
        else:
            _boot(last, *others)

    def prepare(victim: Node) -> None:
        _copy(hand, victim, copies.append)

    return until_one_is_left(hand, act, prepare) if hand.hard else None


def _boot(*nodes: Node) -> None:
    for node in nodes:
        node.boot_if_down()


def _let_others_lead(hand: Hand, leader: Node, others: list[Node]) -> None:
    """Kill a leader that stays away for longer than a session; the others start meanwhile."""
    leader.crash()
    hand.target.expire_session(leader)
    for other in others:
        hand.boot_later(other, 0.05, 1.0)
    hand.boot_later(leader, LONGER_THAN_A_SESSION_S, 1.5 * LONGER_THAN_A_SESSION_S)


def until_one_is_left(
    hand: Hand,
    then: Callable[[TopicPartition, Node, Node, list[Node]], object],
    prepare: Callable[[Node], object] = lambda _: None,
) -> str | None:
    """Kill an ISR's members, one after the other, until the leader is alone in it.

    `prepare` takes the one that dies last, a while before. `then` takes the partition, its leader,
    that one and the others, all of which are down.
    """
    target, nodes = hand.target, hand.target.broker_nodes()
    chosen = next(((tp, le, isr) for tp, le, isr in hand.led_partitions() if len(isr) > 1), None)
    if chosen is None or len(hand.running()) < len(nodes):
        return None
    tp, leader, isr = chosen
    last = hand.rng.choice([node for node in isr if node is not leader])
    others = [node for node in isr if node not in (leader, last)]

    def reached(*members: Node) -> Callable[[], bool]:
        wanted = nodes.index(leader), {nodes.index(node) for node in members}

        def look() -> bool:
            state = target.leader_and_isr(tp)
            return state is not None and (state[0], set(state[1])) == wanted and leader.up

        return look

    def end(*dying: Node) -> None:
        for node in dying:
            node.crash()
            target.expire_session(node)

    def give_up() -> None:
        _boot(last, *others)

    def kill_last() -> None:
        end(last)
        hand.watch(reached(leader), lambda: then(tp, leader, last, others), 10.0, give_up)

    def kill_others() -> None:
        if last.up and leader.up and not hand.over():
            end(*others)
            hand.watch(reached(leader, last), kill_last, 10.0, give_up)

    prepare(last)
    hand.after(hand.between(3.0, 5.0), kill_others)
    return f"{tp}: {leader.name}, then {last.name} without it"


def lowered_for_the_last(hand: Hand) -> str | None:
    """Lower min.insync.replicas while one replica is in sync, and restore it; then that one dies.

    What was acknowledged by it alone no eligible replica has (F50).
    """
    scope = hand.rng.choice(("default", "default", "broker", "topic"))

    def act(tp: TopicPartition, leader: Node, last: Node, others: list[Node]) -> None:
        where = {"default": "", "broker": leader.name.removeprefix("b"), "topic": tp.topic}[scope]
        hand.target.set_min_isr(scope, where, 1)
        hand.after(2.0, hand.target.set_min_isr, scope, where, None)
        hand.after(hand.between(3.0, 4.0), _let_others_lead, hand, leader, [last, *others])

    found = until_one_is_left(hand, act)
    return None if found is None else f"{scope} {found}"


def lowered_min_isr(hand: Hand) -> str:
    """Lower min.insync.replicas for a while: the default, one broker's, or one topic's (F50)."""
    scope = hand.rng.choice(("default", "broker", "topic"))
    where = {
        "default": "",
        "broker": str(hand.rng.randrange(len(hand.target.broker_nodes()))),
        "topic": hand.rng.choice(hand.target.watched).topic,
    }[scope]
    hand.target.set_min_isr(scope, where, 1)
    hand.after(hand.between(2.0, 12.0), hand.target.set_min_isr, scope, where, None)
    return f"{scope} {where}"


def swapped_disks(hand: Hand) -> str | None:
    """Kill two brokers and exchange their disks for a while: none may serve what is another's."""
    running = hand.running()
    if len(running) < 2:
        return None
    pair = hand.rng.sample(running, 2)
    if not hand.reserve(pair):
        return None
    one, other = pair

    def exchange() -> None:
        one.crash()
        other.crash()
        one.disk.exchange(other.disk)
        hand.boot_later(one, 0.05, 0.5)
        hand.boot_later(other, 0.05, 0.5)

    exchange()
    hand.release_after(hand.between(1.0, 4.0), pair, exchange)
    return f"{one.name} {other.name}"


def second_process(hand: Hand) -> str | None:
    """Start a copy of a living broker's disk elsewhere (F53): its id is in use."""
    started = _start_second(hand)
    return None if started is None else f"{started[0].name} {started[1]:.1f} s"


def second_process_while_silent(hand: Hand) -> str | None:
    """Start one while the first is paused, or cut off from all servers: its session ends."""
    started = _start_second(hand)
    if started is None:
        return None
    node, seconds = started
    if hand.rng.random() < 0.5:
        node.pause()
        hand.after(0.7 * seconds, node.wake, node.incarnation)
        return f"{node.name} {seconds:.1f} s paused"
    internet, target = hand.simulation.internet, hand.target
    # From brokers, too: else it may become the only member of an ISR and acknowledge alone what the
    # copy, which then takes its place, does not have. That is lost in Kafka as well.
    others = [n.name for n in (target.zookeeper_node(), *target.broker_nodes()) if n is not node]
    pairs = [pair for other in others for pair in ((node.name, other), (other, node.name))]
    internet.block_all(pairs)
    hand.after(0.7 * seconds, internet.unblock_all, pairs)
    return f"{node.name} {seconds:.1f} s cut off"


def _start_second(hand: Hand) -> tuple[Node, float] | None:
    """Start it; return the first one, and after how many seconds the second one is ended.

    Where the first one dies meanwhile, the second one ends at once: Kafka has no rule for two
    disks of which either may be the right one.
    """
    started = [n for n in hand.running() if hand.target.started(n)]
    if not started:
        return None
    node = hand.rng.choice(started)
    if not hand.may_lose([node]) or not hand.reserve([node]):
        return None
    second = hand.target.start_second(node)
    seconds = hand.between(4.0, 15.0)

    release = hand.release_after(seconds, [node], lambda: hand.target.end_second(node, second))
    hand.watch(lambda: not node.up, release, seconds)
    return node, seconds


COPIES: dict[str, Callable[[Hand], str | None]] = {
    "older-disk": older_disk,
    "older-disk-of-eligible": older_disk_of_eligible,
    "swapped-disks": swapped_disks,
    "second-process": second_process,
    "second-process-while-silent": second_process_while_silent,
    "lowered-min-isr": lowered_min_isr,
    "lowered-for-the-last": lowered_for_the_last,
}
