"""A simulation: nodes that boot, crash and pause over one virtual world.

Who may call: tests, `cluster`, `nemesis`. Invariants: every choice comes from the seed; a node's
disk outlives its incarnations, its loop, network and files do not; a node runs one `main`
coroutine, exactly as a process does, and has ended when that returns.
"""

import gc
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

from ottla.model.ports import World
from ottla.sim.clock import SimClock, SimWorkers
from ottla.sim.files import SimDisk, SimFiles
from ottla.sim.loop import SimLoop
from ottla.sim.network import Internet, SimNetwork
from ottla.sim.scheduler import MAX_STEPS, Scheduler
from ottla.sim.trace import Trace

Main = Callable[[World], Coroutine[Any, Any, Any]]


class Node:
    """One simulated machine. `world`, `loop` and `task` are those of the present incarnation."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.disk = SimDisk()
        self.incarnation = 0
        self.main: Main | None = None
        self.failures: list[dict[str, Any]] = []
        self.wall_offset_ms = 0
        self.loop: SimLoop
        self.world: World
        self.clock: SimClock
        self.network: SimNetwork
        self.files: SimFiles
        self.workers: SimWorkers
        self.task: Any = None
        self._fresh()

    def __repr__(self) -> str:
        return f"<Node {self.name}.{self.incarnation} {'up' if self.up else 'down'}>"

    @property
    def up(self) -> bool:
        """Whether the node's main runs."""
        return self.task is not None and not self.loop.dead and not self.task.done()

    def random(self, purpose: str) -> random.Random:
        """Return chance for one purpose of this incarnation, independent of all others."""
        return self.simulation.random(f"{self.name}/{self.incarnation}/{purpose}")

    def _fresh(self) -> None:
        simulation = self.simulation
        self.incarnation += 1
        label = f"{self.name}.{self.incarnation}"
        self.loop = SimLoop(simulation.scheduler, label)  # type: ignore[abstract]
        self.loop.failures = self.failures
        boot_s = float(self.random("boot").randrange(1_000_000))
        self.clock = SimClock(simulation.scheduler, boot_s)
        self.clock.wall_offset_ms = self.wall_offset_ms
        self.network = SimNetwork(simulation.internet, self.name, self.loop)
        self.files = SimFiles(self.disk)
        self.workers = SimWorkers(self.random("workers"))
        self.world = World(
            clock=self.clock,
            random=self.random("chance"),
            files=self.files,
            network=self.network,
            workers=self.workers,
        )

    def boot(self, main: Main | None = None) -> None:
        """Start `main(world)` as this node's process; without one, what ran before."""
        assert not self.up, f"{self.name} runs already"
        if main is not None:
            self.main = main
        assert self.main is not None, f"{self.name} has nothing to run"
        if self.loop.dead or self.task is not None:
            self.loop.kill()
            self.files.kill()
            self.simulation.dead_loops.append(self.loop)
            self._fresh()
        self.simulation.internet.power_on(self.name)
        self.simulation.note(self.name, "boot", str(self.incarnation))
        self.task = self.loop.create_task(self.main(self.world), name=self.loop.name)

    def crash(self, *, power_loss: bool = False) -> None:
        """Kill the process; `power_loss` takes the machine: unsynced pages, and no goodbye."""
        if self.loop.dead:
            return
        self.simulation.note(self.name, "power-loss" if power_loss else "kill")
        self.loop.kill()
        self.files.kill()
        self.simulation.internet.host_died(self.name, silently=power_loss)
        if power_loss:
            self.simulation.internet.power_off(self.name)
            lost = self.disk.power_loss(self.random("power"))
            self.simulation.note(self.name, "lost-writes", str(lost))

    def pause(self) -> None:
        """Stop the process without ending it (faults F7 to F9)."""
        self.simulation.note(self.name, "pause")
        self.loop.pause()

    def resume(self) -> None:
        self.simulation.note(self.name, "resume")
        self.loop.resume()

    def jump_wall_clock(self, by_ms: int) -> None:
        """Set the wall clock forward or back (fault F23)."""
        self.simulation.note(self.name, "clock-jump", str(by_ms))
        self.wall_offset_ms += by_ms
        self.clock.wall_offset_ms = self.wall_offset_ms

    def call(self, coroutine: Coroutine[Any, Any, Any], *, within_s: float = 600.0) -> Any:
        """Run a coroutine as this node, and the world with it; return its result."""
        scheduler = self.simulation.scheduler
        task = self.loop.create_task(coroutine)
        loop = self.loop
        scheduler.run_until(lambda: task.done() or loop.dead, deadline_s=scheduler.now + within_s)
        assert task.done(), f"{self.name} died before the call ended"
        return task.result()


class Simulation:
    """The whole: scheduler, internet, nodes, trace. One seed decides everything."""

    def __init__(
        self,
        seed: int | str,
        *,
        sink: Callable[[str], object] | None = None,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self.seed = seed
        self.scheduler = Scheduler(max_steps=max_steps)
        self.trace = Trace(sink)
        self.internet = Internet(self.scheduler, self.random("internet"), self.trace)
        self.nodes: dict[str, Node] = {}
        self.dead_loops: list[SimLoop] = []

    def random(self, purpose: str) -> random.Random:
        """Return a stream of chance for one purpose; others do not disturb it."""
        return random.Random(f"{self.seed}/{purpose}")  # noqa: S311 - repeatable on purpose

    def node(self, name: str) -> Node:
        """Return the machine of that name; it is there, off, from its first mention."""
        if name not in self.nodes:
            self.nodes[name] = Node(self, name)
        return self.nodes[name]

    def note(self, who: str, what: str, detail: str = "") -> None:
        """Write a line of the trace."""
        self.trace.record(self.scheduler.now, who, what, detail)

    @property
    def now(self) -> float:
        return self.scheduler.now

    def run_for(self, seconds: float) -> None:
        self.scheduler.run_for(seconds)

    def run_until(self, done: Callable[[], bool], *, within_s: float = 600.0) -> None:
        self.scheduler.run_until(done, deadline_s=self.scheduler.now + within_s)

    def failures(self) -> list[str]:
        """Return what no callback of any node caught: each is a bug of the product."""
        return [
            f"{name}: {context.get('message')}: {context.get('exception')!r}"
            for name in sorted(self.nodes)
            for context in self.nodes[name].failures
        ]

    def close(self) -> None:
        """End every node and let go of what they held."""
        for name in sorted(self.nodes):
            node = self.nodes[name]
            node.loop.kill()
            node.files.kill()
            self.dead_loops.append(node.loop)
        # A coroutine that awaits in its `finally` cannot end any more, and Python would say so.
        before, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
        try:
            for loop in self.dead_loops:
                loop.bury()
            self.dead_loops.clear()
            for node in self.nodes.values():
                node.task = None
            gc.collect()
        finally:
            sys.unraisablehook = before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def simulate(seed: int | str, main: Callable[[Simulation, Node], Awaitable[Any]]) -> Any:
    """Run one coroutine on one node of a fresh simulation: the short way for tests."""
    with Simulation(seed) as simulation:
        node = simulation.node("here")

        async def start() -> Any:
            return await main(simulation, node)

        return node.call(start(), within_s=1_000_000.0)
