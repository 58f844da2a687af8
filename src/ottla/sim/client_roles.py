"""The cast: clients that are processes of their own, on nodes of their own, with their own faults.

Invariants: a client that exits is started again after a while, as by a supervisor, under a new
name; a role may have an understudy, which takes over while the first is paused or still at work (a
zombie); chance comes from streams of its own, so that the nemesis of the brokers does the same with
and without a cast, and each strike can be left out alone (`masks`). Faults F1 and F7 on the
clients' side.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.model.ports import World
from ottla.sim.history import History
from ottla.sim.masks import ALL, Mask
from ottla.sim.members import GroupReader
from ottla.sim.transactors import Copier
from ottla.sim.world import Main, Node, Simulation

Actor = GroupReader | Copier
Make = Callable[[World, str], Actor]

KILL, PAUSE, RESET, TAKE_OVER = "kill-client", "pause-client", "reset-client", "take-over"


@dataclass(slots=True)
class Role:
    """One place to fill. With two nodes the second is the understudy's."""

    name: str
    nodes: list[Node]
    make: Make
    actors: dict[str, Actor] = field(default_factory=dict)
    """by node, who is at work"""


class ClientRoles:
    """All roles. `start` begins the faults, `heal` ends them, `finish` ends the actors."""

    def __init__(
        self, simulation: Simulation, history: History, mean_gap_s: float, mask: Mask = ALL
    ) -> None:
        self._simulation = simulation
        self._history = history
        self._mean_gap_s = mean_gap_s
        self._schedule = simulation.random("cast")
        self._mask = mask
        self._number = 0
        self._quiet = False
        self._over = False
        self.roles: list[Role] = []
        self.done: list[str] = []

    def add(self, name: str, make: Make, *, understudy: bool = False) -> None:
        """Add a role; `make` builds who plays it, of a world and a name that is used once."""
        nodes = [self._simulation.node(name + which) for which in ("ab" if understudy else "a")]
        self.roles.append(Role(name, nodes, make))

    @property
    def actors(self) -> list[Actor]:
        return [actor for role in self.roles for actor in role.actors.values()]

    @property
    def copiers(self) -> list[Copier]:
        return [actor for actor in self.actors if isinstance(actor, Copier)]

    def start(self, *, faults: bool) -> None:
        """Bring everybody on, and trouble if wanted."""
        for role in self.roles:
            self._boot(role, role.nodes[0])
        if faults and self.roles:
            self._next()

    def heal(self) -> None:
        """End all trouble: wake who sleeps, fill every place."""
        self._quiet = True
        for role in self.roles:
            for node in role.nodes:
                node.wake()
            self._fill(role)

    def finish(self) -> None:
        """Let everybody end, and no one follow."""
        self._over = True
        for actor in self.actors:
            actor.stopping = True

    @property
    def ended(self) -> bool:
        return not any(node.up for role in self.roles for node in role.nodes)

    def kill_all(self) -> None:
        """Kill every process as it stands, for good."""
        self._over = True
        for role in self.roles:
            for node in role.nodes:
                if node.up:
                    self._crash(role, node)

    # --- life and death ---------------------------------------------------------------------------

    def _boot(self, role: Role, node: Node) -> None:
        if not node.up and not self._over:
            node.boot(self._main(role, node))

    def _main(self, role: Role, node: Node) -> Main:
        async def main(world: World) -> None:
            actor = role.make(world, f"{node.name}{node.incarnation}")
            role.actors[node.name] = actor
            try:
                await actor.run()
            except Exception as error:  # noqa: BLE001 - a client that falls over is a finding
                self._history.complaints.append(f"{actor.name} fell over: {error!r}")
            finally:
                if role.actors.get(node.name) is actor:
                    del role.actors[node.name]
                    self._settle(actor.name)
                    self._refill_later(role)

        return main

    def _refill_later(self, role: Role) -> None:
        delay_s = 1.0 if self._quiet else self._chance(role).choice((0.2, 2.0, 12.0))
        self._simulation.scheduler.after(delay_s, self._fill, role)

    def _chance(self, role: Role) -> random.Random:
        """Return chance for the next process of a role."""
        count = sum(node.incarnation for node in role.nodes)
        return self._simulation.random(f"cast/{role.name}/{count}")

    def _fill(self, role: Role) -> None:
        if not any(node.up for node in role.nodes):
            self._boot(role, self._chance(role).choice(role.nodes))

    def _crash(self, role: Role, node: Node) -> None:
        actor = role.actors.pop(node.name, None)
        node.crash()
        if actor is not None:
            self._settle(actor.name)
        self._refill_later(role)

    def _settle(self, process: str) -> None:
        """Note that no one will hear any more what became of a process's open writes."""
        for write in self._history.writes:
            if write.process == process and write.completed_s is None:
                write.abandoned = True

    # --- trouble ----------------------------------------------------------------------------------

    def _next(self) -> None:
        delay_s = self._schedule.expovariate(1.0 / self._mean_gap_s)
        self._simulation.scheduler.after(delay_s, self._strike)

    def _strike(self) -> None:
        if self._quiet:
            return
        self._number += 1
        name = f"c{self._number}"
        rng = self._simulation.random(f"cast/{name}")
        role = rng.choice(self.roles)
        fault = rng.choice((KILL, PAUSE, RESET, RESET, TAKE_OVER, TAKE_OVER))
        running = [n for n in role.nodes if n.running]
        if running and self._mask.allows(name):
            node = rng.choice(running)
            other = next((n for n in role.nodes if n is not node), None)
            self.done.append(f"{self._simulation.now:.3f} #{name} {fault} {node.name}")
            self._simulation.note("cast", fault, node.name)
            if fault == KILL:
                self._crash(role, node)
            if fault == RESET:
                self._simulation.internet.reset_connections(node.name)
            if fault == PAUSE or (fault == TAKE_OVER and rng.random() < 0.5):
                node.pause()
                seconds = rng.choice((1.0, 4.0, 8.0, 15.0))
                self._simulation.scheduler.after(seconds, node.wake, node.incarnation)
            if fault == TAKE_OVER and other is not None:
                self._boot(role, other)
        self._next()
