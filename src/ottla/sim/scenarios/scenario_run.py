"""One run of a scenario: its cluster, its clients, its faults, and what came of it.

Invariants: the brokers are the product's, with the user's settings; one seed gives the same run;
what is returned is plain values, for `search` and the report.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping

import msgspec

from ottla.client.client import Client
from ottla.model.config import BrokerConfig
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.sim.checkers import LogRecord
from ottla.sim.clients import create_topic
from ottla.sim.cluster import Cluster, ended
from ottla.sim.loop import SimLoop
from ottla.sim.masks import mask_of
from ottla.sim.plans import Plan
from ottla.sim.scenarios.configured_clients import ConfiguredConsumer, ConfiguredProducer
from ottla.sim.scenarios.fault_schedule import Fault, FaultSchedule
from ottla.sim.scenarios.promises import Broken, judge, longest_gap
from ottla.sim.scenarios.scenario import Scenario
from ottla.sim.scheduler import SimulationError
from ottla.sim.verdict import Tracebacks
from ottla.sim.world import garbage_kept
from ottla.sim.znode_rules import TOPICS, Write

TOPIC = "orders"
DETECTIONS = 20
"""A run lasts so many times what it takes to notice a fault, unless a job says how long."""
PAUSE_S = 0.25
PRODUCERS = 2
READY_S = 120.0
IDS = "/brokers/ids/"


class StateChange(msgspec.Struct, frozen=True):
    """A write of a partition's state znode. `leader` is -1 for none."""

    at_s: float
    partition: str
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


class Registration(msgspec.Struct, frozen=True):
    """A broker's znode came (`up`) or went; of "controller", that of the controller."""

    at_s: float
    broker: int
    up: bool


