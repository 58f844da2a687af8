"""The nemesis: breaks things by a seeded schedule, and repairs what it broke.

Invariants: every fault has its end in the same schedule; a fault is drawn from the seed's own
stream, so adding clients does not change it; each has a number and a stream of chance of its own,
so that one can be left out alone (`masks`). Fault numbers are RELIABILITY's. How much may be lost
at once:
- gentle: power is taken from one broker only, while every other is up and every replica in sync,
  and until its disk has caught up no other broker is taken away;
- hard: power (or a disk's pages) is taken from any brokers, again and again, as long as every
  partition keeps one replica in sync that has lost nothing and comes back. That is the promise of
  R13 and R18: no acknowledged record is lost while one member of the in-sync set that acknowledged
  it kept its data. Whoever lost something counts as lacking until its disk has all that those have
  which lost nothing; what the controller believes does not count. Who has come back waits for the
  others for replica.lag.time.max.ms only (adr/0005): so meanwhile the whole ones are not taken
  away for longer than that, and what lacks records may be killed and cut off as always;
- careless: beyond any promise.
"""

import errno
from collections.abc import Callable

from ottla.sim.clock import WORKER_S
from ottla.sim.faults import BRIEF, DEEDS, FAULTS, HARMLESS, NAMES
from ottla.sim.files import DiskFault
from ottla.sim.masks import ALL, Mask
from ottla.sim.moments import Hand
from ottla.sim.target import Target
from ottla.sim.world import Node


