"""A simulated cluster: ZooKeeper's twin, real brokers, real clients, a nemesis and the verdict.

Who may call: `python -m ottla.sim`, simulation tests. Invariants: brokers enter by the product's
own entry point (`Broker(config, world)`); all they say goes through the real codec; the run ends
with everything healed, and only then are logs compared. The same seed gives the same trace.
"""

import asyncio
import gc
import json
import logging
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ottla.broker.broker import Broker
from ottla.model.config import BrokerConfig
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.net.client import Client
from ottla.sim.administrators import Administrator
from ottla.sim.agreement import disagreements
from ottla.sim.checkers import LogRecord, check_all
from ottla.sim.clients import (
    CommittedConsumer,
    Consumer,
    HastyProducer,
    Producer,
    create_coordinated_topics,
    create_topic,
)
from ottla.sim.coordination import COPIES, Coordination, Stages, coordinator_settings
from ottla.sim.history import History
from ottla.sim.nemesis import Nemesis
from ottla.sim.operators import Churn, Mover
from ottla.sim.plans import Plan
from ottla.sim.scheduler import SimulationError
from ottla.sim.world import Main, Node, Simulation
from ottla.sim.znode_rules import check_znodes
from ottla.wire.records import iter_batches, iter_records
from ottla.zookeeper.memory import MemoryZooKeeper

PORT = 9092
ZOOKEEPER_PORT = 2181
FRAIL = "frail"
"""A topic of unclean elections: it may lose what it acknowledged, and keeps all else."""
LOG_DIRS = ("/var/ottla/a", "/var/ottla/b")
SUPERVISOR_RESTART_S = 1.0
SETTLE_S = 180.0
PATIENT_COLLECTOR = (20_000, 20, 50)
"""Thresholds of the garbage collector during a run: the default ones cost a quarter of it."""


@dataclass(slots=True)
class Verdict:
    """How a run ended."""

    plan: Plan
    anomalies: list[str]
    digest: str
    steps: int
    virtual_s: float
    faults: list[str]
    statistics: dict[str, int]
    gaps_s: list[float]
    """How long partitions had no write acknowledged, sorted."""

    def gap_s(self, quantile: float) -> float:
        """Return that quantile of the unavailable times, 0 if there were none."""
        last = len(self.gaps_s) - 1
        return self.gaps_s[round(quantile * last)] if self.gaps_s else 0.0

    @property
    def passed(self) -> bool:
        return not self.anomalies


