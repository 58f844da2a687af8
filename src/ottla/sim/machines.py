"""The machines of a run: ZooKeeper zk, brokers b0…, and one for clients; what is seen of them.

Invariants: brokers enter by the product's own entry point (`Broker(config, world)`); looking at
ZooKeeper's znodes and at disks changes nothing.
"""

import json
from collections.abc import Collection
from typing import Any

from ottla.broker.broker import Broker
from ottla.model.config import BrokerConfig
from ottla.model.ids import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.sim.administrators import set_min_isr
from ottla.sim.agreement import disagreements
from ottla.sim.bit_flips import BitFlips
from ottla.sim.broker_processes import (
    COPIES,
    INTERNAL_PARTITIONS,
    LOG_DIRS,
    PORT,
    BrokerProcesses,
    broker_config,
)
from ottla.sim.folder_rules import FolderRules
from ottla.sim.history import History
from ottla.sim.loop import SimLoop
from ottla.sim.operators import Mover
from ottla.sim.plans import Plan
from ottla.sim.replica_files import ReplicaFiles
from ottla.sim.world import Node, Simulation
from ottla.sim.zookeeper_node import WatchedWrites, ZooKeeperNode
from ottla.zookeeper.memory import LoggedWrite, MemoryZooKeeper
from ottla.zookeeper.memory_tree import Znode

UNCLEAN = "unclean"
"""A topic of unclean elections: it may lose what it acknowledged, and keeps all else."""
TOPICS = "/brokers/topics"


def _state_path(tp: TopicPartition) -> str:
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}/state"


