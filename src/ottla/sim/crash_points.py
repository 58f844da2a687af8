"""`python -m ottla.sim.crash_points`: kill a broker at every step of a controller's procedure.

One run of the procedure is stepped through; a step is a transaction of ZooKeeper or a request of
the controller on its way. At each step the whole simulation is forked: the child kills the victim
(the controller, a target or an original replica's broker), starts it again later, and has to reach
the procedure's end with everybody agreeing; the parent goes on untouched. So a step costs only what
comes after it. Fault F4 by enumeration, over F24 to F27.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import random
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ottla.client.client import Client
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.sim.agreement import Facts, read_facts
from ottla.sim.clients import create_topic
from ottla.sim.cluster import Cluster
from ottla.sim.plans import Plan
from ottla.sim.scheduler import DeadlockError, SimulationError
from ottla.sim.transport import SimTransport
from ottla.sim.verdict import Tracebacks
from ottla.sim.znode_rules import check_znodes
from ottla.sim.zookeeper_node import PORT as ZOOKEEPER_PORT
from ottla.wire.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from ottla.zookeeper.session import Session
from ottla.zookeeper.znodes import PREFERRED_REPLICA_ELECTION, REASSIGN_PARTITIONS

CONTROL_APIS = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata"}
VICTIMS = ("controller", "target", "original")
TOPIC = "events"
OTHER = "other"
IN_TIME_S = 180.0
QUIET_S = 2.0
FEW_PARTITIONS = 10
"""Up to so many, clients write and read while the procedure runs."""
DEAD_S = (4.0, 9.0)
"""How long a victim stays away, in turn: shorter and longer than its session."""
CHILD_WALL_S = 600
FREE_MEMORY_EVERY = 50_000

Act = Callable[[World, "Scene"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Procedure:
    """What is enumerated: how it is prepared and asked for, and when it is over."""

    prepare: Callable[["Scene"], None]
    act: Act
    done: Callable[["Scene", Facts], bool]


class Scene:
    """A quiet cluster with one topic, an operator, and a count of the steps taken."""

    def __init__(self, what: str, partitions: int, brokers: int = 5, seed: int = 1) -> None:
        self.what = what
        self.partitions = partitions
        few = int(partitions <= FEW_PARTITIONS)
        plan = Plan(
            seed,
            brokers=brokers,
            partitions=partitions if what in ("reassign", "elect") else min(partitions, 3),
            producers=few,
            no_retry_producers=0,
            consumers=few,
            operators=False,
            faults=(),
            slowness=0.0,
            interleave=False,  # each death is a fork of the simulation: no threads survive it
            properties={"auto.leader.rebalance.enable": "false"},
        )
        self.cluster = Cluster(plan)
        self.simulation = self.cluster.simulation
        self.moves: dict[TopicPartition, tuple[int, ...]] = {}
        self.steps = 0
        self.last_step_s = 0.0
        self.kinds: Counter[str] = Counter()
        self._zxid = 0
        self._sent = 0
        self.tracebacks = Tracebacks()
        logging.getLogger("ottla").addHandler(self.tracebacks)
        self.cluster.boot()
        self.cluster.client_node().boot(self.cluster.serve_clients)
        self._wait(lambda: TOPIC in self.facts().topics and self.cluster.all_in_sync())
        self.operator = self.simulation.node("operator")
        PROCEDURES[what].prepare(self)
        self._wait(lambda: not self.differences())

    def _wait(self, reached: Callable[[], bool]) -> None:
        """Let time pass until something costly to find out is true."""
        deadline_s = self.simulation.now + IN_TIME_S
        while not reached():
            if self.simulation.now > deadline_s:
                raise TimeoutError(f"not reached in {IN_TIME_S:.0f} s: {self.differences()[:3]}")
            self.simulation.run_for(0.5)

    def facts(self) -> Facts:
        assert self.cluster.zookeeper is not None
        return read_facts(self.cluster.zookeeper.tree.nodes)

    def differences(self) -> list[str]:
        """Return what is not at rest: nodes that are down, and what does not agree."""
        return self.cluster.disagreements()

    def begin(self) -> None:
        """Ask for the procedure, and count steps from now on."""
        assert self.cluster.zookeeper is not None
        self.simulation.internet.tap = self._hear
        self._zxid = self.cluster.zookeeper.tree.zxid
        act = PROCEDURES[self.what].act

        async def main(world: World) -> None:
            await act(world, self)
            await asyncio.Event().wait()

        self.operator.boot(main)
        self.last_step_s = self.simulation.now

    def _hear(self, transport: SimTransport, data: bytes) -> None:
        if transport.host[0] == "b" and transport.peer_host[0] == "b" and len(data) >= 6:
            (api,) = struct.unpack_from(">h", data, 4)
            if api in CONTROL_APIS:
                self._sent += 1
                self.kinds[CONTROL_APIS[api]] += 1

    def step(self) -> bool:
        """Go on to the next step; False if there is none: the procedure is over."""
        assert self.cluster.zookeeper is not None
        tree, scheduler = self.cluster.zookeeper.tree, self.simulation.scheduler
        sent = self._sent
        while tree.zxid == self._zxid and self._sent == sent:
            if scheduler.now > self.last_step_s + QUIET_S and self.done():
                return False
            if scheduler.now > self.last_step_s + IN_TIME_S:
                raise TimeoutError("the procedure does not end")
            if scheduler.next_time() is None:
                raise DeadlockError("nothing left to happen")
            scheduler.step()
        self.kinds["transaction"] += tree.zxid - self._zxid
        self._zxid = tree.zxid
        self.last_step_s = scheduler.now
        self.steps += 1
        return True

    def done(self) -> bool:
        return PROCEDURES[self.what].done(self, self.facts())

    def controller(self) -> int:
        return self.facts().controller

    def survive(self, victim: str) -> list[str]:
        """Kill the victim here and now; return what is wrong once all should be well."""
        original, target = self._moved()
        broker = {"controller": self.controller(), "target": target, "original": original}[victim]
        if broker >= 0:
            node = self.simulation.node(f"b{broker}")
            node.crash()
            self.simulation.scheduler.after(DEAD_S[self.steps % 2], node.boot)
        try:
            self._wait(lambda: self.done() and not self.differences())
        except (TimeoutError, SimulationError) as error:
            return [f"stuck: {error}", *self.differences()[:3]]
        return self._judge()

    def _moved(self) -> tuple[int, int]:
        """Return a broker that a partition leaves, and the one it moves to."""
        tp, target = next(iter(self.moves.items()), (TopicPartition(TOPIC, 0), ()))
        replicas = self.facts().topics[tp.topic].assignment[tp.partition].original
        left = [b for b in replicas if b not in target] or list(replicas)
        return left[0], target[-1] if target else replicas[-1]

    def _judge(self) -> list[str]:
        if self.partitions <= FEW_PARTITIONS:
            return self.cluster.finish() + self.tracebacks.found
        assert self.cluster.zookeeper is not None
        return [
            *check_znodes(self.cluster.zookeeper.writes),
            *self.cluster.uncaught(),
            *self.tracebacks.found,
        ]

    def close(self) -> None:
        logging.getLogger("ottla").removeHandler(self.tracebacks)
        self.cluster.close()


# --- the procedures -----------------------------------------------------------------------------


async def _create(world: World, scene: Scene) -> None:
    client = Client(world, scene.cluster.bootstrap, "operator", timeout_s=5.0)
    await create_topic(client, OTHER, scene.partitions, 3, {})


def _created(scene: Scene, facts: Facts) -> bool:
    topic = facts.topics.get(OTHER)
    return topic is not None and len(topic.assignment) == scene.partitions


def _make_other(scene: Scene, partitions: int | None = None) -> None:
    async def make() -> None:
        client = Client(scene.operator.world, scene.cluster.bootstrap, "maker", timeout_s=5.0)
        await create_topic(client, OTHER, partitions or scene.partitions, 3, {})
        await client.close()

    scene.operator.call(make())


async def _delete(world: World, scene: Scene) -> None:
    client = Client(world, scene.cluster.bootstrap, "operator", timeout_s=5.0)
    request = DeleteTopicsRequest(topic_names=[OTHER], timeout_ms=1000)
    while OTHER in scene.facts().topics:
        with contextlib.suppress(OttlaError):
            await client.call(request, "controller", version=5)
        await asyncio.sleep(1.0)


def _deleted(scene: Scene, facts: Facts) -> bool:
    return OTHER not in facts.topics and not any(
        folder.rpartition("/")[2].startswith(f"{OTHER}-") and not folder.endswith("-delete")
        for node in scene.cluster.broker_nodes()
        for folder in node.disk.folders
    )


async def _expand(world: World, scene: Scene) -> None:
    client = Client(world, scene.cluster.bootstrap, "operator", timeout_s=5.0)
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsRequest.CreatePartitionsTopic(
                name=OTHER, count=scene.partitions, assignments=None
            )
        ],
        timeout_ms=1000,
    )
    while not _created(scene, scene.facts()):
        with contextlib.suppress(OttlaError):
            await client.call(request, "controller")
        await asyncio.sleep(1.0)


def _plan_moves(scene: Scene) -> None:
    """Let every partition leave its first replica for a broker that has none of it."""
    brokers = range(scene.cluster.plan.brokers)
    for number, assignment in sorted(scene.facts().topics[TOPIC].assignment.items()):
        absent = [b for b in brokers if b not in assignment.replicas]
        target = (*assignment.replicas[1:], absent[number % len(absent)])
        scene.moves[TopicPartition(TOPIC, number)] = target


async def _reassign(world: World, scene: Scene) -> None:
    session = await Session.connect(world, f"zk:{ZOOKEEPER_PORT}", 30_000, 5_000)
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(target)}
        for tp, target in scene.moves.items()
    ]
    data = json.dumps({"version": 1, "partitions": partitions}).encode()
    await session.create(REASSIGN_PARTITIONS, data)


def _reassigned(scene: Scene, facts: Facts) -> bool:
    assignment = facts.topics[TOPIC].assignment
    return REASSIGN_PARTITIONS not in facts.requests and all(
        assignment[tp.partition].replicas == target for tp, target in scene.moves.items()
    )


def _take_leadership_away(scene: Scene) -> None:
    scene.cluster.processes.stop(scene.simulation.node("b1"))
    scene.simulation.run_for(15.0)


async def _elect(world: World, scene: Scene) -> None:
    session = await Session.connect(world, f"zk:{ZOOKEEPER_PORT}", 30_000, 5_000)
    partitions = [{"topic": TOPIC, "partition": p} for p in range(scene.partitions)]
    data = json.dumps({"version": 1, "partitions": partitions}).encode()
    await session.create(PREFERRED_REPLICA_ELECTION, data)


PROCEDURES = {
    "create": Procedure(lambda _scene: None, _create, _created),
    "delete": Procedure(_make_other, _delete, _deleted),
    "expand": Procedure(lambda s: _make_other(s, (s.partitions + 1) // 2), _expand, _created),
    "reassign": Procedure(_plan_moves, _reassign, _reassigned),
    "elect": Procedure(
        _take_leadership_away, _elect, lambda _s, f: PREFERRED_REPLICA_ELECTION not in f.requests
    ),
}


# --- the enumeration ----------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What an enumeration found: steps there were, tried ones, and failures by step."""

    steps: int = 0
    tried: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    failures: dict[int, list[str]] = field(default_factory=dict)


