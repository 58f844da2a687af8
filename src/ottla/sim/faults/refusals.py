"""Faults that crash detection has to tell apart: false alarms, deaths at once, deaths unseen (F44).

Hosts refuse connections though processes live, for long or for less than a proof takes; several
processes die at once; a proxy answers for a process that died. Invariants: each ends on its own
within a bounded time.
"""

from ottla.sim.faults.strike import Drawn, Meanwhile, Strike, fault
from ottla.sim.world import Node

DETECTED = Drawn.WITH_CRASH_DETECTION
BRIEFLY_S = 0.038
"""Less than `crash_detection.PAUSE_S`."""


@fault(6, "F44", drawn=DETECTED)
def refused(strike: Strike) -> str | None:
    """Let one host, or two at once, refuse connections though the brokers there live."""
    count = 2 if strike.rng.random() < 0.4 else 1
    chosen = _some(strike, count)
    return _refuse(strike, chosen, strike.rng.choice((0.2, 1.0, 3.0, 8.0)))


@fault(3, "F44", Meanwhile.YES, drawn=DETECTED)
def refused_briefly(strike: Strike) -> str | None:
    """Let one do so for less time than lies between the two refusals of a proof."""
    return _refuse(strike, _some(strike, 1), strike.between(0.001, BRIEFLY_S))


def _some(strike: Strike, count: int) -> list[Node]:
    """Draw running brokers whose hosts refuse nothing; often the controller is the first."""
    refusing = strike.simulation.internet.refusing
    nodes = [n for n in strike.running() if n.name not in refusing]
    strike.rng.shuffle(nodes)
    controller = strike.cluster.controller_node()
    if strike.rng.random() < 0.5 and controller in nodes:
        nodes.sort(key=lambda n: n is not controller)
    return nodes[:count]


def _refuse(strike: Strike, nodes: list[Node], seconds: float) -> str | None:
    internet = strike.simulation.internet
    with_zookeeper = strike.rng.random() < 0.5
    others = [n.name for n in strike.cluster.broker_nodes()]
    for node in nodes:
        internet.refuse(node.name)
        strike.after(seconds, internet.accept, node.name)
        if with_zookeeper:
            internet.reset_connections(node.name)
            continue
        for other in others:
            if other != node.name:
                internet.reset_connections(node.name, other)
    return f"{' '.join(n.name for n in nodes)} {seconds:.3f} s" if nodes else None


@fault(2, "F44", drawn=DETECTED)
def killed_behind_proxy(strike: Strike) -> str | None:
    """Kill a broker whose host goes on accepting connections and answers none."""
    node = next(iter(_some(strike, 1)), None)
    if node is None:
        return None
    node.crash()
    strike.simulation.internet.answer_for(node.name)
    strike.boot_later(node, 0.5, 12.0)
    return node.name


@fault(4, "F44", drawn=DETECTED)
def kill_several(strike: Strike) -> str | None:
    """Kill two brokers or more at once, as a rack dies; now and then one loses power as well."""
    running = strike.running()
    if len(running) < 2:
        return None
    victims = _some(strike, strike.rng.choice((2, 2, len(running) - 1)))
    silent = [n for n in victims[:1] if strike.rng.random() < 0.2 and strike.may_lose([n])]
    for node in victims:
        node.crash(power_loss=node in silent)
        strike.boot_later(node, 0.3, 12.0)
    power = f", power {silent[0].name}" if silent else ""
    return f"{' '.join(n.name for n in victims)}{power}" if victims else None


@fault(4, "F44", drawn=DETECTED)
def controller_refused_while_cut_off(strike: Strike) -> str | None:
    """Let the controller and one more host refuse; the controller is cut off from ZooKeeper.

    It has the proof that the other is gone, and cannot say so; meanwhile it is removed itself, and
    another is elected. The other refuses for too short a time for that one.
    """
    internet, controller = strike.simulation.internet, strike.cluster.controller_node()
    nodes = _some(strike, len(strike.running()))
    others = [n for n in nodes if n is not controller]
    if controller not in nodes or len(others) < 2 or internet.is_blocked(controller.name):
        return None
    zookeeper = strike.cluster.zk.node
    pairs = [(controller.name, zookeeper.name), (zookeeper.name, controller.name)]
    internet.block_all(pairs)
    seconds = strike.between(0.5, 3.5)
    strike.after(seconds, internet.unblock_all, pairs)
    for node, refuses_s in ((others[0], strike.between(0.05, 0.09)), (controller, seconds)):
        internet.refuse(node.name)
        strike.after(refuses_s, internet.accept, node.name)
    internet.reset_connections(controller.name, others[0].name)
    for other in others[1:]:
        internet.reset_connections(controller.name, other.name)
    return f"{controller.name} {seconds:.3f} s, {others[0].name}"


@fault(4, "F44", drawn=DETECTED)
def returns_while_removed(strike: Strike) -> str | None:
    """Kill a broker that is back at once, while what the controller asks of ZooKeeper is slow."""
    controller = strike.cluster.controller_node()
    others = [n for n in _some(strike, len(strike.running())) if n is not controller]
    if controller is None or not controller.running or not others:
        return None
    delay_s = strike.rng.choice((0.2, 0.5, 0.9))
    strike.slow(controller, strike.cluster.zk.node, delay_s, 5.0)
    others[0].crash()
    strike.boot_later(others[0], 0.01, 2 * delay_s)
    return f"{others[0].name}, {controller.name} slow by {delay_s} s"