class Machines:
    """All of them, by a plan. `zookeeper_wrote` and `zookeeper_restored` are for a judge."""

    def __init__(self, plan: Plan, simulation: Simulation) -> None:
        self.plan = plan
        self.simulation = simulation
        self.history = History()
        zk = simulation.node("zk")
        self.zk = ZooKeeperNode(
            zk,
            self.zookeeper_wrote,
            self._ended,
            self.zookeeper_restored,
            durable=plan.durable_zookeeper,
        )
        self.processes = BrokerProcesses(simulation, plan, self.zk, self.config, self.prepare)
        self.brokers = self.processes.brokers
        self.firm = [TopicPartition(plan.topic, p) for p in range(plan.partitions)]
        self.tps = self.firm + [TopicPartition(UNCLEAN, p) for p in range(plan.unclean_partitions)]
        """All that clients write to; `firm` are those that never lose what they acknowledged."""
        self.copies = [TopicPartition(COPIES, p) for p in range(plan.partitions) if plan.copiers]
        """What transactional copiers write to."""
        self.internal = [
            TopicPartition(topic, p)
            for topic in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)
            for p in range(INTERNAL_PARTITIONS)
            if plan.coordinated
        ]
        self.watched = [*self.tps, *self.copies, *self.internal]
        """All whose replicas have to be in sync, and are moved about."""
        self.replicas = ReplicaFiles(self.broker_nodes(), LOG_DIRS, self.assignment)
        self.folders = FolderRules()
        self.bit_flips = BitFlips(self.replicas.paths)
        self.mover: Mover | None = None

    @property
    def zookeeper(self) -> MemoryZooKeeper | None:
        """The server that runs, or the last one."""
        return self.zk.server

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

    def zookeeper_restored(self, writes: WatchedWrites) -> None:
        """ZooKeeper is about to go on from an older state than these writes led to."""

    def _ended(self, node: Node, why: str) -> None:
        self.processes.ended(node, why)

    def prepare(self, broker: Broker) -> None:
        """Do something to a broker that is about to start."""

    # What is done to them.

    def second(self, node: Node) -> Node:
        return self.simulation.node(f"{node.name}x")

    def start_second(self, node: Node) -> Node:
        """Start a second process of a broker's id on a copy of its disk; return its node."""
        second = self.second(node)
        second.disk.restore(node.disk.copy())
        second.boot(self.processes.main(second, id_of(node)))
        return second

    def end_second(self, node: Node, second: Node) -> None:
        """End a second process; if it has the registration, the broker goes on with its disk."""
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
        """Have min.insync.replicas set, or no value of its own (None); see `administrators`."""
        client = self.client_node()
        if client.up:
            client.loop.create_task(set_min_isr(client.world, self.bootstrap, scope, where, value))

    def note_forgotten(self) -> None:
        """Note which replicas ZooKeeper does not know of any more: they must be kept."""
        deleted = self.deletions()
        self.folders.note_forgotten(self.broker_nodes(), self.topic_ids(), deleted)

    def expire_session(self, node: Node) -> bool:
        session_id = self._session_id(node)
        if session_id is None or self.zookeeper is None or not self.zk.node.up:
            return False
        self.zk.node.loop.call_soon(self.zookeeper.expire, session_id)
        return True

    def reassign(self, tp: TopicPartition, replicas: list[int] | None) -> bool:
        """Have the mover ask to move a partition (None: cancel); False if there is no mover."""
        if self.mover is not None:
            self.client_node().loop.create_task(self.mover.reassign(tp, replicas))
        return self.mover is not None

    def lose_zookeeper_message(self, *, reply: bool) -> str:
        assert self.zookeeper is not None
        lose = self.zookeeper.lose_reply if reply else self.zookeeper.lose_request
        lose(lambda _op, path: path.startswith(("/brokers", "/controller", "/admin")))
        return "of whoever comes next"

    # What ZooKeeper has.

    @property
    def znodes(self) -> dict[str, Znode]:
        assert self.zookeeper is not None
        return self.zookeeper.tree.nodes

    def _read(self, path: str) -> Any:
        """Return a znode's JSON, None for one that is not there or is empty."""
        entry = self.znodes.get(path)
        return json.loads(entry.data) if entry is not None and entry.data else None

    def _session_id(self, node: Node) -> int | None:
        """Return the ZooKeeper session that owns a broker's registration."""
        entry = self.znodes.get(f"/brokers/ids/{node.name.removeprefix('b')}")
        return entry.owner if entry is not None else None

    def topics(self) -> set[str]:
        return set(self.znodes[TOPICS].children)

    def topic_ids(self) -> set[str]:
        found = [self._read(f"{TOPICS}/{topic}") for topic in self.topics()]
        return {topic["topic_id"] for topic in found if topic}

    def topic_brokers(self) -> dict[str, set[int]]:
        """Return the topics there are, and which brokers have a replica of each."""
        found = {}
        for topic in sorted(self.topics()):
            known = self._read(f"{TOPICS}/{topic}") or {"partitions": {}}
            found[topic] = {b for brokers in known["partitions"].values() for b in brokers}
        return found

    def deletions(self) -> set[str]:
        """Return the topics that are being deleted."""
        return set(self.znodes["/admin/delete_topics"].children)

    def judged_znodes(self) -> dict[str, bytes | None]:
        """Return what ZooKeeper has of all that is judged, and how far producer ids are given."""
        topics = sorted({tp.topic for tp in self.watched})
        paths = ["/latest_producer_id_block", *(f"{TOPICS}/{topic}" for topic in topics)]
        paths += map(_state_path, self.watched)
        return {path: self.znodes[path].data for path in paths if path in self.znodes}

    def partition_states(self) -> dict[TopicPartition, Any]:
        """Return the state znodes of the watched partitions."""
        found = ((tp, self._read(_state_path(tp))) for tp in self.watched)
        return {tp: state for tp, state in found if state is not None}

    def leader_and_isr(self, tp: TopicPartition) -> tuple[int, list[int]] | None:
        state = self._read(_state_path(tp))
        return None if state is None else (state["leader"], state["isr"])

    def assignment(self) -> dict[TopicPartition, set[int]]:
        """Return the replicas of the watched partitions, by their topics' znodes."""
        found: dict[TopicPartition, set[int]] = {}
        for topic in sorted({tp.topic for tp in self.watched}):
            known = self._read(f"{TOPICS}/{topic}") or {"partitions": {}}
            for number, brokers in known["partitions"].items():
                found[TopicPartition(topic, int(number))] = set(brokers)
        return found

    def controller_node(self) -> Node | None:
        found = self._read("/controller")
        return None if found is None else self.broker_nodes()[int(found["brokerid"])]

    def all_in_sync(self) -> bool:
        """Whether every partition has a leader and its whole assignment in the ISR."""
        states = self.partition_states()
        return len(states) == len(self.watched) and all(
            set(states[tp]["isr"]) == replicas and states[tp]["leader"] != -1
            for tp, replicas in self.assignment().items()
        )

    def whole_everywhere(self, victims: Collection[Node], lacking: Collection[Node]) -> bool:
        """Whether, were `victims` to lose some, every partition keeps a whole replica in sync.

        `lacking`: brokers that have lost something before and not got it back.
        """
        if self.zk.writes.pending:
            return False  # ZooKeeper may yet lose what it is about to know
        gone = {id_of(node) for node in [*victims, *lacking]}
        states = self.partition_states()
        return len(states) == len(self.watched) and all(
            set(state["isr"]) - gone for state in states.values()
        )

    def disagreements(self) -> list[str]:
        """Return what is unfinished, unled, or not known to all alike; who is down."""
        down = [n.name for n in self.broker_nodes() if not n.up or n.name not in self.brokers]
        if down:
            return [f"{' '.join(down)} not up"]
        brokers = [self.brokers[node.name] for node in self.broker_nodes()]
        folders = [node.disk.folders for node in self.broker_nodes()]
        return disagreements(self.znodes, brokers, folders)

    # What disks have.

    def end(self, tp: TopicPartition) -> int:
        """Return the offset after the last record of the longest replica, strays left out."""
        replicas = self.assignment().get(tp, ())
        return max((e for b, e in self.replicas.ends(tp).items() if b in replicas), default=0)

    def caught_up(self, node: Node) -> bool:
        """Whether a broker's disk holds, of every partition, what all the others hold."""
        whole = not self.bit_flips.there(node)
        return whole and self.replicas.caught_up(id_of(node), self.watched)

    def regained(self, node: Node, lacking: Collection[Node]) -> bool:
        """Whether a broker is up and has all that those have which have lost nothing."""
        gone = [id_of(other) for other in lacking]
        whole = node.up and not self.bit_flips.there(node)
        return whole and self.replicas.has_all(id_of(node), self.watched, gone)


def id_of(node: Node) -> int:
    return int(node.name.removeprefix("b"))