class Tracebacks(logging.Handler):
    """Collects what the product's loop roots caught and logged: each is a bug."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            frame = traceback.extract_tb(error.__traceback__)[-1:]
            where = f"{frame[0].filename}:{frame[0].lineno}" if frame else "?"
            self.found.append(f"logged: {record.getMessage()}: {error!r} at {where}")


class Cluster:
    """Brokers b0…, ZooKeeper zk, and one node for all clients."""

    def __init__(self, plan: Plan, simulation: Simulation | None = None) -> None:
        self.plan = plan
        self.simulation = simulation or Simulation(plan.seed)
        self.zookeeper: MemoryZooKeeper | None = None
        self.brokers: dict[str, Broker] = {}
        self.history = History()
        self.firm = [TopicPartition(plan.topic, p) for p in range(plan.partitions)]
        self.tps = self.firm + [TopicPartition(FRAIL, p) for p in range(plan.frail)]
        """All that clients write to; `firm` are those that never lose what they acknowledged."""
        self.coordination = Coordination(self)
        self.copies = self.coordination.copies
        self.internal = self.coordination.internal
        self.watched = [*self.tps, *self.copies, *self.internal]
        """All whose replicas have to be in sync, and are moved about."""
        if plan.frail:
            self.history.frail.add(FRAIL)
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        self._operators: list[Churn | Mover | Administrator] = []
        self._exits: list[str] = []
        self._zookeeper_stopped = False
        self._stops: dict[str, asyncio.Event] = {}

    # Parts.

    def zookeeper_node(self) -> Node:
        return self.simulation.node("zk")

    def broker_nodes(self) -> list[Node]:
        return [self.simulation.node(f"b{i}") for i in range(self.plan.brokers)]

    def client_node(self) -> Node:
        return self.simulation.node("client")

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [(node.name, PORT) for node in self.broker_nodes()]

    def config(self, broker_id: int) -> BrokerConfig:
        """Return a broker's settings: small segments and short waits, so that more happens."""
        return BrokerConfig(
            {
                "broker.id": str(broker_id),
                "zookeeper.connect": f"zk:{ZOOKEEPER_PORT}",
                "listeners": f"PLAINTEXT://b{broker_id}:{PORT}",
                "log.dirs": ",".join(LOG_DIRS),
                "zookeeper.session.timeout.ms": "6000",
                "replica.lag.time.max.ms": "6000",
                "replica.socket.timeout.ms": "6000",
                "default.replication.factor": str(self.plan.replicas),
                "min.insync.replicas": str(self.plan.min_isr),
                "auto.create.topics.enable": "false",
                "log.segment.bytes": "16384",
                "log.flush.offset.checkpoint.interval.ms": "5000",
                "replica.high.watermark.checkpoint.interval.ms": "2000",
                "controlled.shutdown.retry.backoff.ms": "1000",
                **(coordinator_settings(self.plan) if self.plan.coordinated else {}),
                **self.plan.properties,
            }
        )

    # Mains of the nodes.

    async def _zookeeper_main(self, world: World) -> None:
        self.zookeeper = MemoryZooKeeper(world, tick_ms=1000)
        await self.zookeeper.start("zk", ZOOKEEPER_PORT)
        await asyncio.Event().wait()

    def _broker_main(self, node: Node, broker_id: int) -> Main:
        async def main(world: World) -> None:
            stop = self._stops[node.name] = asyncio.Event()
            self.brokers.pop(node.name, None)
            try:
                broker = Broker(self.config(broker_id), world, host_name=node.name)
                await broker.start()
                self.brokers[node.name] = broker
                failed = asyncio.ensure_future(broker.wait_failed())
                stopped = asyncio.ensure_future(stop.wait())
                await asyncio.wait((failed, stopped), return_when=asyncio.FIRST_COMPLETED)
                await broker.shutdown()
                if failed.done():
                    failed.result()
            except OttlaError as error:
                self.simulation.note(node.name, "exit", str(error))
                self._exits.append(f"{node.name}: {error}")
            self._supervise(node)

        return main

    def _supervise(self, node: Node) -> None:
        """Start a broker's process again when it has ended by itself, as systemd would."""
        incarnation = node.incarnation

        def restart() -> None:
            if node.incarnation == incarnation and not node.up and not node.loop.dead:
                node.boot()

        self.simulation.scheduler.after(SUPERVISOR_RESTART_S, restart)

    # What the nemesis asks for.

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return LOG_DIRS

    def restart_gracefully(self, node: Node) -> None:
        stop = self._stops.get(node.name)
        if node.up and stop is not None:
            self.simulation.note(node.name, "sigterm")
            node.loop.call_soon(stop.set)

    def _session_id(self, node: Node) -> int | None:
        """Return the ZooKeeper session that owns a broker's registration."""
        assert self.zookeeper is not None
        path = f"/brokers/ids/{node.name.removeprefix('b')}"
        entry = self.zookeeper.tree.nodes.get(path)
        return entry.owner if entry is not None else None

    def expire_session(self, node: Node) -> bool:
        session_id = self._session_id(node)
        if session_id is None or self.zookeeper is None:
            return False
        self.zookeeper_node().loop.call_soon(self.zookeeper.expire, session_id)
        return True

    def lose_zookeeper_message(self, *, reply: bool) -> None:
        assert self.zookeeper is not None
        lose = self.zookeeper.lose_reply if reply else self.zookeeper.lose_request
        lose(lambda _op, path: path.startswith(("/brokers", "/controller", "/admin")))

    def stop_zookeeper(self) -> None:
        assert self.zookeeper is not None
        self._zookeeper_stopped = True
        self.zookeeper_node().loop.call_soon(self.zookeeper.stop)

    def start_zookeeper(self) -> None:
        """Start it again with all it knew; each session has its whole timeout again."""
        assert self.zookeeper is not None
        if self._zookeeper_stopped:
            self._zookeeper_stopped = False
            self.zookeeper_node().loop.create_task(self.zookeeper.start("zk", ZOOKEEPER_PORT))

    # Looking at the cluster from outside.

    def partition_states(self) -> dict[TopicPartition, dict[str, object]]:
        """Return the state znodes of the topic's partitions."""
        assert self.zookeeper is not None
        found: dict[TopicPartition, dict[str, object]] = {}
        for tp in self.watched:
            entry = self.zookeeper.tree.nodes.get(
                f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state"
            )
            if entry is not None and entry.data:
                found[tp] = json.loads(entry.data)
        return found

    def assignment(self) -> dict[TopicPartition, set[int]]:
        """Return the replicas of the watched partitions, by their topics' znodes."""
        assert self.zookeeper is not None
        found: dict[TopicPartition, set[int]] = {}
        for topic in sorted({tp.topic for tp in self.watched}):
            entry = self.zookeeper.tree.nodes.get(f"/brokers/topics/{topic}")
            if entry is not None and entry.data:
                replicas = json.loads(entry.data)["partitions"]
                found |= {TopicPartition(topic, int(p)): set(b) for p, b in replicas.items()}
        return found

    def all_in_sync(self) -> bool:
        """Whether every partition has a leader and its whole assignment in the ISR."""
        states = self.partition_states()
        return len(states) == len(self.watched) and all(
            isinstance(isr := states[tp]["isr"], list)
            and set(isr) == replicas
            and states[tp]["leader"] != -1
            for tp, replicas in self.assignment().items()
        )

    def disagreements(self) -> list[str]:
        """Return what is unfinished, unled, or not known to all alike; who is down."""
        assert self.zookeeper is not None
        down = [n.name for n in self.broker_nodes() if not n.up or n.name not in self.brokers]
        if down:
            return [f"{' '.join(down)} not up"]
        brokers = [self.brokers[node.name] for node in self.broker_nodes()]
        return disagreements(self.zookeeper.tree.nodes, brokers)

    def caught_up(self, node: Node) -> bool:
        """Whether a broker's disk holds, of every partition, what all the others hold."""
        broker_id = int(node.name.removeprefix("b"))
        for tp in self.watched:
            ends = self._ends(tp)
            ours = ends.pop(broker_id, 0)
            if ours < min(ends.values(), default=0):
                return False
        return True

    def raw_logs(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, dict[int, bytes]]:
        """Read every assigned replica straight from the simulated disks."""
        found: dict[TopicPartition, dict[int, bytes]] = {tp: {} for tp in tps}
        assignment = self.assignment()
        for broker_id, node in enumerate(self.broker_nodes()):
            for tp, replicas in found.items():
                paths = self._log_files(node, tp)
                if paths and broker_id in assignment.get(tp, ()):
                    replicas[broker_id] = b"".join(node.disk.inodes[p].data for p in paths)
        return found

    def logs(
        self, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, dict[int, list[LogRecord]]]:
        """Return every assigned replica's records, without markers."""
        return {
            tp: {broker_id: _records(data) for broker_id, data in replicas.items()}
            for tp, replicas in self.raw_logs(tps).items()
        }

    def end(self, tp: TopicPartition) -> int:
        """Return the offset after the last record of the longest replica."""
        return max(self._ends(tp).values(), default=0)

    # The run.

    def boot(self) -> None:
        """Start ZooKeeper, then the brokers."""
        self.zookeeper_node().boot(self._zookeeper_main)
        self.simulation.run_for(0.1)
        for broker_id, node in enumerate(self.broker_nodes()):
            node.boot(self._broker_main(node, broker_id))

    def run(self, *, until_s: float | None = None) -> Verdict:
        """Run the whole plan and judge it. `until_s` stops early, for a look at that moment."""
        anomalies: list[str] = []
        nemesis = Nemesis(
            self,
            mean_gap_s=self.plan.mean_gap_s,
            allowed=self.plan.faults,
            careless=self.plan.careless,
        )
        began_s = ended_s = 0.0
        tracebacks = Tracebacks()
        logging.getLogger("ottla").addHandler(tracebacks)
        try:
            self.boot()
            self.client_node().boot(self.serve_clients)
            self.simulation.run_until(self._topic_ready, within_s=60.0)
            self.coordination.cast.start(faults=bool(self.plan.faults))
            began_s = self.simulation.now
            nemesis.start()
            self._run_faults(until_s)
            ended_s = self.simulation.now
            if until_s is None:
                nemesis.stop()
                anomalies += self._settle(nemesis)
        except (SimulationError, TimeoutError) as error:
            anomalies.append(f"stuck: {error}")
        finally:
            logging.getLogger("ottla").removeHandler(tracebacks)
        anomalies += self.uncaught()
        anomalies += tracebacks.found[:5]
        return Verdict(
            self.plan,
            anomalies,
            self.simulation.trace.digest,
            self.simulation.scheduler.steps,
            self.simulation.now,
            sorted(
                nemesis.done + self.coordination.cast.done, key=lambda line: float(line.split()[0])
            ),
            {
                **self.history.statistics(),
                **(self.history.coordination_statistics() if self.plan.coordinated else {}),
                "topics_churned": sum(
                    o.generation for o in self._operators if isinstance(o, Churn)
                ),
                "asked": sum(o.done for o in self._operators if isinstance(o, Administrator)),
                "unclean": self._unclean_elections(),
                "moves_asked": sum(o.asked for o in self._operators if isinstance(o, Mover)),
            },
            self.history.gaps_s(began_s, ended_s),
        )

    def _run_faults(self, until_s: float | None) -> None:
        end_s = self.simulation.now + self.plan.seconds
        if until_s is not None:
            end_s = min(end_s, until_s)
        self.simulation.run_for(max(0.0, end_s - self.simulation.now))

    def _topic_ready(self) -> bool:
        return bool(self._producers) and self.all_in_sync()

    async def serve_clients(self, world: World) -> None:
        """Create the topic; then be every client and operator, until they are told to stop."""
        client = Client(world, self.bootstrap, "admin", timeout_s=5.0)
        plan = self.plan
        configs = {"min.insync.replicas": str(plan.min_isr)}
        await create_topic(client, plan.topic, plan.partitions, plan.replicas, configs)
        if plan.frail:
            configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
            await create_topic(client, FRAIL, plan.frail, plan.replicas, configs)
        if plan.copiers:
            configs = {"min.insync.replicas": str(plan.min_isr)}
            await create_topic(client, COPIES, plan.partitions, plan.replicas, configs)
        if plan.coordinated:
            await create_coordinated_topics(client)
        await client.close()
        for i in range(self.plan.producers):
            self._producers.append(
                Producer(world, self.bootstrap, f"p{i}", self.tps, self.history, 0.2)
            )
        for i in range(self.plan.hasty_producers):
            self._producers.append(
                HastyProducer(world, self.bootstrap, f"h{i}", self.tps, self.history, 0.3)
            )
        for i in range(self.plan.consumers):
            self._consumers.append(
                Consumer(world, self.bootstrap, f"c{i}", [*self.firm, *self.copies], self.history)
            )
        if plan.copiers:
            self._consumers.append(
                CommittedConsumer(world, self.bootstrap, "rc", self.copies, self.history)
            )
        if self.plan.operators:
            self._operators.append(Churn(world, self.bootstrap, "churn", self.history))
            if plan.brokers > plan.replicas:
                zookeeper = f"zk:{ZOOKEEPER_PORT}"
                self._operators.append(
                    Mover(
                        world, self.bootstrap, zookeeper, self.watched, plan.brokers, plan.replicas
                    )
                )
        for i in range(plan.administrators):
            self._operators.append(
                Administrator(world, self.bootstrap, f"a{i}", plan.brokers, plan.topic)
            )
        async with asyncio.TaskGroup() as group:
            for operator in self._operators:
                group.create_task(operator.run())
            for producer in self._producers:
                group.create_task(producer.run())
            for consumer in self._consumers:
                group.create_task(consumer.run())

    def _settle(self, nemesis: Nemesis) -> list[str]:
        """Heal everything; the cluster has to come back by itself, and catch up."""
        for operator in self._operators:
            operator.stopping = True
        nemesis.heal()
        self.coordination.cast.heal()
        self.simulation.run_for(30.0)
        nemesis.heal()
        jumped = any(" clock-jump " in line for line in nemesis.done)
        return self.finish(timely=not jumped)

    def finish(self, *, timely: bool = True) -> list[str]:
        """Wait, once all is mended, until all is at rest and every client has what it is owed.

        Then judge. Returns the anomalies. `timely`: no clock has jumped, so that a transaction
        without an end is aborted in time; some are left open then.
        """
        deadline_s = self.simulation.now + SETTLE_S
        for name, reached, allowed_s in self._stages(timely=timely):
            limit_s = deadline_s if allowed_s is None else self.simulation.now + allowed_s
            while not reached():
                if self.simulation.now > limit_s:
                    late = f"not healed: {SETTLE_S:.0f} s after the last fault not: {name}; "
                    # A record that is wrong is the likelier cause: it is told as well.
                    found = [*self.disagreements()[:5], *self._judge(complete=False)]
                    return [late + self._where(), *found]
                self.simulation.run_for(0.5)
        return self._judge()

    def _stages(self, *, timely: bool) -> Stages:
        """Yield what has to come true, one after the other; what is asked for first, in between."""
        yield "operators have stopped", lambda: all(o.ended for o in self._operators), None
        yield "all is done, led and known", lambda: not self.disagreements(), None
        for producer in self._producers:
            producer.stopping = True
        yield "every open write has an answer", self._writes_answered, None
        if self.plan.coordinated:
            # Who was waiting when it was told to stop writes once more.
            yield "producers have ended", lambda: all(p.ended for p in self._producers), None
            yield from self.coordination.stages(timely=timely)
        yield "consumers have read everything", self._caught_up, None
        yield "replicas are equal", self._replicas_equal, None
        yield "all is still led and known", lambda: not self.disagreements(), None

    def _where(self) -> str:
        states = "; ".join(
            f"{tp} leader={s['leader']} epoch={s['leader_epoch']} isr={s['isr']}"
            for tp, s in self.partition_states().items()
        )
        up = " ".join(n.name for n in self.broker_nodes() if n.up)
        return f"up: {up}; {states}; last exits: {self._exits[-3:]}"

    def _writes_answered(self) -> bool:
        return all(w.completed_s is not None or w.abandoned for w in self.history.writes)

    def _caught_up(self) -> bool:
        ends = {tp: self.end(tp) for tp in [*self.firm, *self.copies]}
        return all(c.offsets[tp] >= ends[tp] for c in self._consumers for tp in c.tps)

    def _replicas_equal(self) -> bool:
        """Whether all assigned replicas are there with the same end.

        A broker that was down when a partition moved away may keep a stray copy, as in Kafka. An
        internal partition that nobody's key falls into has no files anywhere.
        """
        ends = {tp: self._ends(tp) for tp in self.watched}
        return all(
            (tp in self.internal and not ends[tp])
            or (replicas <= ends[tp].keys() and len({ends[tp][b] for b in replicas}) == 1)
            for tp, replicas in self.assignment().items()
        )

    def _ends(self, tp: TopicPartition) -> dict[int, int]:
        """Return the offset after the last record of every replica there is."""
        found = {}
        for broker_id, node in enumerate(self.broker_nodes()):
            paths = self._log_files(node, tp)
            if paths:
                found[broker_id] = _end_offset(node, paths[-1])
        return found

    @staticmethod
    def _log_files(node: Node, tp: TopicPartition) -> list[str]:
        folders = tuple(f"{log_dir}/{tp}/" for log_dir in LOG_DIRS)
        return sorted(p for p in node.disk.inodes if p.startswith(folders) and p.endswith(".log"))

    def _judge(self, *, complete: bool = True) -> list[str]:
        """Return all that is wrong; `complete`: everything was to have come to its end."""
        assert self.zookeeper is not None
        twice = [
            f"{node.name} keeps {tp} in two log dirs"
            for node in self.broker_nodes()
            for tp in self.watched
            if len({path.rpartition("/")[0] for path in self._log_files(node, tp)}) > 1
        ]
        logs = self.logs([*self.tps, *self.copies])
        return [
            *twice,
            *check_all(self.history, logs),
            *(self.coordination.judge(logs, complete=complete) if self.plan.coordinated else ()),
            *check_znodes(self.zookeeper.writes),
            *(f"client: {line}" for line in self.history.complaints[:5]),
        ]

    def _unclean_elections(self) -> int:
        """Return how many states were written with leaders that have to recover (F43)."""
        writes = self.zookeeper.writes if self.zookeeper is not None else ()
        return sum(b'"leader_recovery_state":1' in (w.data or b"") for w in writes)

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


def _records(data: bytes) -> list[LogRecord]:
    found = []
    for position, header in iter_batches(data, allow_partial=True):
        if not header.is_control:
            found += [
                LogRecord(r.offset, header.partition_leader_epoch, r.value or b"")
                for r in iter_records(data, position)
            ]
    return found


def _end_offset(node: Node, path: str) -> int:
    """Return the offset after the last whole batch of a segment, its base where it is empty."""
    end = int(path.rpartition("/")[2].removesuffix(".log"))
    for _, header in iter_batches(bytes(node.disk.inodes[path].data), allow_partial=True):
        end = header.next_offset
    return end


def run(
    plan: Plan, *, sink: Callable[[str], object] | None = None, until_s: float | None = None
) -> Verdict:
    """Run one plan in a simulation of its own."""
    before = gc.get_threshold()
    gc.set_threshold(*PATIENT_COLLECTOR)
    cluster = Cluster(plan, Simulation(plan.seed, sink=sink))
    try:
        return cluster.run(until_s=until_s)
    finally:
        cluster.close()
        gc.set_threshold(*before)