class Run(msgspec.Struct):
    """What came of one run. Times are simulated seconds since its start."""

    seed: int
    began_s: float = 0.0
    """when the clients were at work and the first fault might come"""
    seconds: float = 0.0
    broken: list[Broken] = msgspec.field(default_factory=list)
    faults: list[Fault] = msgspec.field(default_factory=list)
    states: list[StateChange] = msgspec.field(default_factory=list)
    registrations: list[Registration] = msgspec.field(default_factory=list)
    acknowledged: int = 0
    failed: int = 0
    """records of which the producers reported a failure"""
    read: int = 0
    longest_gap: tuple[float, str, float] = (0.0, "", 0.0)
    """the longest time without an acknowledged write: seconds, partition, its begin"""
    unhealed: str = ""
    """what was not whole again long after the last fault had ended"""
    defects: list[str] = msgspec.field(default_factory=list)
    """exceptions that no one caught: defects of Ottla"""
    cpu_s: float = 0.0


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which run of a scenario. `only`: the numbers of the faults that may happen, None for all."""

    seed: int
    only: tuple[int, ...] | None = None
    seconds: float | None = None


class ScenarioCluster(Cluster):
    """A cluster with the user's settings, clients and faults."""

    def __init__(self, scenario: Scenario, job: Job) -> None:
        self.scenario = scenario
        self.job = job
        self.settings = scenario.producer_settings()
        self.states: list[StateChange] = []
        self.registrations: list[Registration] = []
        self._on_acknowledged: list[Callable[[], object]] = []
        super().__init__(
            Plan(
                job.seed,
                brokers=scenario.brokers,
                replicas=scenario.replication_factor,
                min_isr=scenario.min_isr,
                seconds=job.seconds or DETECTIONS * scenario.longest_detection_s,
                partitions=scenario.partitions,
                topic=TOPIC,
                log_dirs=1,
                operators=False,
                slowness=0.0,
                interleave=False,
                only_faults=None if job.only is None else tuple(map(str, job.only)),
            )
        )

    def config(self, broker_id: int, _host: str) -> BrokerConfig:
        """Return the user's settings; nothing of the simulator's own."""
        return self.scenario.server_config(broker_id)

    def zookeeper_wrote(self, write: Write, _process: SimLoop | None) -> None:
        """Note leaders, ISRs, registrations and controllers."""
        now_s = self.simulation.now
        if write.path.startswith(IDS):
            self.registrations.append(
                Registration(now_s, int(write.path.removeprefix(IDS)), write.op != "delete")
            )
        elif write.path.startswith(f"{TOPICS}{TOPIC}/") and write.path.endswith("/state"):
            partition = write.path.split("/")[-2]
            if write.data:
                state = json.loads(write.data)
                self.states.append(
                    StateChange(
                        now_s,
                        f"{TOPIC}-{partition}",
                        state["leader"],
                        state["leader_epoch"],
                        tuple(state["isr"]),
                    )
                )

    def _acknowledged(self) -> None:
        waiting = self._on_acknowledged.copy()
        self._on_acknowledged.clear()
        for callback in waiting:
            callback()

    async def serve_clients(self, world: World) -> None:
        """Create the topic; then be its producers and its consumer, until they are stopped."""
        client = Client(world, self.bootstrap, "admin", timeout_s=5.0)
        scenario = self.scenario
        await create_topic(
            client, TOPIC, scenario.partitions, scenario.replication_factor, scenario.topic
        )
        await client.close()
        self._producers.extend(
            ConfiguredProducer(
                world,
                self.bootstrap,
                f"producer-{i}",
                self.tps,
                self.history,
                PAUSE_S,
                self.settings,
                self._acknowledged,
            )
            for i in range(1, PRODUCERS + 1)
        )
        self._consumers.append(
            ConfiguredConsumer(world, self.bootstrap, "consumer-1", self.firm, self.history)
        )
        async with asyncio.TaskGroup() as group:
            for producer in self._producers:
                group.create_task(producer.run())
            for consumer in self._consumers:
                group.create_task(consumer.run())

    def _replicas_equal(self) -> bool:
        """Whether all replicas have the same end; an empty one may have no file yet."""
        return all(
            len({ends.get(broker, 0) for broker in replicas}) == 1
            for tp, replicas in self.assignment().items()
            for ends in (self.replicas.ends(tp),)
        )

    def _judge(self, *, complete: bool = True) -> list[str]:
        """Judge nothing: `of` does, by the scenario's promises."""
        del complete
        return []

    def of(self) -> Run:
        """Run it all and return what came of it."""
        faults = FaultSchedule(
            self, self.scenario, self._on_acknowledged.append, mask_of(self.plan.only_faults)
        )
        found = Run(self.job.seed)
        tracebacks = Tracebacks()
        logging.getLogger("ottla").addHandler(tracebacks)
        try:
            self.boot()
            self.client_node().boot(self.serve_clients)
            self.simulation.run_until(self._topic_ready, within_s=READY_S)
            found.began_s = self.simulation.now
            faults.start()
            self.simulation.run_for(self.plan.seconds)
            faults.stop()
            ended_s = self.simulation.now
            found.unhealed = "; ".join(self._settle(faults.heal))
            found.longest_gap = longest_gap(self.history, (found.began_s, ended_s))
            found.broken = judge(
                self.history,
                self._final(),
                self.scenario.promises,
                self.scenario.longest_gap_seconds,
                (found.began_s, ended_s),
            )
        except (SimulationError, TimeoutError) as error:
            found.unhealed = f"it came to no end: {error}"
        finally:
            logging.getLogger("ottla").removeHandler(tracebacks)
        found.seconds = self.simulation.now - found.began_s
        found.faults = faults.happened
        found.states, found.registrations = self.states, self.registrations
        found.acknowledged = sum(len(w.values) for w in self.history.writes if w.acked)
        found.failed = sum(len(w.values) for w in self.history.writes if w.abandoned)
        found.read = len(self.history.reads)
        found.defects = [*self.uncaught(), *tracebacks.found[:5]]
        return found

    def _final(self) -> Mapping[TopicPartition, list[LogRecord]]:
        logs = self.replicas.records(self.tps)
        return {tp: max(replicas.values(), key=len, default=[]) for tp, replicas in logs.items()}


def run(scenario: Scenario, job: Job) -> Run:
    """Run one job of a scenario in a simulation of its own."""
    with garbage_kept():
        return ended(ScenarioCluster(scenario, job), ScenarioCluster.of)
