"""The faults of a scenario: drawn by a seed, at most so many at a time, each with its end.

Invariants: each fault has a number and a stream of chance of its own, so that one can be left out
alone (`masks`); how long it lasts is drawn by the timeouts of the brokers' settings; a broker has a
fault until it runs, is connected, and has what it lost.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec

from ottla.model.ids import TopicPartition
from ottla.sim.clock import WORKER_S
from ottla.sim.machines import Machines
from ottla.sim.masks import ALL, Mask
from ottla.sim.scenarios.scenario import CRASH, DISK, POWER, Scenario
from ottla.sim.transport import Link
from ottla.sim.world import Node

LOSSY = (POWER, DISK)
ENDS_PROCESS = (CRASH, *LOSSY)
AWAY = (*ENDS_PROCESS, "shutdown", "pause", "isolation", "cut-from-brokers")
"""After these a broker has to catch up."""
WEIGHTS = {CRASH: 4, POWER: 4, DISK: 2, "pause": 3, "isolation": 3, "shutdown": 2}
"""How often a kind is drawn; 1 for those that are not named."""
LASTS = (0.03, 0.4, 1.1, 1.6)
"""How long a fault lasts, of what it takes to be noticed."""
GAP = 0.3
"""The mean time from one fault drawn to the next, of what it takes to notice one."""
CATCH_UP_DELAY_S = 1.0
"""What goes between a broker that catches up and the others takes so long, one way."""
LEADER_SHARE = 0.7
"""How often a fault befalls the leader of some partition."""
BEFORE_IN_SYNC_SHARE = 0.5
"""How often a fault comes soon after another has ended, before its broker has caught up."""
ACKNOWLEDGED_SHARE = 0.4
"""How often the end of a process comes right after a record was acknowledged."""
PATIENCE = 3.0
"""How long a fault waits for another to end, of what it takes to notice one."""


class Fault(msgspec.Struct, frozen=True):
    """One fault that happened. `broker` is -1 for ZooKeeper; `lasts_s`: until it is repaired."""

    number: int
    at_s: float
    kind: str
    broker: int
    lasts_s: float
    after_an_acknowledgement: bool = False


class FaultSchedule:
    """Draws faults until `stop`; then `heal` repairs everything."""

    def __init__(
        self,
        cluster: Machines,
        scenario: Scenario,
        at_next_acknowledgement: Callable[[Callable[[], object]], None],
        mask: Mask = ALL,
    ) -> None:
        """`at_next_acknowledgement` has a function called once, when a record is acknowledged."""
        self.happened: list[Fault] = []
        self._cluster = cluster
        self._scenario = scenario
        self._at_next_acknowledgement = at_next_acknowledgement
        self._mask = mask
        self._simulation = cluster.simulation
        self._schedule = self._simulation.random("scenario-faults")
        self._weights = [WEIGHTS.get(kind, 1) for kind in scenario.faults]
        self._detection_s = scenario.longest_detection_s
        self._number = 0
        self._stopped = False
        self._under_way: dict[int, Fault] = {}
        """Faults by their number, until they are over."""
        self._lasting: set[int] = set()
        """Faults whose time is not over."""
        self._blocked: Counter[tuple[str, str]] = Counter()
        """How many faults block each link."""
        self._delays: dict[Link, list[float]] = {}
        self._on_end: list[Callable[[], object]] = []
        """What waits for a fault to end."""
        self._later = self._simulation.scheduler.after

    def start(self) -> None:
        """Begin; without a kind of fault to draw, do nothing."""
        if self._scenario.faults:
            self._next()

    def stop(self) -> None:
        """Draw no further faults."""
        self._stopped = True

    def heal(self) -> None:
        """Repair all links and disks, resume and start every process."""
        self._lasting.clear()
        self._blocked.clear()
        self._delays.clear()
        self._simulation.internet.heal()
        self._cluster.zk.start()
        for node in self._cluster.broker_nodes():
            node.workers.mean_s = WORKER_S
            node.wake()
            node.boot_if_down()

    def _next(self) -> None:
        delay_s = self._schedule.expovariate(1.0 / (GAP * self._detection_s))
        self._later(delay_s, self._strike)

    def _strike(self) -> None:
        if self._stopped:
            return
        self._number += 1
        (kind,) = self._schedule.choices(self._scenario.faults, self._weights)
        if self._mask.allows(str(self._number)):
            self._aim(self._number, kind)
        self._next()

    def _aim(self, number: int, kind: str) -> None:
        """Choose the moment: now, after an acknowledgement, or soon after another has ended."""
        rng = self._simulation.random(f"scenario-faults/{number}")
        drawn = rng.random()
        if drawn < BEFORE_IN_SYNC_SHARE:
            self._at_next(
                self._on_end.append,
                lambda: self._later(rng.uniform(0.2, 10.0), self._begin, number, kind, rng),
                PATIENCE * self._detection_s,
            )
        elif kind in ENDS_PROCESS and drawn < BEFORE_IN_SYNC_SHARE + ACKNOWLEDGED_SHARE:
            self._at_next(
                self._at_next_acknowledgement,
                lambda: self._begin(number, kind, rng, after_an_acknowledgement=True),
                self._detection_s / 5,
            )
        else:
            self._begin(number, kind, rng)

    def _at_next(
        self,
        listen: Callable[[Callable[[], object]], None],
        act: Callable[[], object],
        within_s: float,
    ) -> None:
        """Act when it happens, unless that takes too long."""
        until_s = self._simulation.now + within_s
        listen(lambda: act() if self._simulation.now <= until_s else None)

    def _is_allowed(self) -> bool:
        """Whether one more fault may be there now."""
        for number, fault in list(self._under_way.items()):
            if number not in self._lasting and self._is_over(fault):
                del self._under_way[number]
        if self._scenario.wait_for_in_sync and not self._cluster.all_in_sync():
            return False
        return len(self._under_way) < self._scenario.at_once

    def _is_over(self, fault: Fault) -> bool:
        if fault.broker < 0:
            return True
        node = self._cluster.broker_nodes()[fault.broker]
        if not node.running or not self._cluster.processes.started(node):
            return False
        return fault.kind not in LOSSY or self._cluster.regained(node, self._lacking())

    def _lacking(self) -> list[Node]:
        """Return the brokers that have lost something and not got it back."""
        nodes = self._cluster.broker_nodes()
        return [nodes[f.broker] for f in self._under_way.values() if f.kind in LOSSY]

    def _begin(
        self, number: int, kind: str, rng: Random, *, after_an_acknowledgement: bool = False
    ) -> None:
        if self._stopped or not self._is_allowed():
            return
        lasts_s = self._detection_s * rng.choice(LASTS) * rng.uniform(0.8, 1.2)
        broker = -1
        if kind != "zookeeper-outage":
            free = [
                number
                for number, node in enumerate(self._cluster.broker_nodes())
                if node.running and all(f.broker != number for f in self._under_way.values())
            ]
            if not free:
                return
            led = [b for b in free if any(self._leads(b, tp) for tp in self._cluster.watched)]
            pool = led if led and rng.random() < LEADER_SHARE else free
            broker = rng.choice(pool)
        now_s = self._simulation.now
        fault = Fault(number, now_s, kind, broker, lasts_s, after_an_acknowledgement)
        self._under_way[number] = fault
        self._lasting.add(number)
        self._do(fault)

    def _leads(self, broker: int, tp: TopicPartition) -> bool:
        state = self._cluster.leader_and_isr(tp)
        return state is not None and state[0] == broker

    def _do(self, fault: Fault) -> None:
        cluster, kind = self._cluster, fault.kind
        if fault.broker < 0:
            cluster.zk.stop()
            self._note(fault, cluster.zk.start)
            return
        node = cluster.broker_nodes()[fault.broker]
        if kind in ENDS_PROCESS:
            node.crash(power_loss=kind == POWER)
            if kind == DISK:
                node.disk.wipe()
            self._note(fault, node.boot_if_down)
        elif kind == "shutdown":
            cluster.processes.stop(node)
            self._note(fault, lambda: None)
        elif kind == "pause":
            node.pause()
            incarnation = node.incarnation
            self._note(fault, lambda: node.wake(incarnation))
        elif kind == "slow-network":
            self._slow_network(fault, node)
        elif kind == "slow-disk":
            workers = node.workers
            workers.mean_s = 2.0

            def as_before() -> None:
                workers.mean_s = WORKER_S

            self._note(fault, as_before)
        elif kind == "session-expiry":
            cluster.expire_session(node)
            self._note(fault, lambda: None)
        else:
            self._cut_off(fault, node)

    def _note(self, fault: Fault, mend: Callable[[], object]) -> None:
        """Note that a fault happened, and repair it when its time is over."""
        self.happened.append(fault)

        def over() -> None:
            self._lasting.discard(fault.number)
            mend()
            ended, self._on_end = self._on_end, []
            for callback in ended:
                callback()
            if fault.kind in AWAY and not self._stopped:
                self._catch_up(self._cluster.broker_nodes()[fault.broker])

        self._later(fault.lasts_s, over)

    def _cut_off(self, fault: Fault, node: Node) -> None:
        others = [n for n in self._cluster.broker_nodes() if n is not node]
        if fault.kind == "cut-from-zookeeper":
            others = []
        if fault.kind != "cut-from-brokers":
            others.append(self._cluster.zk.node)
        pairs = [(node.name, o.name) for o in others] + [(o.name, node.name) for o in others]
        internet = self._simulation.internet
        internet.block_all(pairs)
        self._blocked.update(pairs)

        def mend() -> None:
            self._blocked.subtract(pairs)
            internet.unblock_all([pair for pair in pairs if self._blocked[pair] <= 0])

        self._note(fault, mend)

    def _slow_network(self, fault: Fault, node: Node) -> None:
        rng = self._simulation.random(f"scenario-faults/{fault.number}/network")
        self._note(fault, self._slow(node, rng.choice((0.2, 0.5, 2.0))))

    def _catch_up(self, node: Node) -> None:
        """Let a broker take its time, as one does that has missed gigabytes."""
        mend = self._slow(node, CATCH_UP_DELAY_S)
        self._later(self._scenario.catch_up_seconds, mend)

    def _slow(self, node: Node, delay_s: float) -> Callable[[], None]:
        """Let all between a broker and the others take so long; return what ends that."""
        internet = self._simulation.internet
        links = [
            internet.link(*names)
            for other in self._cluster.broker_nodes()
            if other is not node
            for names in ((node.name, other.name), (other.name, node.name))
        ]
        for link in links:
            self._delays.setdefault(link, []).append(delay_s)
            link.base_s = max(self._delays[link])

        def mend() -> None:
            for link in links:
                left = self._delays.get(link, [])
                if delay_s in left:
                    left.remove(delay_s)
                    link.base_s = max(left, default=internet.base_s)

        return mend