class Nemesis:
    """Draws a fault every few seconds until `stop`; then `heal` repairs everything."""

    def __init__(
        self,
        target: Target,
        *,
        mean_gap_s: float = 4.0,
        allowed: tuple[str, ...] = NAMES,
        hard: bool = False,
        careless: bool = False,
        mask: Mask = ALL,
    ) -> None:
        self.target = target
        self.mean_gap_s = mean_gap_s
        self.careless = careless
        """Whether others are taken away while one has not got its lost records back (R13)."""
        self.hard = hard
        """Whether to go to the limit of the promise; see above."""
        self.faults = [fault for fault in FAULTS if fault.name in allowed]
        self.done: list[str] = []
        self.stopped = False
        self._lacking: dict[Node, None] = {}
        """Brokers that have lost something unsynced and not got it back."""
        self._bad_disks: dict[str, str] = {}
        self._reserved: list[tuple[list[Node], Callable[[], object]]] = []
        """Brokers that only one fault may deal with, and how that one ends."""
        self._simulation = target.simulation
        self._schedule = target.simulation.random("nemesis")
        self._random = self._schedule
        """Chance of the present strike; when and what the next one is comes from `_schedule`."""
        self._mask = mask
        self._number = 0

    def start(self) -> None:
        """Begin; without a kind of fault to draw, do nothing."""
        if self.faults:
            self._next()

    def stop(self) -> None:
        """Draw no further faults."""
        self.stopped = True

    def lacks(self, node: Node) -> bool:
        """Whether a broker lost something unsynced and was not seen to have got it back."""
        return node in self._lacking

    def heal(self) -> None:
        """Repair links and disks, resume paused nodes, start those that are down."""
        for entry in list(self._reserved):
            self._release(entry)
        self._simulation.internet.heal()
        self.target.bit_flips.undo()
        self.target.zookeeper_node().disk.mend()
        self.target.zookeeper_node().workers.refuses = False
        self.target.zk.start()
        for node in self.target.broker_nodes():
            node.workers.mean_s = WORKER_S
            node.files.last_operations = None
            if node.name not in self._bad_disks:
                node.disk.mend()
        for node in [self.target.zookeeper_node(), *self.target.broker_nodes()]:
            node.wake()
            if node.name in self._bad_disks:
                self._replace_disk(node)
            node.boot_if_down()

    def _next(self) -> None:
        delay = self._schedule.expovariate(1.0 / self.mean_gap_s)
        self._simulation.scheduler.after(delay, self._strike)

    def _strike(self) -> None:
        if self.stopped:
            return
        self._number += 1
        name = str(self._number)
        (fault,) = self._schedule.choices(self.faults, [f.weight for f in self.faults])
        self._random = self._simulation.random(f"nemesis/{name}")
        harmless = BRIEF if self.hard else HARMLESS
        forbidden = not self.careless and self._weakened() and fault.name not in harmless
        if forbidden or not self._mask.allows(name):
            self._next()
            return
        detail = self._do(fault.name)
        if detail is not None:
            self.done.append(f"{self._simulation.now:.3f} #{name} {fault.name} {detail}")
            self._simulation.note("nemesis", fault.name, detail)
        self._next()

    def _do(self, name: str) -> str | None:
        moment = DEEDS.get(name)
        if moment is None:
            act: Callable[[], str | None] = getattr(self, "_" + name.replace("-", "_"))
            return act()
        return moment(
            Hand(
                self.target,
                self._simulation,
                self._random,
                self._may_lose,
                lambda: self.stopped,
                self.hard,
                self._reserve,
                self._release_after,
            )
        )

    def _reserve(self, nodes: list[Node]) -> bool:
        return not any(self._is_armed(node) for node in nodes)

    def _release_after(
        self, seconds: float, nodes: list[Node], end: Callable[[], object]
    ) -> Callable[[], None]:
        entry = nodes, end
        self._reserved.append(entry)
        self._simulation.scheduler.after(seconds, self._release, entry)
        return lambda: self._release(entry)

    def _release(self, entry: tuple[list[Node], Callable[[], object]]) -> None:
        if entry in self._reserved:
            self._reserved.remove(entry)
            entry[1]()

    def _is_reserved(self, node: Node) -> bool:
        return any(node in nodes for nodes, _ in self._reserved)

    def _weakened(self) -> bool:
        """Whether nothing else is to be broken: a broker lacks records that were acknowledged.

        One that is yet to lose them counts from when that was settled: it has all of them until
        then, and no one else may lose any meanwhile.
        """
        for node in list(self._lacking):
            if self._is_armed(node):
                continue
            back = (
                self.target.regained(node, self._lacking)
                if self.hard
                else node.up and self.target.all_in_sync() and self.target.caught_up(node)
            )
            if back:
                del self._lacking[node]
        return bool(self._lacking)

    def _later(
        self, low_s: float, high_s: float, callback: Callable[..., object], *args: object
    ) -> None:
        self._simulation.scheduler.after(self._random.uniform(low_s, high_s), callback, *args)

    def _broker(self) -> Node | None:
        """Draw a broker that runs and is not paused; while some lack records, one of those.

        The same one if possible, whichever others are down.
        """
        nodes = self.target.broker_nodes()
        drawn = self._random.sample(nodes, len(nodes))
        running = [n for n in drawn if n.running and not self._is_reserved(n)]
        if self._lacking and not self.careless:
            running = [n for n in running if n in self._lacking]
        return running[0] if running else None

    def _any_broker(self) -> Node | None:
        """Draw a broker that runs and is not paused, a whole one too."""
        running = [n for n in self.target.broker_nodes() if n.running and not self._is_reserved(n)]
        return self._random.choice(running) if running else None

    # One method per fault; each returns what it did, or None where it could do nothing.

    def _kill(self) -> str | None:
        node = self._broker()
        if node is None:
            return None
        node.crash()
        self._later(0.1, 15.0, node.boot_if_down)
        return node.name

    def _kill_all(self) -> str | None:
        nodes = [n for n in self.target.broker_nodes() if n.up]
        for node in nodes:
            node.crash()
            self._later(0.5, 10.0, node.boot_if_down)
        return " ".join(n.name for n in nodes) or None

    def _kill_all_power_loss(self) -> str | None:
        """Kill every broker, some by their plug; all are back before one gives up waiting."""
        unlucky = self._some_that_may_lose() if self.hard else [self._one_of_many()]
        if not unlucky or unlucky[0] is None:
            return None
        for node in self.target.broker_nodes():
            node.crash(power_loss=node in unlucky)
            self._later(0.5, 4.0, node.boot_if_down)
        return f"all, power {' '.join(n.name for n in unlucky if n is not None)}"

    def _power_loss(self) -> str | None:
        node = self._one_of_many()
        if node is None:
            return None
        node.crash(power_loss=True)
        self._later(0.5, 20.0, node.boot_if_down)
        return node.name

    def _one_of_many(self) -> Node | None:
        """Draw a broker that may lose something, and note that it does."""
        node = self._random.choice(self.target.broker_nodes())
        return node if self._may_lose([node]) else None

    def _may_lose(self, victims: list[Node]) -> bool:
        """Whether these brokers may lose what is not synced; they lack it then.

        Gentle: only one, whose records all others have too, while all others live.
        """
        target = self.target
        if any(self._is_reserved(node) for node in victims):
            return False
        if self.careless:
            pass
        elif self.hard:
            gone = [n for n in target.broker_nodes() if n in self._lacking or self._is_away(n)]
            if not target.whole_everywhere(victims, gone):
                return False
        else:
            nodes = target.broker_nodes()
            if len(victims) > 1 or any(self._is_away(n) for n in nodes):
                return False
            if not target.all_in_sync():
                return False
            if not all(target.caught_up(node) for node in nodes):
                return False
            if not target.whole_everywhere(victims, []):
                return False
        self._lacking.update(dict.fromkeys(victims))
        return True

    def _is_away(self, node: Node) -> bool:
        """Whether a broker is down, stopped, cut off or about to be, for no one knows how long."""
        return (
            not node.running
            or self._is_armed(node)
            or node.name in self._simulation.internet.refusing
            or self._simulation.internet.is_blocked(node.name)
        )

    def _is_armed(self, node: Node) -> bool:
        """Whether a broker ends at an operation to come, or has a disk that is to be replaced."""
        return (
            node.files.last_operations is not None
            or node.name in self._bad_disks
            or self._is_reserved(node)
        )

    def _some_that_may_lose(self) -> list[Node]:
        """Draw brokers that may lose what is not synced, all at once: as many as is allowed."""
        nodes = self.target.broker_nodes()
        wanted = self._random.sample(nodes, self._random.randint(1, len(nodes)))
        while wanted and not self._may_lose(wanted):
            wanted.pop()
        return wanted

    def _power_loss_of_several(self) -> str | None:
        victims = self._some_that_may_lose()
        for node in victims:
            node.crash(power_loss=True)
            self._later(0.5, 20.0, node.boot_if_down)
        return " ".join(n.name for n in victims) or None

    def _kill_at_operation(self) -> str | None:
        """Kill a broker in the middle of a callback or a worker's call."""
        node = self._broker()
        return None if node is None else self._end_at_operation(node, power_loss=False)

    def _power_loss_at_operation(self) -> str | None:
        node = self._one_of_many()
        return None if node is None else self._end_at_operation(node, power_loss=True)

    def _end_at_operation(self, node: Node, *, power_loss: bool) -> str:
        count = self._random.choice((0, 1, 2, 5, 20, 100))
        node.crash_at_operation(count, power_loss=power_loss)
        self._later(0.5, 15.0, node.boot_if_down)
        return f"{node.name} after {count} operations"

    def _bounce(self) -> str | None:
        """Kill a broker, a whole one too, and have it back before anybody notices, and again."""
        node = self._any_broker()
        if node is None:
            return None
        times = self._random.randint(1, 3)
        self._bounce_again(node, times)
        return f"{node.name} {times} times"

    def _bounce_again(self, node: Node, times: int) -> None:
        if not node.running or self.stopped:
            return
        node.crash()
        self._later(0.01, 0.3, node.boot_if_down)
        if times > 1:
            self._later(0.4, 2.0, self._bounce_again, node, times - 1)

    def _brief_kill(self) -> str | None:
        """Kill a broker, a whole one too, and have it back before others give up waiting."""
        node = self._any_broker()
        if node is None:
            return None
        node.crash()
        self._later(0.3, 3.0, node.boot_if_down)
        return node.name

    def _stop_while_waiting(self) -> str | None:
        """Kill every broker; one that lost power starts first, is stopped, and starts again.

        The others are back soon: it must not lead before it has heard them.
        """
        unlucky = self._some_that_may_lose() if self.hard else [self._one_of_many()]
        first = unlucky[0] if unlucky else None
        if first is None:
            return None
        for node in self.target.broker_nodes():
            node.crash(power_loss=node in unlucky)
            if node is not first:
                self._later(2.5, 4.0, node.boot_if_down)
        # Another boot waits for the end of its last session: the others would be back before.
        self.target.expire_session(first)
        boot_s = self._random.uniform(0.05, 0.3)
        stop_s = self._random.choice((0.1, 0.4, 0.8)) * self._random.random()
        after = self._simulation.scheduler.after
        after(boot_s, first.boot_if_down)
        after(boot_s + stop_s, self.target.restart_gracefully, first)
        after(5.0, first.boot_if_down)
        return f"all, power {' '.join(n.name for n in unlucky if n is not None)}"

    def _failed_starts(self) -> str | None:
        """Kill a broker; its next start or two end in the middle."""
        node = self._broker()
        if node is None:
            return None
        node.crash()
        times = self._random.randint(1, 2)
        self._later(0.2, 3.0, self._start_in_vain, node, times)
        return f"{node.name} {times} times"

    def _start_in_vain(self, node: Node, times: int) -> None:
        if node.up or self.stopped:
            return
        node.boot()
        if self._random.random() < 0.5:
            node.crash_at_operation(self._random.randrange(200))
        else:
            self._later(0.0, 3.0, self._kill_in_start, node, node.incarnation)
        following = self._start_in_vain if times > 1 else self._boot_whole
        self._later(3.5, 8.0, following, node, times - 1)

    def _kill_in_start(self, node: Node, incarnation: int) -> None:
        if node.incarnation == incarnation and node.up and not self.stopped:
            node.crash()  # not after all was healed: no one would start it again

    def _boot_whole(self, node: Node, _times: int) -> None:
        node.files.last_operations = None
        node.boot_if_down()

    def _stop_early(self) -> str | None:
        """Kill a broker or take its power, and stop it by SIGTERM soon after its start."""
        lost = self._random.random() < 0.5
        node = self._one_of_many() if lost else self._broker()
        if node is None:
            return None
        node.crash(power_loss=lost)
        boot_s = self._random.uniform(0.1, 3.0)
        stop_s = self._random.choice((0.0, 0.05, 0.3, 1.0, 3.0)) * self._random.random()
        after = self._simulation.scheduler.after
        after(boot_s, node.boot_if_down)
        after(boot_s + stop_s, self.target.restart_gracefully, node)
        self._later(8.0, 12.0, node.boot_if_down)
        return f"{node.name} power={'lost' if lost else 'kept'} stop {stop_s:.3f} s after start"

    def _cold_cache(self) -> str | None:
        """Empty a broker's page cache, as another program on its machine does."""
        node = self._broker()
        if node is None:
            return None
        node.disk.evict()
        return node.name

    def _few_descriptors(self) -> str | None:
        """Let a broker open no file for a while: its process has no descriptor left (EMFILE)."""
        node = self._broker()
        if node is None:
            return None
        times = self._random.choice((1, 3, 20, 1 << 30))
        node.disk.fail("/", ("open",), errno.EMFILE, times=times)
        (fault,) = node.disk.faults[-1:]
        self._later(0.5, 6.0, self._end_fault, node, fault)
        return f"{node.name} {times if times < 100 else 'all'} openings"

    @staticmethod
    def _end_fault(node: Node, fault: DiskFault) -> None:
        if fault in node.disk.faults:
            node.disk.faults.remove(fault)

    def _dropped_pages(self) -> str | None:
        """Let an fsync fail once and lose what it was to write: the next ones succeed."""
        if self._bad_disks:
            return None
        node = self._one_of_many()
        if node is None:
            return None
        folder = self._random.choice(self.target.log_dirs)
        node.disk.fail(folder, ("fsync",), errno.EIO, times=self._random.choice((1, 3)), drops=True)
        self._bad_disks[node.name] = folder
        self._later(3.0, 15.0, self._replace_disk, node)
        return f"{node.name}:{folder}"

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
        self._simulation.scheduler.after(seconds, node.wake, node.incarnation)
        return f"{node.name} {seconds} s"

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
        names = [(a.name, b.name) for a, b in pairs]
        internet.block_all(names)
        seconds = self._random.choice((1.0, 5.0, 12.0, 30.0))
        self._simulation.scheduler.after(seconds, internet.unblock_all, names)

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
            link.base_s = 0.1
            self._later(2.0, 20.0, setattr, link, "base_s", self._simulation.internet.base_s)
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
        zk = self.target.zk
        if not zk.node.running:
            return None
        seconds = self._random.choice((0.2, 3.0, 8.0, 20.0))
        power_loss, operations = False, None
        if zk.durable:
            power_loss = self._random.random() < 0.5
            operations = self._random.choice((None, None, None, 0, 1, 2, 3, 5, 9))
        zk.stop(power_loss=power_loss, after_operations=operations)
        self._simulation.scheduler.after(seconds, zk.start)
        if not zk.durable:
            return f"after {seconds} s"
        at = "now" if operations is None else f"after {operations} operations"
        return f"{'power loss' if power_loss else 'kill'} {at}, back after {seconds} s"

    def _slow_disk(self) -> str | None:
        """Let what a broker's workers do take two seconds each: fsyncs, cold reads."""
        node = self._broker()
        if node is None:
            return None
        workers = node.workers
        workers.mean_s = 2.0
        self._later(5.0, 30.0, setattr, workers, "mean_s", WORKER_S)
        return node.name

    def _zookeeper_pause(self) -> str | None:
        node = self.target.zookeeper_node()
        if node.loop.paused:
            return None
        node.pause()
        seconds = self._random.choice((1.0, 4.0, 10.0, 30.0))
        self._simulation.scheduler.after(seconds, node.wake, node.incarnation)
        return f"{seconds} s"

    def _clock_jump(self) -> str:
        node = self._random.choice(self.target.broker_nodes())
        by_ms = self._random.choice((-3_600_000, -5_000, 5_000, 3_600_000))
        node.jump_wall_clock(by_ms)
        return f"{node.name} {by_ms} ms"

    def _disk_error(self) -> str | None:
        """Fail one log dir of a broker until its operator replaces it and restarts the broker."""
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
        """Replace a log dir and restart the broker, as its operator does.

        A partition that left and came back meanwhile lies in both dirs: a broker refuses to start
        then and asks for one to be moved away (as Kafka does), so the older copy is.
        """
        folder = self._bad_disks.pop(node.name, None)
        if folder is None:
            return
        node.disk.mend()
        node.disk.evict()  # its machine is restarted: what never reached the disk is gone
        node.crash()
        ours = self._partitions_in(node, folder)
        for other in self.target.log_dirs:
            if other != folder:
                for name in sorted(ours & self._partitions_in(node, other)):
                    node.disk.wipe(f"{folder}/{name}")
                    node.disk.folders.discard(f"{folder}/{name}")
        node.boot_if_down()

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
        self._later(0.1, 15.0, node.boot_if_down)
        return node.name
