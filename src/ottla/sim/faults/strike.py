"""How a fault is declared, and what one strike of the nemesis may do.

A fault is a function that `fault` declares: its name is the function's; it returns what it did, or
None where it can do nothing. Invariants: it looks at ZooKeeper's znodes, files on disks and which
processes run, at nothing inside a broker; it ends on its own within a bounded time and restores
what it slowed (`Nemesis.heal` repairs all that a run's end cuts short); its chance is a stream of
its own. Fault numbers are RELIABILITY's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from random import Random

from ottla.model.ids import TopicPartition
from ottla.sim.clock import WORKER_S
from ottla.sim.faults.allowance import Allowance
from ottla.sim.world import Node

LOOK_S = 0.01
SESSION_S = 6.0
"""zookeeper.session.timeout.ms and replica.lag.time.max.ms of simulated brokers."""


class Drawn(Enum):
    """Which plans have a fault. The kept seeds are older than most: they have what is ALWAYS."""

    ALWAYS = auto()
    HALF = auto()
    """Half of the drawn plans."""
    WITH_CRASH_DETECTION = auto()
    """Drawn plans in which refused connections prove that a process is gone."""
    AS_STATEMENT = auto()
    """Some drawn plans: what disks, settings, late bytes and the coordination server say is not
    true any more (F50 to F55)."""
    NAMED_ONLY = auto()
    """None: what the protocol cannot prevent."""


class Meanwhile(Enum):
    """Whether a fault may happen while a broker has not got its unsynced records back."""

    NO = auto()
    BRIEFLY = auto()
    """In a `hard` plan: to those that lack records, and briefly to all."""
    YES = auto()


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of trouble: how often it is drawn, and which of the table's faults it is."""

    name: str
    weight: int
    number: str
    drawn: Drawn
    meanwhile: Meanwhile
    act: "Act"


FAULTS: list[Fault] = []
"""All kinds, in the order in which they are declared: what a seed draws depends on it."""


def fault(
    weight: int,
    number: str,
    meanwhile: Meanwhile = Meanwhile.NO,
    drawn: Drawn = Drawn.ALWAYS,
) -> "Callable[[Act], Act]":
    """Declare the fault that a function does."""

    def declared(act: Act) -> Act:
        name = act.__name__.replace("_", "-")
        FAULTS.append(Fault(name, weight, number, drawn, meanwhile, act))
        return act

    return declared


class Strike:
    """One strike: a cluster, what may be taken from it, and chance."""

    def __init__(self, allowance: Allowance, rng: Random) -> None:
        self.allowance = allowance
        self.cluster = allowance.cluster
        self.simulation = allowance.cluster.simulation
        self.rng = rng
        self.hard = allowance.hard

    def over(self) -> bool:
        return self.allowance.over

    # Time.

    def after(self, delay_s: float, callback: Callable[..., object], *args: object) -> None:
        self.simulation.scheduler.after(delay_s, callback, *args)

    def between(self, low_s: float, high_s: float) -> float:
        return self.rng.uniform(low_s, high_s)

    def later(
        self, low_s: float, high_s: float, callback: Callable[..., object], *args: object
    ) -> None:
        self.after(self.between(low_s, high_s), callback, *args)

    def boot_later(self, node: Node, low_s: float, high_s: float) -> None:
        self.later(low_s, high_s, node.boot_if_down)

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

    # Brokers.

    def broker(self) -> Node | None:
        """Draw a broker that runs and is not paused; while some lack records, one of those.

        The same one if possible, whichever others are down.
        """
        nodes = self.cluster.broker_nodes()
        drawn = self.rng.sample(nodes, len(nodes))
        return next((n for n in drawn if self.allowance.may_take_away(n)), None)

    def any_broker(self) -> Node | None:
        """Draw a broker that runs and is not paused, a whole one too."""
        running = [n for n in self.running() if not self.allowance.is_reserved(n)]
        return self.rng.choice(running) if running else None

    def running(self) -> list[Node]:
        return [n for n in self.cluster.broker_nodes() if n.running]

    def may_lose(self, victims: list[Node]) -> bool:
        """Whether these brokers may lose what is not synced; they lack it then."""
        return self.allowance.may_lose(victims)

    def one_that_may_lose(self) -> Node | None:
        """Draw a broker that may lose something, and note that it does."""
        node = self.rng.choice(self.cluster.broker_nodes())
        return node if self.may_lose([node]) else None

    def some_that_may_lose(self) -> list[Node]:
        """Draw brokers that may lose what is not synced, all at once: as many as is allowed."""
        nodes = self.cluster.broker_nodes()
        wanted = self.rng.sample(nodes, self.rng.randint(1, len(nodes)))
        while wanted and not self.may_lose(wanted):
            wanted.pop()
        return wanted

    def unlucky(self) -> list[Node]:
        """Draw whose power is lost where all brokers are killed: several in a hard plan."""
        if self.hard:
            return self.some_that_may_lose()
        node = self.one_that_may_lose()
        return [] if node is None else [node]

    # Partitions.

    def led_partitions(self) -> list[tuple[TopicPartition, Node, list[Node]]]:
        """Return partitions in a drawn order, each with its leader, which runs, and its ISR."""
        nodes, cluster = self.cluster.broker_nodes(), self.cluster
        found = []
        for tp in self.rng.sample(cluster.watched, len(cluster.watched)):
            state = cluster.leader_and_isr(tp)
            if state is not None and state[0] >= 0 and nodes[state[0]].running:
                found.append((tp, nodes[state[0]], [nodes[b] for b in state[1]]))
        return found

    def end(self, tp: TopicPartition, node: Node) -> int:
        """Return the offset after the last record on a broker's disk, -1 for no log."""
        return self.cluster.replicas.ends(tp).get(self.cluster.broker_nodes().index(node), -1)

    # Deeds of several faults.

    def kill_and_expire(self, node: Node) -> None:
        """Kill a broker, and have its session end at once."""
        node.crash()
        self.cluster.expire_session(node)

    def slow(self, source: Node, target: Node, delay_s: float, seconds: float) -> None:
        """Let all that goes from one node to another take so long."""
        internet = self.simulation.internet
        link = internet.link(source.name, target.name)
        before_s = 0.00002 if source is target else internet.base_s
        link.base_s = delay_s

        def restore() -> None:
            link.base_s = before_s

        self.after(seconds, restore)

    def slow_workers(self, node: Node, mean_s: float) -> Callable[[], None]:
        """Let what a node's workers do take so long; return what ends that."""
        workers = node.workers
        workers.mean_s = mean_s

        def restore() -> None:
            workers.mean_s = WORKER_S

        return restore

    def block(self, pairs: list[tuple[Node, Node]], seconds: float) -> str:
        """Let nothing through from the first node of each pair to the second for so long."""
        internet = self.simulation.internet
        names = [(a.name, b.name) for a, b in pairs]
        internet.block_all(names)
        self.after(seconds, internet.unblock_all, names)
        return " ".join(f"{a}>{b}" for a, b in names)


Act = Callable[[Strike], str | None]