def count_steps(what: str, partitions: int, brokers: int, seed: int) -> int:
    """Run the procedure once without a death; return how many steps it has."""
    scene = Scene(what, partitions, brokers, seed)
    try:
        scene.begin()
        while scene.step():
            pass
        return scene.steps
    finally:
        scene.close()


def choose(steps: int, wanted: int, seed: int) -> set[int]:
    """Return which steps to try: all, or the first, the last, and others drawn by seed."""
    if wanted >= steps:
        return set(range(1, steps + 1))
    edge = wanted // 8
    chosen = {*range(1, edge + 1), *range(steps - edge + 1, steps + 1)}
    rest = range(edge + 1, steps - edge + 1)
    return chosen | set(random.Random(seed).sample(rest, wanted - len(chosen)))


def enumerate_deaths(
    what: str,
    partitions: int,
    victim: str = "controller",
    *,
    brokers: int = 5,
    seed: int = 1,
    chosen: Callable[[int], bool] = lambda _step: True,
    within_s: float = float("inf"),
    progress: Callable[[Outcome], object] = lambda _outcome: None,
) -> Outcome:
    """Kill the victim at every chosen step, each in a fork of its own. `within_s` is wall time."""
    began = time.monotonic()
    scene = Scene(what, partitions, brokers, seed)
    outcome = Outcome()
    gc.collect()
    gc.freeze()
    try:
        scene.begin()
        while scene.step():
            outcome.steps = scene.steps
            if chosen(scene.steps) and time.monotonic() - began < within_s:
                found = _in_a_fork(lambda: scene.survive(victim))
                outcome.tried += 1
                if found:
                    outcome.failures[scene.steps] = found
                progress(outcome)
        outcome.kinds = dict(scene.kinds)
    finally:
        gc.unfreeze()
        scene.close()
    return outcome


