"""The nemesis: breaks things by a seeded schedule, and repairs what it broke.

Invariants: a fault is drawn from the seed's own stream, so adding clients does not change it; each
has a number and a stream of chance of its own, so that one can be left out alone (`masks`). What
each does is in `faults`; how much may be lost at once, in `faults.allowance`.
"""

from ottla.sim.clock import WORKER_S
from ottla.sim.faults import Meanwhile, Strike, chosen
from ottla.sim.faults.allowance import Allowance
from ottla.sim.machines import Machines
from ottla.sim.masks import ALL, Mask
from ottla.sim.plans import ALWAYS


class Nemesis:
    """Draws a fault every few seconds until `stop`; then `heal` repairs everything."""

    def __init__(
        self,
        cluster: Machines,
        *,
        mean_gap_s: float = 4.0,
        allowed: tuple[str, ...] = (ALWAYS,),
        hard: bool = False,
        careless: bool = False,
        mask: Mask = ALL,
    ) -> None:
        self.cluster = cluster
        self.mean_gap_s = mean_gap_s
        self.allowance = Allowance(cluster, hard=hard, careless=careless)
        self.faults = chosen(allowed)
        self.done: list[str] = []
        self._simulation = cluster.simulation
        self._schedule = cluster.simulation.random("nemesis")
        self._mask = mask
        self._number = 0

    def start(self) -> None:
        """Begin; without a kind of fault to draw, do nothing."""
        if self.faults:
            self._next()

    def stop(self) -> None:
        """Draw no further faults."""
        self.allowance.over = True

    def heal(self) -> None:
        """Repair links and disks, resume paused nodes, start those that are down."""
        self.allowance.release_all()
        bad_disks, zk = self.allowance.bad_disks, self.cluster.zk
        self._simulation.internet.heal()
        self.cluster.bit_flips.undo()
        zk.node.disk.mend()
        zk.node.workers.refuses = False
        zk.start()
        for node in self.cluster.broker_nodes():
            node.workers.mean_s = WORKER_S
            node.files.last_operations = None
            if node.name not in bad_disks:
                node.disk.mend()
        for node in [zk.node, *self.cluster.broker_nodes()]:
            node.wake()
            if node.name in bad_disks:
                self.allowance.replace_disk(node)
            node.boot_if_down()

    def _next(self) -> None:
        delay = self._schedule.expovariate(1.0 / self.mean_gap_s)
        self._simulation.scheduler.after(delay, self._strike)

    def _strike(self) -> None:
        if self.allowance.over:
            return
        self._number += 1
        name = str(self._number)
        (fault,) = self._schedule.choices(self.faults, [f.weight for f in self.faults])
        allowance = self.allowance
        harmless = {Meanwhile.YES, Meanwhile.BRIEFLY} if allowance.hard else {Meanwhile.YES}
        weak = not allowance.careless and allowance.weakened()
        if self._mask.allows(name) and not (weak and fault.meanwhile not in harmless):
            detail = fault.act(Strike(allowance, self._simulation.random(f"nemesis/{name}")))
            if detail is not None:
                self.done.append(f"{self._simulation.now:.3f} #{name} {fault.name} {detail}")
                self._simulation.note("nemesis", fault.name, detail)
        self._next()
