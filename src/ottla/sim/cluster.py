"""A simulated cluster and its run: clients, nemesis and verdict.

Invariants: all that is said goes through the real codec; the run ends with everything healed, and
only then are logs compared. The same seed gives the same trace.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from ottla.broker.broker import Broker
from ottla.client.client import Client
from ottla.model.ports import World
from ottla.model.time_slices import SLICE_S
from ottla.sim.administrators import Administrator
from ottla.sim.bit_flips import check_checksums
from ottla.sim.broker_processes import COPIES
from ottla.sim.checkers import check_all, few
from ottla.sim.clients import (
    Auditor,
    CommittedConsumer,
    Consumer,
    NoRetryProducer,
    Producer,
    create_coordinated_topics,
    create_topic,
)
from ottla.sim.coordination import Coordination, Stages
from ottla.sim.costs import MEASURED
from ottla.sim.crash_rules import CrashRules
from ottla.sim.isr_rules import InSyncRules
from ottla.sim.loop import SimLoop
from ottla.sim.machines import UNCLEAN, Machines
from ottla.sim.masks import Operations
from ottla.sim.nemesis import Nemesis
from ottla.sim.operators import Churn, Mover
from ottla.sim.plans import Plan
from ottla.sim.scheduler import SimulationError
from ottla.sim.verdict import LONGEST_CALLBACK_S, Tracebacks, Verdict, stalls_of
from ottla.sim.world import Simulation, garbage_kept
from ottla.sim.znode_rules import check_znodes
from ottla.sim.zookeeper_node import PORT as ZOOKEEPER_PORT
from ottla.sim.zookeeper_node import WatchedWrites
from ottla.zookeeper.memory import LoggedWrite

ClusterT = TypeVar("ClusterT", bound="Cluster")
T = TypeVar("T")

SETTLE_S = 180.0
QUIET_S = 2.0
"""How long after the last fault nothing is looked at: processes come up."""
GOING_ON_S = 3.0
"""How long clients go on once all is healed: what is still wrong may show in what they write."""


class Cluster(Machines):
    """The machines of a plan with its clients, its nemesis and its judges."""

    def __init__(self, plan: Plan, simulation: Simulation | None = None) -> None:
        super().__init__(plan, simulation or simulation_of(plan))
        self.coordination = Coordination(self)
        if plan.unclean_partitions:
            self.history.unclean_topics.add(UNCLEAN)
        self.in_sync = InSyncRules(
            self.history,
            self.replicas,
            [*self.firm, *self.copies],
            self._registered_anew,
            self._whole,
        )
        self.crashes = CrashRules(self.simulation, plan) if plan.crash_detection else None
        self._nemesis: Nemesis | None = None
        self._wrong_znodes: list[str] = []
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        self._operators: list[Churn | Mover | Administrator | Auditor] = []
        self._operations: list[str] = []

    # What the judges hear of.

    def zookeeper_wrote(self, write: LoggedWrite, process: SimLoop | None) -> None:
        with self.simulation.scheduler.elsewhere():  # to look takes no time
            self.in_sync.wrote(write)
        if self.crashes is not None:
            assert self.zookeeper is not None
            self.crashes.wrote(write, process, self.zookeeper)

    def zookeeper_restored(self, writes: WatchedWrites) -> None:
        """Judge what was written until now."""
        self._wrong_znodes += check_znodes(writes)
        self.in_sync.restored()
        if self.crashes is not None:
            self.crashes.restored()

    def prepare(self, broker: Broker) -> None:
        broker.services.replicas.partition_kind = self.in_sync.partition_kind

    def _registered_anew(self, broker_id: int) -> bool:
        node = self.broker_nodes()[broker_id]
        return not self.second(node).up and self.processes.registered_anew(node, broker_id)

    def _whole(self, broker_id: int) -> bool:
        """Whether a broker runs and its disk has lost nothing that it has not got back."""
        node = self.broker_nodes()[broker_id]
        lacking = self._nemesis is not None and self._nemesis.allowance.lacks(node)
        return node.up and not lacking and not node.disk.faults

    # The run.

    def boot(self) -> None:
        """Start ZooKeeper, then the brokers."""
        self.zk.node.boot(self.zk.main)
        self.simulation.run_for(0.1)
        if self.crashes is not None:
            self.crashes.start()
        for broker_id, node in enumerate(self.broker_nodes()):
            node.disk.chance = node.random("cache")
            node.disk.evicted_share = self.plan.evicted
            node.disk.in_order = self.plan.in_order
            self.folders.watch(node.name, node.disk)
            node.boot(self.processes.main(node, broker_id))

    def run(self, *, until_s: float | None = None) -> Verdict:
        """Run the whole plan and judge it. `until_s` stops early, for a look at that moment."""
        anomalies: list[str] = []
        nemesis = self._nemesis = Nemesis(
            self,
            mean_gap_s=self.plan.mean_gap_s,
            allowed=self.plan.faults,
            careless=self.plan.careless,
            mask=self.plan.fault_mask,
            hard=self.plan.hard,
        )
        began_s = ended_s = 0.0
        tracebacks = Tracebacks()
        logging.getLogger("ottla").addHandler(tracebacks)
        try:
            self.boot()
            self.client_node().boot(self.serve_clients)
            self.simulation.run_until(self._topic_ready, within_s=60.0)
            self.coordination.client_roles.start(faults=bool(self.plan.faults))
            began_s = self.simulation.now
            nemesis.start()
            self._run_faults(until_s)
            ended_s = self.simulation.now
            if until_s is None:
                nemesis.stop()
                anomalies += self._settle(nemesis.heal)
        except (SimulationError, TimeoutError) as error:
            anomalies.append(f"stuck: {error}")
        finally:
            logging.getLogger("ottla").removeHandler(tracebacks)
        anomalies += self.uncaught()
        anomalies += tracebacks.found[:5]
        stalls = stalls_of(self.broker_nodes(), self.plan.slowness)
        if self.plan.slowness == 1.0 and stalls.p999_s > LONGEST_CALLBACK_S:
            anomalies.append(f"stall: {stalls}")
        anomalies += [f"stall: {line}" for n in self.broker_nodes() for line in n.stood_still]
        return Verdict(
            self.plan,
            anomalies,
            self.simulation.trace.digest,
            self.simulation.scheduler.steps,
            self.simulation.now,
            sorted(
                nemesis.done + self.coordination.client_roles.done,
                key=lambda line: float(line.split()[0]),
            ),
            {
                **self.history.statistics(),
                **(self.history.coordination_statistics() if self.plan.coordinated else {}),
                "topics_churned": sum(
                    o.generation for o in self._operators if isinstance(o, Churn)
                ),
                "log_dir_moves": sum(
                    b.services.replicas.moves.moved_total for b in self.brokers.values()
                ),
                "asked": sum(o.done for o in self._operators if isinstance(o, Administrator)),
                "unclean": self._unclean_elections(),
                "moves_asked": 0 if self.mover is None else self.mover.asked,
                **(self.crashes.statistics() if self.crashes is not None else {}),
            },
            sorted(self._operations, key=lambda line: float(line.split()[0])),
            self.history.gaps_s(began_s, ended_s),
            stalls,
        )

    def _operations_of(self, name: str, mean_s: float) -> Operations:
        mask = self.plan.operation_mask
        return Operations(name, self.simulation.random, mean_s, mask, self._operations)

    def _run_faults(self, until_s: float | None) -> None:
        end_s = self.simulation.now + self.plan.seconds
        if until_s is not None:
            end_s = min(end_s, until_s)
        self.simulation.run_for(max(0.0, end_s - self.simulation.now))

    def _topic_ready(self) -> bool:
        return bool(self._producers) and self.all_in_sync()

    async def serve_clients(self, world: World) -> None:
        """Create the topic; then be every client and operator, until they are stopped."""
        client = Client(world, self.bootstrap, "admin", timeout_s=5.0)
        plan = self.plan
        # Where defaults change, topics have no value of their own: the brokers' is the same.
        lowered = {name for name in plan.faults if name.startswith("lowered-")}
        firm = {} if lowered else {"min.insync.replicas": str(plan.min_isr)}
        kept = {**firm, "cleanup.policy": "compact"} if plan.compacted else firm
        await create_topic(client, plan.topic, plan.partitions, plan.replicas, kept)
        if plan.unclean_partitions:
            loose = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
            await create_topic(client, UNCLEAN, plan.unclean_partitions, plan.replicas, loose)
        if plan.copiers:
            await create_topic(client, COPIES, plan.partitions, plan.replicas, firm)
        if plan.coordinated:
            await create_coordinated_topics(client)
            await self.coordination.begin_groups(client)
        await client.close()
        for i in range(self.plan.producers):
            self._producers.append(self._producer(Producer, world, f"p{i}", plan.pause_s))
        for i in range(self.plan.no_retry_producers):
            slow_s = 1.5 * plan.pause_s
            self._producers.append(self._producer(NoRetryProducer, world, f"h{i}", slow_s))
        for i in range(self.plan.consumers):
            self._consumers.append(
                Consumer(world, self.bootstrap, f"c{i}", [*self.firm, *self.copies], self.history)
            )
        if plan.copiers:
            self._consumers.append(
                CommittedConsumer(world, self.bootstrap, "rc", self.copies, self.history)
            )
        if plan.reads_disks:
            self._operators.append(Auditor(world, self.bootstrap, "audit", self.tps, self.history))
        if self.plan.operators:
            self._operators.append(Churn(world, self.bootstrap, "churn", self.history))
            if plan.brokers > plan.replicas:
                zookeeper, operations = f"zk:{ZOOKEEPER_PORT}", self._operations_of("m0", 3.5)
                sizes = plan.brokers, plan.replicas
                self.mover = Mover(
                    world, self.bootstrap, zookeeper, self.watched, *sizes, operations
                )
                self._operators.append(self.mover)
        for i in range(plan.administrators):
            self._operators.append(
                Administrator(
                    world,
                    self.bootstrap,
                    f"a{i}",
                    plan.brokers,
                    plan.topic,
                    self._operations_of(f"a{i}", 1.0),
                    self.watched,
                    self.processes.log_dirs,
                )
            )
        async with asyncio.TaskGroup() as group:
            for operator in self._operators:
                group.create_task(operator.run())
            for producer in self._producers:
                group.create_task(producer.run())
            for consumer in self._consumers:
                group.create_task(consumer.run())

    def _producer(self, kind: type[Producer], world: World, name: str, pause_s: float) -> Producer:
        keyed = self.plan.compacted
        return kind(world, self.bootstrap, name, self.tps, self.history, pause_s, keyed=keyed)

    def _settle(self, heal: Callable[[], None]) -> list[str]:
        """Heal everything; the cluster has to recover on its own and catch up."""
        for operator in self._operators:
            operator.stopping = True
        heal()
        self.coordination.client_roles.heal()
        self.simulation.run_for(QUIET_S)
        heal()
        return self.finish()

    def finish(self) -> list[str]:
        """Wait, once all faults are over, until all is at rest and each client has its responses.

        Then judge. Returns the anomalies.
        """
        deadline_s = self.simulation.now + SETTLE_S
        for name, reached, allowed_s in self._stages():
            limit_s = deadline_s if allowed_s is None else self.simulation.now + allowed_s
            while not reached():
                if self.simulation.now > limit_s:
                    late = f"not healed: {SETTLE_S:.0f} s after the last fault not: {name}; "
                    # A record that is wrong is the likelier cause: it is reported as well.
                    found = [*self.disagreements()[:5], *self._judge(complete=False)]
                    return [late + self._where(), *found]
                self.simulation.run_for(0.5)
        return self._judge()

    def _stages(self) -> Stages:
        """Yield what has to come true, one after the other; what is asked for first, in between."""
        yield "operators have stopped", lambda: all(o.ended for o in self._operators), None
        yield "all is done, led and known", lambda: not self.disagreements(), None
        healed_s = self.simulation.now
        yield "clients have gone on", lambda: self.simulation.now >= healed_s + GOING_ON_S, None
        for producer in self._producers:
            producer.stopping = True
        yield "every open write has an answer", self._writes_answered, None
        if self.plan.coordinated:
            # A client that waited when it was stopped writes once more.
            yield "producers have ended", lambda: all(p.ended for p in self._producers), None
            yield from self.coordination.stages()
        yield "consumers have read everything", self._caught_up, None
        yield "replicas are equal", self._replicas_equal, None
        yield "all is still led and known", lambda: not self.disagreements(), None

    def _where(self) -> str:
        states = "; ".join(
            f"{tp} leader={s['leader']} epoch={s['leader_epoch']} isr={s['isr']}"
            for tp, s in self.partition_states().items()
        )
        up = " ".join(n.name for n in self.broker_nodes() if n.up)
        return f"up: {up}; {states}; last exits: {self.processes.exits[-3:]}"

    def _writes_answered(self) -> bool:
        return all(w.completed_s is not None or w.abandoned for w in self.history.writes)

    def _caught_up(self) -> bool:
        ends = {tp: self.end(tp) for tp in [*self.firm, *self.copies]}
        return all(c.offsets[tp] >= ends[tp] for c in self._consumers for tp in c.tps)

    def _replicas_equal(self) -> bool:
        """Whether all assigned replicas are there with the same end.

        A broker that was down when a partition moved away may keep a stray copy, as in Kafka. An
        internal partition that no one's key falls into has no files anywhere.
        """
        ends = {tp: self.replicas.ends(tp) for tp in self.watched}
        return all(
            (tp in self.internal and not ends[tp])
            or (replicas <= ends[tp].keys() and len({ends[tp][b] for b in replicas}) == 1)
            for tp, replicas in self.assignment().items()
        )

    def _judge(self, *, complete: bool = True) -> list[str]:
        """Return all that is wrong; `complete`: everything was to have come to its end."""
        assert self.zookeeper is not None
        twice = [
            f"{node.name} keeps {tp} in two log dirs"
            for node in self.broker_nodes()
            for tp in self.watched
            if len({path.rpartition("/")[0] for path in self.replicas.paths(node, tp)}) > 1
        ]
        logs = self.replicas.records([*self.tps, *self.copies])
        return [
            *twice,
            *check_all(self.history, logs),
            *(self.coordination.judge(logs, complete=complete) if self.plan.coordinated else ()),
            *self._wrong_znodes,
            *check_znodes(self.zk.writes),
            *few("in sync without all", self.in_sync.found),
            *few("two processes of one broker", self.in_sync.twice),
            *few("crash detection", self.crashes.wrong() if self.crashes is not None else []),
            *few("damaged", self._damaged() if complete else []),
            *few("one topic's file in another's folder", self.folders.found),
            *few("forgotten replica deleted", self.folders.deleted(self.broker_nodes())),
            *(f"client: {line}" for line in self.history.complaints[:5]),
        ]

    def _damaged(self) -> list[str]:
        """Return what is damaged on disks at the end, if any bit was flipped at all (F20)."""
        return check_checksums(self.replicas.raw(self.watched)) if self.bit_flips.count else []

    def _unclean_elections(self) -> int:
        """Return how many states were written with leaders that have to recover (F43)."""
        return sum(b'"leader_recovery_state":1' in (w.data or b"") for w in self.zk.writes)

    def uncaught(self) -> list[str]:
        """Return what no callback and no main caught."""
        found = [f"uncaught: {line}" for line in self.simulation.failures()]
        for name in sorted(self.simulation.nodes):
            task = self.simulation.nodes[name].task
            if task is not None and task.done() and not task.cancelled():
                error = task.exception()
                if error is not None:
                    found.append(f"uncaught: {name} main: {error!r}")
        return found

    def close(self) -> None:
        self.simulation.close()


def simulation_of(plan: Plan, sink: Callable[[str], object] | None = None) -> Simulation:
    """Return the empty world of a plan."""
    return Simulation(
        plan.seed,
        sink=sink,
        costs=MEASURED.slower(plan.slowness),
        # On a busy machine others may run between any two items: what was read before is then not
        # true any more.
        slice_s=0.0 if plan.short_turns else SLICE_S,
        interleave=plan.interleave,
    )


def run(
    plan: Plan, *, sink: Callable[[str], object] | None = None, until_s: float | None = None
) -> Verdict:
    """Run one plan in a simulation of its own."""
    with garbage_kept():
        return ended(Cluster(plan, simulation_of(plan, sink)), lambda c: c.run(until_s=until_s))


def ended(cluster: ClusterT, of: Callable[[ClusterT], T]) -> T:
    """Return what comes of a cluster, and end all of it.

    The caller's `garbage_kept` collects it: nobody else may hold it.
    """
    try:
        return of(cluster)
    finally:
        cluster.simulation.close(collect=False)