def _in_a_fork(judge: Callable[[], list[str]]) -> list[str]:
    """Run something in a copy of this process; return its lines."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        # The child leaves by _exit alone: nothing of the parent's is to be cleaned up twice, or,
        # where no one hears the report any more, gone on with.
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(CHILD_WALL_S)
            gc.set_threshold(FREE_MEMORY_EVERY, 20, 100)
            os.close(reading)
            _report(judge, writing)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as report:
        text = report.read()
    _, status = os.waitpid(child, 0)
    if status or not text:
        return [f"the simulation was killed: status {status}"]
    return [str(line) for line in json.loads(text)]


def _report(judge: Callable[[], list[str]], writing: int) -> None:
    try:
        lines = judge()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent is to know
        lines = [f"the simulation failed: {error!r}"]
    with os.fdopen(writing, "w") as report:
        json.dump(lines, report)


def main(argv: Sequence[str]) -> int:
    """Enumerate as asked; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ottla.sim.crash_points", description=__doc__)
    parser.add_argument("--what", choices=sorted(PROCEDURES), default="reassign")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--victim", choices=VICTIMS, default="controller")
    parser.add_argument("--brokers", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=sys.maxsize, help="try at most so many")
    parser.add_argument("--step", type=int, help="try this one alone")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="try none after that")
    arguments = parser.parse_args(argv)
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        return _enumerate(arguments)
    finally:
        logging.disable(before)


