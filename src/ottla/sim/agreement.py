"""Agreement: at rest ZooKeeper, the controller and every broker know the same of the cluster.

Plain code over values: each function returns what does not agree, one line each. ZooKeeper is the
truth; the controller's context has to equal it, and every broker's metadata cache and replicas the
context.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.metadata.metadata_cache import Snapshot
from ottla.controller.context import Context
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.log.log_dir import FUTURE
from ottla.model.cluster import LeaderIsrAndControllerEpoch, TopicInfo
from ottla.model.ids import TopicPartition
from ottla.replication.replica_manager import ReplicaManager
from ottla.zookeeper.memory_tree import Znode
from ottla.zookeeper.znodes import (
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    TOPICS,
    decode_controller,
    decode_controller_epoch,
    decode_state,
    decode_topic,
    state_path,
)


@dataclass(slots=True)
class Facts:
    """What ZooKeeper holds. `brokers` gives each live one's epoch, `requests` what is undone."""

    controller: int = -1
    epoch: int = -1
    epoch_version: int = -1
    brokers: dict[int, int] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    states: dict[TopicPartition, LeaderIsrAndControllerEpoch] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def partitions(self) -> Iterator[TopicPartition]:
        for name, topic in self.topics.items():
            for partition in sorted(topic.assignment):
                yield TopicPartition(name, partition)


def read_facts(nodes: Mapping[str, Znode]) -> Facts:
    """Read the tree of the in-memory ZooKeeper."""
    facts = Facts()
    if CONTROLLER in nodes:
        facts.controller = decode_controller(nodes[CONTROLLER].data or b"").broker_id
    if CONTROLLER_EPOCH in nodes:
        facts.epoch = decode_controller_epoch(nodes[CONTROLLER_EPOCH].data or b"")
        facts.epoch_version = nodes[CONTROLLER_EPOCH].version
    if BROKER_IDS in nodes:
        for child in sorted(nodes[BROKER_IDS].children, key=int):
            facts.brokers[int(child)] = nodes[f"{BROKER_IDS}/{child}"].czxid
    if TOPICS in nodes:
        for name in sorted(nodes[TOPICS].children):
            facts.topics[name] = decode_topic(name, nodes[f"{TOPICS}/{name}"].data or b"")
    for tp in facts.partitions():
        node = nodes.get(state_path(tp))
        if node is not None:
            facts.states[tp] = decode_state(tp, node.data or b"", node.version)
    if DELETE_TOPICS in nodes:
        facts.requests += [f"{DELETE_TOPICS}/{c}" for c in sorted(nodes[DELETE_TOPICS].children)]
    for path in (REASSIGN_PARTITIONS, PREFERRED_REPLICA_ELECTION):
        if path in nodes:
            facts.requests.append(path)
    return facts


def unfinished(facts: Facts) -> list[str]:
    """Return what was asked for and is not done: requests, and partitions on the move."""
    return [f"{path} is still there" for path in facts.requests] + [
        f"{tp} is still being reassigned: {facts.topics[tp.topic].assignment[tp.partition]}"
        for tp in facts.partitions()
        if facts.topics[tp.topic].assignment[tp.partition].being_reassigned
    ]


def unled(facts: Facts) -> list[str]:
    """Return the partitions without a live leader, and those whose ISR is not all replicas."""
    found = []
    for tp in facts.partitions():
        state = facts.states.get(tp)
        replicas = facts.topics[tp.topic].assignment[tp.partition].replicas
        if state is None:
            found.append(f"{tp} has no state")
        elif state.leader_and_isr.leader not in facts.brokers:
            found.append(f"{tp} has no live leader: {state.leader_and_isr}")
        elif set(state.leader_and_isr.isr) != set(replicas):
            found.append(f"{tp} has ISR {state.leader_and_isr.isr} of replicas {replicas}")
    return found


