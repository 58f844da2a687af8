"""The nemesis: breaks things by a seeded schedule, and mends what it broke.

Who may call: `cluster`. Invariants: every fault has its end in the same schedule; a fault is
drawn from the seed's own stream, so adding clients does not change it; power is taken from one
broker only, while every other is up and every replica in sync, and until its disk has caught up
no other broker is taken away: the controller may not have seen the loss, and would elect a log
with a hole. Kafka promises no more without an fsync per record (R13 is what goes beyond it).
Fault numbers are RELIABILITY's.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ottla.sim.world import Node, Simulation


class Target(Protocol):
    """What the nemesis needs of a cluster."""

    simulation: Simulation

    def broker_nodes(self) -> list[Node]: ...

    def zookeeper_node(self) -> Node: ...

    def restart_gracefully(self, node: Node) -> None: ...

    def expire_session(self, node: Node) -> bool: ...

    def lose_zookeeper_message(self, *, reply: bool) -> None: ...

    def stop_zookeeper(self) -> None: ...

    def start_zookeeper(self) -> None: ...

    @property
    def log_dirs(self) -> tuple[str, ...]: ...

    def all_in_sync(self) -> bool: ...

    def caught_up(self, node: Node) -> bool: ...


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of trouble: how often it is drawn, and which of the table's faults it is."""

    name: str
    weight: int
    number: str


FAULTS = (
    Fault("kill", 4, "F1 F3 F4"),
    Fault("power-loss", 3, "F5 F19"),
    Fault("swap-disk", 1, "F11"),
    Fault("graceful-restart", 2, "F2"),
    Fault("pause", 4, "F7 F8 F9"),
    Fault("isolate", 3, "F13 F14"),
    Fault("one-way", 3, "F13 F15"),
    Fault("cut-zookeeper", 3, "F14"),
    Fault("reset", 2, "F16"),
    Fault("loss", 2, "F16"),
    Fault("slow", 1, "F16"),
    Fault("expire", 3, "F10"),
    Fault("lost-reply", 2, "F6"),
    Fault("zookeeper-pause", 1, "F6"),
    Fault("zookeeper-restart", 1, "F6"),
    Fault("lost-request", 2, "F6"),
    Fault("slow-disk", 1, "F22"),
    Fault("clock-jump", 1, "F23"),
    Fault("kill-all", 1, "F5"),
    Fault("kill-all-power-loss", 1, "F5"),
    Fault("disk-error", 3, "F17 F18"),
)
HARMLESS = (
    "reset",
    "loss",
    "slow",
    "slow-disk",
    "clock-jump",
    "lost-reply",
    "lost-request",
    "zookeeper-pause",
    "zookeeper-restart",
)
"""What may happen while a broker has not got its unsynced records back."""
NAMES = tuple(fault.name for fault in FAULTS)


