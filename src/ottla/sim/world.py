"""A simulation: nodes that boot, crash and pause over one virtual world.

Invariants: every choice comes from the seed; a node's disk outlives its incarnations, its loop,
network and files do not; a node runs one `main` coroutine, exactly as a process does, and has ended
when that returns.
"""

import contextlib
import gc
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Self

from ottla.model.ports import World
from ottla.model.time_slices import SLICE_S
from ottla.sim.clock import SimClock, SimWorkers
from ottla.sim.costs import FREE, Costs
from ottla.sim.files import SimDisk, SimFiles
from ottla.sim.loop import SimLoop
from ottla.sim.network import Internet, SimNetwork
from ottla.sim.scheduler import MAX_STEPS, Scheduler
from ottla.sim.trace import Trace

PATIENT_COLLECTOR = (100_000, 50, 1000)
"""Thresholds of the garbage collector during a run: the default ones cost a quarter of it."""

Main = Callable[[World], Coroutine[Any, Any, Any]]


class Node:
    """One simulated machine. `world`, `loop` and `task` are those of the present incarnation."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.disk = SimDisk(name)
        self.incarnation = 0
        self.main: Main | None = None
        self.failures: list[dict[str, Any]] = []
        self.stalls: list[tuple[float, str]] = []
        """Long callbacks of all incarnations, see `SimLoop.stalls`."""
        self.stood_still: list[str] = []
        """Callbacks that were too long even for what the nemesis had slowed."""
        self._callbacks_before = 0
        self.wall_offset_ms = 0
        self.loop: SimLoop
        self.world: World
        self.clock: SimClock
        self.network: SimNetwork
        self.files: SimFiles
        self.workers: SimWorkers
        self.task: Any = None
        self._loses_power = False
        self._fresh()

    def __repr__(self) -> str:
        return f"<Node {self.name}.{self.incarnation} {'up' if self.up else 'down'}>"

    @property
    def up(self) -> bool:
        """Whether the node's main runs."""
        return self.task is not None and not self.loop.dead and not self.task.done()

    @property
    def running(self) -> bool:
        """Whether the node's main runs and is not paused."""
        return self.up and not self.loop.paused

    @property
    def callbacks(self) -> int:
        """How many callbacks of all incarnations have run."""
        return self._callbacks_before + self.loop.callbacks

    def random(self, purpose: str) -> random.Random:
        """Return chance for one purpose of this incarnation, independent of all others."""
        return self.simulation.random(f"{self.name}/{self.incarnation}/{purpose}")

    def _fresh(self) -> None:
        simulation = self.simulation
        self.incarnation += 1
        label = f"{self.name}.{self.incarnation}"
        costs, scheduler = simulation.costs, simulation.scheduler
        self.loop = SimLoop(scheduler, label, costs.callback_s)  # type: ignore[abstract]
        self.loop.failures = self.failures
        self.loop.stalls = self.stalls
        boot_s = float(self.random("boot").randrange(1_000_000))
        self.clock = SimClock(scheduler, boot_s, simulation.slice_s)
        self.clock.wall_offset_ms = self.wall_offset_ms
        self.network = SimNetwork(simulation.internet, self.name, self.loop)
        self.files = SimFiles(self.disk, costs, scheduler.spend)
        self.files.ended = self._end_at_an_operation
        self.workers = SimWorkers(
            self.random("workers"),
            files=self.files,
            interleave=simulation.interleave,
        )
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
            self._kill()
            self._callbacks_before += self.loop.callbacks
            self.simulation.dead_loops.append(self.loop)
            self._fresh()
        self.simulation.internet.power_on(self.name)
        self.simulation.note(self.name, "boot", str(self.incarnation))
        self.task = self.loop.create_task(self.main(self.world), name=self.loop.name)

    def crash(self, *, power_loss: bool = False) -> None:
        """Kill the process; with `power_loss` the machine: pages that were not synced are lost."""
        if self.loop.dead:
            return
        self.simulation.note(self.name, "power-loss" if power_loss else "kill")
        self._kill()
        self.simulation.internet.host_died(self.name, silently=power_loss)
        if power_loss:
            self.simulation.internet.power_off(self.name)
            lost = self.disk.power_loss(self.random("power"))
            self.simulation.note(self.name, "lost-writes", str(lost))

    def boot_if_down(self) -> None:
        """Start again what it ran before, unless it runs."""
        if not self.up:
            self.boot()

    def _kill(self) -> None:
        """End the process: its loop, its files, its workers' calls."""
        self.loop.kill()
        self.files.kill()
        self.workers.kill()

    def crash_at_operation(self, count: int, *, power_loss: bool = False) -> None:
        """Crash in the middle of what it does: before its next file operation but `count`."""
        self._loses_power = power_loss
        self.files.last_operations = count

    def _end_at_an_operation(self) -> None:
        self.crash(power_loss=self._loses_power)

    def pause(self) -> None:
        """Stop the process without ending it (faults F7 to F9)."""
        self.simulation.note(self.name, "pause")
        self.loop.pause()

    def resume(self) -> None:
        self.simulation.note(self.name, "resume")
        self.loop.resume()

    def wake(self, incarnation: int | None = None) -> None:
        """Resume what is paused (that incarnation only, if given)."""
        of_this_life = incarnation is None or incarnation == self.incarnation
        if of_this_life and self.loop.paused and not self.loop.dead:
            self.resume()

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
        costs: Costs = FREE,
        slice_s: float = SLICE_S,
        interleave: bool = False,
    ) -> None:
        self.seed = seed
        self.costs = costs
        """What a node's callbacks take of its time."""
        self.slice_s = slice_s
        """How long work of a node may share its loop; 0: others run between any two items."""
        self.interleave = interleave
        """Whether workers' calls stop at their file operations."""
        self.scheduler = Scheduler(max_steps=max_steps)
        self.trace = Trace(sink)
        self.internet = Internet(self.scheduler, self.random("internet"), self.trace)
        self.internet.costs = costs
        self.nodes: dict[str, Node] = {}
        self.dead_loops: list[SimLoop] = []

    def random(self, purpose: str) -> random.Random:
        """Return a stream of chance for one purpose; others do not disturb it."""
        return random.Random(f"{self.seed}/{purpose}")

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

    def close(self, *, collect: bool = True) -> None:
        """End every node and let go of what they held.

        With `collect` the garbage is collected, too; else the caller does so by `collect_garbage`.
        """
        for name in sorted(self.nodes):
            node = self.nodes[name]
            node.loop.kill()
            node.files.kill()
            node.workers.kill()
            self.dead_loops.append(node.loop)
        with _silent_endings():
            for loop in self.dead_loops:
                loop.discard_tasks()
            self.dead_loops.clear()
            for node in self.nodes.values():
                node.task = None
        if collect:
            collect_garbage()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@contextlib.contextmanager
def _silent_endings() -> Iterator[None]:
    """Let coroutines go: one that awaits in its `finally` cannot end, and Python would say so."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
    try:
        yield
    finally:
        sys.unraisablehook = before


def collect_garbage() -> None:
    """Collect what a closed simulation was; coroutines of dead processes are among it."""
    with _silent_endings():
        gc.collect()


@contextlib.contextmanager
def garbage_kept() -> Iterator[None]:
    """Collect little garbage during a run, and all of it at its end."""
    before = gc.get_threshold()
    gc.set_threshold(*PATIENT_COLLECTOR)
    gc.freeze()  # what was there before needs no look at the run's end
    try:
        yield
    finally:
        collect_garbage()  # the cluster as well: once frozen it would never be freed
        gc.unfreeze()
        gc.set_threshold(*before)


def simulate(seed: int | str, main: Callable[[Simulation, Node], Awaitable[Any]]) -> Any:
    """Run one coroutine on one node of a fresh simulation: the short way for tests."""
    with Simulation(seed) as simulation:
        node = simulation.node("here")

        async def start() -> Any:
            return await main(simulation, node)

        return node.call(start(), within_s=1_000_000.0)