def context_against(context: Context, facts: Facts) -> Iterator[str]:
    """Compare what the controller knows with ZooKeeper."""
    yield from _differ("controller epoch", context.epoch, facts.epoch)
    yield from _differ("version of the epoch", context.epoch_zk_version, facts.epoch_version)
    epochs = {broker.id: broker.epoch for broker in context.brokers.values()}
    yield from _differ("live brokers and their epochs", epochs, facts.brokers)
    yield from _differ("shutting down", context.shutting_down, set())
    yield from _differ("topics", sorted(context.topics), sorted(facts.topics))
    yield from _differ("topics being deleted", list(context.deleting), [])
    yield from _differ("partitions being reassigned", list(context.reassigning), [])
    for name, topic in facts.topics.items():
        yield from _differ(f"{name} id", context.topic_ids.get(name), topic.topic_id)
        yield from _differ(f"{name} assignment", context.assignments.get(name), topic.assignment)
    for tp, state in facts.states.items():
        yield from _differ(f"{tp} leadership", context.leadership.get(tp), state)
    for tp in [tp for tp in context.leadership if tp not in facts.states]:
        yield f"{tp} leadership: the controller knows of {context.leadership[tp]}, no broker does"
    yield from _states_against(context, facts)


def _states_against(context: Context, facts: Facts) -> Iterator[str]:
    for tp in facts.partitions():
        state = facts.states.get(tp)
        led = state is not None and state.leader_and_isr.leader in facts.brokers
        wanted = PartitionState.ONLINE if led else PartitionState.OFFLINE
        yield from _differ(f"{tp} state", context.partition_states[tp], wanted)
        for broker in facts.topics[tp.topic].assignment[tp.partition].replicas:
            replica = PartitionReplica(tp, broker)
            alive = ReplicaState.ONLINE if broker in facts.brokers else ReplicaState.OFFLINE
            yield from _differ(f"{replica} state", context.replica_states[replica], alive)


def cache_against(snapshot: Snapshot, context: Context, controller: int) -> Iterator[str]:
    """Compare what a broker tells its clients with what the controller knows."""
    yield from _differ("controller", snapshot.controller_id, controller)
    yield from _differ("live brokers", sorted(snapshot.brokers), sorted(context.brokers))
    yield from _differ("topics", sorted(snapshot.topics), sorted(context.topics))
    for name, topic in snapshot.topics.items():
        known = context.assignments.get(name, {})
        yield from _differ(f"{name} id", topic.topic_id, context.topic_id(name))
        yield from _differ(f"{name} partitions", sorted(topic.partitions), sorted(known))
        for number, listed in topic.partitions.items():
            tp = TopicPartition(name, number)
            leadership = context.leadership.get(tp)
            if leadership is None:
                continue
            state = leadership.leader_and_isr
            replicas = context.assignment(tp).replicas
            told_facts: tuple[Any, ...] = (
                listed.leader,
                listed.leader_epoch,
                listed.isr,
                listed.partition_epoch,
                listed.controller_epoch,
                listed.replicas,
                listed.offline_replicas,
            )
            offline = tuple(r for r in replicas if not context.is_online(r, tp))
            true_facts: tuple[Any, ...] = (
                state.leader,
                state.leader_epoch,
                state.isr,
                state.partition_epoch,
                leadership.controller_epoch,
                replicas,
                offline,
            )
            yield from _differ(str(tp), told_facts, true_facts)