def _enumerate(arguments: argparse.Namespace) -> int:
    what, partitions, victim = arguments.what, arguments.partitions, arguments.victim
    steps = count_steps(what, partitions, arguments.brokers, arguments.seed)
    chosen = choose(steps, arguments.steps, arguments.seed)
    if arguments.step is not None:
        chosen = {arguments.step}
    _say(f"{what} partitions={partitions} steps={steps} to_try={len(chosen)} victim={victim}")
    began = time.monotonic()

    def progress(outcome: Outcome) -> None:
        if outcome.steps in outcome.failures:
            _say(f"step {outcome.steps} FAILED: " + "; ".join(outcome.failures[outcome.steps][:5]))
        if outcome.tried % 100 == 0:
            _say(f"tried={outcome.tried} step={outcome.steps} s={time.monotonic() - began:.0f}")

    outcome = enumerate_deaths(
        what,
        partitions,
        victim,
        brokers=arguments.brokers,
        seed=arguments.seed,
        chosen=chosen.__contains__,
        within_s=60 * arguments.minutes,
        progress=progress,
    )
    kinds = " ".join(f"{k}={v}" for k, v in sorted(outcome.kinds.items()))
    _say(
        f"{what} partitions={partitions} victim={victim} steps={outcome.steps} "
        f"tried={outcome.tried} failed={len(outcome.failures)} {kinds} "
        f"wall_s={time.monotonic() - began:.0f}"
    )
    return 1 if outcome.failures else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