class Nemesis:
    """Draws a fault every few seconds until `stop`; then `heal` mends everything."""

    def __init__(
        self,
        target: Target,
        *,
        mean_gap_s: float = 4.0,
        allowed: tuple[str, ...] = NAMES,
        careless: bool = False,
    ) -> None:
        self.target = target
        self.mean_gap_s = mean_gap_s
        self.careless = careless
        """Whether others are taken away while one has not got its lost records back (R13)."""
        self.faults = [fault for fault in FAULTS if fault.name in allowed]
        self.done: list[str] = []
        self.stopped = False
        self._lost_power: Node | None = None
        self._bad_disks: dict[str, str] = {}
        self._simulation = target.simulation
        self._random = target.simulation.random("nemesis")

    def start(self) -> None:
        """Begin; without a kind of fault to draw, do nothing."""
        if self.faults:
            self._next()

    def stop(self) -> None:
        """Draw no further faults."""
        self.stopped = True

    def heal(self) -> None:
        """Mend links and disks, wake who sleeps, start who is down."""
        self._simulation.internet.heal()
        self.target.start_zookeeper()
        for node in [self.target.zookeeper_node(), *self.target.broker_nodes()]:
            if node.loop.paused and not node.loop.dead:
                node.resume()
            if node.name in self._bad_disks:
                self._replace_disk(node)
            self._boot(node)

    def _next(self) -> None:
        delay = self._random.expovariate(1.0 / self.mean_gap_s)
        self._simulation.scheduler.after(delay, self._strike)

    def _strike(self) -> None:
        if self.stopped:
            return
        (fault,) = self._random.choices(self.faults, [f.weight for f in self.faults])
        if not self.careless and self._weakened() and fault.name not in HARMLESS:
            self._next()
            return
        act: Callable[[], str | None] = getattr(self, "_" + fault.name.replace("-", "_"))
        detail = act()
        if detail is not None:
            self.done.append(f"{self._simulation.now:.3f} {fault.name} {detail}")
            self._simulation.note("nemesis", fault.name, detail)
        self._next()

    def _weakened(self) -> bool:
        """Whether a broker that lost power still lacks records that were acknowledged."""
        node = self._lost_power
        if node is None:
            return False
        if node.up and self.target.all_in_sync() and self.target.caught_up(node):
            self._lost_power = None
        return self._lost_power is not None

    def _later(
        self, low_s: float, high_s: float, callback: Callable[..., object], *args: object
    ) -> None:
        self._simulation.scheduler.after(self._random.uniform(low_s, high_s), callback, *args)

    def _broker(self) -> Node | None:
        """Draw a broker that runs and is not paused."""
        running = [n for n in self.target.broker_nodes() if n.up and not n.loop.paused]
        return self._random.choice(running) if running else None

    def _boot(self, node: Node) -> None:
        if not node.up:
            node.boot()

    # One method per fault; each returns what it did, or None where it could do nothing.

    def _kill(self) -> str | None:
        node = self._broker()
        if node is None:
            return None
        node.crash()
        self._later(0.1, 15.0, self._boot, node)
        return node.name

    def _kill_all(self) -> str | None:
        nodes = [n for n in self.target.broker_nodes() if n.up]
        for node in nodes:
            node.crash()
            self._later(0.5, 10.0, self._boot, node)
        return " ".join(n.name for n in nodes) or None

    def _kill_all_power_loss(self) -> str | None:
        """Kill every broker, one of them by its plug; all are back before one gives up waiting."""
        unlucky = self._one_of_many()
        if unlucky is None:
            return None
        for node in self.target.broker_nodes():
            node.crash(power_loss=node is unlucky)
            self._later(0.5, 4.0, self._boot, node)
        return f"all, power {unlucky.name}"

    def _power_loss(self) -> str | None:
        node = self._one_of_many()
        if node is None:
            return None
        node.crash(power_loss=True)
        self._later(0.5, 20.0, self._boot, node)
        return node.name

    def _one_of_many(self) -> Node | None:
        """Draw a broker whose records all others have too, while all others live."""
        nodes = self.target.broker_nodes()
        internet = self._simulation.internet
        if self._bad_disks or any(internet.is_blocked(n.name) for n in nodes):
            return None
        if any(not n.up or n.loop.paused for n in nodes) or not self.target.all_in_sync():
            return None
        if not all(self.target.caught_up(node) for node in nodes):
            return None
        self._lost_power = self._random.choice(nodes)
        return self._lost_power

    def _graceful_restart(self) -> str | None:
        node = self._broker()
        if node is None:
            return None
        self.target.restart_gracefully(node)
        return node.name

    def _pause(self) -> str | None:
        node = self._broker()
        if node is None:
            return None
        node.pause()
        seconds = self._random.choice((0.5, 3.0, 8.0, 15.0))
        self._simulation.scheduler.after(seconds, self._wake, node, node.incarnation)
        return f"{node.name} {seconds} s"

    def _wake(self, node: Node, incarnation: int) -> None:
        if node.incarnation == incarnation and node.loop.paused and not node.loop.dead:
            node.resume()

    def _isolate(self) -> str | None:
        node = self._random.choice(self.target.broker_nodes())
        others = [n for n in self.target.broker_nodes() if n is not node]
        if self._random.random() < 0.5:
            others.append(self.target.zookeeper_node())
        self._block([(node, other) for other in others] + [(other, node) for other in others])
        return f"{node.name} from {' '.join(n.name for n in others)}"

    def _one_way(self) -> str | None:
        nodes = self.target.broker_nodes()
        if len(nodes) < 2:
            return None
        source, target = self._random.sample(nodes, 2)
        self._block([(source, target)])
        return f"{source.name} to {target.name}"

    def _cut_zookeeper(self) -> str | None:
        node = self._random.choice(self.target.broker_nodes())
        zookeeper = self.target.zookeeper_node()
        pairs = [(node, zookeeper), (zookeeper, node)]
        if self._random.random() < 0.3:
            pairs = [self._random.choice(pairs)]
        self._block(pairs)
        return " ".join(f"{a.name}>{b.name}" for a, b in pairs)

    def _block(self, pairs: list[tuple[Node, Node]]) -> None:
        internet = self._simulation.internet
        for a, b in pairs:
            internet.block(a.name, b.name)
        seconds = self._random.choice((1.0, 5.0, 12.0, 30.0))
        self._simulation.scheduler.after(seconds, self._unblock, pairs)

    def _unblock(self, pairs: list[tuple[Node, Node]]) -> None:
        internet = self._simulation.internet
        for a, b in pairs:
            if internet.link(a.name, b.name).blocked:
                internet.unblock(a.name, b.name)

    def _reset(self) -> str | None:
        node = self._random.choice(self.target.broker_nodes())
        count = self._simulation.internet.reset_connections(node.name)
        return f"{node.name} {count} connections"

    def _loss(self) -> str:
        names = [n.name for n in self.target.broker_nodes()]
        source, target = self._random.choice(names), self._random.choice(names)
        link = self._simulation.internet.link(source, target)
        link.stall_chance = self._random.choice((0.05, 0.3))
        self._later(2.0, 20.0, setattr, link, "stall_chance", 0.0)
        return f"{source} to {target} {link.stall_chance}"

    def _slow(self) -> str:
        node = self._random.choice(self.target.broker_nodes())
        links = [
            self._simulation.internet.link(node.name, other.name)
            for other in self.target.broker_nodes()
            if other is not node
        ]
        for link in links:
            was = link.base_s
            link.base_s = 0.1
            self._later(2.0, 20.0, setattr, link, "base_s", min(was, 0.0003))
        return node.name

    def _expire(self) -> str | None:
        node = self._broker()
        if node is None or not self.target.expire_session(node):
            return None
        return node.name

    def _lost_reply(self) -> str:
        self.target.lose_zookeeper_message(reply=True)
        return "of whoever comes next"

    def _lost_request(self) -> str:
        self.target.lose_zookeeper_message(reply=False)
        return "of whoever comes next"

    def _zookeeper_restart(self) -> str | None:
        if self.target.zookeeper_node().loop.paused:
            return None
        self.target.stop_zookeeper()
        seconds = self._random.choice((0.2, 3.0, 8.0, 20.0))
        self._simulation.scheduler.after(seconds, self.target.start_zookeeper)
        return f"after {seconds} s"

    def _slow_disk(self) -> str | None:
        """Let what a broker's workers do take two seconds each: fsyncs, cold reads."""
        node = self._broker()
        if node is None:
            return None
        workers = node.workers
        was, workers.mean_s = workers.mean_s, 2.0
        self._later(5.0, 30.0, setattr, workers, "mean_s", min(was, 0.001))
        return node.name

    def _zookeeper_pause(self) -> str | None:
        node = self.target.zookeeper_node()
        if node.loop.paused:
            return None
        node.pause()
        seconds = self._random.choice((1.0, 4.0, 10.0, 30.0))
        self._simulation.scheduler.after(seconds, self._wake, node, node.incarnation)
        return f"{seconds} s"

    def _clock_jump(self) -> str:
        node = self._random.choice(self.target.broker_nodes())
        by_ms = self._random.choice((-3_600_000, -5_000, 5_000, 3_600_000))
        node.jump_wall_clock(by_ms)
        return f"{node.name} {by_ms} ms"

    def _disk_error(self) -> str | None:
        """Let one log dir of one broker fail until somebody mends it and restarts the broker."""
        node = self._broker()
        if node is None or self._bad_disks:
            return None
        folder = self._random.choice(self.target.log_dirs)
        operations = self._random.choice((("write",), ("write", "fsync", "read"), ("fsync",)))
        error = self._random.choice((errno.EIO, errno.ENOSPC))
        torn = self._random.random() < 0.5
        node.disk.fail(folder, operations, error, torn=torn)
        self._bad_disks[node.name] = folder
        self._later(3.0, 15.0, self._replace_disk, node)
        return f"{node.name}:{folder} {'+'.join(operations)} {errno.errorcode[error]} torn={torn}"

    def _replace_disk(self, node: Node) -> None:
        """Mend a log dir and restart the broker, as its operator does.

        A partition that left and came back meanwhile lies in both dirs: a broker refuses to start
        then and asks for one to be moved away (as Kafka does), so the older copy is.
        """
        folder = self._bad_disks.pop(node.name, None)
        if folder is None:
            return
        node.disk.mend()
        node.crash()
        ours = self._partitions_in(node, folder)
        for other in self.target.log_dirs:
            if other != folder:
                for name in sorted(ours & self._partitions_in(node, other)):
                    node.disk.wipe(f"{folder}/{name}")
                    node.disk.folders.discard(f"{folder}/{name}")
        self._boot(node)

    @staticmethod
    def _partitions_in(node: Node, folder: str) -> set[str]:
        inside = folder + "/"
        return {f.removeprefix(inside) for f in node.disk.folders if f.startswith(inside)}

    def _swap_disk(self) -> str | None:
        """Kill a broker and give it an empty disk: it must not lead others into truncation."""
        node = self._one_of_many()
        if node is None:
            return None
        node.crash()
        node.disk.wipe()
        self._later(0.1, 15.0, self._boot, node)
        return node.name
