"""A simulated cluster: in-memory ZooKeeper, real brokers, real clients, nemesis and verdict.

Invariants: brokers enter by the product's own entry point (`Broker(config, world)`); all they say
goes through the real codec; the run ends with everything healed, and only then are logs compared.
The same seed gives the same trace.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

from ottla.client.client import Client
from ottla.model.config import BrokerConfig
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.model.time_slices import SLICE_S
from ottla.sim.administrators import Administrator, set_min_isr
from ottla.sim.agreement import disagreements
from ottla.sim.bit_flips import BitFlips, check_checksums
from ottla.sim.broker_processes import LOG_DIRS, PORT, BrokerProcesses, broker_config
from ottla.sim.checkers import LogRecord, check_all, few
from ottla.sim.clients import (
    Auditor,
    CommittedConsumer,
    Consumer,
    NoRetryProducer,
    Producer,
    create_coordinated_topics,
    create_topic,
)
from ottla.sim.coordination import COPIES, Coordination, Stages
from ottla.sim.costs import MEASURED
from ottla.sim.crash_rules import CrashRules
from ottla.sim.folder_rules import FolderRules
from ottla.sim.history import History
from ottla.sim.isr_rules import InSyncRules
from ottla.sim.loop import SimLoop
from ottla.sim.masks import Operations
from ottla.sim.nemesis import Nemesis
from ottla.sim.operators import Churn, Mover
from ottla.sim.plans import Plan
from ottla.sim.replica_files import ReplicaFiles
from ottla.sim.scheduler import SimulationError
from ottla.sim.verdict import LONGEST_CALLBACK_S, Tracebacks, Verdict, stalls_of
from ottla.sim.world import Node, Simulation, garbage_kept
from ottla.sim.znode_rules import check_znodes
from ottla.sim.zookeeper_node import PORT as ZOOKEEPER_PORT
from ottla.sim.zookeeper_node import WatchedWrites, ZooKeeperNode
from ottla.zookeeper.memory import LoggedWrite, MemoryZooKeeper
from ottla.zookeeper.memory_tree import Znode

ClusterT = TypeVar("ClusterT", bound="Cluster")

UNCLEAN = "unclean"
"""A topic of unclean elections: it may lose what it acknowledged, and keeps all else."""
SETTLE_S = 180.0
QUIET_S = 2.0
"""How long after the last fault nothing is looked at: processes come up."""
GOING_ON_S = 3.0
"""How long clients go on once all is healed: what is still wrong may show in what they write."""


class Cluster:
    """Brokers b0…, ZooKeeper zk, and one node for all clients."""

    def __init__(self, plan: Plan, simulation: Simulation | None = None) -> None:
        self.plan = plan
        self.simulation = simulation or simulation_of(plan)
        self.history = History()
        zk = self.simulation.node("zk")
        self.zk = ZooKeeperNode(
            zk, self.zookeeper_wrote, self._ended, self._restored, durable=plan.durable_zookeeper
        )
        self.processes = BrokerProcesses(self.simulation, plan, self.zk, self.config)
        self.brokers = self.processes.brokers
        self.firm = [TopicPartition(plan.topic, p) for p in range(plan.partitions)]
        self.tps = self.firm + [TopicPartition(UNCLEAN, p) for p in range(plan.unclean_partitions)]
        """All that clients write to; `firm` are those that never lose what they acknowledged."""
        self.coordination = Coordination(self)
        self.copies = self.coordination.copies
        self.internal = self.coordination.internal
        self.watched = [*self.tps, *self.copies, *self.internal]
        """All whose replicas have to be in sync, and are moved about."""
        if plan.unclean_partitions:
            self.history.unclean_topics.add(UNCLEAN)
        self.replicas = ReplicaFiles(self.broker_nodes(), LOG_DIRS, self.assignment)
        firm = [*self.firm, *self.copies]
        self.in_sync = InSyncRules(
            self.history, self.replicas, firm, self._registered_anew, self._whole
        )
        self._nemesis: Nemesis | None = None
        self._wrong_znodes: list[str] = []
        self.folders = FolderRules()
        self.crashes = CrashRules(self.simulation, plan) if plan.crash_detection else None
        self.bit_flips = BitFlips(self.replicas.paths)
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        self._operators: list[Churn | Mover | Administrator | Auditor] = []
        self._operations: list[str] = []

    # Parts.

    @property
    def zookeeper(self) -> MemoryZooKeeper | None:
        """The server that runs, or the last one."""
        return self.zk.server

    def _ended(self, node: Node, why: str) -> None:
        self.processes.ended(node, why)

    def zookeeper_node(self) -> Node:
        return self.simulation.node("zk")

    def broker_nodes(self) -> list[Node]:
        return [self.simulation.node(f"b{i}") for i in range(self.plan.brokers)]

    def client_node(self) -> Node:
        return self.simulation.node("client")

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [(node.name, PORT) for node in self.broker_nodes()]

    def config(self, broker_id: int, host: str) -> BrokerConfig:
        return broker_config(self.plan, broker_id, host)

    def zookeeper_wrote(self, write: LoggedWrite, process: SimLoop | None) -> None:
        """Hear of a write to ZooKeeper that nothing can undo any more."""
        with self.simulation.scheduler.elsewhere():  # to look takes no time
            self.in_sync.wrote(write)
        if self.crashes is not None:
            assert self.zookeeper is not None
            self.crashes.wrote(write, process, self.zookeeper)

    def _restored(self, writes: WatchedWrites) -> None:
        """ZooKeeper is about to go on from an older state: judge what was written until now."""
        self._wrong_znodes += check_znodes(writes)
        self.in_sync.restored()
        if self.crashes is not None:
            self.crashes.restored()

    def _registered_anew(self, broker_id: int) -> bool:
        node = self.broker_nodes()[broker_id]
        alone = not self._second(node).up
        return alone and self.processes.registered_anew(node, broker_id)

    def _whole(self, broker_id: int) -> bool:
        """Whether a broker runs and its disk has lost nothing that it has not got back."""
        node = self.broker_nodes()[broker_id]
        lacking = self._nemesis is not None and self._nemesis.lacks(node)
        return node.up and not lacking and not node.disk.faults

    # What the nemesis asks for.

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return self.processes.log_dirs

    def restart_gracefully(self, node: Node) -> None:
        self.processes.stop(node)

    def _second(self, node: Node) -> Node:
        return self.simulation.node(f"{node.name}x")

    def start_second(self, node: Node) -> Node:
        second = self._second(node)
        second.disk.restore(node.disk.copy())
        second.boot(self.processes.main(second, _id_of(node)))
        return second

    def end_second(self, node: Node, second: Node) -> None:
        session = self._session_id(node)
        process = None if session is None else self.zk.process_of(session)
        registered = process is not None and process.host == second.name
        copy = second.disk.copy()
        second.crash()
        self.brokers.pop(second.name, None)
        if registered:
            node.crash()
            node.disk.restore(copy)
        node.boot_if_down()

    def set_min_isr(self, scope: str, where: str, value: int | None) -> None:
        client = self.client_node()
        if client.up:
            client.loop.create_task(set_min_isr(client.world, self.bootstrap, scope, where, value))

    def topic_ids(self) -> set[str]:
        topics = [self._znodes[f"/brokers/topics/{topic}"].data for topic in self.topics()]
        return {json.loads(data)["topic_id"] for data in topics if data}

    def deletions(self) -> set[str]:
        return set(self._znodes["/admin/delete_topics"].children)

    def judged_znodes(self) -> dict[str, bytes | None]:
        topics = sorted({tp.topic for tp in self.watched})
        paths = ["/latest_producer_id_block", *(f"/brokers/topics/{topic}" for topic in topics)]
        paths += [
            f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state" for tp in self.watched
        ]
        return {path: self._znodes[path].data for path in paths if path in self._znodes}

    def note_forgotten(self) -> None:
        deleted = self.deletions()
        self.folders.note_forgotten(self.broker_nodes(), self.topic_ids(), deleted)

    def _session_id(self, node: Node) -> int | None:
        """Return the ZooKeeper session that owns a broker's registration."""
        entry = self._znodes.get(f"/brokers/ids/{node.name.removeprefix('b')}")
        return entry.owner if entry is not None else None

    def whole_everywhere(self, victims: Collection[Node], lacking: Collection[Node]) -> bool:
        """Whether, were `victims` to lose some, every partition keeps a whole replica in sync.

        `lacking`: brokers that have lost something before and not got it back.
        """
        if self.zk.writes.pending:
            return False  # ZooKeeper may yet lose what it is about to know
        gone = {_id_of(node) for node in [*victims, *lacking]}
        states = self.partition_states()
        return len(states) == len(self.watched) and all(
            isinstance(isr := state["isr"], list) and set(isr) - gone for state in states.values()
        )

    def expire_session(self, node: Node) -> bool:
        session_id = self._session_id(node)
        if session_id is None or self.zookeeper is None or not self.zookeeper_node().up:
            return False
        self.zookeeper_node().loop.call_soon(self.zookeeper.expire, session_id)
        return True

    def reassign(self, tp: TopicPartition, replicas: list[int] | None) -> bool:
        mover = next((o for o in self._operators if isinstance(o, Mover)), None)
        if mover is not None:
            self.client_node().loop.create_task(mover.reassign(tp, replicas))
        return mover is not None

    def lose_zookeeper_message(self, *, reply: bool) -> None:
        assert self.zookeeper is not None
        lose = self.zookeeper.lose_reply if reply else self.zookeeper.lose_request
        lose(lambda _op, path: path.startswith(("/brokers", "/controller", "/admin")))

    # Looking at the cluster from outside.

    @property
    def _znodes(self) -> dict[str, Znode]:
        assert self.zookeeper is not None
        return self.zookeeper.tree.nodes

    def partition_states(self) -> dict[TopicPartition, dict[str, object]]:
        """Return the state znodes of the topic's partitions."""
        found: dict[TopicPartition, dict[str, object]] = {}
        for tp in self.watched:
            entry = self._znodes.get(f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state")
            if entry is not None and entry.data:
                found[tp] = json.loads(entry.data)
        return found

    def assignment(self) -> dict[TopicPartition, set[int]]:
        """Return the replicas of the watched partitions, by their topics' znodes."""
        found: dict[TopicPartition, set[int]] = {}
        for topic in sorted({tp.topic for tp in self.watched}):
            entry = self._znodes.get(f"/brokers/topics/{topic}")
            if entry is not None and entry.data:
                replicas = json.loads(entry.data)["partitions"]
                found |= {TopicPartition(topic, int(p)): set(b) for p, b in replicas.items()}
        return found

    def leader_and_isr(self, tp: TopicPartition) -> tuple[int, list[int]] | None:
        entry = self._znodes.get(f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state")
        if entry is None or not entry.data:
            return None
        state = json.loads(entry.data)
        return int(state["leader"]), [int(b) for b in state["isr"]]

    def segment_paths(self, node: Node, tp: TopicPartition) -> list[str]:
        return self.replicas.paths(node, tp)

    def replica_ends(self, tp: TopicPartition) -> dict[int, int]:
        return self.replicas.ends(tp)

    def controller_node(self) -> Node | None:
        entry = self._znodes.get("/controller")
        if entry is None or not entry.data:
            return None
        return self.broker_nodes()[int(json.loads(entry.data)["brokerid"])]

    def topics(self) -> set[str]:
        return set(self._znodes["/brokers/topics"].children)

    def topic_brokers(self) -> dict[str, set[int]]:
        found = {}
        for topic in sorted(self.topics()):
            entry = self._znodes.get(f"/brokers/topics/{topic}")
            partitions = json.loads(entry.data)["partitions"] if entry and entry.data else {}
            found[topic] = {b for brokers in partitions.values() for b in brokers}
        return found

    def started(self, node: Node) -> bool:
        return self.processes.started(node)

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
        folders = [node.disk.folders for node in self.broker_nodes()]
        return disagreements(self.zookeeper.tree.nodes, brokers, folders)

    def raw_logs(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, dict[int, bytes]]:
        """Read every assigned replica straight from the simulated disks."""
        return self.replicas.raw(tps)

    def logs(
        self, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, dict[int, list[LogRecord]]]:
        """Return every assigned replica's records, without markers."""
        return self.replicas.records(tps)

    def end(self, tp: TopicPartition) -> int:
        """Return the offset after the last record of the longest replica, strays left out."""
        replicas = self.assignment().get(tp, ())
        return max((e for b, e in self.replicas.ends(tp).items() if b in replicas), default=0)

    def caught_up(self, node: Node) -> bool:
        """Whether a broker's disk holds, of every partition, what all the others hold."""
        whole = not self.bit_flips.there(node)
        return whole and self.replicas.caught_up(_id_of(node), self.watched)

    def regained(self, node: Node, lacking: Collection[Node]) -> bool:
        """Whether a broker is up and has all that those have which have lost nothing."""
        gone = [_id_of(other) for other in lacking]
        whole = node.up and not self.bit_flips.there(node)
        return whole and self.replicas.has_all(_id_of(node), self.watched, gone)

    # The run.

    def boot(self) -> None:
        """Start ZooKeeper, then the brokers."""
        self.zookeeper_node().boot(self.zk.main)
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
                "moves_asked": sum(o.asked for o in self._operators if isinstance(o, Mover)),
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
            await self.coordination.begin_groups(world, client)
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
                mover = Mover(world, self.bootstrap, zookeeper, self.watched, *sizes, operations)
                self._operators.append(mover)
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
                    self.log_dirs,
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
        logs = self.logs([*self.tps, *self.copies])
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
        return check_checksums(self.raw_logs(self.watched)) if self.bit_flips.count else []

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


def _id_of(node: Node) -> int:
    return int(node.name.removeprefix("b"))


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
        return _run(plan, sink, until_s)


def _run(plan: Plan, sink: Callable[[str], object] | None, until_s: float | None) -> Verdict:
    with under_way(Cluster(plan, simulation_of(plan, sink))) as cluster:
        return cluster.run(until_s=until_s)


@contextlib.contextmanager
def under_way(cluster: ClusterT) -> Iterator[ClusterT]:
    """Watch a cluster while it runs, and end all of it afterwards."""
    try:
        with cluster.in_sync.watching():
            yield cluster
    finally:
        # The caller's `garbage_kept` collects, when the cluster itself is garbage.
        cluster.simulation.close(collect=False)