def replicas_against(manager: ReplicaManager, context: Context) -> Iterator[str]:
    """Compare what a broker leads and follows with what the controller knows."""
    own = set(context.partitions_on(manager.broker_id))
    yield from _differ("partitions", sorted(manager.partitions), sorted(own))
    yield from _differ("offline partitions", sorted(manager.offline), [])
    yield from _differ("controller epoch", manager.controller_epoch, context.epoch)
    for tp in sorted(own & set(manager.partitions)):
        ours, leadership = manager.partitions[tp], context.leadership.get(tp)
        if leadership is None:
            continue
        state = leadership.leader_and_isr
        # The order does not count: a controller that dies after it wrote another order of the same
        # replicas leaves it at that, as Kafka's does, and brokers make no use of it.
        replicas = sorted(ours.state.replicas)
        role: tuple[Any, ...] = (
            ours.state.is_leader,
            ours.state.leader,
            ours.state.leader_epoch,
            replicas,
        )
        true_role: tuple[Any, ...] = (
            state.leader == manager.broker_id,
            state.leader,
            state.leader_epoch,
            sorted(context.assignment(tp).replicas),
        )
        yield from _differ(f"{tp} role", role, true_role)
        yield from _differ(f"{tp} topic id", bytes(ours.state.topic_id), context.topic_id(tp.topic))
        if ours.state.is_leader:
            isr = (set(ours.state.isr.committed), ours.state.partition_epoch)
            yield from _differ(f"{tp} ISR", isr, (set(state.isr), state.partition_epoch))


def log_dirs_against(manager: ReplicaManager, folders: Collection[str]) -> Iterator[str]:
    """Compare where a broker says that its replicas lie with its disk; no move is under way.

    A broker that was down when a partition moved away keeps what it had of it, as in Kafka: the
    current log and, if that was moving to another dir, the future log, for when it comes back.
    """
    places: dict[str, list[str]] = {}
    for folder in sorted(folders):
        places.setdefault(folder.rpartition("/")[2], []).append(folder)
    kept = _futures_of_strays(manager, places)
    for name, there in places.items():
        if name.endswith(FUTURE) and there != kept.get(name):
            yield f"{' '.join(there)} is there, should have taken a log's place or be gone"
    yield from _differ("moves under way", manager.moves.statistics()["moving"], 0)
    for tp, partition in sorted(manager.partitions.items()):
        if partition.future is not None:
            yield f"{tp} is still on its way to {partition.future.parent_dir}"
        if partition.log is not None and (found := places.get(str(tp))):
            yield from _differ(f"{tp} folders", found, [partition.log.dir])


def _futures_of_strays(
    manager: ReplicaManager, places: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Return the future logs, by folder name, of partitions that are not this broker's any more.

    Only with the current log beside it: a future log that a deletion has left behind has none.
    """
    kept = {}
    for log in manager.logs.logs():
        future = manager.logs.future(log.tp)
        if future is None or log.tp in manager.partitions or places.get(str(log.tp)) != [log.dir]:
            continue
        kept[future.dir.rpartition("/")[2]] = [future.dir]
    return kept


def disagreements(
    nodes: Mapping[str, Znode],
    brokers: Iterable[Broker],
    folders: Sequence[Collection[str]] = (),
) -> list[str]:
    """Compare everything with everything; nothing is to be under way any more.

    `folders`: of each broker's disk.
    """
    facts = read_facts(nodes)
    brokers = list(brokers)
    active = [b for b in brokers if b.services.controller.is_active]
    if [b.broker_id for b in active] != [facts.controller]:
        ids = [b.broker_id for b in active]
        return [f"active controllers {ids}, by ZooKeeper {facts.controller}"]
    context = active[0].services.controller.context
    assert context is not None
    registered = {b.broker_id: b.services.session.broker_epoch for b in brokers}
    found = [*unfinished(facts), *unled(facts)]
    found += _differ("registered brokers and their epochs", facts.brokers, registered)
    found += [f"controller {facts.controller}: {d}" for d in context_against(context, facts)]
    for broker in brokers:
        snapshot = broker.services.metadata.snapshot
        cache = cache_against(snapshot, context, facts.controller)
        found += [f"broker {broker.broker_id} metadata cache: {d}" for d in cache]
        replicas = replicas_against(broker.services.replicas, context)
        found += [f"broker {broker.broker_id} replicas: {d}" for d in replicas]
    for broker, there in zip(brokers, folders, strict=bool(folders)):
        lines = log_dirs_against(broker.services.replicas, there)
        found += [f"broker {broker.broker_id} log dirs: {d}" for d in lines]
    return found


def _differ(what: str, have: object, want: object) -> Iterator[str]:
    if have != want:
        yield f"{what} {have}, should be {want}"
